"""The sidecar as a whole: every AS, the watch on every registrar, the control socket."""

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from typing import Any

from daemon_kit import notify
from daemon_kit.control import ControlError, ControlServer
from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppe_agent.addresses import NoLocalAddress
from ppe_agent.configuration import AgentConfig, addresses_of
from ppe_agent.lookup import RegistrarWatch
from ppe_agent.registration import Registration
from ppe_agent.server import Server
from ppe_agent.state import StateDirectory

# Deregistering takes milliseconds; a registrar that doesn't answer must not delay the end beyond 2 s.
_LEAVE_TIMEOUT_S = 1.2


class Agent:
    """Runs everything; needs a running event loop. Raises FatalError when it can't begin."""

    def __init__(self, config: AgentConfig) -> None:
        states = StateDirectory(config.state.path)
        states.prepare()
        try:
            self._servers = [
                Server(
                    server,
                    addresses_of(server, config.registrars[0]),
                    config.registrars,
                    config.reregistration_ms,
                    states,
                )
                for server in config.servers
            ]
        except NoLocalAddress as error:
            raise FatalError(f'address = "auto": {error}') from None
        registrations = [server.registration for server in self._servers]
        self._watches = [RegistrarWatch(address, registrations) for address in config.registrars]
        for registration in registrations:
            registration.on_unconfirmed = functools.partial(self._report_unreachable, registration)
        self._control = ControlServer(
            config.control.path,
            {"status": self._status, "drain": self._drain, "undrain": self._undrain},
        )
        self._log = get_logger("agent")

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then leave every pool and return."""
        await self._control.start()
        parts = [part for server in self._servers for part in server.tasks()]
        parts += [watch.run() for watch in self._watches]
        tasks = [asyncio.create_task(part) for part in parts]
        stopped = asyncio.create_task(stop.wait())
        notify.ready()
        self._log.info("started", servers=[server.config.name for server in self._servers])
        try:
            done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what ended it
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                    await asyncio.gather(*(server.leave() for server in self._servers))
            self._log.info("stopped")
        finally:
            for task in (stopped, *tasks):
                task.cancel()
            await asyncio.gather(stopped, *tasks, return_exceptions=True)
            await self._control.close()

    def _report_unreachable(self, registration: Registration) -> None:
        for watch in self._watches:
            watch.report_unreachable(registration)

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        servers = []
        for server in self._servers:
            listed = [
                str(watch.address) for watch in self._watches if watch.lists(server.registration) is True
            ]
            servers.append({**server.describe(), "listed_by": listed})
        return {"registrars": [watch.describe() for watch in self._watches], "as": servers}

    async def _drain(self, request: dict[str, Any]) -> dict[str, Any]:
        chosen = self._chosen(request)
        _set_drained(chosen, True)
        if request.get("wait"):
            await asyncio.gather(*(server.registration.until_out() for server in chosen))
        return {"as": [server.describe() for server in chosen]}

    async def _undrain(self, request: dict[str, Any]) -> dict[str, Any]:
        chosen = self._chosen(request)
        _set_drained(chosen, False)
        return {"as": [server.describe() for server in chosen]}

    def _chosen(self, request: dict[str, Any]) -> Sequence[Server]:
        """Return the AS that the request names, all when it names none."""
        name = request.get("name")
        chosen = [server for server in self._servers if name is None or server.config.name == name]
        if not chosen:
            names = ", ".join(server.config.name for server in self._servers)
            raise ControlError(f"no AS named {name!r} here; there is {names}")
        return chosen


def _set_drained(servers: Sequence[Server], drained: bool) -> None:
    try:
        for server in servers:
            server.drain(drained)
    except FatalError as error:
        raise ControlError(f"done, but lost when the agent restarts: {error}") from None
