"""Answers SIP requests to a dead server with 503 Service Unavailable.

RFC 3263 section 4.3 has the client go on to the next server then. nftables redirects the packets here, and
the answer goes back as if the server had given it.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from daemon_kit.sip import MAX_REQUEST_BYTES, refusal

from ppu_agent.kernel.datagrams import Ancillary, RedirectedDatagrams, Source

MAX_ANSWERS_PER_S: Final = 5000
"""Requests above this rate are not answered: the client repeats its request."""


class Responder:
    """Answers at a port of its own, `port`, to which requests are redirected."""

    def __init__(self) -> None:
        self.answered = 0
        self.is_guarded = False
        """Whether a rule admits only what was redirected. Without that, nothing is answered."""
        self._tag = secrets.token_hex(4)
        self._datagrams = RedirectedDatagrams(
            "the socket that answers with 503", MAX_REQUEST_BYTES, self._answer
        )
        self._second = 0
        self._in_second = 0

    @property
    def port(self) -> int:
        """The UDP port, once it was started."""
        return self._datagrams.port

    def start(self) -> None:
        """Open the socket. Raises FatalError."""
        self._datagrams.start()

    def close(self) -> None:
        """Answer nothing any more; safe to repeat."""
        self._datagrams.close()

    def _answer(self, data: bytes, told: Ancillary, source: Source) -> None:
        """Answer a request; what is none, or an ACK, gets nothing."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._in_second = second, 0
        answer = refusal(data, (source[0].removeprefix("::ffff:"), source[1]), self._tag)
        if answer is None or not self.is_guarded or self._in_second >= MAX_ANSWERS_PER_S:
            return
        self._in_second += 1
        self.answered += self._datagrams.answer(answer, told, source)
