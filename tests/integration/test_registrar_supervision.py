"""Real registrars, supervised: what dies comes back, and a settled one is told from one that is not."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.namespaces import REPOSITORY, Namespace, own_namespace
from tests.support.registrars import Registrars
from tests.support.stalls import Mark
from tests.support.waiting import until

ADDRESS = "10.99.0.1"
CUT = "add table inet cut; add chain inet cut in {{ type filter hook input priority 0; }}; "
CUT += "add rule inet cut in sctp dport {0} drop; add rule inet cut in sctp sport {0} drop"
ASK = str(REPOSITORY / "tests/support/ask_registrar.py")
SENTINELS = [f"rspdns-sentinel-{number}" for number in (1, 2, 3)]


class Supervised(Registrars):
    """Three supervised registrars in one namespace, and what they list."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        namespace.ip("address", "add", f"{ADDRESS}/32", "dev", "lo")
        super().__init__(namespace, folder, ADDRESS, supervised=True)

    def complete(self) -> None:
        """Start those that have ended, and wait until each lists every sentinel, none of a former life."""
        self.start_ended()
        for number in (1, 2, 3):
            until(
                lambda at=number: list(map(len, self.listed(at, *SENTINELS))) == [1, 1, 1],  # type: ignore[misc]
                30,
                self.log(number),
            )

    def listed(self, at: int, *handles: str) -> list[list[dict[str, int]]]:
        """Return what a registrar lists in each of these pools."""
        result = self.namespace.run(sys.executable, ASK, f"{ADDRESS}:{3862 + at}", *handles, sctp=True)
        assert result.returncode == 0, result.stderr
        return [json.loads(line)["pool_elements"] for line in result.stdout.splitlines()]

    def sentinels(self, number: int, at: int) -> list[dict[str, int]]:
        [found] = self.listed(at, SENTINELS[number - 1])
        return found

    def events(self, number: int, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log(number).read_text().splitlines() if line[:1] == "{"]
        return [line for line in lines if line["event"] == name]

    def pid(self, number: int) -> int:
        return int(self.events(number, "registrar_started")[-1]["pid"])


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    with own_namespace() as namespace:
        three = Supervised(namespace, tmp_path_factory.mktemp("registrars"))
        three.complete()
        yield three


@pytest.fixture
def registrars(three: Supervised) -> Supervised:
    three.complete()
    return three


def test_a_killed_registrar_is_back_and_settles_with_a_new_sentinel(registrars: Supervised) -> None:
    [before] = registrars.sentinels(1, at=1)
    starts = len(registrars.events(1, "registrar_started"))
    killed, killed_at_s = Mark.now(), time.monotonic()
    os.kill(registrars.pid(1), signal.SIGKILL)
    until(lambda: len(registrars.events(1, "registrar_started")) == starts + 1, 30, registrars.log(1))
    assert killed.ran_s() < 3
    # It has not been up for two intervals: its old sentinel may still be listed, a new one not.
    listed = {element["identifier"] for element in registrars.sentinels(1, at=1)}
    assert listed <= {before["identifier"]} or time.monotonic() - killed_at_s > 4

    def settled() -> bool:
        listed = [element["identifier"] for element in registrars.sentinels(1, at=1)]
        return listed not in ([], [before["identifier"]])

    until(settled, 20, registrars.log(1))
    assert time.monotonic() - killed_at_s > 4
    # Its peers wanted to take the old sentinel over; it refused them and is gone everywhere.
    until(lambda: len(registrars.sentinels(1, at=2)) == 1, 20, registrars.log(1))
    [after] = registrars.sentinels(1, at=2)
    assert after["identifier"] != before["identifier"]
    assert after["home"] != before["home"]


def test_status_says_whether_a_registrar_is_settled(registrars: Supervised) -> None:
    def status(*options: str) -> tuple[int, str]:
        command = (sys.executable, "-m", "registrar_config", "status", *options)
        done = registrars.namespace.run(*command, sctp=True)
        return done.returncode, done.stdout + done.stderr

    all_three = f"--registrars={','.join(f'{ADDRESS}:{port}' for port in (3863, 3864, 3865))}"
    second = f"registrar 2 at {ADDRESS}:3864"
    assert status(all_three, f"--address={ADDRESS}:3864") == (0, f"{second}: settled\n")
    code, words = status("--number=9", f"--address={ADDRESS}:3863")
    assert (code, "does not list its sentinel" in words) == (1, True)
    code, words = status("--number=1", f"--address={ADDRESS}:3999")
    assert (code, "does not answer" in words) == (1, True)


