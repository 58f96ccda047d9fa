"""Two hosts with the same PE identifier, and registrars that change, without SCTP."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from ipaddress import ip_address

import pytest
from daemon_kit.logs import get_logger
from ppe_agent import registration
from ppe_agent.registration import ServerRegistration, Upkeep, is_same_server
from rserpool.machine.base import Connect
from structlog.testing import capture_logs
from structlog.typing import FilteringBoundLogger

from rserpool import (
    CauseCode,
    ElementEvent,
    ElementEventKind,
    ElementState,
    ErrorCause,
    PoolElement,
    PoolElementMachine,
    PoolKey,
    Protocol,
    RegistrarAddress,
    RegistrationResponse,
    Resolution,
    Transport,
)
from tests.ppe_agent.fakes import ELEMENT, OTHER, REGISTRAR, PaperPool, running, settle
from tests.ppe_agent.fakes import pool as pool  # the fixture
from tests.rserpool.paper_registrars import least_used
from tests.support.waiting import until_async

MINE = ELEMENT.user_transport
THEIRS = Transport(Protocol.UDP, 5060, (ip_address("127.0.0.9"),))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a registrar's answer count at once."""
    monkeypatch.setattr(registration, "_COLLISION_AFTER_S", -1.0)


def resolution(*elements: PoolElement) -> Resolution:
    now = time.monotonic()
    return Resolution(b"pool", bool(elements), None, elements, now, now)


@contextlib.asynccontextmanager
async def joined() -> AsyncIterator[ServerRegistration]:
    fresh = itertools.count(101)
    async with running(new_identifier=lambda: next(fresh)) as server:
        server.want(True)
        await settle()
        yield server


async def test_an_identifier_that_another_host_has_is_replaced(pool: PaperPool) -> None:
    async with joined() as server:
        assert server.check_listed(REGISTRAR, resolution(replace(ELEMENT, user_transport=THEIRS))) is False
        await settle()
        assert pool.stays[0].calls == ["register", "close"]  # to deregister would take the other host out
        assert (pool.stays[1].element.identifier, server.upkeep.counts.collisions) == (101, 1)
        assert server.is_registered
        server.want(False)
        await settle()
        assert pool.stays[1].calls == ["register", "deregister", "close"]


async def test_two_sidecars_of_one_remote_server_keep_its_identifier_and_say_so(pool: PaperPool) -> None:
    async with running() as server:  # no fresh identifier: that of a remote server is its address
        server.want(True)
        await settle()
        assert server.check_listed(REGISTRAR, resolution(replace(ELEMENT, user_transport=THEIRS))) is False
        assert server.upkeep.problem == (
            "the sidecar at 127.0.0.9 port 5060 registers this server too: give each a handle of its own"
        )
        await settle()
        assert (server.element.identifier, server.is_registered) == (ELEMENT.identifier, True)
        assert len(pool.stays) == 2


async def test_our_own_entry_is_no_collision(pool: PaperPool) -> None:
    async with joined() as server:
        assert server.check_listed(REGISTRAR, resolution(ELEMENT))
        await settle()
        assert server.upkeep.counts.collisions == 0


async def test_a_registrar_that_is_not_in_charge_may_show_where_we_were_before(pool: PaperPool) -> None:
    async with joined() as server:
        assert server.check_listed(OTHER, resolution(replace(ELEMENT, user_transport=THEIRS)))
        await settle()
        assert server.upkeep.counts.collisions == 0


async def test_a_registrar_that_says_so_is_believed_and_another_cause_is_not_taken_for_it(
    pool: PaperPool,
) -> None:
    async with joined() as server:
        for code, identifier in (
            (CauseCode.INCONSISTENT_POLICY, ELEMENT.identifier),
            (CauseCode.NON_UNIQUE_PE_IDENTIFIER, 101),
        ):
            pool.stays[0].rejects = (ErrorCause(code),)
            server.register_again("")
            await settle()
            pool.stays[0].rejects = ()
            server.retry()
            await until_async(lambda: server.is_registered)
            assert server.element.identifier == identifier
        assert server.upkeep.counts.rejected == 2


