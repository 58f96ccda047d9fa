"""Hears registrars announce themselves over UDP multicast, for asyncio."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from rserpool.aio.driver import DeadlineTimer
from rserpool.machine.announced import MAX_ANNOUNCE_BYTES, RegistrarTable

_READS_IN_A_ROW: Final = 16
_PAUSE_S: Final = 0.05
"""After this number of datagrams in a row it pauses: a flood must not keep the loop from its work."""


class AnnounceListener:
    """Feeds `table` with what is sent to `group` and `port`, and calls `on_change` whenever it changed.

    `interface` is the name of the network interface to listen at; None: the one the system's routes choose.
    """

    def __init__(
        self,
        table: RegistrarTable,
        group: IPv4Address | IPv6Address,
        port: int,
        on_change: Callable[[], None],
        *,
        interface: str | None = None,
    ) -> None:
        self._table = table
        self._group = group
        self._port = port
        self._on_change = on_change
        self._interface = interface
        self._socket: socket.socket | None = None
        self._timer: DeadlineTimer | None = None

    def start(self) -> None:
        """Listen; must run in an event loop. Raise OSError when the group can't be joined."""
        self._socket = _joined(self._group, self._port, self._interface)
        self._timer = DeadlineTimer(self._expire)
        self._watch()

    def close(self) -> None:
        """Listen no more."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._timer is not None:
            self._timer.set(None)

    def _watch(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._readable)

    def _readable(self) -> None:
        if self._socket is None:
            return
        changed = False
        for _ in range(_READS_IN_A_ROW):
            try:
                data, source = self._socket.recvfrom(MAX_ANNOUNCE_BYTES + 1)
            except OSError:
                break
            changed |= self._table.received(data, source[:2], time.monotonic())
        else:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            loop.call_later(_PAUSE_S, self._watch)
        self._set_timer()
        if changed:
            self._on_change()

    def _expire(self) -> None:
        changed = self._table.expire(time.monotonic())
        self._set_timer()
        if changed:
            self._on_change()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.set(self._table.next_deadline_s)


def _joined(group: IPv4Address | IPv6Address, port: int, interface: str | None) -> socket.socket:
    """Return a socket that gets what is sent to the group, on a host where others may do the same."""
    index = socket.if_nametoindex(interface) if interface else 0
    family = socket.AF_INET if group.version == 4 else socket.AF_INET6
    with contextlib.ExitStack() as cleanup:
        joined = cleanup.enter_context(
            socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        )
        joined.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if group.version == 4:
            joined.bind((str(group), port))
            membership = group.packed + socket.INADDR_ANY.to_bytes(4, "big") + struct.pack("@i", index)
            joined.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        else:
            joined.bind((str(group), port, 0, index))
            membership = group.packed + struct.pack("@I", index)
            joined.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
        cleanup.pop_all()
        return joined
