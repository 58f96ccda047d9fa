"""Asks a gRPC server for its health (grpc/doc/health-checking.md): SERVING is life.

`GrpcQuestion` is also how a load source asks.
"""

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
from ppe_agent.protocol_buffers import field, fields

METHOD: Final = "/grpc.health.v1.Health/Check"
_SERVICE_FIELD: Final = 1
_STATUS_FIELD: Final = 1
_SERVING: Final = 1
_STATUS: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


def missing_library() -> str:
    """Say how to get the library that speaks HTTP/2, which only gRPC needs."""
    return f"the Python package h2 is missing: {sys.prefix}/bin/python -m pip install h2"


class NoGrpcAnswer(Exception):  # noqa: N818 - reads as what it is
    """A call had no answer. `status`: the code of gRPC with which the server ended it; empty: none."""

    def __init__(self, finding: Finding, status: str = "") -> None:
        super().__init__(finding.words)
        self.finding, self.status = finding, status


class GrpcQuestion:
    """Calls `method` with `message` at `address`:`port`, on a new connection each time.

    `host`: the name of the server, in the request and in the certificate; None: the address. `ca_file`: the
    authorities to trust; None: those of this host. A changed file is read again.
    """

    def __init__(
        self,
        address: Address,
        port: int,
        method: str,
        message: bytes,
        *,
        host: str | None = None,
        is_tls: bool = False,
        ca_file: Path | None = None,
    ) -> None:
        self._address, self._port = address, port
        self._method, self._message = method, message
        self._host = host or str(address)
        self._authority = endpoint(self._host, port)
        self._is_tls, self._ca_file = is_tls, ca_file
        self._trust = TrustFile(ca_file) if is_tls and ca_file else None
        self._context: ssl.SSLContext | None = None

    async def ask(self, timeout_ms: int, *, is_stream: bool = False) -> bytes:
        """Return the message of the answer; of a stream the first one, and hang up. Raises NoGrpcAnswer."""
        try:
            import ppe_agent.grpc_call  # noqa: F401 - h2 is an extra
        except ModuleNotFoundError:
            raise NoGrpcAnswer(Finding(Life.UNKNOWN, missing_library())) from None
        try:
            tls = self._trust.context() if self._trust else self._of_this_host() if self._is_tls else None
        except OSError as error:
            raise NoGrpcAnswer(of_error(error, f"ca_file {self._ca_file}")) from None
        port = f"port {self._port}"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._call(tls, timeout_ms, is_stream=is_stream)
        except TimeoutError:
            finding = Finding(Life.SILENT, f"no answer on {port}", timeout_ms)
        except ssl.SSLCertVerificationError as error:
            finding = Finding(Life.UNWELL, f"its certificate is refused: {error.verify_message}")
        except ssl.SSLError as error:
            reason = (error.reason or "TLS error").lower().replace("_", " ")
            finding = Finding(Life.UNWELL, f"{port}: no TLS handshake: {reason}")
        except EOFError:
            finding = Finding(Life.SILENT, f"{port}: closed before an answer")
        except OSError as error:
            finding = of_error(error, port)
        raise NoGrpcAnswer(finding)

    def _of_this_host(self) -> ssl.SSLContext:
        self._context = self._context or ssl.create_default_context()
        return self._context

    async def _call(self, tls: ssl.SSLContext | None, timeout_ms: int, *, is_stream: bool) -> bytes:
        from ppe_agent.grpc_call import CallEnded, GrpcCall, NoGrpc, OpenCall

        finding, connection = await connect(self._address, self._port, timeout_ms)
        if connection is None:
            raise NoGrpcAnswer(finding)
        call = GrpcCall(self._authority, self._method, self._message, is_tls=tls is not None)
        under_way = await OpenCall.begin(call, connection, tls, self._host)
        try:
            return await (under_way.next_message() if is_stream else under_way.only_message())
        except CallEnded as end:
            raise NoGrpcAnswer(Finding(Life.UNWELL, f"answered {end}"), end.status) from None
        except NoGrpc as problem:
            raise NoGrpcAnswer(Finding(Life.UNWELL, f"port {self._port}: {problem}")) from None
        finally:
            under_way.close()


class GrpcCheck(PeriodicCheck):
    """Calls the health service. `service`: the name that is asked for; empty: the server as a whole.

    The other parameters are those of `GrpcQuestion`.
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
        self._port = port
        self._service = service
        message = field(_SERVICE_FIELD, service.encode()) if service else b""
        self._question = GrpcQuestion(
            address, port, METHOD, message, host=host, is_tls=is_tls, ca_file=ca_file
        )

    async def attempt(self) -> Finding:
        """Ask once."""
        try:
            status = dict(fields(await self._question.ask(self._timing.timeout_ms))).get(_STATUS_FIELD, 0)
        except NoGrpcAnswer as problem:
            return self._of_end(problem.status) or problem.finding
        except ValueError as problem:
            return Finding(Life.UNWELL, f"port {self._port}: {problem}")
        if status == _SERVING:
            return Finding(Life.ALIVE, "answered SERVING")
        known = isinstance(status, int) and status < len(_STATUS)
        return Finding(Life.UNWELL, f"answered {_STATUS[int(status)] if known else 'an unknown status'}")

    def _of_end(self, status: str) -> Finding | None:
        """The finding of some codes of gRPC, which mean more here."""
        if status == "NOT_FOUND":
            words = f"SERVICE_UNKNOWN: its health service knows no {self._service!r}"
        elif status == "UNIMPLEMENTED":
            words = f"UNIMPLEMENTED: it has no health service ({METHOD.split('/')[1]})"
        else:
            return None
        return Finding(Life.UNWELL, words)
