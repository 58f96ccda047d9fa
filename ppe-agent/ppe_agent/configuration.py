"""agent.toml: what the sidecar is told. `load_configuration()` reports every error at once."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from daemon_kit.addresses import ListenAddress, ListenText, is_on_this_host, read_address, read_network
from daemon_kit.config_file import StrictModel, load, named_control_path
from daemon_kit.errors import FatalError
from daemon_kit.files import FilePath, read_secret
from daemon_kit.model_keys import none_of
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
)

from ppe_agent import consistency
from ppe_agent.addresses import Address, NoLocalAddress, address_towards, is_reachable
from ppe_agent.checks.configuration import CheckConfig, DampingConfig
from ppe_agent.client_addresses import DEFAULT_NETWORKS
from ppe_agent.config_types import (
    POLICY_KEYS,
    Port,
    Share,
    Uint32,
    filled,
    make_policy,
    single_line,
)
from ppe_agent.consistency import ANNOUNCE_GROUP, MULTICAST, Problem
from ppe_agent.load_config import LoadConfig
from ppe_agent.relay import PpuAgentLimits
from rserpool import (
    DATA_CHANNEL_PORT,
    MAX_HANDLE,
    POLICY_KINDS,
    Policy,
    Protocol,
    RegistrarAddress,
    ServerKey,
    group_problem,
    is_drained_life,
    read_server_keys,
)

DEFAULT_PATH = Path("/etc/ppe-agent/agent.toml")


def _registrar(value: object) -> object:
    if isinstance(value, RegistrarAddress):
        return value
    if not isinstance(value, str):
        raise ValueError('a registrar is written as text: "10.0.0.1"')  # noqa: TRY004 - pydantic wants it
    registrar = RegistrarAddress.parse(value)
    if not is_reachable(ip_address(registrar.host)):
        raise ValueError(f"{registrar.host} is not an address that a registrar can use")
    return registrar


_AUTO = '"auto" takes the one towards the first registrar; a server on another host needs remote = true'


def _addresses(value: object, info: ValidationInfo) -> object:
    """Read "auto", an address or a list of them; the latter two become a tuple of addresses.

    They are this host's, or that of another host for a server that is `remote`.
    """
    if info.data.get("remote"):
        return (_remote_address(value),)
    if value == "auto":
        return value
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    if not texts or (isinstance(value, list) and len(texts) < len(value)):
        raise ValueError('"auto", an IP address of this host, or (sctp) a list of them')
    problems = [problem for text in texts if (problem := _address_problem(text))]
    if problems:
        raise ValueError("; ".join([*problems, _AUTO]))
    return tuple(ip_address(text) for text in texts)


def _remote_address(value: object) -> Address:
    if not isinstance(value, str) or value == "auto":
        raise ValueError("remote = true needs the server's own address: one, as text")
    address = read_address(value)
    if address.version != 4:
        raise ValueError(
            f"{value}: remote = true takes an IPv4 address only, for the registrar carries it in the 32 bits "
            "of the PE identifier"
        )
    if not is_reachable(address):
        raise ValueError(f"{value} is not an address at which others reach the server")
    if is_on_this_host(address):
        raise ValueError(f"{value} is an address of this host: leave remote = true out")
    return address


def _address_problem(text: str) -> str | None:
    try:
        address = read_address(text)
    except ValueError as problem:
        return str(problem)
    if not is_reachable(address):
        return f"{text} is not an address at which others reach this host"
    if not is_on_this_host(address):
        return f"{text} is no address of this host"
    return None


def _handle(value: str) -> str:
    length = len(value.encode())
    if not 1 <= length <= MAX_HANDLE:
        # A longer one aborts rspregistrar, whoever sends it.
        raise ValueError(f"a pool handle has 1 to {MAX_HANDLE} bytes, this one {length}")
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise ValueError("a name has 1 to 64 letters, digits, '.', '_' or '-' (it names a file)")
    return value


def _policy(value: str) -> str:
    if value not in POLICY_KINDS:
        raise ValueError(none_of(value, POLICY_KINDS))
    return value


@dataclass(frozen=True, slots=True)
class ServerKeyFile:
    """A sidecar's key file that was read."""

    path: str
    keys: tuple[ServerKey, ...] = field(repr=False)

    def of(self, protocol: Protocol, addresses: Sequence[Address], port: int) -> ServerKey:
        """Return the last key of one of the addresses. Raises FatalError."""
        for key in reversed(self.keys):
            if key.protocol is protocol and key.port == port and key.address in addresses:
                return key
        place = f"{protocol.name.lower()} {addresses[0]} {port}"
        raise FatalError(f"{self.path} holds no key for {place}: rspdns key derive FILE {place} makes it")


