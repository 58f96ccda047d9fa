"""One AS in its pool: what keeps its registration right, beside what a pool element does by itself.

`rserpool.element` has the automaton: it joins when it is wanted, leaves when it is not, and keeps itself
registered meanwhile. `Upkeep` judges by what happens to it and by what every registrar lists: it has the
automaton renew, leave its home or take a fresh identifier, and knows for the operator why the AS is not in.
It takes `now` and has no clock. `ServerRegistration` is the automaton's asyncio client with an `Upkeep`.

Below stand, in this order: what a registrar's answer says of a pool element, when a home is outvoted, the
upkeep, and the asyncio part.

In a keyed pool each stay has an identifier of its own (`rserpool.identity`). Leaving is then said by a second
pool element, the *farewell*, which has the identifier of the leaving state and stays for FAREWELL_S. A server
that is drained says so by a farewell in every pool (`rserpool.drain`), before it leaves.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from daemon_kit.logs import get_logger
from structlog.typing import FilteringBoundLogger

from ppe_agent.advice import IDENTIFIER_TAKEN, advice
from rserpool import (
    DEAF,
    HAS_LEFT,
    MOST_RESOLVED,
    ElementEvent,
    ElementEventKind,
    PoolElement,
    PoolElementClient,
    PoolElementMachine,
    RegistrarAddress,
    Resolution,
    RSerPoolError,
    ServerKey,
    Transport,
    backoff_s,
    drained_life_ms,
    fresh_identifier,
    least_wanted,
)

DOUBTFUL_LIVES = 2
"""After an unconfirmed leave, no registrar lists the AS once this number of lives has passed."""
_SETTLED_AFTER_S = 0.1
"""A registrar tells the others within a millisecond; a question asked sooner than this says little."""
_COLLISION_AFTER_S = 0.3


# One pool element in a registrar's answer


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
        and any(address in mine.addresses for address in listed.addresses)
    )


# When a home is outvoted

LACKED_S: Final = 3.0
"""All others must lack the element for this time. Each home left in vain doubles it, ..."""
LACKED_CEILING_S: Final = 300.0
"""... up to this: when no two registrars reach each other, moving does not help."""
HEARD_S: Final = 2.0
"""A registrar's older word does not count: it is asked twice a second."""


