"""Keeps the overrides: the file, the timer, and what becomes of a wish for one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from daemon_kit.control import ControlError
from daemon_kit.files import open_regular, remove_unfinished, replace_file
from daemon_kit.logs import get_logger
from pool_user import OverrideAction, PoolOverride, PoolView, ServerAddress
from pydantic import ValidationError

from rspdns.audit import audit
from rspdns.overrides.book import (
    KEPT,
    LONGEST_S,
    MOST_CHARACTERS,
    MOST_OVERRIDES,
    ROUNDING,
    KeptOverrides,
    NameOf,
    Override,
    OverrideError,
    by_handle,
    contradicting,
    given,
    has_no_rest,
    is_identifier,
    known_servers,
    new_identifier,
    next_moment_s,
    outlook,
    places_of,
    site_meant,
)
from rspdns.status.model import OverrideStatus
from rspdns.status.override_words import utc
from rspdns.zones.sites import SiteConfig
from rspdns.zones.zone import Pool

FILE = "overrides.json"
_MOST_BYTES = 8 * 1024 * 1024
_LOOK_AGAIN_S = 30.0
"""The longest time between two looks at the clock, which may be set."""
_JUST_AFTER_S = 0.001


class OverridableBelief(Protocol):
    """The part of the belief that overrides need."""

    @property
    def views(self) -> Mapping[str, PoolView]:
        """Every pool by the last evaluation."""

    def set_overrides(self, overrides: Mapping[str, Sequence[PoolOverride]]) -> None:
        """Let these hold from now on, by pool handle."""


@dataclass(frozen=True, slots=True)
class Wish:
    """An override that somebody wants. `in_s` is when it begins, `for_s` how long it holds, in seconds.

    `everywhere`: it is set at other name servers, too. These get its identifier `id`, its times of the wall
    clock, `starts_at_s` and `ends_at_s`, and who wants it, `behalf`.
    """

    action: OverrideAction
    servers: str
    reason: str
    share: float | None = None
    pool: str | None = None
    in_s: float = 0.0
    for_s: float | None = None
    forced: bool = False
    everywhere: bool = False
    id: str | None = None
    starts_at_s: float | None = None
    ends_at_s: float | None = None
    behalf: str = ""

    def check(self) -> None:
        """Raise OverrideError if it can't be."""
        if not self.servers:
            raise OverrideError("an override names servers")
        if not self.reason.strip():
            raise OverrideError("an override needs a reason: --reason")
        if max(len(self.reason), len(self.servers)) > MOST_CHARACTERS:
            raise OverrideError(f"reason and servers are {MOST_CHARACTERS} characters at most")
        if not (self.reason + self.servers).isprintable():
            raise OverrideError("reason and servers are one line of printable characters")
        if (self.share is not None) != (self.action is OverrideAction.SHARE):
            raise OverrideError("a share belongs to the action share, and to no other")
        if self.share is not None and not 0 < self.share < 1:
            raise OverrideError("a share is above 0 % and below 100 %; drain gives no calls")
        if not 0 <= self.in_s <= LONGEST_S or not 0 <= (self.for_s or 0) <= LONGEST_S:
            raise OverrideError("an override begins within ten years, and holds for ten years at most")
        if self.for_s == 0:
            raise OverrideError("an override holds for longer than 0 s")
        if self.id is not None and not is_identifier(self.id):
            raise OverrideError("the identifier of an override has 16 hexadecimal digits")
        if len(self.behalf) > MOST_CHARACTERS or not self.behalf.isprintable():
            raise OverrideError(f"behalf is a line of {MOST_CHARACTERS} characters at most")

    def times_s(self, now_s: float) -> tuple[float, float | None]:
        """When it begins and ends. Raises OverrideError if that is out of reach, or over."""
        starts_at_s = now_s + self.in_s if self.starts_at_s is None else self.starts_at_s
        ends_at_s = None if self.for_s is None else starts_at_s + self.for_s
        ends_at_s = self.ends_at_s if self.ends_at_s is not None else ends_at_s
        if (
            not abs(starts_at_s - now_s) <= LONGEST_S
            or not abs((ends_at_s or now_s) - now_s) <= 2 * LONGEST_S
        ):
            raise OverrideError("an override begins within ten years, and holds for ten years at most")
        if ends_at_s is not None and ends_at_s <= now_s:
            raise OverrideError("its time is over: do the clocks of the name servers differ?")
        if ends_at_s is not None and ends_at_s <= starts_at_s:
            raise OverrideError("an override ends later than it begins")
        return starts_at_s, ends_at_s


