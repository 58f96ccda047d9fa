"""Runs a loaded BPF program on one packet (BPF_PROG_TEST_RUN), without a network."""

from __future__ import annotations

import ctypes
import os
import struct

_SYSCALL = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
_TEST_RUN, _GET_FD_BY_ID = 10, 13
_LIBC = ctypes.CDLL(None, use_errno=True)
_MOST_BYTES = 4096
ANSWERED, PASSED = 7, 2**32 - 1
"""TC_ACT_REDIRECT and TC_ACT_UNSPEC."""


class LoadedProgram:
    """The program with this identifier; as `tc filter show` tells it."""

    def __init__(self, identifier: int) -> None:
        self._file = _bpf(_GET_FD_BY_ID, bytearray(struct.pack("=III", identifier, 0, 0)))

    def run(self, packet: bytes) -> tuple[int, bytes]:
        """Return what the program returns, and the packet as it is then. Raises OSError: no packet at all."""
        given = ctypes.create_string_buffer(packet, len(packet))
        got = ctypes.create_string_buffer(_MOST_BYTES)
        attributes = bytearray(
            struct.pack(
                "=IIIIQQIIIIQQIIII",
                *(self._file, 0, len(packet), _MOST_BYTES, ctypes.addressof(given), ctypes.addressof(got)),
                *(1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
            )
        )
        _bpf(_TEST_RUN, attributes)
        _, returned, _, size = struct.unpack_from("=IIII", attributes)
        return returned, got.raw[:size]

    def close(self) -> None:
        """Let the program go."""
        os.close(self._file)


def _bpf(command: int, attributes: bytearray) -> int:
    memory = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    result: int = _LIBC.syscall(_SYSCALL, command, memory, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
