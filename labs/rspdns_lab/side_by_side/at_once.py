"""Doings that must not wait for each other, lest one approach has the fault later than another one."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def at_once(doings: Sequence[Callable[[], None]]) -> None:
    """Do all at the same time; raise what the first of them raised."""
    with ThreadPoolExecutor(max(1, len(doings))) as threads:
        for done in [threads.submit(doing) for doing in doings]:
            done.result()
