"""Probes of servers: those that left their pools, and members, whose answers make later silence count.

`ServerQuestions` says which probes the belief's prober makes for the agent, and keeps their findings in
`DepartedServers` and `MemberAnswers`. It knows nothing of what is done about the dead.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from daemon_kit.finding import Finding, Life
from pool_user import BeliefChange, Member, PoolView, ProbePlan, RememberedPool, listen_for_life

from ppu_agent.deaths import Departed, DepartedServers
from ppu_agent.destinations import AddressPort, Destination, destinations_of
from ppu_agent.member_answers import AskedQuestion, MemberAnswers

MOST_ASKED_BESIDE: Final = 3
"""Living members of the pool that one left: do they answer such a question at all?"""
MOST_PROBES = 256
"""At a time, of members and of those that left."""
MOST_MEMBER_PROBES = 64
"""Members are not asked while more probes than this are under way: those that left come first."""
WITNESS_S = 120.0
"""The answer of another server shows for this time that this host reaches the servers of the pool."""


class Witness(NamedTuple):
    """A server that answered its pool's question at that time: this host reaches servers of the pool."""

    endpoint: AddressPort
    question: ProbePlan
    at_s: float


class ServerQuestions:
    """The questions to the servers of all pools. `on_news` is called when a probe changed who is dead."""

    def __init__(self, on_news: Callable[[float], None]) -> None:
        self.answers = MemberAnswers()
        self.deaths = DepartedServers(self._was_heard)
        self.by_pool: Mapping[str, ProbePlan] = {}
        """The question that servers of each pool are asked, by handle."""
        self._on_news = on_news
        self._views: Mapping[str, PoolView] = {}
        self._witnessed: dict[str, Witness] = {}
        """The server of each pool that answered last."""
        self._under_way = 0
        self._beside: dict[str, asyncio.Task[None]] = {}
        """The tasks that ask members of a pool beside its departed."""
        self._has_heard = False
        """Whether a probe found something that `on_news` has not heard of."""

    def take(self, change: BeliefChange, now: float) -> None:
        """Take over the members of the pools that changed."""
        self._views = change.views
        self.answers.follow(change.views, self.by_pool, now)
        self.deaths.take(change, now)

    def remember(self, remembered: RememberedPool, now: float) -> None:
        """Take over what an agent before knew of a pool, as `DepartedServers.remembered()` gave it."""
        self.deaths.remember(remembered)
        handle = remembered.handle
        for member in remembered.recent if handle in self.by_pool else ():
            for destination in destinations_of(member):
                self.answers.remember((destination, self.by_pool[handle]), handle, member, now)

    def remembered(self, now: float) -> dict[str, PoolView]:
        """The knowledge of each pool for the next agent, as `remember()` takes it."""
        return self.deaths.remembered(lambda handle, destination: self.has_answered(handle, destination, now))

    @property
    def next_due_s(self) -> float:
        """When `due()` may have some, in monotonic seconds; infinity for never."""
        due_s = self.deaths.next_due_s
        return min(due_s, self.answers.next_due_s) if self._under_way < MOST_MEMBER_PROBES else due_s

    def due(self, now: float) -> list[Coroutine[Any, Any, None]]:
        """Conclude from all that was heard since the last time, and return the probes to make now.

        A site's power cut kills hundreds: to steer anew takes too long to do it for each of them.

        Members are asked as well: what they answered decides whether their silence will count.
        """
        if self._has_heard:
            self._has_heard = False
            self._on_news(now)
        room = MOST_PROBES - self._under_way
        asking = [self._ask(departed) for departed in self.deaths.due(now, room)]
        room = MOST_MEMBER_PROBES - self._under_way
        asking += [self._ask_member(*due) for due in self.answers.due(now, room)]
        self._under_way += len(asking)
        return asking

    async def close(self) -> None:
        """Ask nothing any more."""
        for task in list(self._beside.values()):
            task.cancel()
        await asyncio.gather(*self._beside.values(), return_exceptions=True)

    async def _ask(self, departed: Departed) -> None:
        finding = Finding(Life.UNKNOWN, "not asked")
        try:
            finding = await self._listen_to(departed)
        finally:
            self._under_way -= 1
            if self.deaths.take_finding(departed.destination, finding, time.monotonic()):
                self._has_heard = True

    async def _ask_member(self, handle: str, member: Member, asked: AskedQuestion) -> None:
        destination, question = asked
        finding = Finding(Life.UNKNOWN)
        try:
            finding = await listen_for_life(replace(member, addresses=(destination.address,)), question)
        finally:
            self._under_way -= 1
            now = time.monotonic()
            self.answers.note(asked, now, is_answer=finding.life.is_there)
            if finding.life.is_there:
                self._witnessed[handle] = Witness(destination.endpoint, question, now)

    def has_answered(self, handle: str, destination: Destination, at_s: float) -> bool:
        """Whether a member answered its pool's question in the minutes before that time."""
        question = self.by_pool.get(handle)
        return question is not None and self.answers.was_heard((destination, question), at_s)

    def _asking_pool(self, departed: Departed) -> str | None:
        """The pool whose question a member that left is asked; None: the configuration has it no more.

        The first of those that it left whose question it had answered, else the first of all.
        """
        asking = [handle for handle in departed.pools if handle in self.by_pool]
        heard = (
            handle for handle in asking if self.has_answered(handle, departed.destination, departed.left_at_s)
        )
        return next(heard, next(iter(asking), None))

    def _was_heard(self, departed: Departed) -> bool:
        handle = self._asking_pool(departed)
        return handle is not None and self.has_answered(handle, departed.destination, departed.left_at_s)

    async def _listen_to(self, departed: Departed) -> Finding:
        """Probe it. Silence tells nothing where no other member of its pool answers.

        When it was silent before, another one must have answered since: this host may be cut off.
        """
        handle = self._asking_pool(departed)
        if handle is None:
            return Finding(Life.UNKNOWN, "its pool is not in the configuration")
        question = self.by_pool[handle]
        since_s = departed.silent_since_s
        if since_s is None:
            since_s = time.monotonic() - WITNESS_S
        is_witnessed = self._is_witnessed(handle, departed, since_s)
        beside = None if is_witnessed else self._living_asked(handle, question)
        finding = await listen_for_life(departed.at_destination, question)
        if finding.life is Life.SILENT and beside is not None:
            await asyncio.wait((beside,))
            if not self._is_witnessed(handle, departed, since_s):
                return replace(finding, life=Life.UNKNOWN, doubt="no other member answers the question")
        return finding

    def _is_witnessed(self, handle: str, departed: Departed, since_s: float) -> bool:
        """Whether another server of the pool has answered its question since then."""
        return any(
            witness.question == self.by_pool.get(handle)
            and witness.at_s >= since_s
            and witness.endpoint != departed.destination.endpoint
            for part in self._parts(handle)
            if (witness := self._witnessed.get(part)) is not None
        )

    def _parts(self, handle: str) -> tuple[str, ...]:
        """The pool in every handlespace, this one first."""
        return (handle, *self.deaths.beside.get(handle, ()))

    def _living_asked(self, handle: str, question: ProbePlan) -> asyncio.Task[None]:
        """Have some members of a pool asked the question that its departed are asked; once at a time.

        It is not broken off when the departed has said enough: a member would find its connection reset.
        """
        task = self._beside.get(handle)
        if task is None:
            task = self._beside[handle] = asyncio.create_task(self._ask_living(handle, question))
            task.add_done_callback(lambda _: self._beside.pop(handle))
        return task

    async def _ask_living(self, handle: str, question: ProbePlan) -> None:
        views = (self._views.get(part, PoolView(part)) for part in self._parts(handle))
        members = [member for view in views for member in view.members]
        some = random.sample(members, min(MOST_ASKED_BESIDE, len(members)))
        findings = await asyncio.gather(*(listen_for_life(member, question) for member in some))
        for member, finding in zip(some, findings, strict=True):
            if finding.life.is_there:
                endpoint = (member.addresses[0], member.port)
                self._witnessed[handle] = Witness(endpoint, question, time.monotonic())
