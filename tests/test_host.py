import resource

import numpy as np
import pytest

from cvgp import host as memory
from cvgp.host import reused_memory

BLOCK, ROUNDS = 4_000_000, 20


def page_faults_of_a_loop() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(ROUNDS):
        blocks = [np.empty(BLOCK, dtype=np.uint8) for _ in range(10)]
        for block in blocks:
            block.fill(1)
        del blocks, block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(memory._mallopt() is None, reason="another C library")
def test_memory_that_is_freed_is_used_again() -> None:
    with reused_memory():
        page_faults_of_a_loop()  # the first round is new memory in any case
        assert page_faults_of_a_loop() < ROUNDS * 10 * BLOCK / resource.getpagesize() / 10


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_mallopt", lambda: None)
    with reused_memory():
        entered = True
    assert entered


def test_error_within_passes_through() -> None:
    with pytest.raises(ZeroDivisionError), reused_memory():
        raise ZeroDivisionError
