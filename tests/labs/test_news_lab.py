"""`rspdns-lab news`: bounds that break, a page from trials, and clients that ask in batches, in C."""

import errno
import itertools
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rspdns_lab.net.preconditions import compile_c
from rspdns_lab.news.cli import REPORT
from rspdns_lab.news.crowd import SOURCE, ClientOutcome, ClientQuestion, Connections, Heard, run_clients
from rspdns_lab.news.lab import BOUND_MS, NewsTrial, Phase

PHASE = Phase(10.0, 0.25, 0.05, 60.0, 7, 40.0)
TRIAL = NewsTrial("light", 300, 0.03, PHASE, PHASE, PHASE, [500.0, 1000.0, 1050.0], 995.0, 0, 0, 0, 2.0, 1.0)


def test_late_lost_and_doubled_news_break_the_promise_of_ours_alone() -> None:
    assert REPORT.problems([TRIAL]) == []
    late = replace(TRIAL, delays_ms=[500.0, BOUND_MS + 2, BOUND_MS + 3], news_p99_ms=BOUND_MS + 1)
    for broken in (late, replace(TRIAL, lost=1), replace(TRIAL, doubled=1)):
        assert len(REPORT.problems([broken])) == 1
        assert REPORT.problems([replace(broken, transport="short")]) == []


def test_late_clients_and_a_busy_machine_are_told_apart_from_late_news() -> None:
    late = replace(TRIAL, delays_ms=[500.0, 2000.0, 2100.0], news_p99_ms=1500.0)
    told = "p99 2,000 ms (bound 1,100), 0 pieces of news lost"
    assert REPORT.problems([late]) == [f"300 clients of rspdns news: {told}"]
    [of_clients] = REPORT.problems([replace(late, news_p99_ms=995.0, late_ms=900.0)])
    assert f"no verdict, {told}: the lab's clients were late by 900 ms" in of_clients
    [of_machine] = REPORT.problems([replace(late, telling=replace(PHASE, waited=0.25))])
    assert f"no verdict, {told}: the server had no processor for 50% of its work" in of_machine
    [lost] = REPORT.problems([replace(late, news_p99_ms=995.0, lost=1)])
    assert "no verdict" not in lost, "late clients lose nothing"


def test_page_has_a_row_for_each_transport_and_the_published_figures() -> None:
    page = REPORT.page([TRIAL, replace(TRIAL, transport="short")])
    ours, delays, published = page.sections
    assert "Not reached" not in ours.text
    lossy = REPORT.page([replace(TRIAL, lost=7), replace(TRIAL, transport="short")]).sections[0]
    assert "Not reached: 300 clients of rspdns news: p99 1,000 ms (bound 1,100), 7 pieces" in lossy.text
    assert [row[0] for row in ours.table[1:]] == ["news of rspdns (a closed port)", "short polling (HTTP)"]
    assert ours.table[1][1] == "25.0%"
    assert delays.table[1][:4] == ["news of rspdns (a closed port)", "500", "1,000", "1,050"]
    assert list(published.table[2][1:]) == ["100%", "100%", "100 %", "25% (reaches 100 %)", "60 (140)"]


def test_page_tells_a_server_so_saturated_that_no_client_heard() -> None:
    silent = replace(TRIAL, transport="short", delays_ms=[-1.0] * 3, news_p99_ms=-1.0, lost=1500)
    _, delays, _ = REPORT.page([TRIAL, silent]).sections
    assert delays.table[2][:5] == ["short polling (HTTP)", *["none heard"] * 4]


