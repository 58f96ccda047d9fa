"""The last-known-good file: what was in before the backend was restarted (rule 5).

One JSON document: `format`, a SHA-256 `checksum` over `content` in its canonical form, and `content`:
when it was written, and for every pool its members, its departures, and when a registrar last vouched for
its members. All times in it are wall-clock seconds; monotonic times do not outlive a restart of the machine.

`LastKnownGood` keeps the file up to date, and gives it to the belief when the backend starts.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

import orjson
from daemon_kit.files import open_regular, remove_unfinished, replace_file
from daemon_kit.logs import get_logger
from pydantic import TypeAdapter

from pool_user.cause import Cause, Code
from pool_user.views import Departure, Member, PoolView, RememberedPool
from rserpool import Policy, Protocol, RSerPoolError, decode_policy, encode_policy

_CAUSE = TypeAdapter(Cause)
FORMAT = "rspdns-last-known-good-1"
FILE_NAME = "last-known-good.json"
MAX_BYTES = 64 * 1024 * 1024
CLOCK_DRIFT_S = 0.1
"""How far wall clock and monotonic clock may drift apart before encoded pools are encoded anew."""
CLOCK_STEP_S = 10.0
"""A correction of the clock by less than this is usual, and means nothing."""


class DamagedFileError(Exception):
    """The file cannot be used; the words say which file, what is wrong and what to do."""


@dataclass(slots=True)
class Encoded:
    """The parts that `encode()` made of each view the last time, to be used again for views that are the
    very same."""

    to_wall_s: float = float("nan")
    pools: dict[str, tuple[PoolView, dict[str, orjson.Fragment]]] = field(default_factory=dict)


def encode(views: Mapping[str, PoolView], now: float, wall_s: float, encoded: Encoded | None = None) -> bytes:
    """Return the file's bytes. `now` and `wall_s` are the same moment on the monotonic and on the wall clock.

    Pools of which nothing is known are left out. `encoded` is kept from call to call, and saves most of the
    work while few views change.
    """
    encoded = encoded if encoded is not None else Encoded()
    to_wall_s, before = encoded.to_wall_s, encoded.pools
    if not abs(wall_s - now - to_wall_s) <= CLOCK_DRIFT_S:
        to_wall_s, before = wall_s - now, {}
    pools = {}
    for handle, view in views.items():
        if view.known or view.departures:
            kept = before.get(handle)
            pools[handle] = kept if kept and kept[0] is view else _encode_view(view, kept, to_wall_s)
    encoded.to_wall_s, encoded.pools = to_wall_s, pools
    content = {
        "written_at_s": wall_s,
        "pools": {
            handle: {
                **parts,
                "vouched_at_s": _vouched_at_s(view, to_wall_s, wall_s),
            }
            for handle, (view, parts) in pools.items()
        },
    }
    canonical = _canonical(content)
    checksum = hashlib.sha256(canonical).hexdigest()
    return orjson.dumps({"format": FORMAT, "checksum": checksum, "content": orjson.Fragment(canonical)})


def _vouched_at_s(view: PoolView, to_wall_s: float, wall_s: float) -> float:
    if not view.known:
        return 0.0  # there are departures only
    return wall_s if view.stale_since_s is None else view.stale_since_s + to_wall_s


def _encode_view(
    view: PoolView, before: tuple[PoolView, dict[str, orjson.Fragment]] | None, to_wall_s: float
) -> tuple[PoolView, dict[str, orjson.Fragment]]:
    members = [_encode_member(member, to_wall_s) for member in (*view.members, *view.unreachable)]
    parts = {"members": members, "recent": [_encode_member(member, to_wall_s) for member in view.recent]}
    fragments = {key: orjson.Fragment(_canonical(part)) for key, part in parts.items()}
    if before is not None and before[0].departures is view.departures:
        fragments["departures"] = before[1]["departures"]
    else:
        departures = [
            _encode_member(departure.member, to_wall_s)
            | {
                "left_s": departure.left_s + to_wall_s,
                "cause": asdict(departure.cause),
                "is_confirmed": departure.is_confirmed,
                "settled_home": departure.settled_home,
            }
            for departure in view.departures
        ]
        fragments["departures"] = orjson.Fragment(_canonical(departures))
    return view, fragments


def decode(data: bytes, now: float, wall_s: float, max_stale_s: float) -> tuple[RememberedPool, ...]:
    """Read the file's bytes; pools that nobody vouched for since `max_stale_s` have departures only.

    Raise DamagedFileError with words that have no file name yet.
    """
    if len(data) > MAX_BYTES:
        raise DamagedFileError(f"it is larger than {MAX_BYTES} bytes")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise DamagedFileError("it is no JSON document, or was cut short") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        read = document.get("format") if isinstance(document, dict) else None
        raise DamagedFileError(f"its format is {read!r}, this version reads {FORMAT!r}")
    content: Any = document.get("content")
    if document.get("checksum") != _checksum(content):
        raise DamagedFileError("its checksum does not match its content")
    try:
        written_s = now - max(0.0, wall_s - float(content["written_at_s"]))
        return tuple(
            _decode_pool(handle, pool, now, wall_s, max_stale_s, written_s)
            for handle, pool in content["pools"].items()
        )
    except (KeyError, TypeError, ValueError, AttributeError, RSerPoolError) as problem:
        raise DamagedFileError(f"a value is missing or of the wrong kind ({problem})") from None


def load(directory: str | Path, now: float, wall_s: float, max_stale_s: float) -> tuple[RememberedPool, ...]:
    """Read the file in `directory`; nothing when there is none. Raise DamagedFileError."""
    path = Path(directory) / FILE_NAME
    remove_unfinished(path)
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as problem:
        raise DamagedFileError(f"{path}: cannot be read: {problem.strerror}") from None
    try:
        return decode(data, now, wall_s, max_stale_s)
    except DamagedFileError as problem:
        words = f"{path}: not used: {problem}. It is replaced as soon as the registrars have answered"
        raise DamagedFileError(words) from None


def _checksum(content: Any) -> str:
    try:
        return hashlib.sha256(_canonical(content)).hexdigest()
    except (TypeError, ValueError):
        return ""


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _encode_member(member: Member, to_wall_s: float) -> dict[str, Any]:
    return {
        "identifier": member.identifier,
        "home_registrar": member.home_registrar,
        "addresses": [str(address) for address in member.addresses],
        "port": member.port,
        "protocol": member.protocol.name,
        "policy": encode_policy(member.policy).hex(),
        "since_s": member.since_s + to_wall_s,
        "handlespace": member.handlespace,
    }


def _decode_pool(
    handle: str, pool: Mapping[str, Any], now: float, wall_s: float, max_stale_s: float, written_s: float
) -> RememberedPool:
    # A clock that was set back makes a time of the future: as old as can be, rather than fresh for ever.
    age_s = wall_s - float(pool["vouched_at_s"])
    age_s = max(age_s, 0.0) if age_s >= -CLOCK_STEP_S else max_stale_s
    members = tuple(_decode_member(member, now, wall_s) for member in pool["members"])
    recent = tuple(_decode_member(member, now, wall_s) for member in pool["recent"])
    departures = tuple(
        Departure(
            _decode_member(departure, now, wall_s),
            now - max(0.0, wall_s - float(departure["left_s"])),
            _CAUSE.validate_python(departure["cause"]),
            departure.get("is_confirmed") is True,  # older files lack it, and the next
            _number(departure.get("settled_home", 0), 0xFFFFFFFF),
        )
        for departure in pool.get("departures", ())
    )
    if age_s < max_stale_s:
        return RememberedPool(handle, members, recent, now - age_s, departures)
    cause = Cause(Code.WHILE_STOPPED)
    departures += tuple(Departure(member, written_s, cause) for member in members)
    return RememberedPool(handle, (), (), None, departures)


def _decode_member(member: Mapping[str, Any], now: float, wall_s: float) -> Member:
    addresses = tuple(ip_address(str(address)) for address in member["addresses"])
    if not addresses:
        raise ValueError("a member without an address")
    policy: Policy = decode_policy(bytes.fromhex(member["policy"]))
    return Member(
        identifier=_number(member["identifier"], 0xFFFFFFFF),
        home_registrar=_number(member["home_registrar"], 0xFFFFFFFF),
        addresses=addresses,
        port=_number(member["port"], 0xFFFF),
        protocol=Protocol[member["protocol"]],
        policy=policy,
        since_s=min(now, now - (wall_s - float(member["since_s"]))),
        stale=True,
        handlespace=str(member.get("handlespace", "")),  # older files lack it
    )


def _number(value: Any, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise ValueError(f"{value!r} is no number of 0..{highest}")
    return value


AFTER_A_CHANGE_S = 0.2
"""Time from a change until the file is written. A busy disk holds up the log too, and DNS comes first."""
AT_MOST_EVERY_S = 1.0
AT_LEAST_EVERY_S = 10.0
"""Time after which the file is written although nothing changed: it tells that a registrar still vouches."""


class Remembering(Interface):
    """The receiver of the file's pools at the start: the belief of a backend, say."""

    def remember(self, remembered: RememberedPool, now: float) -> None:
        """Take one pool. Times are monotonic seconds."""


