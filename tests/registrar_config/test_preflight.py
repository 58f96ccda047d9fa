"""The faults that are found before rspregistrar is started: programs, SCTP, kernel timers; each in one
line."""

import os
import sys
from pathlib import Path

import pytest
import structlog
from daemon_kit.errors import FatalError
from registrar_config.kernel_timers import KERNEL_TIMERS_MS, report_kernel_timers
from registrar_config.options import RegistrarSettings, SctpEndpoint
from registrar_config.preflight import check_ports, find_program, local_addresses, sctp_wrapper
from structlog.testing import capture_logs
from structlog.typing import FilteringBoundLogger

from tests.support.namespaces import Namespace


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.4.5", "::1", "169.254.1.1", "fe80::1"])
def test_addresses_that_rspregistrar_passes_over_are_refused_with_a_remedy(address: str) -> None:
    settings = RegistrarSettings(SctpEndpoint.parse(address, 3863), SctpEndpoint.parse(address, 9901))
    with pytest.raises(FatalError, match=r"loopback and link-local .* ip address add") as error:
        check_ports(settings)
    assert "\n" not in str(error.value)


def test_a_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(FatalError, match=r"rspregistrar-x is not installed .*rsplib-registrar"):
        find_program("rspregistrar-x")


OWN_ADDRESS = "from registrar_config.preflight import own_address; print(own_address())"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace")
@pytest.mark.parametrize("address", ["10.255.255.1/32", "192.0.2.200/24"])
def test_an_address_is_found_without_any_route(namespace: Namespace, address: str) -> None:
    done = namespace.run(sys.executable, "-c", OWN_ADDRESS)
    assert "ip address add 10.255.255.1/32 dev lo" in done.stderr
    assert "127.0.0.1" in done.stderr
    namespace.ip("address", "add", address, "dev", "lo")
    assert namespace.run(sys.executable, "-c", OWN_ADDRESS).stdout.strip() == address.partition("/")[0]


def test_nothing_but_local_addresses_is_read_from_the_table() -> None:
    table = """Local:
  +-- 0.0.0.0/0 3 0 5
           |-- 10.255.255.1
              /32 host LOCAL
        +-- 192.0.2.0/24 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.9
              /32 host LOCAL
           |-- 192.0.2.255
              /32 link BROADCAST
"""
    assert local_addresses(table * 2) == ["10.255.255.1", "192.0.2.9"]
    assert local_addresses("") == []


def test_a_wrapper_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sctp(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("registrar_config.preflight.socket.socket", no_sctp)
    monkeypatch.setenv("RSPDNS_SCTP_RUN", "/nonexistent/sctp-run")
    with pytest.raises(FatalError, match="RSPDNS_SCTP_RUN names /nonexistent/sctp-run"):
        sctp_wrapper()
    monkeypatch.setenv("RSPDNS_SCTP_RUN", "/bin/true")
    assert sctp_wrapper() == ["/bin/true"]


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