WISH_KEYS: Mapping[str, type] = {
    "action": str,
    "servers": str,
    "reason": str,
    "share": float,
    "pool": str,
    "in_s": float,
    "for_s": float,
    "force": bool,
    "dry_run": bool,
    "everywhere": bool,
    "id": str,
    "starts_at_s": float,
    "ends_at_s": float,
    "behalf": str,
}
"""The keys of a wish, at the control socket and in the API, with the types of their values."""


CLEAR_KEYS: Mapping[str, type] = {"named": list, "all": bool, "everywhere": bool}
"""The keys of the control command `clear`."""


def read_wish(keys: Mapping[str, Any]) -> Wish:
    """Read a wish whose keys have the types of `WISH_KEYS`. Raises ControlError."""
    try:
        action = OverrideAction(keys.get("action") or "")
    except ValueError:
        raise ControlError(f"the action is one of {', '.join(OverrideAction)}") from None
    return Wish(
        action,
        (keys.get("servers") or "").strip(),
        keys.get("reason") or "",
        share=keys.get("share"),
        pool=keys.get("pool"),
        in_s=keys.get("in_s") or 0.0,
        for_s=keys.get("for_s"),
        forced=keys.get("force") is True,
        everywhere=keys.get("everywhere") is True,
        id=keys.get("id"),
        starts_at_s=keys.get("starts_at_s"),
        ends_at_s=keys.get("ends_at_s"),
        behalf=keys.get("behalf") or "",
    )


