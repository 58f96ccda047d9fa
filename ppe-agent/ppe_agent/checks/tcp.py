"""Connects over TCP and closes at once: somebody listens, and the kernel at least is alive."""

import asyncio
import errno
import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from ppe_agent.checks.base import CheckResult, PeriodicCheck, Timing, alive, dead, failed

Address = IPv4Address | IPv6Address

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class OutgoingSocket(socket.socket):
    """A socket that takes a connection with itself (RFC 9293, 3.5: simultaneous open) for a refused one.

    Where nothing listens on a port that the kernel also gives to clients, one connect in some thousands gets
    that very port for its own end, and finds itself.
    """

    def connect(self, address: Any, /) -> None:
        """Connect. Raises OSError."""
        super().connect(address)
        if self._is_with_itself():
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connected with itself")

    def getsockopt(self, *arguments: Any) -> Any:
        """Return an option; the error is where event loops learn how a connect went."""
        value = super().getsockopt(*arguments)
        if arguments == (socket.SOL_SOCKET, socket.SO_ERROR) and value == 0 and self._is_with_itself():
            return errno.ECONNREFUSED
        return value

    def _is_with_itself(self) -> bool:
        try:
            if self.getsockname() != self.getpeername():
                return False
        except OSError:
            return False
        # Closed in the ordinary way it would keep the server from its port for a minute (TIME-WAIT).
        self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        return True


class TcpCheck(PeriodicCheck):
    """Connects to `address`:`port` again and again."""

    kind = "tcp"

    def __init__(self, address: Address, port: int, timing: Timing) -> None:
        super().__init__(f"port {port}", timing)
        self._address = address
        self._port = port

    async def attempt(self) -> CheckResult:
        """Connect once."""
        outcome, connection = await connect(self._address, self._port, self._timing.timeout_ms)
        if connection is None:
            return outcome
        connection.close()
        return alive("accepts connections")


async def connect(address: Address, port: int, timeout_ms: int) -> tuple[CheckResult, socket.socket | None]:
    """Connect over TCP; return what that tells and, when it went well, the connection."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        connection = OutgoingSocket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    except OSError as error:
        return failed(f"this host gives no socket: {error.strerror or error}"), None
    target = f"port {port}"
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
    except TimeoutError:
        connection.close()
        return failed(f"no connection to {target} within {timeout_ms} ms"), None
    except ConnectionRefusedError:
        connection.close()
        return dead(f"nothing listens on {target}"), None
    except OSError as error:
        connection.close()
        return failed(f"can't connect to {target}: {error.strerror or error}"), None
    except BaseException:
        connection.close()
        raise
    return alive("connection held"), connection
