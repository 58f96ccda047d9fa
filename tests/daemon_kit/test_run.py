"""A service's life: ready, stopped by a signal or Ctrl-C, ended by a clear error; its children."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from daemon_kit.commands import until_ctrl_c
from daemon_kit.logs import get_logger
from daemon_kit.run import FatalError, Parts, Reloading, check_fixed, run_service
from structlog.testing import capture_logs

SERVICE = """
import asyncio, sys
from daemon_kit import logs, notify
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors
from daemon_kit.run import FatalError, run_service

async def main(stop):
    logs.configure("info", json=True)
    if sys.argv[1] == "fatal":
        raise FatalError("port 53 is in use; stop what uses it")
    if sys.argv[1] == "configuration":
        raise ConfigurationErrors([ConfigurationError("a.toml", 3, "port", "is missing")])
    logs.get_logger("test").info("started", port=53)
    notify.ready()
    while sys.argv[1] == "talk" and not stop.is_set():
        logs.get_logger("test").info("talking", about="x" * 1000)
        await asyncio.sleep(0.001)
    await stop.wait()
    if sys.argv[1] == "stuck":
        logs.get_logger("test").info("stuck")
        await asyncio.sleep(60)
    print("cleaned up")

sys.exit(run_service(main))
"""


def start(how: str, notify_socket: Path | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVICE, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"NOTIFY_SOCKET": str(notify_socket)} if notify_socket else {},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, start("run", tmp_path / "n") as service:
        # The service may not find the socket in time, so bind first thing; it starts slower than this.
        manager.bind(str(tmp_path / "n"))
        manager.settimeout(10)
        assert manager.recv(100) == b"READY=1"
        service.send_signal(number)
        output, log = service.communicate(timeout=10)
        assert manager.recv(100) == b"STOPPING=1"
    assert (service.returncode, output) == (0, "cleaned up\n")
    event = json.loads(log.splitlines()[0])
    assert (event["event"], event["part"], event["level"], event["port"]) == ("started", "test", "info", 53)


def test_a_second_signal_ends_a_service_that_hangs() -> None:
    with start("stuck") as service:
        assert service.stderr is not None
        service.stderr.readline()
        service.send_signal(signal.SIGTERM)
        assert "stuck" in service.stderr.readline()
        service.send_signal(signal.SIGTERM)
        _, errors = service.communicate(timeout=10)
    assert (service.returncode, errors) == (1, "error: stopped before it had finished\n")


def test_a_service_goes_on_when_nobody_reads_its_log_any_more() -> None:
    with start("talk") as service:
        assert service.stderr is not None
        service.stderr.readline()
        service.stderr.close()
        service.stderr = None
        time.sleep(0.3)
        service.send_signal(signal.SIGTERM)
        output, _ = service.communicate(timeout=10)
    assert output == "cleaned up\n"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fatal", "error: port 53 is in use; stop what uses it\n"),
        ("configuration", "a.toml:3: port: is missing\n"),
    ],
)
def test_fatal_errors_are_one_clear_line(how: str, message: str) -> None:
    with start(how) as service:
        output, errors = service.communicate(timeout=10)
    assert (service.returncode, output, errors) == (1, "", message)


def test_an_exception_named_fatal_is_one_clear_line(capfd: pytest.CaptureFixture[str]) -> None:
    async def main(_stop: asyncio.Event) -> None:
        raise LookupError("there is no SCTP here")

    assert run_service(main, fatal=(LookupError,)) == 1
    assert capfd.readouterr().err == "error: there is no SCTP here\n"


def test_an_interrupt_that_finds_no_handler_is_one_clear_line() -> None:
    code = (
        "import sys\nfrom daemon_kit.run import run_service\n"
        "async def main(stop):\n    raise KeyboardInterrupt\n"
        "sys.exit(run_service(main))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: stopped before it had finished\n")


class Finalized:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # the signal is handled here, and what it raises is dropped


def test_a_ctrl_c_that_python_drops_ends_the_loop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: dropped.append(told.exc_type))
    turns = 0
    with until_ctrl_c() as goes_on:
        while goes_on() and turns < 3:
            turns += 1
            Finalized()
    assert not dropped, "a traceback was told"
    assert turns == 1


def test_ctrl_c_ends_a_loop_in_the_middle_of_a_turn_and_is_as_it_was_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with until_ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        pytest.fail("it goes on")
    assert signal.getsignal(signal.SIGINT) is before


PARENT = """
import signal, subprocess, time
from daemon_kit.child import die_with_parent
child = subprocess.Popen(["sleep", "300"], preexec_fn=die_with_parent(signal.SIGTERM))
print(child.pid, flush=True)
time.sleep(300)
"""


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def test_the_child_ends_with_its_parent_even_when_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            assert is_running(child)
        finally:
            parent.kill()
    try:
        end_s = time.monotonic() + 10
        while is_running(child) and time.monotonic() < end_s:
            time.sleep(0.02)
        assert not is_running(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


async def test_a_hangup_has_the_configuration_read_again_and_its_error_told() -> None:
    said: list[Exception | dict[str, str]] = [
        FatalError("line 3: no such key"),
        OSError(11, "no timer"),
        {"pools": "sip"},
    ]

    async def reload() -> dict[str, str]:
        match said.pop(0):
            case Exception() as problem:
                raise problem
            case words:
                return words

    with capture_logs() as logged:
        reloading = Reloading(reload, get_logger("test"))
        with reloading.at_hangup():
            task = asyncio.create_task(reloading.run())
            for problem in ("line 3: no such key", "BlockingIOError(11, 'no timer')", None):
                left = len(said)
                signal.raise_signal(signal.SIGHUP)
                async with asyncio.timeout(30):
                    while len(said) == left or reloading.problem != problem:  # noqa: ASYNC110 - none tells
                        await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            signal.raise_signal(signal.SIGHUP)  # noted, though nobody reloads any more
    assert [(line["event"], line.get("pools")) for line in logged] == [
        ("reload_refused", None),
        ("reload_refused", None),
        ("reloaded", "sip"),
    ]


def test_a_key_that_must_not_change_is_named() -> None:
    before = SimpleNamespace(control="a", follow="enrp")
    check_fixed(before, SimpleNamespace(control="a", follow="poll"), ["control"])
    with pytest.raises(FatalError, match=r"^follow can't change while the agent runs: restart it for that$"):
        check_fixed(before, SimpleNamespace(control="a", follow="poll"), ["control", "follow"])


def test_process_ends_at_once_with_its_code_and_all_that_it_printed() -> None:
    """Nothing that Python would do at its end holds up the successor."""
    script = (
        "import atexit; from daemon_kit.run import end_process\n"
        "atexit.register(print, 'late'); print('said', end=''); end_process(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "said", "")


async def test_a_service_fails_with_the_first_of_its_parts_that_fails() -> None:
    async def part(problem: Exception | None) -> None:
        if problem is not None:
            raise problem

    parts = Parts()
    ended = [parts.start(part(problem)) for problem in (None, FatalError("first"), FatalError("second"))]
    cancelled = parts.start(asyncio.sleep(3600))
    await asyncio.wait(ended)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    parts.fail(FatalError("third"))
    with pytest.raises(FatalError, match="first"):
        await parts.failed
