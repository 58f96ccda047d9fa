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

    def usable(self, index: int) -> bool:
        return not self.world.registrars[index].is_frozen

    @rule(slot=SLOTS, index=PLACES, told=TOLD)
    def register_or_move(self, slot: int, index: int, told: list[bool]) -> None:
        if self.usable(index):
            self.slots.setdefault(slot, self.world.fresh())
            self.world.register(self.slots[slot], index, told)

    @rule(slot=SLOTS, told=TOLD)
    def kill(self, slot: int, told: list[bool]) -> None:
        if slot in self.slots:
            identifier = self.slots.pop(slot)
            self.world.kill(identifier, told)
            self.seen.discard(identifier)

    @rule(index=PLACES)
    def ask_and_answer(self, index: int) -> None:
        if self.usable(index):
            self.ask(index)
            self.answer(index)

    @rule()
    def ask_all(self) -> None:
        for index in range(3):
            self.ask_and_answer(index)

    @rule(index=PLACES)
    def ask_only(self, index: int) -> None:
        self.ask(index)

    def ask(self, index: int) -> None:
        if self.usable(index) and self.world.registrars[index].question is None:
            self.world.ask(index)

    @rule(index=PLACES)
    def answer_to_before(self, index: int) -> None:
        self.answer(index)

    def answer(self, index: int) -> None:
        registrar = self.world.registrars[index]
        if registrar.question is not None and self.usable(index):
            before = self.members
            self.world.answer(index)
            if self.world.play.view().stale_since_s is not None:
                assert before <= self.members, "somebody was removed, and no registrar was settled"

    @rule(index=PLACES)
    def sync(self, index: int) -> None:
        self.world.sync(index)

    @rule(index=PLACES, count=st.integers(1, 4))
    def pushes_arrive(self, index: int, count: int) -> None:
        for _ in range(count):
            self.world.deliver(index)

    @rule(index=PLACES)
    def a_push_is_lost(self, index: int) -> None:
        del self.world.registrars[index].pushes[:1]

    @rule(index=PLACES, own=st.booleans())
    def give_table(self, index: int, own: bool) -> None:
        if self.usable(index):
            self.world.table(index, own=own)

    @rule(index=PLACES)
    def freeze(self, index: int) -> None:
        if self.usable(index):
            self.world.freeze(index)

    @rule(index=PLACES, old_answers=st.integers(0, 3), pushes_arrive=st.booleans())
    def thaw(self, index: int, old_answers: int, pushes_arrive: bool) -> None:
        if not self.usable(index):
            self.world.thaw(index, old_answers, pushes_arrive=pushes_arrive)

    @rule(index=PLACES, copy_of=st.none() | PLACES, former=st.sampled_from(["none", "own", "own", "peer"]))
    def restart(self, index: int, copy_of: int | None, former: str) -> None:
        registrars = self.world.registrars
        home = {"none": None, "own": registrars[index].identifier, "peer": registrars[index - 1].identifier}
        self.world.restart(index, None if copy_of == index else copy_of, home[former])

    @rule(index=PLACES)
    def settle(self, index: int) -> None:
        if self.usable(index) and not self.world.registrars[index].is_settled:
            self.world.settle(index)

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
                world.deliver(registrar.index)
            registrar.pushes.clear()
        for registrar in world.registrars:
            if self.usable(registrar.index) and not registrar.is_settled:
                world.settle(registrar.index)
        world.take_over()
        for _ in range(2):
            for _ in range(3):
                for registrar in world.registrars:
                    world.sync(registrar.index)
                    if self.usable(registrar.index):
                        world.poll(registrar.index)
            world.play.wait(1.1)
        assert self.members == {identifier for identifier, home in world.homes.items() if home is not None}
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
        pool._decisions.reopen()
        pool.evaluate(belief._registrars, belief._stale_since_s or now, now)
        # If two homes are both right, the one that is named may depend on when all were judged last.
        assert [member.identifier for member in pool.view.members] == [
            member.identifier for member in view.members
        ]
        assert {member.identifier for member in pool.view.out} == {member.identifier for member in view.out}


EXAMPLES = os.environ.get("BELIEF_EXAMPLES")
"""A number makes that many random histories (10,000 take some minutes); else always the same few."""

BeliefMachine.TestCase.settings = settings(
    max_examples=int(EXAMPLES or 80),
    derandomize=EXAMPLES is None,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestBelief = BeliefMachine.TestCase
