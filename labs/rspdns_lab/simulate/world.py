"""The hosts of a scenario: three registrars, servers with their sidecars, name servers, a client, a stranger.

`World` builds them, lets the client ask, and notes what happens in the trace. It knows nothing of faults.
"""

import os
import random
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from typing import Protocol as Interface

from daemon_kit.sip import SIP_PORT

from rserpool import LeastUsed, PoolElement, PoolElementClient, Protocol, RegistrarAddress, Transport
from rspdns_lab.chain.plan import ZONE, FollowMethod
from rspdns_lab.chain.texts import (
    agent_toml,
    backend_toml,
    pool_key_file,
    site_tables,
    static_zone,
    write_keys,
    zone_toml,
)
from rspdns_lab.simulate import seams
from rspdns_lab.simulate.caller import SimulatedResolver, SrvCall, SrvCaller
from rspdns_lab.simulate.determinism import EPOCH_S
from rspdns_lab.simulate.kernel import Kernel, SimulatedProcess
from rspdns_lab.simulate.network import SimulatedHost, SimulatedNetwork
from rspdns_lab.simulate.parts import SidecarHost, SimulatedNameServer, SimulatedRegistrar
from rspdns_lab.simulate.powerdns import Packet
from rspdns_lab.simulate.sockets import SimulatedServer

QUESTION: Final = f"_sip._udp.as.{ZONE}"
ASKED_EVERY_S: Final = 0.05
"""How often the client asks each name server, on average."""
CALLS_EVERY_S: Final = 0.5
CALLER: Final = "10.53.0.30"
"""The address of the caller and its resolver."""
STRANGER: Final = "192.0.2.66"
"""An address outside the pool's networks (RFC 5737)."""
REGISTERED_MS: Final = 2000
IDLE_LOAD: Final = 0.1
PLAIN: Final = "plain"
"""The setting without anything special."""


class ScenarioListener(Interface):
    """Somebody who watches a scenario."""

    def answered(self, name_server: SimulatedNameServer, packet: Packet, asked_at_s: float) -> None:
        """The client got an answer."""

    def believed(self, name_server: SimulatedNameServer) -> None:
        """Something happened in the belief of a name server."""

    def called(self, call: SrvCall) -> None:
        """The caller called, and reached a server or not."""

    def faults_changed(self, kind: str, touches: str, by: int) -> None:
        """A fault of this kind, which touches this, began (1) or ended (-1)."""


@dataclass(frozen=True, slots=True)
class WorldSize:
    """How many hosts of each kind there are."""

    registrars: int = 3
    servers: int = 10
    name_servers: int = 2


@dataclass(frozen=True, slots=True)
class WorldSetting:
    """How the pool and the backends are configured."""

    keyed: bool = False
    """Whether the pool has a key."""
    polled: bool = False
    """Whether the backends only poll the registrars."""
    verified: bool = False
    """Whether the backends probe every server."""
    sited: bool = False
    """Whether the servers are at two sites, the first half at the first one."""

    def __str__(self) -> str:
        return " ".join(name for name, is_so in asdict(self).items() if is_so) or PLAIN


def chosen_setting(seed: int) -> WorldSetting:
    """The setting of a scenario, half of them plain."""
    chance = random.Random(f"setting {seed}")  # noqa: S311 - a scenario, no secret
    if chance.random() < 0.5:
        return WorldSetting()
    return WorldSetting(*(chance.random() < part for part in (0.6, 0.15, 0.3, 0.3)))


