"""Debian's own SCTP programs, unchanged: three registrars with a pool element, lksctp's test tools."""

# ruff: noqa: E501  (command lines)
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from daemon import PRELUDE

from tests.support.namespaces import Namespace
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.usefixtures("sanitized_daemon")]

TUNED = (
    "-endpointkeepalivetransmissioninterval=300", "-endpointkeepalivetimeoutinterval=500", "-peerheartbeatcycle=1000",
    "-peermaxtimelastheard=1000", "-peermaxtimenoresponse=1000", "-mentordiscoverytimeout=1000", "-takeoverexpiryinterval=1000",
)  # fmt: skip


RESOLVE = (
    PRELUDE
    + """
client = one_to_one()
client.connect((sys.argv[1], 3863))
send(client, struct.pack("!BBHHH", 5, 0, 16, 9, 12) + b"EchoPool", ppid=11)
print(len(receive(client, timeout_s=30).data))
"""
)


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} isn't installed")


def test_three_registrars_agree(namespace: Namespace, tmp_path: Path) -> None:
    """A pool element registered at one registrar is known at another at once, and gone everywhere when it's killed."""
    needs("rspregistrar", "rspserver")
    for number in (1, 2, 3):
        namespace.ip("addr", "add", f"10.77.0.{number}/32", "dev", "lo")
    for number in (1, 2, 3):
        peers = [f"-peer=10.77.0.{other}:9901" for other in (1, 2, 3) if other != number]
        namespace.start(
            "rspregistrar", f"-asap=10.77.0.{number}:3863", f"-enrp=10.77.0.{number}:9901", "-asapannounce=off",
            "-enrpannounce=off", *peers, *TUNED, "-disable-ipv6", "-quiet", sctp=True, log=tmp_path / f"registrar{number}",
        )  # fmt: skip

    def listed(number: int) -> bool:
        """Ask a registrar for the pool (ASAP handle resolution); a reply with a pool element is long."""
        run = namespace.run(sys.executable, "-c", RESOLVE, f"10.77.0.{number}", sctp=True)
        return run.returncode == 0 and int(run.stdout) > 60

    time.sleep(7)  # a registrar spends its first five seconds looking for others
    server = namespace.start(
        "rspserver", "-echo", "-registrar=10.77.0.1:3863", "-poolhandle=EchoPool", "-quiet", sctp=True, log=tmp_path / "server"
    )  # fmt: skip
    until(lambda: listed(1), 10, "not registered")
    until(lambda: listed(2) and listed(3), 5, "not known to the other registrars")
    os.killpg(server.pid, signal.SIGKILL)
    until(lambda: not listed(1) and not listed(2), 3, "its registrar wasn't told that it was killed")


def test_lksctp_tools_talk(namespace: Namespace, tmp_path: Path) -> None:
    needs("sctp_test")
    log = tmp_path / "server"
    server = namespace.start("sctp_test", "-H", "127.0.0.1", "-P", "5000", "-l", sctp=True, log=log)
    until(lambda: "Server" in log.read_text() or "listen" in log.read_text().lower(), 10)
    client = namespace.run(
        "sctp_test",
        "-H",
        "127.0.0.1",
        "-P",
        "6000",
        "-h",
        "127.0.0.1",
        "-p",
        "5000",
        "-s",
        "-x",
        "100",
        sctp=True,
    )
    assert client.returncode == 0, client.stdout + client.stderr
    assert server.poll() is None


def test_checksctp_finds_it(namespace: Namespace) -> None:
    needs("checksctp")
    run = namespace.run("checksctp", sctp=True)
    assert "SCTP supported" in run.stdout + run.stderr
