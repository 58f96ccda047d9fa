"""One AS and its pool: joining, leaving, being missed."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from ppe_agent import lookup, registration
from ppe_agent.lookup import RegistrarWatch, RegistrarWatches
from ppe_agent.registration import ServerRegistration, is_listed
from structlog.testing import capture_logs

from rserpool import CauseCode, ElementState, ErrorCause, RegistrarAddress, Resolution
from tests.ppe_agent.fakes import ELEMENT, OTHER, REGISTRAR, FakeRegistrarClient, PaperPool, running, settle
from tests.ppe_agent.fakes import pool as pool  # the fixture
from tests.rserpool.paper_registrars import least_used
from tests.support.waiting import until_async


def state_of(server: ServerRegistration) -> ElementState:
    return server.state


async def test_a_server_joins_and_leaves_as_wanted(pool: PaperPool) -> None:
    async with running() as server:
        assert state_of(server) is ElementState.IDLE
        server.want(True)
        await settle()
        assert server.is_registered
        server.want(False)
        await settle()
        assert state_of(server) is ElementState.IDLE
        assert [stay.calls for stay in pool.stays] == [["register", "deregister", "close"]]
        server.want(True)
        await settle()
        assert pool.stays[1].calls == ["register"]


async def test_a_server_comes_back_only_when_leaving_is_over(pool: PaperPool) -> None:
    async with running() as server:
        server.want(True)
        await settle()
        pool.stays[0].hold()
        server.want(False)
        await settle()
        assert state_of(server) is ElementState.DEREGISTERING
        server.want(True)
        await settle()
        assert len(pool.stays) == 1
        pool.stays[0].release()
        await settle()
        assert pool.stays[0].calls == ["register", "deregister", "close"]
        assert pool.stays[1].calls == ["register"]


async def test_the_load_of_the_moment_is_registered_and_updated(pool: PaperPool) -> None:
    async with running() as server:
        server.update_policy(least_used(0.5))
        server.want(True)
        await settle()
        server.update_policy(least_used(0.75))
        await settle()
        policies = [element.policy for element in pool.stays[0].registered]
        assert policies == [least_used(0.5), least_used(0.75)]


async def test_a_registration_says_why_it_is_not_in(pool: PaperPool) -> None:
    async with running() as server:
        pool.registrars[REGISTRAR.endpoint].rejects = (ErrorCause(CauseCode.INCONSISTENT_POLICY),)
        server.want(True)
        await settle()
        assert state_of(server) is ElementState.WAITING
        assert server.upkeep.problem == (
            "registrar 127.0.0.1 refuses it: the policy differs from that of the pool (cause 0x0005); next "
            'attempt in 1 s. Set policy to that of the pool\'s other members (here it is "least-used"), or '
            "take another handle"
        )


async def test_an_address_that_is_not_on_this_host_is_tried_again_with_the_reason_told(
    pool: PaperPool,
) -> None:
    pool.is_broken = True
    async with running() as server:
        with capture_logs() as lines:
            server.want(True)
            await settle()
        assert server.upkeep.problem == "can't register: Cannot assign requested address"
        assert [line["event"] for line in lines] == ["registration_failed"]
        pool.is_broken = False
        await until_async(lambda: server.is_registered)
        assert server.upkeep.problem is None


async def test_a_server_that_was_in_and_left_unconfirmed_is_doubted_and_all_registrars_are_told(
    pool: PaperPool,
) -> None:
    async with running() as server:
        for was_in in (False, True):
            reports: list[bool] = []
            server.on_unconfirmed = partial(reports.append, True)
            server.want(True)
            if was_in:
                await settle()
                pool.stays[-1].is_refused = True
            server.want(False)
            await settle()
            assert server.state is ElementState.IDLE
            assert (reports, server.is_unconfirmed) == ([True] * was_in, was_in)


def resolution(*identifiers: int, asked_at_s: float = 1e9) -> Resolution:
    elements = tuple(replace(ELEMENT, identifier=identifier) for identifier in identifiers)
    return Resolution(b"pool", bool(elements), None, elements, asked_at_s, asked_at_s)


@pytest.mark.parametrize(
    ("identifiers", "listed"),
    [((), False), ((7,), True), ((1, 7, 9), True), ((1, 2), False), (range(100, 228), None)],
)
def test_listed_or_not_or_not_to_be_told(identifiers: tuple[int, ...], listed: bool | None) -> None:
    assert is_listed(resolution(*identifiers), 7) is listed


async def test_a_missing_element_is_registered_again_but_not_on_old_news(pool: PaperPool) -> None:
    async with running() as server:
        assert server.check_listed(OTHER, resolution()) is False  # out of the pool: all is right
        server.want(True)
        await settle()
        assert server.check_listed(OTHER, resolution(7)) is True
        before = asyncio.get_running_loop().time() - 1
        assert server.check_listed(OTHER, resolution(asked_at_s=before)) is False
        assert pool.stays[0].calls == ["register"]
        assert server.check_listed(REGISTRAR, resolution(1, 2)) is False
        assert pool.stays[0].calls == ["register", "register"]
        assert server.upkeep.counts.missing == 1


async def test_a_home_that_nobody_confirms_is_left(pool: PaperPool) -> None:
    async with running() as server:
        server.update_registrars([REGISTRAR, OTHER])
        server.want(True)
        await settle()
        home = server.registrar
        assert home
        other = REGISTRAR if home == OTHER else OTHER
        for half_seconds in range(6):
            server.check_listed(home, resolution(7, asked_at_s=1e9 + half_seconds / 2))
            server.check_listed(other, resolution(asked_at_s=1e9 + half_seconds / 2))
            await settle()
        assert server.registrar == home
        server.check_listed(other, resolution(asked_at_s=1e9 + 3))
        await settle()
        assert server.registrar == other


async def test_an_unconfirmed_server_counts_as_gone_after_two_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a large pool a registrar never says so."""
    monkeypatch.setattr(registration, "DOUBTFUL_LIVES", 0.05)
    async with running() as server:
        server.doubt()
        assert server.check_listed(OTHER, resolution(*range(100, 228))) is None
        assert server.is_unconfirmed
        await until_async(lambda: not server.is_unconfirmed)


