"""The programs of a scenario, each in a process of its host: real classes, put together as their commands do.

Left out are the admin API and the control sockets, whose commands (drain, undrain, reload) are called.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from daemon_kit.control import ControlError
from daemon_kit.logs import get_logger
from daemon_kit.run import Parts
from pool_user import BeliefEvent
from ppe_agent.configuration import load_configuration as load_agent
from ppe_agent.servers import Servers
from ppe_agent.state import Drain
from registrar_config.options import SctpEndpoint
from registrar_config.sentinel import Sentinel
from rspdns.configuration import BackendConfig
from rspdns.configuration import load_configuration as load_backend
from rspdns.service import Backend

from rserpool import RegistrarAddress, asap
from rspdns_lab.chain import lying_registrar
from rspdns_lab.simulate.kernel import SimulatedProcess
from rspdns_lab.simulate.network import SimulatedHost
from rspdns_lab.simulate.powerdns import PowerDnsModel
from rspdns_lab.simulate.registrar import RegistrarModel

INVENTED = "10.53.0.250"
"""The address at which a lying registrar places servers; no host has it."""
CLEARED_AGAIN_S = 0.5
"""How long an administrator waits before clearing an override once more."""
SUPERVISOR_S = 0.1
"""How long a registrar's supervisor waits before it starts another one."""


class SimulatedRegistrar:
    """A registrar, its sentinel, and the supervisor that starts both."""

    def __init__(self, host: SimulatedHost, number: int, peers: Sequence[str]) -> None:
        self.host = host
        self._number = number
        self._peers = tuple(peers)
        self.process: SimulatedProcess
        self.model: RegistrarModel
        self.sentinel: Sentinel
        self._supervisor: SimulatedProcess

    def boot(self) -> None:
        """Start everything: the host has just come up."""
        self._supervisor = self.host.start("supervisor")
        self._supervisor.do(self._supervise)
        self.start_registrar()

    def start_registrar(self) -> None:
        """Start the registrar anew."""
        process = self.process = self.host.start("registrar")
        process.on_end.append(self._ended)
        process.do(self._make)

    @property
    def is_lying(self) -> bool:
        """Whether a liar is in its place."""
        liar = self.host.processes.get("liar")
        return liar is not None and liar.is_alive

    def lie(self, kind: str, handle: str) -> SimulatedProcess:
        """Have a registrar that lies in the place of the true one; `kind` is a word of `lying_registrar`."""
        self.process.kill()
        liar = self.host.start("liar")
        words = [kind, self.host.address, str(self._number), handle, INVENTED, *self._peers]
        liar.do(lambda: liar.create_task(lying_registrar.lie(*words)))
        return liar

    def end_lie(self, liar: SimulatedProcess) -> None:
        """The liar ends; the true one starts anew."""
        if liar.is_alive:
            liar.kill()
            self.start_registrar()

    def _make(self) -> None:
        self._tell(lambda: self.sentinel.registrar_started())
        ready = lambda: self._tell(lambda: self.sentinel.registrar_ready())  # noqa: E731 - said twice
        peers = [RegistrarAddress(peer) for peer in self._peers]
        self.model = RegistrarModel(RegistrarAddress(self.host.address), peers, self.process, ready)

    def _tell(self, word: Callable[[], None]) -> None:
        self._supervisor.do(word)

    def _ended(self) -> None:
        if self.host.is_up:
            self.host.kernel.after(SUPERVISOR_S, self._restart, self.host.boots, self.process)

    def _restart(self, boots: int, process: SimulatedProcess) -> None:
        is_here = self.host.is_up and self.host.boots == boots and self.process is process
        if is_here and not self.is_lying:
            self.start_registrar()

    def _supervise(self) -> None:
        own = SctpEndpoint(ip_address(self.host.address), asap.PORT)
        self.sentinel = Sentinel(self._number, own, get_logger("sentinel"), is_watched=True)
        self._supervisor.create_task(self.sentinel.run(asyncio.Event()))


class SidecarHost:
    """The sidecar of an application server. `path` is its configuration."""

    def __init__(self, host: SimulatedHost, name: str, path: Path) -> None:
        self.host = host
        self.name = name
        self._path = path
        self.process: SimulatedProcess
        self.servers: Servers | None = None

    def start(self) -> None:
        """Start the sidecar."""
        self.servers = None
        self.process = self.host.start("sidecar")
        self.process.do(self._begin)

    def _begin(self) -> None:
        self.process.create_task(self._run())

    async def _run(self) -> None:
        parts = Parts()
        servers = Servers(load_agent(self._path), parts.start)
        servers.make()
        self.servers = servers
        servers.start()
        await servers.watches.run()

    @property
    def can_be_told(self) -> bool:
        """Whether it takes commands."""
        return self.servers is not None and self.process.is_responsive

    @property
    def is_in(self) -> bool:
        """Whether it has its server registered."""
        return self.servers is not None and any(
            keeper.registration.is_registered for keeper in self.servers.running
        )

    def drain(self, drain: Drain | None) -> None:
        """As `ppe-agent drain` and `undrain` do."""
        self.process.do(self._drain, drain)

    def _drain(self, drain: Drain | None) -> None:
        if self.servers is not None:
            self.process.create_task(self.servers.drain([self.name], drain, "operator"))


