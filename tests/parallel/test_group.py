"""Meetings of a group."""

import pytest
import torch
from torch import Tensor

from cvgp.errors import FactorizationError, WorkerError
from cvgp.parallel.group import Launch, check_same, gather_text, launched, sum_of
from tests.parallel.groups import ThreadGroup, run_in_threads


def test_texts_are_gathered_in_order() -> None:
    assert run_in_threads(3, lambda group: gather_text(group, "é" * group.rank)) == [["", "é", "éé"]] * 3


def test_sums_are_over_all_processes() -> None:
    sums = run_in_threads(3, lambda g: sum_of(g, lambda: [torch.tensor([1.0 + g.rank])], [torch.empty(1)])[0].item())
    assert sums == [6.0] * 3


def test_a_process_that_fails_on_numbers_makes_the_sums_of_the_others_nan() -> None:
    def work(group: ThreadGroup) -> list[float] | str:
        def compute() -> list[Tensor]:
            if group.rank == 1:
                raise FactorizationError("not positive definite")
            return [torch.ones(2)]

        try:
            return sum_of(group, compute, [torch.empty(2)])[0].tolist()
        except FactorizationError as error:
            return str(error)

    first, second, third = run_in_threads(3, work)
    assert second == "not positive definite"
    assert str(first) == str(third) == "[nan, nan]"


def test_numbers_that_differ_in_the_last_digit_are_told_to_all() -> None:
    def work(group: ThreadGroup) -> str:
        with pytest.raises(WorkerError) as caught:
            check_same(group, torch.tensor(1.0 + 1e-16 * (group.rank == 2) * 4, dtype=torch.float64), "The numbers")
        return str(caught.value)

    messages = run_in_threads(3, work)
    assert len(set(messages)) == 1
    assert messages[0].startswith("The numbers differ in 1 of 3 workers from those of worker 0.")


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
