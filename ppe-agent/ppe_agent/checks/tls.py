"""Makes a TLS handshake: a trusted certificate for the expected name, not about to expire, is life.

OpenSSL does the handshake in memory; the bytes go over an ordinary socket. So the timeout covers all of it,
and a server that never closes its side is not waited for.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from daemon_kit.files import TrustFile
from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.addresses import Address
from ppe_agent.checks.base import PeriodicCheck, Timing
from ppe_agent.checks.tcp import connect

_READ_BYTES: Final = 16 * 1024
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class ExpiryLimits:
    """The days before a certificate's expiry at which the check warns, and at which it fails."""

    warn_days: int
    fail_days: int


def judge(version: str, left_s: float, limits: ExpiryLimits) -> Finding:
    """Return what a handshake tells whose certificate is valid for another `left_s` seconds."""
    days = max(0, int(left_s // _DAY_S))
    expiry = f"its certificate expires in {days} day{'' if days == 1 else 's'}"
    if left_s < limits.fail_days * _DAY_S:
        return Finding(Life.UNWELL, f"{expiry}; fail_days is {limits.fail_days}")
    if left_s < limits.warn_days * _DAY_S:
        return Finding(Life.ALIVE, f"{version} handshake", doubt=expiry)
    return Finding(Life.ALIVE, f"{version} handshake; {expiry}")


class TlsCheck(PeriodicCheck):
    """Connects to `address`:`port`, makes a handshake and hangs up.

    `host`: the server name that is sent, and that the certificate must hold; None: it must hold the address.
    `ca_file`: the authorities to trust; None: those of this host. A changed file is read again.
    """

    kind = "tls"

    def __init__(
        self,
        address: Address,
        port: int,
        timing: Timing,
        limits: ExpiryLimits,
        *,
        host: str | None = None,
        ca_file: Path | None = None,
    ) -> None:
        super().__init__(f"port {port}", timing)
        self._address, self._port = address, port
        self._limits = limits
        self._host = host or str(address)
        self._ca_file = ca_file
        self._trust = TrustFile(ca_file) if ca_file else None
        self._context: ssl.SSLContext | None = None

    async def attempt(self) -> Finding:
        """Make one handshake."""
        try:
            context = self._trust.context() if self._trust else self._context or self._open()
        except OSError as error:
            return of_error(error, f"ca_file {self._ca_file}")
        timeout_ms = self._timing.timeout_ms
        end_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        finding, connection = await connect(self._address, self._port, timeout_ms)
        if connection is None:
            return finding
        with connection:
            try:
                async with asyncio.timeout_at(end_s):
                    return await self._shake(connection, context)
            except TimeoutError:
                return Finding(Life.SILENT, f"no TLS handshake on port {self._port}", timeout_ms)

    def _open(self) -> ssl.SSLContext:
        self._context = ssl.create_default_context()
        return self._context

    async def _shake(self, connection: socket.socket, context: ssl.SSLContext) -> Finding:
        port = f"port {self._port}"
        try:
            version, expires_s = await handshake(connection, context, self._host)
        except ssl.SSLCertVerificationError as error:
            return Finding(Life.UNWELL, f"its certificate is refused: {error.verify_message}")
        except ssl.SSLError as error:
            reason = (error.reason or "TLS error").lower().replace("_", " ")
            return Finding(Life.UNWELL, f"{port}: no TLS handshake: {reason}")
        except EOFError:
            return Finding(Life.SILENT, f"{port}: closed during the TLS handshake")
        except OSError as error:
            return of_error(error, port)
        finding = judge(version, expires_s - time.time(), self._limits)
        return replace(finding, expires_at_s=expires_s)


async def handshake(connection: socket.socket, context: ssl.SSLContext, host: str) -> tuple[str, float]:
    """Make a handshake as the client; return the version of TLS and when the certificate expires (Unix time).

    Raises ssl.SSLError, EOFError when the server closes the connection, OSError.
    """
    loop = asyncio.get_running_loop()
    received, pending = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, pending, server_hostname=host)
    try:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(connection, pending.read())
            data = await loop.sock_recv(connection, _READ_BYTES)
            if not data:
                raise EOFError
            received.write(data)
            await asyncio.sleep(
                0
            )  # a server that sends without end must not keep the loop from its other work
        with contextlib.suppress(ssl.SSLError):  # only the server's own goodbye is missing
            tls.unwrap()
    finally:
        # The end of the handshake and the goodbye (RFC 8446, 6.1), or the alert: servers log what lacks it.
        with contextlib.suppress(OSError):
            connection.send(pending.read())
    certificate = tls.getpeercert() or {}  # never empty: the context verified it
    return tls.version() or "TLS", ssl.cert_time_to_seconds(str(certificate["notAfter"]))
