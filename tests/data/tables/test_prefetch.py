import threading
import time
from collections.abc import Iterator

import pytest

from cvgp.data.tables.prefetch import prefetch


def threads() -> int:
    return sum(thread.name.startswith("cvgp-prefetch") for thread in threading.enumerate())


def test_items_come_in_order() -> None:
    assert list(prefetch(lambda: range(100))) == list(range(100))


def test_an_error_comes_where_its_item_would_have() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    found = prefetch(items)
    assert next(found) == 1
    with pytest.raises(ValueError, match="the second"):
        next(found)


def test_one_item_is_made_ahead() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    found = prefetch(items)
    next(found)
    time.sleep(0.3)
    assert made == [0, 1]  # the one in use, and the next
    del found


def test_the_next_item_is_made_while_the_present_one_is_used() -> None:
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    found = prefetch(items)
    next(found)
    assert second.wait(5.0)
    del found


def test_the_thread_ends_with_an_iterator_that_is_dropped() -> None:
    before = threads()
    found = prefetch(lambda: iter(range(100)))
    next(found)
    assert threads() == before + 1
    del found
    assert threads() == before
