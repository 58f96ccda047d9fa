"""The sentinel: a pool element that tells whether its registrar is settled.

A registrar that has just started answers "not found" for every pool, exactly as it would for an empty pool.
So each registrar gets a pool element of its own in the pool `rspdns-sentinel-<N>`, registered from the
registrar's host, and only once the registrar has been up so long that every agent has registered again. If
a registrar's answer lacks its sentinel, a client knows: this registrar's silence about others means
nothing. Any host that may register can enter that pool, too. The backends believe what is registered at the
registrar's own address only. An element from elsewhere that keeps the sentinel out (a registrar refuses a
policy that differs from the pool's), or fills the pool, is reported as unreachable, which makes the
registrar remove it.

The sentinel is pinned: it never moves to another registrar and refuses to be taken over, or a cut-off
registrar would seem settled through its peers. Each life of the registrar has a sentinel identifier of its
own.

`SentinelLife`, sans-IO, says when it is registered and dropped:

state     change                               next      action
DOWN      UP: registrar reachable              SETTLING  -
SETTLING  `settle_s` later, and it is READY    IN        Enter(fresh identifier)
SETTLING  DOWN: registrar lost                 DOWN      -
IN        DOWN: registrar lost                 DOWN      Leave

STARTED and READY come from whoever runs the registrar: it takes registrations long before it has the
handlespace of its peers, and says READY when it has.

`NumberWatch`, sans-IO, notices that another registrar was given the same number: its sentinel is then in the
pool of ours, and stays; a sentinel of a former life goes within seconds.
"""

import asyncio
import contextlib
import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from daemon_kit.errors import FatalError
from structlog.typing import FilteringBoundLogger

from registrar_config.options import SctpEndpoint
from rserpool import (
    MOST_RESOLVED,
    REPORTS_THAT_REMOVE,
    ElementEvent,
    ElementEventKind,
    ElementState,
    PoolElement,
    PoolElementClient,
    Protocol,
    RegistrarAddress,
    RegistrarClient,
    RegistrarUnreachable,
    Resolution,
    RoundRobin,
    RSerPoolError,
    SctpUnavailable,
    Transport,
    fresh_identifier,
    sentinel_handle,
)


class SentinelInput(enum.Enum):
    """The events in the life of a registrar."""

    UP = "up"
    DOWN = "down"
    STARTED = "started"
    READY = "ready"


class SentinelState(enum.Enum):
    """The state of a sentinel in the life of its registrar."""

    DOWN = "down"
    SETTLING = "settling"
    IN = "in"


@dataclass(frozen=True)
class Enter:
    """Register a new pool element under this identifier."""

    identifier: int


@dataclass(frozen=True)
class Leave:
    """Forget the pool element: its registrar, and with it all that it was good for, is gone."""


SentinelAction = Enter | Leave


