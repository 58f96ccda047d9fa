"""Whom the backend follows when: the first handle table is taken from one registrar alone."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pool_user.belief import Belief
from pool_user.registrars import following
from pool_user.registrars.following import FIRST_CONNECTED_S, FIRST_TABLE_S, Following
from pool_user.registrars.polling import HotPools, Intervals
from rserpool.aio.follower import State
from rserpool.machine.follower import Ended, Event, Table
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.machine.user import Resolution
from rserpool.rspregistrar import sentinel_handle

from tests.pool_user.belief_support import POOL, RULES, pe

HOMES = (0xA1, 0xB2, 0xC3)
START_S = 10.0


class PlayedClient:
    """Stands in for a HandlespaceFollower; the test sets how far each registrar is followed."""

    def __init__(
        self, registrars: Sequence[RegistrarAddress], on_event: Callable[[int, Event], None], **_: Any
    ) -> None:
        self.on_event = on_event
        self.states = [State.IDLE] * len(registrars)

    def follow(self, place: int) -> None:
        self.states[place] = State.CONNECTING

    def state(self, place: int) -> State:
        return self.states[place]

    def tell(self, place: int, event: Event, state: State) -> None:
        self.states[place] = state
        self.on_event(place, event)


class Scene:
    """Three registrars, all settled at START_S."""

    def __init__(self) -> None:
        addresses = [RegistrarAddress(f"10.9.0.{number}") for number in (1, 2, 3)]
        belief = Belief([str(address) for address in addresses], {POOL: RULES})
        for place, home in enumerate(HOMES):
            belief.link(place, True, START_S)
            sentinel = (pe(0x51 + place, home, f"10.9.0.{place + 1}"),)
            handle = sentinel_handle(place + 1).encode()
            belief.answered(place, Resolution(handle, True, None, sentinel, START_S, START_S))
        pools = HotPools((POOL,), Intervals(0.05, 60.0, 10.0), START_S)
        self.following = Following(
            addresses, belief, pools, on_news=lambda *_: None, on_followed=lambda *_: None
        )
        client = self.following._client
        assert isinstance(client, PlayedClient)
        self.client = client

    def look(self, later_s: float) -> list[State]:
        self.following.follow_settled(START_S + later_s)
        return self.client.states


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HandlespaceFollower", PlayedClient)


def test_the_others_wait_for_the_first_handle_table() -> None:
    scene = Scene()
    assert scene.look(0.0) == [State.CONNECTING, State.IDLE, State.IDLE]
    scene.client.states[0] = State.JOINING
    assert scene.look(1.0) == [State.JOINING, State.IDLE, State.IDLE]
    assert all(map(scene.following.is_about_to_tell, range(3))), "they are not asked one by one meanwhile"
    scene.client.tell(0, Table(HOMES[0], {}, False, START_S, START_S + 1.5), State.FOLLOWING)
    assert scene.look(1.5) == [State.FOLLOWING, State.CONNECTING, State.CONNECTING]
    assert not any(map(scene.following.is_about_to_tell, range(3)))


@pytest.mark.parametrize(
    ("state", "at_most_s"), [(State.CONNECTING, FIRST_CONNECTED_S), (State.JOINING, FIRST_TABLE_S)]
)
def test_they_do_not_wait_for_long(state: State, at_most_s: float) -> None:
    scene = Scene()
    scene.look(0.0)
    scene.client.states[0] = state
    assert scene.look(at_most_s - 0.01) == [state, State.IDLE, State.IDLE]
    assert scene.look(at_most_s) == [state, State.CONNECTING, State.CONNECTING]


def test_they_do_not_wait_for_one_that_failed() -> None:
    scene = Scene()
    scene.look(0.0)
    scene.client.tell(0, Ended("no answer, or refused"), State.IDLE)
    assert scene.look(0.01) == [State.CONNECTING] * 3
