"""When secondaries are told and asked, what is wrong at them, and the tables that name them."""

import itertools
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rrset
import dns.tsig
import pytest
from daemon_kit.config_file import ConfigurationErrors
from hypothesis import given
from hypothesis import strategies as st
from rspdns.answers.change import difference
from rspdns.answers.snapshot import Snapshot
from rspdns.configuration import load_configuration
from rspdns.rrset import Record, SoaData
from rspdns.secondaries import messages
from rspdns.secondaries.configuration import read_tsig
from rspdns.secondaries.keeper import has_other_content
from rspdns.secondaries.schedule import (
    ASK_AFTER_S,
    ASK_AT_LEAST_EVERY_S,
    ASK_EVERY_S,
    BEHIND_S,
    MOST_PAUSE_S,
    PACE_FAILING_S,
    PACE_S,
    SILENT_S,
    TRANSITIONS,
    NotifyInput,
    NotifyState,
    PurgedZones,
    Trouble,
    ZoneUpkeep,
    distance,
)

from rserpool import LeastUsed
from tests.backend.making import NOW, UDP, ZONE, answered, member, view, views, zone

NOERROR, REFUSED = "NOERROR", "REFUSED"
SOA = Record(ZONE, "SOA", SoaData(f"ns1.{ZONE}", f"hostmaster.{ZONE}", 7, 3600, 600, 86400, 1), 1)
KEY = 'key "notify" {\n\talgorithm hmac-sha256;\n\tsecret "bm90IHNvIHNlY3JldCBpbiBoZXJlIQ==";\n};\n'


class Played:
    """An upkeep, and the time; `run()` sends what is due and answers nothing."""

    def __init__(self, serial: int = 7, *, signs: bool = False) -> None:
        self.now = NOW
        self.upkeep = ZoneUpkeep(serial, self.now, signs=signs)
        self.sent: list[tuple[float, NotifyState]] = []

    def run(self, seconds: float) -> list[NotifyState]:
        """Let time pass; return what was sent."""
        end_s, before = self.now + seconds, len(self.sent)
        while self.upkeep.due_s <= end_s:
            self.now = max(self.now, self.upkeep.due_s)
            self.sent += [(round(self.now - NOW, 3), asked) for asked in self.upkeep.take(self.now)]
        self.now = end_s
        return [asked for _, asked in self.sent[before:]]

    def right(self, serial: int) -> None:
        """It was told, took it, and has this serial."""
        self.run(0)
        self.upkeep.notify_answered(NOERROR, self.now)
        self.run(ASK_AFTER_S)
        self.upkeep.soa_answered(NOERROR, serial, serial, self.now)

    @property
    def trouble(self) -> Trouble | None:
        problem = self.upkeep.problem(self.now)
        return None if problem is None else problem.trouble


def test_first_change_is_told_at_once_and_ten_a_second_follow() -> None:
    played = Played()
    played.right(7)
    began = len(played.sent)
    for serial in range(8, 208):
        played.upkeep.changed(serial, played.now)
        played.run(0.01)
        played.upkeep.notify_answered(NOERROR, played.now)
    notifies = [at_s for at_s, asked in played.sent[began:] if asked is NotifyState.NOTIFY]
    assert notifies[0] == round(ASK_AFTER_S, 3)
    assert 19 <= len(notifies) <= 21, "in 2 s"
    gaps = [later - earlier for earlier, later in itertools.pairwise(notifies)]
    assert min(gaps) >= PACE_S - 0.001


def test_secondary_that_is_right_is_asked_a_minute_later() -> None:
    played = Played()
    played.right(7)
    assert [asked for _, asked in played.sent] == [NotifyState.NOTIFY, NotifyState.ASK]
    assert played.upkeep.is_right
    assert played.upkeep.behind() == 0
    assert played.run(ASK_EVERY_S - 1) == []
    assert played.run(2)[0] is NotifyState.ASK


