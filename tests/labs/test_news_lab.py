"""`rspdns-lab news`: bounds that break, a page from trials, and clients that poll in batches."""

import socket
import threading
from collections import Counter
from dataclasses import asdict, replace

import pytest
from rspdns_lab.news import crowd
from rspdns_lab.news.cli import REPORT
from rspdns_lab.news.crowd import Heard, exchanges, run_in_turn
from rspdns_lab.news.lab import BOUND_MS, NewsTrial, Phase

PHASE = Phase(10.0, 0.25, 60.0, 7, 40.0)
TRIAL = NewsTrial("light", 300, 0.03, PHASE, PHASE, PHASE, [500.0, 1000.0, 1050.0], 0, 0, 0, 2.0, 1.0)


def test_late_lost_and_doubled_news_break_the_promise_of_ours_alone() -> None:
    assert REPORT.problems([TRIAL]) == []
    late = replace(TRIAL, delays_ms=[500.0, BOUND_MS + 1, BOUND_MS + 2])
    for broken in (late, replace(TRIAL, lost=1), replace(TRIAL, doubled=1)):
        assert len(REPORT.problems([broken])) == 1
        assert REPORT.problems([replace(broken, transport="short")]) == []


def test_page_has_a_row_for_each_transport_and_the_published_figures() -> None:
    page = REPORT.page([TRIAL, replace(TRIAL, transport="short")])
    ours, delays, published = page.sections
    assert [row[0] for row in ours.table[1:]] == ["news of rspdns (a closed port)", "short polling (HTTP)"]
    assert ours.table[1][1] == "25.0%"
    assert delays.table[1][:4] == ["news of rspdns (a closed port)", "500", "1,000", "1,050"]
    assert list(published.table[2][1:]) == ["100%", "100%", "100 %", "25% (reaches 100 %)", "60 (140)"]


def test_trial_survives_the_report() -> None:
    assert REPORT.read(asdict(TRIAL)) == TRIAL


def test_connections_of_a_batch_are_refused_or_answered_each() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked: list[bytes] = []

        def answer() -> None:
            for _ in range(6):
                client, _ = server.accept()
                with client:
                    asked.append(client.recv(100) if len(asked) < 3 else b"")
                    client.sendall(b"news")

        answering = threading.Thread(target=answer)
        answering.start()
        address = server.getsockname()
        assert list(exchanges(address, b"question", 3)) == [b"news"] * 3
        assert list(exchanges(address, b"", 3)) == [b"news"] * 3
        answering.join()
        assert asked[:3] == [b"question"] * 3
    refused = list(exchanges(address, b"", 3))
    assert [type(problem) for problem in refused] == [ConnectionRefusedError] * 3


class Counting:
    """A client whose questions are counted, and that is told a change by the first answer only."""

    def __init__(self, heard: Heard) -> None:
        self.due_s, self.heard, self.is_told = 0.0, heard, False

    def question(self) -> tuple[int | None, bytes]:
        return None, b"again" if self.is_told else b"first"

    def take(self, said: bytes | OSError, at_s: list[float]) -> None:
        if not self.is_told and isinstance(said, bytes):
            self.is_told = True
            self.heard.take([{"number": int(said)}], at_s)
        self.heard.ended = sum(map(len, self.heard.at_s.values())) == 5


def test_batch_whose_clients_are_told_different_things_is_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server tells two clients of a batch a 1, the others a 2: each hears of one change, once."""
    monkeypatch.setattr(crowd, "BATCHES", 1)
    heard = Heard()
    with socket.create_server(("127.0.0.1", 0)) as server:
        questions: Counter[bytes] = Counter()

        def answer() -> None:
            while sum(questions.values()) < 5:
                client, _ = server.accept()
                with client:
                    questions[client.recv(100)] += 1
                    client.sendall(b"1" if sum(questions.values()) < 3 else b"2")

        answering = threading.Thread(target=answer)
        answering.start()
        run_in_turn(Counting(heard), server.getsockname(), 5, heard)
        answering.join()
    assert {number: len(at_s) for number, at_s in heard.at_s.items()} == {1: 2, 2: 3}
