"""One AS in its pool: joins when it is wanted, leaves when it is not, and stays in meanwhile.

    OUT --wanted--> JOINING --confirmed--> IN
    JOINING, IN --not wanted--> LEAVING --confirmed or timed out--> OUT
    IN --registrar lost--> JOINING --confirmed by another--> IN

What happens between registrar and PE is rserpool's; each stay in the pool gets a client of its own.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from rserpool.client import Resolution
from rserpool.element import PoolElementClient
from rserpool.errors import RSerPoolError
from rserpool.parameters import PoolElement
from rserpool.policies import Policy
from rserpool.pool_element_events import Event, EventKind
from rserpool.registrar_choice import RegistrarAddress

DEREGISTRATION_TIMEOUT_MS = 500
_RETRY_S = 1.0
_MAX_ITEMS = 128  # what a registrar tells of a pool at most
# A registrar tells the others within a millisecond; a question asked sooner than this says little.
_SETTLED_AFTER_S = 0.1

_PROBLEMS = {
    EventKind.REJECTED: "{} refuses it",
    EventKind.REGISTRAR_LOST: "{} was lost",
    EventKind.UNREACHABLE: "{} can't be reached",
    EventKind.UNANSWERED: "{} doesn't answer",
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
        self._told: set[str] = set()  # problems logged since it was last registered
        self._moved = asyncio.Event()
        self._is_out = asyncio.Event()
        self._is_out.set()
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
        settled = resolution.asked_at_s - self._registered_at_s > _SETTLED_AFTER_S
        if listed is False and settled and self._client is not None and self.state is PoolState.IN:
            self.missing_count += 1
            self._registered_at_s = time.monotonic()
            self._log.warning("missing_at_registrar", registrar=str(registrar))
            self._client.register_again(f"not listed by {registrar}")
        return listed

    async def run(self) -> None:
        """Join and leave as wanted, for ever. Raises FatalError when this host can't register anything."""
        while True:
            await self._until(wanted=True)
            try:
                await self._stay()
            except OSError as error:
                self.problem = f"can't register: {error.strerror or error}"
                self._log.error("registration_failed", problem=self.problem)
                await asyncio.sleep(_RETRY_S)

    async def until_out(self) -> None:
        """Return when the AS has left the pool."""
        await self._is_out.wait()

    async def _stay(self) -> None:
        """Join, stay while wanted, leave."""
        client = self._make_client(
            self._registrars,
            self.handle,
            replace(self._element, policy=self._policy),
            local_addresses=[str(address) for address in self._element.user_transport.addresses],
            reregistration_ms=self._reregistration_ms,
            on_event=self._on_event,
        )
        try:
            client.start()
        except RSerPoolError as error:
            raise FatalError(str(error)) from None
        self._client = client
        self._is_out.clear()
        try:
            await self._until(wanted=False)
            self._is_leaving = True
            confirmed = await client.deregister(DEREGISTRATION_TIMEOUT_MS)
            if not confirmed:
                self.on_unconfirmed()
            self._log.info("left_pool", confirmed=confirmed)
        finally:
            self._client = None
            self._is_leaving = False
            self._is_out.set()
            await client.close()

    def _on_event(self, event: Event) -> None:
        if event.kind is EventKind.REGISTERED:
            self._registered_at_s = event.at_s
            self.problem = None
            self._told.clear()
        elif event.kind in _PROBLEMS:
            problem = _PROBLEMS[event.kind].format(f"registrar {event.registrar}")
            self.problem = f"{problem}: {event.detail}" if event.detail else problem
        details = {"registrar": str(event.registrar)} if event.registrar else {}
        if event.detail:
            details["detail"] = event.detail
        getattr(self._log, self._level(event.kind))(event.kind.value, **details)

    def _level(self, kind: EventKind) -> str:
        """Return how loud to log: what lasts (no registrar is there) or comes from strangers, only once."""
        if kind not in _PROBLEMS and kind is not EventKind.TAKEOVER_REFUSED:
            return "debug" if kind is EventKind.STOPPED else "info"
        what = self.problem if kind in _PROBLEMS and self.problem else kind.value
        is_news = what not in self._told
        self._told.add(what)
        return "warning" if is_news else "debug"

    async def _until(self, *, wanted: bool) -> None:
        while self._wanted is not wanted:
            self._moved.clear()
            await self._moved.wait()


def is_listed(resolution: Resolution, identifier: int) -> bool | None:
    """Tell whether a registrar lists the PE; None when its answer was cut to the first 128 without it."""
    if any(element.identifier == identifier for element in resolution.pool_elements):
        return True
    return None if len(resolution.pool_elements) >= _MAX_ITEMS else False
