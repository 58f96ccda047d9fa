"""`rspdns up`: three registrars, the backend, PowerDNS and three SIP servers with sidecars on one machine.

A program that ends once all is ready is started again after a pause, as systemd would do it.
"""

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
from daemon_kit.http_server import RETRY_S
from daemon_kit.run import run_service
from registrar_config import (
    SCTPD_OPTIONS,
    embedded_commands,
    embedded_registrars,
    gate_is_built,
    own_address,
    sctp_wrapper,
)

from rspdns.admin.server import PROBLEM as ADMIN_PROBLEM
from rspdns.up.child import Child
from rspdns.up.files import DNS_ADDRESS, HANDLE, LIVE_PAGE, OWNER, SERVERS, UpFiles, own_folder
from rspdns.up.preflight import called, check_address, check_dns_port, check_server_ports, find_programs

START_TIMEOUT_S = 30.0
SERVERS_TIMEOUT_S = 20.0
_LAST_LINES_OF_BACKEND = 20
"""It tells every error of its configuration, a line each."""
_POLL_S = 0.1

PAUSE_S = 0.2
"""Before what ended is started again: `RestartSec=` of the units of registrars and sidecars ..."""
PDNS_PAUSE_S = 1.0
"""... and of PowerDNS's."""
SERVER_PAUSE_S = 15.0
"""Time until a killed SIP server is started again: a person should see it missing."""
_ABOUT_GATE = "Programs of other hosts can't join: a gate stands before the registrars."
_WITHOUT_GATE = "The gate of the registrars is not built (make -C registrar-config): keep other hosts away."
MAX_PAUSE_S = 30.0
"""The longest pause: it doubles each time that a program ends again within this time."""


