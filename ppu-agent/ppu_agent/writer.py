"""Writes what the mechanisms want to the kernel: all of it in one transaction of nftables."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from typing import Final

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppu_agent.kernel import Nftables, NftablesError, NftCommand
from ppu_agent.rules import FAMILY, TableCommands, replacing

CLAIM_TABLE: Final = "ppu_agent_claim"
"""Belongs to the agent that runs here, and ends with it. It has the keeping chain, or nothing."""


class Writer:
    """The agent's nftables. A command that the kernel refuses is reported once, and tried again."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """The commands that the kernel refused the last time, for status; None when all is done."""
        self.writes = 0
        self.has_rules = False
        """Whether the kernel took the last content of the table."""
        self.is_claimed = False
        """Whether there is a table that tells other agents of this one."""
        self.is_kept = False
        """Rules of an agent before stay until there is news."""
        self._is_empty = False
        self._nftables: Nftables | None = None
        self._closed = threading.Event()
        self._log = get_logger("kernel")

    @property
    def is_open(self) -> bool:
        """Whether there is a kernel to write to."""
        return self._nftables is not None

    def is_closed(self) -> bool:
        """Whether `close` was called: what takes long is to be broken off. For any thread."""
        return self._closed.is_set()

    def open(self, *, is_alone: bool = False) -> None:
        """Begin. Raises FatalError without the right to; with `is_alone`, also where another agent runs."""
        self._nftables = Nftables()
        self.chains()
        if is_alone:
            self._claim()

    def chains(self) -> set[tuple[str, str]]:
        """All chains of this host: table and name. Raises FatalError without the right to see them."""
        if self._nftables is None:
            return set()
        try:
            listed = self._nftables.commit([{"list": {"chains": None}}])
        except NftablesError as problem:
            raise unusable(problem) from None
        chains = [listing.get("chain", {}) for listing in json.loads(listed or "{}").get("nftables", [])]
        return {(str(chain.get("table")), str(chain.get("name"))) for chain in chains}

    def _claim(self) -> None:
        """Two agents would take each other's rules back. Raises FatalError."""
        try:
            self.own(CLAIM_TABLE, ())
            self.is_claimed = True
        except NftablesError as problem:
            if "not permitted" not in str(problem):
                return  # a kernel that knows no owner of tables (before Linux 5.12)
            raise FatalError(
                "another ppu-agent runs on this host, and each would take back the rules of the other: "
                "stop that one, or name its pools in this configuration"
            ) from None

    def own(self, table: str, content: Sequence[NftCommand]) -> None:
        """Make a table that ends with this process. Raises NftablesError (Linux 5.12)."""
        if self._nftables is not None:
            self._nftables.own(FAMILY, table)
            if content:
                self._nftables.commit(content)

    def disown(self, table: str) -> None:
        """Remove a table of this process. Raises NftablesError."""
        if self._nftables is not None:
            self._nftables.remove(FAMILY, table)

    def write(self, parts: Sequence[TableCommands], *, is_idle: bool) -> None:
        """Replace what is in the kernel, also when nothing changed: that renews the lease.

        All is one transaction. If the kernel refuses that, each part is tried alone: what can be done, is.
        `is_idle`: no packet is treated or steered, so an empty table need not be written again.
        """
        if self._nftables is None:
            return
        shared = list(itertools.chain.from_iterable(part.shared for part in parts))
        transactions = [list(part.own) for part in parts if part.own]
        is_unchanged = is_idle and (self._is_empty or self.is_kept)
        if not is_unchanged:
            self.is_kept = False
            transactions.insert(0, replacing(shared))
        if not transactions:
            return
        problems = self._commit(transactions)
        if problem := next(filter(None, problems), None):
            self.note(f"nftables refused the rules: {problem}")
        if not is_unchanged:
            self.has_rules = problems[0] is None
            self._is_empty = self.has_rules and not shared
            self.writes += self.has_rules
            if problem is None:
                self.problem = None

    def _commit(self, transactions: Sequence[Sequence[NftCommand]]) -> list[str | None]:
        """Commit all as one, else each alone; return what was refused of each."""
        problem = self._refusal(list(itertools.chain.from_iterable(transactions)))
        if problem is None or len(transactions) == 1:
            return [problem] * len(transactions)
        return [self._refusal(transaction) for transaction in transactions]

    def _refusal(self, commands: Sequence[NftCommand]) -> str | None:
        try:
            if self._nftables is not None:
                self._nftables.commit(commands)
        except NftablesError as problem:
            return str(problem)
        return None

    def note(self, words: str) -> None:
        """Report what the kernel refused; the same words once. For any thread."""
        if words != self.problem:
            self._log.warning("refused_by_kernel", problem=words)
        self.problem = words

    def close(self) -> None:
        """Give the tables of this process back; safe to repeat."""
        self._closed.set()
        if self._nftables is not None:
            self._nftables.close()
            self._nftables = None


def unusable(problem: object) -> FatalError:
    """The error of a host without nftables, or without the right to it."""
    return FatalError(
        f"nftables can't be used: {problem}; it needs CAP_NET_ADMIN and a kernel with nf_tables"
    )