def test_lost_notify_is_repeated_with_growing_pauses() -> None:
    played = Played()
    played.run(300)
    times = [at_s for at_s, _ in played.sent]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 1
    assert MOST_PAUSE_S <= gaps[-1] <= MOST_PAUSE_S + 1
    assert played.trouble is Trouble.SILENT
    assert played.upkeep.repeats == played.upkeep.notifies - 1


def test_changes_do_not_hasten_the_repeats_to_a_silent_secondary_beyond_one_a_second() -> None:
    played = Played()
    for serial in range(8, 1008):
        played.upkeep.changed(serial, played.now)
        played.run(0.01)
    late = [at_s for at_s, _ in played.sent if at_s > SILENT_S + 1]
    assert len(late) <= (10 - SILENT_S) / PACE_FAILING_S + 1
    assert played.trouble is Trouble.SILENT
    assert played.upkeep.serial == 1007, "the last serial alone is kept"
    played.upkeep.notify_answered(NOERROR, played.now)
    assert played.trouble is None


def test_secondary_that_saw_an_old_soa_is_told_again_at_once() -> None:
    played = Played()
    played.right(7)
    played.upkeep.changed(8, played.now)
    played.run(0)
    played.upkeep.notify_answered(NOERROR, played.now)
    played.run(ASK_AFTER_S)
    played.upkeep.soa_answered(NOERROR, 7, 8, played.now)
    assert played.run(0) == [NotifyState.NOTIFY]
    assert played.trouble is None, "not yet"


def test_secondary_that_never_transfers_is_called_behind() -> None:
    played = Played()
    played.right(7)
    played.upkeep.changed(9, played.now)
    for _ in range(100):
        sent = played.run(0.1)
        for asked in sent:
            if asked is NotifyState.NOTIFY:
                played.upkeep.notify_answered(NOERROR, played.now)
            else:
                played.upkeep.soa_answered(NOERROR, 7, 9, played.now)
    assert played.trouble is Trouble.BEHIND
    assert played.upkeep.behind() == 2
    assert "7 there, 9 here" in played.upkeep.problem(played.now).words  # type: ignore[union-attr]
    assert played.now - NOW > BEHIND_S
    assert len(played.sent) < 15, "with growing pauses"


def test_zone_that_changes_all_the_time_is_asked_about_too() -> None:
    played = Played()
    played.right(7)
    for serial in range(8, 408):
        played.upkeep.changed(serial, played.now)
        for asked in played.run(0.05):
            if asked is NotifyState.NOTIFY:
                played.upkeep.notify_answered(NOERROR, played.now)
            else:
                played.upkeep.soa_answered(NOERROR, serial - 3, serial, played.now)
    times = [at_s for at_s, asked in played.sent if asked is NotifyState.ASK and at_s > 1]
    assert 2 <= len(times) <= 20 / ASK_AT_LEAST_EVERY_S + 1
    assert played.trouble is None, "three behind, and it follows"


@pytest.mark.parametrize(
    ("rcode", "there", "trouble", "words"),
    [
        (REFUSED, None, Trouble.ABSENT, "does not serve the zone (REFUSED)"),
        (NOERROR, None, Trouble.ABSENT, "does not serve the zone (no SOA)"),
        (NOERROR, 9, Trouble.AHEAD, "has a later serial (9 there, 7 here)"),
        (NOERROR, 7, None, ""),
    ],
)
def test_answer_about_the_serial(rcode: str, there: int | None, trouble: Trouble, words: str) -> None:
    played = Played()
    played.run(0)
    played.upkeep.notify_answered(NOERROR, played.now)
    played.run(ASK_AFTER_S)
    played.upkeep.soa_answered(rcode, there, 7, played.now)
    assert played.trouble is trouble
    problem = played.upkeep.problem(played.now)
    assert (problem.words if problem else "").startswith(words)
    assert played.upkeep.is_right == (trouble is None)


def test_serial_that_moved_without_other_content_is_not_ahead() -> None:
    """Chance drew anew at PowerDNS, and the secondary asked by itself."""
    played = Played()
    played.run(0)
    played.upkeep.notify_answered(NOERROR, played.now)
    played.run(ASK_AFTER_S)
    played.upkeep.soa_answered(NOERROR, 12, 13, played.now)
    assert played.trouble is None
    assert played.upkeep.is_right


