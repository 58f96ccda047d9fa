"""A keyed pool: only who proves its place is in, and a drain is told from a removal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address

import pytest
from pool_user import Code
from pool_user.belief import identities
from pool_user.belief.rules import ANSWERED_LATELY_S, VANISHED_AFTER_S, VANISHED_KEPT_S
from pool_user.memory import decode, encode
from pool_user.views import RememberedPool

from rserpool import PoolElement, PoolKey, Protocol, Proven, Transport, Update, prove
from tests.pool_user.belief_support import IDENTIFIERS, POOL, R1, R3, RULES, Play, pe

KEY, NEXT = PoolKey(bytes(32)), PoolKey(b"\x01" * 32)
HANDLE = POOL.encode()
ADDRESS, OTHER, STRANGER = "10.0.0.1", "10.0.0.2", "10.0.0.66"


def identifier(address: str, counter: int = 1, key: PoolKey = KEY, *, leaving: bool = False) -> int:
    server = key.server_key(Protocol.UDP, ip_address(address), 5060)
    return server.identifier(HANDLE, counter, is_leaving=leaving)


def server(address: str, counter: int = 1, key: PoolKey = KEY, *, leaving: bool = False) -> PoolElement:
    return pe(identifier(address, counter, key, leaving=leaving), R1, address)


MINE, THEIRS = identifier(ADDRESS), identifier(OTHER)


class KeyedPlay(Play):
    """A keyed pool with two servers, whose home is the first of three settled registrars."""

    def __init__(self) -> None:
        super().__init__()
        self.belief.set_pools({POOL: replace(RULES, keys=(KEY,))}, self.now)
        self.settle(0, 1, 2)
        self.all_answer(server(ADDRESS), server(OTHER))
        assert self.members() == sorted([MINE, THEIRS])

    def all_answer(self, *elements: PoolElement) -> None:
        for index in (0, 1, 2):
            self.answer(index, *elements)

    def push(self, element: PoolElement, *, gone: bool = False) -> None:
        self.belief.updated(0, Update(R1, HANDLE, element, gone, self.now))
        self.view()
        self.wait(0.001)

    def vanish(self) -> None:
        """No registrar lists MINE any more; nobody said that it leaves."""
        self.all_answer(server(OTHER))

    def targets(self) -> set[int]:
        return {member.identifier for member in self.probe_targets().get(POOL, ())}

    def probe(self, who: int, answers: bool) -> None:
        (member,) = [target for target in self.probe_targets()[POOL] if target.identifier == who]
        self.belief.probed(POOL, member, answers, self.now)

    def events(self, kind: str) -> list[str]:
        return [event.words for event in self.belief.take_events() if event.kind == kind]


@pytest.fixture
def play() -> KeyedPlay:
    return KeyedPlay()


def test_who_proves_nothing_is_refused_counted_and_told(play: KeyedPlay) -> None:
    play.push(pe(0xBAD, R1, STRANGER))
    play.all_answer(server(ADDRESS), server(OTHER), pe(0xBAD, R1, STRANGER))
    assert play.members() == sorted([MINE, THEIRS])
    assert play.belief.refused(POOL)[Code.UNPROVEN] == 4
    assert ["00000bad is not made with the pool's key" in words for words in play.events("refused")] == [True]


def test_an_identifier_at_another_address_shows_no_stranger(play: KeyedPlay) -> None:
    play.push(pe(MINE, R1, STRANGER))
    assert {str(member.addresses[0]) for member in play.view().members} == {ADDRESS, OTHER}
    play.all_answer(pe(MINE, R1, STRANGER), server(OTHER))
    assert {str(member.addresses[0]) for member in play.view().members} == {OTHER}


def test_a_stranger_who_guesses_is_ignored_though_it_hits_at_last(play: KeyedPlay) -> None:
    for number in range(64):
        play.push(pe(0x100 + number, R1, STRANGER))
    play.push(server(STRANGER))
    assert identifier(STRANGER) not in play.members()
    play.wait(601)
    play.settle(0, 1, 2)
    play.all_answer(server(ADDRESS), server(OTHER), server(STRANGER))
    assert identifier(STRANGER) in play.members()


def test_a_registrar_that_lies_keeps_no_server_out_by_guesses(play: KeyedPlay) -> None:
    """The others tell of these elements, too: its home is named in each."""
    for number in range(100):
        forged = pe(0x100 + number, R3, ADDRESS)
        play.belief.updated(2, Update(R3, HANDLE, forged, False, play.now))
        play.belief.updated(0, Update(R3, HANDLE, forged, False, play.now))
        play.wait(0.001)
    play.push(server(ADDRESS, leaving=True))
    assert play.members() == [THEIRS]
    play.push(server(ADDRESS, counter=2))
    assert identifier(ADDRESS, 2) in play.members()


def guess(play: KeyedPlay, address: str, port: int = 5060) -> None:
    """A host claims this address, at each registrar; all registrars tell of it."""
    for home in IDENTIFIERS:
        for number in range(64):
            for index, teller in enumerate(IDENTIFIERS):
                forged = pe(0x100 + number, home, address, port)
                play.belief.updated(index, Update(teller, HANDLE, forged, False, play.now))
    play.wait(0.001)


def test_guesses_at_the_place_of_a_server_keep_it_not_out(play: KeyedPlay) -> None:
    guess(play, ADDRESS)
    play.push(server(ADDRESS), gone=True)
    play.push(server(ADDRESS, counter=2))
    assert identifier(ADDRESS, 2) in play.members()


def test_registrar_that_guesses_keeps_no_server_out_that_was_never_here(play: KeyedPlay) -> None:
    """Honest registrars tell of its forged elements, which name it as their home."""
    for number in range(100):
        forged = pe(0x100 + number, R3, "10.0.0.3")
        for index, teller in enumerate(IDENTIFIERS):
            play.belief.updated(index, Update(teller, HANDLE, forged, False, play.now))
        play.wait(0.001)
    play.push(server("10.0.0.3"))
    assert identifier("10.0.0.3") in play.members()


def test_guesses_keep_no_server_out_that_is_remembered_from_before_a_restart(play: KeyedPlay) -> None:
    after = KeyedPlay()
    third = replace(
        play.view().members[0], identifier=identifier("10.0.0.3"), addresses=(ip_address("10.0.0.3"),)
    )
    after.remember([third])
    after.wait(0.001)
    after.all_answer(server(ADDRESS), server(OTHER))
    guess(after, "10.0.0.3")
    after.push(server("10.0.0.3", 2))
    assert identifier("10.0.0.3", 2) in after.members()


def test_a_guess_that_hits_after_the_limit_takes_no_server_out(play: KeyedPlay) -> None:
    guess(play, ADDRESS)
    play.push(server(ADDRESS, leaving=True))
    assert MINE in play.members()


def test_guesses_at_a_port_keep_no_server_at_another_port_out(play: KeyedPlay) -> None:
    guess(play, "10.0.0.3", port=5070)
    play.push(server("10.0.0.3"))
    assert identifier("10.0.0.3") in play.members()


def test_the_guesses_of_before_do_not_count_when_the_keys_change(play: KeyedPlay) -> None:
    """The sidecars had the new key first."""
    for counter in range(1, 65):
        play.push(server("10.0.0.3", counter, NEXT))
    play.belief.set_pools({POOL: replace(RULES, keys=(KEY, NEXT))}, play.now)
    play.push(server("10.0.0.3", 65, NEXT))
    assert identifier("10.0.0.3", 65, NEXT) in play.members()


def test_an_element_of_thousands_of_addresses_costs_no_more_than_one_of_eight(
    play: KeyedPlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def counted(number: int, handle: bytes, transport: Transport, keys: Sequence[PoolKey]) -> Proven | None:
        tried.append(len(transport.addresses))
        return prove(number, handle, transport, keys)

    monkeypatch.setattr(identities, "prove", counted)
    many = tuple(ip_address(f"10.0.{number >> 8}.{number & 255}") for number in range(5000))
    forged = replace(pe(0xBAD, R1, STRANGER), user_transport=Transport(Protocol.SCTP, 5060, many))
    play.push(forged)
    assert tried == [8]


def test_two_keys_are_valid_while_keys_roll(play: KeyedPlay) -> None:
    play.all_answer(server(ADDRESS), server(OTHER), server("10.0.0.3", key=NEXT))
    assert len(play.members()) == 2
    play.belief.set_pools({POOL: replace(RULES, keys=(KEY, NEXT))}, play.now)
    play.all_answer(server(ADDRESS), server(OTHER), server("10.0.0.3", key=NEXT))
    assert len(play.members()) == 3
    play.belief.set_pools({POOL: replace(RULES, keys=(NEXT,))}, play.now)
    play.all_answer(server(ADDRESS), server(OTHER), server("10.0.0.3", key=NEXT))
    assert play.members() == [identifier("10.0.0.3", key=NEXT)]


def test_who_says_that_it_leaves_is_out_at_once_and_stays_out(play: KeyedPlay) -> None:
    play.push(server(ADDRESS, leaving=True))
    assert play.members() == [THEIRS]
    assert play.causes()[MINE] == Code.WITHDRAWN
    play.vanish()
    assert play.targets() == set()
    play.wait(1)
    assert play.members() == [THEIRS]


def test_the_word_of_leaving_may_come_after_the_removal(play: KeyedPlay) -> None:
    play.vanish()
    assert play.targets() == {MINE}
    play.push(server(ADDRESS, leaving=True))
    assert play.targets() == set()
    play.wait(VANISHED_AFTER_S)
    assert play.members() == [THEIRS]


def test_a_stranger_cannot_say_that_another_leaves(play: KeyedPlay) -> None:
    leaving = identifier(ADDRESS, leaving=True)
    play.push(pe(leaving, R1, STRANGER))
    play.push(pe(leaving ^ 0x100, R1, ADDRESS))
    assert play.members() == sorted([MINE, THEIRS])


def test_word_of_leaving_that_another_than_the_home_tells_takes_nobody_out(play: KeyedPlay) -> None:
    """A registrar that lies kept it: an identifier comes back after 127 others."""
    play.follow(0, 1, 2)
    for home in (R3, R1):
        word = replace(server(ADDRESS, leaving=True), home_registrar=home)
        for index in (1, 2):
            play.belief.updated(index, Update(IDENTIFIERS[index], HANDLE, word, False, play.now))
            assert play.members() == sorted([MINE, THEIRS])
    play.push(server(ADDRESS))
    assert play.members() == sorted([MINE, THEIRS])
    play.push(server(ADDRESS), gone=True)
    assert play.members() == [THEIRS]
    assert play.targets() == set(), "a drain is still told from a removal"


def test_word_of_leaving_that_another_than_the_home_tells_counts_when_the_home_is_lost(
    play: KeyedPlay,
) -> None:
    word = replace(server(ADDRESS, leaving=True), home_registrar=R3)
    play.belief.updated(2, Update(R3, HANDLE, word, False, play.now))
    play.down(0)
    assert play.members() == [THEIRS]


def test_who_left_comes_back_under_another_identifier(play: KeyedPlay) -> None:
    play.push(server(ADDRESS, leaving=True))
    play.all_answer(server(ADDRESS, 2), server(OTHER))
    assert play.members() == sorted([identifier(ADDRESS, 2), THEIRS])


def test_who_vanishes_and_answers_is_shown_for_a_bounded_time(play: KeyedPlay) -> None:
    play.vanish()
    assert play.members() == [THEIRS]
    play.probe(MINE, answers=True)
    play.wait(VANISHED_AFTER_S)
    assert play.members() == sorted([MINE, THEIRS])
    assert len(play.events("vanished")) == 1
    play.wait(VANISHED_KEPT_S - 2 * VANISHED_AFTER_S)
    play.all_answer(server(OTHER))
    assert play.members() == sorted([MINE, THEIRS])
    play.wait(2 * VANISHED_AFTER_S)
    play.all_answer(server(OTHER))
    assert play.members() == [THEIRS]
    play.wait(1)
    play.all_answer(server(OTHER))
    assert play.members() == [THEIRS]
    assert play.targets() == set()


def test_member_that_its_home_hides_from_this_name_server_stays_while_it_answers(play: KeyedPlay) -> None:
    """Its home lies; the other registrars, and so its sidecar, know nothing of it."""
    for _ in range(4):
        play.answer(0, server(OTHER))
        play.answer(1, server(ADDRESS), server(OTHER))
        if play.targets():
            play.probe(MINE, answers=True)
        play.wait(VANISHED_AFTER_S)
        assert play.members() == sorted([MINE, THEIRS])
        play.wait(VANISHED_KEPT_S / 2)
    play.probe(MINE, answers=False)
    assert play.members() == [THEIRS]


def test_who_vanishes_and_does_not_answer_is_out(play: KeyedPlay) -> None:
    play.vanish()
    play.wait(1)
    assert play.members() == [THEIRS]
    play.probe(MINE, answers=True)
    assert play.members() == sorted([MINE, THEIRS])
    play.probe(MINE, answers=False)
    assert play.members() == [THEIRS]


def test_a_vanished_server_that_registers_anew_has_one_place(play: KeyedPlay) -> None:
    play.vanish()
    play.probe(MINE, answers=True)
    play.wait(VANISHED_AFTER_S)
    play.all_answer(server(ADDRESS, 2), server(OTHER))
    assert play.members() == sorted([identifier(ADDRESS, 2), THEIRS])
    assert play.targets() == set()


def test_server_that_is_taken_out_again_and_again_stays_while_it_answers(play: KeyedPlay) -> None:
    """A liar has its home delete each identifier; each is a new one, which no probe has asked yet."""
    play.follow(0, 1, 2)
    play.all_answer(server(OTHER))
    play.push(server(ADDRESS), gone=True)
    play.probe(MINE, answers=True)
    play.wait(VANISHED_AFTER_S)
    for counter in range(2, 6):
        latest = identifier(ADDRESS, counter)
        play.push(server(ADDRESS, counter))
        play.push(server(ADDRESS, counter), gone=True)
        assert play.members() == sorted([latest, THEIRS]), counter
        play.wait(VANISHED_AFTER_S)
    play.probe(latest, answers=False)
    play.all_answer(server(OTHER))
    assert play.members() == [THEIRS]
    play.wait(ANSWERED_LATELY_S)
    play.push(server(ADDRESS, 6))
    play.push(server(ADDRESS, 6), gone=True)
    play.all_answer(server(OTHER))
    assert play.members() == [THEIRS], "that was long ago"


def test_a_restart_takes_from_its_file_only_what_the_key_and_accept_allow(play: KeyedPlay) -> None:
    """The file may have been written before the pool had a key."""
    mine, theirs = play.view().members
    stranger = replace(mine, identifier=0xBAD)
    elsewhere = replace(mine, addresses=(ip_address(STRANGER),))
    foreign = ip_address("192.0.2.1")
    not_accepted = replace(mine, identifier=identifier(str(foreign)), addresses=(foreign,))
    written = [stranger, elsewhere, not_accepted, theirs]
    for members, recent in ((written, []), ([], written)):
        after = Play()
        after.belief.set_pools({POOL: replace(RULES, keys=(KEY,))}, after.now)
        after.remember(members, recent)
        view = after.view()
        assert [member.identifier for member in (*view.members, *view.recent)] == [theirs.identifier]


def test_a_pool_without_key_probes_nobody_that_left() -> None:
    play = Play()
    play.settle(0, 1, 2)
    for elements in ([pe(1, R1), pe(2, R1)], [pe(2, R1)]):
        for index in (0, 1, 2):
            play.answer(index, *elements)
    assert play.members() == [2]
    assert play.probe_targets() == {}


def test_a_server_that_is_registered_twice_has_one_place() -> None:
    play = Play()
    play.settle(0, 1, 2)
    for index in (0, 1, 2):
        play.answer(index, pe(7, R1, ADDRESS), pe(2, R1))
    for index in (0, 1, 2):
        play.answer(index, pe(7, R1, ADDRESS), pe(2, R1), pe(5, R1, ADDRESS))
    assert play.members() == [2, 7]
    assert play.out()[5].startswith("registered twice: the same server is in as 00000007")
    for index in (0, 1, 2):
        play.answer(index, pe(2, R1), pe(5, R1, ADDRESS))
    assert play.members() == [2, 5]


def lie(play: KeyedPlay, *, waited_s: float = 0.0) -> None:
    """A registrar that lies repeats the identifier of MINE with itself as its home, on and on."""
    repeated = replace(server(ADDRESS), home_registrar=R3)
    play.belief.updated(2, Update(R3, HANDLE, repeated, False, play.now))
    play.wait(waited_s)
    play.answer(0, server(OTHER))
    play.answer(1, server(OTHER))
    play.answer(2, repeated, server(OTHER))


def stays_out(play: KeyedPlay) -> None:
    for _ in range(6):
        lie(play, waited_s=30)
        assert play.members() == [THEIRS]


@pytest.mark.parametrize("is_drained", [False, True])
def test_server_that_left_is_out_when_another_home_repeats_its_identifier(
    play: KeyedPlay, is_drained: bool
) -> None:
    play.follow(0, 1, 2)
    play.wait(30)
    if is_drained:
        play.push(server(ADDRESS, leaving=True))
    play.push(server(ADDRESS), gone=True)
    play.all_answer(server(OTHER))
    play.wait(200)
    assert play.members() == [THEIRS]
    lie(play)
    assert play.targets() == {MINE, THEIRS}
    play.probe(MINE, answers=False)
    stays_out(play)
    play.all_answer(server(OTHER))
    lie(play)
    play.probe(MINE, answers=False)
    stays_out(play)
    play.probe(MINE, answers=True)
    assert play.members() == sorted([MINE, THEIRS])


def test_server_that_dies_is_out_when_another_home_repeated_its_identifier_before(play: KeyedPlay) -> None:
    play.follow(0, 1, 2)
    repeated = replace(server(ADDRESS), home_registrar=R3)
    play.belief.updated(2, Update(R3, HANDLE, repeated, False, play.now))
    play.wait(30)
    play.push(server(ADDRESS), gone=True)
    lie(play)
    assert play.targets() == {MINE, THEIRS}
    play.probe(MINE, answers=False)
    stays_out(play)


def test_restart_does_not_bring_back_a_server_whose_identifier_is_repeated(play: KeyedPlay) -> None:
    play.vanish()
    play.wait(1)
    lie(play)
    play.probe(MINE, answers=False)
    view = play.view()
    after = KeyedPlay()
    after.all_answer(server(OTHER))
    after.belief.remember(
        RememberedPool(POOL, (*view.members, *view.unreachable), (), after.now, view.departures), after.now
    )
    lie(after, waited_s=1)
    after.probe(MINE, answers=False)
    stays_out(after)


@pytest.mark.parametrize("is_told_first", [False, True])
def test_member_that_moves_since_its_home_is_lost_is_not_probed_for_long(
    play: KeyedPlay, is_told_first: bool
) -> None:
    moved = replace(server(ADDRESS), home_registrar=R3), replace(server(OTHER), home_registrar=R3)
    if not is_told_first:
        play.down(0)
    for index in (1, 2):
        play.answer(index, *moved)
    if is_told_first:
        play.down(0)
    play.view()
    play.wait(1.5)
    assert play.targets() == set()
    assert play.members() == sorted([MINE, THEIRS])


def restarted(play: KeyedPlay) -> KeyedPlay:
    """A restart of the backend: it knows what its last-known-good file told."""
    (remembered,) = decode(encode({POOL: play.view()}, play.now, 1e9), play.now, 1e9, 3600)
    after = KeyedPlay.__new__(KeyedPlay)
    Play.__init__(after)
    after.now = play.now
    after.belief.set_pools({POOL: replace(RULES, keys=(KEY,))}, after.now)
    after.belief.remember(remembered, after.now)
    return after


def test_members_that_no_probe_reached_in_an_outage_are_no_suspects_after_a_restart(play: KeyedPlay) -> None:
    """The way from here to the servers stays broken; their true home lists them."""
    play.wait(30)
    play.down(0, 1, 2)
    play.view()
    play.probe(MINE, answers=False)
    assert play.members() == [THEIRS]
    after = restarted(play)
    after.settle(0, 1, 2)
    after.all_answer(server(ADDRESS), server(OTHER))
    if MINE in after.targets():
        after.probe(MINE, answers=False)
    after.wait(40)
    after.all_answer(server(ADDRESS), server(OTHER))
    assert after.members() == sorted([MINE, THEIRS])
    assert after.view().suspected == ()


def test_restart_keeps_the_home_of_before_the_lie(play: KeyedPlay) -> None:
    play.vanish()
    play.wait(1)
    lie(play)
    play.probe(MINE, answers=False)
    after = restarted(play)
    after.settle(0, 1, 2)
    lie(after, waited_s=1)
    after.probe(MINE, answers=False)
    stays_out(after)


def test_former_home_that_is_lost_for_long_is_forgotten(play: KeyedPlay) -> None:
    """The sidecars' way to R1 breaks, they register with R3; R1 is taken out of service later, for good."""
    moved = replace(server(ADDRESS), home_registrar=R3), replace(server(OTHER), home_registrar=R3)
    play.wait(30)
    play.all_answer(*moved)
    play.wait(20)
    play.down(0)
    play.wait(25)
    assert play.targets() == {MINE, THEIRS}
    while play.targets():
        deadline_s = play.belief.next_deadline_s
        assert deadline_s is not None, "they would be suspects for ever"
        assert deadline_s < play.now + 60
        play.wait(deadline_s - play.now)
        play.view()
    assert play.members() == sorted([MINE, THEIRS])


def test_server_that_left_is_out_when_its_identifier_is_repeated_while_its_home_is_lost(
    play: KeyedPlay,
) -> None:
    play.vanish()
    play.wait(10)
    play.down(0)
    play.wait(60)
    repeated = replace(server(ADDRESS), home_registrar=R3)
    play.answer(1, server(OTHER))
    play.answer(2, repeated, server(OTHER))
    assert MINE in play.targets()
    play.probe(MINE, answers=False)
    for _ in range(6):
        play.wait(30)
        play.answer(1, server(OTHER))
        play.answer(2, repeated, server(OTHER))
        assert MINE not in play.members()
