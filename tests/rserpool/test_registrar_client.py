"""The registrar client on paper sockets, and what both asyncio clients share."""

import asyncio
import dataclasses
import errno
import time
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest
from rserpool.aio import driver
from rserpool.aio.driver import ASAP, DeadlineTimer, MessageEndpoint
from rserpool.aio.sctp import SctpMessage, SctpUnavailable
from rserpool.errors import RegistrarUnreachable, ResolutionTimeout, UnsafeMessageError
from rserpool.parameters import Protocol, Transport
from rserpool.user import RegistrarClient

from rserpool import asap, enrp
from tests.rserpool.paper_registrars import ELEMENT, HANDLE, REGISTRARS, PaperRegistrar
from tests.rserpool.paper_sockets import PaperNetwork
from tests.rserpool.paper_sockets import network as network  # the fixture
from tests.support.waiting import until_async

HOME = REGISTRARS[0]


@pytest.fixture
def registrar(network: PaperNetwork) -> PaperRegistrar:
    network.registrars[HOME.endpoint] = PaperRegistrar(0x100)
    return network.registrars[HOME.endpoint]


@pytest.fixture
async def client(registrar: PaperRegistrar) -> AsyncIterator[RegistrarClient]:
    client = RegistrarClient(HOME, timeout_ms=500)
    client.start()
    await until_async(lambda: client.is_up)
    yield client
    await client.close()


