"""The pool user at registrars that are played: what it asks when, and what it makes of bad ones."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pool_user import user
from pool_user.belief import Belief
from pool_user.registrars.polling import Intervals
from pool_user.registrars.session import (
    ASK_FOLLOWED_AFTER_S,
    MOST_ASKED_AT_ONCE,
    RegistrarSession,
    SessionInput,
)
from pool_user.user import PoolUser, merged
from pool_user.views import PoolView

from rserpool import (
    Joined,
    PoolElement,
    RegistrarAddress,
    RegistrarUnreachable,
    Resolution,
    ResolutionTimeout,
    RSerPoolError,
    check_handle,
)
from tests.pool_user.belief_support import POOL, RULES, pe
from tests.support.stalls import Mark
from tests.support.waiting import until_async

HOMES = (0xA1, 0xB2, 0xC3)


class PlayedRegistrar:
    """Stands in for a RegistrarClient: answers from `listing` after `delay_s`."""

    made: list["PlayedRegistrar"]

    def __init__(
        self, address: RegistrarAddress, *, timeout_ms: int, on_link: Callable[[bool], None], **_: Any
    ) -> None:
        self.index = len(PlayedRegistrar.made)
        PlayedRegistrar.made.append(self)
        self.timeout_s = timeout_ms / 1000
        self.on_link = on_link
        self.is_up = False
        self.round_trip_ms: float | None = 1.0
        self.listing: dict[str, tuple[PoolElement, ...]] = {}
        self.delay_s = 0.001
        self.is_frozen = False
        self.asked: list[tuple[float, str]] = []
        self.under_way: Counter[str] = Counter()
        self.most_under_way = 0
        self.listing[f"rspdns-sentinel-{self.index + 1}"] = (
            pe(0x51 + self.index, HOMES[self.index], address.host),
        )

    def start(self) -> None:
        asyncio.get_running_loop().call_soon(self.link, True)

    def link(self, up: bool) -> None:
        self.is_up = up
        self.on_link(up)

    async def close(self) -> None:
        self.is_up = False

    def ask(self, handle: bytes, answered: Callable[[Resolution | RSerPoolError], None]) -> None:
        check_handle(handle)
        if not self.is_up:
            raise RegistrarUnreachable("down")
        loop, text = asyncio.get_running_loop(), handle.decode()
        self.asked.append((loop.time(), text))
        self.under_way[text] += 1
        self.most_under_way = max(self.most_under_way, self.under_way[text])
        delay_s = self.timeout_s if self.is_frozen else self.delay_s
        loop.call_later(delay_s, lambda asked_s: answered(self._outcome(handle, asked_s)), loop.time())

    def _outcome(self, handle: bytes, asked_s: float) -> Resolution | RSerPoolError:
        text = handle.decode()
        self.under_way[text] -= 1
        if self.is_frozen:
            return ResolutionTimeout("frozen")
        if not self.is_up:
            return RegistrarUnreachable("lost meanwhile")
        elements = self.listing.get(text, ())
        now = asyncio.get_running_loop().time()
        return Resolution(handle, bool(elements), None, elements, asked_s, now)

    def count(self, handle: str, since_s: float = 0.0) -> int:
        return sum(text == handle and at_s >= since_s for at_s, text in self.asked)

    def first_asked_s(self, handle: str, since_s: float) -> float:
        return next(at_s for at_s, text in self.asked if text == handle and at_s >= since_s)


@dataclass(frozen=True)
class PlayedSettings:
    handles: tuple[str, ...] = (POOL,)
    poll_hot_ms: int = 50
    poll_hot_for_s: float = 60.0
    poll_idle_s: float = 10.0
    resolve_timeout_ms: int = 300
    asks_sentinels_first: bool = False
    """As where registrars are followed."""
    registrar_addresses: Sequence[RegistrarAddress] = field(
        default_factory=lambda: [RegistrarAddress(f"10.9.0.{n}") for n in (1, 2, 3)]
    )


class Scene:
    """A pool user, its registrars, and every view it gave out."""

    def __init__(self, settings: PlayedSettings) -> None:
        PlayedRegistrar.made = []
        addresses = [str(address) for address in settings.registrar_addresses]
        self.belief = Belief(addresses, dict.fromkeys(settings.handles, RULES))
        self.views: list[Mapping[str, PoolView]] = []
        self.pool_user = PoolUser(
            settings.registrar_addresses,
            settings.handles,
            self.belief,
            lambda change: self.views.append(change.views),
            is_to_follow=False,
            intervals=Intervals(settings.poll_hot_ms / 1000, settings.poll_hot_for_s, settings.poll_idle_s),
            timeout_ms=settings.resolve_timeout_ms,
            on_events=lambda events: None,
        )
        for session in self.pool_user.sessions:
            session._is_to_follow = settings.asks_sentinels_first
        self.registrars = PlayedRegistrar.made

    def list_everywhere(self, *elements: PoolElement, handle: str = POOL) -> None:
        for registrar in self.registrars:
            registrar.listing[handle] = elements

    @property
    def members(self) -> list[int]:
        return [member.identifier for member in self.views[-1][POOL].members] if self.views else []

    @property
    def standings(self) -> list[str]:
        return [state.standing.value for state in self.pool_user.belief.registrar_states(time.monotonic())]

    def ask(self, index: int) -> None:
        """Have one registrar asked about the pool at once."""
        self.pool_user.sessions[index].ask_at_once(POOL, asyncio.get_running_loop().time())
        self.pool_user._flush()

    def tell(self, index: int, told: Resolution) -> None:
        """Have one registrar answer."""
        self.belief.answered(index, told)
        self.pool_user.sessions[index].done(told.handle.decode(), asyncio.get_running_loop().time())
        self.pool_user.look()

    async def until(self, condition: Callable[[], bool]) -> None:
        await until_async(condition, every_s=0.001)


@asynccontextmanager
async def playing(settings: PlayedSettings | None = None) -> AsyncIterator[Scene]:
    scene = Scene(settings or PlayedSettings())
    scene.pool_user.start()
    try:
        yield scene
    finally:
        await scene.pool_user.close()


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user, "RegistrarClient", PlayedRegistrar)


async def test_members_come_and_go() -> None:
    async with playing() as scene:
        scene.list_everywhere(pe(1, HOMES[0]), pe(2, HOMES[1]))
        await scene.until(lambda: scene.members == [1, 2])
        assert scene.standings == ["settled"] * 3
        scene.list_everywhere(pe(2, HOMES[1]))
        await scene.until(lambda: scene.members == [2])


async def test_views_are_given_out_only_when_they_changed() -> None:
    async with playing() as scene:
        scene.list_everywhere(pe(1, HOMES[0]))
        await scene.until(lambda: scene.members == [1])
        await asyncio.sleep(0.1)
        before = len(scene.views)
        await asyncio.sleep(0.4)
        assert len(scene.views) == before


async def test_a_change_at_one_makes_the_others_be_asked_at_once() -> None:
    slow = PlayedSettings(poll_hot_ms=2000)
    async with playing(slow) as scene:
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        await asyncio.sleep(0.05)
        started_s, started = asyncio.get_running_loop().time(), Mark.now()
        scene.list_everywhere(pe(1, HOMES[2]))
        scene.ask(0)
        await scene.until(lambda: scene.members == [1])
        await scene.until(lambda: scene.registrars[1].count(POOL, started_s) >= 1)
        assert started.ran_s() < 1.0


async def test_a_change_is_told_before_others_are_asked_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(PlayedSettings(poll_hot_ms=20_000)) as scene:
        scene.list_everywhere(pe(1, HOMES[0]), pe(2, HOMES[0]))
        await scene.until(lambda: scene.members == [1, 2])
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        await asyncio.sleep(0.05)
        now = asyncio.get_running_loop().time()

        def counts() -> list[int]:
            return [registrar.count(POOL, now) for registrar in scene.registrars]

        told: list[list[int]] = []
        monkeypatch.setattr(scene.pool_user, "_on_change", lambda change: told.append(counts()))
        scene.list_everywhere(pe(1, HOMES[0]))
        scene.tell(0, Resolution(POOL.encode(), True, None, (pe(1, HOMES[0]),), now, now))
        await scene.until(lambda: counts() == [0, 1, 1])
        assert told == [[0, 0, 0]]


async def test_change_is_told_and_asked_about_though_the_listener_to_its_events_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(user, "get_logger", lambda part: SimpleNamespace(exception=logged.append))
    async with playing(PlayedSettings(poll_hot_ms=20_000)) as scene:
        scene.list_everywhere(pe(1, HOMES[0]), pe(2, HOMES[0]))
        await scene.until(lambda: scene.members == [1, 2])
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        await asyncio.sleep(0.05)

        def fail(_: object) -> None:
            raise MemoryError

        monkeypatch.setattr(scene.pool_user, "_on_events", fail)
        scene.list_everywhere(pe(1, HOMES[0]))
        now = asyncio.get_running_loop().time()
        scene.tell(0, Resolution(POOL.encode(), True, None, (pe(1, HOMES[0]),), now, now))
        await scene.until(lambda: scene.members == [1])
        await scene.until(lambda: [each.count(POOL, now) for each in scene.registrars] == [0, 1, 1])
    assert "listener_failed" in logged


async def test_followed_registrars_are_asked_about_a_change_only_after_a_moment() -> None:
    async with playing(PlayedSettings(poll_hot_ms=20_000)) as scene:
        scene.list_everywhere(pe(1, HOMES[0]), pe(2, HOMES[0]))
        await scene.until(lambda: scene.members == [1, 2])
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        await asyncio.sleep(0.05)
        for what in (SessionInput.FOLLOW, SessionInput.TABLE):
            scene.pool_user.sessions[1].move(what)
        scene.list_everywhere(pe(1, HOMES[0]))
        now = asyncio.get_running_loop().time()
        told = Resolution(POOL.encode(), True, None, (pe(1, HOMES[0]),), now, now)
        scene.tell(0, told)
        await scene.until(lambda: all(each.count(POOL, now) for each in scene.registrars[1:]))
        followed, asked = (scene.registrars[index].first_asked_s(POOL, now) for index in (1, 2))
        assert followed >= now + ASK_FOLLOWED_AFTER_S - 0.001
        assert asked < followed
        assert scene.members == [1]


async def test_pools_that_a_handle_table_is_about_to_tell_are_not_asked_about_singly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RegistrarSession, "is_about_to_tell", property(lambda session: session.index == 0))
    handles = tuple(f"pool-{number}" for number in range(300))
    async with playing(PlayedSettings((POOL, *handles))) as scene:
        await scene.until(lambda: {*handles} <= {handle for _, handle in scene.registrars[1].asked})
        assert len({*handles} & {handle for _, handle in scene.registrars[0].asked}) < 250


async def test_of_one_that_may_be_followed_the_sentinel_is_asked_first_alone() -> None:
    settings = PlayedSettings((POOL, "other"), poll_hot_ms=200, asks_sentinels_first=True)
    async with playing(settings) as scene:
        for index, registrar in enumerate(scene.registrars):
            await scene.until(
                lambda peer=registrar: {POOL, "other"} <= {handle for _, handle in peer.asked}  # type: ignore[misc]
            )
            (first_s, first), (then_s, _) = registrar.asked[:2]
            assert first == f"rspdns-sentinel-{index + 1}"
            assert then_s - first_s > 0.15, "its table would be on its way by then"


async def test_pools_wait_for_the_sentinel_of_the_slowest() -> None:
    """No registrar is settled before, and questions about a thousand pools would only delay it."""
    async with playing(PlayedSettings((POOL, "other"), asks_sentinels_first=True)) as scene:
        scene.registrars[2].delay_s = 0.6
        await scene.until(lambda: all(registrar.count(POOL) for registrar in scene.registrars))
        waits_s = [
            registrar.first_asked_s(POOL, 0.0) - scene.registrars[2].asked[0][0]
            for registrar in scene.registrars
        ]
        assert min(waits_s) >= 0.55


@pytest.mark.parametrize("count", [MOST_ASKED_AT_ONCE // 2, MOST_ASKED_AT_ONCE + 50])
async def test_a_handle_table_tells_sooner_than_many_questions_of_the_belief(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegistrarSession, "is_about_to_tell", property(lambda session: session.index == 1))
    handles = [f"pool-{number}" for number in range(count)]
    async with playing(PlayedSettings((POOL, *handles), poll_idle_s=1000.0)) as scene:
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        scene.registrars[1].asked.clear()
        now = asyncio.get_running_loop().time()
        for handle in handles:
            elements = scene.registrars[0].listing[handle] = (pe(1, HOMES[1]),)
            told = Resolution(handle.encode(), True, None, elements, now, now)
            scene.tell(0, told)
        await scene.until(lambda: all(scene.views[-1][handle].members for handle in handles))
        await asyncio.sleep(0.05)
        asked = {handle for _, handle in scene.registrars[1].asked} & {*handles}
        assert len(asked) == (count if count <= MOST_ASKED_AT_ONCE else 0)


async def test_a_question_of_the_belief_is_asked_at_once() -> None:
    slow = PlayedSettings(poll_hot_ms=30_000)
    async with playing(slow) as scene:
        scene.list_everywhere(pe(1, HOMES[0]), pe(2, HOMES[0]), pe(3, HOMES[0]))
        await scene.until(lambda: scene.members == [1, 2, 3])
        await asyncio.sleep(0.05)  # a question right after another waits a moment
        started = Mark.now()
        scene.list_everywhere()
        scene.ask(0)
        await scene.until(lambda: scene.members == [])
        assert started.ran_s() < 8, "a crowd, confirmed by all"


async def test_each_registrar_is_asked_one_question_at_a_time_about_a_pool() -> None:
    async with playing(PlayedSettings(poll_hot_ms=10)) as scene:
        scene.registrars[1].delay_s = 0.25
        scene.registrars[2].is_frozen = True
        for number in range(30):
            scene.list_everywhere(pe(number + 1, HOMES[0]))
            for index in range(3):
                scene.ask(index)
            scene.pool_user.look()
            await asyncio.sleep(0.02)
        assert [registrar.most_under_way for registrar in scene.registrars] == [1, 1, 1]
        assert scene.registrars[0].count(POOL) > 20


async def test_a_frozen_registrar_is_left_in_peace_and_its_members_stay() -> None:
    async with playing() as scene:
        scene.list_everywhere(pe(1, HOMES[0]))
        await scene.until(lambda: scene.members == [1])
        scene.registrars[0].is_frozen = True
        await scene.until(lambda: scene.standings[0] == "silent")
        started_s = asyncio.get_running_loop().time()
        await asyncio.sleep(0.7)
        assert scene.registrars[0].count(POOL, started_s) == 0
        assert scene.registrars[0].count("rspdns-sentinel-1", started_s) >= 1
        assert scene.members == [1]
        scene.registrars[0].is_frozen = False
        await scene.until(lambda: scene.standings[0] == "settled")
        assert scene.registrars[0].count(POOL, started_s) >= 1


async def test_a_lost_link_loses_nobody_and_all_lost_is_stale() -> None:
    async with playing() as scene:
        scene.list_everywhere(pe(1, HOMES[0]))
        await scene.until(lambda: scene.members == [1])
        for registrar in scene.registrars:
            registrar.link(False)
        await scene.until(lambda: scene.views[-1][POOL].stale_since_s is not None)
        assert scene.members == [1]


async def test_a_looked_up_idle_pool_is_asked_at_once() -> None:
    async with playing(PlayedSettings(poll_hot_for_s=0.0)) as scene:
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        await asyncio.sleep(0.1)
        counted = [registrar.count(POOL) for registrar in scene.registrars]
        scene.pool_user.note_query(POOL)
        scene.pool_user.note_query("stranger")
        await scene.until(
            lambda: [registrar.count(POOL) for registrar in scene.registrars] == [n + 1 for n in counted]
        )


async def test_a_handle_that_must_not_be_sent_harms_no_other() -> None:
    async with playing(PlayedSettings(handles=("x" * 33, POOL))) as scene:
        scene.list_everywhere(pe(1, HOMES[0]))
        await scene.until(lambda: scene.members == [1])
        assert not scene.views[-1]["x" * 33].known


async def test_new_pools_are_followed() -> None:
    async with playing() as scene:
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        scene.list_everywhere(pe(5, HOMES[0]), handle="fresh")
        scene.belief.set_pools({POOL: RULES, "fresh": RULES}, asyncio.get_running_loop().time())
        scene.pool_user.set_handles([POOL, "fresh"])
        await scene.until(lambda: bool(scene.views[-1].get("fresh", PoolView("")).members))


async def test_after_close_nothing_is_asked() -> None:
    async with playing() as scene:
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        await scene.pool_user.close()
        counted = [len(registrar.asked) for registrar in scene.registrars]
        await asyncio.sleep(0.2)
        assert [len(registrar.asked) for registrar in scene.registrars] == counted


def test_the_end_of_a_following_is_news_once_for_each_reason() -> None:
    session = RegistrarSession(0, "10.9.0.1")
    news = [session.ended(reason, 101.0) for reason in ("too old", "too old", "flooded")]
    assert news == [True, False, True]


async def test_a_lookup_of_an_unknown_pool_asks_nothing() -> None:
    async with playing() as scene:
        await scene.until(lambda: scene.standings == ["settled"] * 3)
        scene.pool_user.note_query("stranger")
        await asyncio.sleep(0.01)
        assert [registrar.count("stranger") for registrar in scene.registrars] == [0, 0, 0]


def test_what_registrars_list_of_a_pool_is_put_together_each_server_once() -> None:
    listed = [(pe(1, HOMES[0]), pe(2, HOMES[0])), (pe(2, HOMES[1]), pe(3, HOMES[0]))]
    found = merged(Resolution(b"pool", True, None, elements, 1.0, 1.1) for elements in listed)
    assert found == [pe(1, HOMES[0]), pe(2, HOMES[1]), pe(3, HOMES[0])]
    assert merged([]) == []


async def test_registrar_whose_association_is_there_is_about_to_tell_its_table() -> None:
    async with playing() as scene:
        session = scene.pool_user.sessions[0]
        session.follow()
        assert not session.is_about_to_tell
        scene.pool_user._on_follower_event(0, Joined())
        assert session.is_about_to_tell
