"""The unit sctpd.service on a live systemd, beside what has its name already."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import SCTP_USERLAND, STRANGER

from tests.support.live_systemd import NETWORK, LiveSystemd, live_systemd

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("without_kernel_sctp")]

PREPARE = f"systemd-sysusers\n{NETWORK}"
MAKE_SOCKET = "import socket; socket.socket(2, 1, 132); print('made')"
MEMBER = ("setpriv", "--reuid=12345", "--regid=sctp", "--clear-groups", "--bounding-set=-all")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LiveSystemd]:
    """Only sctp-userland is installed, and nothing started."""
    installed = tmp_path / "installed"
    command = ["make", "-s", "-C", str(SCTP_USERLAND), "install", f"DESTDIR={installed}"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with live_systemd(tmp_path, installed, PREPARE) as started:
        yield started


def test_service_starts_beside_an_sctpd_left_behind_and_beside_a_stranger(machine: LiveSystemd) -> None:
    """It waits for the end of the first. While the stranger has the name, it serves in its folder."""
    machine.run("sctp-run", "true")
    machine.run("systemctl", "enable", "--now", "sctpd")
    assert machine.show("sctpd", "ActiveState", "NRestarts") == ["active", "0"]
    machine.run("systemctl", "stop", "sctpd")
    machine.run("systemd-run", "--unit=stranger", "python3", "-c", STRANGER, "full")
    machine.until(lambda: "sits" in machine.run("journalctl", "--unit=stranger"))
    machine.run("systemctl", "start", "sctpd")
    assert "user 12345 has its name" in machine.run("journalctl", "--unit=sctpd")
    machine.run("systemctl", "kill", "--signal=SIGKILL", "sctpd")
    machine.until(lambda: machine.show("sctpd", "ActiveState", "NRestarts") == ["active", "1"])
    for user in ((), MEMBER):
        made = machine.try_run(*user, "sctp-run", "python3", "-c", MAKE_SOCKET)
        assert made.stdout == "made\n", made.stderr + machine.journal()
