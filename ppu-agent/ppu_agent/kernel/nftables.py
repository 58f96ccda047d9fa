"""nftables by its own library: libnftables, which takes whole transactions as JSON (libnftables-json(5)).

Called by ctypes: Debian's binding (python3-nftables) is not on PyPI, and does the same few calls.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from typing import Any

from daemon_kit.errors import FatalError

NftCommand = dict[str, Any]

LIBRARY = "libnftables.so.1"
_OUTPUT_JSON = 1 << 4


class NftablesError(Exception):
    """The kernel or libnftables refused a transaction: nothing of it was done. The words are theirs."""


class Nftables:
    """One context of libnftables, for the network namespace of the thread that makes it.

    Raises FatalError when the library is missing.
    """

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise FatalError(f"{LIBRARY} is missing (Debian: apt-get install libnftables1)") from None
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
