"""Name servers' pool users at real registrars, without DNS, as many as wanted in one process.

    python -m rspdns_lab.scale.followers ADDRESS COUNT HANDLE CONTROL REGISTRAR...

When each is pushed every change by every registrar, the control socket CONTROL is there; it takes `leave`.
"""

import asyncio
import math
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import uvloop
from daemon_kit.control import ControlServer
from pool_user import Belief, Intervals, PoolRules, PoolUser

from rserpool import RegistrarAddress

_PAUSE_S: Final = 0.05
"""Between the starts of two: a table each from all registrars."""


def _pool_user(own: str, handle: str, registrars: Sequence[str]) -> PoolUser:
    belief = Belief(registrars, {handle: PoolRules((ip_network("0.0.0.0/0"),))})
    return PoolUser(
        [RegistrarAddress.parse(each) for each in registrars],
        [handle],
        belief,
        lambda _: None,
        is_to_follow=True,
        intervals=Intervals(hot_for_s=math.inf),
        timeout_ms=300,
        on_events=lambda _: None,
        local_addresses=[own],
    )


async def _follow(own: str, count: int, handle: str, control: Path, registrars: Sequence[str]) -> None:
    users = []
    for _ in range(count):
        users.append(_pool_user(own, handle, registrars))
        users[-1].start()
        await asyncio.sleep(_PAUSE_S)
    while not all(session.is_followed for user in users for session in user.sessions):  # noqa: ASYNC110
        await asyncio.sleep(_PAUSE_S)

    async def leave(_: Mapping[str, Any]) -> dict[str, Any]:
        await asyncio.gather(*(user.leave() for user in users))
        await asyncio.gather(*(user.close() for user in users))
        return {}

    listening = ControlServer(control, {"leave": leave})  # kept: one that nobody refers to stops listening
    await listening.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_follow(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), sys.argv[5:]))
