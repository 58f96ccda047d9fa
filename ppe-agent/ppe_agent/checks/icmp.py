"""Sends ICMP echo requests ("ping"): a reply says that the kernel of a host lives, and the way to it.

The socket is one for ordinary users (SOCK_DGRAM with IPPROTO_ICMP): Linux allows it to the groups in
net.ipv4.ping_group_range, for IPv6 as well. The kernel fills in identifier and checksum, and delivers only
replies to that identifier.
"""

import asyncio
import os
import socket
import struct
from typing import Final

from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.addresses import Address
from ppe_agent.checks.base import PeriodicCheck, Timing

GROUP_RANGE: Final = "net.ipv4.ping_group_range"
_HEADER: Final = struct.Struct("!BBHHH")  # type, code, checksum, identifier, sequence (RFC 792, RFC 4443)
_REQUEST: Final = {4: 8, 6: 128}
_REPLY: Final = {4: 0, 6: 129}
_TOKEN_BYTES: Final = 16
_READ_BYTES: Final = 2048


def echo_request(version: int, token: bytes) -> bytes:
    """Return an echo request of IP `version` with `token` as its data; checksum and identifier are 0."""
    return _HEADER.pack(_REQUEST[version], 0, 0, 0, 1) + token


def is_reply(version: int, data: bytes, token: bytes) -> bool:
    """Tell whether `data` is the echo reply of IP `version` to the request with `token`."""
    return data[:2] == bytes([_REPLY[version], 0]) and data[_HEADER.size :] == token


def echo_socket(version: int) -> socket.socket:
    """Return a socket for echo requests. Raises PermissionError when ping_group_range does not allow it."""
    protocol = socket.IPPROTO_ICMP if version == 4 else socket.IPPROTO_ICMPV6
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    return socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, kind, protocol)


class IcmpCheck(PeriodicCheck):
    """Asks `address` for an echo again and again."""

    kind = "icmp"

    def __init__(self, address: Address, timing: Timing) -> None:
        super().__init__(str(address), timing)
        self._address = address

    async def attempt(self) -> Finding:
        """Ask once."""
        try:
            connection = echo_socket(self._address.version)
        except PermissionError as error:
            return of_error(error, f"{GROUP_RANGE} allows no ICMP socket")
        except OSError as error:
            return of_error(error, "this host gives no socket")
        timeout_ms = self._timing.timeout_ms
        with connection:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    return await self._ask(connection)
            except TimeoutError:
                return Finding(Life.SILENT, f"no echo of {self._address}", timeout_ms)
            except (
                ConnectionRefusedError
            ):  # "port unreachable" of a packet filter: no proof that nothing is there
                return Finding(Life.SILENT, f"{self._address}: echo requests are rejected")
            except OSError as error:
                return of_error(error, str(self._address))

    async def _ask(self, connection: socket.socket) -> Finding:
        loop = asyncio.get_running_loop()
        version, token = self._address.version, os.urandom(_TOKEN_BYTES)
        connection.connect((str(self._address), 0))
        await loop.sock_sendall(connection, echo_request(version, token))
        while True:
            data = await loop.sock_recv(connection, _READ_BYTES)
            if is_reply(version, data, token):
                return Finding(Life.ALIVE, "echoes")
            await asyncio.sleep(0)  # other replies without end must not keep the loop from its other work
