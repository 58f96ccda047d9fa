"""The options rspregistrar is started with. Pure: settings in, argument list out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import MappingProxyType
from typing import Final

from rserpool import asap, enrp, group_problem

ASAP_PORT: Final = asap.PORT
ENRP_PORT: Final = enrp.PORT
ANNOUNCE_GROUP: Final = "239.0.0.50:3863"
"""The group at which agents listen for announcements by default."""

KEEP_ALIVE: Final = "endpointkeepalivetransmissioninterval"
# The purpose of each timer stands in docs/reference/registrar-timers.md. Values in ms.
TIMERS_MS: Final[Mapping[str, int]] = MappingProxyType(
    {
        KEEP_ALIVE: 300,
        "endpointkeepalivetimeoutinterval": 500,
        "peerheartbeatcycle": 1000,
        "peermaxtimelastheard": 1000,
        "peermaxtimenoresponse": 1000,
        "mentordiscoverytimeout": 1000,
        "takeoverexpiryinterval": 1000,
    }
)

_GIVING_UP: Final = frozenset(
    {
        "endpointkeepalivetimeoutinterval",
        "peermaxtimelastheard",
        "peermaxtimenoresponse",
        "takeoverexpiryinterval",
    }
)
MOST_PATIENCE: Final = 100.0
NO_REPORTS: Final = 2**32 - 1
"""Reports after which rspregistrar removes a pool element: as many as it can count."""

IPAddress = IPv4Address | IPv6Address


def patient_timers_ms(patience: float) -> Mapping[str, int]:
    """Return the timers with those after which somebody is given up `patience` (1 to 100) times as long."""
    return {name: round(ms * patience) if name in _GIVING_UP else ms for name, ms in TIMERS_MS.items()}


@dataclass(frozen=True)
class SctpEndpoint:
    """An address and an SCTP port."""

    address: IPAddress
    port: int

    @classmethod
    def parse(cls, text: str, default_port: int) -> "SctpEndpoint":
        """Read "10.0.0.1", "10.0.0.1:3863", "::1" or "[::1]:3863". Raises ValueError saying what is wrong."""
        host, port = text, ""
        if text.startswith("["):
            host, _, port = text[1:].partition("]")
            port = port.removeprefix(":")
        elif text.count(":") == 1:
            host, _, port = text.partition(":")
        try:
            address = ip_address(host)
        except ValueError:
            raise ValueError(
                f"{text!r} is not ADDRESS or ADDRESS:PORT, e.g. 10.0.0.1:{default_port}"
            ) from None
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{text!r}: {port!r} is not a port (1 to 65535)")
        return cls(address, int(port) if port else default_port)

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}"


def without_own(endpoints: Iterable[SctpEndpoint], own: SctpEndpoint) -> tuple[SctpEndpoint, ...]:
    """Return `endpoints` without `own`: all registrars can be given the same list of peers."""
    return tuple(endpoint for endpoint in endpoints if endpoint != own)


def parse_group(text: str) -> SctpEndpoint:
    """Read a multicast group as "239.0.0.50", "239.0.0.50:3863" or "[ff05::50]:3863".

    Raises ValueError saying what is wrong.
    """
    group = SctpEndpoint.parse(text, ASAP_PORT)
    if problem := group_problem(group.address):
        raise ValueError(f"{text!r}: {problem}")
    return group


def announce_problem(group: SctpEndpoint, registrar: IPAddress) -> str:
    """Return why a registrar at this address can't announce itself to the group; "" if it can."""
    if group.address.version == registrar.version:
        return ""
    return f"{group} is of another address family than the registrar's {registrar}, which it is to announce"


@dataclass(frozen=True)
class RegistrarSettings:
    """One registrar: where it serves agents and backends (ASAP) and its peers (ENRP), and who these are."""

    asap: SctpEndpoint
    enrp: SctpEndpoint
    peers: tuple[SctpEndpoint, ...] = ()
    timers_ms: Mapping[str, int] = field(default_factory=lambda: TIMERS_MS)
    announce: SctpEndpoint | None = None
    """The multicast group to which it announces itself, for agents that have no list of registrars."""
    takes_reports: bool = False
    """Whether three reports of "endpoint unreachable" remove a pool element. Anybody can send them, so the
    gate has to say who may."""
    log_level: int = 3
    """0 (nothing) to 9; 3 tells when it is ready."""


def arguments(settings: RegistrarSettings, program: str = "rspregistrar") -> list[str]:
    """Return the command line of rspregistrar.

    It holds no identifier: a registrar that comes back under its old one makes its peers purge the pool
    elements it owned. The peers do not look for each other by multicast: they are given.
    """
    endpoints = (settings.asap, settings.enrp, *settings.peers)
    return [
        program,
        f"-asap={settings.asap}",
        f"-enrp={settings.enrp}",
        f"-asapannounce={settings.announce or 'off'}",
        "-enrpannounce=off",
        *(f"-peer={peer}" for peer in settings.peers),
        *(f"-{name}={value}" for name, value in settings.timers_ms.items()),
        *([] if settings.takes_reports else [f"-maxbadpereports={NO_REPORTS}"]),
        *(["-disable-ipv6"] if all(endpoint.address.version == 4 for endpoint in endpoints) else []),
        "-quiet",
        "-logcolor=off",
        f"-loglevel={settings.log_level}",
    ]
