"""Memory of a process in large pages."""

import ctypes
import mmap
import re
from pathlib import Path

from daemon_kit.large_pages import LARGE_PAGE, gather


def in_memory(what: str) -> int:
    """Return how many bytes of this process are in memory, by a line of smaps_rollup."""
    found = re.search(rf"^{what}: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def test_full_memory_is_gathered_into_large_pages_and_keeps_its_bytes() -> None:
    before = in_memory("AnonHugePages")
    with mmap.mmap(-1, 4 * LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = bytes(range(256)) * (len(memory) // 256)
        count = gather()
        held = in_memory("AnonHugePages")
        assert bytes(memory) == bytes(range(256)) * (len(memory) // 256)
    assert 0 <= held - before <= count * LARGE_PAGE
    assert count >= 3 or not can_collapse(), "four of them, of which three at least lie whole in their places"


def test_memory_that_is_hardly_used_does_not_grow_by_gathering() -> None:
    gather()
    with mmap.mmap(-1, 64 * LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[0] = memory[LARGE_PAGE] = 1
        before = in_memory("Rss")
        gather()
        assert in_memory("Rss") - before < 4 * LARGE_PAGE


def test_a_kernel_that_does_not_tell_what_is_where_is_no_error(tmp_path: Path) -> None:
    assert gather(tmp_path / "none") == 0


def can_collapse() -> bool:
    """Tell whether this kernel moves a page that is full on its own: it may be too old, or have none free."""
    with mmap.mmap(-1, 2 * LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = b"x" * len(memory)
        at = ctypes.addressof(pinned := ctypes.c_char.from_buffer(memory))
        aligned = -(-at // LARGE_PAGE) * LARGE_PAGE
        libc = ctypes.CDLL(None)
        result = libc.madvise(ctypes.c_void_p(aligned), ctypes.c_size_t(LARGE_PAGE), 25)
        del pinned
    return bool(result == 0)