def test_secondary_that_signs_counts_serials_of_its_own() -> None:
    played = Played(signs=True)

    def answer(there: int) -> None:
        played.run(0)
        played.upkeep.notify_answered(NOERROR, played.now)
        played.run(ASK_AFTER_S)
        played.upkeep.soa_answered(NOERROR, there, played.upkeep.serial, played.now)

    def state() -> tuple[Trouble | None, bool]:
        return played.trouble, played.upkeep.is_right

    answer(12)
    assert state() == (None, True)
    played.upkeep.changed(8, played.now)
    answer(12)
    played.now += BEHIND_S
    assert state() == (Trouble.BEHIND, False), "its serial did not move"
    answer(13)
    assert state() == (None, True)
    played.upkeep.changed(2000, played.now)
    answer(14)
    assert played.upkeep.behind() == 1986, "a serial of its own is never below ours"


def test_refused_notify_is_a_problem_until_one_is_taken() -> None:
    played = Played()
    played.run(0)
    played.upkeep.notify_answered(REFUSED, played.now)
    assert played.trouble is Trouble.REFUSED
    assert played.run(0.3) == [NotifyState.ASK], "it may have the zone all the same"
    played.upkeep.soa_answered(NOERROR, 7, 7, played.now)
    assert played.trouble is Trouble.REFUSED
    played.upkeep.changed(8, played.now)
    played.run(0)
    played.upkeep.notify_answered(NOERROR, played.now)
    assert played.trouble is None


inputs = st.lists(st.tuples(st.sampled_from(list(NotifyInput)), st.integers(0, 400)), max_size=60)


@given(inputs)
def test_whatever_comes_it_goes_on_and_keeps_the_pace(steps: list[tuple[NotifyInput, int]]) -> None:
    played, serial = Played(), 7
    for event, wait_ms in steps:
        played.run(wait_ms / 1000)
        match event:
            case NotifyInput.CHANGED:
                serial += 1
                played.upkeep.changed(serial, played.now)
            case NotifyInput.TAKEN:
                played.upkeep.notify_answered(NOERROR, played.now)
            case NotifyInput.REFUSED:
                played.upkeep.notify_answered(REFUSED, played.now)
            case NotifyInput.RIGHT | NotifyInput.BEHIND | NotifyInput.AHEAD:
                there = serial + {NotifyInput.RIGHT: 0, NotifyInput.BEHIND: -1, NotifyInput.AHEAD: 1}[event]
                played.upkeep.soa_answered(NOERROR, there, serial, played.now)
            case NotifyInput.ABSENT:
                played.upkeep.soa_answered(REFUSED, None, serial, played.now)
            case NotifyInput.DUE:
                pass
    notifies = [at_s for at_s, asked in played.sent if asked is NotifyState.NOTIFY]
    in_any_second = max((sum(at_s <= other < at_s + 1 for other in notifies) for at_s in notifies), default=0)
    assert in_any_second <= 11
    before = len(played.sent)
    played.run(ASK_EVERY_S + MOST_PAUSE_S)
    assert len(played.sent) > before, "it never ends"


def test_table_has_a_way_on_from_each_state() -> None:
    for state in NotifyState:
        assert (state, NotifyInput.DUE) in TRANSITIONS
        assert TRANSITIONS[state, NotifyInput.CHANGED] is NotifyState.NOTIFY


def test_serials_are_compared_around_their_end() -> None:
    assert distance(2**32 - 1, 1) == 2
    assert distance(1, 2**32 - 1) == -2
    assert distance(5, 5) == 0


def test_notify_waits_for_the_purge_at_every_powerdns() -> None:
    purged = PurgedZones(["/a", "/b"])
    assert purged.changed([ZONE], 10.0) == []
    assert purged.purged("/a", [ZONE], 9.9) == [], "made before the change"
    assert purged.purged("/a", [f"as.{ZONE}"], 10.1) == [], "not the apex"
    assert purged.purged("/a", [ZONE], 10.1) == []
    assert purged.purged("/b", [f"{ZONE}$"], 10.2) == [ZONE], "with all below it"
    assert purged.purged("/b", [ZONE], 10.3) == []