@dataclass(frozen=True, slots=True)
class UpSettings:
    """The options of the command; see its help."""

    port: int
    address: str | None
    directory: Path | None
    log_level: str
    has_servers: bool = True


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
        self._running: list[asyncio.Task[None]] = []
        self._problems: list[str] = []
        self._members = 0
        self._is_ready = False
        self._address = settings.address or own_address()
        check_address(self._address, self._wrapper)
        check_dns_port(settings.port)
        if settings.has_servers:
            check_server_ports(self._address, SERVERS.values())

    async def run(self, stop: asyncio.Event, cleanup: AsyncExitStack) -> None:
        """Start all in order, wait for `stop`, and let `cleanup` end them in reverse order."""
        self._write_files()
        try:
            await self._run(stop, cleanup)
        finally:
            await self._start_no_more()

    async def _run(self, stop: asyncio.Event, cleanup: AsyncExitStack) -> None:
        rules = self._files.gate_rules if gate_is_built() else None
        for number, command in enumerate(embedded_commands(self._address, rules=rules), start=1):
            await self._start(f"registrar-{number}", command, cleanup, sctp=True)
        serve = [sys.executable, "-P", "-m", "rspdns.cli", "serve", "-c", str(self._files.backend)]
        await self._start("backend", serve, cleanup, sctp=True, last_lines=_LAST_LINES_OF_BACKEND)
        if not await self._until(self._backend_answers, stop):
            return
        cleanup.callback(self._files.pdns_control_socket.unlink, missing_ok=True)  # PowerDNS leaves it
        pdns = [self._programs["pdns_server"], f"--config-dir={self._files.folder}"]
        await self._start("pdns", pdns, cleanup, pause_s=PDNS_PAUSE_S)
        if self._settings.has_servers:
            await self._start_servers(cleanup)
        click.echo(f"started; logs in {self._files.folder}; waiting until the registrars are settled ...")
        if await self._until(self._is_known, stop):
            self._is_ready = True
            if await self._until_servers_are_in(stop):
                click.echo(self._welcome())
                await self._until(lambda: False, stop, timeout_s=None)
        click.echo("\nstopping ...")

    async def _start_servers(self, cleanup: AsyncExitStack) -> None:
        for name, port in SERVERS.items():
            server = [sys.executable, "-P", "-m", "rspdns.up.sip_server", self._address, str(port)]
            await self._start(name, server, cleanup, pause_s=SERVER_PAUSE_S)
            sidecar = [
                sys.executable,
                "-P",
                "-m",
                "ppe_agent.cli",
                "run",
                "-c",
                str(self._files.sidecar(name)),
            ]
            await self._start(f"{name}-sidecar", sidecar, cleanup, sctp=True)

    async def _until_servers_are_in(self, stop: asyncio.Event) -> bool:
        """Wait until DNS shows them; False on `stop`. A zone that was edited may show others, or none."""
        if not self._settings.has_servers:
            return True
        loop = asyncio.get_running_loop()
        end_s = loop.time() + SERVERS_TIMEOUT_S
        return await self._until(
            lambda: self._is_known() and (self._members >= len(SERVERS) or loop.time() > end_s), stop
        )

    def _write_files(self) -> None:
        try:
            self._files.folder.mkdir(parents=True, exist_ok=True)
            registrars, has_servers = embedded_registrars(self._address), self._settings.has_servers
            self._files.write(self._address, self._settings.port, registrars, has_servers=has_servers)
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
        pause_s: float = PAUSE_S,
    ) -> None:
        """Start a program, and have it kept running; `pause_s` passes before it is started again."""
        log = self._files.folder / f"{name}.log"
        wrapper = self._wrapper if sctp else []
        environment = {"SCTPD_OPTIONS": SCTPD_OPTIONS}
        child = Child(name, [*wrapper, *argv], log, environment, last_lines, self._files.pid(name))
        await child.start()
        cleanup.push_async_callback(child.stop)
        self._running.append(asyncio.ensure_future(self._keep(child, pause_s)))

    async def _keep(self, child: Child, first_pause_s: float) -> None:
        """Start `child` again whenever it ends. Raises FatalError when it ends before all is ready."""
        loop = asyncio.get_running_loop()
        pause_s = first_pause_s
        while True:
            began_s = loop.time()
            how = await child.ended()
            if not self._is_ready:
                raise FatalError(how)
            if loop.time() - began_s > MAX_PAUSE_S:
                pause_s = first_pause_s
            click.echo(f"{how}; it is started again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = max(first_pause_s, min(2 * pause_s, MAX_PAUSE_S))
            await child.start()
            click.echo(f"{child.name} is started again")

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
                    {stopping, *self._running}, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED
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

    async def _start_no_more(self) -> None:
        """From now on what ends stays ended."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

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
        pools = [pool for zone in status["zones"] for pool in zone["pools"]]
        self._members = sum(len(pool["members"]) for pool in pools)
        return all(pool["known"] for pool in pools)

    def _welcome(self) -> str:
        status = shlex.join([called("rspdns"), "status", "-c", str(self._files.backend)])
        own = shlex.join([*self._wrapper, called("ppe-agent"), "run", "-c", str(self._files.agent)])
        about = f"The pool is empty. This says who is in it, and why:\n\n    {status}"
        return f"""ready. DNS answers at {DNS_ADDRESS} port {self._settings.port}. Ask it:

    dig @{DNS_ADDRESS} -p {self._settings.port} {OWNER} SRV

{self._about_servers(status) if self._settings.has_servers else about}

{live_page(self._problems)}

A SIP server of yours at {self._address} port 5060 joins with its sidecar:

    {own}

{_ABOUT_GATE if gate_is_built() else _WITHOUT_GATE}

Ctrl-C stops everything."""

    def _about_servers(self, status: str) -> str:
        name = next(iter(SERVERS))
        drain = shlex.join([called("ppe-agent"), "drain", "-c", str(self._files.sidecar(name))])
        missing = len(SERVERS) - self._members
        note = f" ({missing} are not in DNS yet: this says why)" if missing > 0 else ""
        return f"""Three SIP servers are in pool {HANDLE}, with a sidecar each. Watch them elsewhere{note}:

    {status} --watch

Kill one, and ask again: it is out of DNS. After {SERVER_PAUSE_S:g} s it is started again and comes back.

    kill -9 $(cat {shlex.quote(str(self._files.pid(name)))})

Drain one: it leaves DNS and goes on serving. `undrain` lets it in again.

    {drain}"""
