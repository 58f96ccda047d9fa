"""Tells systemd that an event loop turns, for units with `WatchdogSec=`."""

import asyncio
import contextlib

from daemon_kit import notify


async def feed_watchdog(stop: asyncio.Event) -> None:
    """Tell it as often as systemd wants to hear it, until `stop` is set; return at once when it does not."""
    interval_s = notify.watchdog_interval_s()
    while interval_s is not None and not stop.is_set():
        notify.alive()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await stop.wait()
