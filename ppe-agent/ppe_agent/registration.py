"""One AS in its pool: joins when it is wanted, leaves when it is not, and stays in meanwhile.

`RegistrationMachine` decides, without sockets and clocks: it is told what happened, and when, and
`take_actions` says what is to be done. `Registration`, at the end, is its asyncio part. What goes on between
a registrar and the pool element is rserpool's; each stay in the pool has a client of its own.

Below stand, in this order: the states with every step between them, what the machine asks and tells, what a
registrar's answer says of the pool element, when a home is outvoted, the machine, and the asyncio part.

In a keyed pool each stay has an identifier of its own (`rserpool.identity`). Leaving is then said by a second
pool element, the *farewell*, which has the identifier of the leaving state and stays for FAREWELL_S.
"""

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppe_agent.advice import IDENTIFIER_TAKEN, advice
from rserpool import (
    MOST_RESOLVED,
    Policy,
    PoolElement,
    PoolElementClient,
    RegistrarAddress,
    RegistrationEvent,
    RegistrationEventKind,
    Resolution,
    RSerPoolError,
    ServerKey,
    Transport,
    backoff_s,
    least_wanted,
)

DEREGISTRATION_TIMEOUT_MS = 500
DOUBTFUL_LIVES = 2
"""So many lives after an unconfirmed leave, no registrar lists the AS any more."""
_RETRY_S = 1.0
"""After the client could not be started (no such address on this host, say)."""
_SETTLED_AFTER_S = 0.1
"""A registrar tells the others within a millisecond; a question asked sooner than this says little."""
_COLLISION_AFTER_S = 0.3


class Membership(Enum):
    """Where an AS stands with its pool."""

    OUT = "out"
    WAITING = "waiting"
    """Wanted, but not yet: after a collision or an error a pause has to pass first (often none)."""
    JOINING = "joining"
    """No registrar has confirmed it, or the one that had is lost."""
    IN = "in"
    LEAVING = "leaving"
    RETURNING = "returning"
    """Leaving still, but wanted again: it joins when leaving is over."""


class Input(Enum):
    """What moves an AS from one state to another."""

    WANT = "want"
    UNWANT = "unwant"
    RESUME = "resume"
    """The pause is over."""
    CONFIRMED = "confirmed"
    """A registrar has it."""
    LOST = "lost"
    """The registrar that had it is lost, silent, not believed, or refuses it."""
    COLLISION = "collision"
    """Another host has its PE identifier."""
    FAILED = "failed"
    """The client could not be started."""
    LEFT = "left"
    """The registrar confirmed the deregistration, or did not in time."""


class Job(Enum):
    """What is to be done with the client of a stay, one after the other."""

    BEGIN = "begin"
    """Make a client, and register."""
    LEAVE = "leave"
    """Deregister; `left()` takes what comes of it."""
    DROP = "drop"
    """Close the client without a word; jobs asked for before and not yet done are void."""


class Step(NamedTuple):
    """The next state, and what is done on the way."""

    to: Membership
    job: Job | None = None


STEPS: Final[Mapping[Membership, Mapping[Input, Step]]] = {
    Membership.OUT: {
        Input.WANT: Step(Membership.WAITING),
    },
    Membership.WAITING: {
        Input.RESUME: Step(Membership.JOINING, Job.BEGIN),
        Input.UNWANT: Step(Membership.OUT),
    },
    Membership.JOINING: {
        Input.CONFIRMED: Step(Membership.IN),
        Input.UNWANT: Step(Membership.LEAVING, Job.LEAVE),
        Input.COLLISION: Step(Membership.WAITING, Job.DROP),
        Input.FAILED: Step(Membership.WAITING),
    },
    Membership.IN: {
        Input.LOST: Step(Membership.JOINING),
        Input.UNWANT: Step(Membership.LEAVING, Job.LEAVE),
        Input.COLLISION: Step(Membership.WAITING, Job.DROP),
    },
    Membership.LEAVING: {
        Input.WANT: Step(Membership.RETURNING),
        Input.LEFT: Step(Membership.OUT, Job.DROP),
        Input.COLLISION: Step(Membership.OUT, Job.DROP),
        Input.FAILED: Step(Membership.OUT),
    },
    Membership.RETURNING: {
        Input.UNWANT: Step(Membership.LEAVING),
        Input.LEFT: Step(Membership.WAITING, Job.DROP),
        Input.COLLISION: Step(Membership.WAITING, Job.DROP),
        Input.FAILED: Step(Membership.WAITING),
    },
}
"""What is not in here changes nothing. After a collision nothing is deregistered: that would take the other
host out of the pool."""

