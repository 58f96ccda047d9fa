"""Tells systemd how this service is (sd_notify(3)); does nothing when systemd did not start it."""

import asyncio
import contextlib
import os
import re
import select
import socket
import time
from collections.abc import Sequence


def sd_notify(state: str, descriptors: Sequence[int] = ()) -> bool:
    """Send `state`, e.g. "READY=1", to the service manager; return whether there is one that took it.

    `descriptors` go with it.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.connect(address)
            if descriptors:
                socket.send_fds(sender, [state.encode()], list(descriptors))
            else:
                sender.send(state.encode())
    except OSError:
        return False  # the service goes on without its manager
    return True


def store(name: str, descriptor: int) -> bool:
    """Have the manager keep a copy of `descriptor`, and hand it to the next process of this service.

    That finds it by this name in LISTEN_FDNAMES (sd_listen_fds_with_names(3)). It needs
    `FileDescriptorStoreMax=` in the unit; nobody tells whether it was kept. The manager drops it when its
    other end hangs up.
    """
    return sd_notify(f"FDSTORE=1\nFDNAME={name}", [descriptor])


def barrier(timeout_s: float) -> bool:
    """Wait until the manager has read all that was sent to it; whether it did (sd_notify_barrier(3))."""
    seen, given = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            is_sent = sd_notify("BARRIER=1", [given])
        finally:
            os.close(given)
        poll = select.poll()
        poll.register(seen, 0)  # a hang-up is always told
        return is_sent and bool(poll.poll(1000 * timeout_s))
    finally:
        os.close(seen)


def ready() -> bool:
    """Say that the service is up."""
    return sd_notify("READY=1")


def stopping() -> bool:
    """Say that the service is on its way down."""
    return sd_notify("STOPPING=1")


def reloading() -> bool:
    """Say that the configuration is being read again; `ready()` says that it is done."""
    return sd_notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def alive() -> bool:
    """Say that the service still works; due every `watchdog_interval_s()`."""
    return sd_notify("WATCHDOG=1")


def watchdog_interval_s() -> float | None:
    """Return how often systemd wants to hear `alive()`, halved to be safe; None when it does not."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None  # meant for another process
    text = os.environ.get("WATCHDOG_USEC", "")
    if not re.fullmatch(r"[1-9][0-9]{0,15}", text):
        return None
    return int(text) / 2_000_000


async def feed_watchdog(stop: asyncio.Event) -> None:
    """Tell it as often as systemd wants to hear it, until `stop` is set; return at once when it does not."""
    interval_s = watchdog_interval_s()
    while interval_s is not None and not stop.is_set():
        alive()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await stop.wait()