class Overrides:
    """The overrides of this name server. `look` has the belief evaluated; `pools` gives those served, `sites`
    those of the configuration."""

    def __init__(
        self,
        folder: str | Path,
        belief: OverridableBelief,
        pools: Callable[[], Sequence[Pool]],
        name_of: NameOf,
        look: Callable[[], None],
        *,
        sites: Callable[[], Sequence[SiteConfig]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.all: tuple[Override, ...] = ()
        self._last_number = 0
        self.problem = ""
        """Why the file of before can't be used, or could not be written."""
        self.held_back: dict[int, str] = {}
        """By number, why an override does not hold although its time has come."""
        self._path = Path(folder) / FILE
        self._belief = belief
        self._pools = pools
        self._name_of = name_of
        self._look = look
        self._sites = sites
        self._clock = clock
        self._held: frozenset[int] = frozenset()
        """The numbers of those that hold now."""
        self._holding: Mapping[str, Sequence[PoolOverride]] = {}
        """Those that hold now, by pool handle."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = get_logger("overrides")

    # Beginning and end

    def load(self) -> None:
        """Take those of before the restart, before anything is answered. A file that can't be read is put
        aside and told: answers without overrides are better than none."""
        remove_unfinished(self._path)
        try:
            with open_regular(self._path) as file:
                text = file.read(_MOST_BYTES)
            kept = KEPT.validate_json(text)
            self.all, self._last_number = kept.overrides, kept.last_number
            for override in self.all:
                override.meant  # noqa: B018 - raises ValueError where it names no servers
        except FileNotFoundError:
            pass
        except (OSError, ValidationError, ValueError) as error:
            self.all = ()
            self._put_aside(error)
        self._end_those_over()
        self._apply()

    def _put_aside(self, error: Exception) -> None:
        aside = self._path.with_name(f"{FILE}.unreadable-{int(self._clock())}")
        words = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}"
        self.problem = f"{self._path} can't be read ({words}): no override of before holds"
        try:
            self._path.replace(aside)
            self.problem += f"; the file is kept as {aside.name}"
        except OSError:
            pass
        self._log.error("overrides_unreadable", problem=self.problem)

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def zones_changed(self) -> None:
        """The pools are others: what holds in each is found anew."""
        self._apply()

    def members_changed(self) -> None:
        """An override that was held back may hold now."""
        if self.held_back:
            before = self._held
            self._apply()
            if self._held != before:
                self._look()

    # Wishes

    async def set(self, wish: Wish, by: str, *, is_dry: bool = False) -> dict[str, Any]:
        """Set an override; return it, with the shares that result by pool. `by` is who wants it.

        `is_dry`: only return them. Raises ControlError, and nothing changes, if it can't be: nobody is named,
        another override names the same servers at that time, a pool would lose its last member (unless the
        wish is forced), or the file can't be written.
        """
        async with self._writing:
            now_s = self._clock()
            try:
                wish.check()
                repeated = self._repeated(wish, now_s)
                if repeated is not None:
                    return await self._shared(repeated, wish, by, now_s, is_dry=is_dry)
                wanted = self._made(wish, by, now_s)
                if not wish.forced:
                    self._check_last_members(wanted, now_s)
            except OverrideError as error:
                raise ControlError(str(error)) from None
            begins_s = max(now_s, wanted.starts_at_s)
            result = {
                "override": _dumped(wanted),
                "pools": self._outlook(wanted, begins_s),
                "notes": self._notes(wanted, begins_s),
                "is_repeat": False,
            }
            if is_dry:
                return result
            await self._replace((*self._lasting(now_s), wanted))
            audit(wanted.by, "override", wanted.audited, after=wanted.words)
            return result

    def _repeated(self, wish: Wish, now_s: float) -> Override | None:
        """The override that a wish for several name servers repeats: it is alike, and holds at a time of the
        wish. Raises OverrideError if another one has its identifier."""
        if wish.id is None and not wish.everywhere:
            return None
        starts_at_s, ends_at_s = wish.times_s(now_s)
        for each in self._lasting(now_s):
            is_alike = (each.action, each.servers, each.share, each.pool) == (
                *(wish.action, wish.servers, wish.share, wish.pool),
            )
            if wish.id is not None and each.id == wish.id and not is_alike:
                raise OverrideError(f"override {each.number} ({each.title}) has this identifier already")
            is_then = each.overlaps_time(starts_at_s, ends_at_s)
            is_same = wish.id is not None and each.id == wish.id
            if is_alike and (is_same or (is_then and None in (wish.id, each.id))):
                return each
        return None

    async def _shared(
        self, override: Override, wish: Wish, by: str, now_s: float, *, is_dry: bool
    ) -> dict[str, Any]:
        """Let all name servers know the override of before by the wish's identifier, or by a new one.

        Its times stay: a server under maintenance must not come back because another name server knows less.
        """
        if override.id is None and not is_dry:
            shared = replace(override, id=wish.id or new_identifier())
            kept = [shared if each is override else each for each in self._lasting(now_s)]
            await self._replace(kept)
            by = f"{wish.behalf} ({by})" if wish.behalf else by
            audit(by, "override", shared.audited, before=override.words, after=shared.words)
            override = shared
        return {"override": _dumped(override), "pools": {}, "notes": [], "is_repeat": True}

    def _made(self, wish: Wish, by: str, now_s: float) -> Override:
        concerned = [
            pool
            for pool in self._pools()
            if wish.pool is None or wish.pool == pool.owner or wish.pool in pool.config.shards
        ]
        if not concerned:
            raise OverrideError(f"no pool has SRV records or a handle of the name {wish.pool!r}")
        if len(self.all) >= MOST_OVERRIDES:
            raise OverrideError(f"there are {MOST_OVERRIDES} overrides already: clear some")
        handles = dict.fromkeys(handle for pool in concerned for handle in pool.config.shards)
        known = tuple(known_servers(self._belief.views, handles, self._name_of))
        starts_at_s, ends_at_s = wish.times_s(now_s)
        site = site_meant(wish.servers, self._sites())
        wanted = Override(
            number=self._last_number + 1,
            action=wish.action,
            servers=wish.servers,
            reason=wish.reason.strip(),
            by=f"{wish.behalf} ({by})" if wish.behalf else by,
            set_at_s=now_s,
            starts_at_s=starts_at_s,
            ends_at_s=ends_at_s,
            share=wish.share,
            pool=wish.pool,
            places=places_of(wish.servers, known) if site is None else (),
            networks=() if site is None else tuple(map(str, site.networks)),
            handlespace="" if site is None else site.handlespace or "",
            forced=wish.forced,
            has_begun=starts_at_s <= now_s,
            id=wish.id or (new_identifier() if wish.everywhere else None),
        )
        self._check(wanted, is_of_peer=wish.id is not None)
        return wanted

    def _check(self, wanted: Override, *, is_of_peer: bool) -> None:
        """Raise OverrideError if it contradicts another override. `is_of_peer`: another name server asks, to
        whose user the numbers of this one mean nothing."""
        concerned = [pool for pool in self._pools() if wanted.concerns(pool)]
        handles = dict.fromkeys(handle for pool in concerned for handle in pool.config.shards)
        others = [
            other
            for other in self.all
            if other.number != wanted.number and any(map(other.concerns, concerned))
        ]
        known = tuple(known_servers(self._belief.views, handles, self._name_of))
        other = contradicting(wanted, others, known)
        if other is not None:
            if is_of_peer:
                raise OverrideError(
                    f"an override of that name server ({other.title}, {other.words}) names some of these "
                    "servers, too: clear it there first"
                )
            raise OverrideError(
                f"override {other.number} ({other.title}) names some of these servers, too: clear it first, "
                f"rspdns override clear {other.number}{' --everywhere' if other.id is not None else ''}"
            )
        self._check_shares(wanted, [other for other in others if wanted.overlaps(other)])

    def _check_shares(self, wanted: Override, others: Sequence[Override]) -> None:
        """Raise OverrideError if a pool's servers would have more than all calls at a time of `wanted`."""
        if wanted.share is None:
            return
        moments = _moments(wanted, others)
        for pool, moment_s in itertools.product(filter(wanted.concerns, self._pools()), moments):
            held = [each for each in (*others, wanted) if each.holds(moment_s) and each.concerns(pool)]
            part = given(pool, self._belief.views, [each.in_pool for each in held], time.monotonic())
            if part > 1 + ROUNDING:
                giving = ", ".join(f"{each.number} ({each.title})" for each in held if each.share is not None)
                raise OverrideError(
                    f"the shares of {pool.owner} would come to {100 * part:g} %: overrides {giving}"
                )

    def _check_last_members(self, wanted: Override, now_s: float) -> None:
        """Raise OverrideError if a pool would lose its last member at a time of `wanted`, with the servers of
        now."""
        for moment_s in _moments(wanted, [other for other in self.all if wanted.overlaps(other)]):
            emptied = self._emptied(wanted, max(now_s, moment_s))
            if emptied:
                when = f" at {utc(moment_s)}" if moment_s > now_s else ""
                raise OverrideError(
                    f"{', '.join(emptied)} would lose its last member{when}; with --force it is done all "
                    "the same"
                )

    def _notes(self, wanted: Override, moment_s: float) -> list[str]:
        """The things that the person who wants it may not expect, in words."""
        held = (*self._held_at(moment_s), wanted)
        return [
            f"{pool.owner}: every server has a share, so that each gets more than its share"
            for pool in self._pools()
            if wanted.share is not None
            and wanted.concerns(pool)
            and has_no_rest(
                pool,
                self._belief.views,
                [each.in_pool for each in held if each.concerns(pool)],
                time.monotonic(),
            )
        ]

    def _held_at(self, moment_s: float) -> list[Override]:
        return [each for each in self.all if each.holds(moment_s) and each.number not in self.held_back]

    def _outlook(self, wanted: Override, moment_s: float) -> dict[str, list[dict[str, Any]]]:
        """The shares before and after, by the owner name of each pool that the override is about, under the
        overrides of that moment and with the servers of now."""
        pools = [pool for pool in self._pools() if wanted.concerns(pool)]
        held = [each for each in self._held_at(moment_s) if each.number != wanted.number]
        result = {}
        for pool in pools:
            before, after = (
                [override.in_pool for override in overrides if override.concerns(pool)]
                for overrides in (held, (*held, wanted))
            )
            shares = outlook(pool, self._belief.views, before, after, time.monotonic(), self._name_of)
            if any(share.before != share.after for share in shares):
                result[pool.owner] = [asdict(share) for share in shares]
        return result

    async def clear(self, named: Sequence[str], by: str) -> list[Override]:
        """Clear these overrides, by number or identifier, all if none is named; return them.

        Raises ControlError. An identifier that no override has is no error: it may be cleared already.
        """
        async with self._writing:
            now_s = self._clock()
            lasting = self._lasting(now_s)
            numbers = {str(each.number) for each in lasting}
            unknown = [word[:40] for word in named if word not in numbers and not is_identifier(word)]
            if unknown:
                raise ControlError(f"no override has the number {', '.join(unknown)}: rspdns override list")
            gone = [each for each in lasting if not named or str(each.number) in named or each.id in named]
            if gone:
                await self._replace([each for each in lasting if each not in gone])
            for override in gone:
                audit(by, "override cleared", override.audited, before=override.words)
            return gone

    def _lasting(self, now_s: float) -> list[Override]:
        return [override for override in self.all if not override.is_over(now_s)]

    async def _replace(self, overrides: Sequence[Override]) -> None:
        """Keep these from now on: on the disk first."""
        self._last_number = await self._write(overrides)
        self.all, self.problem = tuple(overrides), ""
        self._apply()
        self._look()

    async def _write(self, overrides: Sequence[Override]) -> int:
        """Write the file; return the last number in it. Raises ControlError."""
        last_number = max(self._last_number, *(override.number for override in overrides), 0)
        data = KEPT.dump_json(KeptOverrides(last_number, tuple(overrides)), indent=1)
        if len(data) > _MOST_BYTES:
            raise ControlError(f"{self._path} would be longer than {_MOST_BYTES} bytes: clear some")
        try:
            await asyncio.to_thread(replace_file, self._path, data)
        except OSError as error:
            raise ControlError(
                f"{self._path} can't be written, and nothing was changed: {error.strerror or error}"
            ) from None
        return last_number

    # The overrides that hold

    def statuses(self) -> list[OverrideStatus]:
        """The overrides that hold or will, for status and API."""
        now_s = self._clock()
        return [
            OverrideStatus(
                number=each.number,
                action=each.action,
                servers=each.servers,
                pool=each.pool,
                share=each.share,
                reason=each.reason,
                by=each.by,
                set_at_s=each.set_at_s,
                starts_at_s=each.starts_at_s,
                ends_at_s=each.ends_at_s,
                holds=each.holds(now_s) and each.number not in self.held_back,
                problem=self.held_back.get(each.number),
                id=each.id,
            )
            for each in self._lasting(now_s)
        ]

    def deciding(self, handle: str, place: ServerAddress) -> int | None:
        """The number of the override that decides about a server of a pool; None if there is none."""
        holding, handlespace = self._holding.get(handle, ()), handle.partition("/")[0]
        return next((each.number for each in holding if each.servers.has(place, handlespace)), None)

    def _apply(self) -> None:
        """Have the belief take those that hold now, and come back when that changes."""
        now_s = self._clock()
        before, self.held_back = self.held_back, {}
        begun: set[int] = set()
        holding = [override for override in self.all if override.holds(now_s)]
        for override in holding:
            if not override.has_begun:
                why = self._why_held_back(override, now_s)
                if why is None:
                    begun.add(override.number)
                else:
                    self.held_back[override.number] = why
        for number in self.held_back.keys() - before.keys():
            self._log.error("override_held_back", number=number, problem=self.held_back[number])
        if begun:
            self.all = tuple(
                replace(each, has_begun=True) if each.number in begun else each for each in self.all
            )
            self._write_soon()
        holding = [override for override in self.all if override.holds(now_s)]
        holding = [override for override in holding if override.number not in self.held_back]
        self._held = frozenset(override.number for override in holding)
        self._holding = by_handle(self._pools(), holding)
        self._belief.set_overrides(self._holding)
        self._set_timer(now_s)

    def _why_held_back(self, override: Override, now_s: float) -> str | None:
        """The reason for which an override does not begin yet. None: it does."""
        if override.forced:
            return None
        pools = [pool for pool in self._pools() if override.concerns(pool)]
        views = [self._belief.views.get(handle) for pool in pools for handle in pool.config.shards]
        if any(view is None or not view.known for view in views):
            return "its pool is not known yet"
        emptied = self._emptied(override, now_s)
        return f"{', '.join(emptied)} would lose its last member" if emptied else None

    def _write_soon(self) -> None:
        """Keep which overrides have begun. If that fails, they are looked at again after a restart."""

        async def write() -> None:
            async with self._writing:
                with contextlib.suppress(ControlError):
                    await self._write(self.all)

        with contextlib.suppress(RuntimeError):  # at the start no loop runs: the next change writes it
            task = asyncio.get_running_loop().create_task(write())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _emptied(self, override: Override, now_s: float) -> list[str]:
        pools = self._outlook(override, now_s)
        return [owner for owner, shares in pools.items() if _is_emptied(shares)]

    def _set_timer(self, now_s: float) -> None:
        self.close()
        moment_s = next_moment_s(self.all, now_s)
        if moment_s is None:
            return
        wait_s = min(moment_s - now_s + _JUST_AFTER_S, _LOOK_AGAIN_S)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._at_moment)

    def _at_moment(self) -> None:
        self._end_those_over()
        self._apply()
        self._look()

    def _end_those_over(self) -> None:
        now_s = self._clock()
        for override in [each for each in self.all if each.is_over(now_s)]:
            self._log.info("override_ended", number=override.number, id=override.id, override=override.title)
        self.all = tuple(self._lasting(now_s))  # the file lists them until the next change


def _dumped(override: Override) -> dict[str, Any]:
    dumped: dict[str, Any] = KEPT.dump_python(KeptOverrides(0, (override,)), mode="json")["overrides"][0]
    return dumped


def _moments(wanted: Override, others: Sequence[Override]) -> list[float]:
    """The times at which something begins while `wanted` holds; all `others` overlap it."""
    return sorted({max(wanted.starts_at_s, other.starts_at_s) for other in (wanted, *others)})


def _is_emptied(shares: Sequence[Mapping[str, Any]]) -> bool:
    return any(each["before"] is not None for each in shares) and all(
        each["after"] is None for each in shares
    )
