"""Every AS of this host: made, started, reloaded, drained and ended together; watched at all registrars."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Final

from daemon_kit.errors import FatalError

from ppe_agent.addresses import Address, NoLocalAddress
from ppe_agent.configuration import (
    LIVES,
    AgentConfig,
    ServerConfig,
    addresses_of,
    registered_addresses,
)
from ppe_agent.lookup import RegistrarWatches
from ppe_agent.registration import DOUBTFUL_LIVES
from ppe_agent.server import ServerKeeper, Spawn
from ppe_agent.state import Drain, KeptState, StateDirectory
from ppe_agent.status_model import ServerState, ServerStatus, WaitingStatus
from rserpool import Protocol, RegistrarAddress

# Deregistering takes milliseconds; a registrar that doesn't answer must not delay the end beyond 2 s.
_LEAVE_TIMEOUT_S: Final = 1.2
# Two looks at each registrar.
_SEEN_GONE_S: Final = 1.0


class Servers:
    """The ASes of `config`, and what is kept of each by its name. Raises FatalError when that can't be read.

    While no registrar is known there are none, only what is kept.
    """

    def __init__(self, config: AgentConfig, spawn: Spawn) -> None:
        self._config = config
        self._spawn = spawn
        self._began_s = time.monotonic()
        self._states = StateDirectory(config.state.path)
        self._states.prepare()
        self.kept = {
            name: KeptState(self._states, name, self._states.load(name))
            for name in (server.name for server in config.servers)
        }
        self.running: list[ServerKeeper] = []
        self.registrars: Sequence[RegistrarAddress] = config.all_registrars
        self.watches = RegistrarWatches()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other agents from using the same state directory while in this context.

        Raises FatalError when one does, or did since the states were read: it may have kept a drain.
        """
        with self._states.alone():
            for name, kept in self.kept.items():
                if self._states.read(name) != kept.state:
                    raise FatalError(f"state file {self._states.file(name)} has just changed: start again")
            yield

    def make(self) -> None:
        """Make them, not started. Raises FatalError."""
        try:
            self.running = [
                self._keeper_of(self._config, server, self.kept[server.name])
                for server in self._config.servers
            ]
        except NoLocalAddress as error:
            raise FatalError(f'address = "auto": {error}') from None

    def _keeper_of(self, config: AgentConfig, server: ServerConfig, kept: KeptState) -> ServerKeeper:
        """Return the AS, not started. Raises NoLocalAddress."""
        registrars = config.registrars_of(server) or self.registrars
        return ServerKeeper(
            server,
            addresses_of(server, registrars[0]),
            registered_addresses(server, registrars[0]),
            registrars,
            config.reregistration_ms,
            kept,
            self._spawn,
        )

    def relayed(self, config: AgentConfig) -> dict[tuple[Protocol, int], Address]:
        """The addresses of the servers with `relay = true`, by transport and port; the first of the file
        counts."""
        relayed: dict[tuple[Protocol, int], Address] = {}
        for server in config.servers:
            registrars = config.registrars_of(server) or self.registrars
            if server.relay and (registrars or server.address != "auto"):
                (address, *_) = addresses_of(server, *registrars[:1])
                relayed.setdefault((Protocol[server.transport.upper()], server.port), address)
        return relayed

    def start(self) -> None:
        """Start what was made."""
        self._watch()
        for server in self.running:
            server.start()

    def set_registrars(self, registrars: Sequence[RegistrarAddress]) -> None:
        """Use these from now on; with the first ones the servers are made and started. Raises FatalError."""
        is_first = not self.registrars
        self.registrars = tuple(registrars)
        if is_first:
            self.make()
            self.start()
            return
        self._watch()
        for server in self.running:
            server.registration.update_registrars(self.registrars)

    def _watch(self) -> None:
        self.watches.reports = self._config.reports
        self.watches.set_registrars(self.registrars)
        self.watches.set_registrations([server.registration for server in self.running])

    async def reload(self, config: AgentConfig) -> None:
        """Take another configuration over, whole or not at all. Raises NoLocalAddress, FatalError."""
        kept = {}
        for name in (wanted.name for wanted in config.servers):
            now_kept = self.kept.get(name)
            kept[name] = now_kept or KeptState(self._states, name, await self._states.reading(name))
        registrars = config.all_registrars or self.registrars
        if not registrars:
            self._config, self.kept = config, kept  # no registrar was heard yet: nothing runs
            return
        running = {server.config.name: server for server in self.running}
        servers = []
        for wanted in config.servers:
            now = running.get(wanted.name)
            first = (config.registrars_of(wanted) or registrars)[0]
            addresses = addresses_of(wanted, first), registered_addresses(wanted, first)
            if now is None or not now.can_become(wanted, *addresses):
                now = self._keeper_of(config, wanted, kept[wanted.name])
            servers.append(now)
        # From here on nothing is refused any more.
        self._config = config
        for name in self.kept.keys() - kept.keys():
            self.kept[name].close()
        self.kept = kept
        self.registrars = registrars
        self.watches.reports = config.reports
        self.watches.set_registrars(registrars)
        ended = [server for server in self.running if server not in servers]
        began = [server for server in servers if server not in self.running]
        await _leave(ended)
        await asyncio.gather(*(server.close() for server in ended))
        for server in began:
            before = running.get(server.config.name)
            if before is not None and before.registration.is_unconfirmed:
                server.registration.doubt()  # it has the same identifier
        self.running = servers
        self._watch()
        for wanted, server in zip(config.servers, servers, strict=True):
            server.registration.update_registrars(config.registrars_of(wanted) or self.registrars)
            if server not in began:
                server.reconfigure(wanted)
                continue
            server.start()

    async def drain(self, names: Sequence[str], drain: Drain | None, by: str) -> None:
        """Drain these, or (None) no longer, as the user `by` wants; returns when the disk has it. Those that
        are drained keep what `drain` does not say.

        Raises FatalError when it can't be written.
        """
        for name in names:
            kept_state = self.kept[name]
            kept_state.set_drain(None if drain is None else drain.renewed(kept_state.state.drain))
        concerned = [server for server in self.running if server.config.name in names]
        for server in concerned:
            server.heed_drain(by)
        kept = [self.kept[name] for name in names]
        try:
            await asyncio.gather(*(server.registration.until_begun() for server in concerned))
        finally:
            writing = [state.write() for state in kept]
        await asyncio.gather(*writing)

    async def until_left(self, names: Sequence[str]) -> Sequence[str]:
        """Wait until these left; return those that may be listed still, since no registrar says otherwise."""
        here = {server.config.name: server.registration for server in self.running}
        leaving = [here[name] for name in names if name in here]
        await asyncio.gather(*(registration.until_out() for registration in leaving))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SEEN_GONE_S):
                await asyncio.gather(
                    *(registration.until_gone() for registration in leaving if registration.is_unconfirmed)
                )
        return [
            name
            for name in names
            if (here[name].is_unconfirmed if name in here else self._may_be_listed(name))
        ]

    def twins(self, names: Sequence[str]) -> dict[str, int]:
        """Those of these that another sidecar has in, with the identifiers there."""
        return {
            server.config.name: twin
            for server in self.running
            if server.config.name in names and (twin := server.registration.upkeep.twin) is not None
        }

    def _may_be_listed(self, name: str) -> bool:
        """Tell whether an earlier run may have left it registered: it waits for the first registrar."""
        lives_s = DOUBTFUL_LIVES * LIVES * self._config.reregistration_ms / 1000
        return not self.kept[name].state.is_fresh and time.monotonic() - self._began_s < lives_s

    async def leave(self, *, at_all: bool) -> None:
        """Leave every pool, unless not `at_all`; wait, but not for long, for what is being written."""
        await asyncio.gather(_leave(self.running if at_all else ()), self._states.finish())

    async def close(self) -> None:
        """End everything, without a word to the registrars unless `leave()` was called before."""
        await asyncio.gather(*(server.close() for server in self.running))
        for kept in self.kept.values():
            kept.close()

    def describe(self) -> list[ServerStatus]:
        """Return each AS for people and programs."""
        return [self._describe(server) for server in self.running]

    def _describe(self, server: ServerKeeper) -> ServerStatus:
        return server.describe(self.watches.listed_by(server.registration))

    def describe_waiting(self) -> list[WaitingStatus]:
        """Return the ASes that nothing was done for yet, since no registrar has announced itself."""
        return [] if self.running else [_waiting(*item) for item in self.kept.items()]

    def describe_these(self, names: Sequence[str]) -> list[ServerStatus | WaitingStatus]:
        """Return those of these names, running or waiting."""
        running = {server.config.name: server for server in self.running}
        return [
            self._describe(running[name]) if name in running else _waiting(name, self.kept[name])
            for name in names
        ]


async def _leave(servers: Sequence[ServerKeeper]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAVE_TIMEOUT_S):
            await asyncio.gather(*(server.leave() for server in servers))


def _waiting(name: str, kept: KeptState) -> WaitingStatus:
    state: ServerState = "drained" if kept.state.drained else "unknown"
    return {"name": name, "state": state, "reason": "no registrar has announced itself yet"}
