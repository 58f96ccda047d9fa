"""The result of every reader: pools, their servers, fixed records, and everything that was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Literal

Address = IPv4Address | IPv6Address
PolicyName = Literal["round-robin", "weighted-random", "priority"]
CheckKeys = Mapping[str, object]
"""One [[as.check]] of agent.toml, key by key."""

MOST_ADDRESSES: Final = 16
"""The most that `max_addresses` of a pool may be."""
_SERVICES: Final = {
    25: "smtp",
    80: "http",
    143: "imap",
    389: "ldap",
    443: "https",
    587: "submission",
    636: "ldaps",
    993: "imaps",
    3306: "mysql",
    3868: "diameter",
    5060: "sip",
    5061: "sips",
    5222: "xmpp-client",
    5269: "xmpp-server",
    5432: "postgresql",
}
"""The services of IANA's registry (RFC 6335) that stand behind DNS most often."""


class ImportProblem(Exception):  # noqa: N818 - reads as what it is
    """The source can't be read; the message says where and why."""


@dataclass(frozen=True)
class FileLine:
    """The position of something: a file, and its line (0: of the whole file)."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Note:
    """Something that was not carried over (`is_lost`), or that is different here."""

    found_at: FileLine
    what: str
    why: str
    is_lost: bool = True

    def __str__(self) -> str:
        return f"{self.found_at}: {self.what}: {self.why}"


class NotCarried(Exception):  # noqa: N818 - reads as what it is
    """There is no counterpart; the message says for what."""

    def __init__(self, why: str, found_at: FileLine | None = None) -> None:
        super().__init__(why)
        self.found_at = found_at


@dataclass(frozen=True)
class ImportedServer:
    """One server of a pool; `checks` are what decides whether it is in."""

    name: str
    address: Address
    port: int
    checks: tuple[CheckKeys, ...]
    weight: int | None = None
    priority: int | None = None


@dataclass(frozen=True)
class ImportedPool:
    """The servers at one name. `name` is relative to the zone, "@" for its apex.

    `fallback`: who is answered while nobody lives, as fixed records; nobody: no addresses then.
    """

    found_at: FileLine
    name: str
    service: str
    policy: PolicyName
    servers: tuple[ImportedServer, ...]
    max_addresses: int
    fallback: tuple[Address, ...]


@dataclass
class Import:
    """One zone: pools, and lines of a master file for all that is fixed."""

    zone: str
    pools: list[ImportedPool] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def lost(self, found_at: FileLine, what: str, why: str) -> None:
        """Note that something was not carried over."""
        self.notes.append(Note(found_at, what, why))

    def lose_directives(self, directives: Iterable[tuple[FileLine, str]]) -> None:
        """Note the directives of a zone file that have no counterpart."""
        for found_at, what in directives:
            self.lost(found_at, what, "this directive has no counterpart")

    def differs(self, found_at: FileLine, what: str, why: str) -> None:
        """Note that something was carried over and is not quite the same."""
        self.notes.append(Note(found_at, what, why, is_lost=False))


@dataclass(frozen=True)
class Wishes:
    """The user's facts about servers of which the source says too little; None: nothing, they are left out.

    `port`: at which they serve. `check`: connect to their port over TCP where no check is named.
    """

    port: int | None = None
    check: Literal["tcp"] | None = None

    @property
    def checks(self) -> tuple[CheckKeys, ...]:
        """The checks of a server without any."""
        return () if self.check is None else ({"type": self.check},)


def service_of(port: int) -> str:
    """Return the service of a TCP port for SRV records: its registered name, or `_port8080._tcp`."""
    return f"_{_SERVICES.get(port, f'port{port}')}._tcp"


def as_name(text: str) -> str:
    """Return a text as a name of agent.toml may be written."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).strip(".-_")[:40] or "server"


def shown_addresses(servers: Sequence[ImportedServer], wanted: int | None = None) -> int:
    """Return `max_addresses` for servers of which `wanted` (None: all) are answered at once."""
    most = max(sum(server.address.version == version for server in servers) for version in (4, 6))
    return max(1, min(MOST_ADDRESSES, most if wanted is None else wanted))
