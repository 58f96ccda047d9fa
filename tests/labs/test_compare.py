"""The comparison with address takeover: synthetic VoIP, and the report."""

import itertools
import json
import re
import socket
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from rspdns_lab.cli import main
from rspdns_lab.compare import talker
from rspdns_lab.compare.report import figures, measurement, page_of, summaries
from rspdns_lab.compare.run import StreamTrial, converged_by_dns_ms, converged_by_takeover_ms, expect_flow
from rspdns_lab.compare.takeover import PAIRS, keepalived_conf
from rspdns_lab.compare.talker import choose
from rspdns_lab.compare.voip import Quality, ReceivedPacket, SentPacket, judge, packet, read_packet
from rspdns_lab.errors import LabError
from rspdns_lab.report.page import tables_of, write_page

MS = 1_000_000


def test_a_packet_says_what_it_is() -> None:
    made = packet(3, 1, 4_000_000_000, 17)
    assert len(made) == 172, "20 ms of G.711 in RTP"
    assert read_packet(made, 99) == ReceivedPacket(3, 1, 4_000_000_000, 17, 99)
    assert read_packet(b"short", 99) is None


def test_a_glitch_is_lost_packets_over_the_packet_rate() -> None:
    sent = [SentPacket(call, sequence, sequence * 20 * MS) for sequence in range(100) for call in (0, 1)]
    lost = {(0, 10), (0, 11), (0, 12), (1, 10)}
    arrived = [
        ReceivedPacket(0, packet.call, packet.sequence, packet.at_ns, packet.at_ns + 2 * MS)
        for packet in sent
        if (packet.call, packet.sequence) not in lost
    ]
    quality = judge(sent, [*arrived, arrived[0]])
    assert (quality.sent, quality.lost) == (200, 4)
    assert (quality.glitch_ms, quality.worst_glitch_ms) == (40.0, 60.0)
    assert (quality.delay_p50_ms, quality.delay_p99_ms, quality.jitter_ms) == (2.0, 2.0, 0.0)


def test_jitter_is_what_delays_vary_by() -> None:
    arrived = [
        ReceivedPacket(0, call, n, n * 20 * MS, n * 20 * MS + (1 + 4 * (n % 2)) * MS)
        for n in range(2000)
        for call in (0, 1)
    ]
    quality = judge([SentPacket(packet.call, packet.sequence, packet.sent_ns) for packet in arrived], arrived)
    assert quality.jitter_ms == pytest.approx(4.0, rel=0.01)


def test_jitter_is_smoothed_as_rfc_3550_says_in_each_call_apart() -> None:
    # Transits of 1, 5 and 2 ms: 4 / 16 = 0.25, then 0.25 + (3 - 0.25) / 16 = 0.421875; of the other call 0.
    first = [ReceivedPacket(0, 0, n, n * 20 * MS, (n * 20 + delay) * MS) for n, delay in enumerate((1, 5, 2))]
    second = [ReceivedPacket(0, 1, n, n * 20 * MS, (n * 20 + 9) * MS) for n in range(3)]
    arrived = [*second, *reversed(first)]
    quality = judge([SentPacket(packet.call, packet.sequence, packet.sent_ns) for packet in arrived], arrived)
    assert quality.jitter_ms == 0.211


def test_delays_of_which_so_many_percent_are_no_longer() -> None:
    arrived = [
        ReceivedPacket(0, 0, n, n * 20 * MS, (n * 20 + 200 - n) * MS) for n in range(200)
    ]  # 1 to 200 ms
    quality = judge([SentPacket(0, packet.sequence, packet.sent_ns) for packet in arrived], arrived)
    assert (quality.delay_p50_ms, quality.delay_p99_ms) == (100.0, 198.0)


def test_a_call_of_which_nothing_arrives_is_lost_whole() -> None:
    sent = [SentPacket(call, n, n * 20 * MS) for n in range(50) for call in (0, 1)]
    arrived = [ReceivedPacket(0, 0, n, n * 20 * MS, n * 20 * MS) for n in range(50)]
    quality = judge(sent, arrived)
    assert (quality.lost, quality.glitch_ms, quality.worst_glitch_ms) == (50, 500.0, 1000.0)
    nothing = judge(sent, [])
    assert (nothing.lost, nothing.delay_p50_ms, nothing.jitter_ms) == (100, 0.0, 0.0)


class _Clock:
    """Stands for the module `time`: nobody waits, and after `end_s` nobody goes on."""

    def __init__(self, end_s: float) -> None:
        self.now_s, self._end_s = 0.0, end_s

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s > self._end_s:
            raise KeyboardInterrupt


def test_the_calls_of_a_stream_take_turns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(talker, "time", _Clock(0.9999))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        with pytest.raises(KeyboardInterrupt):
            talker.talk(7, listener.getsockname()[1], lambda: "127.0.0.1", None)
        packet = read_packet(listener.recv(2048), 0)
    sent = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(sent) == 2 * 50
    assert [(int(call), int(number)) for _, call, number, _ in sent] == [
        (call, number) for number in range(50) for call in range(2)
    ]
    gaps_ns = {int(after[3]) - int(before[3]) for before, after in itertools.pairwise(sent)}
    assert gaps_ns <= {10 * MS - 1, 10 * MS, 10 * MS + 1}
    assert packet == ReceivedPacket(7, 0, 0, 0, 0)


