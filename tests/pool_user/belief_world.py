"""Registrars and pool elements with a truth of their own, for the model test.

Each registrar has a copy of the handlespace. It is exact about the PEs whose home it is; about others it
may have missed any number of updates until `sync()`. A registrar can be frozen and wake with an old copy,
or be restarted: then it has a new identifier, an empty or copied handlespace, and perhaps its former
sentinel, until it is settled.

Each pushes what happens to its own PEs (ENRP). The pushes of one arrive in order, but late, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rserpool import PoolElement, Protocol, Resolution, Table, Update, sentinel_handle
from tests.pool_user.belief_support import POOL, Play, pe


@dataclass
class Question:
    asked_s: float
    elements: tuple[PoolElement, ...]
    sentinels: tuple[PoolElement, ...]


@dataclass
class Registrar:
    index: int
    identifier: int
    sentinels: dict[int, int] = field(default_factory=dict)
    listing: dict[int, int] = field(default_factory=dict)
    is_settled: bool = False
    is_frozen: bool = False
    question: Question | None = None
    purges_s: float = float("inf")
    """When its former life's sentinel is found dead."""
    pushes: list[tuple[PoolElement, bool]] = field(default_factory=list)
    """On their way, and whether they are deletions."""


class World:
    def __init__(self, count: int = 3) -> None:
        self.play = Play(count)
        self._last_identifier = 0x1000
        self.registrars = [Registrar(index, self.fresh()) for index in range(count)]
        self.homes: dict[int, int | None] = {}
        """Live PEs, and the index of the registrar they are registered at."""
        self.dead: dict[int, int] = {}
        """Dead PEs, with the identifier of their last home."""
        for registrar in self.registrars:
            self.play.up(registrar.index)
            self.settle(registrar.index)

    def fresh(self) -> int:
        self._last_identifier += 1
        return self._last_identifier

    # Pool elements

    def register(self, identifier: int, index: int, told: list[bool]) -> None:
        self.homes[identifier] = index
        home = self.registrars[index]
        home.listing[identifier] = home.identifier
        home.pushes.append((pe(identifier, home.identifier), False))
        for registrar, is_told in zip(self.registrars, told, strict=True):
            if is_told and not registrar.is_frozen:
                registrar.listing[identifier] = home.identifier

    def kill(self, identifier: int, told: list[bool]) -> None:
        home = self.homes.pop(identifier)
        self.dead[identifier] = 0 if home is None else self.registrars[home].identifier
        for registrar, is_told in zip(self.registrars, told, strict=True):
            is_home = registrar.listing.get(identifier) == registrar.identifier
            if not registrar.is_frozen and (is_home or is_told):
                registrar.listing.pop(identifier, None)
                if is_home:
                    registrar.pushes.append((pe(identifier, registrar.identifier), True))

    def find_homes(self, index: int) -> None:
        """Agents whose registrars are all dead or frozen have found one that answers."""
        for identifier, home in list(self.homes.items()):
            if home is None:
                self.register(identifier, index, [not other.is_frozen for other in self.registrars])

    # Registrars

    def sync(self, index: int) -> None:
        """All updates arrive."""
        registrar = self.registrars[index]
        if registrar.is_frozen:
            return
        living = {other.identifier for other in self.registrars if not other.is_frozen}
        for identifier, home in self.homes.items():
            if home is not None:
                registrar.listing[identifier] = self.registrars[home].identifier
        for identifier, last_home in self.dead.items():
            if last_home in living:
                registrar.listing.pop(identifier, None)

    def take_over(self) -> None:
        """The living registrars have found out about the dead PEs of dead and frozen ones."""
        for registrar in self.registrars:
            if not registrar.is_frozen:
                for identifier in self.dead:
                    registrar.listing.pop(identifier, None)

    def freeze(self, index: int) -> None:
        for registrar in self.registrars:
            self.sync(registrar.index)
        registrar = self.registrars[index]
        registrar.is_frozen, registrar.question = True, None
        self.play.silence(index)

    def thaw(self, index: int, old_answers: int, *, pushes_arrive: bool) -> None:
        """It answers from its old copy a few times before it has read what it missed."""
        registrar = self.registrars[index]
        registrar.is_frozen = False
        for identifier, home in self.homes.items():
            if registrar.listing.get(identifier) == registrar.identifier and home != index:
                # It reads that the PE's association is lost before it reads where the PE went.
                registrar.pushes.append((pe(identifier, registrar.identifier), True))
        self.find_homes(index)
        while pushes_arrive and registrar.pushes:
            self.deliver(index)
        for _ in range(old_answers):
            self.poll(index)
        self.sync(index)
        for identifier in self.dead:
            registrar.listing.pop(identifier, None)

    def restart(self, index: int, copy_of: int | None, sentinel_home: int | None) -> None:
        """The process is replaced; its PEs register elsewhere at once, where there is a registrar that
        hears them."""
        for other in self.registrars:
            self.sync(other.index)
        registrar = self.registrars[index]
        self.play.down(index)
        self.play.wait(0.05)
        others = [other for other in self.registrars if other is not registrar and not other.is_frozen]
        for identifier in [member for member, home in self.homes.items() if home == index]:
            self.homes[identifier] = None
            if others:
                self.register(identifier, others[0].index, [other in others for other in self.registrars])
        old_sentinels = list(registrar.sentinels)
        fresh = Registrar(index, self.fresh())
        if copy_of is not None:
            fresh.listing = dict(self.registrars[copy_of].listing)
        if sentinel_home is not None:
            fresh.sentinels = dict.fromkeys(old_sentinels, sentinel_home)
        fresh.purges_s = self.play.now + 5.0
        self.registrars[index] = fresh
        self.play.up(index)

    def settle(self, index: int) -> None:
        """It has been up for long: every agent registered somewhere, it knows all, its sentinel registers."""
        registrar = self.registrars[index]
        self.find_homes(index)
        registrar.is_settled = True
        self.sync(index)
        for identifier in self.dead:
            registrar.listing.pop(identifier, None)
        registrar.sentinels = {self.fresh(): registrar.identifier}
        registrar.question = None
        self.poll(index)

    # Pushes

    def deliver(self, index: int) -> None:
        """The next push arrives, if there is one."""
        registrar = self.registrars[index]
        if registrar.pushes:
            element, gone = registrar.pushes.pop(0)
            update = Update(registrar.identifier, POOL.encode(), element, gone, self.play.now)
            self.play.belief.updated(index, update)
            self.play.wait(0.001)

    def table(self, index: int, *, own: bool) -> None:
        """The registrar gives its handle table, or that of its own PEs, after all it has pushed."""
        registrar = self.registrars[index]
        while registrar.pushes:
            self.deliver(index)
        elements = tuple(
            pe(identifier, home)
            for identifier, home in sorted(registrar.listing.items())
            if not own or home == registrar.identifier
        )
        asked_s = self.play.now
        self.play.wait(0.001)
        self.play.belief.table(
            index, Table(registrar.identifier, {POOL.encode(): elements}, own, asked_s, self.play.now)
        )
        self.play.wait(0.001)

    # Questions

    def ask(self, index: int) -> None:
        registrar = self.registrars[index]
        if not registrar.is_settled and self.play.now >= registrar.purges_s:
            registrar.sentinels = {}
        elements = tuple(pe(identifier, home) for identifier, home in sorted(registrar.listing.items()))
        sentinels = tuple(
            pe(identifier, home, f"10.9.0.{index + 1}", protocol=Protocol.SCTP)
            for identifier, home in registrar.sentinels.items()
        )
        registrar.question = Question(self.play.now, elements, sentinels)
        self.play.wait(0.001)

    def answer(self, index: int) -> None:
        """The answer is of the moment of the question, and arrives only now."""
        question, self.registrars[index].question = self.registrars[index].question, None
        assert question is not None
        self.play.answer(
            index, *question.sentinels, handle=sentinel_handle(index + 1), asked_s=question.asked_s
        )
        elements, asked_s = question.elements, question.asked_s
        told = Resolution(POOL.encode(), bool(elements), None, elements, asked_s, self.play.now)
        self.play.belief.answered(index, told)
        self.play.wait(0.001)

    def poll(self, index: int) -> None:
        if self.registrars[index].question is None:
            self.ask(index)
        self.answer(index)
