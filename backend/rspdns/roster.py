"""Which servers should be in each pool: those that were in lately, kept across restarts, and those missing.

`Roster` and `missing()` are pure; `RosterKeeper` keeps the roster in the state directory.

A server is known by its address and port: after a restart its PE identifier may be another one. The servers
that the zones `expect` are not kept here; `missing()` brings both together.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import orjson
from daemon_kit.addresses import endpoint
from daemon_kit.files import open_regular, remove_unfinished, replace_file
from daemon_kit.finding import Finding
from daemon_kit.logs import get_logger
from pool_user import BeliefEvent, Cause, Code, Member, accepted
from pydantic import TypeAdapter

from rspdns.zones.configuration import PoolConfig
from rspdns.zones.zone import Zone

FORMAT, FORMER_FORMAT = "rspdns-roster-2", "rspdns-roster-1"
FORGOTTEN_AFTER_S = 86_400.0
"""How long a server that is out is missed, unless the pool has an `expect`."""
MAX_ABSENT = 1000
"""Servers of one handle that are remembered while they are out: strangers may let any number come and go."""
FILE_NAME = "roster.json"
MAX_BYTES = 64 * 1024 * 1024
AT_MOST_EVERY_S = 2.0
AT_LEAST_EVERY_S = 60.0
"""Time after which the file is written although nothing changed. So exactly it says, after a crash, until
when a server was in."""
_GONE, _CAUSE = Cause(Code.GONE), TypeAdapter(Cause)
TransportAddress = tuple[IPv4Address | IPv6Address, int]


@dataclass(slots=True)
class Seen:
    """A server that was in. `left_s` (wall clock) is when it left; None while it is in."""

    address: str
    port: int
    identifier: int
    left_s: float | None = None
    cause: Cause = _GONE
    """Why it left, with the finding of the backend's own probe afterwards."""

    @property
    def transport_address(self) -> TransportAddress:
        """Address and port."""
        return ip_address(self.address), self.port


@dataclass(frozen=True, slots=True)
class Missing:
    """The servers that a pool lacks.

    `expected` is how many servers should be in. `seen` are the missing ones that were in once, with their
    handles; `never` are those that `expect` names and that were never seen; `unknown` is how many more are
    missing of which nothing is known.
    """

    expected: int
    seen: tuple[tuple[str, Seen], ...] = ()
    never: tuple[TransportAddress, ...] = ()
    unknown: int = 0

    @property
    def count(self) -> int:
        """How many servers are missing."""
        return len(self.seen) + len(self.never) + self.unknown


