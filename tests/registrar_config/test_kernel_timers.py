"""The kernel's SCTP timers: set, or told with the remedy."""

from pathlib import Path

import pytest
import structlog
from registrar_config.kernel_timers import KERNEL_TIMERS_MS, report_kernel_timers
from structlog.testing import capture_logs
from structlog.typing import FilteringBoundLogger


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a stand-in for /proc/sys/net/sctp, with a kernel's own values."""
    for name, value in {"rto_min": 1000, "rto_initial": 3000, "rto_max": 60000, "sack_timeout": 200}.items():
        (tmp_path / name).write_text(f"{value}\n")
    return tmp_path


def logger() -> FilteringBoundLogger:
    made: FilteringBoundLogger = structlog.get_logger()
    return made


def test_kernel_timers_are_set_when_asked(folder: Path) -> None:
    with capture_logs() as logs:
        report_kernel_timers(logger(), change=True, folder=folder)
    assert {name: int((folder / name).read_text()) for name in KERNEL_TIMERS_MS} == KERNEL_TIMERS_MS
    assert KERNEL_TIMERS_MS == {"rto_min": 50, "rto_initial": 100, "rto_max": 300, "sack_timeout": 20}
    assert logs == []


def test_otherwise_the_remedy_is_told_and_nothing_changed(folder: Path) -> None:
    (folder / "rto_max").write_text("300\n")
    with capture_logs() as logs:
        report_kernel_timers(logger(), folder=folder)
    assert int((folder / "rto_min").read_text()) == 1000
    assert [entry["event"] for entry in logs] == ["kernel_timers_do_not_fit"]
    assert (
        logs[0]["remedy"] == "sysctl -w net.sctp.rto_min=50 net.sctp.rto_initial=100 net.sctp.sack_timeout=20"
    )


def test_a_timer_that_cannot_be_set_is_named(folder: Path) -> None:
    (folder / "rto_min").unlink()
    (folder / "rto_min").mkdir()
    with capture_logs() as logs:
        report_kernel_timers(logger(), change=True, folder=folder)
    assert [entry["event"] for entry in logs] == ["kernel_timer_not_set", "kernel_timers_do_not_fit"]
    assert logs[0]["timer"] == "rto_min"


def test_a_kernel_without_sctp_has_none(tmp_path: Path) -> None:
    with capture_logs() as logs:
        report_kernel_timers(logger(), change=True, folder=tmp_path / "none")
    assert logs == []
