import pytest

from cvgp.cli.several_values import is_number, join_values


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["--quantiles", ".1", ".5", "--out", "o.csv"], ["--quantiles", ".1,.5", "--out", "o.csv"]),
        (["--quantiles", ".1", ".5", "model", "data.csv"], ["--quantiles", ".1,.5", "model", "data.csv"]),
        (["--quantiles", ".1,.5", ".9"], ["--quantiles", ".1,.5,.9"]),
        (["--level", ".9", "5"], ["--level", ".9", "5"]),
    ],
)
def test_numbers_after_the_option_are_its_values(words: list[str], joined: list[str]) -> None:
    assert join_values(words, ["--quantiles"], is_number) == joined
