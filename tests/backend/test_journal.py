"""The journal's file, and the history made of it."""

import random
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from pool_user import BeliefChange, Cause, Code, Departure, Member, PoolChange, PoolView
from rspdns import journal as journal_module
from rspdns.cli import main
from rspdns.history import Availability, ServerHistory, histories
from rspdns.journal import FILE_NAME, Journal, JournalError, JournalReader, JournalRow, JournalRun

from tests.backend.making import member
from tests.support.waiting import until

HANDLE = "sip-udp"
POOL = PoolView(HANDLE)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "BATCH_S", 0.01)
    monkeypatch.setattr(journal_module, "RETRY_S", 0.1)
    monkeypatch.setattr(journal_module, "HEARTBEAT_S", 0.02)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def joined(*members: Member) -> BeliefChange:
    return BeliefChange({HANDLE: PoolChange(POOL, POOL, joined=members)}, {})


def left(*members: Member, code: Code = Code.REMOVED, planned_s: float | None = None) -> BeliefChange:
    cause = Cause(code, planned_s=planned_s)
    departures = tuple(Departure(server, time.monotonic(), cause) for server in members)
    return BeliefChange({HANDLE: PoolChange(POOL, POOL, left=departures)}, {})


def started(folder: Path) -> Journal:
    made = Journal(folder, 1)
    made.start()
    return made


def entries(folder: Path) -> list[JournalRow]:
    try:
        with closing(JournalReader(folder)) as reader:
            return reader.after(0, 100_000)
    except JournalError:  # it has only begun
        return []


def in_last_run(folder: Path) -> set[int]:
    """The identifiers in the rows of the newest run."""
    rows = entries(folder)
    return {entry.identifier for entry in rows if entry.run == rows[-1].run}


def read(folder: Path) -> dict[str, ServerHistory]:
    now = time.time()
    with closing(JournalReader(folder)) as reader:
        found = histories(reader.runs(), reader.after(0, 1_000_000), now - 3600, now)
    return {history.server: history for history in found}


def test_downtime_is_the_time_between_leaving_and_joining(tmp_path: Path) -> None:
    journal = started(tmp_path)
    journal.take(joined(member(1), member(2)))
    time.sleep(0.2)
    journal.take(left(member(1)))
    gone_s = time.monotonic()
    time.sleep(0.5)
    journal.take(joined(member(1)))
    down_s = time.monotonic() - gone_s
    journal.close()
    found = read(tmp_path)
    assert found["10.0.0.1:5060"].total_s(Availability.DOWN) == pytest.approx(down_s, abs=0.005)
    assert found["10.0.0.1:5060"].outages == 1
    assert found["10.0.0.1:5060"].down_by_cause_s.keys() == {"removed"}
    assert found["10.0.0.2:5060"].availability == 1.0


def test_time_under_an_override_is_planned_and_no_outage(tmp_path: Path) -> None:
    journal = started(tmp_path)
    journal.take(joined(member(1)))
    time.sleep(0.2)
    journal.take(left(member(1), code=Code.OVERRIDDEN))
    gone_s = time.monotonic()
    time.sleep(0.3)
    journal.take(joined(member(1)))
    planned_s = time.monotonic() - gone_s
    journal.close()
    found = read(tmp_path)["10.0.0.1:5060"]
    assert found.total_s(Availability.PLANNED) == pytest.approx(planned_s, abs=0.005)
    assert (found.total_s(Availability.DOWN), found.outages, found.availability) == (0, 0, 1.0)


def test_drain_is_planned_until_its_end_and_an_outage_after_it(tmp_path: Path) -> None:
    journal = started(tmp_path)
    journal.take(joined(member(1)))
    time.sleep(0.1)
    journal.take(left(member(1), code=Code.DRAINED, planned_s=0.2))
    gone_s = time.monotonic()
    time.sleep(0.5)
    journal.take(joined(member(1)))
    out_s = time.monotonic() - gone_s
    journal.close()
    found = read(tmp_path)["10.0.0.1:5060"]
    assert found.total_s(Availability.PLANNED) == pytest.approx(0.2, abs=0.005)
    assert found.total_s(Availability.DOWN) == pytest.approx(out_s - 0.2, abs=0.005)
    assert found.outages == 1


def test_fault_of_the_journal_is_told_and_it_goes_on(tmp_path: Path) -> None:
    def name_of(handle: str, server: Member) -> str | None:
        if server.identifier == 13:
            raise RuntimeError("a fault")
        return None

    journal = Journal(tmp_path, 1, name_of)
    journal.start()
    journal.take(joined(member(13)))
    until(lambda: journal.problem is not None)
    assert "the journal is not written: a fault" in str(journal.problem)
    journal.take(left(member(13)))
    until(lambda: journal.problem is None)
    journal.take(joined(member(1)))
    until(lambda: any(row.identifier == 1 for row in entries(tmp_path)))
    journal.close()


