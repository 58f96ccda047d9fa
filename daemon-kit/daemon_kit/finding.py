"""The finding of one probe or check of a server: by the name server, a client's agent, or the sidecar.

Decisions read `life`. `words` are for people, and are made here alone, from the facts.
"""

import errno
import os
import socket
import ssl
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

    `doubt`: why less follows than from others of this `life`. `expires_at_s`: when the certificate of the
    server expires (Unix time), where it was seen.
    """

    life: Life
    said: str = ""
    waited_ms: float | None = None
    error: int | None = None
    doubt: str = ""
    expires_at_s: float | None = None

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


_OF_THIS_HOST: Final = frozenset(
    {
        errno.EACCES,
        errno.EADDRINUSE,
        errno.EADDRNOTAVAIL,
        errno.EAFNOSUPPORT,
        errno.EAGAIN,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOENT,
        errno.ENOEXEC,
        errno.ENOMEM,
        errno.ENOSYS,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EPROTONOSUPPORT,
        errno.ESOCKTNOSUPPORT,
    }
)
"""Errors that say nothing of the server: this host lacks room, a right, an address, a file or a program.

Each other error counts as the server's silence, those of ICMP as well: no list of them would be complete.
"""


def of_error(error: OSError, said: str = "") -> Finding:
    """The finding that an error of the system means, where the server at `said` was asked."""
    is_numbered = bool(error.errno) and not isinstance(error, socket.gaierror | ssl.SSLError)
    number = error.errno if is_numbered else None
    life = Life.SILENT
    if number == errno.ECONNREFUSED:
        life = Life.REFUSED
    elif number in _OF_THIS_HOST or error.errno != number:
        life = Life.UNKNOWN
    is_of_file = error.filename is not None and error.strerror != os.strerror(error.errno or 0)
    if number is None or is_of_file:
        return Finding(life, ": ".join(filter(None, (said, error.strerror or str(error)))))
    return Finding(life, said, error=number)
