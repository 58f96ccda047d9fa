"""A service's life: ready, stopped by a signal, ended by a clear error."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def test_a_second_signal_ends_one_that_hangs() -> None:
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


def test_an_interrupt_that_finds_no_handler_is_one_clear_line() -> None:
    code = (
        "import sys\nfrom daemon_kit.run import run_service\n"
        "async def main(stop):\n    raise KeyboardInterrupt\n"
        "sys.exit(run_service(main))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: stopped before it had finished\n")
