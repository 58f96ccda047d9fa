"""Delivers the news of the journal to one web service, in order and at least once.

A message is tried until it is taken, at growing intervals; meanwhile changes wait in the journal. So the
journal's bounds are those of the hook: [state] history_days, and its most rows. Changes beyond are counted as
lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon_kit.errors import reason_of
from daemon_kit.logs import get_logger

from rspdns.hooks.configuration import HookConfig, read_key
from rspdns.hooks.message import HookEvent, HookMessage, JournalNews, signature
from rspdns.journal import FILE_NAME, JournalError, JournalReader, JournalRow
from rspdns.status.model import HookStatus

if TYPE_CHECKING:
    from aiohttp import ClientSession

MOST_EVENTS = 100
"""The most rows of the journal for one message."""
GATHER_S = 0.3
"""Time between a change and the look at the journal, which writes every 0.2 s."""
LOOK_S = 5.0
"""The longest time between two looks."""
TIMEOUT_S = 10.0
FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0
"""Pause after a failed try: the first one, and after doubling; jitter takes up to half of it."""
REFUSING = frozenset({400, 413, 422})
"""The statuses by which a receiver refuses a message itself, not its sender or the moment."""
MOST_REFUSALS = 5
"""A message that was refused so often is given up, or it would hold up all that follow."""


class DeliveryError(Exception):
    """A try failed; the words are for people. `status` is that of the receiver's answer, if there was one."""

    def __init__(self, words: str, status: int | None = None) -> None:
        super().__init__(words)
        self.status = status


def pause_s(failures: int, draw: Callable[[], float] = random.random) -> float:
    """Return the pause after this many failures in a row, in seconds."""
    longest_s = min(MOST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16))
    return longest_s * (0.5 + draw() / 2)


@dataclass(frozen=True, slots=True)
class HookView:
    """The parts of the backend that a hook needs. `message_of` makes a message of events, and of how many
    were lost; `handles_of` gives the handles of pools by their names."""

    directory: str
    tag: Callable[[], str]
    message_of: Callable[[Sequence[HookEvent], int], HookMessage]
    handles_of: Callable[[Sequence[str]], Collection[str]]
    unwritten: Callable[[], int]
    """The changes since the start that the journal could not write."""
    kept: Callable[[], None]
    """Called when `Hook.cursor` moved."""
    begun_anew: Callable[[], None]
    """Called when the journal is another one than before."""