def test_change_after_a_purge_waits_for_the_next() -> None:
    purged = PurgedZones(["/a"])
    purged.changed([ZONE], 10.0)
    purged.changed([ZONE], 10.2)
    assert purged.purged("/a", [ZONE], 10.1) == [ZONE]
    assert purged.purged("/a", None, 10.25) == [ZONE], "nothing is cached there"


def test_powerdns_that_does_not_purge_holds_up_no_notify() -> None:
    purged = PurgedZones(["/a"])
    purged.changed([ZONE], 10.0)
    assert purged.overdue(10.5) == []
    assert purged.next_due_s == 11.0
    assert purged.overdue(11.0) == [ZONE]
    assert PurgedZones([]).changed([ZONE], 10.0) == [ZONE], "no PowerDNS to purge"


def test_notify_has_the_new_soa_and_its_answer_is_read() -> None:
    wire = messages.with_number(messages.notify(ZONE, SOA).to_wire(), 4711)
    read = dns.message.from_wire(wire)
    assert (read.id, read.opcode(), read.flags & dns.flags.AA) == (4711, dns.opcode.NOTIFY, dns.flags.AA)
    assert str(read.answer[0][0]) == f"ns1.{ZONE}. hostmaster.{ZONE}. 7 3600 600 86400 1"
    answer = dns.message.make_response(read)
    answer.set_rcode(dns.rcode.REFUSED)
    assert messages.answer_number(answer.to_wire()) == 4711
    assert messages.answer_number(wire) is None, "a question"
    assert messages.notify_answer(answer.to_wire(), None, b"") == REFUSED


def test_signed_notify_needs_a_signed_answer(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    key = read_tsig(str(file))
    signed = messages.signed(messages.notify(ZONE, SOA), 4711, key)
    asked = dns.message.from_wire(signed.wire, keyring={key.name: key})
    good = dns.message.make_response(asked).to_wire()
    assert messages.notify_answer(good, key, signed.mac) == NOERROR
    assert messages.notify_answer(good, key, b"another" * 4) is None
    bare = messages.notify(ZONE, SOA)
    bare.flags |= dns.flags.QR
    assert messages.notify_answer(bare.to_wire(), key, signed.mac) is None, "anybody could write that"
    bare.set_rcode(dns.rcode.REFUSED)
    assert messages.notify_answer(bare.to_wire(), key, signed.mac) == REFUSED, "it lacks the key"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (16, "(BADSIG): its key of this name has another secret"),
        (17, "(BADKEY): it does not know the key"),
        (18, "(BADTIME): its clock and that of this host differ"),
    ],
)
def test_refused_key_or_clock_is_told(tmp_path: Path, error: int, words: str) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    key = read_tsig(str(file))
    signed = messages.signed(messages.notify(ZONE, SOA), 4711, key)
    refusal = dns.message.make_response(dns.message.from_wire(signed.wire, keyring={key.name: key}))
    refusal.set_rcode(dns.rcode.NOTAUTH)
    refusal.use_tsig({key.name: key}, key.name, tsig_error=error)
    said = messages.notify_answer(refusal.to_wire(), key, signed.mac)
    assert said is not None
    played = Played()
    played.run(0)
    played.upkeep.notify_answered(said, played.now)
    problem = played.upkeep.problem(played.now)
    assert problem is not None
    assert words in problem.words


def test_serial_is_read_from_an_answer_with_authority_alone() -> None:
    asked = messages.soa_question(ZONE)
    answer = dns.message.make_response(asked)
    answer.answer.append(dns.rrset.from_text(f"{ZONE}.", 1, "IN", "SOA", "ns. h. 9 1 1 1 1"))
    assert messages.soa_answer(answer.to_wire(), ZONE) == (NOERROR, None)
    answer.flags |= dns.flags.AA
    assert messages.soa_answer(answer.to_wire(), ZONE) == (NOERROR, 9)
    assert messages.soa_answer(answer.to_wire(), "other.example") == (NOERROR, None)


