"""The results of `rspdns-lab shim` and `ims --shim` from their trials, their programs, their options."""

import contextlib
import socket
import threading

import pytest
from click.testing import CliRunner
from rspdns_lab.ims import shim as calls
from rspdns_lab.ims.calls import CallTrial
from rspdns_lab.ims.cli import ims
from rspdns_lab.report.page import tables_of
from rspdns_lab.shim import transfer
from rspdns_lab.shim.cli import figures, page_of, problems
from rspdns_lab.shim.lab import ShimTrial


def trial(
    way: str, value: float | None, *, measure: str = "cut", loss: float = 0.0, number: int = 1
) -> ShimTrial:
    return ShimTrial(measure, way, 50_000 if measure == "transfer" else 0, loss, number, value, 1.0)


def test_stream_that_stops_or_pauses_for_long_breaks_the_shims_promise_only() -> None:
    assert problems([trial("shim", 900), trial("TCP CUBIC", None), trial("MPTCP", 3000)]) == []
    assert problems([trial("shim", 1100), trial("shim", None)]) == [
        "the shim's stream paused for 1100 ms",
        "the shim's stream did not go on",
    ]


def test_page_has_medians_and_tells_what_stopped() -> None:
    found = [
        trial("shim", value, measure="transfer", loss=0.1, number=n)
        for n, value in enumerate((3.0, 1.0, 2.0))
    ]
    found += [trial("TCP CUBIC", None), trial("shim", 120.0)]
    assert figures(found)["medians"]["transfer shim 50000 0.1"] == 2.0
    found += [
        trial("shim", 2.5, measure="transfer", loss=0.03),
        trial("TCP CUBIC", 2.5, measure="transfer", loss=0.03),
        trial("TCP CUBIC", 3.5, measure="transfer", loss=0.03, number=2),
    ]
    page = page_of(found)
    tables = tables_of(page)
    assert "| TCP CUBIC | - | 1 |" in tables
    assert "| shim | 120 (120 to 120) | 0 |" in tables
    assert "| 50 | 10% | 0 / 3 | - | 2.00 (1.00 to 3.00) |" in tables
    assert "| 50 | 3% | 2 / 1 | 2.50 (2.50 to 3.50) | 2.50 (2.50 to 2.50) |" in tables
    (plot,) = page.sections[1].plots
    assert plot.caption.startswith("50 KB")


def test_runs_alone_stand_beside_the_same_runs_side_by_side() -> None:
    found = [
        ShimTrial(measure, "shim", 500_000, 0.1, number, value, 1.0)
        for measure, values in {"alone": (3.0, 5.0), "transfer": (3.1, 5.1, 99.0)}.items()
        for number, value in enumerate(values)
    ]
    assert "| shim | 10% | 2 | 3.00 (3.00 to 5.00) | 3.10 (3.10 to 5.10) |" in tables_of(page_of(found))


def test_transfer_that_never_ends_breaks_the_shims_promise() -> None:
    failed = [trial(way, None, measure="transfer", loss=0.06) for way in ("shim", "TCP Reno")]
    assert problems(failed) == ["the shim's transfer of 50 KB at a loss of 6% failed"]


def test_failed_and_late_calls_break_the_shims_promise_only() -> None:
    lost = [(0.1, None, ""), (0.2, 4.0, "as1"), (0.3, 2500.0, "as1")]
    found = [CallTrial(calls.FAULT, key, 1, lost, None) for key in calls.KEYS]
    assert calls.problems(found[:1]) == []
    assert calls.problems(found) == ["shim: 1 calls failed, 1 took more than 2 s"]
    assert "| shim | 1 | 3 | 1 | 1 | 4 | 2,500 |" in tables_of(calls.page_of(found))


@pytest.mark.parametrize(
    "options", [["--shim"], ["--transport", "tcp"], ["--shim", "--transport", "tcp", "--ppu"]]
)
def test_options_that_do_not_go_together(options: list[str]) -> None:
    done = CliRunner().invoke(ims, options)
    assert done.exit_code == 2
    assert "--shim" in done.output


def test_transfer_programs_measure_by_plain_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(transfer, "PORT", listener.getsockname()[1])

        def serve() -> None:
            with contextlib.suppress(OSError):  # it is closed
                while True:
                    transfer.answer(listener.accept()[0])

        threading.Thread(target=serve, daemon=True).start()
        assert 0 < transfer.fetch("cubic", "127.0.0.1", 300_000) < 10
        assert transfer.messages("reno", "127.0.0.1", 0.1) > 10
        assert 0 < transfer.set_up_us("cubic", "127.0.0.1", 1) < 1e6
        assert transfer.longest_pause_ms("cubic", "127.0.0.1", 0.2) >= 5
        monkeypatch.setattr(transfer, "exactly", lambda end, size: end.recv(size) and b"bytes 10")
        with pytest.raises(ConnectionError, match="20 bytes are missing"):
            transfer.fetch("cubic", "127.0.0.1", 30)
        with pytest.raises(ConnectionError, match="was used instead of SCTP"):
            transfer.fetch("sctp", "127.0.0.1", 30)