class Outvoted:
    """The words of every registrar on one pool element, against its home. Times are in s, on one clock.

    A home that confirms each registration, while no other registrar lists the element, has lost its peers,
    or is none. A registrar tells its peers of a registration within a millisecond: seconds are no accident.
    """

    def __init__(self) -> None:
        self._said: dict[RegistrarAddress, tuple[bool, float]] = {}
        self._home: RegistrarAddress | None = None
        self._since_s: float | None = None
        self._left = 0

    def leaves_home(
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
        others = [
            said for other, (said, at_s) in self._said.items() if other != home and now - at_s <= HEARD_S
        ]
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


# The upkeep

MISSING_TIMES: Final = 3
"""Another host is suspected when its home lacks it this often within MISSING_WITHIN_S: ..."""
MISSING_WITHIN_S: Final = 5.0
"""... that host takes the identifier and gives it up again, or has it removed."""
TWIN_AFTER_S: Final = 3.0
"""Another element with its address and port is logged after this time: a former run may have left one."""

_PROBLEMS: Final = {
    ElementEventKind.REJECTED: "{} refuses it",
    ElementEventKind.REGISTRAR_LOST: "{} was lost",
    ElementEventKind.REGISTRAR_LEFT: "{} is not believed",
    ElementEventKind.UNREACHABLE: "{} can't be reached",
    ElementEventKind.UNANSWERED: "{} doesn't answer",
}


@dataclass(slots=True)
class UpkeepCounts:
    """Counts since the agent's start."""

    missing: int = 0
    """How often a registrar did not list it."""
    rejected: int = 0
    """How often a registrar refused it."""
    moved: int = 0
    """How often another registrar took over from the one before."""
    collisions: int = 0
    """How often another host was found to have the same identifier."""


class Upkeep:
    """Keeps the registration of `machine` right. Times are in s, monotonic.

    `is_own` is for a keyed pool: whether an identifier is one of this server's stays, or leaves.
    """

    def __init__(
        self,
        machine: PoolElementMachine,
        log: FilteringBoundLogger,
        is_own: Callable[[int], bool] | None = None,
    ) -> None:
        self.problem: str | None = None
        """Why it is not in, in words."""
        self.counts = UpkeepCounts()
        self.taken_by: str | None = None
        """The host that was found last to have its identifier."""
        self.was_in = False
        """Whether a registrar confirmed it in this stay."""
        self.twin: int | None = None
        """Another element of the pool with its address and port."""
        self._machine = machine
        self._log = log
        self._is_own = is_own
        self._missing_at_s: deque[float] = deque(maxlen=MISSING_TIMES)
        self._twin_since_s: float | None = None
        self._outvoted = Outvoted()
        self._registered_at_s = 0.0
        self._left_at_s = float("-inf")
        self._doubted_at_s: float | None = None
        self._unanswered_at_s: float | None = None  # the last attempt, if no registrar answers
        self._last_registrar: RegistrarAddress | None = None
        self._other: PoolElement | None = None  # another member of the pool
        self._logged: set[str] = set()  # problems since it was last registered

    @property
    def is_gone(self) -> bool:
        """True when a registrar confirmed that it left, or was seen without it."""
        return self._doubted_at_s is None

    def is_unconfirmed(self, now: float) -> bool:
        """Tell whether it may be listed though it left: no registrar confirmed that, or was seen without.

        Two of its lives later none lists it any more; in a large pool that can't be seen.
        """
        lives_s = DOUBTFUL_LIVES * self._machine.element.life_ms / 1000
        return self._doubted_at_s is not None and now - self._doubted_at_s < lives_s

    def doubt(self, now: float) -> None:
        """Take in that it may be registered still, by an earlier run of the agent for instance."""
        self._doubted_at_s = now

    # Events of the registration

    def happened(self, event: ElementEvent) -> None:
        """Take in what happened to the registration."""
        match event.kind:
            case ElementEventKind.REGISTERED:
                self._registered_at_s = event.at_s
                self.was_in = True
                self._unanswered_at_s = None
                self.problem = None
                self._logged.clear()
                if self._last_registrar not in (None, event.registrar):
                    self.counts.moved += 1
                self._last_registrar = event.registrar
            case ElementEventKind.UNOPENED:
                self.problem = f"can't register: {event.detail}"
                self._log.error("registration_failed", problem=self.problem)
                return
            case ElementEventKind.REJECTED:
                self._unanswered_at_s = None
                self._rejected(event)
            case kind if kind in _PROBLEMS:
                self.problem = _problem(event)
        if event.kind is ElementEventKind.UNANSWERED:
            self._unanswered_at_s = event.at_s
        self._log_event(event)
        match event.kind:
            case ElementEventKind.DEREGISTERED:
                self._doubted_at_s = None
                self._left(event)
            case ElementEventKind.UNCONFIRMED:
                if self.was_in:
                    self.doubt(event.at_s)
                self._left(event)
            case ElementEventKind.STOPPED:
                self.was_in = False
                self._unanswered_at_s = None

    def _left(self, event: ElementEvent) -> None:
        self.was_in = False
        self._unanswered_at_s = None
        self._left_at_s = event.at_s
        self._log.info("left_pool", confirmed=event.kind is ElementEventKind.DEREGISTERED)

    def _rejected(self, event: ElementEvent) -> None:
        self.counts.rejected += 1
        self.problem = _problem(event)
        what_to_do = advice(event.causes, self._machine.element, self._other)
        if what_to_do:
            self.problem = f"{self.problem}. {what_to_do[0].upper()}{what_to_do[1:]}"
        if any(cause.code in IDENTIFIER_TAKEN for cause in event.causes):
            self._collided(f"registrar {event.registrar} says so", event.at_s)

    # Registrars' answers when they are asked for the pool

    def check_listed(self, registrar: RegistrarAddress, resolution: Resolution, now: float) -> bool | None:
        """Compare a registrar's view with the truth, and register again when the PE is missing from it.

        Return whether it is listed there; None when the answer says nothing about it.
        """
        machine = self._machine
        listed = is_listed(resolution, machine.element.identifier)
        # In a large pool this is the only sign: whom a registrar removed, it sends no keep-alives.
        machine.silence.is_heeded = is_cut(resolution)
        mine, self._other = self._mine_and_another(resolution)
        if listed is False and machine.state in HAS_LEFT and resolution.asked_at_s > self._left_at_s:
            self._doubted_at_s = None
        age_s = resolution.asked_at_s - self._registered_at_s
        home = machine.registrar
        # Only the registrar in charge is sure to have heard of us last: others may show where we were before.
        knows_best = registrar == home and age_s > _COLLISION_AFTER_S
        # A gate drops the registration of an identifier that another host has: no registrar answers.
        is_kept_out = (
            home is None
            and self._unanswered_at_s is not None
            and resolution.asked_at_s > self._unanswered_at_s
        )
        if mine is not None and (knows_best or is_kept_out):
            theirs = mine.user_transport
            if not is_same_server(theirs, machine.element.user_transport):
                where = ", ".join(str(address) for address in theirs.addresses)
                self._collided(f"{where} port {theirs.port}", now)
                return False
        if listed is False and home is not None and age_s > _SETTLED_AFTER_S:
            self.counts.missing += 1
            self._registered_at_s = now
            self._log.warning("missing_at_registrar", registrar=str(registrar))
            if registrar == home and self._is_contested(now):
                return False
            machine.register_again(f"not listed by {registrar}", now)
        # A drained server may be in by another sidecar: the registrar says so that was in charge, or any.
        is_in_or_out = home is not None or machine.state in HAS_LEFT
        if is_in_or_out and registrar == (home or self._last_registrar or registrar):
            self._look_for_twin(resolution, now)
        if self._outvoted.leaves_home(registrar, home, listed, resolution.answered_at_s):
            machine.leave_registrar("it confirms the registration, but no other registrar lists it", now)
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
        twin = next(
            (
                each.identifier
                for each in resolution.pool_elements
                if each.identifier != self._machine.element.identifier
                and is_same_server(each.user_transport, self._machine.element.user_transport)
                and not (self._is_own is not None and self._is_own(each.identifier))
            ),
            None,
        )
        if twin is None:
            self._twin_since_s = self.twin = None
            return
        self._twin_since_s = now if self._twin_since_s is None else self._twin_since_s
        if self.twin is None and now - self._twin_since_s >= TWIN_AFTER_S:
            self.twin = twin
            self._log.error(
                "registered_twice",
                identifier=f"{twin:08x}",
                hint="a second sidecar registers this server: a drain here leaves it in",
            )

    def _mine_and_another(self, resolution: Resolution) -> tuple[PoolElement | None, PoolElement | None]:
        mine = other = None
        for each in resolution.pool_elements:
            if each.identifier == self._machine.element.identifier:
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
        old = self._machine.element.identifier
        if not self._machine.identifier_taken(now, is_certain=whose is not None):
            return False
        new = self._machine.element.identifier
        self.counts.collisions += 1
        if new == old:
            self.problem = f"the sidecar at {whose} registers this server too: give each a handle of its own"
            self._log.error("registered_by_two", also_at=whose, hint="give each sidecar a handle of its own")
        elif whose is None:
            self._log.error(
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
            self._log.error(
                "identifier_collision",
                identifier=f"{old:08x}",
                also_at=whose,
                taken_instead=f"{new:08x}",
                hint=hint,
            )
        return True

    def _log_event(self, event: ElementEvent) -> None:
        details = {"registrar": str(event.registrar)} if event.registrar else {}
        if event.detail:
            details["detail"] = event.detail
        if event.kind is ElementEventKind.REJECTED and self.problem:
            details["problem"] = self.problem
        getattr(self._log, self._level(event.kind))(event.kind.value, **details)

    def _level(self, kind: ElementEventKind) -> str:
        """Return how loud to log: what lasts (no registrar is there) or comes from strangers, only once."""
        if kind in (ElementEventKind.STOPPED, ElementEventKind.UNCONFIRMED):
            return "debug"
        if kind not in _PROBLEMS and kind is not ElementEventKind.TAKEOVER_REFUSED:
            return "info"
        what = self.problem if kind in _PROBLEMS and self.problem else kind.value
        is_news = what not in self._logged
        self._logged.add(what)
        return "warning" if is_news else "debug"


def _problem(event: ElementEvent) -> str:
    problem = _PROBLEMS[event.kind].format(f"registrar {event.registrar}")
    return f"{problem}: {event.detail}" if event.detail else problem


# The asyncio part

FAREWELL_S: Final = 2.0
"""How long the farewell stays, so that those who only ask now and then see it."""
FAREWELL_SAID_S: Final = 0.5
"""How long leaving waits at most for a registrar to take the farewell."""
FAREWELL_SEEN_S: Final = 0.2
"""How long the end of the agent waits for the farewell to be seen."""


class ServerRegistration(PoolElementClient):
    """The pool element of one AS: registered while it is wanted, and looked up at every registrar."""

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handle: bytes,
        element: PoolElement,
        *,
        reregistration_ms: int,
        name: str,
        new_identifier: Callable[[], int] | None = None,
        server_key: ServerKey | None = None,
    ) -> None:
        """`new_identifier` gives a fresh PE identifier; `server_key` is for a keyed pool."""
        self.handle = handle
        self.on_unconfirmed: Callable[[], None] = lambda: None
        """Called when it was in, and left without a registrar's word for it: the others may list it still. If
        it was never in, an element with its identifier is another host's."""
        self._key = server_key
        self._reregistration_ms = reregistration_ms
        super().__init__(
            registrars,
            handle,
            element,
            local_addresses=[str(address) for address in element.user_transport.addresses],
            reregistration_ms=reregistration_ms,
            new_identifier=new_identifier,
            is_keyed=server_key is not None,
            on_event=self._on_registration_event,
        )
        self.upkeep = Upkeep(
            self._machine,
            get_logger("registration").bind(name=name),
            None if server_key is None else self._is_own,
        )
        self._farewells: set[PoolElementClient] = set()
        self._farewell: asyncio.Task[bool] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._farewell_at_s = float("-inf")
        self._is_gone = asyncio.Event()
        self._note_doubt()

    @property
    def is_unconfirmed(self) -> bool:
        """Tell whether it may be listed though it left: no registrar confirmed that, or was seen without."""
        return self.upkeep.is_unconfirmed(time.monotonic())

    def want(self, wanted: bool) -> None:
        """Join or leave; in a keyed pool, a second pool element says that it leaves."""
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None
        is_farewell = self._key is not None and not wanted and self.state not in DEAF
        super().want(wanted)
        if is_farewell and self._key is not None:
            farewell = self._farewell_of(round(FAREWELL_S * 1000))
            self._farewell = asyncio.ensure_future(self._say_farewell(farewell, self._machine.registrars))

    def drain(self, drained_s: float | None) -> None:
        """Leave, and say before for how long an operator takes the server out; None: without an end.

        That is said to the home registrar, and leaving waits until it is taken, but not for long.
        """
        if self._draining is not None and not self._draining.done():
            return
        home = self.registrar
        if home is None:
            self.want(False)
            return
        self._draining = asyncio.ensure_future(self._leave_drained(home, drained_life_ms(drained_s)))

    def doubt(self) -> None:
        """Take in that it may be registered still, by an earlier run of the agent for instance."""
        self.upkeep.doubt(time.monotonic())
        self._note_doubt()

    @property
    def registrars(self) -> Sequence[RegistrarAddress]:
        """The registrars at one of which it is to be registered."""
        return self._machine.registrars

    def check_listed(self, registrar: RegistrarAddress, resolution: Resolution) -> bool | None:
        """Take in a registrar's view of the pool; return whether the PE is listed there, if that is known."""
        listed = self.upkeep.check_listed(registrar, resolution, time.monotonic())
        self._note_doubt()
        self._driver.run()
        return listed

    async def until_begun(self) -> None:
        """Return when it leaves, if it is drained: that takes FAREWELL_SAID_S at most."""
        await asyncio.sleep(0)
        if self._draining is not None:
            await asyncio.wait([self._draining])

    async def until_out(self) -> None:
        """Return when it has left the pool, and its farewell is said."""
        await super().until_out()
        if self._farewell is not None:
            await asyncio.wait([self._farewell])

    async def until_gone(self) -> None:
        """Return when it has left, and a registrar confirmed that, or was seen without it."""
        await self.until_out()
        await self._is_gone.wait()

    async def until_farewell_seen(self) -> None:
        """Return when others had the time to see that it left; at once in a pool without a key."""
        await asyncio.sleep(max(0.0, self._farewell_at_s + FAREWELL_SEEN_S - time.monotonic()))

    async def close(self) -> None:
        """End everything without a word."""
        for task in (self._draining, self._farewell):
            if task is not None:
                task.cancel()
        await super().close()
        for client in tuple(self._farewells):
            await self._end_farewell(client)

    def _is_own(self, identifier: int) -> bool:
        """Whether an identifier is of a stay of this server, or says that it leaves."""
        key = self._key
        return key is not None and (
            key.is_mine(self.handle, identifier) or key.leaving(self.handle, identifier) == identifier
        )

    def _on_registration_event(self, event: ElementEvent) -> None:
        was_in = self.upkeep.was_in
        self.upkeep.happened(event)
        self._note_doubt()
        if event.kind is ElementEventKind.UNCONFIRMED and was_in:
            self.on_unconfirmed()

    def _note_doubt(self) -> None:
        if self.upkeep.is_gone:
            self._is_gone.set()
        else:
            self._is_gone.clear()

    async def _leave_drained(self, home: RegistrarAddress, life_ms: int) -> None:
        """Say at `home` that the server is drained, and leave; without that word if it is not taken."""
        farewell = self._farewell_of(life_ms)
        is_taken = await self._say_farewell(farewell, (home,))
        self._draining = None
        if is_taken:
            super().want(False)
            return
        for client in tuple(self._farewells):
            await self._end_farewell(client)
        self.want(False)

    def _farewell_of(self, life_ms: int) -> PoolElement:
        """The pool element that says that this stay is over. A reader that does not know of it takes it for a
        server: it is the last that such a reader should choose."""
        identifier = fresh_identifier()
        if self._key is not None:
            identifier = self._key.leaving(self.handle, self.element.identifier)
        policy = least_wanted(self.element.policy)
        return replace(self.element, identifier=identifier, life_ms=life_ms, policy=policy)

    async def _say_farewell(self, farewell: PoolElement, registrars: Sequence[RegistrarAddress]) -> bool:
        """Register the farewell; wait for a registrar, but not for long. Return whether one took it.

        It goes another way than the deregistration, and to another of the `registrars` where the first is
        silent.
        """
        is_in = asyncio.Event()

        def note(event: ElementEvent) -> None:
            if event.kind is ElementEventKind.REGISTERED:
                is_in.set()

        client = PoolElementClient(
            registrars,
            self.handle,
            farewell,
            local_addresses=[str(address) for address in self.element.user_transport.addresses],
            reregistration_ms=self._reregistration_ms,
            on_event=note,
        )
        try:
            client.start()
        except (RSerPoolError, OSError):
            return False  # no SCTP, or the address is gone: the deregistration says as much
        self._farewells.add(client)
        loop = asyncio.get_running_loop()
        loop.call_later(FAREWELL_S, lambda: loop.create_task(self._end_farewell(client)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SAID_S):
                await is_in.wait()
        self._farewell_at_s = time.monotonic()
        return is_in.is_set()

    async def _end_farewell(self, client: PoolElementClient) -> None:
        if client in self._farewells:
            self._farewells.discard(client)
            await client.close()
