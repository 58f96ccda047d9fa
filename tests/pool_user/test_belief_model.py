"""Random histories of registrars and pool elements against what must always hold.

After a change of the rules: BELIEF_EXAMPLES=10000 pytest --timeout 900 tests/backend/test_belief_model.py
"""

import copy
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.pool_user.belief_support import POOL
from tests.pool_user.belief_world import World

PLACES = st.integers(0, 2)
TOLD = st.lists(st.booleans(), min_size=3, max_size=3)
SLOTS = st.integers(0, 2)


class BeliefMachine(RuleBasedStateMachine):
    """A live PE that was seen is never out; a starting registrar removes nobody; the dead go in the end."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.seen: set[int] = set()
        self.slots: dict[int, int] = {}
        self.ask_all()

    @property
    def members(self) -> set[int]:
        return set(self.world.play.members())

    def usable(self, place: int) -> bool:
        return not self.world.registrars[place].is_frozen

    @rule(slot=SLOTS, place=PLACES, told=TOLD)
    def register_or_move(self, slot: int, place: int, told: list[bool]) -> None:
        if self.usable(place):
            self.slots.setdefault(slot, self.world.fresh())
            self.world.register(self.slots[slot], place, told)

    @rule(slot=SLOTS, told=TOLD)
    def kill(self, slot: int, told: list[bool]) -> None:
        if slot in self.slots:
            identifier = self.slots.pop(slot)
            self.world.kill(identifier, told)
            self.seen.discard(identifier)

    @rule(place=PLACES)
    def ask_and_answer(self, place: int) -> None:
        if self.usable(place):
            self.ask(place)
            self.answer(place)

    @rule()
    def ask_all(self) -> None:
        for place in range(3):
            self.ask_and_answer(place)

    @rule(place=PLACES)
    def ask_only(self, place: int) -> None:
        self.ask(place)

    def ask(self, place: int) -> None:
        if self.usable(place) and self.world.registrars[place].question is None:
            self.world.ask(place)

    @rule(place=PLACES)
    def answer_to_before(self, place: int) -> None:
        self.answer(place)

    def answer(self, place: int) -> None:
        registrar = self.world.registrars[place]
        if registrar.question is not None and self.usable(place):
            before = self.members
            self.world.answer(place)
            if self.world.play.view().stale_since_s is not None:
                assert before <= self.members, "somebody was removed, and no registrar was settled"

    @rule(place=PLACES)
    def sync(self, place: int) -> None:
        self.world.sync(place)

    @rule(place=PLACES, count=st.integers(1, 4))
    def pushes_arrive(self, place: int, count: int) -> None:
        for _ in range(count):
            self.world.deliver(place)

    @rule(place=PLACES)
    def a_push_is_lost(self, place: int) -> None:
        del self.world.registrars[place].pushes[:1]

    @rule(place=PLACES, own=st.booleans())
    def give_table(self, place: int, own: bool) -> None:
        if self.usable(place):
            self.world.table(place, own=own)

    @rule(place=PLACES)
    def freeze(self, place: int) -> None:
        if self.usable(place):
            self.world.freeze(place)

    @rule(place=PLACES, old_answers=st.integers(0, 3), pushes_arrive=st.booleans())
    def thaw(self, place: int, old_answers: int, pushes_arrive: bool) -> None:
        if not self.usable(place):
            self.world.thaw(place, old_answers, pushes_arrive=pushes_arrive)

    @rule(place=PLACES, copy_of=st.none() | PLACES, former=st.sampled_from(["none", "own", "own", "peer"]))
    def restart(self, place: int, copy_of: int | None, former: str) -> None:
        registrars = self.world.registrars
        home = {"none": None, "own": registrars[place].identifier, "peer": registrars[place - 1].identifier}
        self.world.restart(place, None if copy_of == place else copy_of, home[former])

    @rule(place=PLACES)
    def settle(self, place: int) -> None:
        if self.usable(place) and not self.world.registrars[place].is_settled:
            self.world.settle(place)

    @rule(seconds=st.sampled_from([0.01, 0.3, 0.7, 1.2, 3.0]))
    def wait(self, seconds: float) -> None:
        self.world.play.wait(seconds)

    @precondition(lambda self: any(r.is_settled and not r.is_frozen for r in self.world.registrars))
    @rule(pushes_arrive=st.booleans())
    def rest(self, pushes_arrive: bool) -> None:
        """Everything that is under way arrives, or all pushes are lost: then members are exactly who is
        alive."""
        world = self.world
        for registrar in world.registrars:
            while pushes_arrive and registrar.pushes:
                world.deliver(registrar.place)
            registrar.pushes.clear()
        for registrar in world.registrars:
            if self.usable(registrar.place) and not registrar.is_settled:
                world.settle(registrar.place)
        world.take_over()
        for _ in range(2):
            for _ in range(3):
                for registrar in world.registrars:
                    world.sync(registrar.place)
                    if self.usable(registrar.place):
                        world.poll(registrar.place)
            world.play.wait(1.1)
        assert self.members == {one for one, home in world.homes.items() if home is not None}
        assert world.play.view().stale_since_s is None
        assert world.play.asked() == set()

    @invariant()
    def live_ones_are_never_out(self) -> None:
        members = self.members
        assert self.seen <= members
        self.seen |= members & self.world.homes.keys()

    @invariant()
    def judging_what_changed_is_judging_all(self) -> None:
        belief, now = self.world.play.belief, self.world.play.now
        view = self.world.play.view()
        pool = copy.deepcopy(belief._pools[POOL])
        pool._judged_by = None
        pool.evaluate(belief._court, belief._stale_since_s or now, now)
        # Of two that are both right, which home is told may depend on when all were judged last.
        assert [one.identifier for one in pool.view.members] == [one.identifier for one in view.members]
        assert {one.identifier for one in pool.view.out} == {one.identifier for one in view.out}


EXAMPLES = os.environ.get("BELIEF_EXAMPLES")
"""A number makes that many random histories (10,000 take some minutes); else always the same few."""

BeliefMachine.TestCase.settings = settings(
    max_examples=int(EXAMPLES or 200),
    derandomize=EXAMPLES is None,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestBelief = BeliefMachine.TestCase
