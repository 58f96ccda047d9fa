"""Asks a web server: a status that is expected and, if wanted, a text in the body are life."""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
from daemon_kit.addresses import endpoint
from daemon_kit.files import TrustFile
from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.addresses import Address
from ppe_agent.checks.base import PeriodicCheck, Timing
from ppe_agent.checks.tcp import OutgoingSocket

MAX_BODY_BYTES: Final = 1024 * 1024


def connector(**options: Any) -> aiohttp.TCPConnector:
    """Return what keeps one connection, never one with itself."""
    return aiohttp.TCPConnector(limit=1, socket_factory=lambda info: OutgoingSocket(*info[:3]), **options)


class HttpCheck(PeriodicCheck):
    """Sends GET `path` to `address`:`port`, over TLS when `scheme` is "https".

    `status`: the lowest and the highest that are life. `contains`: a text the body must hold. `host`: the
    name to ask for (Host header, TLS server name). Redirections are not followed: 301 is a status like
    others. `ca_file`: the authorities to trust; a changed file is read again.
    """

    def __init__(
        self,
        address: Address,
        port: int,
        timing: Timing,
        *,
        scheme: str = "http",
        path: str = "/",
        host: str | None = None,
        status: Sequence[int] = (200, 399),
        contains: str | None = None,
        verify: bool = True,
        ca_file: Path | None = None,
    ) -> None:
        super().__init__(f"port {port}{path}", timing)
        self.kind = scheme
        self._url = f"{scheme}://{endpoint(str(address), port)}{path}"
        self._port = port
        self._host = host
        self._lowest, self._highest = status
        self._contains = contains.encode() if contains is not None else None
        self._verify, self._ca_file = verify, ca_file
        self._trust = TrustFile(ca_file) if verify and ca_file else None
        self._tls: ssl.SSLContext | bool = verify
        self._session: aiohttp.ClientSession | None = None

    async def attempt(self) -> Finding:
        """Ask once."""
        try:
            tls = self._trust.context() if self._trust else self._verify
        except OSError as error:
            return of_error(error, f"ca_file {self._ca_file}")
        try:
            async with asyncio.timeout(self._timing.timeout_ms / 1000):
                return await self._ask(await self._session_with(tls))
        except TimeoutError:
            return Finding(Life.SILENT, f"no answer on port {self._port}", self._timing.timeout_ms)
        except aiohttp.ClientConnectorCertificateError as error:
            return Finding(Life.UNWELL, f"its certificate is refused: {error.certificate_error}")
        except aiohttp.ClientConnectorError as error:
            return of_error(error.os_error, f"port {self._port}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Finding(Life.UNWELL, f"port {self._port}: {str(error)[:120] or type(error).__name__}")

    async def close(self) -> None:
        """End the kept connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _session_with(self, tls: ssl.SSLContext | bool) -> aiohttp.ClientSession:
        if tls is not self._tls:
            await self.close()
        if self._session is None:
            headers = {"User-Agent": "ppe-agent", **({"Host": self._host} if self._host else {})}
            self._session = aiohttp.ClientSession(connector=connector(ssl=tls), headers=headers)
            self._tls = tls
        return self._session

    async def _ask(self, session: aiohttp.ClientSession) -> Finding:
        # aiohttp asks again by itself on a kept connection that was closed meanwhile.
        async with session.get(self._url, allow_redirects=False, server_hostname=self._host) as response:
            said = f"answered {response.status} {(response.reason or '')[:60]}".strip()
            if not self._lowest <= response.status <= self._highest:
                return Finding(Life.UNWELL, said)
            body = await read_body(response)
        if self._contains is not None and self._contains not in body:
            return Finding(Life.UNWELL, f"{said}, without {self._contains.decode()!r} in it")
        return Finding(Life.ALIVE, said)


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of a response. Raises ValueError when it is longer than 1 MiB."""
    body = bytearray()
    async for piece in response.content.iter_chunked(64 * 1024):
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise ValueError("the body is longer than 1 MiB")
    return bytes(body)