class LastKnownGood:
    """The file in `directory`. Trouble with it is a warning, never the end: the next write may succeed.

    `without_it` says in words what an older file would mean.
    """

    def __init__(
        self,
        directory: str | Path,
        max_stale_s: float,
        *,
        without_it: str = "Answers go on; after a restart of the backend they would come from the older file",
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.problem: str | None = None
        """Why the file could not be read or written the last time, for status; None if all is well."""
        self._directory = Path(directory)
        self._max_stale_s = max_stale_s
        self._without_it = without_it
        self._clock = clock
        self._wall_clock = wall_clock
        self._views: Mapping[str, PoolView] = {}
        self._encoded = Encoded()
        self._news = asyncio.Event()
        self._log = get_logger("last_known_good")

    def load_into(self, belief: Remembering) -> int:
        """Give the file's pools to the belief; return how many of them count still. A damaged file is refused
        with a warning."""
        now = self._clock()
        try:
            pools = load(self._directory, now, self._wall_clock(), self._max_stale_s)
        except DamagedFileError as problem:
            self.problem = str(problem)
            self._log.warning("last_known_good_refused", problem=self.problem)
            return 0
        for pool in pools:
            belief.remember(pool, now)
        loaded = sum(pool.stale_since_s is not None for pool in pools)
        if loaded:
            self._log.info("last_known_good_loaded", pools=loaded)
        return loaded

    def changed(self, views: Mapping[str, PoolView]) -> None:
        """Take the latest views; they are written by and by."""
        self._views = views
        self._news.set()

    async def run(self) -> None:
        """Write when something changed, at most once a second, and at least every 10 s; until cancelled."""
        while True:
            try:
                async with asyncio.timeout(AT_LEAST_EVERY_S):
                    await self._news.wait()
            except TimeoutError:
                if all(view.stale_since_s is not None for view in self._views.values()):
                    continue
            await asyncio.sleep(AFTER_A_CHANGE_S)
            self._news.clear()
            await asyncio.to_thread(self.save_now)
            await asyncio.sleep(AT_MOST_EVERY_S)

    def save_now(self) -> bool:
        """Write the latest views; return False, with a warning, when that fails. The old file is intact
        then."""
        views = self._views
        if not any(view.known for view in views.values()):
            return True
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            now, wall_s = self._clock(), self._wall_clock()
            replace_file(self._directory / FILE_NAME, encode(views, now, wall_s, self._encoded))
        except OSError as problem:
            words = (
                f"{self._directory / FILE_NAME}: cannot be written: {problem.strerror}. {self._without_it}"
            )
            if words != self.problem:
                self._log.warning("last_known_good_not_saved", problem=words)
            self.problem = words
            return False
        self.problem = None
        return True
