"""ppu-agent.toml: what the client's sidecar is told. `load_configuration()` reports every error at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from daemon_kit.addresses import ListenAddress, ListenText
from daemon_kit.config_file import StrictModel, duplicates, find, load, named_control_path
from daemon_kit.files import FilePath
from daemon_kit.toml_lines import Location
from pool_user import (
    MAX_MEMBERS,
    AcceptNetworks,
    Handle,
    Handlespace,
    HandlespaceConfig,
    HandlespaceName,
    KeyFile,
    Network,
    PoolProbing,
    PoolRules,
    ProbePlan,
    RegistrarTexts,
    RemoteAgents,
    handlespace_problems,
    handlespaces_of,
    not_empty,
)
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ppu_agent.gateway import Gateway
from ppu_agent.kernel import Pacing
from ppu_agent.plan import OnDead, PoolPolicy
from ppu_agent.relay import RelayLimits
from ppu_agent.rules import PROBE_MARK
from rserpool import DATA_CHANNEL_PORT, Protocol

DEFAULT_PATH = Path("/etc/ppu-agent/ppu-agent.toml")
TransportName = Literal["udp", "tcp", "sctp"]
PROTOCOLS: Mapping[str, Protocol] = {"udp": Protocol.UDP, "tcp": Protocol.TCP, "sctp": Protocol.SCTP}
PROBE_TIMEOUT_MS = 300
VERIFY_EVERY_S = 0.1
SYN_EVERY_MS = 500
GIVE_UP_MS = 2000


def _is_there_yet(value: object) -> object:
    if value == "answer-503":
        raise ValueError('"answer-503" is gone: write "refuse", which answers SIP over UDP with 503')
    return value


class OnDeadConfig(StrictModel):
    """`on_dead` as a table: what is done by the transport of the packet."""

    udp: Annotated[Literal["redirect", "refuse"], BeforeValidator(_is_there_yet)] = "redirect"
    """For UDP."""
    tcp: Literal["redirect", "refuse", "repeat"] = "refuse"
    """For TCP. "repeat": the agent relays connections, and repeats SIP requests that a dead server left
    unanswered. Only for servers that speak SIP."""
    sctp: Literal["redirect", "refuse"] = "refuse"
    """For SCTP."""

    @property
    def by_protocol(self) -> Mapping[Protocol, OnDead]:
        """The action for each transport."""
        return {Protocol.UDP: self.udp, Protocol.TCP: self.tcp, Protocol.SCTP: self.sctp}


def _on_dead(value: object) -> object:
    """A text stands for all transports that can have it."""
    if not isinstance(_is_there_yet(value), str):
        return value
    if value == "repeat":
        return {"tcp": value}
    if value not in ("redirect", "refuse"):
        raise ValueError(
            'must be "redirect", "refuse", "repeat" (TCP only), '
            'or one for each transport: { udp = "redirect", tcp = "refuse" }'
        )
    return {"udp": value, "tcp": value, "sctp": value}


def _pace(value: object) -> object:
    """A union of types would report a wrong value once for each of them."""
    if not isinstance(value, bool) and value != "rtt":
        raise ValueError('must be true, false or "rtt"')
    return value


PortNumber = Annotated[int, Field(ge=1, le=65535)]


class PpuPoolConfig(StrictModel):
    """`[[pool]]`: one pool whose members this host's programs send to."""

    OTHER_NAMES: ClassVar[Mapping[str, str]] = {
        "pool": "handle",
        "networks": "accept",
        "port": "ports",
        "transport": "also",
    }

    handle: Handle
    """The pool: 1 to 32 bytes, as in the sidecars' files."""
    handlespace: HandlespaceName | None = None
    """The `[[handlespace]]` that its servers register in; needed if there are several."""
    handlespaces: Annotated[tuple[HandlespaceName, ...], AfterValidator(not_empty)] | None = None
    """Several of them, in place of `handlespace`: servers of each stand in for those of the others, and
    `steer` stands for all."""
    accept: AcceptNetworks
    """Networks in which its servers are. Addresses outside them are never touched."""
    ports: Annotated[tuple[PortNumber, ...], Field(max_length=256)] = ()
    """Ports at which its servers are. Nothing at another port is ever touched. Default: any port."""
    on_dead: Annotated[OnDeadConfig, BeforeValidator(_on_dead)] = OnDeadConfig()
    """The treatment of packets to a server that died: one action, or a table of them by transport. Default:
    redirect UDP, refuse TCP and SCTP."""
    also: tuple[TransportName, ...] = ()
    """Further transports at which the members serve, at the port that they registered."""
    sip: bool | None = None
    """Whether the servers speak SIP. Over TCP they are then asked by OPTIONS; what a dead one left unanswered
    is answered with 503, and its connections end after that. Default: those at port 5060."""
    pace: Annotated[bool | Literal["rtt"], BeforeValidator(_pace)] = False
    """Whether this host repeats an unanswered TCP set-up early: every 500 ms, or every 1.5 round trips
    ("rtt"). It fails after the fourth SYN."""
    steer: ListenText | None = None
    """An address and port that stand for the pool: each new flow to it goes to a living server."""
    clients: AcceptNetworks | None = None
    """Networks of the hosts that may use `steer`, beside this one. Default: all that can reach it."""
    affinity: Literal["source"] | None = None
    """"source": all flows of a client's address go to one server while it lives. Default: by weight."""
    via: Literal["sctp"] | None = None
    """"sctp": what is sent to `steer` goes to the member's ppe-agent embedded in SCTP (`relay = true` there),
    over all paths that the two hosts have. UDP and TCP."""
    via_port: Annotated[int, Field(ge=1, le=65535)] = DATA_CHANNEL_PORT
    """The SCTP port of the ppe-agents: `[relay] port` in agent.toml."""
    probe: Literal["auto", "sip-options", "tcp", "connect"] = "auto"
    """How the agent asks a server whether it lives. "auto": SIP OPTIONS over UDP, and over TCP where servers
    speak SIP (`sip`); else by connecting, which a server that hangs accepts, too."""
    verify: bool = False
    """Whether every member is probed ten times a second. A server that hangs is then found before the
    registrars find it."""
    max_members: Annotated[int, Field(ge=1, le=100_000)] = MAX_MEMBERS
    """How many servers the pool may have; further ones are refused."""
    remote_agents: RemoteAgents = ()
    """Hosts of sidecars that register servers elsewhere, as in the zone's pool."""
    key: KeyFile | None = None
    """The key file of a keyed pool, by its whole path, as in the zone's pool."""

    @property
    def pool(self) -> str:
        """The pool's name: its handle, `handlespace/handle` where handlespaces have names."""
        return Handlespace(self.handlespace or "", ()).pool(self.handle)

    @property
    def policy(self) -> PoolPolicy:
        """The treatment of packets when a member died."""
        also = tuple(PROTOCOLS[transport] for transport in self.also)
        pace = Pacing(SYN_EVERY_MS, GIVE_UP_MS, learns=self.pace == "rtt") if self.pace else None
        front = None if self.steer is None else ListenAddress.parse(self.steer)
        endpoint = None if front is None else (front.address, front.port)
        return PoolPolicy(
            self.pool,
            self.on_dead.by_protocol,
            also,
            pace,
            endpoint,
            by_source=self.affinity == "source",
            via_port=self.via_port if self.via is not None else None,
            clients=self.clients,
            is_sip=self.sip,
            networks=self.accept,
            beside=tuple(
                Handlespace(name, ()).pool(self.handle)
                for name in self.handlespaces or ()
                if name != self.handlespace
            ),
        )

    @property
    def of_each_handlespace(self) -> Iterator[PpuPoolConfig]:
        """Itself, or of several handlespaces one for each; the first has `steer`."""
        if self.handlespaces is None:
            yield self
        for position, name in enumerate(self.handlespaces or ()):
            more = {"steer": None} if position else {}
            yield self.model_copy(update={"handlespace": name, **more})

    @property
    def question(self) -> ProbePlan:
        """How a member that left is asked."""
        return ProbePlan(self.probe, timeout_s=PROBE_TIMEOUT_MS / 1000, mark=PROBE_MARK, is_sip=self.sip)


