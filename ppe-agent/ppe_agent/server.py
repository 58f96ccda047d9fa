"""One AS and all that is done for it: checks, load, registration, drain."""

import asyncio
import functools
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from daemon_kit.logs import get_logger
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.registrar_choice import RegistrarAddress

from ppe_agent.addresses import Address
from ppe_agent.checks.base import Check, CheckState, Outcome
from ppe_agent.checks.sip_options import SipOptionsCheck
from ppe_agent.checks.tcp_hold import TcpHoldCheck
from ppe_agent.configuration import (
    CheckConfig,
    LoadConfig,
    ServerConfig,
    TcpHoldConfig,
)
from ppe_agent.health import Health
from ppe_agent.load import LoadReporter, LoadUnknown, make_source
from ppe_agent.policy_names import has_load
from ppe_agent.registration import PoolState, Registration
from ppe_agent.state import StateDirectory

_PROTOCOLS = {"udp": Protocol.UDP, "tcp": Protocol.TCP, "sctp": Protocol.SCTP}
# A registration lives for three intervals, so that two lost renewals don't end it.
_LIVES = 3


class Server:
    """Keeps one AS in its pool while it is healthy and not drained."""

    def __init__(
        self,
        config: ServerConfig,
        addresses: Sequence[Address],
        registrars: Sequence[RegistrarAddress],
        reregistration_ms: int,
        states: StateDirectory,
    ) -> None:
        self.config = config
        self._addresses = tuple(addresses)
        self._states = states
        self._kept = states.load(config.name)
        self._log = get_logger("as").bind(name=config.name)
        self._checks = [make_check(check, addresses[0], config.port) for check in config.check]
        self._health = Health(
            [
                (check.kind, check.port, own.timing)
                for check, own in zip(self._checks, config.check, strict=True)
            ]
        )
        self._load_config = config.load or LoadConfig()
        self._load = LoadReporter(self._load_config)
        self._source = make_source(self._load_config) if has_load(config.policy) else None
        self._sample_load()
        self._is_stopping = False
        self.registration = Registration(
            registrars,
            config.handle.encode(),
            PoolElement(
                identifier=self._kept.identifier,
                home_registrar=0,
                life_ms=_LIVES * reregistration_ms,
                user_transport=Transport(_PROTOCOLS[config.transport], config.port, self._addresses),
                policy=config.policy_with(self._load.reported),
            ),
            reregistration_ms=reregistration_ms,
            name=config.name,
        )

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return what has to run for this AS."""
        checks = [
            check.run(functools.partial(self._on_outcome, position))
            for position, check in enumerate(self._checks)
        ]
        return [self.registration.run(), *([self._watch_load()] if self._source else []), *checks]

    def drain(self, drained: bool) -> None:
        """Take the AS out of its pool while it serves on, or (False) let it in again; kept over restarts."""
        self._kept = replace(self._kept, drained=drained)
        self._decide()  # before the disk is asked, which may take its time
        self._log.info("drained" if drained else "undrained")
        self._states.save(self.config.name, self._kept)

    async def leave(self) -> None:
        """Leave the pool for good; returns when it is done."""
        self._is_stopping = True
        self._decide()
        await self.registration.until_out()

    def describe(self) -> dict[str, Any]:
        """Return this AS for people and programs."""
        state, reason = self._state_and_reason()
        registrar = self.registration.registrar
        home = self.registration.home_registrar
        return {
            "name": self.config.name,
            "handle": self.config.handle,
            "identifier": f"{self._kept.identifier:08x}",
            "transport": self.config.transport,
            "address": [str(address) for address in self._addresses],
            "port": self.config.port,
            "policy": self.config.policy,
            "state": state,
            "reason": reason,
            "drained": self._kept.drained,
            "registrar": str(registrar) if registrar else None,
            "home_registrar": f"{home:08x}" if home is not None else None,
            "missing_count": self.registration.missing_count,
            "load": round(self._load.reported, 4) if has_load(self.config.policy) else None,
            "load_problem": self._load.problem,
            "check": self._health.describe(time.monotonic()),
        }

    def _state_and_reason(self) -> tuple[str, str]:
        """Say in one word and in a few why the AS is in its pool or not."""
        where = self.registration.state
        if where is PoolState.LEAVING:
            return "leaving", "drained" if self._kept.drained else self._health.reason
        if self._kept.drained:
            return "drained", "drained by the operator; undrain lets it in again"
        if not self._health.is_up:
            is_down = any(check.machine.state is CheckState.DOWN for check in self._health.checks)
            return "down" if is_down else "unknown", self._health.reason
        if where is PoolState.IN:
            return "in", self._health.reason
        return "joining", self.registration.problem or "registering"

    def _decide(self) -> None:
        self.registration.want(self._health.is_up and not self._kept.drained and not self._is_stopping)

    def _on_outcome(self, position: int, outcome: Outcome) -> bool:
        changed = self._health.report(position, outcome, time.monotonic())
        check = self._health.checks[position]
        if changed:
            self._decide()  # first of all: milliseconds count here
            self._log.info(f"check_{check.machine.state.value}", check=check.kind, saw=outcome.reason)
        return check.machine.try_soon

    async def _watch_load(self) -> None:
        while True:
            await asyncio.sleep(self._load_config.interval_ms / 1000)
            due = self._sample_load()
            if due is not None:
                self.registration.update_policy(self.config.policy_with(due))

    def _sample_load(self) -> float | None:
        """Read the load; return it when it is worth an update."""
        if self._source is None:
            return None
        now = time.monotonic()
        known_before = self._load.problem is None
        try:
            self._load.sample(self._source.read(), now)
        except LoadUnknown as problem:
            self._load.unknown(str(problem))
            if known_before:
                taken = self._load_config.when_unknown
                self._log.warning("load_unknown", problem=str(problem), taken=taken)
        return self._load.due(now)


def make_check(config: CheckConfig, address: Address, port: int) -> Check:
    """Return the check that `config` describes, at `address` and, unless it has a port of its own, `port`."""
    kind = TcpHoldCheck if isinstance(config, TcpHoldConfig) else SipOptionsCheck
    return kind(address, config.port or port, config.timing)