class Hook:
    """One hook. `cursor` is the last row of the journal that needs no message any more; None: it begins with
    what comes from now on."""

    def __init__(self, config: HookConfig, view: HookView, cursor: int | None) -> None:
        self.config = config
        self.cursor = cursor
        self._view = view
        self._woken = asyncio.Event()
        self._news: JournalNews | None = None
        self._unwritten = view.unwritten()
        self._is_new = False
        """Whether the cursor was set first just now."""
        self._is_unread = False
        """Whether the journal could not be read."""
        self._last = 0
        """The last row of the journal."""
        self._lost = 0
        """Changes that were lost and that no message told of."""
        self._failures = 0
        """Tries that failed since one succeeded."""
        self._status = HookStatus(config.name, config.target, 0, 0, 0, 0, None)
        self._log = get_logger("hooks")

    def wake(self) -> None:
        """The members changed."""
        self._woken.set()

    def status(self) -> HookStatus:
        """The hook for the status."""
        self._status.pending = max(0, self._last - (self._last if self.cursor is None else self.cursor))
        return self._status

    async def run(self, session: ClientSession) -> None:
        """Deliver until this is cancelled."""
        while True:
            rows: list[JournalRow] = []
            try:
                rows = await asyncio.to_thread(self._read)
                if self._is_new:  # after SIGKILL it goes on from here, not from what comes then
                    self._is_new = False
                    self._view.kept()
                if self._is_unread:
                    self._is_unread, self._status.problem = False, None
                await self._deliver(rows, session)
            except JournalError as problem:
                self._failed(str(problem))
                self._is_unread = True
            except Exception as problem:
                self._log.error("hook_fault", hook=self.config.name, exc_info=True)
                self._failed(f"a fault of the backend: {problem!r}")
                self._news = None  # what was read is read again
                await asyncio.sleep(MOST_PAUSE_S)
                continue
            if len(rows) < MOST_EVENTS:
                self._woken.clear()
                try:
                    async with asyncio.timeout(LOOK_S):
                        await self._woken.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(GATHER_S)

    def _read(self) -> list[JournalRow]:
        """The next rows of the journal. Raises JournalError."""
        if not (Path(self._view.directory) / FILE_NAME).exists():
            return []  # it begins soon, or the status tells why it does not
        with closing(JournalReader(self._view.directory)) as reader:
            self._last = reader.last()
            if self.cursor is None:
                self.cursor = self._last
                self._is_new = True
            elif self.cursor > self._last:
                self.cursor, self._news = 0, None
                self._view.begun_anew()
            if self._news is None:
                self._news = JournalNews(reader.inside(self.cursor))
            return reader.after(self.cursor, MOST_EVENTS)

    def _count_waiting(self) -> None:
        """Look how far the journal is, while a message is tried again."""
        with suppress(JournalError), closing(JournalReader(self._view.directory)) as reader:
            self._last = reader.last()

    async def _deliver(self, rows: Sequence[JournalRow], session: ClientSession) -> None:
        """Deliver the news among the rows, however long that takes."""
        if not rows or self.cursor is None or self._news is None:
            return
        dropped = rows[-1].sequence - self.cursor - len(rows)
        self._count_lost(dropped, "the journal dropped them before they could be delivered")
        unwritten = self._view.unwritten()
        self._count_lost(unwritten - self._unwritten, "the journal could not write them")
        self._unwritten = unwritten
        handles = self._view.handles_of(self.config.pools) if self.config.pools else None
        events = self._news.news(rows, handles, self._view.tag())
        refusals = 0
        while events:
            try:
                await self._try(events, session)
            except DeliveryError as problem:
                self._failed(str(problem))
                refusals += problem.status in REFUSING
                if refusals == MOST_REFUSALS:
                    self._count_lost(len(events), f"the receiver refused them {refusals} times")
                    break
                await asyncio.sleep(pause_s(self._failures))
                await asyncio.to_thread(self._count_waiting)
            else:
                self._succeeded(len(events))
                break
        self.cursor = rows[-1].sequence
        if events:
            self._view.kept()

    async def _try(self, events: Sequence[HookEvent], session: ClientSession) -> None:
        """Post the events once. Raises DeliveryError."""
        from aiohttp import ClientConnectorError, ClientError, ClientTimeout

        message = self._view.message_of(events, self._lost)
        body = message.text_body() if self.config.format == "text" else message.body()
        try:
            async with session.post(
                self.config.url,
                data=body,
                headers=await asyncio.to_thread(self._headers, events, body),
                allow_redirects=False,
                timeout=ClientTimeout(TIMEOUT_S),
            ) as response:
                status = response.status
                response.close()  # its body is of no interest, and may have no end
        except TimeoutError:
            raise DeliveryError(f"no answer within {TIMEOUT_S:g} s") from None
        except ClientConnectorError as problem:
            raise DeliveryError(f"{self.config.target}: {reason_of(problem.os_error)}") from None
        except (ClientError, OSError, ValueError) as problem:  # its words may hold the path, a secret
            raise DeliveryError(f"{self.config.target}: {type(problem).__name__}") from None
        if not 200 <= status < 300:
            raise DeliveryError(f"the receiver answered {status}", status)

    def _headers(self, events: Sequence[HookEvent], body: bytes) -> dict[str, str]:
        """The headers of Standard Webhooks. Raises DeliveryError."""
        identifier = f"msg_{events[0].id}_{events[-1].id.rpartition('-')[2]}"
        timestamp_s = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "rspdns",
            "webhook-id": identifier,
            "webhook-timestamp": str(timestamp_s),
        }
        if self.config.secret is not None:
            try:
                key = read_key(self.config.secret)  # each time: the file may be renewed
            except ValueError as problem:
                raise DeliveryError(str(problem)) from None
            headers["webhook-signature"] = signature(key, identifier, timestamp_s, body)
        return headers

    def _count_lost(self, count: int, why: str) -> None:
        if count > 0:
            self._lost += count
            self._status.lost += count
            self._log.warning("hook_lost", hook=self.config.name, lost=count, why=why)

    def _failed(self, problem: str) -> None:
        self._failures += 1
        self._status.failed += 1
        if self._status.problem is None:
            self._log.warning("hook_failed", hook=self.config.name, problem=problem)
        self._status.problem = problem

    def _succeeded(self, count: int) -> None:
        if self._status.problem is not None:
            self._log.info("hook_works_again", hook=self.config.name, failures=self._failures)
        self._failures, self._lost, self._status.problem = 0, 0, None
        self._status.delivered += count