class ControlConfig(StrictModel):
    """`[control]`: the unix socket of status, explain, suspend and resume."""

    path: FilePath = Path("/run/ppu-agent/control.sock")
    """The unix socket."""


class PpuStateConfig(StrictModel):
    """`[state]`: what the agent knows when it is started again."""

    path: FilePath = Path("/var/lib/ppu-agent")
    """The folder of a file with the members of the pools, those that left within the last 15 minutes, and the
    dead."""


class MetricsConfig(StrictModel):
    """`[metrics]`: where Prometheus finds them."""

    listen: ListenText
    """The address and port of `/metrics`. Without the table there are no metrics.

    While the address is taken, the agent does its work without them, and tries again."""


InterfaceName = Annotated[str, Field(pattern=r"^[^\s/\\\"]{1,15}$")]


class GatewayConfig(StrictModel):
    """`[gateway]`: this host routes or bridges between clients and servers, and guards connection set-up."""

    OTHER_NAMES: ClassVar[Mapping[str, str]] = {"interface": "interfaces"}

    interfaces: Annotated[tuple[InterfaceName, ...], Field(min_length=1, max_length=64)]
    """Interfaces on the clients' side, where set-ups come in; of a bridge its port."""
    repeat: Literal["fixed", "rtt"] = "fixed"
    """A set-up that nobody answers is repeated every 500 ms, or every 1.5 learned round trips ("rtt")."""
    max_pending: Annotated[int, Field(ge=1000, le=5_000_000)] = 100_000
    """Set-ups that wait for an answer at a time; further ones pass unguarded. Each takes 80 bytes."""

    def make(self) -> Gateway:
        """The gateway that guards, not started."""
        return Gateway(self.interfaces, learns=self.repeat == "rtt", max_pending=self.max_pending)