def registered(
    new_identifier: Callable[[], int], log: FilteringBoundLogger | None = None
) -> tuple[PoolElementMachine, Upkeep]:
    """Return a machine whose home has confirmed it, at 1000 s, and its upkeep."""
    machine = PoolElementMachine([REGISTRAR], b"pool", ELEMENT, new_identifier=new_identifier)
    upkeep = Upkeep(machine, log or get_logger("test"))
    machine.start(1000.0)
    machine.associated(1, REGISTRAR.endpoint, 1000.0)
    machine.received(1, RegistrationResponse(b"pool", ELEMENT.identifier), 1000.0)
    assert machine.is_registered
    machine.take_actions()
    upkeep.happened(ElementEvent(ElementEventKind.REGISTERED, 1000.0, REGISTRAR, ""))
    return machine, upkeep


def lacking(at_s: float) -> Resolution:
    return Resolution(b"pool", False, None, (), at_s, at_s)


def test_an_identifier_that_its_home_loses_again_and_again_is_replaced() -> None:
    machine, upkeep = registered(lambda: 101)
    with capture_logs() as lines:
        for second in (1001.0, 1002.0):
            upkeep.check_listed(REGISTRAR, lacking(second), second)
            assert machine.element.identifier == ELEMENT.identifier
        upkeep.check_listed(REGISTRAR, lacking(1003.0), 1003.0)
    assert machine.element.identifier == 101
    assert "identifier_contested" in [line["event"] for line in lines]


@pytest.mark.parametrize(("registrar", "apart_s"), [(OTHER, 1.0), (REGISTRAR, 3.0)])
def test_an_identifier_that_is_missed_elsewhere_or_now_and_then_stays(
    registrar: RegistrarAddress, apart_s: float
) -> None:
    machine, upkeep = registered(lambda: 101)
    for number in range(1, 9):
        upkeep.check_listed(registrar, lacking(1000 + number * apart_s), 1000 + number * apart_s)
    assert machine.element.identifier == ELEMENT.identifier


async def test_the_host_that_takes_an_identifier_is_named(pool: PaperPool) -> None:
    async with joined() as server:
        server.check_listed(REGISTRAR, resolution(replace(ELEMENT, user_transport=THEIRS)))
        assert server.upkeep.taken_by == "127.0.0.9 port 5060"


def listing(element: PoolElement, at_s: float) -> Resolution:
    return Resolution(b"pool", True, None, (element,), at_s, at_s)


def test_identifier_that_another_host_took_meanwhile_is_replaced_when_registrars_are_silent() -> None:
    """A gate before the registrars drops the registration: the identifier is another host's by now."""
    machine = PoolElementMachine([REGISTRAR, OTHER], b"pool", ELEMENT, new_identifier=lambda: 101)
    upkeep = Upkeep(machine, get_logger("test"))
    taken = replace(ELEMENT, user_transport=THEIRS)
    machine.start(1000.0)
    [connect] = [action for action in machine.take_actions() if isinstance(action, Connect)]
    machine.associated(1, connect.peer, 1000.0)
    upkeep.check_listed(OTHER, listing(taken, 1000.2), 1000.2)
    assert machine.element.identifier == ELEMENT.identifier  # an answer may still come
    machine.take_actions()
    machine.advance(1001.0)
    for action in machine.take_actions():
        if isinstance(action, ElementEvent):
            upkeep.happened(action)
    for registered in (ELEMENT, replace(taken, identifier=9)):
        upkeep.check_listed(OTHER, listing(registered, 1001.1), 1001.1)
    upkeep.check_listed(OTHER, listing(taken, 1000.9), 1001.1)  # asked before
    assert machine.element.identifier == ELEMENT.identifier
    with capture_logs() as lines:
        assert upkeep.check_listed(OTHER, listing(taken, 1001.2), 1001.2) is False
    assert machine.element.identifier == 101
    assert upkeep.taken_by == "127.0.0.9 port 5060"
    [collision] = [line for line in lines if line["event"] == "identifier_collision"]
    assert collision["also_at"] == "127.0.0.9 port 5060"


