"""Looks the agent's own PEs up at every registrar, twice a second.

A registrar that was frozen and wakes can delete a PE that moved meanwhile, everywhere, and nobody tells the
PE. Looking is the only way to find out; the registration is then renewed.

While a registrar does not list a PE, the looks are at changing moments. Somebody may remove the PE ten times
a second, and name servers ask twenty times: at the same moments of every half second, an unlucky renewal
would always be removed before the next question.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppe_agent.loop import next_moment
from ppe_agent.registration import ServerRegistration
from ppe_agent.status_model import RegistrarLinkStatus
from rserpool import (
    DEAF,
    REPORTS_THAT_REMOVE,
    RegistrarAddress,
    RegistrarClient,
    Resolution,
    RSerPoolError,
)

INTERVAL_S = 0.5
MISSING_SPREAD_S = 0.1
"""The most that a look is put off while a PE is missing somewhere."""
LOOKS_UNHEARD = 10
"""After so many a registrar that never answered is told of: its address may be wrong."""


class RegistrarWatch:
    """Watches one registrar: is it reachable, and which of the `registrations` does it list."""

    def __init__(
        self,
        address: RegistrarAddress,
        registrations: Sequence[ServerRegistration],  # the agent's own list, which a reload changes
        *,
        make_client: Callable[..., RegistrarClient] = RegistrarClient,
    ) -> None:
        self.address = address
        self._registrations = registrations
        self._log = get_logger("lookup").bind(registrar=str(address))
        self._client = make_client(address, on_link=self._on_link)
        self._is_started = False
        self._looks_unheard = 0
        self._listed: dict[ServerRegistration, bool | None] = {}
        self.problem: Exception | None = None
        """The unexpected error of an answer; None as long as there was none."""

    def lists(self, registration: ServerRegistration) -> bool | None:
        """Tell whether the registrar listed this PE when last asked; None when that is not known."""
        return self._listed.get(registration) if self._client.is_up else None

    def misses_any(self) -> bool:
        """Return whether it lacked a PE when last asked."""
        return self._client.is_up and False in self._listed.values()

    def describe(self) -> RegistrarLinkStatus:
        """Return the registrar for people and programs."""
        return {
            "address": str(self.address),
            "up": self._client.is_up,
            "round_trip_ms": self._client.round_trip_ms,
        }

    def report_unreachable(self, registration: ServerRegistration) -> None:
        """Have the registrar remove a PE that left while its own registrar failed, before any takeover."""
        if self._client.is_up and self.address in registration.registrars:
            for _ in range(REPORTS_THAT_REMOVE):
                self._client.report_unreachable(registration.handle, registration.element.identifier)

    @property
    def _own(self) -> list[ServerRegistration]:
        """Those in its handlespace: it knows nothing of others."""
        return [each for each in self._registrations if self.address in each.registrars]

    def look(self) -> None:
        """Ask which of the registrations it lists. Raises FatalError where there is no SCTP."""
        if not self._is_started:
            self._start()
        self._tell_if_unheard()
        for gone in self._listed.keys() - set(self._registrations):
            del self._listed[gone]
        for handle in sorted(
            {registration.handle for registration in self._own if self._is_looked_up(registration)}
        ):
            try:
                self._client.ask(handle, partial(self._answered, handle))
            except RSerPoolError:
                return  # away: that says nothing about our PEs

    async def close(self) -> None:
        """Ask no more."""
        if self._is_started:
            await self._client.close()

    def _start(self) -> None:
        try:
            self._client.start()
        except RSerPoolError as error:
            raise FatalError(str(error)) from None
        self._is_started = True

    def _tell_if_unheard(self) -> None:
        self._looks_unheard = LOOKS_UNHEARD + 1 if self._client.is_up else self._looks_unheard + 1
        if self._looks_unheard == LOOKS_UNHEARD:
            self._log.warning(
                "registrar_never_heard",
                hint="is this its address, does it run, does every firewall on the way let SCTP pass?",
            )

    def _is_looked_up(self, registration: ServerRegistration) -> bool:
        # While an AS is joining, its pool is looked up for what its other members have in common. An AS that
        # left is looked up until it is seen to be gone; else its status would say for ever that it is listed.
        is_doubtful = registration.is_unconfirmed or self._listed.get(registration) is True
        return registration.state not in DEAF or is_doubtful

    def _answered(self, handle: bytes, answer: Resolution | RSerPoolError) -> None:
        if isinstance(answer, RSerPoolError):
            return  # silent: that says nothing about our PEs
        try:
            for registration in self._own:
                if registration.handle == handle:
                    self._listed[registration] = registration.check_listed(self.address, answer)
        except Exception as problem:  # raised by `RegistrarWatches.run()`
            self.problem = problem

    def _on_link(self, is_up: bool) -> None:
        self._listed.clear()
        self._log.info("registrar_link", up=is_up)


class RegistrarWatches:
    """Watches every registrar of `set_registrars()`: all are asked at the same moments."""

    def __init__(self) -> None:
        self.registrations: list[ServerRegistration] = []
        """Those that are looked up; a reload changes them."""
        self._watches: dict[RegistrarAddress, RegistrarWatch] = {}
        self._left: list[RegistrarWatch] = []
        self.reports = False
        """Whether registrars take reports of unreachable elements from this host; a reload changes it."""

    def set_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Watch these and no others, from the next moment on."""
        for address in self._watches.keys() - set(registrars):
            self._left.append(self._watches.pop(address))
        for address in registrars:
            if address not in self._watches:
                self._watches[address] = RegistrarWatch(address, self.registrations)

    def set_registrations(self, registrations: Sequence[ServerRegistration]) -> None:
        """Look these up and no others; with `reports`, those that leave without its word are reported."""
        self.registrations[:] = registrations
        for registration in registrations:
            registration.on_unconfirmed = partial(self._report_unreachable, registration)

    def listed_by(self, registration: ServerRegistration) -> list[str]:
        """Return the registrars that listed this PE when last asked."""
        return [str(watch.address) for watch in self._watches.values() if watch.lists(registration) is True]

    def describe(self) -> list[RegistrarLinkStatus]:
        """Return the registrars for people and programs."""
        return [watch.describe() for watch in self._watches.values()]

    async def run(self) -> None:
        """Ask for ever, twice a second. Raises FatalError where there is no SCTP."""
        try:
            while True:
                await self._close_left()
                for watch in self._watches.values():
                    if watch.problem is not None:
                        raise watch.problem
                    watch.look()
                await next_moment(INTERVAL_S)
                if any(watch.misses_any() for watch in self._watches.values()):
                    await asyncio.sleep(random.uniform(0, MISSING_SPREAD_S))  # noqa: S311 - no secret
        finally:
            self.set_registrars(())
            await self._close_left()

    async def _close_left(self) -> None:
        while self._left:
            await self._left.pop().close()

    def _report_unreachable(self, registration: ServerRegistration) -> None:
        if self.reports:
            for watch in self._watches.values():
                watch.report_unreachable(registration)
