"""Asks a gRPC server for its health (grpc/doc/health-checking.md): SERVING is life."""

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Final

from daemon_kit.addresses import endpoint
from daemon_kit.files import TrustFile
from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.addresses import Address
from ppe_agent.checks.base import PeriodicCheck, Timing
from ppe_agent.checks.tcp import connect

METHOD: Final = "/grpc.health.v1.Health/Check"
_SERVICE_FIELD: Final = 1
_STATUS_FIELD: Final = 1
_SERVING: Final = 1
_STATUS: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


def missing_library() -> str:
    """Say how to get the library that speaks HTTP/2, which only gRPC needs."""
    return f"the Python package h2 is missing: {sys.prefix}/bin/python -m pip install h2"


class GrpcCheck(PeriodicCheck):
    """Calls the health service at `address`:`port`, on a new connection each time.

    `service`: the name that is asked for; empty: the server as a whole. `host`: the name of the server, in
    the request and in the certificate; None: the address. `ca_file`: the authorities to trust; None: those of
    this host. A changed file is read again.
    """

    kind = "grpc"

    def __init__(
        self,
        address: Address,
        port: int,
        timing: Timing,
        *,
        service: str = "",
        host: str | None = None,
        is_tls: bool = False,
        ca_file: Path | None = None,
    ) -> None:
        super().__init__(f"port {port}{f' {service}' if service else ''}", timing)
        self._address, self._port = address, port
        self._service = service
        self._host = host or str(address)
        self._authority = endpoint(self._host, port)
        self._is_tls, self._ca_file = is_tls, ca_file
        self._trust = TrustFile(ca_file) if is_tls and ca_file else None
        self._context: ssl.SSLContext | None = None

    async def attempt(self) -> Finding:
        """Ask once."""
        try:
            import ppe_agent.grpc_call  # noqa: F401 - h2 is an extra
        except ModuleNotFoundError:
            return Finding(Life.UNKNOWN, missing_library())
        try:
            tls = self._trust.context() if self._trust else self._of_this_host() if self._is_tls else None
        except OSError as error:
            return of_error(error, f"ca_file {self._ca_file}")
        timeout_ms = self._timing.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._ask(tls)
        except TimeoutError:
            return Finding(Life.SILENT, f"no answer on port {self._port}", timeout_ms)
        except ssl.SSLCertVerificationError as error:
            return Finding(Life.UNWELL, f"its certificate is refused: {error.verify_message}")
        except ssl.SSLError as error:
            reason = (error.reason or "TLS error").lower().replace("_", " ")
            return Finding(Life.UNWELL, f"port {self._port}: no TLS handshake: {reason}")
        except EOFError:
            return Finding(Life.SILENT, f"port {self._port}: closed before an answer")
        except OSError as error:
            return of_error(error, f"port {self._port}")

    def _of_this_host(self) -> ssl.SSLContext:
        self._context = self._context or ssl.create_default_context()
        return self._context

    async def _ask(self, tls: ssl.SSLContext | None) -> Finding:
        from ppe_agent.grpc_call import CallEnded, GrpcCall, NoGrpc, OpenCall, field, fields

        finding, connection = await connect(self._address, self._port, self._timing.timeout_ms)
        if connection is None:
            return finding
        service = self._service.encode()
        request = field(_SERVICE_FIELD, service) if service else b""
        call = GrpcCall(self._authority, METHOD, request, is_tls=tls is not None)
        under_way = await OpenCall.begin(call, connection, tls, self._host)
        try:
            answer = dict(fields(await under_way.only_message()))
        except CallEnded as end:
            return Finding(Life.UNWELL, self._of_end(end.status, str(end)))
        except (NoGrpc, ValueError) as problem:
            return Finding(Life.UNWELL, f"port {self._port}: {problem}")
        finally:
            under_way.close()
        status = answer.get(_STATUS_FIELD, 0)
        if status == _SERVING:
            return Finding(Life.ALIVE, "answered SERVING")
        known = isinstance(status, int) and status < len(_STATUS)
        return Finding(Life.UNWELL, f"answered {_STATUS[int(status)] if known else 'an unknown status'}")

    def _of_end(self, status: str, words: str) -> str:
        if status == "NOT_FOUND":
            return f"SERVICE_UNKNOWN: its health service knows no {self._service!r}"
        if status == "UNIMPLEMENTED":
            return f"UNIMPLEMENTED: it has no health service ({METHOD.split('/')[1]})"
        return f"answered {words}"