@given(st.binary(max_size=200))
def test_garbage_is_no_answer(data: bytes) -> None:
    messages.answer_number(data)
    if len(data) >= 12:
        messages.notify_answer(data, None, b"")
        messages.soa_answer(data, ZONE)


TWENTY = [member(number, policy=LeastUsed(number / 40)) for number in range(1, 21)]


def test_other_draw_is_no_reason_for_a_notify_but_another_weight_is() -> None:
    pools = zone(UDP)
    before = answered(pools, views(view(*TWENTY)))
    drawn = answered(pools, views(view(*TWENTY)), before, now=NOW + 5, serial=2, seed=7)
    assert drawn.zone_answers[ZONE].serial == 2
    assert not has_other_content(difference(before, drawn).zones[ZONE])
    gone = answered(pools, views(view(*TWENTY[1:])), drawn, now=NOW + 6, serial=3)
    assert has_other_content(difference(drawn, gone).zones[ZONE])
    unknown = answered(pools, {}, serial=4)
    assert not has_other_content(difference(Snapshot(), unknown).zones[ZONE]), "it can't be transferred"
    assert has_other_content(difference(unknown, gone).zones[ZONE])


def write(folder: Path, text: str) -> Path:
    (folder / "zones.d").mkdir(exist_ok=True)
    (folder / "zones.d" / f"{ZONE}.toml").write_text(f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\n{UDP}')
    (folder / "zones.d" / f"{ZONE}.zone").write_text("$TTL 9\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 10.0.0.1\n")
    file = folder / "rspdns.toml"
    file.write_text(f'registrars = ["10.0.0.1"]\n{text}')
    return file


def errors(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationErrors) as raised:
        load_configuration(write(folder, text))
    return [line.partition("rspdns.toml")[2] for line in str(raised.value).splitlines()]


def table(**keys: Any) -> str:
    values = {"name": "nsd", "address": "192.0.2.12", **keys}
    return "[[secondary]]\n" + "".join(f"{key} = {value!r}\n" for key, value in values.items())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (table(address="ns2.example.net"), "address"),
        (table(address="192.0.2.12:99999"), "a port is 1 to 65535"),
        (table() + table(), "'nsd' is there twice"),
        (table(zones=["other.example"]), "'other.example' is no zone of zones.d"),
        (table(source="2001:db8::1"), "is IPv6, and the address IPv4"),
        (table(tsig="/nowhere/notify.key"), "can't be read"),
        (table(zone="x"), "zone"),
    ],
)
def test_wrong_table_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    said = errors(tmp_path, text)
    assert any(words in line and line[1:2].isdigit() for line in said), said


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (KEY, 0o604, "everybody on this host may read the key"),
        ("nothing", 0o600, "holds no TSIG key"),
        (KEY.replace("sha256", "md5"), 0o600, "the algorithm is none of"),
        (KEY.replace("==", "="), 0o600, "no base64"),
    ],
)
def test_wrong_key_is_told_without_the_key(tmp_path: Path, text: str, mode: int, words: str) -> None:
    file = tmp_path / "notify.key"
    file.write_text(text)
    file.chmod(mode)
    said = errors(tmp_path, table(tsig=str(file)))
    assert any(words in line for line in said), said
    assert "bm90" not in "".join(said)


def test_right_tables_are_read(tmp_path: Path) -> None:
    six = table(name="six", address="[2001:db8::53]:5300", source="2001:db8::1", zones=[ZONE])
    first, second = load_configuration(write(tmp_path, table() + six)).secondaries
    assert (str(first.endpoint[0]), first.endpoint[1], first.zones) == ("192.0.2.12", 53, ())
    assert (str(second.endpoint[0]), second.endpoint[1], second.zones) == ("2001:db8::53", 5300, (ZONE,))