@dataclass(slots=True)
class Roster:
    """Every server that was in, by pool handle and transport address; told of each that joins and leaves."""

    present: dict[str, dict[TransportAddress, Seen]] = field(default_factory=dict)
    absent: dict[str, dict[TransportAddress, Seen]] = field(default_factory=dict)
    """By handle the servers that are out, in the order in which they left."""

    def joined(self, handle: str, member: Member) -> None:
        """A member came in."""
        at = transport_address_of(member)
        self.absent.get(handle, {}).pop(at, None)
        seen = Seen(str(at[0]), at[1], member.identifier)
        self.present.setdefault(handle, {})[at] = seen

    def left(self, handle: str, member: Member, cause: Cause, at_s: float) -> None:
        """A member went out at `at_s` (wall clock)."""
        at = transport_address_of(member)
        self.present.get(handle, {}).pop(at, None)
        self._note_absent(handle, at, Seen(str(at[0]), at[1], member.identifier, at_s, cause))

    def is_absent(self, handle: str, member: Member) -> bool:
        """Whether the server is remembered as out."""
        return transport_address_of(member) in self.absent.get(handle, {})

    def examined(self, handle: str, member: Member, finding: Finding) -> None:
        """The backend's own probe looked at a member that had left."""
        seen = self.absent.get(handle, {}).get(transport_address_of(member))
        if seen is not None:
            seen.cause = replace(seen.cause, finding=finding)

    def forget(self, wanted: Callable[[str, Seen], bool]) -> list[tuple[str, Seen]]:
        """Forget every server that is out and `wanted(handle, seen)`; return them."""
        gone = [
            (handle, one)
            for handle, absent in self.absent.items()
            for one in absent.values()
            if wanted(handle, one)
        ]
        for handle, one in gone:
            del self.absent[handle][one.transport_address]
        return gone

    def keep(self, handles: Collection[str]) -> None:
        """Forget all pools but these."""
        for seen in (self.present, self.absent):
            for handle in seen.keys() - set(handles):
                del seen[handle]

    def encode(self, at_s: float) -> bytes:
        """Return it as JSON; `at_s` is the wall clock."""
        pools = {
            handle: [*self.absent.get(handle, {}).values(), *self.present.get(handle, {}).values()]
            for handle in self.present.keys() | self.absent.keys()
        }
        return orjson.dumps({"format": FORMAT, "written_at_s": at_s, "pools": pools})

    @classmethod
    def decode(cls, data: bytes) -> Roster:
        """Read what `encode()` made. A server that was in then counts as having left at that moment, until it
        is in again. Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
        content = orjson.loads(data)
        if content["format"] not in (FORMAT, FORMER_FORMAT):
            raise ValueError(f"its format is {content['format']!r}, this version reads {FORMAT!r}")
        roster, written_at_s = cls(), float(content["written_at_s"])
        for handle, of_handle in content["pools"].items():
            for values in of_handle:
                one = Seen(
                    str(values["address"]),
                    int(values["port"]),
                    int(values["identifier"]),
                    written_at_s if values["left_s"] is None else float(values["left_s"]),
                    Cause(Code.WHILE_STOPPED) if values["left_s"] is None else _cause(values),
                )
                roster._note_absent(handle, one.transport_address, one)
        return roster

    def _note_absent(self, handle: str, at: TransportAddress, seen: Seen) -> None:
        absent = self.absent.setdefault(handle, {})
        absent.pop(at, None)
        absent[at] = seen
        while len(absent) > MAX_ABSENT:
            del absent[next(iter(absent))]


def _cause(values: Mapping[str, object]) -> Cause:
    """The cause as it was written; a former version wrote sentences."""
    return _CAUSE.validate_python(values["cause"]) if "cause" in values else _GONE


def transport_address_of(member: Member) -> TransportAddress:
    """The address and port by which a server is known: the first address of a multihomed one."""
    return member.addresses[0], member.port


def missing(
    pool: PoolConfig,
    members: Sequence[Member],
    remembered: Mapping[str, Mapping[TransportAddress, Seen]],
    at_s: float,
) -> Missing:
    """The servers that the pool lacks at `at_s` (wall clock): `members` are in, `remembered` are the
    roster's absent."""
    present = {(address, member.port) for member in members for address in member.addresses}
    absent = [
        (handle, one)
        for handle in pool.shards
        for at, one in remembered.get(handle, {}).items()
        if at not in present and accepted([at[0]], pool.accept)
    ]
    if pool.expect is None:
        kept = [item for item in absent if at_s - (item[1].left_s or 0.0) < FORGOTTEN_AFTER_S]
        return Missing(len(members) + len(kept), tuple(kept))
    if isinstance(pool.expect, int):
        lacking = max(0, pool.expect - len(members))
        latest = sorted(absent, key=lambda item: item[1].left_s or 0.0, reverse=True)[:lacking]
        return Missing(pool.expect, tuple(latest), unknown=lacking - len(latest))
    expected = [(one.address, one.port) for one in pool.expect]
    lacked = {at for at in expected if at not in present}
    known = [item for item in absent if item[1].transport_address in lacked]
    found = {one.transport_address for _, one in known}
    never = tuple(at for at in expected if at in lacked and at not in found)
    return Missing(len(expected), tuple(known), never)


def is_called(wanted: Collection[str], one: Seen, name: str | None) -> bool:
    """Whether one of the words `wanted` is about this server: its name, address, address and port, or its
    PE identifier."""
    where = endpoint(one.address, one.port)
    return not {name, one.address, where, f"{one.identifier:08x}"}.isdisjoint(wanted)


def names_by_handle(pools: Sequence[PoolConfig]) -> dict[str, dict[TransportAddress, str]]:
    """The servers' names for people, by pool handle, then address and port."""
    found: dict[str, dict[TransportAddress, str]] = {}
    for pool in pools:
        for handle in pool.shards:
            found.setdefault(handle, {}).update(pool.names)
    return found