class ServerHost:
    """An application server and its sidecar."""

    def __init__(self, host: SimulatedHost, sidecar: SidecarHost, folder: Path) -> None:
        self.host = host
        self.sidecar = sidecar
        self.folder = folder
        self.is_drained = False
        self.load, self.load_since_s = IDLE_LOAD, 0.0
        self.server: SimulatedServer
        self._write_load()

    @property
    def is_serving(self) -> bool:
        """Whether it would take a call."""
        process = self.host.processes.get("server")
        return process is not None and process.is_alive and not process.is_frozen

    @property
    def is_vouched_for(self) -> bool:
        """Whether its sidecar lives, and nobody drained it."""
        process = self.host.processes.get("sidecar")
        return process is not None and process.is_alive and not process.is_frozen and not self.is_drained

    def start_server(self) -> None:
        """Start the server."""
        self.server = SimulatedServer(self.host, SIP_PORT)

    def set_load(self, load: float) -> None:
        """Have the sidecar read this load from now on."""
        self.load, self.load_since_s = load, self.host.kernel.now
        self._write_load()

    def _write_load(self) -> None:
        """Write the file, as of the beginning of all scenarios."""
        (self.folder / "load").write_text(f"{self.load}\n")
        os.utime(self.folder / "load", (EPOCH_S, EPOCH_S))


