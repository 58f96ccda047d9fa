"""TCP's initial retransmission timeout for one process: a BPF program on sockops of a cgroup of its own.

Linux has 1 s (RFC 6298), and no option for it; the published simulation has 3 s.
"""

import contextlib
import ctypes
import os
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rspdns_lab.errors import LabError

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _LINK_CREATE = 5, 28
_SOCK_OPS, _CGROUP_SOCK_OPS = 13, 3
_TIMEOUT_INIT: Final = 1
_USUAL_HZ: Final = (100, 250, 300, 1000)
_MEASURED_S: Final = 0.2


@contextlib.contextmanager
def initial_timeout(seconds: float) -> Iterator[Path]:
    """Make a cgroup in which SYN and SYN-ACK are repeated after `seconds`; yield its `cgroup.procs`.

    Raises LabError where the kernel, or the lack of root, does not allow it.
    """
    with contextlib.ExitStack() as stack:
        try:
            mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
            root = next((mount[1] for mount in mounts if mount[2] == "cgroup2"), "(no cgroup2)")
            folder = Path(root) / f"rspdns-lab-{os.getpid()}"
            folder.mkdir()
            stack.callback(folder.rmdir)
            stack.callback(os.close, _attach(folder, round(seconds * _hz())))
        except OSError as error:
            raise LabError(
                f"TCP's initial timeout can't be set ({error.strerror or error}): that needs root, cgroup2 "
                "and BPF; --initial-rto 1 leaves it as Linux has it"
            ) from None
        yield folder / "cgroup.procs"


def _hz() -> int:
    """How many jiffies a second has."""

    def clocks() -> tuple[float, int]:
        jiffies = re.search(r"jiffies: (\d+)", Path("/proc/timer_list").read_text())
        return time.monotonic(), int(jiffies[1]) if jiffies else 0

    began_s, began = clocks()
    time.sleep(_MEASURED_S)
    ended_s, ended = clocks()
    return min(_USUAL_HZ, key=lambda usual: abs(usual - (ended - began) / (ended_s - began_s)))


def _attach(cgroup: Path, jiffies: int) -> int:
    """Load the program and attach it; return the link's descriptor: the program goes with it."""
    program = b"".join(
        struct.pack("=BBhi", code, destination | source << 4, offset, value)
        for code, destination, source, offset, value in (
            (0x61, 2, 1, 0, 0),  # r2 = ops->op
            (0xB7, 3, 0, 0, -1),  # r3 = -1: as the kernel has it
            (0x55, 2, 0, 1, _TIMEOUT_INIT),  # if r2 != TIMEOUT_INIT, skip the next
            (0xB7, 3, 0, 0, jiffies),  # r3 = jiffies
            (0x63, 1, 3, 4, 0),  # ops->reply = r3
            (0xB7, 0, 0, 0, 1),
            (0x95, 0, 0, 0, 0),  # return 1
        )
    )
    instructions, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"GPL")
    addresses = ctypes.addressof(instructions), ctypes.addressof(licence)
    head = struct.pack("=IIQQIIQII", _SOCK_OPS, len(program) // 8, *addresses, 0, 0, 0, 0, 0)
    loaded = _bpf(_PROG_LOAD, head + struct.pack("=16sII", b"initial_timeout", 0, _CGROUP_SOCK_OPS))
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return _bpf(_LINK_CREATE, struct.pack("=IIII", loaded, folder, _CGROUP_SOCK_OPS, 0))
    finally:
        os.close(folder)
        os.close(loaded)


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    text = ctypes.create_string_buffer(attributes, len(attributes))
    done: int = libc.syscall(_NUMBERS[os.uname().machine], command, text, len(attributes))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
