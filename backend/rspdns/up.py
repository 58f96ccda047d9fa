"""`rspdns up`: three registrars with sentinels, the backend and PowerDNS on one machine, one example zone."""

from __future__ import annotations

import asyncio
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from daemon_kit import logs
from daemon_kit.control import ControlError, request
from daemon_kit.errors import FatalError
from daemon_kit.run import run_service
from registrar_config.embedded import embedded_commands, embedded_registrars
from registrar_config.kernel_timers import SCTPD_OPTIONS
from registrar_config.preflight import own_address
from registrar_config.sctp_run import sctp_wrapper

from rspdns.admin.server import PROBLEM as ADMIN_PROBLEM
from rspdns.admin.server import RETRY_S
from rspdns.up_address import called, check_address
from rspdns.up_child import Child
from rspdns.up_files import DNS_ADDRESS, LIVE_PAGE, OWNER, UpFiles
from rspdns.up_folder import own_folder
from rspdns.up_preflight import check_dns_port, find_programs

START_TIMEOUT_S = 30.0
_LAST_LINES_OF_BACKEND = 20
"""It tells every error of its configuration, a line each."""
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class UpSettings:
    """What the command is told; see its help."""

    port: int
    address: str | None
    directory: Path | None
    log_level: str


def run_up(settings: UpSettings) -> int:
    """Run everything until Ctrl-C or SIGTERM; return the exit code."""
    logs.configure(settings.log_level)

    async def main(stop: asyncio.Event) -> None:
        async with AsyncExitStack() as cleanup:
            folder = settings.directory
            if folder is None:
                folder = cleanup.enter_context(own_folder())
            await _Up(settings, UpFiles(folder.resolve())).run(stop, cleanup)

    return run_service(main)


def live_page(problems: Sequence[str]) -> str:
    """Say where the live page is; or, by the `problems` of the backend's status, why there is none."""
    if not any(problem.startswith(ADMIN_PROBLEM) for problem in problems):
        return f"The live page is at http://{LIVE_PAGE}/"
    return (
        f"There is no live page: the backend can't listen at {LIVE_PAGE}. End the program that does, and the "
        f"page is there within {RETRY_S:g} s."
    )


class _Up:
    def __init__(self, settings: UpSettings, files: UpFiles) -> None:
        self._settings = settings
        self._files = files
        self._programs = find_programs()
        self._wrapper = sctp_wrapper()
        self._endings: list[asyncio.Task[None]] = []
        self._problems: list[str] = []
        self._address = settings.address or own_address()
        check_address(self._address, self._wrapper)
        check_dns_port(settings.port)

    async def run(self, stop: asyncio.Event, cleanup: AsyncExitStack) -> None:
        """Start all in order, wait for `stop`, and let `cleanup` end them in reverse order."""
        self._write_files()
        cleanup.push_async_callback(self._forget_endings)
        for number, command in enumerate(embedded_commands(self._address), start=1):
            await self._start(f"registrar-{number}", command, cleanup, sctp=True)
        serve = [sys.executable, "-m", "rspdns.cli", "serve", "-c", str(self._files.backend)]
        await self._start("backend", serve, cleanup, sctp=True, last_lines=_LAST_LINES_OF_BACKEND)
        if not await self._until(self._backend_answers, stop):
            return
        cleanup.callback(self._files.pdns_control_socket.unlink, missing_ok=True)  # PowerDNS leaves it
        pdns = [self._programs["pdns_server"], f"--config-dir={self._files.folder}"]
        await self._start("pdns", pdns, cleanup)
        click.echo(f"started; logs in {self._files.folder}; waiting until the registrars are settled ...")
        if await self._until(self._is_known, stop):
            click.echo(self._welcome())
            await self._until(lambda: False, stop, timeout_s=None)
        click.echo("\nstopping ...")

    def _write_files(self) -> None:
        try:
            self._files.folder.mkdir(parents=True, exist_ok=True)
            self._files.write(self._address, self._settings.port, embedded_registrars(self._address))
        except (OSError, ValueError) as error:
            raise FatalError(f"the files can't be written to {self._files.folder}: {error}") from None

    async def _start(
        self,
        name: str,
        argv: Sequence[str],
        cleanup: AsyncExitStack,
        *,
        sctp: bool = False,
        last_lines: int = 1,
    ) -> None:
        log = self._files.folder / f"{name}.log"
        wrapper = self._wrapper if sctp else []
        child = Child(name, [*wrapper, *argv], log, {"SCTPD_OPTIONS": SCTPD_OPTIONS}, last_lines)
        await child.start()
        cleanup.push_async_callback(child.stop)
        self._endings.append(asyncio.ensure_future(child.ended()))

    async def _until(
        self, condition: Callable[[], object], stop: asyncio.Event, timeout_s: float | None = START_TIMEOUT_S
    ) -> bool:
        """Wait for `condition`; False on `stop`. Raises FatalError when a program ends, or for lateness."""
        stopping = asyncio.ensure_future(stop.wait())
        loop = asyncio.get_running_loop()
        end_s = None if timeout_s is None else loop.time() + timeout_s
        try:
            while not await asyncio.to_thread(condition):
                done, _ = await asyncio.wait(
                    {stopping, *self._endings}, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED
                )
                if stopping in done:
                    return False
                for task in done:
                    task.result()
                if end_s is not None and loop.time() > end_s:
                    raise FatalError(f"not ready after {timeout_s:g} s; see the logs in {self._files.folder}")
            return True
        finally:
            stopping.cancel()

    async def _forget_endings(self) -> None:
        for task in self._endings:
            task.cancel()
        await asyncio.gather(*self._endings, return_exceptions=True)

    def _backend_answers(self) -> bool:
        """Whether PowerDNS can reach the backend: the socket may be one of an earlier run that was killed."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._files.remote_socket))
            except OSError:
                return False
        return True

    def _is_known(self) -> bool:
        """Whether the backend can answer for every pool."""
        try:
            status: dict[str, Any] = request(self._files.admin_socket, "status")
        except ControlError:
            return False
        self._problems = status["problems"]
        return all(pool["known"] for zone in status["zones"] for pool in zone["pools"])

    def _welcome(self) -> str:
        return f"""ready. DNS answers at {DNS_ADDRESS} port {self._settings.port}:

    dig @{DNS_ADDRESS} -p {self._settings.port} {OWNER} SRV
    {shlex.join([called("rspdns"), "status", "-c", str(self._files.backend)])}

{live_page(self._problems)}

The pool is empty. A SIP server at {self._address} port 5060 joins with its sidecar:

    {shlex.join([*self._wrapper, called("ppe-agent"), "run", "-c", str(self._files.agent)])}

Ctrl-C stops everything."""