def test_a_handle_of_33_bytes_aborts_it_and_it_is_back(registrars: Supervised) -> None:
    starts = len(registrars.events(1, "registrar_started"))
    result = registrars.namespace.run(
        sys.executable, ASK, f"{ADDRESS}:3863", "--raw-handle-bytes", "33", sctp=True
    )
    assert result.returncode == 0, result.stderr
    until(lambda: len(registrars.events(1, "registrar_started")) == starts + 1, 30, registrars.log(1))
    assert registrars.events(1, "registrar_died")[-1]["how"] == "signal SIGABRT"
    until(lambda: registrars.sentinels(2, at=1), 20, registrars.log(1))


def test_a_busy_port_is_one_clear_line(registrars: Supervised) -> None:
    result = registrars.namespace.run(
        *(sys.executable, "-m", "registrar_config", "run", "--number=4", f"--address={ADDRESS}:3863"),
        sctp=True,
    )
    assert result.returncode == 1
    assert result.stderr.strip() == (
        f"error: ASAP port {ADDRESS}:3863 is in use; is another registrar running here?"
    )


def test_a_hung_registrar_is_started_anew_and_a_cut_off_one_is_not(
    registrars: Supervised,
) -> None:
    starts = [len(registrars.events(number, "registrar_started")) for number in (1, 2, 3)]
    hanging = registrars.pid(3)
    assert registrars.namespace.run("nft", CUT.format(3864)).returncode == 0
    os.kill(hanging, signal.SIGSTOP)
    until(lambda: len(registrars.events(3, "registrar_started")) > starts[2], 60, registrars.log(3))
    [hung] = registrars.events(3, "registrar_hung")
    assert (hung["pid"], hung["level"]) == (hanging, "error")
    assert "SIGSTOP" in hung["problem"]
    until(lambda: registrars.events(2, "registrar_unreachable"), 60, registrars.log(2))
    assert "packet filter" in registrars.events(2, "registrar_unreachable")[0]["problem"]
    assert registrars.namespace.run("nft", "delete table inet cut").returncode == 0
    now = [len(registrars.events(number, "registrar_started")) for number in (1, 2, 3)]
    assert now == [starts[0], starts[1], starts[2] + 1]


def test_a_killed_supervisor_takes_its_registrar_along(three: Supervised) -> None:
    pid = three.pid(1)
    three.programs[0].kill()
    three.programs[0].wait()

    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] == "Z"
        return True

    until(is_gone, 10, three.log(1))


def test_sigterm_leaves_nothing(three: Supervised) -> None:
    running = [program for program in three.programs if program.poll() is None]
    for program in running:
        program.send_signal(signal.SIGTERM)
    for program in running:
        assert program.wait(timeout=60) == 0, three.said(three.programs.index(program) + 1)
    until(lambda: not three.namespace.pids(), 15, three.log(1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address=10.77.7.7"], "is not an address of this host"),
        (["--address=127.0.0.1"], "loopback"),
        (["--address=nonsense"], "nonsense"),
        (["--address=10.99.0.1", "--peer=10.99.0.2"], "two registrars are worse"),
        (["--address=10.99.0.1", "--registrars=10.99.0.1,10.99.0.2"], "two registrars are worse"),
        (["--address=10.99.0.9", "--registrars=10.99.0.1,10.99.0.2"], "is not among --registrars"),
        (["--address=10.99.0.2", "--registrars=10.99.0.1 10.99.0.2"], "10.99.0.2:3863 is number 2"),
    ],
)
def test_an_option_that_cannot_be_used_is_said_in_one_line(
    namespace: Namespace, options: list[str], words: str
) -> None:
    result = namespace.run(sys.executable, "-m", "registrar_config", "run", "--number=1", *options, sctp=True)
    assert result.returncode != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_without_rspregistrar_the_package_is_named(namespace: Namespace, tmp_path: Path) -> None:
    code = (
        "import registrar_config.preflight as p\n"
        "p.shutil.which = lambda *a, **k: None\n"
        "import sys; sys.argv = ['rspdns-registrar', 'run', '--number=1', '--address=10.99.0.1']\n"
        "from registrar_config.cli import main; main()\n"
    )
    result = namespace.run(sys.executable, "-c", code)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "rsplib-registrar" in result.stderr