Tell = Callable[[str, str], None]
"""Notes in the trace who did what."""


class SimulatedBackend(Backend):
    """A backend whose events are in the trace."""

    def __init__(self, config: BackendConfig, name: str, tell: Tell, on_events: Callable[[], None]) -> None:
        super().__init__(config)
        self._name = name
        self._tell = tell
        self._on_events = on_events

    def _happened(self, events: Sequence[BeliefEvent]) -> None:
        super()._happened(events)
        for event in events:
            member = event.member
            whom = "" if member is None else f" {member.addresses[0]}"
            self._tell(self._name, f"believes {event.kind}{whom}: {event.words}")
        self._on_events()


class SimulatedNameServer:
    """A backend, with PowerDNS beside it, whose files are in `folder`; `on_events`: its belief had events."""

    def __init__(
        self,
        host: SimulatedHost,
        folder: Path,
        tell: Tell,
        on_events: Callable[["SimulatedNameServer"], None],
    ) -> None:
        self.host = host
        self.folder = folder
        self._path = folder / "rspdns.toml"
        self._tell = tell
        self._on_events = partial(on_events, self)
        self.powerdns: PowerDnsModel
        self.process: SimulatedProcess
        self.backend: Backend | None = None
        self.overridden: dict[str, tuple[str, float]] = {}
        """The overrides that an administrator set here: by address, the action and when it began to hold."""
        self.overridden_s = 0.0
        """When one was set or cleared last."""
        self._wanted: set[str] = set()
        """The addresses of the servers that the administrator wants overridden."""

    def start_powerdns(self) -> None:
        """Start PowerDNS, with empty caches."""
        before = self.host.listeners.get(("control", 0))
        self.powerdns = PowerDnsModel(self.host.start("powerdns"))
        if before is not None:
            self.powerdns.respond, self.powerdns.backend = before.respond, before.backend
        self.host.listeners["control", 0] = self.powerdns

    def start_backend(self) -> None:
        """Start the backend."""
        self.backend = None
        self.process = self.host.start("backend")
        self.process.do(self._begin)

    def _begin(self) -> None:
        self.process.create_task(self._run())

    async def _run(self) -> None:
        """Do what `Backend._start` does, but for sockets to others than the chain."""
        backend = self.backend = SimulatedBackend(
            load_backend(self._path), self.host.name, self._tell, self._on_events
        )
        self.process.on_end.append(backend.paths.store.close)
        backend.keeper.load_into(backend.belief)
        backend.overrides.here.load()
        for each in backend.overrides.here.all:
            self._note(each.action, each.servers)
        backend.lookups.start()
        change = backend.belief.evaluate(self.process.time())
        backend.keeper.changed(change.views)
        backend.publisher.start(change)
        self.powerdns.respond, self.powerdns.backend = backend.paths.responder.respond, self.process
        backend.caches.purger.start()
        backend.pool_user.start()
        self.process.create_task(backend.keeper.run())
        self.process.create_task(backend.prober.run())

    def override(self, action: str, address: str) -> None:
        """As `rspdns override` does."""
        self._wanted.add(address)
        self.process.do(lambda: self.process.create_task(self._override(action, address)))

    async def _override(self, action: str, address: str) -> None:
        if self.backend is None or address in self.overridden:
            return
        wish = {"action": action, "servers": address, "reason": "maintenance"}
        with contextlib.suppress(ControlError):  # it would empty the pool, or the disk is full
            await self.backend.override(wish, "operator")
            self._note(action, address)

    def _note(self, action: str, address: str) -> None:
        """An override holds."""
        self.overridden[address] = action, self.host.kernel.now
        self.overridden_s = self.host.kernel.now
        self._tell(self.host.name, f"override {action} {address}")
        if address not in self._wanted:
            self.host.kernel.after(0.0, self.clear, address)

    def clear(self, address: str) -> None:
        """Clear the override of a server, as soon as that can be."""
        self._wanted.discard(address)
        if address not in self.overridden:
            return
        if self.backend is not None and self.process.is_responsive:
            self.process.do(lambda: self.process.create_task(self._clear(address)))
        self.host.kernel.after(CLEARED_AGAIN_S, self.clear, address)

    async def _clear(self, address: str) -> None:
        if self.backend is None or address not in self.overridden:
            return
        numbers = [each.number for each in self.backend.overrides.here.all if each.servers == address]
        with contextlib.suppress(ControlError):
            await self.backend.clear([str(number) for number in numbers], "operator")
            self.overridden.pop(address, None)
            self.overridden_s = self.host.kernel.now
            self._tell(self.host.name, f"clear {address}")

    def reload(self) -> None:
        """As `rspdns reload` does, with the files as they are now."""
        self.process.do(self._reload)

    def _reload(self) -> None:
        if self.backend is not None:
            with contextlib.suppress(OSError):
                self.backend.take(load_backend(self._path))
