"""The finding of one probe or check of a server: by the name server, a client's agent, or the sidecar.

Decisions read `life`. `words` are for people, and are made here alone, from the facts.
"""

import errno
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Life(StrEnum):
    """Whether the server lives. The values are stable: status and metrics carry them.

    UNWELL: it is there, and says, or shows, that it can't serve. REFUSED: nothing is there, since its port
    refuses or its process has ended. SILENT: it gave no answer. UNKNOWN: there is no way to tell.
    """

    ALIVE = "alive"
    UNWELL = "unwell"
    REFUSED = "refused"
    SILENT = "silent"
    UNKNOWN = "unknown"

    @property
    def is_there(self) -> bool:
        """Whether the server itself spoke, whatever it said."""
        return self in (Life.ALIVE, Life.UNWELL)

    @property
    def is_failure(self) -> bool:
        """Whether a pool should lose the server. UNKNOWN says nothing."""
        return self in (Life.UNWELL, Life.REFUSED, Life.SILENT)


@dataclass(frozen=True, slots=True)
class Finding:
    """`said`: what was seen. `waited_ms`: the time that passed in vain. `error`: the system's number of it.

    `doubt`: why less follows than from others of this `life`.
    """

    life: Life
    said: str = ""
    waited_ms: float | None = None
    error: int | None = None
    doubt: str = ""

    @property
    def words(self) -> str:
        """The finding for people."""
        words = self.said
        if self.waited_ms is not None:
            words = f"{self.said or 'no answer'} within {self.waited_ms:.0f} ms"
        elif self.error is not None:
            reason = os.strerror(self.error)
            words = f"{self.said}: {reason}" if self.said else reason.lower()
            if self.said and self.error == errno.ECONNREFUSED:
                words = f"nothing listens on {self.said}"
        return f"{words}, but {self.doubt}" if self.doubt else words


_NO_WAY_THERE: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)
"""Errors that stand for the server's silence; all others but a refusal are this host's own."""


def of_error(error: OSError, said: str = "") -> Finding:
    """The finding that an error of the system means, where the server at `said` was asked."""
    life = Life.SILENT if error.errno in _NO_WAY_THERE else Life.UNKNOWN
    if error.errno == errno.ECONNREFUSED:
        life = Life.REFUSED
    elif not error.errno or error.strerror != os.strerror(error.errno):  # a library's own words
        return Finding(life, ": ".join(filter(None, (said, error.strerror or str(error)))))
    return Finding(life, said, error=error.errno)
