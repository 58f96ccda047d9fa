"""A belief with registrars to be played by a test."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, ip_network

from pool_user import Cause, Code
from pool_user.belief import Belief, PoolRules
from pool_user.registrars.session import SessionState
from pool_user.views import BeliefChange, Member, PoolView, RememberedPool

from rserpool import LeastUsed, Policy, PoolElement, Protocol, Resolution, Transport, Update, sentinel_handle

POOL = "sip-as-udp"
RULES = PoolRules(accept=(ip_network("10.0.0.0/8"),))
R1, R2, R3 = 0xA1, 0xB2, 0xC3
"""Identifiers of the registrars at indexes 0, 1 and 2."""
IDENTIFIERS = (R1, R2, R3)
TRIP_S = 0.001


def pe(
    identifier: int,
    home: int,
    address: str | None = None,
    port: int = 5060,
    policy: Policy | None = None,
    protocol: Protocol = Protocol.UDP,
) -> PoolElement:
    """A pool element at 10.0.0.<identifier>, from 250 on in the networks after that."""
    where = IPv4Address(address or f"10.0.{identifier // 250 % 250}.{identifier % 250}")
    return PoolElement(
        identifier=identifier,
        home_registrar=home,
        life_ms=6000,
        user_transport=Transport(protocol, port, (where,)),
        policy=policy or LeastUsed(0.0),
    )


class Play:
    """A belief and its clock. Every `answer` is asked at `now` and answered 1 ms later."""

    def __init__(self, registrars: int = 3, pools: tuple[str, ...] = (POOL,)) -> None:
        self.belief = Belief([f"10.9.0.{n + 1}" for n in range(registrars)], dict.fromkeys(pools, RULES))
        self.now = 100.0

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def evaluate(self) -> BeliefChange:
        return self.belief.evaluate(self.now)

    def probe_targets(self) -> dict[str, tuple[Member, ...]]:
        self.evaluate()
        return self.belief.probe_targets()

    def begin_probes(self) -> None:
        """The backend's own probe of each member that is to be probed begins."""
        for handle, members in self.probe_targets().items():
            for member in members:
                self.belief.probing(handle, member, self.now)

    def up(self, *indexes: int) -> None:
        for index in indexes:
            self.belief.link(index, True, self.now)
        self.wait(TRIP_S)

    def down(self, *indexes: int) -> None:
        for index in indexes:
            self.belief.link(index, False, self.now)
        self.wait(TRIP_S)

    def sentinel(self, index: int, *elements: tuple[int, int]) -> None:
        """The registrar answers about its sentinel pool with these (PE identifier, home)."""
        self.answer(
            index,
            *(
                pe(identifier, home, f"10.9.0.{index + 1}", protocol=Protocol.SCTP)
                for identifier, home in elements
            ),
            handle=sentinel_handle(index + 1),
        )

    def settle(self, *indexes: int) -> None:
        """Links up, each with its own sentinel and identifier."""
        for index in indexes:
            self.up(index)
            self.sentinel(index, (0x51 + index, (R1, R2, R3)[index]))

    def follow(self, *indexes: int) -> None:
        """These registrars push changes from now on."""
        for index in indexes:
            self.belief.sessions[index].state = SessionState.FOLLOWED

    def answer(
        self, index: int, *elements: PoolElement, handle: str = POOL, asked_s: float | None = None
    ) -> bool:
        asked_s = self.now if asked_s is None else asked_s
        self.now += TRIP_S
        told = Resolution(handle.encode(), bool(elements), LeastUsed(0.0), elements, asked_s, self.now)
        changed = self.belief.answered(index, told)
        self.evaluate()
        self.now += TRIP_S
        return changed

    def silence(self, *indexes: int) -> None:
        """These registrars leave a question of now unanswered for so long that they are silent."""
        asked_s = self.now
        self.wait(0.6)
        for index in indexes:
            self.belief.unanswered(index, asked_s, self.now)
        self.wait(TRIP_S)

    def view(self, handle: str = POOL) -> PoolView:
        return self.evaluate().views[handle]

    def members(self, handle: str = POOL) -> list[int]:
        return [member.identifier for member in self.view(handle).members]

    def out(self, handle: str = POOL) -> dict[int, str]:
        """The words for each server that left or is listed and out, by identifier."""
        return {identifier: cause.words for identifier, cause in self._causes(handle).items()}

    def causes(self, handle: str = POOL) -> dict[int, Code]:
        return {identifier: cause.code for identifier, cause in self._causes(handle).items()}

    def _causes(self, handle: str) -> dict[int, Cause]:
        view = self.view(handle)
        left = {departure.member.identifier: departure.cause for departure in view.departures}
        return left | {member.identifier: member.cause for member in view.out}

    def remember(
        self,
        members: Iterable[Member],
        recent: Iterable[Member] = (),
        stale_since_s: float | None = None,
        handle: str = POOL,
    ) -> None:
        """The last-known-good file had this pool; a registrar vouched for it until now, or until then."""
        since_s = self.now if stale_since_s is None else stale_since_s
        self.belief.remember(RememberedPool(handle, tuple(members), tuple(recent), since_s), self.now)

    def asked(self) -> set[tuple[int, str]]:
        self.evaluate()
        return {(question.index, question.handle) for question in self.belief.questions()}

    def standings(self) -> list[str]:
        return [state.standing.value for state in self.belief.registrar_states(self.now)]


def push(play: Play, index: int, element: PoolElement, sender: int | None = None, gone: bool = False) -> bool:
    """The registrar at `index` pushes `element`, 1 ms from now."""
    play.wait(TRIP_S)
    sender = IDENTIFIERS[index] if sender is None else sender
    changed = play.belief.updated(index, Update(sender, POOL.encode(), element, gone, play.now))
    play.wait(TRIP_S)
    return changed


def settled() -> Play:
    """Three settled registrars; PE 1 has its home at the first, all list it."""
    play = Play()
    play.settle(0, 1, 2)
    for index in (0, 1, 2):
        play.answer(index, pe(1, R1), pe(2, R2))
    assert play.members() == [1, 2]
    return play