class RelayConfig(StrictModel):
    """`[relay]`: bounds of what passes this program itself: for `via`, and for "repeat" of `on_dead`."""

    max_connections: Annotated[int, Field(ge=1, le=100_000)] = 4000
    """TCP connections at a time. Further ones are reset."""
    max_clients: Annotated[int, Field(ge=1, le=100_000)] = 4000
    """UDP clients (address and port) of each `steer` at a time. If there are more, the one that was silent
    for longest is forgotten."""
    client_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Which part of both one address may have. This host's own programs may have all."""
    idle_s: Annotated[int, Field(ge=1, le=604_800)] = 3600
    """A TCP connection through which nothing passes for this time is reset. An SCTP association that nothing
    uses ends after the same time."""

    @property
    def limits(self) -> RelayLimits:
        """The same for the relay."""
        return RelayLimits(self.max_connections, self.max_clients, self.client_share, self.idle_s)


class PpuConfig(StrictModel):
    """The whole file."""

    registrars: RegistrarTexts | None = None
    """Addresses of the registrars: "10.0.0.1", or with other ports for ASAP and ENRP "10.0.0.1:3864/9902".
    With several handlespaces, each `[[handlespace]]` has its own instead."""
    named_handlespaces: tuple[HandlespaceConfig, ...] = Field(default=(), alias="handlespace")
    follow: Literal["enrp", "poll"] = "poll"
    """How registrars are followed: by asking alone, 20 times a second, or as a peer that they push to. A host
    that speaks ENRP can change what all registrars say: "enrp" is for hosts trusted like registrars."""
    control: ControlConfig = ControlConfig()
    state: PpuStateConfig = PpuStateConfig()
    metrics: MetricsConfig | None = None
    gateway: GatewayConfig | None = None
    relay: RelayConfig = RelayConfig()
    pools: Annotated[tuple[PpuPoolConfig, ...], Field(alias="pool", min_length=1)]

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[Location, str]]:
        """Yield what is wrong between keys: a registrar or a pool named twice."""
        yield from handlespace_problems(document)
        yield from _pool_problems(document)
        yield from duplicates(document, ("pool", "*", "steer"))
        yield from duplicates(document, ("gateway", "interfaces", "*"))
        for location, pool in find(document, ("pool", "*")):
            if isinstance(pool, dict) and "key" in pool and pool.get("remote_agents"):
                yield (
                    (*location, "key"),
                    "has no use with remote_agents: a remote server's identifier is its address",
                )
            for key, other in (
                ("affinity", "steer"),
                ("clients", "steer"),
                ("via", "steer"),
                ("via_port", "via"),
            ):
                if isinstance(pool, dict) and key in pool and other not in pool:
                    yield (*location, key), f"has no meaning without {other}"
            on_dead = pool.get("on_dead") if isinstance(pool, dict) else None
            repeats = on_dead == "repeat" or (isinstance(on_dead, dict) and on_dead.get("tcp") == "repeat")
            if repeats and pool.get("sip") is False:
                yield (*location, "on_dead"), "repeat is for SIP: take refuse, or leave sip = false out"
        for location, steer in find(document, ("pool", "*", "steer")):
            with contextlib.suppress(ValueError):  # the key's own check tells
                address = ListenAddress.parse(str(steer)).address
                if address.is_unspecified or address.is_multicast or address.is_loopback:
                    yield location, f"{address} stands for no pool: take an address that clients can reach"
        for location, also in find(document, ("pool", "*", "also")):
            if isinstance(also, list) and len(also) != len(set(map(str, also))):
                yield location, "a transport is there twice"

    @model_validator(mode="after")
    def _put_into_handlespaces(self) -> PpuConfig:
        """Have a pool for each of its handlespaces. The only one, if it has a name, need not be repeated."""
        pools = [each for pool in self.pools for each in pool.of_each_handlespace]
        if len(self.named_handlespaces) == 1:
            only = {"handlespace": self.named_handlespaces[0].name}
            pools = [pool if pool.handlespace else pool.model_copy(update=only) for pool in pools]
        object.__setattr__(self, "pools", tuple(pools))
        return self

    @property
    def handlespaces(self) -> tuple[Handlespace, ...]:
        """The handlespaces, each with its registrars: at least one."""
        return handlespaces_of(self.registrars, self.named_handlespaces)

    @property
    def handles(self) -> tuple[str, ...]:
        """The names of all pools."""
        return tuple(pool.pool for pool in self.pools)

    @property
    def accept_by_handle(self) -> Mapping[str, tuple[Network, ...]]:
        """The trusted networks of every pool."""
        return {pool.pool: pool.accept for pool in self.pools}

    @property
    def ports_by_handle(self) -> Mapping[str, tuple[int, ...]]:
        """The ports of every pool's servers; empty for any."""
        return {pool.pool: pool.ports for pool in self.pools}

    @property
    def pool_rules(self) -> Mapping[str, PoolRules]:
        """The rules of the belief for every pool."""
        return {
            pool.pool: PoolRules(
                pool.accept,
                pool.verify,
                pool.max_members,
                frozenset(pool.remote_agents),
                frozenset(pool.ports),
                keys=pool.key.keys if pool.key is not None else (),
            )
            for pool in self.pools
        }

    @property
    def probing(self) -> Mapping[str, PoolProbing]:
        """How the belief's own probes ask the members of every pool."""
        return {
            pool.pool: PoolProbing(
                replace(
                    pool.question,
                    interval_s=VERIFY_EVERY_S if pool.verify else 1.0,
                    fall=2,
                    verified=pool.verify,
                ),
                pool.pool,
            )
            for pool in self.pools
        }