def test_a_second_sidecar_of_the_server_is_told_of_after_a_while() -> None:
    _, upkeep = registered(lambda: 101)
    twin = replace(ELEMENT, identifier=9)
    for second in (1001.0, 1003.0):
        upkeep.check_listed(REGISTRAR, Resolution(b"p", True, None, (ELEMENT, twin), second, second), second)
        assert upkeep.twin is None
    with capture_logs() as lines:
        both = Resolution(b"p", True, None, (ELEMENT, twin), 1004.5, 1004.5)
        upkeep.check_listed(REGISTRAR, both, 1004.5)
    assert upkeep.twin == 9
    assert "registered_twice" in [line["event"] for line in lines]
    upkeep.check_listed(REGISTRAR, Resolution(b"p", True, None, (ELEMENT,), 1005.0, 1005.0), 1005.0)
    assert upkeep.twin is None


KEY = PoolKey(bytes(32)).server_key(Protocol.UDP, MINE.addresses[0], 5060)


@contextlib.asynccontextmanager
async def keyed() -> AsyncIterator[ServerRegistration]:
    kept = [ELEMENT.identifier]

    def next_identifier() -> int:
        kept.append(KEY.next_identifier(b"pool", kept[-1]))
        return kept[-1]

    async with running(KEY, next_identifier) as server:
        server.want(True)
        await settle()
        yield server


async def test_each_stay_in_a_keyed_pool_has_another_identifier_and_leaving_is_said(pool: PaperPool) -> None:
    async with keyed() as server:
        first = server.element.identifier
        assert KEY.is_mine(b"pool", first)
        server.want(False)
        async with asyncio.timeout(5):
            await server.until_out()
        assert server.state is ElementState.IDLE
        stay, farewell = pool.stays
        assert stay.calls == ["register", "deregister", "close"]
        assert (farewell.element.identifier, farewell.calls) == (KEY.leaving(b"pool", first), ["register"])
        assert farewell.element.life_ms == 2000
        assert farewell.element.policy == least_used(0.999)
        server.want(True)
        await settle()
        assert KEY.is_mine(b"pool", server.element.identifier)
        assert server.element.identifier != first
    assert farewell.calls == ["register", "close"]


async def test_a_keyed_server_that_comes_back_while_it_leaves_is_reported_by_the_identifier_that_left(
    pool: PaperPool,
) -> None:
    async with keyed() as server:
        reported: list[int] = []
        server.on_unconfirmed = lambda: reported.append(server.element.identifier)
        first = server.element.identifier
        pool.stays[0].is_refused = True
        server.want(False)
        server.want(True)
        await until_async(lambda: server.is_registered)
        assert reported == [first]
        assert server.element.identifier == KEY.next_identifier(b"pool", first)


async def test_a_collision_in_a_keyed_pool_leads_to_the_next_identifier(pool: PaperPool) -> None:
    async with keyed() as server:
        first = server.element.identifier
        mine = replace(ELEMENT, identifier=first)
        server.check_listed(REGISTRAR, resolution(replace(mine, user_transport=THEIRS)))
        await settle()
        assert server.element.identifier == KEY.next_identifier(b"pool", first)
        assert server.is_registered
        assert len(pool.stays) == 2


async def test_own_identifiers_in_a_keyed_pool_are_no_second_sidecar(pool: PaperPool) -> None:
    async with keyed() as server:
        first = server.element.identifier
        own = [KEY.next_identifier(b"pool", first), KEY.leaving(b"pool", first)]
        mine, *others = [replace(ELEMENT, identifier=each) for each in (first, *own)]
        for second in (1.0, 10.0):
            now = time.monotonic() + second
            server.upkeep.check_listed(
                REGISTRAR, Resolution(b"p", True, None, (mine, *others), now, now), now
            )
        assert server.upkeep.twin is None


async def test_other_registrars_are_used_at_once_and_kept_for_the_next_stay(pool: PaperPool) -> None:
    async with joined() as server:
        server.update_registrars([OTHER])
        await until_async(lambda: server.registrar == OTHER)
        server.want(False)
        await settle()
        server.want(True)
        await settle()
        assert server.registrar == OTHER


@pytest.mark.parametrize(
    ("listed", "same"),
    [
        (MINE, True),
        (replace(MINE, port=5061), False),
        (replace(MINE, protocol=Protocol.TCP), False),
        (replace(MINE, addresses=(ip_address("127.0.0.1"), ip_address("10.0.0.1"))), True),
        (THEIRS, False),
    ],
)
def test_which_transport_is_ours(listed: Transport, same: bool) -> None:
    assert is_same_server(listed, MINE) is same
