"""Pacing of TCP connection set-up: loads bpf/pace.bpf.c by libbpf, and keeps its map of members.

libbpf is called by ctypes: it has no Python binding that is kept up. The program is attached to the root of
the cgroups by a link, which ends with this process.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Final, NamedTuple

Address = IPv4Address | IPv6Address

LIBRARY: Final = "libbpf.so.1"
OBJECT: Final = Path(__file__).with_name("pace.bpf.o")
_MEMBER: Final = struct.Struct("=16sII")
_PACING: Final = struct.Struct("=IIII")
_SETTING: Final = struct.Struct("=QQ")
_SO_NETNS_COOKIE: Final = 71
_USUAL_HZ: Final = (100, 250, 300, 1000)
_MEASURED_S: Final = 0.1
_FRAME: Final = bytes(64)


class PaceError(Exception):
    """Set-up can't be paced on this host; the words say why."""


class Pacing(NamedTuple):
    """A SYN again after `first_ms`, no more after `give_up_ms`; `learns`: after 1.5 known round trips."""

    first_ms: int
    give_up_ms: int
    learns: bool


class _TestRun(ctypes.Structure):
    """struct bpf_test_run_opts."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    ]


class Pacer:
    """The program, attached. Raises PaceError when this host can't."""

    def __init__(self) -> None:
        self._object: int | None = None
        self._link: int | None = None
        self._known: dict[tuple[Address, int], Pacing] = {}
        if not OBJECT.exists():
            raise PaceError(f"{OBJECT} is missing: `make -C ppu-agent` builds it (clang, libbpf-dev)")
        try:
            self._bpf = _library()
        except OSError:
            raise PaceError(f"{LIBRARY} is missing (Debian: apt-get install libbpf1)") from None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._object = self._done(self._bpf.bpf_object__open_file(os.fsencode(OBJECT), None), "read")
        if self._bpf.bpf_object__load(self._object) != 0:
            raise _failed("load the BPF program (needs CAP_BPF, CAP_NET_ADMIN)")
        self._members = self._map(b"members")
        self._hz = self._measure_hz()
        setting = _SETTING.pack(_netns_cookie(), self._hz)
        self._update(self._map(b"settings"), struct.pack("=I", 0), setting)
        cgroup = os.open(cgroup_root(), os.O_RDONLY | os.O_DIRECTORY)
        try:
            program = self._done(self._bpf.bpf_object__find_program_by_name(self._object, b"pace"), "find")
            self._link = self._done(
                self._bpf.bpf_program__attach_cgroup(program, cgroup), "attach the BPF program to the cgroups"
            )
        finally:
            os.close(cgroup)

    def close(self) -> None:
        """Pace nothing any more; safe to repeat."""
        if self._link is not None:
            self._bpf.bpf_link__destroy(self._link)
            self._link = None
        if self._object is not None:
            self._bpf.bpf_object__close(self._object)
            self._object = None

    def set(self, members: Mapping[tuple[Address, int], Pacing]) -> None:
        """Pace set-up to these addresses and ports, and to no others. Raises PaceError."""
        for member in self._known.keys() - members.keys():
            self._bpf.bpf_map_delete_elem(self._members, _key(*member))
            del self._known[member]
        for member, pacing in members.items():
            if self._known.get(member) != pacing:
                value = _PACING.pack(self._jiffies(pacing.first_ms), pacing.give_up_ms, pacing.learns, 0)
                self._update(self._members, _key(*member), value)
                self._known[member] = pacing

    def round_trip_ms(self, address: Address, port: int) -> float | None:
        """The round trip to a member as the last set-up found it; None: not known."""
        value = ctypes.create_string_buffer(_PACING.size)
        if self._bpf.bpf_map_lookup_elem(self._members, _key(address, port), value) != 0:
            return None
        return int(_PACING.unpack(value.raw)[3]) / 1000 or None

    def _jiffies(self, milliseconds: int) -> int:
        return max(1, milliseconds * self._hz // 1000)

    def _measure_hz(self) -> int:
        """How many jiffies a second has: the kernel's configuration is not everywhere to be read."""
        program = self._done(self._bpf.bpf_object__find_program_by_name(self._object, b"jiffies"), "find")
        descriptor = self._bpf.bpf_program__fd(program)

        def jiffies() -> int:
            run = _TestRun(sz=ctypes.sizeof(_TestRun), data_in=_FRAME, data_size_in=len(_FRAME))
            if self._bpf.bpf_prog_test_run_opts(descriptor, ctypes.byref(run)) != 0:
                raise _failed("run the BPF program")
            return int(run.retval)

        began_s, began = time.monotonic(), jiffies()
        time.sleep(_MEASURED_S)
        found = ((jiffies() - began) & 0xFFFFFFFF) / (time.monotonic() - began_s)
        return min(_USUAL_HZ, key=lambda usual: abs(usual - found))

    def _map(self, name: bytes) -> int:
        descriptor: int = self._bpf.bpf_object__find_map_fd_by_name(self._object, name)
        if descriptor < 0:
            raise _failed("find the BPF program's map")
        return descriptor

    def _update(self, descriptor: int, key: bytes, value: bytes) -> None:
        if self._bpf.bpf_map_update_elem(descriptor, key, value, 0) != 0:
            raise _failed("write the BPF program's map")

    def _done(self, pointer: int | None, what: str) -> int:
        if not pointer:
            raise _failed(what)
        return pointer


def cgroup_root() -> Path:
    """The mount point of the hierarchy of cgroups (version 2). Raises PaceError."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2:3] == ["cgroup2"]:
            return Path(fields[1])
    raise PaceError("no cgroup2 file system is mounted here")


def _key(address: Address, port: int) -> bytes:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return _MEMBER.pack(address.packed, port, family)


def _netns_cookie() -> int:
    """The kernel's number for the network namespace of this thread. Raises PaceError."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            return int(struct.unpack("=Q", here.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8))[0])
    except OSError as problem:
        raise PaceError(f"this kernel is too old (Linux 5.16): {problem.strerror}") from None


def _failed(what: str) -> PaceError:
    return PaceError(f"can't {what}: {os.strerror(ctypes.get_errno())}")


def _library() -> Any:
    """libbpf, quiet. Raises OSError."""
    library: Any = ctypes.CDLL(LIBRARY, use_errno=True)
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("bpf_object__open_file", pointer, [ctypes.c_char_p, pointer]),
        ("bpf_object__load", ctypes.c_int, [pointer]),
        ("bpf_object__close", None, [pointer]),
        ("bpf_object__find_map_fd_by_name", ctypes.c_int, [pointer, ctypes.c_char_p]),
        ("bpf_object__find_program_by_name", pointer, [pointer, ctypes.c_char_p]),
        ("bpf_program__fd", ctypes.c_int, [pointer]),
        ("bpf_program__attach_cgroup", pointer, [pointer, ctypes.c_int]),
        ("bpf_link__destroy", ctypes.c_int, [pointer]),
        (
            "bpf_map_update_elem",
            ctypes.c_int,
            [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64],
        ),
        ("bpf_map_delete_elem", ctypes.c_int, [ctypes.c_int, ctypes.c_char_p]),
        ("bpf_map_lookup_elem", ctypes.c_int, [ctypes.c_int, ctypes.c_char_p, pointer]),
        ("bpf_prog_test_run_opts", ctypes.c_int, [ctypes.c_int, pointer]),
        ("libbpf_set_print", pointer, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.libbpf_set_print(None)
    return library