def _pool_problems(document: dict[str, Any]) -> Iterator[tuple[Location, str]]:
    """A pool twice, and handlespaces of pools that are unknown or missing."""
    known = [name for _, name in find(document, ("handlespace", "*", "name"))]
    seen: set[tuple[object, object]] = set()
    for location, pool in find(document, ("pool", "*")):
        if not isinstance(pool, dict):
            continue
        own = "handlespaces" if "handlespaces" in pool else "handlespace"
        given = pool.get(own)
        names = given if isinstance(given, list) else [given]
        if "handlespaces" in pool and "handlespace" in pool:
            yield location, "takes either handlespace or handlespaces"
        elif given is None and len(known) > 1:
            yield location, f"needs handlespace: there are several, {', '.join(map(str, known))}"
        for name in names if given is not None else ():
            if name not in known:
                yield (*location, own), f"{name}: no [[handlespace]] has this name"
        for name in names:
            key = str(name), str(pool.get("handle"))
            if key in seen:
                yield (*location, "handle"), f"{pool.get('handle')!r} is there twice"
            seen.add(key)


def control_path(path: str | Path) -> Path:
    """The control socket that the file names, whatever else is wrong in it. Raises ConfigurationErrors."""
    return named_control_path(path, ControlConfig().path)


def load_configuration(path: str | Path) -> PpuConfig:
    """Read ppu-agent.toml. Raises daemon_kit.config_file.ConfigurationErrors with every error."""
    return load(path, PpuConfig)
