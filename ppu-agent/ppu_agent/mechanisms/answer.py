"""Answers SIP requests over UDP to a dead server with 503 Service Unavailable.

RFC 3263 section 4.3 has the client go on to the next server then. nftables redirects the packets here, and
the answer goes back as if the server had given it.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

from daemon_kit.sip import MAX_REQUEST_BYTES, refusal

from ppu_agent.configuration import PpuConfig
from ppu_agent.kernel.datagrams import Ancillary, RedirectedDatagrams, Source
from ppu_agent.mechanisms.base import Mechanism, ZoneOfFlows
from ppu_agent.plan import Plan, Way
from ppu_agent.rules import (
    MAIN,
    NOTHING,
    NftCommand,
    TableCommands,
    admitting_moved,
    is_transport,
    sending_on,
)
from ppu_agent.writer import Writer
from rserpool import Protocol

MAX_ANSWERS_PER_S: Final = 5000
"""Requests above this rate are not answered: the client repeats its request."""
_SIP_METHODS: Final = (
    *("ACK ", "BYE ", "CANCEL", "INFO", "INVITE", "MESSAGE", "NOTIFY"),
    *("OPTIONS", "PRACK", "PUBLISH", "REFER", "REGISTER", "SUBSCRIBE", "UPDATE"),
)
_IS_SIP_REQUEST: Final[NftCommand] = {
    "match": {
        "op": "==",
        "left": {"payload": {"base": "th", "offset": 64, "len": 32}},
        "right": {"set": sorted(int.from_bytes(method[:4].encode(), "big") for method in _SIP_METHODS)},
    }
}
"""By the first four bytes behind the UDP header."""


class AnswerMechanism(Mechanism):
    """Answers at a port of its own, to which requests are redirected."""

    def __init__(self, writer: Writer) -> None:
        self.answered = 0
        self._writer = writer
        self._zone = ZoneOfFlows()
        self._is_guarded = False
        """Whether a rule that admits only what was redirected is among the last commands."""
        self._tag = secrets.token_hex(4)
        self._datagrams = RedirectedDatagrams(
            "the socket that answers with 503", MAX_REQUEST_BYTES, self._answer
        )
        self._second = 0
        self._in_second = 0

    @property
    def port(self) -> int:
        """The UDP port; 0 until `configure`."""
        return self._datagrams.port

    async def configure(self, config: PpuConfig) -> None:
        """Open the socket. Raises FatalError."""
        if not self.port:
            self._datagrams.start()

    def commands(self, plan: Plan) -> TableCommands:
        """Redirect requests to the socket."""
        self._is_guarded = bool(self.port and plan.treated(Way.ANSWER))
        return (
            TableCommands(answer_rules(plan, self._zone.of(plan), self.port)) if self._is_guarded else NOTHING
        )

    def status(self) -> dict[str, Any]:
        """How many requests were answered."""
        return {"answered_503_count": self.answered}

    async def close(self) -> None:
        """Answer nothing any more."""
        self._datagrams.close()

    def _answer(self, data: bytes, ancillary: Ancillary, source: Source) -> None:
        """Answer a request; what is none, or an ACK, gets nothing. Without the guarding rule nothing does."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._in_second = second, 0
        answer = refusal(data, (source[0].removeprefix("::ffff:"), source[1]), self._tag)
        is_guarded = self._is_guarded and self._writer.has_rules
        if answer is None or not is_guarded or self._in_second >= MAX_ANSWERS_PER_S:
            return
        self._in_second += 1
        self.answered += self._datagrams.answer(answer, ancillary, source)


def answer_rules(plan: Plan, zone: int, port: int) -> list[NftCommand]:
    """The chains and sets of what is answered at this port, and the rule that keeps all else from it."""
    answered = plan.treated(Way.ANSWER)
    if not answered:
        return []
    to_port = [is_transport(Protocol.UDP), _IS_SIP_REQUEST, {"redirect": {"port": port}}]
    return [
        *sending_on("answer", answered, zone, lambda treatment: to_port),
        MAIN.base("answers", "filter", "input", 0),
        *(MAIN.rule("answers", rule) for rule in admitting_moved(port)),
    ]
