"""What is done again and again is done at the same moments, so that the agent wakes up less often."""

import asyncio
import time


def until_next_s(interval_s: float, now: float) -> float:
    """Return the seconds from `now` to the next multiple of `interval_s`; never less than half of it.

    Whatever is done every half second is so done in one go, and none of it twice in a row.
    """
    wait_s = interval_s - now % interval_s
    return wait_s if wait_s >= interval_s / 2 else wait_s + interval_s


async def next_moment(interval_s: float) -> None:
    """Wait for the next multiple of `interval_s` on the monotonic clock."""
    await asyncio.sleep(until_next_s(interval_s, time.monotonic()))