def _server_key(value: object) -> object:
    if isinstance(value, ServerKeyFile):
        return value
    if not isinstance(value, str):
        raise ValueError("the path of a key file, as text")  # noqa: TRY004 - pydantic wants it
    text = read_secret(value)
    try:
        return ServerKeyFile(value, read_server_keys(text))
    except ValueError as problem:
        raise ValueError(f"{value}: {problem}") from None


def _unless_multicast(value: object) -> object:
    """Take "multicast" for: none is written down."""
    return () if value == MULTICAST else value


def _group(value: str) -> str:
    if problem := group_problem(ListenAddress.parse(value).address):
        raise ValueError(problem)
    return value


def _network(value: str) -> str:
    read_network(value)
    return value


class ServerConfig(StrictModel):
    """`[[as]]`: one application server."""

    OTHER_NAMES: ClassVar[Mapping[str, str]] = {
        "pool": "handle",
        "protocol": "transport",
        "host": "address",
        "ip": "address",
        "checks": "check",
    }

    name: Annotated[str, AfterValidator(_name)]
    """How this server is called in `status`, `drain`, log and metrics."""
    handle: Annotated[str, AfterValidator(_handle)]
    """The pool handle, 1 to 32 bytes; the same on every host of the pool."""
    handlespace: str | None = None
    """The `[[handlespace]]` whose registrars it registers at; needed if there are several."""
    transport: Literal["udp", "tcp", "sctp"]
    """The transport of the server. All members of a pool must agree."""
    remote: bool = False
    """Whether the server is on another host, where nothing may be installed. It is then judged over the
    network only, and `address` is its own, an IPv4 address. The zone's pool must name this host in
    `remote_agents`."""
    address: Annotated[
        Literal["auto"] | tuple[Address, ...], Field(validate_default=True), PlainValidator(_addresses)
    ] = "auto"
    """The server's address. `auto`: this host's address towards the first registrar. For SCTP it may be a
    list."""
    port: Port
    """The server's port. A pool takes one address and port once."""
    key: Annotated[ServerKeyFile, PlainValidator(_server_key), PlainSerializer(attrgetter("path"))] | None = (
        None
    )
    """For a keyed pool: the file with the key of this server's address and port, by its whole path (`rspdns
    key derive`). Not for a server that is `remote`."""
    policy: Annotated[str, AfterValidator(_policy)] = "least-used"
    """How load is shared: a policy of RFC 5356, `least-used`, `priority`, `round-robin`, `random`,
    `weighted-round-robin`, `weighted-random` or a variant. All members of a pool must agree."""
    weight: Uint32 | None = None
    """For the weighted policies. 0: standby, shown when no other member lives."""
    priority: Uint32 | None = None
    """For the policy `priority`: the largest is preferred."""
    degradation: Share | None = None
    """For the policies with degradation: by how much one more request raises the load."""
    penalty_factor: Share | None = None
    """For `least-used-dpf`: how much the distance counts."""
    distance_ms: Uint32 | None = None
    """For `least-used-dpf`: how far this server is."""
    check: Annotated[tuple[CheckConfig, ...], filled("at least one [[as.check]] is needed")]
    """The health checks; at least one. The server is in its pool while all of them pass."""
    damping: DampingConfig = DampingConfig()
    load: LoadConfig | None = None
    """The source of the load; only for policies that carry the load."""
    relay: bool = False
    """Whether ppu-agents may reach this server through this agent (`via = "sctp"`). Needs `[relay]`; UDP and
    TCP only."""
    drain_file: FilePath | None = None
    """The server is drained while this file exists; looked for twice a second. Not below /tmp or /home."""

    @property
    def pool(self) -> str:
        """The pool's name, as name servers have it: with its handlespace, if that has a name."""
        return f"{self.handlespace}/{self.handle}" if self.handlespace else self.handle

    def policy_with(self, load: float) -> Policy:
        """Return the policy to register, with `load` (0..1) where it carries one."""
        return make_policy(self.policy, {key: getattr(self, key) for key in POLICY_KEYS}, load)


