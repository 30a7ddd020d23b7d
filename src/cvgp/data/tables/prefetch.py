"""Reading ahead: the next items are made in a thread while the caller computes with the present one."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["prefetch"]

Item = TypeVar("Item")


def prefetch(make: Callable[[], Iterable[Item]], depth: int = 1) -> Iterator[Item]:
    """The items of ``make()``, at most `depth` of them ready at a time, beside the one in the making.

    An error in the thread is raised where its item would have come. The thread ends with the iterator, also when that
    is dropped half way.
    """
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def put(kind: str, item: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put((kind, item), timeout=0.05)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in make():
                if not put("item", item):
                    return
        except BaseException as error:  # whatever it is, it belongs to the caller
            put("error", error)
        else:
            put("end", None)

    thread = threading.Thread(target=work, name="cvgp-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
            del item  # not held while the next one is waited for
    finally:
        stop.set()
        thread.join()
