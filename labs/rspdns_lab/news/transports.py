"""The usual ways to tell clients of a change, to compare with: `python -m ... SOCKET POOL HOST PORT COPIES`.

`/short?after=N` answers at once, `/long?after=N` when there is something after N or after 30 s, `/events` are
server-sent events. The news are those that `rspdns news` tells, from the same control socket. COPIES of this
process share the port, if one may not have as many files as there are connections.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import threading
from typing import Any

from aiohttp import web
from daemon_kit.child import die_with_parent
from daemon_kit.control import ControlError, ask

LONG_POLL_S = 30.0
WAIT_S = 10.0
"""The longest time that the backend lets a question wait."""


class Transports:
    """Follows a pool, and answers with what came after a number."""

    def __init__(self, control: str, pool: str) -> None:
        self._control = control
        self._keys: dict[str, Any] = {"pool": pool}
        self._pool: dict[str, Any] = {}
        self._changes: list[dict[str, Any]] = []
        self._bodies: dict[int, bytes] = {}
        """The changes after a number, as JSON: made once for all who ask, as `rspdns news` does."""
        self._more = asyncio.Event()

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application()
        application.add_routes(
            [web.get("/short", self.short), web.get("/long", self.long), web.get("/events", self.events)]
        )
        return application

    async def follow(self, server: asyncio.AbstractEventLoop) -> None:
        """Take what the backend tells, for ever, in a thread of its own: a saturated server knows it, too."""
        while True:
            try:
                answer = await ask(
                    self._control, "changes", timeout_s=WAIT_S + 5, wait_s=WAIT_S, **self._keys
                )
            except ControlError:  # the machine is too busy
                await asyncio.sleep(0.1)
                continue
            self._keys |= {"life": answer["life"], "after": answer["number"]}
            self._pool = answer["pool"]
            self._changes = [*self._changes, *answer["changes"]]
            self._bodies = {}
            if answer["changes"]:
                server.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def _after(self, number: int) -> bytes:
        bodies = self._bodies  # if `follow` replaces them meanwhile, nobody reads what is added here
        if number not in bodies:
            changes = [change for change in self._changes if change["number"] > number]
            told = {"changes": changes, "pool": self._pool if changes or not number else None}
            bodies[number] = json.dumps(told).encode()
        return bodies[number]

    def _is_behind(self, number: int) -> bool:
        return bool(self._changes) and self._changes[-1]["number"] > number

    async def short(self, asked: web.Request) -> web.Response:
        """Answer at once."""
        return web.Response(body=self._after(int(asked.query["after"])))

    async def long(self, asked: web.Request) -> web.Response:
        """Answer when there is something to tell."""
        number = int(asked.query["after"])
        if not self._is_behind(number):
            try:
                async with asyncio.timeout(LONG_POLL_S):
                    await self._more.wait()
            except TimeoutError:
                pass
        return web.Response(body=self._after(number))

    async def events(self, asked: web.Request) -> web.StreamResponse:
        """Tell each change as it comes, and something every 15 s."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(asked)
        number = int(asked.query["after"])
        while True:
            more = self._more
            if self._is_behind(number):
                await response.write(b"data: " + self._after(number) + b"\n\n")
                number = self._changes[-1]["number"]
            try:
                async with asyncio.timeout(15.0):
                    await more.wait()
            except TimeoutError:
                await response.write(b": still here\n\n")


async def main(control: str, pool: str, host: str, port: int) -> None:
    """Serve until the process is ended."""
    transports = Transports(control, pool)
    runner = web.AppRunner(transports.application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port, backlog=4096, reuse_port=True).start()
    following = transports.follow(asyncio.get_running_loop())
    threading.Thread(target=asyncio.run, args=(following,), daemon=True).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for _ in range(int(sys.argv[5]) - 1):
        if os.fork() == 0:
            die_with_parent(signal.SIGKILL)()
            break
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
