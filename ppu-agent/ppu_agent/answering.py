"""Answers what dead servers left: in their place, to the clients of their TCP connections.

The thin side of `ppu_agent.overheard`, between the copies of packets and the connections.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from daemon_kit.addresses import is_on_this_host

from ppu_agent.destinations import AddressPort
from ppu_agent.kernel import PacketCopies, speak
from ppu_agent.overheard import Overheard, Refusal

_MOST_TURNS: Final = 100
"""A client that is answered may send what its kernel had not sent yet, and is answered again."""
_MOST_ROUNDS: Final = 20
_GONE: Final = {errno.EADDRNOTAVAIL, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN}
_ROUND_S: Final = 0.01
"""It may send that later, by its pacing: all are looked at again as long as one was answered."""


class Connection(NamedTuple):
    """A client's: what it asked for, and the server that was there."""

    client: AddressPort
    asked: AddressPort
    server: AddressPort


class Answering:
    """For the connections to what was `asked`. `is_over` breaks it off. For a thread: it waits."""

    def __init__(
        self, copies: PacketCopies, asked: Collection[AddressPort], is_over: Callable[[], bool]
    ) -> None:
        self.answered = 0
        """The number of requests that were answered."""
        self.problem: str | None = None
        """Why the kernel has not let it answer."""
        self._reader = copies.reader()
        self._overheard = Overheard(asked)
        self._is_over = is_over
        self._overheard.feed(self._reader.new())

    @property
    def known(self) -> list[Connection]:
        """The connections that were overheard, as if each had the server that it asked for."""
        return [Connection(client, asked, asked) for client, asked in self._overheard.connections]

    def answer_all(self, connections: Collection[Connection]) -> None:
        """Answer the requests in these, also what their clients send once they are answered."""
        for _ in range(_MOST_ROUNDS):
            if not sum(map(self.answer, connections)):
                return
            time.sleep(_ROUND_S)

    def answer(self, connection: Connection) -> bool:
        """Answer the requests in this one; return whether there were any, or something to acknowledge."""
        client, asked, _ = connection
        for turn in range(_MOST_TURNS):
            self._overheard.feed(self._reader.new())
            refusal = self._overheard.refusal(client, asked)
            if refusal is None or self._is_over():
                return turn > 0
            if self._speak(connection, refusal):
                self.answered += refusal.requests
        return True

    def end_of_others(self, connections: Collection[Connection]) -> None:
        """Reset those of other hosts: a client with nothing more to send would not hear that they ended."""
        for client, asked, server in connections:
            place = self._overheard.place(client, asked)
            if place is not None and not is_on_this_host(client[0]):
                self._speak(Connection(client, asked, server), place, is_end=True)

    def _speak(self, connection: Connection, words: Refusal, *, is_end: bool = False) -> bool:
        client, _, server = connection
        try:
            speak(server, client, words.sequence, words.acknowledged, words.data, is_end=is_end)
        except OSError as problem:
            if problem.errno not in _GONE:
                why = problem.strerror or str(problem)
                self.problem = f"the kernel lets the agent not answer for {server[0]}:{server[1]}: {why}"
            return False
        return True


@contextlib.contextmanager
def answering(
    copies: PacketCopies, asked: Collection[AddressPort], is_over: Callable[[], bool]
) -> Iterator[Answering | None]:
    """The `Answering` of these connections; None when packets are not copied, or nothing was asked."""
    if not copies.is_open or not asked:
        yield None
        return
    with copies.at_once():
        yield Answering(copies, asked, is_over)