HAS_LEFT: Final = frozenset({Membership.OUT, Membership.WAITING})
IS_LEAVING: Final = frozenset({Membership.LEAVING, Membership.RETURNING})


@dataclass(frozen=True, slots=True)
class Renew:
    """Register again at once, at the registrar in charge."""

    reason: str


@dataclass(frozen=True, slots=True)
class MoveAway:
    """Register at another registrar; the one in charge is not believed."""

    reason: str


@dataclass(frozen=True, slots=True)
class HeedSilence:
    """Whether to renew the registration when the registrar's keep-alives stop."""

    is_heeded: bool


@dataclass(frozen=True, slots=True)
class ReportUnreachable:
    """It left without a registrar's word for it: have every registrar remove it."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Write a line into the log."""

    level: str
    event: str
    details: Mapping[str, Any] = field(default_factory=dict)


Action = Job | Renew | MoveAway | HeedSilence | ReportUnreachable | Tell


# What a registrar's answer says of one pool element


def is_listed(resolution: Resolution, identifier: int) -> bool | None:
    """Tell whether a registrar lists the PE; None when its answer was cut to the first 128 without it."""
    if any(element.identifier == identifier for element in resolution.pool_elements):
        return True
    return None if is_cut(resolution) else False


def is_cut(resolution: Resolution) -> bool:
    """Tell whether the pool may have more members than the answer."""
    return len(resolution.pool_elements) >= MOST_RESOLVED


def is_same_server(listed: Transport, mine: Transport) -> bool:
    """Tell whether a listed transport is ours; a registrar may list fewer addresses than were registered."""
    return (
        listed.protocol is mine.protocol
        and listed.port == mine.port
        and not set(listed.addresses).isdisjoint(mine.addresses)
    )


REJOIN_EVERY_S: Final = 1.0
"""After a collision it joins at once with a fresh identifier, but no more often than this. A host that takes
identifiers must not win by making the others wait."""
MISSING_TIMES: Final = 3
"""So often within MISSING_WITHIN_S its home must lack it for another host to be suspected, ..."""
MISSING_WITHIN_S: Final = 5.0
"""... which takes the identifier and gives it up again, or has it removed."""
TWIN_AFTER_S: Final = 3.0
"""How long another element must have its address and port to be told of: after a restart a former one may."""
FAREWELL_S: Final = 2.0
"""How long the farewell stays, so that those who only ask now and then see it."""
FAREWELL_HEARD_S: Final = 0.2
"""How long the end of the agent waits for the farewell to be seen."""


LACKED_S: Final = 3.0
"""So long all others must lack the element; after leaving a home for it in vain twice as long, ..."""
LACKED_CEILING_S: Final = 300.0
"""... up to this: when no two registrars reach each other, moving does not help."""
HEARD_S: Final = 2.0
"""What a registrar said longer ago does not count: it is asked twice a second."""


class Outvoted:
    """What every registrar says of one pool element, against its home. Times are in s, on one clock.

    A home that confirms each registration, while no other registrar lists the element, has lost its peers,
    or is none. A registrar tells its peers of a registration within a millisecond: seconds are no accident.
    """

    def __init__(self) -> None:
        self._said: dict[RegistrarAddress, tuple[bool, float]] = {}
        self._home: RegistrarAddress | None = None
        self._since_s: float | None = None
        self._left = 0

    def told(
        self, registrar: RegistrarAddress, home: RegistrarAddress | None, listed: bool | None, now: float
    ) -> bool:
        """Take in whether `registrar` lists the element (None: its answer does not tell), whose home is
        `home` (None: it has none). Return whether the home is to be left now."""
        if home != self._home:
            self._home, self._since_s = home, None
        if listed is None:
            self._said.pop(registrar, None)
        else:
            self._said[registrar] = (listed, now)
        others = [said for one, (said, at_s) in self._said.items() if one != home and now - at_s <= HEARD_S]
        if any(others):
            self._left = 0
        if home is None or not others or any(others):
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now
        if now < self._since_s + backoff_s(1 + self._left, LACKED_S, LACKED_CEILING_S):
            return False
        self._left += 1
        self._since_s = None
        return True


