"""Hundreds of members taken away at once: the belief and the book of the probes together."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from daemon_kit.finding import Life
from pool_user.probe.probing import ProbeBook, ProbeTarget

from rserpool import PoolElement, PoolKey, Protocol, Update
from tests.pool_user.belief_support import IDENTIFIERS, POOL, R1, RULES, Play, pe

SIZE = 400
KEY = PoolKey(bytes(32))


def address(number: int, network: int = 0) -> str:
    return f"10.{network}.{number // 250}.{number % 250 + 1}"


def keyed(number: int) -> PoolElement:
    server = KEY.server_key(Protocol.UDP, IPv4Address(address(number)), 5060)
    return pe(server.identifier(POOL.encode(), 1), R1, address(number))


class Probed(Play):
    """A large pool whose servers all answer each probe at once."""

    def __init__(self, elements: list[PoolElement], *, is_keyed: bool) -> None:
        super().__init__()
        self.book = ProbeBook()
        self.belief.set_pools({POOL: replace(RULES, keys=(KEY,) if is_keyed else ())}, self.now)
        self.settle(0, 1, 2)
        self.follow(0, 1, 2)
        for index, identifier in enumerate(IDENTIFIERS):
            for element in elements:
                self.belief.updated(index, Update(identifier, POOL.encode(), element, False, self.now))
        self.view()
        self.wait(20)
        assert len(self.members()) == SIZE

    def take_targets(self) -> None:
        view, wanted = self.view(), self.probe_targets().get(POOL, ())
        doubted = {*view.vanished, *view.moving}
        targets = [
            ProbeTarget(POOL, member, is_suspected=True, is_vanished=member.identifier in doubted)
            for member in wanted
        ]
        self.book.set_targets(targets, self.now)

    def probe(self) -> None:
        for target in self.book.due(self.now):
            self.belief.probing(POOL, target.member, self.now)
            for change in self.book.result(target, Life.ALIVE, self.now):
                self.belief.probed(POOL, change.target.member, change.reachable, self.now)

    def fewest_shown(self, seconds: float) -> int:
        """The fewest of the servers that a view shows from now on; every view shows these only."""
        servers = {address(number) for number in range(SIZE)}
        fewest = SIZE
        for step in range(int(seconds / 0.05)):
            if step % 2 == 0:
                self.take_targets()
                shown = {str(member.addresses[0]) for member in self.view().members}
                assert shown <= servers
                fewest = min(fewest, len(shown))
            self.probe()
            self.wait(0.05)
        return fewest


def test_none_of_hundreds_that_answer_moves_to_where_a_liar_tells_them() -> None:
    play = Probed([pe(number + 1, R1, address(number)) for number in range(SIZE)], is_keyed=False)
    for number in range(SIZE):
        moved = pe(number + 1, R1, address(number, network=9), 6666)
        play.belief.updated(0, Update(R1, POOL.encode(), moved, False, play.now))
    assert play.fewest_shown(4) == SIZE


def test_hundreds_that_are_removed_from_a_keyed_pool_are_asked_in_time() -> None:
    """The other registrars go on listing them, so that the crowd is questioned for its whole time."""
    elements = [keyed(number) for number in range(SIZE)]
    play = Probed(elements, is_keyed=True)
    for element in elements:
        play.belief.updated(0, Update(R1, POOL.encode(), element, True, play.now))
    assert play.fewest_shown(4) > SIZE * 0.9
    assert len(play.members()) == SIZE
