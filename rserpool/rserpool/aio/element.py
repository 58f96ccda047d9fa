"""A pool element, for asyncio: `PoolElementMachine` on the driver."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence

from rserpool.aio.driver import ASAP, Driver
from rserpool.asap import AsapMessage, Registration
from rserpool.machine.element import Event as Event
from rserpool.machine.element import EventKind as EventKind
from rserpool.machine.element import PoolElementMachine
from rserpool.machine.element import State as State
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import PoolElement, Protocol
from rserpool.policies import Policy
from rserpool.rspregistrar import check_safe


class PoolElementClient:
    """Keeps one pool element registered at one of several registrars until `deregister` or `close`.

    It registers at one registrar, renews the registration every `reregistration_ms`, answers keep-alives,
    follows a takeover by another of `registrars`, and registers at the next one at once when its registrar is
    lost or silent. `element.life_ms` should be three times `reregistration_ms`. `element`'s addresses must be
    among `local_addresses`: a registrar refuses those that are not the association's. A user transport with
    port 0 gets the port of this client's own SCTP socket. `pinned`: takeovers are refused, and after a
    registration was lost nothing is registered again (state STOPPED): whoever pins one makes a new one,
    when it is time. `on_event` is called with each Event; it must not raise, and may call any method here
    that is not async.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        handle: bytes,
        element: PoolElement,
        *,
        local_addresses: Sequence[str],
        reregistration_ms: int = 2000,
        pinned: bool = False,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._machine = PoolElementMachine(
            registrars, handle, element, reregistration_s=reregistration_ms / 1000, pinned=pinned
        )
        self._driver: Driver[AsapMessage, Event] = Driver(
            self._machine,
            ASAP,
            self._told,
            registrars=(each.endpoint for each in registrars),
            local_addresses=local_addresses,
            on_open=self._opened,
        )
        self._on_event = on_event
        self._stopped = asyncio.Event()
        self._was_deregistered = False
        transport = element.user_transport
        self._uses_own_port = transport.protocol is Protocol.SCTP and transport.port == 0

    def start(self) -> None:
        """Begin to register; must run in an event loop.

        Raise SctpUnavailable where there is no SCTP, OSError when an address cannot be bound,
        UnsafeMessageError for a handle or transport that must not be sent.
        """
        check_safe(Registration(self._machine.handle, self._machine.element))
        self._driver.start()
        self._machine.start(time.monotonic())
        self._driver.run()

    @property
    def state(self) -> State:
        """Where the registration stands."""
        return self._machine.state

    @property
    def is_registered(self) -> bool:
        """True while a registrar has confirmed the registration and was not lost since."""
        return self._machine.is_registered

    @property
    def registrar(self) -> RegistrarAddress | None:
        """The registrar in charge, None while there is none."""
        return self._machine.registrar

    @property
    def home_registrar(self) -> int | None:
        """The identifier of the registrar in charge, known from its first keep-alive on."""
        return self._machine.home_registrar

    @property
    def confirmed_at_s(self) -> float | None:
        """When (monotonic) a registrar last confirmed the registration; None: never."""
        return self._machine.confirmed_at_s

    @property
    def element(self) -> PoolElement:
        """What is registered, with the policy as last updated."""
        return self._machine.element

    @property
    def local_port(self) -> int:
        """The SCTP port of this element's socket, 0 while there is none."""
        return self._driver.port

    def update_policy(self, policy: Policy) -> None:
        """Change the policy (a new load, say) and tell the registrar at once."""
        self._machine.update_policy(policy, time.monotonic())
        self._driver.run()

    def update_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Use these registrars from now on; it moves at once when its own is none of them."""
        self._driver.set_registrars(each.endpoint for each in registrars)
        self._machine.update_registrars(registrars, time.monotonic())
        self._driver.run()

    def register_again(self, reason: str) -> None:
        """Renew the registration at once (a look-up missed it, say)."""
        self._machine.register_again(reason, time.monotonic())
        self._driver.run()

    def retry(self) -> None:
        """Make the next attempt at once, after a rejection whose cause is gone, say."""
        self._machine.retry(time.monotonic())
        self._driver.run()

    def leave_registrar(self, reason: str) -> None:
        """Register at another registrar: what the one in charge says is not what the others say.

        It is not chosen, and may not take over, for 10 s; for longer each time, up to a minute.
        """
        self._machine.leave_registrar(reason, time.monotonic())
        self._driver.run()

    def heed_silence(self, is_heeded: bool) -> None:
        """Whether to renew the registration at once when the registrar's keep-alives stop.

        For pools so large that a look-up does not tell whether the element is listed.
        """
        if is_heeded != self._machine.silence.is_heeded:
            self._machine.silence.is_heeded = is_heeded
            self._driver.run()

    async def deregister(self, timeout_ms: int = 500) -> bool:
        """Leave the pool; return True when the registrar confirmed it. Ends in state STOPPED either way."""
        self._machine.deregister(time.monotonic(), timeout_ms / 1000)
        self._driver.run()
        await self._stopped.wait()
        return self._was_deregistered

    async def close(self) -> None:
        """Close the socket without a word; the registrar sees the association end and drops the element."""
        self._machine.stop(time.monotonic())
        self._driver.run()

    def _opened(self, port: int) -> None:
        """Register the port of the socket where no other is given: at the start, and when it is replaced."""
        if self._uses_own_port:
            transport = dataclasses.replace(self.element.user_transport, port=port)
            self._machine.element = dataclasses.replace(self.element, user_transport=transport)

    def _told(self, event: Event) -> None:
        self._was_deregistered |= event.kind is EventKind.DEREGISTERED
        if self._on_event:
            self._on_event(event)
        if event.kind is EventKind.STOPPED:
            self._stopped.set()