def test_cursor_gives_each_row_once_in_order(tmp_path: Path) -> None:
    journal = started(tmp_path)
    journal.take(joined(*(member(identifier) for identifier in range(1, 8))))
    journal.close()
    with closing(JournalReader(tmp_path)) as reader:
        first = reader.after(0, 5)
        rest = reader.after(first[-1].sequence, 5)
    assert [entry.identifier for entry in first + rest] == [1, 2, 3, 4, 5, 6, 7]


def test_damaged_file_is_kept_aside_and_a_new_one_begins(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is no database, but it is long enough" * 100)
    journal = started(tmp_path)
    journal.take(joined(member(1)))
    until(lambda: [entry.kind for entry in entries(tmp_path)] == ["joined"])
    journal.close()
    assert journal.problem is None
    assert (tmp_path / f"{FILE_NAME}.damaged").read_bytes().startswith(b"this is no database")


def test_number_of_damaged_files_is_bounded_and_the_first_stays(tmp_path: Path) -> None:
    for number in range(2 * journal_module.MOST_DAMAGED):
        (tmp_path / FILE_NAME).write_text(str(number))
        journal_module._set_aside(tmp_path / FILE_NAME)
    kept = {int(path.read_text()) for path in tmp_path.iterdir()}
    assert kept == {*range(journal_module.MOST_DAMAGED - 1), 2 * journal_module.MOST_DAMAGED - 1}


def test_history_since_any_moment_is_that_of_all_rows(tmp_path: Path) -> None:
    """Servers that come and go under several identifiers, in runs that each begin with who is in."""
    started(tmp_path).close()
    draw = random.Random(7)
    inside: set[tuple[int, int]] = set()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file, file:
        file.execute("DELETE FROM run")
        for run in range(1, 5):
            runs = (run, 0.0, run * 100.0, run * 100.0 + 90, True)
            file.execute(
                "INSERT INTO run (run, offset_s, began_s, seen_s, is_ended) VALUES (?, ?, ?, ?, ?)", runs
            )
            inside -= set(draw.sample(sorted(inside), len(inside) // 2))
            news = [(run * 100.0, "joined", *key) for key in sorted(inside)]
            for at_s in sorted(draw.uniform(run * 100, run * 100 + 90) for _ in range(60)):
                key = draw.randrange(6), draw.randrange(3)
                inside ^= {key}
                news.append((at_s, "joined" if key in inside else "left", *key))
            file.executemany(
                "INSERT INTO change"
                " (run, mono_s, kind, handle, address, port, transport, identifier, code, facts)"
                " VALUES (?, ?, ?, ?, ?, 5060, 'udp', ?, ?, '{}')",
                [
                    (
                        run,
                        at_s,
                        kind,
                        f"h{host % 2}",
                        f"10.0.0.{host}",
                        number,
                        draw.choice(("removed", "drained")),
                    )
                    for at_s, kind, host, number in news
                ],
            )
    with closing(JournalReader(tmp_path)) as reader:
        for _ in range(100):
            since_s = draw.uniform(50, 600)
            found = [
                histories(reader.runs(), rows, since_s, 600.0)
                for rows in (reader.after(0, 10_000), reader.since(since_s))
            ]
            assert found[0] == found[1]
            of_handle = histories(reader.runs(), reader.since(since_s, ["h1"]), since_s, 600.0)
            assert of_handle == [history for history in found[0] if history.handle == "h1"]
            of_server = histories(
                reader.runs(), reader.since(since_s, None, ("10.0.0.4", 5060)), since_s, 600.0
            )
            assert of_server == [history for history in found[0] if history.address == "10.0.0.4"]


def test_full_disk_is_told_and_its_time_is_unknown(small_disk: Path) -> None:
    journal = started(small_disk)
    journal.take(joined(member(1), member(2)))
    until(lambda: len(entries(small_disk)) == 2)
    ballast = small_disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    for _ in range(20):
        journal.take(joined(*(member(identifier) for identifier in range(10, 200))))
        time.sleep(0.02)
        journal.take(left(*(member(identifier) for identifier in range(10, 200))))
    until(lambda: journal.problem is not None)
    assert "full" in str(journal.problem)
    journal.take(left(member(2)))
    ballast.unlink()
    until(lambda: journal.problem is None)
    time.sleep(0.1)
    journal.close()
    assert journal.lost > 0
    found = read(small_disk)
    for member_told, last in (("10.0.0.1:5060", "up"), ("10.0.0.2:5060", "down")):
        states = [span.state for span in found[member_told].spans]
        assert states[:2] == ["up", "unknown"]
        # SQLite frees pages when a run fails, so a short run may fit before the disk is full again.
        assert [state for state in states if state != "unknown"][-1] == last


def test_batch_that_fails_is_counted_and_its_outage_is_known_later(tmp_path: Path) -> None:
    journal = started(tmp_path)
    journal.take(joined(member(1), member(2)))
    until(lambda: len(entries(tmp_path)) == 2)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, timeout=5.0)) as file, file:
        file.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON change WHEN NEW.kind = 'left'"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    journal.take(left(member(1)))
    until(lambda: journal.problem is not None)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, timeout=5.0)) as file, file:
        file.execute("DROP TRIGGER refuse")
    until(lambda: journal.problem is None)
    time.sleep(0.1)
    journal.close()
    assert journal.lost == 1
    found = read(tmp_path)
    assert "down" in [span.state for span in found["10.0.0.1:5060"].spans]
    assert found["10.0.0.2:5060"].total_s(Availability.DOWN) == 0


