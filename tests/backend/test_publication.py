"""Which messages a publication sends, to a name server on paper that keeps RFC 2136."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pool_user import Member, PoolView
from rspdns.answers.snapshot import Snapshot
from rspdns.publish import messages, publication
from rspdns.publish.configuration import UpdateKey
from rspdns.publish.keeper import WantedZone
from rspdns.publish.publication import (
    CHECK_EVERY_S,
    CONTESTED_S,
    FIRST_PAUSE_S,
    LEAST_S,
    LIGHT_EVERY_S,
    MOST_CONTRADICTIONS,
    MOST_PAUSE_S,
    SPEAK_AFTER_S,
    TRANSITIONS,
    CheckStep,
    ExchangeEvent,
    ExchangeState,
    Publication,
    PublicationStep,
    ReadStep,
    SendStep,
    WaitStep,
)
from rspdns.publish.rrsets import ABSENT, Rrset, RrsetKey, targets_of
from rspdns.rrset import SvcbData
from rspdns.zones.zone import Zone

from rserpool import LeastUsed, Protocol
from tests.backend.making import FIXED, NOW, TCP, UDP, ZONE, answered, member, view, views, zone

NAME = f"as.{ZONE}"
OWNER = f"_sip._udp.{NAME}"
WEB = """
[[pool]]
handle = "web"
label = "w"
service = "_https._tcp"
name = "as"
accept = ["10.0.0.0/8", "fd00::/16"]
svcb = { alpn = ["h3", "h2"], apex_alias = true }
"""
SRV = RrsetKey(OWNER, "SRV")
KEY = UpdateKey("rspdns", "hmac-sha256", b"0123456789abcdef")


class PaperServer:
    """Keeps RRsets as a primary does. `deaf`: no message arrives. `lies`: what it answers to questions,
    whatever is there."""

    def __init__(self) -> None:
        self.rrsets: dict[RrsetKey, Rrset] = {}
        self.serial = 1
        self.updates = 0
        self.deaf = False
        self.lies: dict[RrsetKey, Rrset] = {}

    def holds(self, expected: Mapping[RrsetKey, Rrset]) -> bool:
        return all(self.rrsets.get(key, ABSENT).data == rrset.data for key, rrset in expected.items())

    def take(self, machine: Publication, step: PublicationStep, now: float) -> None:
        if self.deaf:
            machine.failed(now)
            return
        match step:
            case ReadStep(keys):
                machine.read({key: self.lies.get(key, self.rrsets.get(key, ABSENT)) for key in keys}, now)
            case CheckStep(expected):
                machine.done(now) if self.holds(expected) else machine.contradicted()
            case SendStep(moves, _):
                self.updates += 1
                if not self.holds({move.key: move.before for move in moves if move.before is not None}):
                    machine.contradicted()
                    return
                before = dict(self.rrsets)
                self.rrsets |= {move.key: move.after for move in moves}
                self.rrsets = {key: rrset for key, rrset in self.rrsets.items() if rrset.data}
                self.serial += self.rrsets != before
                machine.done(now)

    def targets(self) -> list[str]:
        return [target.partition(".")[0] for target in targets_of(self.rrsets.get(SRV, ABSENT))]


class Paper:
    """A publication, the belief behind it, and the server. Time goes by only in `run`."""

    def __init__(self, server: PaperServer, *zones: Zone, vouch_every_s: float | None = None) -> None:
        self.server = server
        self.now = NOW
        self.machine = Publication(NOW, lambda: 1.0, vouch_every_s)
        self.sent: list[SendStep] = []
        self.edits: list[RrsetKey] = []
        self.steps = 0
        self._zone = zones[0] if zones else zone()
        self._wanted = WantedZone(ZONE)
        self._snapshot: Snapshot | None = None

    def believe(self, *of_pools: PoolView, new_zone: Zone | None = None) -> None:
        self._zone = new_zone or self._zone
        of_all = views(*of_pools)
        self._snapshot = answered(self._zone, of_all, self._snapshot, now=self.now, seed=self.steps)
        wanted = self._wanted.records(self._snapshot, of_all)
        self.machine.want(wanted.sites, wanted.fresh, wanted.parents, self.now)

    def run(self, seconds: float) -> None:
        """Do all that is due until so many seconds from now."""
        end_s = self.now + seconds
        while True:
            step = self.machine.next(self.now)
            if isinstance(step, WaitStep):
                if step.until_s > end_s:
                    break
                assert step.until_s > self.now, "it turns in circles"
                self.now = step.until_s
                continue
            self.steps += 1
            assert self.steps < 2000, "it turns in circles"
            self.edits += self.machine.take_edits()
            if isinstance(step, SendStep):
                self.sent.append(step)
            self.server.take(self.machine, step, self.now)
        self.now = end_s

    def take_sent(self) -> list[SendStep]:
        sent, self.sent = self.sent, []
        return sent

    def is_right(self) -> bool:
        return self.machine.is_right


def pool(*identifiers: int, **more: Any) -> PoolView:
    return view(*map(member, identifiers), **more)


@pytest.fixture
def server() -> PaperServer:
    return PaperServer()


@pytest.fixture
def paper(server: PaperServer) -> Paper:
    """Three members are there."""
    made = Paper(server)
    made.believe(pool(1, 2, 3))
    made.run(2)
    assert made.is_right()
    assert server.targets() == ["00000001", "00000002", "00000003"]
    made.take_sent()
    return made


def keys(moves: Iterable[publication.Move]) -> set[RrsetKey]:
    return {move.key for move in moves}


def test_first_publication_is_one_message(server: PaperServer) -> None:
    made = Paper(server)
    made.believe(pool(1, 2))
    made.run(2)
    (sent,) = made.take_sent()
    assert keys(sent.moves) == {
        SRV,
        RrsetKey(NAME, "A"),
        RrsetKey(NAME, "NAPTR"),
        RrsetKey(f"00000001.u.{NAME}", "A"),
        RrsetKey(f"00000002.u.{NAME}", "A"),
    }
    assert server.rrsets[SRV].ttl == 1


def test_departure_is_sent_at_once_with_the_address_of_its_target(paper: Paper, server: PaperServer) -> None:
    paper.believe(pool(1, 3))
    paper.run(0)
    (sent,) = paper.take_sent()
    assert keys(sent.moves) == {SRV, RrsetKey(NAME, "A"), RrsetKey(f"00000002.u.{NAME}", "A")}
    assert server.targets() == ["00000001", "00000003"]
    assert RrsetKey(f"00000002.u.{NAME}", "A") not in server.rrsets
    assert all(move.before is not None for move in sent.moves)


def test_members_beyond_an_answer_are_all_there_and_chance_sends_nothing(server: PaperServer) -> None:
    made = Paper(server)
    made.believe(pool(*range(1, 41)))
    made.run(2)
    assert len(server.targets()) == 40
    assert len(server.rrsets[RrsetKey(NAME, "A")].data) == 40
    made.take_sent()
    for _ in range(5):  # each draws anew
        made.believe(pool(*range(1, 41)))
        made.run(2)
    assert made.take_sent() == []


def test_a_full_server_is_not_among_the_addresses_but_among_the_srv_records(server: PaperServer) -> None:
    made = Paper(server)
    made.believe(view(member(1, policy=LeastUsed(0.1)), member(2, policy=LeastUsed(0.99))))
    made.run(2)
    assert server.targets() == ["00000001", "00000002"]
    assert server.rrsets[RrsetKey(NAME, "A")].data == {bytes([10, 0, 0, 1])}


def web(number: int, *addresses: str, load: float = 0.1) -> Member:
    return member(number, *addresses, port=443, policy=LeastUsed(load), protocol=Protocol.TCP)


def https(*members: Member) -> PoolView:
    return view(*members, handle="web")


def test_https_records_are_there_with_the_alias_of_the_apex_and_hints_leave_with_addresses(
    server: PaperServer,
) -> None:
    made = Paper(server, zone(WEB))
    made.believe(https(web(1), web(2)))
    made.run(2)
    assert made.is_right()
    hints = server.rrsets[RrsetKey(NAME, "HTTPS")].data
    assert all(any(bytes([10, 0, 0, number]) in data for data in hints) for number in (1, 2))
    alias = server.rrsets[RrsetKey(ZONE, "HTTPS")]
    assert alias == Rrset(1, frozenset({SvcbData(0, NAME).wire}))
    made.take_sent()
    made.believe(https(web(2)))
    made.run(0)
    (sent,) = made.take_sent()
    address = RrsetKey(f"00000001.w.{NAME}", "A")
    assert keys(sent.moves) >= {RrsetKey(NAME, "HTTPS"), RrsetKey(NAME, "A"), address}
    assert not any(bytes([10, 0, 0, 1]) in data for data in server.rrsets[RrsetKey(NAME, "HTTPS")].data)
    made.believe(pool(1), new_zone=zone(UDP))
    made.run(2)
    assert not any(key.type == "HTTPS" for key in server.rrsets)


def test_overload_moves_the_priority_of_an_https_record_without_hurry(server: PaperServer) -> None:
    made = Paper(server, zone(WEB))
    made.believe(https(web(1, load=0.1), web(2, load=0.2)))
    made.run(2)
    made.take_sent()
    made.believe(https(web(1, load=0.1), web(2, load=0.99)))
    made.run(LIGHT_EVERY_S)
    (sent,) = made.take_sent()
    (move,) = (move for move in sent.moves if move.key.type == "HTTPS")
    assert move.is_light


def test_all_https_records_of_a_large_pool_fit_twice_into_a_message(server: PaperServer) -> None:
    made = Paper(server, zone(f"{WEB}max_members = 2000"))
    many = [web(n, f"10.0.{n // 250}.{n % 250 + 1}", f"fd00::{n:x}") for n in range(1, 1001)]
    made.believe(https(*many))
    made.run(20)
    made.believe(https(*many[1:]))
    made.run(5)
    assert made.is_right()
    for step in made.take_sent():
        assert len(messages.update(ZONE, KEY, step, 300, 0.0).wire) <= 65_535
    assert 100 < len(server.rrsets[RrsetKey(NAME, "HTTPS")].data) < 1000


def test_another_ttl_is_set_after_a_restart(paper: Paper, server: PaperServer) -> None:
    server.rrsets = {key: rrset._replace(ttl=3600) for key, rrset in server.rrsets.items()}
    paper.machine = Publication(paper.now, lambda: 1.0)
    paper.believe(pool(1, 2, 3))
    paper.run(2)
    assert {rrset.ttl for rrset in server.rrsets.values()} == {1}


def test_questions_side_by_side_have_identifiers_of_their_own() -> None:
    asked = messages.questions([RrsetKey(f"{number}.{NAME}", "A") for number in range(64)], KEY, 0.0)
    assert len({question.wire[:2] for question in asked}) == 64


def test_weights_wait_and_a_departure_does_not(paper: Paper, server: PaperServer) -> None:
    def loaded(load: float, *identifiers: int) -> PoolView:
        return view(*(member(identifier, policy=LeastUsed(load)) for identifier in identifiers))

    paper.believe(pool(1, 2))
    paper.run(0)
    assert len(paper.take_sent()) == 1
    paper.run(LEAST_S)
    paper.now += 1  # weights move once a second
    paper.machine._sent_s = paper.now
    paper.believe(loaded(0.5, 1, 2))
    paper.run(LIGHT_EVERY_S - 0.01)
    assert paper.take_sent() == []
    paper.believe(loaded(0.5, 1))
    paper.run(0)
    assert len(paper.take_sent()) == 1
    assert server.targets() == ["00000001"]
    assert paper.is_right(), "the weights went with it"


def test_changes_while_the_server_is_away_are_joined(paper: Paper, server: PaperServer) -> None:
    server.deaf = True
    for members in ((1, 3), (1,), (1, 2), (1, 2, 3, 4), (1, 2, 4)):
        paper.believe(pool(*members))
        paper.run(3)
    assert set(paper.machine.waiting) == {
        SRV,
        RrsetKey(NAME, "A"),
        *(RrsetKey(f"0000000{number}.u.{NAME}", "A") for number in (3, 4)),
    }
    server.deaf = False
    serial = server.serial
    paper.run(MOST_PAUSE_S)
    assert server.serial == serial + 1
    assert server.targets() == ["00000001", "00000002", "00000004"]


def test_pauses_grow(paper: Paper, server: PaperServer) -> None:
    server.deaf = True
    paper.believe(pool(1))
    waits = []
    for _ in range(9):
        step = paper.machine.next(paper.now)
        assert isinstance(step, SendStep)
        paper.machine.failed(paper.now)
        wait = paper.machine.next(paper.now)
        assert isinstance(wait, WaitStep)
        waits.append(wait.until_s - paper.now)
        paper.now = wait.until_s
    assert waits == [FIRST_PAUSE_S, 2, 4, 8, 16, 32, MOST_PAUSE_S, MOST_PAUSE_S, MOST_PAUSE_S]


def test_message_that_was_carried_out_though_no_answer_came_is_no_edit(
    paper: Paper, server: PaperServer
) -> None:
    paper.believe(pool(1, 3))
    step = paper.machine.next(paper.now)
    assert isinstance(step, SendStep)
    server.rrsets |= {move.key: move.after for move in step.moves}
    server.rrsets = {key: rrset for key, rrset in server.rrsets.items() if rrset.data}
    paper.machine.failed(paper.now)
    serial = server.serial
    paper.run(5)
    assert paper.is_right()
    assert (server.serial, paper.edits) == (serial, [])


def test_edit_by_somebody_else_is_repaired_and_told_once(paper: Paper, server: PaperServer) -> None:
    server.rrsets[RrsetKey(NAME, "A")] = Rrset(1, frozenset({bytes([192, 0, 2, 1])}))
    paper.run(CHECK_EVERY_S + CONTESTED_S + 1)
    assert paper.edits == [RrsetKey(NAME, "A")]
    assert len(server.rrsets[RrsetKey(NAME, "A")].data) == 3
    (sent,) = paper.take_sent()
    assert keys(sent.moves) == {RrsetKey(NAME, "A")}, "nothing else is sent"
    paper.run(3 * CHECK_EVERY_S)
    assert (paper.edits, paper.take_sent()) == ([RrsetKey(NAME, "A")], [])


def test_change_that_another_publisher_knew_of_a_moment_earlier_is_no_edit_later(
    paper: Paper, server: PaperServer
) -> None:
    other = Paper(server)
    other.believe(pool(1, 2, 3))
    other.run(2)
    paper.run(2)
    other.believe(pool(1, 2))
    other.run(0)
    paper.believe(pool(1, 3))
    paper.run(CONTESTED_S / 2)
    paper.believe(pool(1, 2))  # the former belief was late
    paper.run(1)
    paper.believe(pool(1))
    paper.run(1)
    assert (paper.edits, server.targets()) == ([], ["00000001"])


def test_removed_srv_record_is_seen_at_the_next_change_too(paper: Paper, server: PaperServer) -> None:
    del server.rrsets[SRV]
    paper.believe(pool(1, 2))
    paper.run(1)
    assert server.targets() == ["00000001", "00000002"]
    assert paper.edits == [SRV]
    assert RrsetKey(f"00000003.u.{NAME}", "A") not in server.rrsets


def test_former_life_leaves_no_targets(server: PaperServer) -> None:
    former = Paper(server)
    former.believe(pool(1, 2, 3))
    former.run(2)
    server.rrsets[RrsetKey(f"ns9.{NAME}", "A")] = Rrset(60, frozenset({bytes([192, 0, 2, 9])}))
    later = Paper(server)
    later.believe(pool(3, 4))
    later.run(2)
    assert server.targets() == ["00000003", "00000004"]
    left = {key.name.partition(".")[0] for key in server.rrsets if key.name.endswith(f".u.{NAME}")}
    assert left == {"00000003", "00000004"}
    assert RrsetKey(f"ns9.{NAME}", "A") in server.rrsets, "it is not ours"
    assert later.edits == []


def test_former_life_leaves_no_targets_of_a_handlespace(server: PaperServer) -> None:
    """Their names end in that of the handlespace."""
    both = zone(UDP + 'handlespaces = ["eu", "us"]')

    def of(eu: int, us: int) -> list[PoolView]:
        return [pool(eu, handle="eu/sip-udp"), pool(us, handle="us/sip-udp")]

    former = Paper(server, both)
    former.believe(*of(1, 2))
    former.run(2)
    assert server.targets() == ["00000001-eu", "00000002-us"]
    later = Paper(server, both)
    later.believe(*of(3, 2))
    later.run(2)
    left = {key.name.partition(".")[0] for key in server.rrsets if key.name.endswith(f".u.{NAME}")}
    assert left == {"00000003-eu", "00000002-us"}


def test_restart_without_a_change_sends_nothing(paper: Paper, server: PaperServer) -> None:
    again = Paper(server)
    again.believe(pool(1, 2, 3))
    again.run(2 * CHECK_EVERY_S)
    assert again.is_right()
    assert again.take_sent() == []


def test_pool_without_members_takes_its_records_along(server: PaperServer) -> None:
    made = Paper(server, zone(f'{UDP}when_empty = "nodata"'))
    made.believe(pool(1))
    made.run(2)
    made.believe(pool())
    made.run(1)
    assert server.rrsets == {}


def test_pool_without_members_has_the_records_of_the_file(server: PaperServer) -> None:
    fixed = f"{FIXED}\n_sip._udp.as SRV 0 1 5060 backup\nbackup A 192.0.2.7\nas A 192.0.2.7\n"
    made = Paper(server, zone(f'{UDP}when_empty = "static"', fixed))
    made.believe(pool(1))
    made.run(2)
    assert server.targets() == ["00000001"]
    made.believe(pool())
    made.run(1)
    assert server.targets() == ["backup"]
    assert server.rrsets.keys() == {SRV, RrsetKey(NAME, "A"), RrsetKey(NAME, "NAPTR")}


def test_pool_that_is_taken_out_of_the_zone_takes_its_records_along(server: PaperServer) -> None:
    web = TCP.replace('"as"', '"web"')
    made = Paper(server, zone(UDP + web))
    made.believe(pool(1), view(handle="sip-tcp"))
    made.run(2)
    assert SRV in server.rrsets
    made.believe(view(handle="sip-tcp"), new_zone=zone(web))
    made.run(2)
    assert server.rrsets == {}


def test_stale_publisher_says_nothing_and_a_fresh_one_goes_on(paper: Paper, server: PaperServer) -> None:
    other = Paper(server)
    other.now = paper.now
    other.believe(pool(1, 2, 3))
    other.run(2)
    paper.run(2)
    stale_since_s = paper.now
    paper.believe(pool(1, 2, 3, stale_since_s=stale_since_s))
    other.believe(pool(3))
    other.run(1)
    assert server.targets() == ["00000003"]
    paper.believe(pool(1, 2, stale_since_s=stale_since_s))  # probed, since no registrar tells
    paper.run(3 * CHECK_EVERY_S)
    assert paper.machine.silent == [NAME]
    assert paper.take_sent() == []
    assert server.targets() == ["00000003"]
    other.run(3 * CHECK_EVERY_S)
    paper.believe(pool(3))
    paper.run(SPEAK_AFTER_S - 0.1)
    assert paper.machine.silent == [NAME]
    paper.run(2)
    assert paper.machine.silent == []
    assert (paper.take_sent(), paper.edits, other.edits) == ([], [], [])


@pytest.mark.parametrize("lag_s", [0.0, 0.01, 0.1])
def test_two_publishers_of_one_belief_change_each_thing_once(server: PaperServer, lag_s: float) -> None:
    both = Paper(server), Paper(server)
    for made in both:
        made.believe(pool(1, 2, 3, 4))
        made.run(2)
    serial = server.serial
    assert serial == 2
    for members in ((1, 2, 3), (1, 2), (1, 2, 5), (2, 5)):
        for made in both:
            made.believe(pool(*members))
            made.run(lag_s)
        for made in both:
            made.run(LEAST_S)
    for made in both:
        made.run(3 * CHECK_EVERY_S)
        assert made.is_right()
        assert made.edits == []
    assert server.targets() == ["00000002", "00000005"]
    assert server.serial == serial + 4


def test_publishers_that_differ_in_weights_alone_tell_of_no_edit(server: PaperServer) -> None:
    both = Paper(server), Paper(server)
    for made, load in zip(both, (0.2, 0.6), strict=True):
        made.believe(view(*(member(identifier, policy=LeastUsed(load)) for identifier in (1, 2))))
        made.run(2)
    for _ in range(4):
        for made in both:
            made.run(CHECK_EVERY_S)
    assert [made.edits for made in both] == [[], []]
    assert max(len(made.sent) for made in both) <= 6, "they do not fight between two checks"


def test_server_that_answers_other_than_it_compares_is_told_without_prerequisites_at_last(
    paper: Paper, server: PaperServer
) -> None:
    target = RrsetKey(f"00000004.u.{NAME}", "A")
    server.lies[target] = Rrset(5, frozenset({bytes([192, 0, 2, 4])}))  # a wildcard
    server.rrsets[SRV] = Rrset(1, frozenset())
    server.rrsets[target] = Rrset(1, frozenset({bytes([192, 0, 2, 8])}))
    paper.believe(pool(1, 2, 3, 4))
    paper.run(10)
    assert server.rrsets[target].data == {bytes([10, 0, 0, 4])}
    sent = paper.take_sent()
    assert len(sent) == MOST_CONTRADICTIONS + 1
    assert all(move.before is None for move in sent[-1].moves)


def test_large_pools_are_sent_in_messages_that_fit_and_nothing_dangles(server: PaperServer) -> None:
    made = Paper(server, zone(f"{UDP}max_members = 2000"))
    many = [member(n, f"10.0.{n // 250}.{n % 250 + 1}", f"fd00::{n:x}") for n in range(1, 1501)]
    made.believe(PoolView("sip-udp", tuple(many), known=True))
    made.run(20)
    sent = made.take_sent()
    assert len(sent) > 2
    for step in sent:
        assert len(messages.update(ZONE, KEY, step, 300, 0.0).wire) <= 65_535
    phases = [move.phase for step in sent for move in step.moves]
    assert phases == sorted(phases), "targets before the SRV records"
    shown = len(server.targets())
    assert 300 < shown < 1500, "as many as fit twice into a message"
    assert {
        len(rrset.data) for key, rrset in server.rrsets.items() if key.name == NAME and key.type == "A"
    } == {shown}
    made.believe(PoolView("sip-udp", tuple(many[1:]), known=True))
    made.run(5)
    for step in made.take_sent():
        assert len(messages.update(ZONE, KEY, step, 300, 0.0).wire) <= 65_535
    assert "00000001" not in server.targets()
    made.run(2 * CHECK_EVERY_S)
    assert made.is_right()


def test_expiry_is_renewed_only_while_all_is_vouched_for(server: PaperServer) -> None:
    made = Paper(server, vouch_every_s=100)
    made.believe(pool(1))
    made.run(350)
    assert [step.vouches for step in made.take_sent()] == [False, True, True, True, True]
    made.believe(pool(1, stale_since_s=made.now))
    made.run(1000)
    assert made.take_sent() == []
    made.believe(pool(1))
    made.run(2)
    assert [step.vouches for step in made.take_sent()] == [True]


def test_table_has_a_way_out_of_every_state_and_nothing_else_is_taken(paper: Paper) -> None:
    assert {state for state, _ in TRANSITIONS} == set(ExchangeState)
    with pytest.raises(KeyError):
        paper.machine.done(0)
    with pytest.raises(KeyError):
        paper.machine.contradicted()
    with pytest.raises(KeyError):
        paper.machine.failed(0)
    assert (ExchangeState.READY, ExchangeEvent.DONE) not in TRANSITIONS
    paper.believe(pool(1))
    assert isinstance(paper.machine.next(paper.now), SendStep)
    with pytest.raises(RuntimeError):
        paper.machine.next(paper.now)
