"""The pool element client on paper sockets: what it does with what a socket can do to it."""

import dataclasses
import errno
import time
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest
from rserpool.aio.sctp import AssociationRestarted, SctpMessage
from rserpool.element import (
    RESPONSE_TIMEOUT_S,
    ElementEvent,
    ElementEventKind,
    ElementState,
    PoolElementClient,
)
from rserpool.errors import UnsafeMessageError
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import PoolElement, Protocol, Transport

from rserpool import asap
from tests.rserpool.paper_registrars import ELEMENT, HANDLE, REGISTRARS, PaperRegistrar, least_used
from tests.rserpool.paper_sockets import PaperNetwork
from tests.rserpool.paper_sockets import network as network  # the fixture
from tests.support.waiting import until_async

HOME = REGISTRARS[0]
STRANGER = ("10.6.6.6", 3863)


class TestElement:
    @pytest.fixture
    def registrars(self, network: PaperNetwork) -> list[PaperRegistrar]:
        for i, address in enumerate(REGISTRARS):
            network.registrars[address.endpoint] = PaperRegistrar(0x100 + i)
        return list(network.registrars.values())

    @pytest.fixture
    def events(self) -> list[ElementEvent]:
        return []

    def make(
        self, events: list[ElementEvent], element: PoolElement = ELEMENT, *, pinned: bool = False
    ) -> PoolElementClient:
        return PoolElementClient(
            REGISTRARS, HANDLE, element, local_addresses=["10.0.1.1"], pinned=pinned, on_event=events.append
        )

    @pytest.fixture
    async def element(
        self, registrars: list[PaperRegistrar], events: list[ElementEvent]
    ) -> AsyncIterator[PoolElementClient]:
        element = self.make(events)
        element.start()
        await until_async(lambda: element.is_registered)
        yield element
        await element.close()

    async def test_registers_and_deregisters(
        self, element: PoolElementClient, network: PaperNetwork, events: list[ElementEvent]
    ) -> None:
        assert element.registrar in REGISTRARS
        assert network.sockets[0].options["listens"], "takeovers come as associations of others"
        assert network.sockets[0].options["local_addresses"] == ("10.0.1.1",)
        assert await element.deregister()
        assert element.state is ElementState.IDLE
        assert [event.kind for event in events] == [
            ElementEventKind.REGISTERED,
            ElementEventKind.DEREGISTERED,
        ]
        assert network.open_sockets == []
        assert not any(registrar.pools.get(HANDLE) for registrar in network.registrars.values())

    async def test_deregistering_something_never_started_returns(self, events: list[ElementEvent]) -> None:
        assert await self.make(events).deregister() is False

    async def test_wanted_again_while_it_leaves_it_comes_back_on_another_socket(
        self, element: PoolElementClient, network: PaperNetwork, events: list[ElementEvent]
    ) -> None:
        element.want(False)
        element.want(True)
        await until_async(lambda: len(network.sockets) == 2 and element.is_registered)
        assert len(network.open_sockets) == 1
        assert [event.kind for event in events] == [
            ElementEventKind.REGISTERED,
            ElementEventKind.DEREGISTERED,
            ElementEventKind.REGISTERED,
        ]

    async def test_an_address_that_is_not_there_yet_is_tried_again(
        self, registrars: list[PaperRegistrar], network: PaperNetwork, events: list[ElementEvent]
    ) -> None:
        network.is_broken = True
        element = self.make(events)
        element.want(True)
        assert [(event.kind, event.detail) for event in events] == [
            (ElementEventKind.UNOPENED, "no SCTP here")
        ]
        network.is_broken = False
        await until_async(lambda: element.is_registered)
        await element.close()

    async def test_follows_changes(self, element: PoolElementClient, network: PaperNetwork) -> None:
        element.update_policy(least_used(0.75))
        element.register_again("test")
        registrar = network.registrars[element.registrar.endpoint]  # type: ignore[union-attr]
        await until_async(lambda: registrar.pools[HANDLE][ELEMENT.identifier].policy == least_used(0.75))

    async def test_moves_when_the_registrar_is_lost(
        self, element: PoolElementClient, network: PaperNetwork
    ) -> None:
        first = element.registrar
        assert first
        network.registrars[first.endpoint].dead = True
        network.open_sockets[0].lose(1)
        await until_async(lambda: element.is_registered and element.registrar != first)

    async def test_a_registrar_that_started_anew_is_left_too(
        self, element: PoolElementClient, network: PaperNetwork, events: list[ElementEvent]
    ) -> None:
        first = element.registrar
        assert first
        network.open_sockets[0].deliver(AssociationRestarted(1, first.endpoint))
        await until_async(lambda: element.registrar not in (None, first))
        assert ElementEventKind.REGISTRAR_LOST in [event.kind for event in events]

    async def test_follows_a_takeover_announced_by_its_first_message(
        self, element: PoolElementClient, network: PaperNetwork
    ) -> None:
        """The notification of the association may be missing: the message alone must do."""
        new_home = next(address for address in REGISTRARS if address != element.registrar)
        sock = network.open_sockets[0]
        sock.associations[9] = new_home.endpoint
        keep_alive = asap.encode(asap.EndpointKeepAlive(0x222, HANDLE, ELEMENT.identifier, True))
        sock.deliver(SctpMessage(9, asap.PPID, keep_alive, new_home.endpoint))
        await until_async(lambda: element.registrar == new_home and element.home_registrar == 0x222)
        assert network.registrars[new_home.endpoint].acknowledged

    async def test_knows_a_registrar_by_any_of_its_addresses(
        self, element: PoolElementClient, network: PaperNetwork
    ) -> None:
        new_home = next(address for address in REGISTRARS if address != element.registrar)
        second_address = ("10.9.9.9", 3863)
        network.registrars[second_address] = network.registrars[new_home.endpoint]
        sock = network.open_sockets[0]
        sock.other_addresses[2] = [new_home.endpoint]
        assert sock.associate(second_address) == 2
        keep_alive = asap.encode(asap.EndpointKeepAlive(0x222, HANDLE, ELEMENT.identifier, True))
        sock.deliver(SctpMessage(2, asap.PPID, keep_alive, second_address))
        await until_async(lambda: element.registrar == new_home)

    @pytest.fixture
    async def claimed(self, element: PoolElementClient, network: PaperNetwork) -> RegistrarAddress:
        """Association 2 is a stranger's that lists this registrar's address, and says that it took over."""
        registrar = next(address for address in REGISTRARS if address != element.registrar)
        sock = network.open_sockets[0]
        sock.claimed[2] = [registrar.endpoint]
        assert sock.associate(STRANGER) == 2
        keep_alive = asap.encode(asap.EndpointKeepAlive(0x222, HANDLE, ELEMENT.identifier, True))
        # The packet's source is forged: whoever knows the association can do that.
        sock.deliver(SctpMessage(2, asap.PPID, keep_alive, registrar.endpoint))
        return registrar

    async def test_an_address_that_is_only_listed_makes_nobody_a_registrar(
        self,
        element: PoolElementClient,
        claimed: RegistrarAddress,
        network: PaperNetwork,
        events: list[ElementEvent],
    ) -> None:
        sock = network.open_sockets[0]
        home = element.registrar
        await until_async(lambda: not sock.incoming)
        assert element.registrar == home
        assert sock.aborted == []
        await until_async(lambda: sock.aborted == [2])
        assert element.registrar == home
        assert [event.kind for event in events] == [ElementEventKind.REGISTERED]

    async def test_a_takeover_counts_as_soon_as_the_registrars_address_is_confirmed(
        self, element: PoolElementClient, claimed: RegistrarAddress, network: PaperNetwork
    ) -> None:
        sock = network.open_sockets[0]
        await until_async(lambda: not sock.incoming)
        network.registrars[STRANGER] = network.registrars[claimed.endpoint]
        sock.confirm(2, claimed.endpoint)
        await until_async(lambda: element.registrar == claimed and element.home_registrar == 0x222)
        assert sock.aborted == []

    async def test_a_stranger_that_lists_a_registrars_address_does_not_block_the_way_to_it(
        self, element: PoolElementClient, claimed: RegistrarAddress, network: PaperNetwork
    ) -> None:
        sock = network.open_sockets[0]
        home = element.registrar
        for address in REGISTRARS:
            network.registrars[address.endpoint].dead = address != claimed
        sock.lose(1)
        await until_async(lambda: element.registrar not in (None, home))
        assert element.registrar == claimed
        assert 2 in sock.aborted

    async def test_an_answer_that_came_while_the_program_was_busy_is_not_too_late(
        self, element: PoolElementClient, network: PaperNetwork, events: list[ElementEvent]
    ) -> None:
        home = element.registrar
        sock = network.open_sockets[0]
        for _ in range(3):  # keep-alives come before it
            keep_alive = asap.encode(asap.EndpointKeepAlive(0x100, HANDLE, ELEMENT.identifier, False))
            sock.deliver(SctpMessage(1, asap.PPID, keep_alive, home.endpoint))  # type: ignore[union-attr]
        element.update_policy(least_used(0.5))
        time.sleep(RESPONSE_TIMEOUT_S + 0.1)  # noqa: ASYNC251 - longer than the element is patient
        await until_async(lambda: element.state is not ElementState.RENEWING)
        assert [event.kind for event in events] == [ElementEventKind.REGISTERED]
        assert element.registrar == home

    async def test_a_broken_socket_is_replaced(
        self, element: PoolElementClient, network: PaperNetwork
    ) -> None:
        network.open_sockets[0].deliver(OSError(errno.ESHUTDOWN, "gone"))
        await until_async(lambda: len(network.sockets) == 2 and element.is_registered)

    async def test_port_0_is_the_sockets_own_port(
        self, registrars: list[PaperRegistrar], network: PaperNetwork, events: list[ElementEvent]
    ) -> None:
        transport = Transport(Protocol.SCTP, 0, (ip_address("10.0.1.1"),))
        element = self.make(events, dataclasses.replace(ELEMENT, user_transport=transport))
        element.start()
        await until_async(lambda: element.is_registered)
        assert element.element.user_transport.port == network.sockets[0].port
        await element.close()

    async def test_unsafe_elements_never_reach_the_socket(
        self, network: PaperNetwork, events: list[ElementEvent]
    ) -> None:
        two = (ip_address("10.0.1.1"), ip_address("10.0.1.2"))
        unsafe = dataclasses.replace(ELEMENT, user_transport=Transport(Protocol.TCP, 80, two))
        with pytest.raises(UnsafeMessageError, match="TCP"):
            self.make(events, unsafe).start()
        with pytest.raises(UnsafeMessageError, match="33 bytes"):
            PoolElementClient(REGISTRARS, b"x" * 33, ELEMENT, local_addresses=[]).start()
        assert network.sockets == []

    async def test_a_listener_may_act_on_what_it_hears(
        self, registrars: list[PaperRegistrar], network: PaperNetwork
    ) -> None:
        """An event may make its hearer call back, while the machine is at work."""
        elements: list[PoolElementClient] = []

        def hear(event: ElementEvent) -> None:
            if event.kind is ElementEventKind.REGISTERED:
                elements[0].update_policy(least_used(0.125))

        elements.append(PoolElementClient(REGISTRARS, HANDLE, ELEMENT, local_addresses=[], on_event=hear))
        elements[0].start()
        await until_async(
            lambda: any(
                member.policy == least_used(0.125)
                for registrar in registrars
                for member in registrar.pools.get(HANDLE, {}).values()
            )
        )
        await elements[0].close()