def test_flood_is_bounded_counted_and_ends_in_the_right_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "QUEUED", 50)
    journal = started(tmp_path)
    journal.take(joined(member(1)))
    until(lambda: len(entries(tmp_path)) == 1)
    strangers = [member(identifier) for identifier in range(2, 100)]
    journal.take(joined(*strangers))
    journal.take(left(*strangers[1:]))
    until(lambda: in_last_run(tmp_path) == {1, 2})
    journal.close()
    assert journal.lost > 90
    with closing(JournalReader(tmp_path)) as reader:
        first, *later = [run.lost > 0 for run in reader.runs()]
    assert not first
    assert all(later)  # a second one, if the writer saw those who joined before they left


def test_old_rows_go_and_members_that_are_in_stay(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1)
    journal.start()
    journal.take(joined(member(1), member(2)))
    journal.take(left(member(2)))
    until(lambda: len(entries(tmp_path)) == 3)
    journal._history_s = 0.0
    journal._is_broken = True  # a new run prunes
    until(lambda: {entry.identifier for entry in entries(tmp_path)} == {1})
    journal.close()


def row(
    sequence: int, run: int, at_s: float, kind: str, code: Code = Code.REMOVED, identifier: int = 1
) -> JournalRow:
    return JournalRow(
        *(sequence, run, at_s, kind, HANDLE, "10.0.0.1", 5060, "udp", identifier, None, str(code), "{}")
    )


def states(runs: list[JournalRun], rows: list[JournalRow], until_s: float = 100.0) -> list[tuple[str, float]]:
    [history] = histories(runs, rows, 0.0, until_s)
    return [(span.state.value, span.length_s) for span in history.spans]


def test_time_between_a_kill_and_the_restart_is_unknown() -> None:
    runs = [JournalRun(1, 0.0, 40.0, False, 0), JournalRun(2, 60.0, 100.0, True, 0)]
    rows = [row(1, 1, 0.0, "joined"), row(2, 2, 61.0, "joined")]
    assert states(runs, rows) == [("up", 40.0), ("unknown", 21.0), ("up", 39.0)]


def test_outage_that_a_restart_interrupts_is_a_single_outage() -> None:
    runs = [JournalRun(1, 0.0, 40.0, True, 0), JournalRun(2, 60.0, 100.0, True, 0)]
    rows = [row(1, 1, 0.0, "joined"), row(2, 1, 30.0, "left"), row(3, 2, 70.0, "joined")]
    [history] = histories(runs, rows, 0.0, 100.0)
    assert [(span.state.value, span.length_s) for span in history.spans] == [
        *(("up", 30.0), ("down", 10.0), ("unknown", 20.0), ("down", 10.0), ("up", 30.0))
    ]
    assert (history.outages, history.availability) == (1, 0.75)


def test_server_that_changes_its_identifier_is_not_down() -> None:
    rows = [row(1, 1, 0.0, "joined"), row(2, 1, 50.0, "joined", identifier=2), row(3, 1, 50.0, "left")]
    assert states([JournalRun(1, 0.0, 100.0, True, 0)], rows) == [("up", 100.0)]


def test_clock_step_makes_no_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 86_400)
    journal = started(tmp_path)
    journal.take(joined(member(1)))
    until(lambda: len(entries(tmp_path)) == 1)
    monkeypatch.setattr(time, "time", real)
    until(lambda: abs(entries(tmp_path)[0].at_s - real()) < 60)
    journal.close()
    found = read(tmp_path)["10.0.0.1:5060"]
    assert (found.total_s(Availability.DOWN), found.availability) == (0.0, 1.0)


def test_report_without_a_journal_says_so(tmp_path: Path) -> None:
    config = tmp_path / "rspdns.toml"
    config.write_text(f'registrars = ["10.0.0.1"]\n[state]\npath = "{tmp_path}/state"\n')
    (tmp_path / "zones.d").mkdir()
    result = CliRunner().invoke(main, ["report", "-c", str(config)])
    assert result.exit_code != 0
    assert "no backend has run" in result.output
    assert not (tmp_path / "state").exists()


def test_unreadable_moment_is_refused() -> None:
    result = CliRunner().invoke(main, ["report", "--since", "yesterdayish"])
    assert result.exit_code == 2
    assert "30d" in result.output


def test_file_is_not_readable_by_others(tmp_path: Path) -> None:
    started(tmp_path).close()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o007 == 0
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