class PpeStateConfig(StrictModel):
    """`[state]`: the directory that keeps identifiers and drains across restarts."""

    path: FilePath = Path("/var/lib/ppe-agent")
    """Keeps PE identifiers and drains. It belongs to one agent: a second one refuses to start."""


class PpeControlConfig(StrictModel):
    """`[control]`: the unix socket of status, drain and undrain."""

    path: FilePath = Path("/run/ppe-agent/control.sock")
    """The socket at which the commands ask; for the owner and the group only."""


class PpeMetricsConfig(StrictModel):
    """`[metrics]`: where Prometheus finds them."""

    listen: ListenText
    """The address and port of `/metrics`, `127.0.0.1:9155` say. Without the table there are no metrics.

    While the address is taken, the agent does its work without them, and tries again."""


class MulticastConfig(StrictModel):
    """`[multicast]`: where registrars announce themselves, and which are believed."""

    accept: Annotated[
        tuple[Annotated[str, AfterValidator(_network)], ...],
        filled("the networks in which registrars are, for anyone can announce himself"),
    ]
    """The networks in which registrars are. Announcements from elsewhere are ignored."""
    group: Annotated[str, AfterValidator(_group)] = ANNOUNCE_GROUP
    """The multicast group and port of the announcements (RFC 5352)."""
    interface: Annotated[str, AfterValidator(single_line)] | None = None
    """The network interface to listen on. Default: the one that this host's routes choose."""

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """`accept`, parsed."""
        return tuple(ip_network(text) for text in self.accept)


class PpeRelayConfig(StrictModel):
    """`[relay]`: where ppu-agents hand over what they embed in SCTP, for the servers with `relay = true`."""

    accept: Annotated[
        tuple[Annotated[str, AfterValidator(_network)], ...],
        filled("the networks of the ppu-agents; others are refused"),
    ]
    """The networks in which the ppu-agents are. Associations from elsewhere are ended."""
    port: Port = DATA_CHANNEL_PORT
    """The SCTP port, on all addresses of this host."""
    clients: tuple[Annotated[str, AfterValidator(_network)], ...] = DEFAULT_NETWORKS
    """Servers see each client at an address of these networks: one of IPv4, one of IPv6. No host has such an
    address, and the servers must trust none. Each is routed to this host, where it is needed:
    `ip route add local 198.18.0.0/15 dev lo`."""
    max_connections: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """TCP connections at a time, of all ppu-agents. Further ones are reset."""
    max_clients: Annotated[int, Field(ge=1, le=100_000)] = 4000
    """UDP clients at a time, of all ppu-agents. If there are more, the one that was silent for longest is
    forgotten."""
    agent_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Which part of both one ppu-agent's host may have."""
    idle_s: Annotated[int, Field(ge=1, le=604_800)] = 3600
    """A TCP connection through which nothing passes for this time is reset."""

    @property
    def limits(self) -> PpuAgentLimits:
        """The limits of ppu-agents."""
        return PpuAgentLimits(self.max_connections, self.max_clients, self.agent_share, self.idle_s)

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """`accept`, parsed."""
        return tuple(ip_network(text) for text in self.accept)

    @property
    def client_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """`clients`, parsed."""
        return tuple(ip_network(text) for text in self.clients)


LIVES = 3
"""A registration lives for three intervals, so that two lost renewals don't end it."""


