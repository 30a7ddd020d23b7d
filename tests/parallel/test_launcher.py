"""What a launcher says."""

import pytest

from cvgp.parallel.launcher import Launch, launched

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
PLACE = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def set_environment(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in (*TORCHRUN, *PLACE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_process_of_torchrun_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, TORCHRUN | PLACE)
    assert launched() == Launch(rank=3, world=4, local_rank=1, local_world=2, address="10.0.0.1:29500")


@pytest.mark.parametrize(
    "variables",
    [{}, TORCHRUN, PLACE, TORCHRUN | PLACE | {"RANK": "first"}, TORCHRUN | PLACE | {"RANK": "0", "WORLD_SIZE": "1"}],
    ids=["nothing", "no place to meet", "no number", "no number that is one", "a launch of one"],
)
def test_anything_else_is_one_process(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    set_environment(monkeypatch, variables)
    assert launched() == Launch()