async def test_in_a_pool_too_large_to_be_looked_up_silence_is_heeded(pool: PaperPool) -> None:
    async with running() as server:
        server.want(True)
        await settle()
        for identifiers, heeded in ((range(100, 228), True), (range(1, 129), True), ((7,), False)):
            server.check_listed(OTHER, resolution(*identifiers))
            assert server._machine.silence.is_heeded is heeded
        assert pool.stays[0].calls == ["register"]


class Watched:
    """Registrations looked up at two fake registrars, a hundred times a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looked_up: ServerRegistration) -> None:
        for server in looked_up:
            server.update_registrars([REGISTRAR, OTHER])
        monkeypatch.setattr(lookup, "INTERVAL_S", 0.01)
        monkeypatch.setattr(registration, "_SETTLED_AFTER_S", 0.0)
        monkeypatch.setattr(lookup, "RegistrarWatch", partial(RegistrarWatch, make_client=self._make))
        self.clients: dict[RegistrarAddress, FakeRegistrarClient] = {}
        self.watches = RegistrarWatches()
        self.watches.set_registrars([REGISTRAR, OTHER])
        self.watches.set_registrations(looked_up)
        self.task = asyncio.create_task(self.watches.run())

    def _make(self, address: RegistrarAddress, **options: Any) -> Any:
        self.clients[address] = FakeRegistrarClient(address, **options)
        return self.clients[address]

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_a_registrar_that_never_answers_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that is wrong, beside good ones: all goes on, with one registrar fewer than reckoned."""
    with capture_logs() as told:
        watched = Watched(monkeypatch)
        watched.clients[OTHER].is_up = False
        await until_async(lambda: len(told) > 0)
        await asyncio.sleep(3 * lookup.LOOKS_UNHEARD * lookup.INTERVAL_S)
        await watched.end()
    warnings = [line for line in told if line["event"] == "registrar_never_heard"]
    assert [line["registrar"] for line in warnings] == [str(OTHER)]


async def test_every_registrar_is_asked_again_and_again(
    pool: PaperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as server:
        watched = Watched(monkeypatch, server)
        first, second = watched.clients.values()
        await asyncio.sleep(0.05)
        assert not first.asked.is_set()  # nothing to look up while out of the pool
        server.want(True)
        await until_async(lambda: first.asked.is_set() and second.asked.is_set())
        assert watched.watches.listed_by(server) == []
        first.elements = (ELEMENT,)
        await until_async(lambda: watched.watches.listed_by(server) == ["127.0.0.1"])
        assert pool.stays[0].calls == ["register"]
        first.elements = ()
        await until_async(lambda: len(pool.stays[0].registered) > 1)
        assert watched.watches.listed_by(server) == []
        first.elements = (ELEMENT,)
        await until_async(lambda: watched.watches.listed_by(server) == ["127.0.0.1"])
        first.on_link(False)
        first.is_up = False
        assert watched.watches.listed_by(server) == []
        watched.watches.set_registrars([OTHER])
        await until_async(lambda: first.is_closed and not second.is_closed)
        await watched.end()
        assert second.is_closed


async def test_a_registrar_of_another_handlespace_is_not_asked(
    pool: PaperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know the server, which would register again and again."""
    async with running() as server:
        watched = Watched(monkeypatch, server)
        server.update_registrars([REGISTRAR])
        server.want(True)
        await until_async(watched.clients[REGISTRAR].asked.is_set)
        await asyncio.sleep(0.05)
        assert not watched.clients[OTHER].asked.is_set()
        await watched.end()


async def test_looks_are_put_off_by_chance_while_a_registrar_lacks_the_server(
    pool: PaperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the moments of a grid, every renewal could be removed before a name server asks."""
    monkeypatch.setattr(lookup, "MISSING_SPREAD_S", 0.4)
    async with running() as server:
        server.want(True)
        watched = Watched(monkeypatch, server)
        first, second = watched.clients.values()
        first.elements = second.elements = (ELEMENT,)
        await until_async(lambda: len(watched.watches.listed_by(server)) == 2)
        first.elements = ()
        await until_async(lambda: watched.watches.listed_by(server) == [str(OTHER)])
        renewals = len(pool.stays[0].registered)
        await asyncio.sleep(1)
        assert 0 < len(pool.stays[0].registered) - renewals < 50
        await watched.end()


async def test_a_fault_in_the_reading_of_an_answer_ends_the_agent(
    pool: PaperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as server:
        watched = Watched(monkeypatch, server)
        server.want(True)
        monkeypatch.setattr(server, "check_listed", lambda *_: 1 / 0)
        watched.clients[REGISTRAR].elements = ()
        async with asyncio.timeout(5):
            with pytest.raises(ZeroDivisionError):
                await watched.task
