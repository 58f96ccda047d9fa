"""The agent's side of a real kernel, without registrars and probes: what tests of single rules start from."""

import asyncio
import time
from collections.abc import Collection, Coroutine, Iterable
from typing import Any

from ppu_agent.destinations import Destination
from ppu_agent.mechanisms import (
    AnswerMechanism,
    EndingMechanism,
    FrontMechanism,
    RedirectMechanism,
    RefuseMechanism,
)
from ppu_agent.mechanisms.answer import answer_rules
from ppu_agent.mechanisms.base import ZoneOfFlows
from ppu_agent.mechanisms.ending import Copied
from ppu_agent.mechanisms.repeat import open_relay, relay_rules
from ppu_agent.plan import Front, Plan
from ppu_agent.rules import TableCommands
from ppu_agent.writer import Writer


def _spawn(part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(part)


class KernelSide:
    """A writer, and the mechanisms that need nothing but the kernel."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.redirect = RedirectMechanism(self.writer)
        self.answer = AnswerMechanism(self.writer)
        self.ending = EndingMechanism(
            self.writer,
            lambda: self.redirect.keeps_connections or bool(self._relayed.own),
            _spawn,
            lambda: None,
        )
        self.passing: Collection[Destination] = ()
        """The servers whose connections are about to end."""
        self._rules = (self.redirect, RefuseMechanism(), self.answer, FrontMechanism())
        self._zone = ZoneOfFlows()
        self._plan = Plan()
        self._copied: Copied | None = None
        self._relayed = TableCommands()

    def open(self, *, is_kept: bool = False, is_alone: bool = False) -> None:
        """Begin as the agent does."""
        self.writer.open(is_alone=is_alone)
        self.writer.is_kept = is_kept
        self.redirect.begin()
        self.write(Plan())

    def write(self, plan: Plan, responder_port: int | None = None) -> None:
        """Do this, requests being answered at that port."""
        self._plan = plan
        parts = [mechanism.commands(plan) for mechanism in self._rules]
        if responder_port is not None:
            parts.append(TableCommands(answer_rules(plan, self._zone.of(plan), responder_port)))
        self._write([*parts, self._copying(time.monotonic()), self._relayed])

    def _write(self, parts: Collection[TableCommands]) -> None:
        self.writer.write(list(parts), is_idle=not self._plan.treatments and not self._plan.fronts)

    def copy(self, wanted: Copied, now: float) -> None:
        """Have packets copied."""
        self._copied = wanted
        self._write([*(mechanism.commands(self._plan) for mechanism in self._rules), self._copying(now)])

    def _copying(self, now: float) -> TableCommands:
        passing = {server.endpoint for server in self.passing}
        return TableCommands() if self._copied is None else self.ending.copying(self._copied, passing, now)

    def relay(self, members: Iterable[Destination], port: int, fronts: Iterable[Front] = ()) -> None:
        """Have connections to these relayed at this port."""
        if not self._relayed.own:
            open_relay(self.writer)
        self._relayed = TableCommands(own=relay_rules(members, port, fronts))
        self.write(self._plan)

    def close(self) -> None:
        """End as the agent does; safe to repeat."""
        self._relayed, self.writer.is_kept = TableCommands(), False
        self.write(Plan())
        self.redirect.find_connections()
        self.write(Plan())
        self.ending.copies.close()
        self.writer.close()
