"""sctpd as a service beside one of sctp-run, and the socket that systemd holds for it: a live systemd."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_systemd import NETWORK, LiveSystemd, live_systemd
from tests.support.namespaces import REPOSITORY

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("without_kernel_sctp")]

PREPARE = f"systemd-sysusers\n{NETWORK}"
TAKE_NAME = "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind('\\0sctp-userland')"
MAKE_SOCKET = "import socket; socket.socket(2, 1, 132); print('made')"
MEMBER = ("setpriv", "--reuid=12345", "--regid=sctp", "--clear-groups", "--bounding-set=-all")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LiveSystemd]:
    """Only sctp-userland is installed, and nothing started."""
    installed = tmp_path / "installed"
    command = ["make", "-s", "-C", str(REPOSITORY / "sctp-userland"), "install", f"DESTDIR={installed}"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with live_systemd(tmp_path, installed, PREPARE) as one:
        yield one


def test_service_waits_for_the_one_left_behind_and_systemd_keeps_its_name(machine: LiveSystemd) -> None:
    machine.run("sctp-run", "true")
    machine.run("systemctl", "enable", "--now", "sctpd")
    assert machine.show("sctpd", "ActiveState", "NRestarts") == ["active", "0"]
    machine.run("systemctl", "restart", "sctpd")
    assert machine.show("sctpd.socket", "ActiveState", "UnitFileState") == ["active", "enabled"]
    made = machine.try_run(*MEMBER, "sctp-run", "python3", "-c", MAKE_SOCKET)
    assert made.stdout == "made\n", made.stderr + machine.journal()
    machine.run("systemctl", "stop", "sctpd")
    assert "Address already in use" in machine.try_run(*MEMBER, "python3", "-c", TAKE_NAME).stderr
    made = machine.try_run(*MEMBER, "sctp-run", "python3", "-c", MAKE_SOCKET)
    assert made.stdout == "made\n", made.stderr + machine.journal()
    assert machine.show("sctpd", "ActiveState") == ["active"]