class SentinelLife:
    """Follows one registrar.

    `settle_s`: how long it must be reachable without a break. `is_ready`: False when READY will be told,
    True when nobody can tell.
    """

    def __init__(self, settle_s: float, new_identifier: Callable[[], int], *, is_ready: bool) -> None:
        self.state = SentinelState.DOWN
        self._settle_s = settle_s
        self._new_identifier = new_identifier
        self._is_ready = is_ready
        self._settled_at_s: float | None = None

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance()` has something to do next, or None."""
        return self._settled_at_s if self._is_ready else None

    def change(self, change: SentinelInput, now: float) -> SentinelAction | None:
        """Take in what happened. A repeated change changes nothing."""
        if change in (SentinelInput.STARTED, SentinelInput.READY):
            self._is_ready = change is SentinelInput.READY
        elif change is SentinelInput.UP and self.state is SentinelState.DOWN:
            self.state, self._settled_at_s = SentinelState.SETTLING, now + self._settle_s
        elif change is SentinelInput.DOWN:
            was, self.state, self._settled_at_s = self.state, SentinelState.DOWN, None
            return Leave() if was is SentinelState.IN else None
        return None

    def advance(self, now: float) -> SentinelAction | None:
        """Take in that it is `now`."""
        if self.next_deadline_s is None or now < self.next_deadline_s:
            return None
        self.state, self._settled_at_s = SentinelState.IN, None
        return Enter(self._new_identifier())


SHORTEST_S: Final = 30.0


class NumberWatch:
    """Looks at who else is in the sentinel's pool. `life_s`: how long a registration lives unrenewed."""

    def __init__(self, life_s: float) -> None:
        self._limit_s = max(SHORTEST_S, 2 * life_s)
        self._since_s: dict[int, float] = {}
        self._is_told = False

    def look(self, now: float, others: Collection[int]) -> int | None:
        """Take in the identifiers listed beside ours; return, once, that of another registrar's sentinel."""
        self._since_s = {each: self._since_s.get(each, now) for each in others}
        for each, since_s in self._since_s.items():
            if not self._is_told and now - since_s >= self._limit_s:
                self._is_told = True
                return each
        return None


AGENT_REREGISTRATION_MS: Final = 2000
LOOKUP_INTERVAL_S: Final = 1.0
LONGEST_START_S: Final = 6.0
"""rspregistrar looks for a peer for 5 s at its first start, whatever `-mentordiscoverytimeout` says."""
DEREGISTRATION_TIMEOUT_MS: Final = 300
REFUSED_PAUSE_S: Final = 0.25
"""Time between two attempts to get into the pool while others keep the sentinel out of it."""


ANSWER_TIMEOUT_S: Final = 2.0


async def is_settled(number: int, registrar: SctpEndpoint) -> bool:
    """Ask a registrar once whether it lists its own sentinel.

    Raises RSerPoolError when it does not answer in time, SctpUnavailable where there is no SCTP.
    """
    client = RegistrarClient(
        RegistrarAddress(str(registrar.address), registrar.port), timeout_ms=round(ANSWER_TIMEOUT_S * 1000)
    )
    client.start()
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await client.connected()
            resolution = await client.resolve(sentinel_handle(number).encode())
    except TimeoutError:
        raise RegistrarUnreachable(
            client.problem or f"no association within {ANSWER_TIMEOUT_S:g} s"
        ) from None
    finally:
        await client.close()
    return any(
        element.user_transport.addresses == (registrar.address,) for element in resolution.pool_elements
    )


class Sentinel:
    """Registers the sentinel of one registrar, life after life of that registrar.

    `number` is the registrar's position (from 1) in the `registrars` list of the DNS backends. The sentinel
    is registered when the registrar has been reachable for two `agent_reregistration_ms` without a break, and
    ready. `is_watched`: `registrar_started()` and `registrar_ready()` will be called; otherwise the wait is
    long enough for a registrar that finds no peer. `reports`: the registrar removes what is reported as
    unreachable three times, so strangers in the sentinel's pool are reported.
    """

    def __init__(
        self,
        number: int,
        registrar: SctpEndpoint,
        log: FilteringBoundLogger,
        agent_reregistration_ms: int = AGENT_REREGISTRATION_MS,
        *,
        is_watched: bool = False,
        reports: bool = False,
    ) -> None:
        self._reports = reports
        self.handle = sentinel_handle(number).encode()
        self._reregistration_ms = agent_reregistration_ms
        self._life_ms = 3 * agent_reregistration_ms
        self._number = NumberWatch(self._life_ms / 1000)
        self._own = registrar.address
        self._registrar = RegistrarAddress(str(registrar.address), registrar.port)
        self._log = log
        settle_s = 2 * agent_reregistration_ms / 1000
        if not is_watched:
            settle_s = max(settle_s, LONGEST_START_S)
        self._life = SentinelLife(settle_s, fresh_identifier, is_ready=not is_watched)
        self._element: PoolElementClient | None = None
        self._identifier = 0
        self._watch: RegistrarClient | None = None
        self._changes: asyncio.Queue[SentinelInput] = asyncio.Queue()
        self._refused = asyncio.Event()
        self._is_refusal_told = False

    @property
    def heard_at_s(self) -> float | None:
        """When the registrar was heard last, on the monotonic clock; None before the first time."""
        return self._watch.heard_at_s if self._watch else None

    def registrar_started(self) -> None:
        """Take in that the registrar's process was started (again)."""
        self._changes.put_nowait(SentinelInput.STARTED)

    def registrar_ready(self) -> None:
        """Take in that the registrar said it has the handlespace."""
        self._changes.put_nowait(SentinelInput.READY)

    async def run(self, stop: asyncio.Event) -> None:
        """Watch the registrar and keep its sentinel registered until `stop` is set; then deregister it."""
        own = (str(self._own),)
        self._watch = watch = RegistrarClient(self._registrar, local_addresses=own, on_link=self._on_link)
        watch.start()
        work = (self._follow(), self._look_up(watch), self._get_in(watch))
        tasks = [asyncio.create_task(each) for each in work]
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
            await self._withdraw()
            await watch.close()

    async def _follow(self) -> None:
        """Turn what happens to the registrar into registrations."""
        clock = asyncio.get_running_loop()
        while True:
            deadline_s = self._life.next_deadline_s
            timeout_s = None if deadline_s is None else max(0.0, deadline_s - clock.time())
            try:
                async with asyncio.timeout(timeout_s):
                    change = await self._changes.get()
            except TimeoutError:
                await self._act(self._life.advance(clock.time()))
            else:
                await self._act(self._life.change(change, clock.time()))

    async def _act(self, action: SentinelAction | None) -> None:
        if isinstance(action, Enter):
            self._identifier = action.identifier
            self._element = PoolElementClient(
                [self._registrar],
                self.handle,
                self._pool_element(action.identifier),
                local_addresses=(str(self._own),),
                reregistration_ms=self._reregistration_ms,
                pinned=True,
                on_event=self._on_event,
            )
            try:
                self._element.start()
            except (OSError, SctpUnavailable) as problem:
                raise FatalError(f"the sentinel can't speak from {self._own}: {problem}") from None
        elif isinstance(action, Leave) and self._element is not None:
            element, self._element = self._element, None
            await element.close()
            self._log.info("sentinel_dropped", identifier=f"{self._identifier:08x}")

    def _on_link(self, is_up: bool) -> None:
        self._log.info("registrar_link", up=is_up)
        self._changes.put_nowait(SentinelInput.UP if is_up else SentinelInput.DOWN)

    def _on_event(self, event: ElementEvent) -> None:
        if event.kind is ElementEventKind.REGISTERED:
            self._is_refusal_told = False
            self._log.info("sentinel_registered", identifier=f"{self._identifier:08x}")
        elif event.kind is ElementEventKind.REJECTED:
            if not self._is_refusal_told:
                self._log.warning("sentinel_rejected", problem=event.detail)
            self._is_refusal_told = True
            self._refused.set()
        else:
            self._log.debug("sentinel", event_kind=event.kind.value, detail=event.detail)

    async def _look_up(self, watch: RegistrarClient) -> None:
        """Ask for the sentinel every second: it keeps the association in use, and the registrar is heard."""
        while True:
            await asyncio.sleep(LOOKUP_INTERVAL_S)
            if self._element is not None and self._element.state is ElementState.IDLE:
                # Lost without the watch losing the registrar. To be safe, that counts as the end of a life.
                self._on_link(False)
                self._on_link(watch.is_up)
            with contextlib.suppress(RSerPoolError):
                resolution = await watch.resolve(self.handle)
                listed = {element.identifier for element in resolution.pool_elements}
                if self._element is not None and self._identifier not in listed:
                    self._element.register_again("missing at its registrar")
                if len(resolution.pool_elements) >= MOST_RESOLVED:
                    self._remove_strangers(watch, resolution)
                if self._element is not None:
                    self._look_for_another(listed - {self._identifier})

    async def _get_in(self, watch: RegistrarClient) -> None:
        """Each time the registrar refuses the sentinel, have it remove what keeps it out, and try again."""
        while True:
            await self._refused.wait()
            self._refused.clear()
            with contextlib.suppress(RSerPoolError):
                self._remove_strangers(watch, await watch.resolve(self.handle))
            if self._element is not None:
                self._element.retry()
            await asyncio.sleep(REFUSED_PAUSE_S)

    def _remove_strangers(self, watch: RegistrarClient, resolution: Resolution) -> None:
        """Report what is not at the registrar's own address: no sentinel of this pool is elsewhere."""
        if not self._reports:
            return
        strangers = [
            element
            for element in resolution.pool_elements
            if element.user_transport.addresses != (self._own,)
        ]
        for element in strangers:
            for _ in range(REPORTS_THAT_REMOVE):
                watch.report_unreachable(self.handle, element.identifier)

    def _look_for_another(self, others: set[int]) -> None:
        other = self._number.look(asyncio.get_running_loop().time(), others)
        if other is not None:
            self._log.warning(
                "number_taken_twice",
                also_by=f"{other:08x}",
                pool=self.handle.decode(),
                hint="--number is each registrar's own: its position in `registrars` of the DNS backends",
            )

    async def _withdraw(self) -> None:
        if self._element is not None:
            element, self._element = self._element, None
            with contextlib.suppress(RSerPoolError):
                await element.deregister(DEREGISTRATION_TIMEOUT_MS)
            await element.close()

    def _pool_element(self, identifier: int) -> PoolElement:
        """Return the element to register; port 0 becomes that of its own socket."""
        return PoolElement(
            identifier=identifier,
            home_registrar=0,
            life_ms=self._life_ms,
            user_transport=Transport(Protocol.SCTP, 0, (self._own,)),
            policy=RoundRobin(),
        )
