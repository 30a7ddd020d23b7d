import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvgp.data.tables.shuffle import mix_blocks


@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=8), lanes=st.integers(1, 5), seed=st.integers(0, 99))
def test_every_block_of_every_part_has_one_turn(sizes: list[int], lanes: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(sizes)).tolist()
    turns = mix_blocks(sizes, order, lanes)
    assert sorted(map(tuple, turns.tolist())) == [(part, block) for part, n in enumerate(sizes) for block in range(n)]


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8), lanes=st.integers(1, 5))
def test_blocks_of_a_part_come_in_order_and_only_so_many_parts_are_open(sizes: list[int], lanes: int) -> None:
    begun: dict[int, int] = {}
    for part, block in mix_blocks(sizes, range(len(sizes)), lanes).tolist():
        assert begun.get(part, 0) == block
        begun[part] = block + 1
        assert sum(0 < n < sizes[p] for p, n in begun.items()) <= lanes


def test_parts_take_turns() -> None:
    assert mix_blocks([2, 2, 1], [0, 1, 2], 2).tolist() == [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0]]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_parts_come_in_the_order_that_is_given(order: list[int]) -> None:
    assert mix_blocks([1, 1], order, 1)[:, 0].tolist() == order
