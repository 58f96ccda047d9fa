"""The sidecar as a whole: every AS, the watch on every registrar, the control socket, reloads."""

import asyncio
import contextlib
import functools
import gc
import signal
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from daemon_kit import notify
from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.control import ControlError, ControlServer
from daemon_kit.errors import FatalError
from daemon_kit.listen_address import ListenAddress
from daemon_kit.logs import get_logger
from rserpool.registrar_choice import RegistrarAddress

from ppe_agent import large_pages
from ppe_agent.addresses import NoLocalAddress
from ppe_agent.configuration import AgentConfig, ServerConfig, addresses_of, load_configuration
from ppe_agent.discovery import Discovery
from ppe_agent.lookup import RegistrarWatch
from ppe_agent.loop_watch import LoopWatch
from ppe_agent.registration import Registration
from ppe_agent.server import Server
from ppe_agent.state import StateDirectory

# Deregistering takes milliseconds; a registrar that doesn't answer must not delay the end beyond 2 s.
_LEAVE_TIMEOUT_S: Final = 1.2
# What can't change while the agent runs.
_FIXED: Final = ("state", "control", "metrics", "multicast", "reregistration_ms")


class Agent:
    """Runs everything; needs a running event loop. Raises FatalError when it can't begin.

    `path` is the file that `config` came from and that SIGHUP has read again; None: there are no reloads.
    """

    def __init__(self, config: AgentConfig, path: Path | None = None) -> None:
        self._config = config
        self._path = path
        self._states = StateDirectory(config.state.path)
        self._states.prepare()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log = get_logger("agent")
        self._registrars = config.registrars
        self._discovery: Discovery | None = None
        self._servers: list[Server] = []
        if config.multicast is not None:
            self._discovery = Discovery(config.multicast, self._on_registrars)
        else:
            self._make_servers()
        self._registrations: list[Registration] = []
        self._watches: dict[RegistrarAddress, tuple[RegistrarWatch, asyncio.Task[None]]] = {}
        self._loop_watch = LoopWatch()
        self._reload_wanted = asyncio.Event()
        self._reload_problem: str | None = None
        self._control = ControlServer(
            config.control.path,
            {"status": self._status, "drain": self._drain, "undrain": self._undrain},
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then leave every pool and return."""
        async with contextlib.AsyncExitStack() as opened:
            await self._control.start()
            opened.push_async_callback(self._control.close)
            await self._start_metrics(opened)
            await self._run_parts(stop)

    async def _run_parts(self, stop: asyncio.Event) -> None:
        tasks = [self._spawn(self._loop_watch.run()), self._spawn(self._reload_when_wanted())]
        stopped = asyncio.create_task(stop.wait())
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload_wanted.set)
        try:
            if self._discovery is not None:
                self._discovery.start()
            else:
                self._start_servers()
            notify.ready()
            self._log.info("started", servers=[server.name for server in self._config.servers])
            gc.freeze()  # what was loaded stays: the collector need not look at it again and again
            large_pages.gather()
            ends: list[asyncio.Future[Any]] = [stopped, self._failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()  # raises what ended it
            await self._leave(self._servers)
            self._log.info("stopped")
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            if self._discovery is not None:
                self._discovery.close()
            await asyncio.gather(*(server.close() for server in self._servers))
            tasks += [task for _, task in self._watches.values()]
            for task in (stopped, *tasks):
                task.cancel()
            await asyncio.gather(stopped, *tasks, return_exceptions=True)

    def _spawn(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a part of the agent; when it fails, so does the agent."""
        task = asyncio.create_task(part)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self._failed.done():
            self._failed.set_exception(task.exception() or FatalError("unknown"))

    def _make_servers(self) -> None:
        try:
            self._servers = [self._make_server(self._config, server) for server in self._config.servers]
        except NoLocalAddress as error:
            raise FatalError(f'address = "auto": {error}') from None

    def _make_server(self, config: AgentConfig, server: ServerConfig) -> Server:
        """Return the AS, not started. Raises NoLocalAddress, FatalError."""
        registrars = config.registrars or self._registrars
        addresses = addresses_of(server, registrars[0])
        return Server(server, addresses, registrars, config.reregistration_ms, self._states, self._spawn)

    def _start_servers(self) -> None:
        self._watch_registrars(self._registrars)
        self._note_registrations()
        for server in self._servers:
            server.start()

    def _on_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Registrars announced themselves, or are silent for long: at least one is known."""
        is_first = not self._registrars
        self._registrars = tuple(registrars)
        self._log.info("registrars", heard=[str(one) for one in registrars])
        if is_first:
            try:
                self._make_servers()
            except FatalError as error:
                self._failed.set_exception(error)
                return
            self._start_servers()
            return
        self._watch_registrars(self._registrars)
        for server in self._servers:
            server.registration.update_registrars(self._registrars)

    async def _leave(self, servers: Sequence[Server]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await asyncio.gather(*(server.leave() for server in servers))

    async def _start_metrics(self, opened: contextlib.AsyncExitStack) -> None:
        if self._config.metrics is None:
            return
        from ppe_agent.metrics import make_server

        server = make_server(ListenAddress.parse(self._config.metrics.listen), self._describe)
        await server.start()
        opened.push_async_callback(server.close)

    def _note_registrations(self) -> None:
        """Tell the watches which registrations there are now."""
        self._registrations[:] = [server.registration for server in self._servers]
        for registration in self._registrations:
            registration.on_unconfirmed = functools.partial(self._report_unreachable, registration)

    def _watch_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Watch these registrars and no others."""
        for address in self._watches.keys() - set(registrars):
            self._watches.pop(address)[1].cancel()
        for address in registrars:
            if address not in self._watches:
                watch = RegistrarWatch(address, self._registrations)
                self._watches[address] = (watch, self._spawn(watch.run()))

    def _report_unreachable(self, registration: Registration) -> None:
        for watch, _ in self._watches.values():
            watch.report_unreachable(registration)

    # Reload

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            notify.reloading()
            try:
                await self._reload()
                self._reload_problem = None
                self._log.info("reloaded", servers=[server.config.name for server in self._servers])
            except (ConfigurationErrors, NoLocalAddress, FatalError) as problem:
                self._reload_problem = str(problem)
                self._log.error("reload_refused", problem=str(problem), hint="the former one goes on")
            notify.ready()

    async def _reload(self) -> None:
        """Take the configuration file over, whole or not at all. Raises what is wrong with it."""
        if self._path is None:
            return
        config = load_configuration(self._path)
        for key in _FIXED:
            if getattr(config, key) != getattr(self._config, key):
                raise FatalError(f"{key} can't change while the agent runs: restart it for that")
        registrars = config.registrars or self._registrars
        if not registrars:
            self._config = config  # no registrar was heard yet: nothing runs
            return
        running = {server.config.name: server for server in self._servers}
        servers = []
        for wanted in config.servers:
            now = running.get(wanted.name)
            stays = now is not None and now.can_become(wanted, addresses_of(wanted, registrars[0]))
            servers.append(now if now is not None and stays else self._make_server(config, wanted))
        # From here on nothing is refused any more.
        self._config = config
        self._registrars = registrars
        self._watch_registrars(registrars)
        ended = [server for server in self._servers if server not in servers]
        began = [server for server in servers if server not in self._servers]
        await self._leave(ended)
        await asyncio.gather(*(server.close() for server in ended))
        self._servers = servers
        self._note_registrations()
        for wanted, server in zip(config.servers, servers, strict=True):
            if server in began:
                server.start()
            else:
                server.reconfigure(wanted)
                server.registration.update_registrars(registrars)

    # Commands

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        return self._describe()

    def _describe(self) -> dict[str, Any]:
        watches = [watch for watch, _ in self._watches.values()]
        servers = []
        for server in self._servers:
            listed = [str(watch.address) for watch in watches if watch.lists(server.registration) is True]
            servers.append({**server.describe(), "listed_by": listed})
        return {
            "registrars": [watch.describe() for watch in watches],
            "multicast": self._discovery.describe() if self._discovery is not None else None,
            "as": servers,
            "loop": self._loop_watch.describe(),
            "reload_problem": self._reload_problem,
        }

    async def _drain(self, request: dict[str, Any]) -> dict[str, Any]:
        chosen = self._chosen(request)
        await _set_drained(chosen, True)
        if request.get("wait"):
            await asyncio.gather(*(server.registration.until_out() for server in chosen))
        return {"as": [server.describe() for server in chosen]}

    async def _undrain(self, request: dict[str, Any]) -> dict[str, Any]:
        chosen = self._chosen(request)
        await _set_drained(chosen, False)
        return {"as": [server.describe() for server in chosen]}

    def _chosen(self, request: dict[str, Any]) -> Sequence[Server]:
        """Return the AS that the request names, all when it names none."""
        name = request.get("name")
        chosen = [server for server in self._servers if name is None or server.config.name == name]
        if not self._servers:
            raise ControlError("no registrar has announced itself yet: nothing is registered")
        if not chosen:
            names = ", ".join(server.config.name for server in self._servers)
            raise ControlError(f"no AS named {name!r} here; there is {names}")
        return chosen


async def _set_drained(servers: Sequence[Server], drained: bool) -> None:
    for server in servers:
        server.drain(drained)
    try:
        await asyncio.sleep(0)  # the registrar is told now, before the disk is asked, which may take its time
    finally:
        _keep(servers)


def _keep(servers: Sequence[Server]) -> None:
    try:
        for server in servers:
            server.keep()
    except FatalError as error:
        raise ControlError(f"done, but lost when the agent restarts: {error}") from None
