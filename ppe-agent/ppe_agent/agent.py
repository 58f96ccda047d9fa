"""The sidecar as a whole: its ASes, the control socket, metrics, reloads, and its end.

With `registrars = "multicast"` it finds the registrars by their announcements.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from daemon_kit import notify
from daemon_kit.addresses import ListenAddress
from daemon_kit.control import ControlCommand, ControlError, ControlServer, peer_user
from daemon_kit.errors import FatalError
from daemon_kit.http_server import PageServer
from daemon_kit.logs import get_logger
from daemon_kit.run import Parts, Reloading, check_fixed

from ppe_agent.addresses import NoLocalAddress
from ppe_agent.configuration import AgentConfig, MulticastConfig, load_configuration
from ppe_agent.loop import LoopWatch
from ppe_agent.relay import RelayEnd
from ppe_agent.server import in_by_another
from ppe_agent.servers import Servers
from ppe_agent.state import Drain
from ppe_agent.status_model import AgentStatus, MulticastStatus
from rserpool import LONGEST_DRAIN_S, AnnounceListener, RegistrarAddress, RegistrarTable


class Discovery:
    """Calls `on_registrars` with all registrars known, at least one, whenever they change."""

    def __init__(
        self, config: MulticastConfig, on_registrars: Callable[[Sequence[RegistrarAddress]], None]
    ) -> None:
        self._config = config
        self._on_registrars = on_registrars
        self._table = RegistrarTable(config.networks)
        group = ListenAddress.parse(config.group)
        self._listener = AnnounceListener(
            self._table, group.address, group.port, self._changed, interface=config.interface
        )

    def start(self) -> None:
        """Listen. Raises FatalError when the group can't be joined."""
        try:
            self._listener.start()
        except OSError as error:
            where = f" at {self._config.interface}" if self._config.interface else ""
            raise FatalError(
                f"can't listen to the multicast group {self._config.group}{where}: "
                f"{error.strerror or error}; without an interface given, this host needs a route to the group"
            ) from None

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def describe(self) -> MulticastStatus:
        """Return what was heard, for people and programs."""
        return {
            "group": self._config.group,
            "heard": len(self._table.registrars),
            "ignored": self._table.ignored,
        }

    def _changed(self) -> None:
        self._on_registrars(self._table.registrars)


MOST_REASON: Final = 200
"""The most characters of a drain's reason."""
# The tables that can't change while the agent runs.
_FIXED: Final = ("state", "control", "metrics", "relay", "multicast", "reregistration_ms")


