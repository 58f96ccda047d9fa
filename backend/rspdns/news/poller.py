"""The client of news: when it polls which port, and what it learned. Pure.

| state | event | next |
|---|---|---|
| subscribe | the open port replies | poll |
| poll | refused: there is no news | poll, after `poll_every_ms`; each tenth time ask the open port instead |
| poll | the port replies | poll the next port |
| poll | no contact for `time_to_live_s`, a reply that does not follow, a failure | ask the open port |
| ask, subscribe | failed | the same, after 1 s, later up to 30 s |
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rspdns.news.message import MalformedError, Subscription, read_reply

ASK_EVERY = 10
"""Each tenth poll goes to the open port: a server that is down has closed ports, too. After news it is one of
the next ten, at random: clients that read them in the same second would ask together ever after."""
AGAIN_S, MOST_AGAIN_S = 1.0, 30.0
_LEAST_EVERY_S, _MOST_EVERY_S = 0.1, 600.0


@dataclass(frozen=True, slots=True)
class Poll:
    """The next connection: not before `at_s`, to `port` (None: the open port), with `line` sent to it."""

    at_s: float
    port: int | None
    line: bytes


@dataclass(slots=True)
class Poller:
    """Follows the news of `pool`, signed with `key`. All times are on the caller's monotonic clock."""

    pool: str
    key: bytes
    problem: str | None = None
    """Why the server can't be asked; None: the last trial was right."""
    _life: str | None = None
    _number: int = 0
    _port: int = 0
    _owner: str | None = None
    every_s: float = 1.0
    _life_s: float = 10.0
    _polls: int = 0
    """Polls since the open port was asked."""
    _failures: int = 0
    _contact_s: float = 0.0
    """When the server's host was last reached."""
    _due_s: float = 0.0
    _subscription: Subscription | None = field(default=None)
    below: Callable[[int], int] = secrets.randbelow
    """A random number from 0 on, below its argument."""

    def next(self, now: float) -> Poll:
        """Return the next connection."""
        is_fresh = self._life is not None and now - self._contact_s <= self._life_s
        if is_fresh and self._polls < ASK_EVERY - 1 and not self._failures:
            self._subscription = None
            return Poll(self._due_s, self._port, b"")
        known = (None, None, None) if self._life is None else (self._life, self._number, self._port)
        self._subscription = Subscription(self._owner or self.pool, secrets.token_hex(8), *known)
        return Poll(self._due_s, None, self._subscription.line())

    def refused(self, now: float) -> None:
        """The kernel refused the connection."""
        if self._subscription is not None:
            self.failed(now, "the server is down: its open port is closed")
            return
        self._polls += 1
        self._contact_s, self._due_s = now, now + self.every_s

    def failed(self, now: float, problem: str) -> None:
        """There was no reply, or one that is wrong."""
        self.problem = problem
        self._due_s = now + min(MOST_AGAIN_S, AGAIN_S * 2 ** min(self._failures, 5))
        self._failures += 1

    def received(self, now: float, data: bytes) -> dict[str, Any] | None:
        """Take a whole reply. Return the answer of a backend, for `rspdns watch`, if there is news."""
        if self._subscription is not None and data.startswith(b"error: "):
            self.failed(now, data[7:300].decode(errors="replace").strip())
            return None
        try:
            document = read_reply(self.key, data, self._subscription.nonce if self._subscription else "")
            is_in_turn = self._polls == ASK_EVERY - 1 and not self._failures
            answer = self._take(document)
        except MalformedError as problem:
            self.failed(now, str(problem))
            return None
        self._polls = 0 if is_in_turn and answer is None else self.below(ASK_EVERY)
        self.problem, self._failures = None, 0
        self._contact_s, self._due_s = now, now + self.every_s
        return answer

    def _take(self, document: dict[str, Any]) -> dict[str, Any] | None:
        """Take a document with the right signature. Raises MalformedError."""
        asked = self._subscription
        try:
            owner, life, number, port = (document[key] for key in ("owner", "life", "number", "port"))
            every_s = float(document["poll_every_ms"]) / 1000
            life_s = float(document["time_to_live_s"])
            answer = document.get("answer")
            is_right = type(number) is int and 0 < int(port) < 65536
            is_right = is_right and (answer is None or {"pool", "changes", "missed", "host"} <= answer.keys())
        except (KeyError, TypeError, ValueError, AttributeError):
            is_right = False
        if not is_right:
            raise MalformedError("the reply lacks something")
        if asked is None and (owner != self._owner or life != self._life or number <= self._number):
            raise MalformedError("the port tells other news")
        self._owner, self._life, self._number, self._port = owner, life, number, port
        self.every_s = min(_MOST_EVERY_S, max(_LEAST_EVERY_S, every_s))
        self._life_s = max(2 * self.every_s, life_s)
        return answer if isinstance(answer, dict) else None
