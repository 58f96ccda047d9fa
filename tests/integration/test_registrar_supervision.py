"""Real registrars, supervised: what dies comes back, and a settled one is told from one that is not."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from registrar_config.embedded import embedded_commands

from tests.support.namespaces import REPOSITORY, Namespace

ADDRESS = "10.99.0.1"
ASK = str(REPOSITORY / "tests/support/ask_registrar.py")


class Registrars:
    """Three supervised registrars in one namespace."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace = namespace
        namespace.run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        self.logs = [folder / f"registrar-{number}.log" for number in (1, 2, 3)]
        self.programs = [
            namespace.start(*command, "--log-json", sctp=True, log=log)
            for command, log in zip(embedded_commands(ADDRESS), self.logs, strict=True)
        ]
        for number in (1, 2, 3):
            until(partial(self.sentinels, number), 30, self.logs[number - 1])

    def listed(self, handle: str, at: int) -> list[dict[str, int]]:
        result = self.namespace.run(sys.executable, ASK, f"{ADDRESS}:{3862 + at}", handle, sctp=True)
        assert result.returncode == 0, result.stderr
        answer: dict[str, Any] = json.loads(result.stdout)
        elements: list[dict[str, int]] = answer["pool_elements"]
        return elements

    def sentinels(self, number: int) -> list[dict[str, int]]:
        return self.listed(f"rspdns-sentinel-{number}", at=number)

    def events(self, number: int, name: str) -> list[dict[str, Any]]:
        lines = [
            json.loads(line) for line in self.logs[number - 1].read_text().splitlines() if line[:1] == "{"
        ]
        return [line for line in lines if line["event"] == name]

    def pid(self, number: int) -> int:
        return int(self.events(number, "registrar_started")[-1]["pid"])


def until(condition: Callable[[], object], timeout_s: float, log: Path) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, log.read_text()
        time.sleep(0.05)


@pytest.fixture
def registrars(namespace: Namespace, tmp_path: Path) -> Registrars:
    return Registrars(namespace, tmp_path)


def test_a_killed_registrar_is_back_and_settles_with_a_new_sentinel(registrars: Registrars) -> None:
    [before] = registrars.sentinels(1)
    killed_at_s = time.monotonic()
    os.kill(registrars.pid(1), signal.SIGKILL)
    until(lambda: len(registrars.events(1, "registrar_started")) == 2, 5, registrars.logs[0])
    assert time.monotonic() - killed_at_s < 3
    # It has not been up for two intervals: its old sentinel may still be listed, a new one not.
    assert {one["identifier"] for one in registrars.sentinels(1)} <= {before["identifier"]}

    def settled() -> bool:
        return [one["identifier"] for one in registrars.sentinels(1)] not in ([], [before["identifier"]])

    until(settled, 20, registrars.logs[0])
    assert time.monotonic() - killed_at_s > 4
    # Its peers wanted to take the old sentinel over; it refused them and is gone everywhere.
    until(lambda: len(registrars.listed("rspdns-sentinel-1", at=2)) == 1, 20, registrars.logs[0])
    [after] = registrars.listed("rspdns-sentinel-1", at=2)
    assert after["identifier"] != before["identifier"]
    assert after["home"] != before["home"]


def test_a_handle_of_33_bytes_aborts_it_and_it_is_back(registrars: Registrars) -> None:
    result = registrars.namespace.run(
        sys.executable, ASK, f"{ADDRESS}:3863", "--raw-handle-bytes", "33", sctp=True
    )
    assert result.returncode == 0, result.stderr
    until(lambda: len(registrars.events(1, "registrar_started")) == 2, 5, registrars.logs[0])
    [death] = registrars.events(1, "registrar_died")
    assert death["how"] == "signal SIGABRT"
    until(lambda: registrars.listed("rspdns-sentinel-2", at=1), 20, registrars.logs[0])


def test_every_registrar_lists_every_sentinel_and_sigterm_leaves_nothing(registrars: Registrars) -> None:
    for at in (1, 2, 3):
        for number in (1, 2, 3):
            until(partial(registrars.listed, f"rspdns-sentinel-{number}", at), 15, registrars.logs[at - 1])
    for program in registrars.programs:
        program.send_signal(signal.SIGTERM)
    for program, log in zip(registrars.programs, registrars.logs, strict=True):
        assert program.wait(timeout=15) == 0, log.read_text()
    until(lambda: not pids(registrars.namespace), 15, registrars.logs[0])


def pids(namespace: Namespace) -> list[str]:
    return subprocess.run(
        ["ip", "netns", "pids", namespace.name], capture_output=True, text=True, check=True
    ).stdout.split()


def test_a_killed_supervisor_takes_its_registrar_along(registrars: Registrars) -> None:
    pid = registrars.pid(1)
    registrars.programs[0].kill()
    registrars.programs[0].wait()

    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] == "Z"
        return True

    until(is_gone, 10, registrars.logs[0])


def test_a_busy_port_is_one_clear_line(registrars: Registrars) -> None:
    result = registrars.namespace.run(
        *(sys.executable, "-m", "registrar_config", "run", "--number=4", f"--address={ADDRESS}:3863"),
        sctp=True,
    )
    assert result.returncode == 1
    assert result.stderr.strip() == (
        f"error: ASAP port {ADDRESS}:3863 is in use; is another registrar running here?"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address=10.77.7.7"], "is none of this host"),
        (["--address=127.0.0.1"], "loopback"),
        (["--address=nonsense"], "nonsense"),
    ],
)
def test_what_it_cannot_use_is_said_in_one_line(namespace: Namespace, options: list[str], words: str) -> None:
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
