"""Writes what the mechanisms want to the kernel: all of it in one transaction of nftables.

That is done by nftables' own library, libnftables, which takes whole transactions as JSON
(libnftables-json(5)). It is called by ctypes: Debian's binding (python3-nftables) is not on PyPI, and does
the same few calls.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import threading
from collections.abc import Sequence
from typing import Final

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppu_agent.rules import FAMILY, NftCommand, TableCommands, replacing

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


_LIBRARY: Final = "libnftables.so.1"
_OUTPUT_JSON: Final = 1 << 4


class NftablesError(Exception):
    """The kernel or libnftables refused a transaction: nothing of it was done. The words are theirs."""


class Nftables:
    """A context of libnftables, for the network namespace of the thread that makes it.

    Raises FatalError when the library is missing.
    """

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError:
            raise FatalError(f"{_LIBRARY} is missing (Debian: apt-get install libnftables1)") from None
        self._run = library.nft_run_cmd_from_buffer
        self._run.argtypes, self._run.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_int
        self._output = library.nft_ctx_get_output_buffer
        self._errors = library.nft_ctx_get_error_buffer
        for read in (self._output, self._errors):
            read.argtypes, read.restype = [ctypes.c_void_p], ctypes.c_char_p
        library.nft_ctx_new.argtypes, library.nft_ctx_new.restype = [ctypes.c_uint32], ctypes.c_void_p
        library.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
        self._free = library.nft_ctx_free
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None
        self._context = library.nft_ctx_new(0)
        library.nft_ctx_output_set_flags(self._context, _OUTPUT_JSON)
        for buffer in (library.nft_ctx_buffer_output, library.nft_ctx_buffer_error):
            buffer.argtypes = [ctypes.c_void_p]
            buffer(self._context)

    def commit(self, commands: Sequence[NftCommand]) -> str:
        """Do all of these in one transaction, or nothing; return what is said. Raises NftablesError."""
        return self._do(json.dumps({"nftables": list(commands)}))

    def _do(self, text: str) -> str:
        if self._run(self._context, text.encode()) != 0:
            words = (self._errors(self._context) or b"").decode(errors="replace")
            raise NftablesError(first_complaint(words))
        return (self._output(self._context) or b"").decode(errors="replace")

    def own(self, family: str, table: str) -> None:
        """Make a table that the kernel removes with this context, whatever ends it. Raises NftablesError.

        libnftables' JSON has no word for that flag, its own language has.
        """
        self._do(f"add table {family} {table} {{ flags owner; }}")

    def remove(self, family: str, table: str) -> None:
        """Remove a table of one's own. Raises NftablesError."""
        self.commit([{"delete": {"table": {"family": family, "name": table}}}])

    def close(self) -> None:
        """Give the context back; safe to repeat."""
        if self._context is not None:
            self._free(self._context)
            self._context = None


def first_complaint(words: str) -> str:
    """The first complaint, without the JSON it repeats."""
    found = [line.strip() for line in words.splitlines() if "Error" in line or "error" in line]
    return (found or words.splitlines() or ["no reason given"])[0][:300]
