"""The conversation with the name server of one publication: messages over TCP, one step after the other."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import dns.rcode
from daemon_kit.errors import printable, reason_of
from daemon_kit.logs import get_logger

from rspdns.publish import messages
from rspdns.publish.configuration import PublishConfig, UpdateKey, read_key
from rspdns.publish.messages import PublishError
from rspdns.publish.publication import CheckStep, Publication, ReadStep, SendStep, WaitStep
from rspdns.publish.rrsets import Rrset, RrsetKey, RRsets
from rspdns.status.model import PublicationState, PublicationStatus

TIMEOUT_S = 5.0
"""How long the server has for a connection and the answer to a message."""
KEPT_OPEN_S = 5.0
"""A connection that was not used for longer is not used again: the server, or a packet filter, may have
forgotten it."""
MOST_SIDE_BY_SIDE = 16
"""Questions under way on the connection: more could fill the buffers of both sides."""
LOOK_S = 1.0
"""The longest time between two looks at what should be there, and who vouches for it."""
FAULT_PAUSE_S = 60.0
MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """The RRsets that should be there. `fresh` are the sites that are vouched for; `why` says why others are
    not."""

    sites: Mapping[str, RRsets]
    fresh: frozenset[str]
    parents: frozenset[str]
    why: str | None


class PrimaryConnection:
    """One TCP connection at a time to `endpoint`."""

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self._endpoint = endpoint
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used_s = float("-inf")

    async def exchange(self, wires: list[bytes]) -> list[bytes]:
        """Send messages, and return their answers in the same order. Raises OSError, TimeoutError."""
        async with asyncio.timeout(TIMEOUT_S):
            if self._streams is not None:
                # The server may have closed it. A message that it took all the same does no harm twice: by
                # then its prerequisites fail.
                with suppress(ConnectionError, EOFError):
                    return await self._exchange(wires)
            try:
                return await self._exchange(wires)
            except EOFError:
                raise ConnectionResetError("it closed the connection without an answer") from None

    async def _exchange(self, wires: list[bytes]) -> list[bytes]:
        reader, writer = await self._open()
        try:
            for wire in wires:
                writer.write(len(wire).to_bytes(2, "big") + wire)
            await writer.drain()
            answers: dict[bytes, bytes] = {}
            for _ in wires:
                size = int.from_bytes(await reader.readexactly(2), "big")
                answer = await reader.readexactly(size)
                answers[answer[:2]] = answer
        except BaseException:
            self.close()
            raise
        self._used_s = time.monotonic()
        return [answers.get(wire[:2], b"") for wire in wires]

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None:
            reader, _ = self._streams
            if not reader.at_eof() and time.monotonic() < self._used_s + KEPT_OPEN_S:
                return self._streams
            self.close()
        self._streams = await asyncio.open_connection(*self._endpoint)
        return self._streams

    def close(self) -> None:
        """Close it, if it is open."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


