"""Following registrars as a passive ENRP peer, for asyncio: `FollowerMachine` on the driver."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence

from rserpool.aio.driver import ENRP, Driver
from rserpool.enrp import EnrpMessage
from rserpool.machine.follower import LEAVE_AT_MOST_S, AllLeft, Event, FollowerMachine, Told, reply_to
from rserpool.machine.follower import State as State
from rserpool.machine.registrar_choice import RegistrarAddress


class HandlespaceFollower:
    """Follows `registrars`, each from the moment in which `follow` is called for it.

    A registrar must have the handlespace by then: before, its mentor discovery would choose us, and we have
    nothing to give. `on_event` is called with the registrar's index in `registrars` and what it tells. After
    `Ended` it may be followed again; a growing pause is kept. `on_event` must not raise. `is_wanted` picks
    the pools that tables tell of. The registrars send their own messages to the port that this socket listens
    at, should the association be gone.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        on_event: Callable[[int, Event], None],
        *,
        is_wanted: Callable[[bytes], bool] = lambda handle: True,
        local_addresses: Sequence[str] = (),
    ) -> None:
        self.identifier = 1 + secrets.randbelow(2**32 - 2)
        endpoints = [registrar.enrp_endpoint for registrar in registrars]
        self._machine = FollowerMachine(endpoints, self.identifier, is_wanted)
        self._driver: Driver[EnrpMessage, Told | AllLeft] = Driver(
            self._machine,
            ENRP,
            self._told,
            registrars=endpoints,
            local_addresses=local_addresses,
            reply=lambda message: reply_to(message, self.identifier),
        )
        self._on_event = on_event
        self._all_left = asyncio.Event()

    def start(self) -> None:
        """Open the socket; must run in an event loop. Raise SctpUnavailable, or OSError."""
        self._driver.start()

    def follow(self, index: int) -> None:
        """Follow the registrar with this index from now on; again and again does no harm."""
        self._machine.follow(index, time.monotonic())
        self._driver.run()

    def ask_for_everything(self) -> None:
        """Ask all that are followed for their whole handle table again (other pools are wanted, say)."""
        self._machine.ask_for_everything(time.monotonic())
        self._driver.run()

    def state(self, index: int) -> State:
        """How far a registrar is followed."""
        return self._machine.registrars[index].state

    async def leave(self, timeout_s: float = LEAVE_AT_MOST_S) -> None:
        """Stop following, and return when no registrar waits for us any more: then `close` harms nobody."""
        self._machine.leave(time.monotonic())
        self._driver.run()
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_left.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """Close the socket at once; registrars that were followed last may wait for us for two seconds."""
        self._machine.close()
        self._driver.run()

    def _told(self, event: Told | AllLeft) -> None:
        match event:
            case Told(index, what):
                self._on_event(index, what)
            case AllLeft():
                self._all_left.set()
