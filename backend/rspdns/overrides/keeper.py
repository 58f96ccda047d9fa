"""Keeps the overrides: the file, the timer, and what becomes of a wish for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from daemon_kit.control import ControlError
from daemon_kit.files import open_regular, remove_unfinished, replace_file
from daemon_kit.logs import get_logger
from pool_user import OverrideAction, PoolOverride, PoolView, ServerAddress
from pydantic import ValidationError

from rspdns.audit import audit
from rspdns.overrides.book import (
    LONGEST_S,
    MOST_CHARACTERS,
    MOST_OVERRIDES,
    OVERRIDES,
    NameOf,
    Override,
    OverrideError,
    by_handle,
    contradicting,
    known_servers,
    next_moment_s,
    outlook,
    places_of,
)
from rspdns.status.model import OverrideStatus
from rspdns.zones.zone import Pool

FILE = "overrides.json"
_MOST_BYTES = 4 * 1024 * 1024
_LOOK_AGAIN_S = 30.0
"""The longest time between two looks at the clock, which may be set."""
_JUST_AFTER_S = 0.001


class OverridableBelief(Protocol):
    """The part of the belief that overrides need."""

    views: Mapping[str, PoolView]

    def set_overrides(self, overrides: Mapping[str, Sequence[PoolOverride]]) -> None:
        """Let these hold from now on, by pool handle."""


@dataclass(frozen=True, slots=True)
class Wish:
    """An override that somebody wants. `in_s` is when it begins, `for_s` how long it holds, in seconds."""

    action: OverrideAction
    servers: str
    reason: str
    share: float | None = None
    pool: str | None = None
    in_s: float = 0.0
    for_s: float | None = None
    forced: bool = False

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
            raise OverrideError("a share is above 0 % and below 100 %; down takes a server out")
        if not 0 <= self.in_s <= LONGEST_S or not 0 < (self.for_s or 1) <= LONGEST_S:
            raise OverrideError("an override begins within ten years, and holds for ten years at most")


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
}
"""The keys of a wish, at the control socket and in the API, with the types of their values."""


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
    )


class Overrides:
    """The overrides of this name server. `look` has the belief evaluated; `pools` gives those served."""

    def __init__(
        self,
        folder: str | Path,
        belief: OverridableBelief,
        pools: Callable[[], Sequence[Pool]],
        name_of: NameOf,
        look: Callable[[], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.all: tuple[Override, ...] = ()
        self.problem = ""
        """Why the file of before can't be used, or could not be written."""
        self.held_back: dict[int, str] = {}
        """By number, why an override does not hold although its time has come."""
        self._path = Path(folder) / FILE
        self._belief = belief
        self._pools = pools
        self._name_of = name_of
        self._look = look
        self._clock = clock
        self._holding: Mapping[str, Sequence[PoolOverride]] = {}
        """Those that hold now, by pool handle."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._log = get_logger("overrides")

    # Beginning and end

    def load(self) -> None:
        """Take those of before the restart, before anything is answered. A file that can't be read is put
        aside and told: answers without overrides are better than none."""
        remove_unfinished(self._path)
        try:
            with open_regular(self._path) as file:
                text = file.read(_MOST_BYTES)
            self.all = OVERRIDES.validate_json(text)
            for override in self.all:
                override.meant  # noqa: B018 - raises ValueError where it names no servers
        except FileNotFoundError:
            pass
        except (OSError, ValidationError, ValueError) as error:
            self.all = ()
            self._put_aside(error)
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
                wanted = self._made(wish, by, now_s)
            except OverrideError as error:
                raise ControlError(str(error)) from None
            pools = self._outlook(wanted, now_s)
            emptied = [owner for owner, shares in pools.items() if _is_emptied(shares)]
            if emptied and not wish.forced:
                raise ControlError(
                    f"{', '.join(emptied)} would lose its last member; with --force it is done all the same"
                )
            result = {"override": OVERRIDES.dump_python((wanted,), mode="json")[0], "pools": pools}
            if is_dry:
                return result
            await self._replace((*self._lasting(now_s), wanted))
            audit(by, "override", wanted.title, after=wanted.words)
            return result

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
        starts_at_s = now_s + wish.in_s
        wanted = Override(
            number=max((override.number for override in self.all), default=0) + 1,
            action=wish.action,
            servers=wish.servers,
            reason=wish.reason.strip(),
            by=by,
            set_at_s=now_s,
            starts_at_s=starts_at_s,
            ends_at_s=None if wish.for_s is None else starts_at_s + wish.for_s,
            share=wish.share,
            pool=wish.pool,
            places=places_of(wish.servers, known),
            forced=wish.forced,
        )
        others = [other for other in self.all if any(map(other.concerns, concerned))]
        other = contradicting(wanted, others, known)
        if other is not None:
            raise OverrideError(
                f"override {other.number} ({other.title}) names some of these servers, too: clear it first, "
                f"rspdns override clear {other.number}"
            )
        return wanted

    def _outlook(self, wanted: Override, now_s: float) -> dict[str, list[dict[str, Any]]]:
        """The shares before and after, by the owner name of each pool that the override is about."""
        pools = [pool for pool in self._pools() if wanted.concerns(pool)]
        held = [each for each in self.all if each.holds(now_s) and each.number != wanted.number]
        result = {}
        for pool in pools:
            before, after = (
                [override.in_pool for override in overrides if override.concerns(pool)]
                for overrides in (held, (*held, wanted))
            )
            shares = outlook(pool, self._belief.views, before, after, time.monotonic())
            if any(share.before != share.after for share in shares):
                result[pool.owner] = [
                    {"server": each.server, "before": each.before, "after": each.after} for each in shares
                ]
        return result

    async def clear(self, numbers: Sequence[int], by: str) -> list[int]:
        """Clear these overrides, all if none is named; return their numbers. Raises ControlError."""
        async with self._writing:
            now_s = self._clock()
            lasting = self._lasting(now_s)
            unknown = [str(number) for number in numbers if number not in {each.number for each in lasting}]
            if unknown:
                raise ControlError(f"no override has the number {', '.join(unknown)}: rspdns override list")
            gone = [each for each in lasting if not numbers or each.number in numbers]
            await self._replace([each for each in lasting if each not in gone])
            for override in gone:
                audit(by, "override cleared", override.title, before=override.words)
            return [override.number for override in gone]

    def _lasting(self, now_s: float) -> list[Override]:
        return [override for override in self.all if not override.is_over(now_s)]

    async def _replace(self, overrides: Sequence[Override]) -> None:
        """Keep these from now on: on the disk first."""
        data = OVERRIDES.dump_json(tuple(overrides), indent=1)
        try:
            await asyncio.to_thread(replace_file, self._path, data)
        except OSError as error:
            raise ControlError(
                f"{self._path} can't be written, and nothing was changed: {error.strerror or error}"
            ) from None
        self.all, self.problem = tuple(overrides), ""
        self._apply()
        self._look()

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
            )
            for each in self._lasting(now_s)
        ]

    def deciding(self, handle: str, place: ServerAddress) -> int | None:
        """The number of the override that decides about a server of a pool; None if there is none."""
        holding = self._holding.get(handle, ())
        return next((override.number for override in holding if override.servers.has(place)), None)

    def _apply(self) -> None:
        """Have the belief take those that hold now, and come back when that changes."""
        now_s = self._clock()
        pools = self._pools()
        holding = [override for override in self.all if override.holds(now_s)]
        before, self.held_back = self.held_back, {}
        for override in holding:
            emptied = [] if override.forced else self._emptied(override, now_s)
            is_new = override.set_at_s < override.starts_at_s
            if emptied and is_new:  # it was checked when it was set
                self.held_back[override.number] = f"{', '.join(emptied)} would lose its last member"
        for number in self.held_back.keys() - before.keys():
            self._log.error("override_held_back", number=number, problem=self.held_back[number])
        holding = [override for override in holding if override.number not in self.held_back]
        self._holding = by_handle(pools, holding)
        self._belief.set_overrides(self._holding)
        self._set_timer(now_s)

    def _emptied(self, override: Override, now_s: float) -> list[str]:
        return [
            pool.owner
            for pool in self._pools()
            if override.concerns(pool) and _is_emptied(self._outlook(override, now_s).get(pool.owner, []))
        ]

    def _set_timer(self, now_s: float) -> None:
        self.close()
        moment_s = next_moment_s(self.all, now_s)
        if moment_s is None:
            return
        wait_s = min(moment_s - now_s + _JUST_AFTER_S, _LOOK_AGAIN_S)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._at_moment)

    def _at_moment(self) -> None:
        now_s = self._clock()
        for override in [each for each in self.all if each.is_over(now_s)]:
            self._log.info("override_ended", number=override.number, override=override.title)
        self.all = tuple(self._lasting(now_s))  # the file lists it until the next change
        self._apply()
        self._look()


def _is_emptied(shares: Sequence[Mapping[str, Any]]) -> bool:
    return any(each["before"] is not None for each in shares) and all(
        each["after"] is None for each in shares
    )
