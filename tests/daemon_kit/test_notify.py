"""The messages of a service to systemd (sd_notify(3))."""

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest
from daemon_kit import notify
from daemon_kit.notify import feed_watchdog


def test_a_service_manager_is_told_ready_alive_and_reloading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert notify.ready()
        assert manager.recv(100) == b"READY=1"
        assert notify.alive()
        assert manager.recv(100) == b"WATCHDOG=1"
        assert notify.reloading()
        first, second = manager.recv(100).split(b"\n")
        assert first == b"RELOADING=1"
        assert int(second.removeprefix(b"MONOTONIC_USEC=")) > 0


def test_a_descriptor_is_kept_and_a_barrier_waits_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        reader, writer = os.pipe()
        assert notify.store("a-pipe", writer)
        os.close(writer)
        data, (kept,), _, _ = socket.recv_fds(manager, 100, 4)
        assert data == b"FDSTORE=1\nFDNAME=a-pipe"
        os.write(kept, b"hello")
        assert os.read(reader, 100) == b"hello"
        os.close(kept)
        os.close(reader)

        assert not notify.barrier(0.01), "nobody has read it"
        waiting = threading.Timer(0.05, answer_barriers, (manager,))
        waiting.start()
        assert notify.barrier(10)
        waiting.join()


def answer_barriers(manager: socket.socket) -> None:
    """Close what came with the barriers that were sent."""
    manager.settimeout(0.1)
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(manager, 100, 4)
        except TimeoutError:
            return
        assert data == b"BARRIER=1"
        for descriptor in descriptors:
            os.close(descriptor)


def test_without_systemd_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify.alive()
    assert not notify.store("name", 0)
    assert not notify.barrier(10)


@pytest.mark.parametrize(
    ("usec", "pid", "interval_s"),
    [
        ("4000000", None, 2.0),
        pytest.param("4000000", str(os.getpid()), 2.0, id="this process"),
        ("4000000", "4194305", None),
        ("", None, None),
        ("-1", None, None),
        ("soon", None, None),
    ],
)
def test_interval_of_the_watchdog_is_half_of_what_systemd_says(
    usec: str, pid: str | None, interval_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", pid)
    assert notify.watchdog_interval_s() == interval_s


async def test_the_watchdog_hears_of_a_loop_that_turns_and_only_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    await feed_watchdog(stop)  # nobody wants to hear it
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "40000")
        feeding = asyncio.create_task(feed_watchdog(stop))
        for _ in range(3):
            async with asyncio.timeout(10):
                assert await asyncio.get_running_loop().sock_recv(manager, 100) == b"WATCHDOG=1"
        stop.set()
        async with asyncio.timeout(10):
            await feeding
