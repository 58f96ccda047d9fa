"""One AS in its pool: joins when it is wanted, leaves when it is not, and stays in meanwhile.

    OUT --wanted--> JOINING --confirmed--> IN
    JOINING, IN --not wanted--> LEAVING --confirmed or timed out--> OUT
    IN --registrar lost--> JOINING --confirmed by another--> IN
    JOINING, IN --identifier taken by another host--> JOINING with a fresh one

What happens between registrar and PE is rserpool's; each stay in the pool gets a client of its own.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppe_agent.advice import IDENTIFIER_TAKEN, advice
from ppe_agent.collision_pause import CollisionPause
from ppe_agent.listing import is_cut, is_listed, is_same_server
from ppe_agent.outvoted import Outvoted
from rserpool import (
    Policy,
    PoolElement,
    PoolElementClient,
    RegistrarAddress,
    RegistrationEvent,
    RegistrationEventKind,
    Resolution,
    RSerPoolError,
)

DEREGISTRATION_TIMEOUT_MS = 500
_RETRY_S = 1.0
DOUBTFUL_LIVES = 2
# A registrar tells the others within a millisecond; a question asked sooner than this says little.
_SETTLED_AFTER_S = 0.1
_COLLISION_AFTER_S = 0.3

_PROBLEMS = {
    RegistrationEventKind.REJECTED: "{} refuses it",
    RegistrationEventKind.REGISTRAR_LOST: "{} was lost",
    RegistrationEventKind.REGISTRAR_LEFT: "{} is not believed",
    RegistrationEventKind.UNREACHABLE: "{} can't be reached",
    RegistrationEventKind.UNANSWERED: "{} doesn't answer",
}

ClientMaker = Callable[..., PoolElementClient]


class PoolState(Enum):
    """Where an AS stands with its pool."""

    OUT = "out"
    JOINING = "joining"
    IN = "in"
    LEAVING = "leaving"


class Registration:
    """Keeps one pool element in the pool `handle` while it is wanted there."""

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handle: bytes,
        element: PoolElement,
        *,
        reregistration_ms: int,
        name: str,
        make_client: ClientMaker = PoolElementClient,
    ) -> None:
        self.handle = handle
        self.identifier = element.identifier
        self.problem: str | None = None  # why it is not in, in words
        self.missing_count = 0  # how often a registrar did not list it
        self.rejected_count = 0
        self.moved_count = 0  # how often another registrar took over from the one before
        self.collision_count = 0  # how often another host was found to have the same identifier
        self.on_collision: Callable[[], int] = lambda: self.identifier
        """Called when another host has the same identifier; returns a fresh one."""
        self.on_unconfirmed: Callable[[], None] = lambda: None
        """Called when it left without a registrar's word for it: the others may list it still."""
        self._registrars = tuple(registrars)
        self._element = element
        self._policy = element.policy
        self._reregistration_ms = reregistration_ms
        self._make_client = make_client
        self._client: PoolElementClient | None = None
        self._is_leaving = False
        self._registered_at_s = 0.0
        self._wanted = False
        self._was_in = False  # in this stay
        self._is_renumbered = False
        self._pause = CollisionPause()
        self._left_at_s = float("-inf")
        self._other: PoolElement | None = None  # another member of the pool
        self._last_registrar: RegistrarAddress | None = None
        self._told: set[str] = set()  # problems logged since it was last registered
        self._outvoted = Outvoted()
        self._moved = asyncio.Event()
        self._is_out = asyncio.Event()
        self._is_out.set()
        self._is_gone = asyncio.Event()  # a registrar confirmed that it left, or was seen without it
        self._is_gone.set()
        self._doubted_at_s = 0.0
        self._log = get_logger("registration").bind(name=name)

    @property
    def state(self) -> PoolState:
        """Where the AS stands with its pool now."""
        if self._is_leaving:
            return PoolState.LEAVING
        if self._client is None:
            return PoolState.OUT
        return PoolState.IN if self._client.is_registered else PoolState.JOINING

    @property
    def is_unconfirmed(self) -> bool:
        """Tell whether it may be listed though it left: no registrar confirmed that, or was seen without.

        Two of its lives later none lists it any more; in a large pool that can't be seen.
        """
        lives_s = DOUBTFUL_LIVES * self._element.life_ms / 1000
        return not self._is_gone.is_set() and time.monotonic() - self._doubted_at_s < lives_s

    def doubt(self) -> None:
        """Take in that it may be registered still, by an earlier run of the agent for instance."""
        self._is_gone.clear()
        self._doubted_at_s = time.monotonic()

    @property
    def registrar(self) -> RegistrarAddress | None:
        """The registrar in charge, None while there is none."""
        return self._client.registrar if self._client else None

    @property
    def home_registrar(self) -> int | None:
        """The identifier of the registrar in charge, None while not known."""
        return self._client.home_registrar if self._client else None

    def want(self, wanted: bool) -> None:
        """Say whether the AS shall be in the pool; `run()` sees to it at once."""
        self._wanted = wanted
        self._moved.set()

    def update_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Use these registrars from now on; it moves at once when its own is none of them."""
        self._registrars = tuple(registrars)
        if self._client is not None and not self._is_leaving:
            self._client.update_registrars(self._registrars)

    def update_policy(self, policy: Policy) -> None:
        """Change the policy (a new load, say); the registrar hears of it at once."""
        self._policy = policy
        if self._client is not None and not self._is_leaving:
            self._client.update_policy(policy)

    def check_listed(self, registrar: RegistrarAddress, resolution: Resolution) -> bool | None:
        """Compare a registrar's view with the truth, and register again when the PE is missing from it.

        Return whether it is listed there; None when the answer says nothing about it.
        """
        listed = is_listed(resolution, self.identifier)
        if self._client is not None:
            # In a large pool this is the only sign: whom a registrar removed, it sends no keep-alives.
            self._client.heed_silence(is_cut(resolution))
        others = (each for each in resolution.pool_elements if each.identifier != self.identifier)
        self._other = next(others, None)
        mine = next((each for each in resolution.pool_elements if each.identifier == self.identifier), None)
        age_s = resolution.asked_at_s - self._registered_at_s
        if listed is False and self.state is PoolState.OUT and resolution.asked_at_s > self._left_at_s:
            self._is_gone.set()
        # Only the registrar in charge is sure to have heard of us last: others may show where we were before.
        knows_best = registrar == self.registrar and age_s > _COLLISION_AFTER_S and self.state is PoolState.IN
        if mine is not None and knows_best:
            theirs = mine.user_transport
            if not is_same_server(theirs, self._element.user_transport):
                where = ", ".join(str(address) for address in theirs.addresses)
                self._renumber(f"{where} port {theirs.port}")
                return False
        settled = resolution.asked_at_s - self._registered_at_s > _SETTLED_AFTER_S
        if listed is False and settled and self._client is not None and self.state is PoolState.IN:
            self.missing_count += 1
            self._registered_at_s = time.monotonic()
            self._log.warning("missing_at_registrar", registrar=str(registrar))
            self._client.register_again(f"not listed by {registrar}")
        self._leave_if_outvoted(registrar, resolution, listed)
        return listed

    def _leave_if_outvoted(
        self, registrar: RegistrarAddress, resolution: Resolution, listed: bool | None
    ) -> None:
        """Go to another registrar when the one in charge alone knows of the registration, for seconds."""
        home = self.registrar if self.state is PoolState.IN else None
        if self._outvoted.told(registrar, home, listed, resolution.answered_at_s) and self._client:
            self._client.leave_registrar("it confirms the registration, but no other registrar lists it")

    def _renumber(self, whose: str) -> None:
        """Take a fresh identifier: another host has ours, and each registration of one hides the other."""
        old, self.identifier = self.identifier, self.on_collision()
        self.collision_count += 1
        self._log.error(
            "identifier_collision",
            identifier=f"{old:08x}",
            also_at=whose,
            taken_instead=f"{self.identifier:08x}",
            hint="was the state directory copied from another host?",
        )
        self._element = replace(self._element, identifier=self.identifier)
        self._is_renumbered = True
        self._pause.collided(time.monotonic())
        self._moved.set()

    async def run(self) -> None:
        """Join and leave as wanted, for ever. Raises FatalError when this host can't register anything."""
        while True:
            await self._until(wanted=True)
            if (wait_s := self._pause.join_at_s - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
                continue  # it may not be wanted any more
            try:
                await self._stay()
            except OSError as error:
                self.problem = f"can't register: {error.strerror or error}"
                self._log.error("registration_failed", problem=self.problem)
                await asyncio.sleep(_RETRY_S)

    async def until_out(self) -> None:
        """Return when the AS has left the pool."""
        await self._is_out.wait()

    async def until_gone(self) -> None:
        """Return when it has left, and a registrar confirmed that, or was seen without it."""
        await self._is_out.wait()
        await self._is_gone.wait()

    async def _stay(self) -> None:
        """Join, stay while wanted, leave."""
        client = self._make_client(
            self._registrars,
            self.handle,
            self._element_now,
            local_addresses=[str(address) for address in self._element.user_transport.addresses],
            reregistration_ms=self._reregistration_ms,
            on_event=self._on_event,
        )
        self._was_in = False
        try:
            client.start()
        except RSerPoolError as error:
            raise FatalError(str(error)) from None
        self._client = client
        self._is_renumbered = False
        self._is_out.clear()
        try:
            await self._until(wanted=False)
            if self._is_renumbered:
                return  # without deregistering: that would take the other host out
            self._is_leaving = True
            confirmed = await client.deregister(DEREGISTRATION_TIMEOUT_MS)
            if confirmed:
                self._is_gone.set()
            elif self._was_in:
                self.doubt()
            self._left_at_s = time.monotonic()
            if not confirmed:
                self.on_unconfirmed()
            self._log.info("left_pool", confirmed=confirmed)
        finally:
            self._client = None
            self._is_leaving = False
            self._is_out.set()
            await client.close()

    def _on_event(self, event: RegistrationEvent) -> None:
        if event.kind is RegistrationEventKind.REGISTERED:
            self._registered_at_s = event.at_s
            self._was_in = True
            self.problem = None
            self._told.clear()
            if self._last_registrar not in (None, event.registrar):
                self.moved_count += 1
            self._last_registrar = event.registrar
        elif event.kind in _PROBLEMS:
            problem = _PROBLEMS[event.kind].format(f"registrar {event.registrar}")
            self.problem = f"{problem}: {event.detail}" if event.detail else problem
            if event.kind is RegistrationEventKind.REJECTED:
                self._rejected(event)
        details = {"registrar": str(event.registrar)} if event.registrar else {}
        if event.detail:
            details["detail"] = event.detail
        if event.kind is RegistrationEventKind.REJECTED and self.problem:
            details["problem"] = self.problem
        getattr(self._log, self._level(event.kind))(event.kind.value, **details)

    def _rejected(self, event: RegistrationEvent) -> None:
        self.rejected_count += 1
        what_to_do = advice(event.causes, self._element_now, self._other)
        if what_to_do:
            self.problem = f"{self.problem}. {what_to_do[0].upper()}{what_to_do[1:]}"
        if any(cause.code in IDENTIFIER_TAKEN for cause in event.causes):
            self._renumber(f"registrar {event.registrar} says so")

    @property
    def _element_now(self) -> PoolElement:
        return replace(self._element, policy=self._policy)

    def _level(self, kind: RegistrationEventKind) -> str:
        """Return how loud to log: what lasts (no registrar is there) or comes from strangers, only once."""
        if kind not in _PROBLEMS and kind is not RegistrationEventKind.TAKEOVER_REFUSED:
            return "debug" if kind is RegistrationEventKind.STOPPED else "info"
        what = self.problem if kind in _PROBLEMS and self.problem else kind.value
        is_news = what not in self._told
        self._told.add(what)
        return "warning" if is_news else "debug"

    async def _until(self, *, wanted: bool) -> None:
        while self._wanted is not wanted and not (self._is_renumbered and not wanted):
            self._moved.clear()
            await self._moved.wait()
