"""Reading ahead: the next item is made in a thread while the caller computes with the present one."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(make: Callable[[], Iterable[Item]]) -> Iterator[Item]:
    """The items of ``make()``, each made while the one before it is in use.

    An error in the thread is raised where its item would have come. The thread ends with the iterator, also when that
    is dropped half way.
    """
    items = iter(make())
    with ThreadPoolExecutor(1, thread_name_prefix="cvgp-prefetch") as thread:
        following = thread.submit(_take_one, items)
        while one := following.result():
            following = thread.submit(_take_one, items)
            yield one.pop()  # so that it is not held while the next one is waited for


def _take_one(items: Iterator[Item]) -> list[Item]:
    """The next item; none at the end, since a future cannot pass a StopIteration on."""
    return list(islice(items, 1))