class Agent:
    """Runs everything; needs a running event loop. Raises FatalError when it can't begin.

    `path` is the file that `config` came from and that SIGHUP has read again; None: there are no reloads.
    """

    def __init__(self, config: AgentConfig, path: Path | None = None) -> None:
        self._config = config
        self._path = path
        self._parts = Parts()
        self._log = get_logger("agent")
        self._servers = Servers(config, self._parts.start)
        self._discovery: Discovery | None = None
        if config.multicast is not None:
            self._discovery = Discovery(config.multicast, self._on_registrars)
        else:
            self._servers.make()
        self._relay: RelayEnd | None = None
        if config.relay is not None:
            relay = config.relay
            self._relay = RelayEnd(relay.port, relay.networks, relay.client_networks, limits=relay.limits)
        self._loop_watch = LoopWatch()
        self._metrics: PageServer | None = None
        self._reloading = Reloading(self._reload, self._log, (NoLocalAddress,))
        self._control = ControlServer(
            config.control.path,
            {
                "status": self._status,
                "drain": ControlCommand(
                    self._drain, {"name": str, "wait": bool, "for_s": float, "reason": str}
                ),
                "undrain": ControlCommand(self._undrain, {"name": str}),
            },
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then leave every pool and return."""
        async with contextlib.AsyncExitStack() as opened:
            opened.enter_context(self._servers.alone())
            opened.enter_context(self._reloading.at_hangup())
            await self._control.start()
            opened.push_async_callback(self._control.close)
            await self._start_metrics(opened)
            if self._relay is not None:
                self._relay.start()
                opened.push_async_callback(self._relay.close)
                self._relay.serve(self._servers.relayed(self._config))
            await self._run_parts(stop)

    async def _run_parts(self, stop: asyncio.Event) -> None:
        tasks = [self._parts.start(self._loop_watch.run()), self._parts.start(self._servers.watches.run())]
        reloads = self._parts.start(self._reloading.run())
        stopped = asyncio.create_task(stop.wait())
        try:
            if self._discovery is not None:
                self._discovery.start()
            else:
                self._servers.start()
            notify.ready()
            self._log.info("started", servers=[server.name for server in self._config.servers])
            ends: list[asyncio.Future[Any]] = [stopped, self._parts.failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await self._begin_nothing_more(reloads)
            await self._servers.leave(at_all=not self._parts.failed.done())
            if self._parts.failed.done():
                self._parts.failed.result()  # raises what ended it
            self._log.info("stopped")
        finally:
            await self._begin_nothing_more(reloads)
            await self._servers.close()
            for task in (stopped, *tasks):
                task.cancel()
            await asyncio.gather(stopped, *tasks, return_exceptions=True)

    async def _begin_nothing_more(self, reloads: asyncio.Task[None]) -> None:
        """A server that joins a pool from now on would never leave it: end a reload that is under way."""
        if self._discovery is not None:
            self._discovery.close()
        reloads.cancel()
        await asyncio.gather(reloads, return_exceptions=True)

    def _on_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Registrars announced themselves, or are silent for long: at least one is known."""
        self._log.info("registrars", heard=[str(registrar) for registrar in registrars])
        try:
            self._servers.set_registrars(registrars)
            if self._relay is not None:
                self._relay.serve(self._servers.relayed(self._config))
        except FatalError as error:
            self._parts.fail(error)

    async def _start_metrics(self, opened: contextlib.AsyncExitStack) -> None:
        if self._config.metrics is None:
            return
        from ppe_agent.metrics import make_server

        self._metrics = make_server(ListenAddress.parse(self._config.metrics.listen), self._describe)
        await self._metrics.start()
        opened.push_async_callback(self._metrics.close)

    # Reload

    async def _reload(self) -> dict[str, Any]:
        """Take the configuration file over, whole or not at all. Raises what is wrong with it."""
        if self._path is not None:
            config = load_configuration(self._path)
            check_fixed(self._config, config, _FIXED)
            if self._relay is not None:
                self._relay.check(self._servers.relayed(config))
            await self._servers.reload(config)
            self._config = config
            if self._relay is not None:
                self._relay.serve(self._servers.relayed(self._config))
        return {"servers": [server.name for server in self._config.servers]}

    # Commands

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        return dict(self._describe())

    def _describe(self) -> AgentStatus:
        return {
            "registrars": self._servers.watches.describe(),
            "multicast": self._discovery.describe() if self._discovery is not None else None,
            "as": self._servers.describe(),
            "waiting": self._servers.describe_waiting(),
            "loop": self._loop_watch.describe(),
            "relay": self._relay.describe() if self._relay is not None else None,
            "reload_problem": self._reloading.problem,
            "metrics_problem": self._metrics.problem if self._metrics is not None else None,
        }

    async def _drain(self, request: dict[str, Any]) -> dict[str, Any]:
        chosen = self._chosen(request)
        by = await peer_user()
        await self._set_drain(chosen, _drain_of(request, by, time.time()), by)
        if request.get("wait") and (doubtful := await self._servers.until_left(chosen)):
            raise ControlError(
                f"drained, but no registrar confirmed that {', '.join(doubtful)} left: some may list "
                "it still. Run the command again: it succeeds as soon as a registrar no longer lists it"
            )
        twins = self._servers.twins(chosen)
        if request.get("wait") and twins:
            places = "; ".join(f"{name}: {in_by_another(twin)}" for name, twin in twins.items())
            raise ControlError(f"drained, but not out of its pool: {places}; drain it there, too")
        return {"as": self._servers.describe_these(chosen)}

    async def _undrain(self, request: dict[str, Any]) -> dict[str, Any]:
        chosen = self._chosen(request)
        await self._set_drain(chosen, None, await peer_user())
        return {"as": self._servers.describe_these(chosen)}

    def _chosen(self, request: dict[str, Any]) -> Sequence[str]:
        """Return the name of the AS that the request names, of all when it names none."""
        name = request.get("name")
        chosen = [server for server in self._servers.kept if name in (None, server)]
        if not chosen:
            raise ControlError(f"no AS named {name!r} here; there is {', '.join(self._servers.kept)}")
        return chosen

    async def _set_drain(self, names: Sequence[str], drain: Drain | None, by: str) -> None:
        try:
            await self._servers.drain(names, drain, by)
        except FatalError as error:
            words = f"done, but lost should the agent restart now: {error}; it is tried again"
            raise ControlError(words) from None


def _drain_of(request: Mapping[str, Any], by: str, wall_s: float) -> Drain:
    """Return the drain that a request asks for. Raises ControlError."""
    for_s, reason = request.get("for_s"), request.get("reason") or ""
    if for_s is not None and not 0 < for_s <= LONGEST_DRAIN_S:
        raise ControlError(f"a drain lasts for up to {LONGEST_DRAIN_S / 86_400:g} days, or has no end")
    if len(reason) > MOST_REASON or not reason.isprintable():
        raise ControlError(f"a reason is a line of up to {MOST_REASON} characters")
    return Drain(by, reason, wall_s, None if for_s is None else wall_s + for_s)
