"""Changes something again and again beside a test, in a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(change: Callable[[], object], pause_s: Callable[[], float]) -> Iterator[None]:
    """Call `change` until the end of the block, after a pause of `pause_s()` each time."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause_s()):
            change()

    changing = threading.Thread(target=repeat)
    changing.start()
    try:
        yield
    finally:
        ended.set()
        changing.join()