def test_trial_survives_the_report() -> None:
    assert REPORT.read(asdict(TRIAL)) == TRIAL


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that opens connections, under ASan and UBSan."""
    options = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return compile_c(SOURCE, tmp_path_factory.mktemp("news") / "connections", *options)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def answer(server: socket.socket, answers: Sequence[bytes]) -> list[bytes]:
    """Serve a client for each answer, in turn; return their questions."""
    asked = []
    for said in answers:
        client, _ = server.accept()
        with client:
            asked.append(client.recv(100))
            client.sendall(said)
    return asked


def in_thread(server: socket.socket, answers: Sequence[bytes]) -> threading.Thread:
    thread = threading.Thread(target=answer, args=(server, answers))
    thread.start()
    return thread


def outcome(
    program: Path, server: socket.socket, count: int, **asked: Any
) -> dict[bytes | int | None, ClientOutcome]:
    """Return the outcomes of these connections, by what they were told, or their error."""
    connections = Connections(str(program), *server.getsockname())
    question = ClientQuestion(time.monotonic() + 0.1, None, b"question", 5.0)._replace(**asked)
    connections.open(7, count, question)
    [(name, outcomes)] = itertools.islice(connections.outcomes(), 1)
    connections.end()
    assert name == 7
    assert list(connections.outcomes()) == []
    for each in outcomes:
        assert min(each.at_s) >= question.due_s
        assert 0 <= each.late_s < 5
    return {each.said.errno if isinstance(each.said, OSError) else each.said: each for each in outcomes}


def test_connections_are_answered_each_refused_or_lose_patience(program: Path, server: socket.socket) -> None:
    thread = in_thread(server, [b"news"] * 3 + [b"other news"])
    found = outcome(program, server, 4)
    thread.join()
    assert {said: len(each.at_s) for said, each in found.items()} == {b"news": 3, b"other news": 1}
    [silent] = outcome(program, server, 2, patience_s=0.2)
    assert silent == errno.ETIMEDOUT


def test_connections_to_a_closed_port_are_refused(program: Path, server: socket.socket) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        found = outcome(program, closed, 3, line=b"")
    assert {said: len(each.at_s) for said, each in found.items()} == {errno.ECONNREFUSED: 3}


def test_pieces_of_a_stream_are_told_each_with_its_time(program: Path, server: socket.socket) -> None:
    def pieces() -> None:
        client, _ = server.accept()
        with client:
            for piece in (b"data: 1\n", b"\n", b"data: 2\n\n"):
                client.sendall(piece)
                time.sleep(0.05)

    thread = threading.Thread(target=pieces)
    thread.start()
    found = outcome(program, server, 1, is_stream=True)
    thread.join()
    assert set(found) == {b"data: 1", b"data: 2", errno.ECONNRESET}
    assert found[b"data: 2"].at_s[0] - found[b"data: 1"].at_s[0] > 0.04


def test_a_program_that_is_stopped_tells_that_it_was_late(program: Path, server: socket.socket) -> None:
    """Else the news would be blamed for what the lab's own clients do."""
    connections = Connections(str(program), *server.getsockname())
    connections.open(0, 1, ClientQuestion(time.monotonic() + 0.3, None, b"question"))
    connections.process.send_signal(signal.SIGSTOP)
    time.sleep(0.8)
    connections.process.send_signal(signal.SIGCONT)
    thread = in_thread(server, [b"news"])
    [(_, [late])] = itertools.islice(connections.outcomes(), 1)
    thread.join()
    connections.end()
    assert late.late_s > 0.4


class Counting:
    """A client that is told a change by the first answer only."""

    def __init__(self, heard: Heard, connections: Connections) -> None:
        self.heard, self.connections, self.is_told = heard, connections, False

    def question(self) -> ClientQuestion:
        return ClientQuestion(time.monotonic(), None, b"again" if self.is_told else b"first", 5.0)

    def take(self, outcome: ClientOutcome) -> None:
        if not self.is_told and isinstance(outcome.said, bytes):
            self.is_told = True
            self.heard.take([{"number": int(outcome.said)}], outcome)
        if sum(map(len, self.heard.at_s.values())) == 5:
            self.connections.end()


def test_batch_whose_clients_are_told_different_things_is_parted(
    program: Path, server: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server tells two clients of a batch a 1, the others a 2: each hears of one change, once."""
    heard, connections = Heard(5), Connections(str(program), *server.getsockname())
    thread = in_thread(server, [b"1", b"1", b"2", b"2", b"2"])
    assert len(run_clients(connections, [(Counting(heard, connections), 5)])) >= 1
    thread.join()
    assert {number: len(at_s) for number, at_s in heard.at_s.items()} == {1: 2, 2: 3}
    assert capsys.readouterr().out == "ready\n"