class RosterKeeper:
    """The roster of one backend. Trouble with its file is a warning: nothing but the memory depends on it."""

    def __init__(self, directory: str | Path, zones: Iterable[Zone]) -> None:
        self.roster = Roster()
        self.problem: str | None = None
        """Why the file could not be read or written, for status; None if all is well."""
        self._path = Path(directory) / FILE_NAME
        self._names: dict[str, dict[TransportAddress, str]] = {}
        self._news = asyncio.Event()
        self._log = get_logger("roster")
        self.set_zones(zones)

    def set_zones(self, zones: Iterable[Zone]) -> None:
        """Take the pools and names of these zones. Handles that none of them has are forgotten."""
        pools = [pool.config for zone in zones for site in zone.sites for pool in site.pools]
        self._names = names_by_handle(pools)
        self.roster.keep(self._names)

    def load(self) -> None:
        """Read the file."""
        remove_unfinished(self._path)
        try:
            with open_regular(self._path) as file:
                data = file.read(MAX_BYTES + 1)
            self.roster = Roster.decode(data)
        except FileNotFoundError:
            return
        except OSError as problem:
            self.problem = f"{self._path}: cannot be read: {problem.strerror}"
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            words = "not used, since it is damaged: who was in before the restart is not known"
            self.problem = f"{self._path}: {words} ({problem})"
        if self.problem is not None:
            self._log.warning("roster_not_read", problem=self.problem)
        self.roster.keep(self._names)

    def happened(self, events: Sequence[BeliefEvent]) -> None:
        """Note who came and went."""
        at_s = time.time()
        for event in events:
            if event.member is None:
                continue
            if event.kind == "joined":
                self.roster.joined(event.handle, event.member)
            elif event.kind == "left":
                self.roster.left(event.handle, event.member, event.cause, at_s)
            self._news.set()

    def examined(self, handle: str, member: Member, finding: Finding) -> None:
        """See `Roster.examined()`."""
        self.roster.examined(handle, member, finding)
        self._news.set()

    def name_of(self, handle: str, member: Member) -> str | None:
        """A member's name for people; None when `expect` does not name it."""
        return self.name_at(handle, transport_address_of(member))

    def name_at(self, handle: str, at: TransportAddress) -> str | None:
        """The name for people of the server at an address and port."""
        return self._names.get(handle, {}).get(at)

    def forget(self, wanted: Sequence[str], handles: Sequence[str], *, everybody: bool) -> list[str]:
        """Forget the missing servers that are `wanted`, or all, under these handles; return them in words.

        Those that `expect` names stay: they are missing until they are taken out there.
        """

        def is_wanted(handle: str, one: Seen) -> bool:
            if handle not in handles or self.name_at(handle, one.transport_address) is not None:
                return False
            return everybody or is_called(wanted, one, None)

        gone = self.roster.forget(is_wanted)
        self._news.set()
        return [f"{one.address} port {one.port} of {handle}" for handle, one in gone]

    def expected(self, wanted: Sequence[str], handles: Sequence[str]) -> list[str]:
        """The names of those `wanted` that `expect` names under these handles."""
        found = {
            name
            for handle in handles
            for at, name in self._names.get(handle, {}).items()
            if is_called(wanted, self._seen(handle, at), name)
        }
        return sorted(found)

    def _seen(self, handle: str, at: TransportAddress) -> Seen:
        """The roster's facts of a server that is out; of one never seen, its address and port."""
        return self.roster.absent.get(handle, {}).get(at) or Seen(str(at[0]), at[1], 0)

    async def run(self) -> None:
        """Write the file after changes, and now and then; until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AT_LEAST_EVERY_S):
                    await self._news.wait()
            self._news.clear()
            data = self._encoded()
            await asyncio.to_thread(self._write, data)
            await asyncio.sleep(AT_MOST_EVERY_S)

    def save_now(self) -> None:
        """Write the file."""
        self._write(self._encoded())

    def _encoded(self) -> bytes:
        return self.roster.encode(time.time())

    def _write(self, data: bytes) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, data)
        except OSError as problem:
            after = "after a restart it is not known who is missing"
            words = f"{self._path}: cannot be written: {problem.strerror}; {after}"
            if words != self.problem:
                self._log.warning("roster_not_saved", problem=words)
            self.problem = words
        else:
            self.problem = None