def test_dns_has_converged_when_the_dead_one_stays_away() -> None:
    rest, both = frozenset({"B"}), frozenset({"A", "B"})
    assert converged_by_dns_ms([(0, both), (30 * MS, rest)], 10 * MS, "A") == 20.0
    assert (
        converged_by_dns_ms([(0, both), (30 * MS, rest), (40 * MS, both), (60 * MS, rest)], 10 * MS, "A")
        == 50.0
    )
    assert converged_by_dns_ms([(0, both), (30 * MS, rest), (40 * MS, both)], 10 * MS, "A") is None
    assert converged_by_dns_ms([(0, both)], 10 * MS, "A") is None


def test_an_address_has_moved_with_the_last_lost_packet() -> None:
    sent = [SentPacket(0, n, n * 20 * MS) for n in range(100)]
    arrived = [
        ReceivedPacket(0, 0, packet.sequence, packet.at_ns, packet.at_ns)
        for packet in sent
        if not 5 <= packet.sequence <= 9
    ]
    assert converged_by_takeover_ms(sent, arrived, 100 * MS) == 80.0
    assert converged_by_takeover_ms(sent, arrived[:5], 100 * MS) is None
    assert converged_by_takeover_ms(sent[10:], arrived, 200 * MS) == 0.0


def test_a_stream_stays_with_its_server_while_that_is_named() -> None:
    assert choose("B", ("A", "B")) == "B"
    assert choose("B", ("A", "C")) == "A"
    assert choose("B", ()) == "B"


def test_a_stream_that_did_not_flow_is_an_error_and_no_stream_without_loss() -> None:
    sent = [SentPacket(0, n, n * 20 * MS) for n in range(10)]
    arrived = [ReceivedPacket(0, 0, packet.sequence, packet.at_ns, packet.at_ns) for packet in sent]
    expect_flow("rspdns", sent, arrived, 100 * MS)
    for spoken, heard in ((sent, arrived[:3]), (sent[5:], arrived), ([], [])):
        with pytest.raises(LabError, match="rspdns: the stream did not flow"):
            expect_flow("rspdns", spoken, heard, 100 * MS)


def trial(number: int, approach: str, converged_ms: float | None, glitch_ms: float) -> StreamTrial:
    quality = Quality(1000, int(glitch_ms / 20), glitch_ms, glitch_ms, 0.1, 0.5, 0.05)
    return StreamTrial("power-cut", approach, number, converged_ms, quality)


TRIALS = [trial(1, "rspdns", 700.0, 1500.0), trial(2, "rspdns", 800.0, 900.0), trial(1, "carp", None, 8000.0)]


def test_a_summary_has_median_and_worst() -> None:
    rspdns, carp = summaries(TRIALS)
    assert (rspdns.trials, rspdns.converged_median_ms, rspdns.converged_max_ms) == (2, 750.0, 800.0)
    assert (rspdns.glitch_median_ms, rspdns.glitch_max_ms) == (1200.0, 1500.0)
    assert (rspdns.delay_p99_ms, rspdns.jitter_ms) == (0.5, 0.05)
    assert (carp.converged_median_ms, carp.converged_max_ms, carp.glitch_median_ms) == (None, None, 8000.0)


def test_a_summary_of_several_trials_takes_the_worst_call_the_longest_delay_the_median_jitter() -> None:
    trials = [
        StreamTrial("administered", "vrrp", number, 1.0, Quality(100, 3, 30.0, worst, 1.0, p99, jitter))
        for number, (worst, p99, jitter) in enumerate([(40.0, 9.0, 0.3), (60.0, 2.0, 0.1), (50.0, 4.0, 0.2)])
    ]
    found = summaries(trials)[0]
    assert (found.glitch_median_ms, found.glitch_max_ms) == (30.0, 60.0)
    assert (found.delay_p99_ms, found.jitter_ms) == (9.0, 0.2)


def test_an_approach_that_did_not_converge_has_no_figure() -> None:
    assert re.search(r"\| CARP .*\| not in time \| not in time \| 8,000 \|", tables_of(page_of(TRIALS)))


def test_results_are_read_back_and_resumed_without_a_lab(tmp_path: Path) -> None:
    file, page = tmp_path / "compare.json", tmp_path / "compare.html"
    report = {**figures(TRIALS), "trials": [asdict(trial) for trial in TRIALS]}
    file.write_text(json.dumps(report))
    assert [measurement(trial) for trial in json.loads(file.read_text())["trials"]] == TRIALS
    arguments = ["compare", "--fault", "power-cut", "--trials", "2", "--results", str(file)]
    done = CliRunner().invoke(main, [*arguments, "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "power-cut" in done.output
    write_page(page, page_of(TRIALS))
    assert page.read_text().count("<svg") == 1


def test_the_first_host_of_a_pair_begins_as_master_and_the_second_as_backup() -> None:
    pair = next(pair for pair in PAIRS if pair.advertisement_ms == 100)
    first, second = (
        keepalived_conf({"eth0": pair.shared}, pair.group, pair.advertisement_ms, first=first)
        for first in (True, False)
    )
    assert "state MASTER" in first
    assert "state BACKUP" in second
    assert all("advert_int 0.1" in text and f"{pair.shared}/24" in text for text in (first, second))
    assert "vrrp_sync_group" not in first
    assert "group { eth0 eth1 }" in keepalived_conf(
        {"eth0": "10.0.0.1", "eth1": "10.0.1.1"}, 1, 100, first=True
    )