class TestClient:
    async def test_a_resolution_tells_when_it_was_asked_and_answered(
        self, client: RegistrarClient, registrar: PaperRegistrar
    ) -> None:
        registrar.pools[HANDLE] = {ELEMENT.identifier: ELEMENT}
        before_s = time.monotonic()
        resolution = await client.resolve(HANDLE)
        assert resolution.found
        assert before_s <= resolution.asked_at_s <= resolution.answered_at_s <= time.monotonic()
        assert client.round_trip_ms is not None

    async def test_two_hundred_questions_at_once_have_their_own_answers(
        self, client: RegistrarClient, registrar: PaperRegistrar
    ) -> None:
        handles = [b"pool-%d" % i for i in range(200)]
        registrar.pools = {handle: {i: ELEMENT} for i, handle in enumerate(handles) if i % 2}
        answers = await asyncio.gather(*(client.resolve(handle) for handle in handles))
        assert [answer.handle for answer in answers] == handles
        assert [answer.found for answer in answers] == [bool(i % 2) for i in range(200)]

    async def test_answers_that_came_while_the_program_was_busy_are_not_too_late(
        self, client: RegistrarClient, registrar: PaperRegistrar
    ) -> None:
        registrar.pools[HANDLE] = {ELEMENT.identifier: ELEMENT}
        questions = [asyncio.create_task(client.resolve(HANDLE)) for _ in range(200)]
        await asyncio.sleep(0)
        time.sleep(0.6)  # noqa: ASYNC251 - longer than the client is patient
        assert all(answer.found for answer in await asyncio.gather(*questions))

    async def test_times_out_naming_the_registrar(
        self, client: RegistrarClient, registrar: PaperRegistrar
    ) -> None:
        registrar.frozen = True
        with pytest.raises(ResolutionTimeout, match=r"10\.0\.0\.1.*500 ms"):
            await client.resolve(HANDLE)

    async def test_a_cancelled_question_disturbs_no_later_question(
        self, client: RegistrarClient, registrar: PaperRegistrar, network: PaperNetwork
    ) -> None:
        registrar.frozen = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.resolve(HANDLE)
        asked_at_s = time.monotonic()
        question = asyncio.create_task(client.resolve(HANDLE))
        await asyncio.sleep(0)
        for reply in registrar.thaw():
            data = asap.encode(reply)
            network.open_sockets[0].deliver(SctpMessage(1, asap.PPID, data, HOME.endpoint))
        assert (await question).asked_at_s >= asked_at_s

    @pytest.mark.parametrize("handle", [b"", b"x" * 33])
    async def test_an_unsafe_handle_never_reaches_the_socket(
        self, client: RegistrarClient, network: PaperNetwork, handle: bytes
    ) -> None:
        with pytest.raises(UnsafeMessageError):
            await client.resolve(handle)
        with pytest.raises(UnsafeMessageError):
            client.report_unreachable(handle, 1)
        assert network.sockets[0].sent == []

    async def test_connects_again_and_tells(self, network: PaperNetwork, registrar: PaperRegistrar) -> None:
        links: list[bool] = []
        client = RegistrarClient(HOME, on_link=links.append)
        client.start()
        await until_async(lambda: client.is_up)
        registrar.dead = True
        network.open_sockets[0].lose(1)
        await until_async(lambda: not client.is_up)
        with pytest.raises(RegistrarUnreachable, match=r"10\.0\.0\.1"):
            await client.resolve(HANDLE)
        registrar.dead = False
        await until_async(lambda: client.is_up)
        assert links == [True, False, True]
        assert not (await client.resolve(HANDLE)).found
        assert len(network.open_sockets) == 1
        await client.close()
        assert links[3:] == [False]
        assert network.open_sockets == []

    async def test_an_unanswered_question_fails_when_the_association_ends(
        self, client: RegistrarClient, registrar: PaperRegistrar, network: PaperNetwork
    ) -> None:
        registrar.frozen = True
        question = asyncio.create_task(client.resolve(HANDLE))
        await asyncio.sleep(0)
        network.open_sockets[0].lose(1)
        with pytest.raises(RegistrarUnreachable):
            await question

    async def test_garbage_is_ignored(self, client: RegistrarClient, network: PaperNetwork) -> None:
        sock = network.open_sockets[0]
        for ppid, data in (
            (asap.PPID, b""),
            (asap.PPID, b"\x06\x00\xff\xff"),
            (99, b"?"),
            (asap.PPID, b"\0" * 70),
        ):
            sock.deliver(SctpMessage(1, ppid, data, HOME.endpoint))
        sock.deliver(SctpMessage(77, asap.PPID, asap.encode(asap.ServerAnnounce(1)), ("192.0.2.1", 1)))
        assert not (await client.resolve(HANDLE)).found

    async def test_messages_of_another_association_or_protocol_are_no_answer(
        self, client: RegistrarClient, registrar: PaperRegistrar, network: PaperNetwork
    ) -> None:
        registrar.frozen = True
        question = asyncio.create_task(client.resolve(HANDLE))
        await asyncio.sleep(0)
        found = asap.encode(asap.HandleResolutionResponse(HANDLE, ELEMENT.policy, (ELEMENT,)))
        for association, ppid in ((77, asap.PPID), (1, enrp.PPID)):
            network.open_sockets[0].deliver(SctpMessage(association, ppid, found, HOME.endpoint))
        with pytest.raises(ResolutionTimeout):
            await question

    async def test_a_broken_socket_is_replaced(self, client: RegistrarClient, network: PaperNetwork) -> None:
        network.open_sockets[0].deliver(OSError(errno.ESHUTDOWN, "gone"))
        await until_async(lambda: not client.is_up)
        await until_async(lambda: client.is_up)
        assert len(network.open_sockets) == 1

    async def test_without_sctp_start_says_so_and_later_it_waits(
        self, client: RegistrarClient, network: PaperNetwork
    ) -> None:
        network.is_broken = True
        with pytest.raises(SctpUnavailable):
            RegistrarClient(HOME).start()
        network.open_sockets[0].lose(1)
        await until_async(lambda: not client.is_up)
        await asyncio.sleep(0.15)
        network.is_broken = False
        await until_async(lambda: client.is_up)

    async def test_an_unreachable_network_is_tried_again(self, network: PaperNetwork) -> None:
        client = RegistrarClient(HOME)
        client.start()
        await asyncio.sleep(0.15)
        assert client.problem
        assert "unreachable" in client.problem
        network.registrars[HOME.endpoint] = PaperRegistrar(0x100)
        await until_async(lambda: client.is_up)
        await client.close()

    async def test_messages_wait_while_the_buffer_is_full(
        self, client: RegistrarClient, network: PaperNetwork, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(driver, "MAX_QUEUED", 3)
        sock = network.open_sockets[0]
        sock.is_full = True
        questions = [asyncio.create_task(client.resolve(b"pool-%d" % i)) for i in range(5)]
        await asyncio.sleep(0.01)
        assert sock.sent == []
        sock.is_full = False
        answers = await asyncio.gather(*questions, return_exceptions=True)
        assert [asap.decode(data).handle for data in sock.sent] == [b"pool-0", b"pool-1", b"pool-2"]  # type: ignore[union-attr]
        assert [isinstance(answer, ResolutionTimeout) for answer in answers] == [
            False,
            False,
            False,
            True,
            True,
        ]


class TestEndpoint:
    @pytest.mark.parametrize(
        "message",
        [
            asap.HandleResolution(b"x" * 33),
            asap.EndpointKeepAliveAck(b"", 1),
            asap.Registration(
                HANDLE,
                dataclasses.replace(
                    ELEMENT, user_transport=Transport(Protocol.UDP, 1, (ip_address("::1"), ip_address("::2")))
                ),
            ),
        ],
        ids=lambda message: type(message).__name__,
    )
    async def test_unsafe_messages_stop_before_the_socket(
        self, network: PaperNetwork, message: asap.AsapMessage
    ) -> None:
        sock = network.socket()
        endpoint = MessageEndpoint(
            ASAP,
            sock,  # type: ignore[arg-type]
            on_message=lambda *_: None,
            on_notification=lambda _: None,
            on_dead=lambda _: None,
        )
        with pytest.raises(UnsafeMessageError):
            endpoint.send(1, message)
        assert sock.sent == []
        endpoint.close()


class TestDeadlineTimer:
    async def test_calls_at_the_earliest_deadline_it_was_given(self) -> None:
        called_at_s: list[float] = []
        timer = DeadlineTimer(lambda: called_at_s.append(time.monotonic()))
        start_s = time.monotonic()
        timer.set(start_s + 30)
        timer.set(start_s + 0.02)
        await until_async(lambda: len(called_at_s) == 1)
        timer.set(time.monotonic() + 0.01)
        timer.set(None)
        await asyncio.sleep(0.05)
        assert len(called_at_s) == 1

    async def test_a_deadline_in_the_past_is_now(self) -> None:
        called = asyncio.Event()
        DeadlineTimer(called.set).set(float("-inf"))
        async with asyncio.timeout(30):
            await called.wait()