_PROBLEMS: Final = {
    RegistrationEventKind.REJECTED: "{} refuses it",
    RegistrationEventKind.REGISTRAR_LOST: "{} was lost",
    RegistrationEventKind.REGISTRAR_LEFT: "{} is not believed",
    RegistrationEventKind.UNREACHABLE: "{} can't be reached",
    RegistrationEventKind.UNANSWERED: "{} doesn't answer",
}


class RegistrationMachine:
    """Keeps one pool element in its pool while it is wanted there. Times are in s, monotonic."""

    def __init__(
        self,
        element: PoolElement,
        new_identifier: Callable[[], int],
        is_own: Callable[[int], bool] | None = None,
    ) -> None:
        """`is_own` is for a keyed pool: whether an identifier is one of this server's stays, or leaves."""
        self.state = Membership.OUT
        self.element = element
        """What to register, with the policy (the load, say) of now."""
        self.registrar: RegistrarAddress | None = None
        """The registrar in charge; it counts in state IN only."""
        self.problem: str | None = None
        """Why it is not in, in words."""
        self.missing_count = 0
        """How often a registrar did not list it."""
        self.rejected_count = 0
        self.moved_count = 0
        """How often another registrar took over from the one before."""
        self.collision_count = 0
        """How often another host was found to have the same identifier."""
        self.taken_by: str | None = None
        """The host that was found last to have its identifier."""
        self.twin: int | None = None
        """Another element of the pool with its address and port."""
        self._new_identifier = new_identifier
        self._is_own = is_own
        self._was_used = is_own is not None  # in a keyed pool no two stays have the same identifier
        self._actions: list[Action] = []
        self._rejoined_at_s = float("-inf")
        self._missing_at_s: deque[float] = deque(maxlen=MISSING_TIMES)
        self._twin_since_s: float | None = None
        self._outvoted = Outvoted()
        self._resume_at_s = float("-inf")
        self._registered_at_s = 0.0
        self._left_at_s = float("-inf")
        self._doubted_at_s: float | None = None
        self._was_in = False  # in this stay
        self._last_registrar: RegistrarAddress | None = None
        self._other: PoolElement | None = None  # another member of the pool
        self._told: set[str] = set()  # problems logged since it was last registered

    @property
    def is_gone(self) -> bool:
        """True when a registrar confirmed that it left, or was seen without it."""
        return self._doubted_at_s is None

    def is_unconfirmed(self, now: float) -> bool:
        """Tell whether it may be listed though it left: no registrar confirmed that, or was seen without.

        Two of its lives later none lists it any more; in a large pool that can't be seen.
        """
        lives_s = DOUBTFUL_LIVES * self.element.life_ms / 1000
        return self._doubted_at_s is not None and now - self._doubted_at_s < lives_s

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance` has something to do; None: not before something else happens."""
        return self._resume_at_s if self.state is Membership.WAITING else None

    def take_actions(self) -> list[Action]:
        """Return what is to be done, in order, and forget it."""
        actions, self._actions = self._actions, []
        return actions

    # What the owner wants

    def want(self, wanted: bool, now: float) -> None:
        """Take in whether the AS shall be in its pool."""
        self._move(Input.WANT if wanted else Input.UNWANT)
        self.advance(now)

    def update_policy(self, policy: Policy) -> None:
        """Register with this policy from now on."""
        self.element = replace(self.element, policy=policy)

    def doubt(self, now: float) -> None:
        """Take in that it may be registered still, by an earlier run of the agent for instance."""
        self._doubted_at_s = now

    def advance(self, now: float) -> None:
        """Do what is due."""
        if self.state is Membership.WAITING and now >= self._resume_at_s:
            self._was_in = False
            if self._is_own is not None:
                if self._was_used:
                    self.element = replace(self.element, identifier=self._new_identifier())
                self._was_used = True
            self._move(Input.RESUME)

    # What the client tells

    def failed(self, problem: str, now: float) -> None:
        """Take in that the client could not be started."""
        self.problem = f"can't register: {problem}"
        self._tell("error", "registration_failed", problem=self.problem)
        self._resume_at_s = now + _RETRY_S
        self._move(Input.FAILED)

    def left(self, *, confirmed: bool, now: float) -> None:
        """Take in that it left, and whether the registrar said so."""
        if not self._move(Input.LEFT):
            return
        self._left_at_s = now
        if confirmed:
            self._doubted_at_s = None
        else:
            if self._was_in:
                self.doubt(now)
            self._actions.append(ReportUnreachable())
        self._tell("info", "left_pool", confirmed=confirmed)
        self.advance(now)

    def happened(self, event: RegistrationEvent) -> None:
        """Take in what happened to the registration."""
        kind = event.kind
        if kind is RegistrationEventKind.REGISTERED:
            self._registered_at_s = event.at_s
            self._was_in = True
            self.problem = None
            self._told.clear()
            if self._last_registrar not in (None, event.registrar):
                self.moved_count += 1
            self._last_registrar = event.registrar
        if kind in (RegistrationEventKind.REGISTERED, RegistrationEventKind.TAKEN_OVER):
            self.registrar = event.registrar
            self._move(Input.CONFIRMED)
        elif kind in _PROBLEMS:
            problem = _PROBLEMS[kind].format(f"registrar {event.registrar}")
            self.problem = f"{problem}: {event.detail}" if event.detail else problem
            self._move(Input.LOST)
            if kind is RegistrationEventKind.REJECTED:
                self._rejected(event)
        self._tell_of(event)

    def _rejected(self, event: RegistrationEvent) -> None:
        self.rejected_count += 1
        what_to_do = advice(event.causes, self.element, self._other)
        if what_to_do:
            self.problem = f"{self.problem}. {what_to_do[0].upper()}{what_to_do[1:]}"
        if any(cause.code in IDENTIFIER_TAKEN for cause in event.causes):
            self._collided(f"registrar {event.registrar} says so", event.at_s)

    # What a registrar answers when it is asked for the pool

    def check_listed(self, registrar: RegistrarAddress, resolution: Resolution, now: float) -> bool | None:
        """Compare a registrar's view with the truth, and register again when the PE is missing from it.

        Return whether it is listed there; None when the answer says nothing about it.
        """
        listed = is_listed(resolution, self.element.identifier)
        # In a large pool this is the only sign: whom a registrar removed, it sends no keep-alives.
        self._actions.append(HeedSilence(is_cut(resolution)))
        mine, self._other = self._mine_and_another(resolution)
        if listed is False and self.state in HAS_LEFT and resolution.asked_at_s > self._left_at_s:
            self._doubted_at_s = None
        age_s = resolution.asked_at_s - self._registered_at_s
        is_in = self.state is Membership.IN
        # Only the registrar in charge is sure to have heard of us last: others may show where we were before.
        knows_best = is_in and registrar == self.registrar and age_s > _COLLISION_AFTER_S
        if mine is not None and knows_best:
            theirs = mine.user_transport
            if not is_same_server(theirs, self.element.user_transport):
                where = ", ".join(str(address) for address in theirs.addresses)
                self._collided(f"{where} port {theirs.port}", now)
                return False
        if listed is False and is_in and age_s > _SETTLED_AFTER_S:
            self.missing_count += 1
            self._registered_at_s = now
            self._tell("warning", "missing_at_registrar", registrar=str(registrar))
            if registrar == self.registrar and self._is_contested(now):
                return False
            self._actions.append(Renew(f"not listed by {registrar}"))
        # A drained server may be in by another sidecar: the registrar says so that was in charge, or any.
        if (is_in or self.state in HAS_LEFT) and registrar == (self.registrar or registrar):
            self._look_for_twin(resolution, now)
        home = self.registrar if is_in else None
        if self._outvoted.told(registrar, home, listed, resolution.answered_at_s):
            reason = "it confirms the registration, but no other registrar lists it"
            self._actions.append(MoveAway(reason))
        return listed

    def _is_contested(self, now: float) -> bool:
        """Note that its home lacks it. Return whether that came so often that it took another identifier."""
        self._missing_at_s.append(now)
        first_s = self._missing_at_s[0]
        if len(self._missing_at_s) < MISSING_TIMES or now - first_s > MISSING_WITHIN_S:
            return False
        self._missing_at_s.clear()
        return self._collided(None, now)

    def _look_for_twin(self, resolution: Resolution, now: float) -> None:
        """See whether another element has its address and port: a second sidecar registers the server too."""
        found = next(
            (
                each.identifier
                for each in resolution.pool_elements
                if each.identifier != self.element.identifier
                and is_same_server(each.user_transport, self.element.user_transport)
                and not (self._is_own is not None and self._is_own(each.identifier))
            ),
            None,
        )
        if found is None:
            self._twin_since_s = self.twin = None
            return
        self._twin_since_s = now if self._twin_since_s is None else self._twin_since_s
        if self.twin is None and now - self._twin_since_s >= TWIN_AFTER_S:
            self.twin = found
            self._tell(
                "error",
                "registered_twice",
                identifier=f"{found:08x}",
                hint="a second sidecar registers this server: a drain here leaves it in",
            )

    def _mine_and_another(self, resolution: Resolution) -> tuple[PoolElement | None, PoolElement | None]:
        mine = other = None
        for each in resolution.pool_elements:
            if each.identifier == self.element.identifier:
                mine = mine or each
            else:
                other = other or each
        return mine, other

    # Helpers

    def _collided(self, whose: str | None, now: float) -> bool:
        """Take a fresh identifier: another host has ours, and each registration of one hides the other.

        `whose` is where the other is; None: its home lacks the identifier again and again. That of a remote
        server is its address, so it stays: another sidecar has registered the same server. Return whether it
        has another identifier now.
        """
        if Input.COLLISION not in STEPS[self.state]:
            return False
        old, new = self.element.identifier, self._new_identifier()
        if new == old and whose is None:
            return False
        self._move(Input.COLLISION)
        self.element = replace(self.element, identifier=new)
        self._was_used = False
        self.collision_count += 1
        if new == old:
            self.problem = f"the sidecar at {whose} registers this server too: give each a handle of its own"
            self._tell(
                "error", "registered_by_two", also_at=whose, hint="give each sidecar a handle of its own"
            )
        elif whose is None:
            self._tell(
                "error",
                "identifier_contested",
                identifier=f"{old:08x}",
                taken_instead=f"{new:08x}",
                hint="a host takes this identifier, or has it removed; look at the registrars' logs",
            )
        else:
            self.taken_by = whose
            self.problem = f"{whose} took its identifier {old:08x}"
            copied = "was the state directory copied from another host?"
            hint = copied if self._is_own is None else "that host registers what is not its own: look at it"
            self._tell(
                "error",
                "identifier_collision",
                identifier=f"{old:08x}",
                also_at=whose,
                taken_instead=f"{new:08x}",
                hint=hint,
            )
        self._resume_at_s = self._rejoined_at_s = max(now, self._rejoined_at_s + REJOIN_EVERY_S)
        self.advance(now)
        return True

    def _move(self, what: Input) -> bool:
        step = STEPS[self.state].get(what)
        if step is None:
            return False
        self.state = step.to
        if step.job is not None:
            self._actions.append(step.job)
        return True

    def _tell_of(self, event: RegistrationEvent) -> None:
        details = {"registrar": str(event.registrar)} if event.registrar else {}
        if event.detail:
            details["detail"] = event.detail
        if event.kind is RegistrationEventKind.REJECTED and self.problem:
            details["problem"] = self.problem
        self._tell(self._level(event.kind), event.kind.value, **details)

    def _level(self, kind: RegistrationEventKind) -> str:
        """Return how loud to log: what lasts (no registrar is there) or comes from strangers, only once."""
        if kind not in _PROBLEMS and kind is not RegistrationEventKind.TAKEOVER_REFUSED:
            return "debug" if kind is RegistrationEventKind.STOPPED else "info"
        what = self.problem if kind in _PROBLEMS and self.problem else kind.value
        is_news = what not in self._told
        self._told.add(what)
        return "warning" if is_news else "debug"

    def _tell(self, level: str, event: str, **details: Any) -> None:
        self._actions.append(Tell(level, event, details))


ClientMaker = Callable[..., PoolElementClient]


class Registration:
    """The machine on asyncio: keeps one pool element in the pool `handle` while it is wanted there."""

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handle: bytes,
        element: PoolElement,
        *,
        reregistration_ms: int,
        name: str,
        server_key: ServerKey | None = None,
        make_client: ClientMaker = PoolElementClient,
    ) -> None:
        """`server_key` is for a keyed pool."""
        self.handle = handle
        self._key = server_key
        self.on_collision: Callable[[], int] = lambda: self.identifier
        """Called when another host has the same identifier; returns a fresh one."""
        self.on_unconfirmed: Callable[[], None] = lambda: None
        """Called when it left without a registrar's word for it: the others may list it still."""
        self.machine = RegistrationMachine(
            element, lambda: self.on_collision(), None if server_key is None else self._is_own
        )
        self._farewells: set[PoolElementClient] = set()
        self._farewell_at_s = float("-inf")
        self._registrars = tuple(registrars)
        self._reregistration_ms = reregistration_ms
        self._make_client = make_client
        self._client: PoolElementClient | None = None
        self._stay = 0  # counts the clients: what a dropped one tells does not count
        self._jobs: deque[Job] = deque()
        self._moved = asyncio.Event()
        self._is_out = asyncio.Event()
        self._is_gone = asyncio.Event()
        self._log = get_logger("registration").bind(name=name)
        self._act()

    @property
    def state(self) -> Membership:
        """Where the AS stands with its pool now."""
        return self.machine.state

    @property
    def identifier(self) -> int:
        """The PE identifier; another one after a collision."""
        return self.machine.element.identifier

    @property
    def is_unconfirmed(self) -> bool:
        """Tell whether it may be listed though it left: no registrar confirmed that, or was seen without."""
        return self.machine.is_unconfirmed(time.monotonic())

    @property
    def registrar(self) -> RegistrarAddress | None:
        """The registrar in charge, None while there is none."""
        return self.machine.registrar if self.state is Membership.IN else None

    @property
    def home_registrar(self) -> int | None:
        """The identifier of the registrar in charge, None while not known."""
        return self._client.home_registrar if self._client else None

    def want(self, wanted: bool) -> None:
        """Say whether the AS shall be in the pool; `run()` sees to it at once."""
        self.machine.want(wanted, time.monotonic())
        self._act()

    def doubt(self) -> None:
        """Take in that it may be registered still, by an earlier run of the agent for instance."""
        self.machine.doubt(time.monotonic())
        self._act()

    def update_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Use these registrars from now on; it moves at once when its own is none of them."""
        self._registrars = tuple(registrars)
        if self._client is not None and self.state not in IS_LEAVING:
            self._client.update_registrars(self._registrars)

    def update_policy(self, policy: Policy) -> None:
        """Change the policy (a new load, say); the registrar hears of it at once."""
        self.machine.update_policy(policy)
        if self._client is not None and self.state not in IS_LEAVING:
            self._client.update_policy(policy)

    def check_listed(self, registrar: RegistrarAddress, resolution: Resolution) -> bool | None:
        """Take in a registrar's view of the pool; return whether the PE is listed there, if that is known."""
        listed = self.machine.check_listed(registrar, resolution, time.monotonic())
        self._act()
        return listed

    async def until_out(self) -> None:
        """Return when the AS has left the pool."""
        await self._is_out.wait()

    async def until_gone(self) -> None:
        """Return when it has left, and a registrar confirmed that, or was seen without it."""
        await self._is_out.wait()
        await self._is_gone.wait()

    async def until_farewell_heard(self) -> None:
        """Return when others had the time to see that it left; at once in a pool without a key."""
        await asyncio.sleep(max(0.0, self._farewell_at_s + FAREWELL_HEARD_S - time.monotonic()))

    async def run(self) -> None:
        """Join and leave as wanted, for ever. Raises FatalError when this host can't register anything."""
        try:
            while True:
                self.machine.advance(time.monotonic())
                self._act()
                while self._jobs:
                    await self._do(self._jobs.popleft())
                self._moved.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self.machine.next_deadline_s):
                        await self._moved.wait()
        finally:
            await self._drop()
            await asyncio.gather(*(self._end_farewell(one) for one in list(self._farewells)))

    def _is_own(self, identifier: int) -> bool:
        """Whether an identifier is of a stay of this server, or says that it leaves."""
        key = self._key
        return key is not None and (
            key.is_mine(self.handle, identifier) or key.leaving(self.handle, identifier) == identifier
        )

    def _act(self) -> None:
        """Do what the machine asks for; what takes its time, `run()` does."""
        for action in self.machine.take_actions():
            match action:
                case Job():
                    if action is Job.DROP:
                        self._jobs.clear()
                        self._stay += 1
                    self._jobs.append(action)
                case Tell(level, event, details):
                    getattr(self._log, level)(event, **details)
                case ReportUnreachable():
                    self.on_unconfirmed()
                case _ if self._client is None:
                    pass
                case Renew(reason):
                    self._client.register_again(reason)
                case MoveAway(reason):
                    self._client.leave_registrar(reason)
                case HeedSilence(is_heeded):
                    self._client.heed_silence(is_heeded)
        for told, is_true in ((self._is_out, self.state in HAS_LEFT), (self._is_gone, self.machine.is_gone)):
            if is_true:
                told.set()
            else:
                told.clear()
        self._moved.set()

    async def _do(self, job: Job) -> None:
        if job is Job.BEGIN:
            self._begin()
        elif job is Job.DROP:
            await self._drop()
        elif self._client is not None:
            farewell = asyncio.ensure_future(self._say_farewell())
            confirmed = await self._client.deregister(DEREGISTRATION_TIMEOUT_MS)
            await farewell
            self.machine.left(confirmed=confirmed, now=time.monotonic())
        self._act()

    async def _say_farewell(self) -> None:
        """Register, in a keyed pool, what says that this stay is over; wait for a registrar, but not for
        long.

        It goes another way than the deregistration, and to another registrar where the home is silent. A
        reader without the key takes it for a server: it is the last that such a reader should choose.
        """
        if self._key is None:
            return
        element = self.machine.element
        identifier = self._key.leaving(self.handle, element.identifier)
        is_in = asyncio.Event()

        def told(event: RegistrationEvent) -> None:
            if event.kind is RegistrationEventKind.REGISTERED:
                is_in.set()

        farewell = replace(
            element,
            identifier=identifier,
            life_ms=round(FAREWELL_S * 1000),
            policy=least_wanted(element.policy),
        )
        client = self._client_for(farewell, told)
        try:
            client.start()
        except (RSerPoolError, OSError):
            return  # no SCTP, or the address is gone: the deregistration says as much
        self._farewells.add(client)
        loop = asyncio.get_running_loop()
        loop.call_later(FAREWELL_S, lambda: loop.create_task(self._end_farewell(client)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DEREGISTRATION_TIMEOUT_MS / 1000):
                await is_in.wait()
        self._farewell_at_s = time.monotonic()

    async def _end_farewell(self, client: PoolElementClient) -> None:
        if client in self._farewells:
            self._farewells.discard(client)
            await client.close()

    def _client_for(
        self, element: PoolElement, on_event: Callable[[RegistrationEvent], None]
    ) -> PoolElementClient:
        return self._make_client(
            self._registrars,
            self.handle,
            element,
            local_addresses=[str(address) for address in element.user_transport.addresses],
            reregistration_ms=self._reregistration_ms,
            on_event=on_event,
        )

    def _begin(self) -> None:
        client = self._client_for(self.machine.element, functools.partial(self._on_event, self._stay))
        try:
            client.start()
        except RSerPoolError as error:
            raise FatalError(str(error)) from None
        except OSError as error:
            self.machine.failed(error.strerror or str(error), time.monotonic())
        else:
            self._client = client

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _on_event(self, stay: int, event: RegistrationEvent) -> None:
        if stay == self._stay:
            self.machine.happened(event)
            self._act()