class Primary:
    """The name server of one publication. `wanted` gives what should be there; it is called outside the
    loop."""

    def __init__(self, config: PublishConfig, wanted: Callable[[], WantedRecords]) -> None:
        self.config = config
        self._wanted = wanted
        self._why_silent: str | None = None
        self._publication = self._new_publication()
        self._connection = PrimaryConnection(config.endpoint)
        self._key: UpdateKey | None = None
        self._woken = asyncio.Event()
        self._looked_s = float("-inf")
        self._sent = self._failed = self._edits = 0
        self._problem: str | None = None
        self._right_s: float | None = None
        self._log = get_logger("publish")

    def wake(self) -> None:
        """Something changed."""
        self._woken.set()

    async def run(self) -> None:
        """Publish until this is cancelled."""
        try:
            while True:
                try:
                    await self._publish()
                except Exception as problem:
                    self._log.error("publication_fault", publication=self.config.name, exc_info=True)
                    self._problem = f"a fault of the backend: {problem!r}"
                    await asyncio.sleep(FAULT_PAUSE_S)
                    self._publication = self._new_publication()  # what is there is compared anew
                    self._looked_s = float("-inf")
        finally:
            self._connection.close()

    def _new_publication(self) -> Publication:
        expires = self.config.withdraw == "expire"
        vouch_every_s = self.config.expire_s / 3 if expires else None
        return Publication(time.monotonic(), random.random, vouch_every_s)

    async def _publish(self) -> None:
        while True:
            if self._woken.is_set() or time.monotonic() >= self._looked_s + LOOK_S:
                self._woken.clear()
                await self._take_wanted()
            now = time.monotonic()
            step = self._publication.next(now)
            if isinstance(step, WaitStep):
                self._note_right(now)
                await self._wait(step.until_s - now)
                continue
            self._note_edits()
            try:
                await self._take(step)
            except (OSError, TimeoutError, ValueError, PublishError) as problem:
                self._connection.close()
                self._publication.failed(time.monotonic())
                self._note_failed(_words(problem))
            else:
                self._note_works()

    async def _wait(self, wait_s: float) -> None:
        """Wait for a change; while nothing may be sent, for the end of that."""
        rest_s = self._publication.rests_until_s - time.monotonic()
        if rest_s > 0:
            await asyncio.sleep(min(rest_s, LOOK_S))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(0.0, wait_s), LOOK_S)):
                await self._woken.wait()

    async def _take_wanted(self) -> None:
        self._looked_s = time.monotonic()
        wanted = await asyncio.to_thread(self._wanted)
        self._publication.want(wanted.sites, wanted.fresh, wanted.parents, time.monotonic())
        if wanted.why is not None and self._why_silent is None and self._right_s is not None:
            self._log.warning("publication_silent", publication=self.config.name, why=wanted.why)
        elif wanted.why is None and self._why_silent is not None:
            self._log.info("publication_speaks", publication=self.config.name)
        self._why_silent = wanted.why

    async def _take(self, step: CheckStep | ReadStep | SendStep) -> None:
        """Do one step. Raises OSError, TimeoutError, PublishError, ValueError for a key file."""
        self._key = await asyncio.to_thread(self._read_key)  # each time: the file may be renewed
        if isinstance(step, ReadStep):
            found: dict[RrsetKey, Rrset] = {}
            for start in range(0, len(step.keys), MOST_SIDE_BY_SIDE):
                found |= await self._ask(step.keys[start : start + MOST_SIDE_BY_SIDE])
            self._publication.read(found, time.monotonic())
            return
        config, key = self.config, self._key
        asked = await asyncio.to_thread(messages.update, config.zone, key, step, config.expire_s, time.time())
        (wire,) = await self._connection.exchange([asked.wire])
        rcode = (await asyncio.to_thread(messages.answer, asked, wire)).rcode()
        if rcode in messages.CONTRADICTIONS:
            if isinstance(step, SendStep) and step.is_blind:
                raise PublishError(messages.BLIND)
            self._publication.contradicted()
        elif rcode == dns.rcode.NOERROR:
            self._sent += isinstance(step, SendStep)
            self._publication.done(time.monotonic())
        else:
            raise PublishError(messages.refusal(rcode))

    def _read_key(self) -> UpdateKey | None:
        return None if self.config.key is None else read_key(self.config.key)

    async def _ask(self, keys: tuple[RrsetKey, ...]) -> RRsets:
        """Return these RRsets as the server has them."""

        def read(wires: list[bytes]) -> RRsets:
            return {
                key: messages.rrset(question, key, wire)
                for key, question, wire in zip(keys, questions, wires, strict=True)
            }

        questions = await asyncio.to_thread(messages.questions, keys, self._key, time.time())
        wires = await self._connection.exchange([question.wire for question in questions])
        return await asyncio.to_thread(read, wires)

    def _note_right(self, now: float) -> None:
        if self._publication.is_right and not self._publication.failures:
            self._right_s = now

    def _note_edits(self) -> None:
        edits = self._publication.take_edits()
        if edits:
            self._edits += len(edits)
            self._log.warning(
                "publication_edited", publication=self.config.name, rrsets=_named(edits), count=len(edits)
            )

    def _note_failed(self, problem: str) -> None:
        self._failed += 1
        if problem != self._problem:
            waiting = self._publication.waiting
            self._log.warning(
                "publication_failed",
                publication=self.config.name,
                server=self.config.server,
                problem=problem,
                waiting=len(waiting),
                rrsets=_named(waiting),
            )
        self._problem = problem

    def _note_works(self) -> None:
        if self._problem is not None:
            self._log.info("publication_works_again", publication=self.config.name)
        self._problem = None

    def status(self, now: float) -> PublicationStatus:
        """The publication for the status."""
        publication = self._publication
        waiting = publication.waiting
        right_s = now if self._state(waiting) == "right" else self._right_s
        return PublicationStatus(
            name=self.config.name,
            server=self.config.server,
            zone=self.config.zone,
            state=self._state(waiting),
            rrsets=publication.published,
            waiting=len(waiting),
            waiting_names=_named(waiting),
            sent=self._sent,
            failed=self._failed,
            edits=self._edits,
            right_s=None if right_s is None else round(max(0.0, now - right_s), 3),
            silent=self._why_silent,
            problem=self._problem,
        )

    def _state(self, waiting: list[RrsetKey]) -> PublicationState:
        if self._problem is not None:
            return "failing"
        if self._why_silent is not None:
            return "silent"
        if waiting:
            return "changing"
        return "right" if self._publication.is_right else "comparing"


def _named(keys: list[RrsetKey]) -> list[str]:
    """The first of these RRsets, for people."""
    return [f"{key.name} {key.type}" for key in sorted(keys)[:MOST_NAMED]]


def _words(problem: Exception) -> str:
    """Why a step failed, in a line."""
    if isinstance(problem, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    if isinstance(problem, OSError):
        return reason_of(problem)
    return printable(str(problem), 500)