def _no_drained_life(reregistration_ms: int) -> int:
    """Refuse what makes a registration life that says that the server is drained."""
    if is_drained_life(LIVES * reregistration_ms):
        raise ValueError("15,671 to 16,390 make a registration life that says: drained; take another value")
    return reregistration_ms


_Registrars = Annotated[
    tuple[Annotated[RegistrarAddress, BeforeValidator(_registrar)], ...],
    filled("at least one registrar is needed; take three"),
]


class AgentHandlespace(StrictModel):
    """`[[handlespace]]`: the registrars that share one handlespace, in place of `registrars`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
    """The name of the handlespace, as in the name servers' files."""
    registrars: _Registrars
    """The addresses of its registrars, as in `registrars`."""


class AgentConfig(StrictModel):
    """The whole file. No `registrars`: those that announce themselves, as `multicast` says."""

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    registrars: Annotated[_Registrars, BeforeValidator(_unless_multicast)] = ()
    """IP addresses, with `:port` where it isn't 3863; three of them. Or `"multicast"`: those that announce
    themselves. The agent uses one and moves at once when it fails. With several handlespaces, each
    `[[handlespace]]` has its own instead."""
    handlespaces: tuple[AgentHandlespace, ...] = Field(default=(), alias="handlespace")
    multicast: MulticastConfig | None = None
    """Only with `registrars = "multicast"`."""
    reregistration_ms: Annotated[int, Field(ge=200, le=600_000), AfterValidator(_no_drained_life)] = 2000
    """How often the registration is renewed. It lives for three times that."""
    reports: bool = False
    """Whether registrars take reports from this host: `reports_per_s` of the registrars' inventory. A server
    that leaves without its registrar's word is then reported as unreachable by the sidecar itself."""
    state: PpeStateConfig = PpeStateConfig()
    control: PpeControlConfig = PpeControlConfig()
    metrics: PpeMetricsConfig | None = None
    relay: PpeRelayConfig | None = None
    servers: Annotated[tuple[ServerConfig, ...], filled("at least one [[as]] is needed")] = Field(alias="as")

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[Problem]:
        """Yield what is wrong between keys."""
        yield from consistency.problems(document)

    def registrars_of(self, server: ServerConfig) -> tuple[RegistrarAddress, ...]:
        """The registrars of a server's handlespace; none while `registrars` is "multicast"."""
        if not self.handlespaces:
            return self.registrars
        name = server.handlespace or self.handlespaces[0].name
        return next(each.registrars for each in self.handlespaces if each.name == name)

    @property
    def all_registrars(self) -> tuple[RegistrarAddress, ...]:
        """The registrars of all handlespaces."""
        return self.registrars + tuple(itertools.chain(*(each.registrars for each in self.handlespaces)))


def load_configuration(path: str | Path) -> AgentConfig:
    """Read agent.toml. Raises daemon_kit.config_file.ConfigurationErrors with every error."""
    return load(path, AgentConfig)


def control_path(path: str | Path) -> Path:
    """The control socket that agent.toml names, whatever else is wrong in it. Raises ConfigurationErrors."""
    return named_control_path(path, PpeControlConfig().path)


def addresses_of(
    server: ServerConfig, first_registrar: RegistrarAddress | None = None
) -> tuple[Address, ...]:
    """Return the addresses at which the AS serves; "auto" needs a registrar. Raises NoLocalAddress."""
    return server.address if server.address != "auto" else (_own_address(first_registrar),)


def registered_addresses(
    server: ServerConfig, first_registrar: RegistrarAddress | None = None
) -> tuple[Address, ...]:
    """Return the addresses the AS is registered with: for a remote one this host's, since a registrar takes
    no others. Raises NoLocalAddress."""
    return (_own_address(first_registrar),) if server.remote else addresses_of(server, first_registrar)


def _own_address(first_registrar: RegistrarAddress | None) -> Address:
    if first_registrar is None:
        raise NoLocalAddress("no registrar has announced itself")
    return address_towards(first_registrar.host, first_registrar.asap_port)