class World:
    """All hosts. `folder` takes their files. `on_answer` is told every answer and who gave it."""

    def __init__(self, kernel: Kernel, folder: Path, size: WorldSize, setting: WorldSetting) -> None:
        self.kernel = kernel
        self.setting = setting
        self.network = SimulatedNetwork(kernel)
        self.lines: list[str] = []
        self.answers = 0
        self.listeners: list[ScenarioListener] = []
        seams.use(self.network)
        registrars = [f"10.53.0.{number}" for number in range(1, size.registrars + 1)]
        name_servers = [f"10.53.0.{number + 50}" for number in range(1, size.name_servers + 1)]
        self.registrars = [
            SimulatedRegistrar(
                self.network.add_host(f"r{number}", address),
                number,
                [other for other in registrars if other != address],
            )
            for number, address in enumerate(registrars, 1)
        ]
        numbers = range(1, size.servers + 1)
        servers = {f"s{number}": f"10.53.0.{number + 100}" for number in numbers}
        for name in servers:
            (folder / name).mkdir()
        if setting.keyed:
            write_keys(folder, servers)
        addresses = tuple(servers.values())
        half = len(addresses) // 2
        self.at_site = {"eu": addresses[:half], "us": addresses[half:]} if setting.sited else {}
        """The addresses of the servers at each site, the first one first."""
        self.servers = [self._server(*server, registrars, folder) for server in servers.items()]
        self.name_servers = [
            self._name_server(number, address, registrars, name_servers, folder)
            for number, address in enumerate(name_servers, 1)
        ]
        self.stranger = self.network.add_host("x1", STRANGER)
        resolver = SimulatedResolver(self.network.add_host("c1", CALLER), self.name_servers)
        self._caller = SrvCaller(self.network, resolver, QUESTION, self._takes_calls, self._called)
        self.by_address = {server.host.address: server for server in self.servers}
        self._stranger_registrars = [RegistrarAddress(address) for address in registrars]
        self._packets: dict[str, Packet] = {}
        self._shown: dict[str, str] = {}
        """The last answer of each name server, and its words."""

    def _server(self, name: str, address: str, registrars: list[str], folder: Path) -> ServerHost:
        host = self.network.add_host(name, address)
        place = folder / name
        key = place / "server.key" if self.setting.keyed else None
        (place / "agent.toml").write_text(agent_toml(name, address, registrars, place, key=key))
        return ServerHost(host, SidecarHost(host, name, place / "agent.toml"), place)

    def _name_server(
        self, number: int, address: str, registrars: list[str], name_servers: list[str], folder: Path
    ) -> SimulatedNameServer:
        place = folder / f"n{number}"
        (place / "zones.d").mkdir(parents=True)
        (place / "state").mkdir()
        setting = self.setting
        follow: FollowMethod = "poll" if setting.polled else "enrp"
        sites = site_tables(self.at_site)
        (place / "rspdns.toml").write_text(backend_toml(registrars, place, follow) + sites)
        key = pool_key_file(folder) if setting.keyed else None
        (place / "zones.d" / f"{ZONE}.toml").write_text(
            zone_toml(setting.verified, key=key, order=tuple(self.at_site))
        )
        (place / "zones.d" / f"{ZONE}.zone").write_text(static_zone(name_servers))
        host = self.network.add_host(f"n{number}", address)
        return SimulatedNameServer(host, place, self.tell, self._believed)

    def start(self) -> None:
        """Start everything, and have the client ask."""
        self.tell("", f"setting: {self.setting}")
        for registrar in self.registrars:
            registrar.boot()
        for server in self.servers:
            server.start_server()
            server.sidecar.start()
        for name_server in self.name_servers:
            name_server.start_powerdns()
            name_server.start_backend()
            self._ask(name_server)

        self._call()

    def _believed(self, name_server: SimulatedNameServer) -> None:
        for listener in self.listeners:
            listener.believed(name_server)

    def end(self) -> None:
        """End every process."""
        for host in self.network.hosts.values():
            host.power_off()

    def faults_changed(self, kind: str, touches: str, by: int) -> None:
        """A fault of this kind, which touches this, began (1) or ended (-1)."""
        for listener in self.listeners:
            listener.faults_changed(kind, touches, by)

    def tell(self, who: str, what: str) -> None:
        """Note something in the trace."""
        self.lines.append(f"{self.kernel.now:12.6f} {who:4} {what}")

    # The client

    def _ask(self, name_server: SimulatedNameServer) -> None:
        self.kernel.after(ASKED_EVERY_S * 2 * self.kernel.random.random(), self._ask, name_server)
        process = name_server.powerdns.process
        if process.is_alive:
            asked_at_s = self.kernel.now

            def answered(packet: Packet) -> None:
                self._take(name_server, packet, asked_at_s)

            process.do(name_server.powerdns.ask, QUESTION, "SRV", answered)

    def _take(self, name_server: SimulatedNameServer, packet: Packet, asked_at_s: float) -> None:
        self.answers += 1
        name = name_server.host.name
        if self._packets.get(name) is not packet:
            self._packets[name] = packet
            shown = f"{packet.rcode} {' '.join(sorted(self.named(packet)))}"
            if self._shown.get(name) != shown:
                self._shown[name] = shown
                self.tell(name, f"answers {shown}")
        for listener in self.listeners:
            listener.answered(name_server, packet, asked_at_s)

    # The caller, behind a resolver

    def _call(self) -> None:
        self.kernel.after(CALLS_EVERY_S * 2 * self.kernel.random.random(), self._call)
        self._caller.call()

    def _takes_calls(self, address: str) -> bool:
        server = self.by_address.get(address)
        return (
            server is not None
            and server.is_serving
            and not self.network.is_cut(self.network.by_address[CALLER], server.host)
        )

    def _called(self, call: SrvCall) -> None:
        for listener in self.listeners:
            listener.called(call)

    def home_of(self, server: ServerHost) -> SimulatedRegistrar | None:
        """The registrar that keeps a server alive."""
        for registrar in self.registrars:
            if registrar.process.is_alive and registrar.model.is_home_of(server.host.address):
                return registrar
        return None

    def named(self, packet: Packet) -> list[str]:
        """The names of the servers in an answer, or their addresses if they are of no server."""
        addresses = [address for target in packet.targets for address in packet.addresses(target)]
        return [
            self.by_address[address].host.name if address in self.by_address else address
            for address in addresses
        ]

    # The stranger

    def start_stranger(self, handle: str, identifier: int) -> SimulatedProcess:
        """Have a host of a foreign network register in a pool."""
        process = self.stranger.start("stranger")
        process.do(self._register_stranger, handle, identifier)
        return process

    def _register_stranger(self, handle: str, identifier: int) -> None:
        transport = Transport(Protocol.UDP, SIP_PORT, (ip_address(STRANGER),))
        element = PoolElement(identifier, 0, 3 * REGISTERED_MS, transport, LeastUsed(0.0))
        client = PoolElementClient(
            self._stranger_registrars, handle.encode(), element, local_addresses=[STRANGER]
        )
        client.start()
