"""Nothing that would abort rspregistrar passes check_safe."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from rserpool.errors import UnsafeMessageError
from rserpool.parameters import PoolElement, Protocol, ServerInformation, Transport, UnknownParameter
from rserpool.policies import RoundRobin
from rserpool.rspregistrar import check_safe

from rserpool import asap, enrp

A, B = IPv4Address("192.0.2.1"), IPv6Address("2001:db8::2")
SCTP = Transport(Protocol.SCTP, 7000, (A, B))


def element(transport: Transport, asap_transport: Transport | None = None) -> PoolElement:
    return PoolElement(1, 2, 3000, transport, RoundRobin(), asap_transport)


def with_element(
    pool_element: PoolElement, handle: bytes = b"P"
) -> list[asap.AsapMessage | enrp.EnrpMessage]:
    """Every message that carries pool elements."""
    return [
        asap.Registration(handle, pool_element),
        asap.HandleResolutionResponse(handle, RoundRobin(), (element(SCTP), pool_element)),
        asap.BusinessCard(handle, RoundRobin(), (element(SCTP), pool_element)),
        enrp.HandleUpdate(1, 2, enrp.UpdateAction.ADD, handle, pool_element),
        enrp.HandleTableResponse(
            1, 2, (enrp.PoolEntry(b"Q", ()), enrp.PoolEntry(handle, (element(SCTP), pool_element)))
        ),
    ]


def with_handle(handle: bytes) -> list[asap.AsapMessage | enrp.EnrpMessage]:
    """Every message that carries a pool handle."""
    return [
        *with_element(element(SCTP), handle),
        asap.Deregistration(handle, 1),
        asap.RegistrationResponse(handle, 1),
        asap.DeregistrationResponse(handle, 1),
        asap.HandleResolution(handle),
        asap.EndpointKeepAlive(1, handle),
        asap.EndpointKeepAliveAck(handle, 1),
        asap.EndpointUnreachable(handle, 1),
    ]


@pytest.mark.parametrize("length", [1, 32])
def test_handles_of_1_to_32_bytes_pass(length: int) -> None:
    for message in with_handle(b"x" * length):
        check_safe(message)


@pytest.mark.parametrize("length", [0, 33, 1000])
def test_other_handles_are_refused_in_every_message(length: int) -> None:
    for message in with_handle(b"x" * length):
        with pytest.raises(UnsafeMessageError, match=f"{length} bytes; 1 to 32"):
            check_safe(message)


def test_every_message_with_a_handle_is_in_these_tests() -> None:
    tested = {type(message) for message in with_handle(b"P")}
    every = [*asap.MESSAGES.values(), *enrp.MESSAGES.values()]
    assert {
        kind for kind in every if "handle" in kind.__match_args__ or "pools" in kind.__match_args__
    } == tested


@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP])
@pytest.mark.parametrize("addresses", [(), (A, B), (A, A)], ids=["none", "two", "the same twice"])
def test_tcp_and_udp_need_exactly_one_address(
    protocol: Protocol, addresses: tuple[IPv4Address | IPv6Address, ...]
) -> None:
    transport = Transport(protocol, 5060, addresses)
    for message in [*with_element(element(transport)), *with_element(element(SCTP, transport))]:
        with pytest.raises(
            UnsafeMessageError, match=f"{protocol.name} transport with {len(addresses)} addresses"
        ):
            check_safe(message)


@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP])
def test_tcp_and_udp_with_one_address_pass(protocol: Protocol) -> None:
    for message in with_element(element(Transport(protocol, 5060, (B,)))):
        check_safe(message)


UNKNOWN = (UnknownParameter(0x8123, b"x"),)


def test_unknown_parameters_are_not_passed_on_wherever_they_are() -> None:
    """rspregistrar aborts on ServerAnnounce, Presence and HandleUpdate with one, and on others."""
    inside = replace(SCTP, unknown=UNKNOWN)
    elements = [replace(element(SCTP), unknown=UNKNOWN), element(inside), element(SCTP, inside)]
    servers = [ServerInformation(1, SCTP, UNKNOWN), ServerInformation(1, inside)]
    messages: list[asap.AsapMessage | enrp.EnrpMessage] = [
        *(replace(message, unknown=UNKNOWN) for message in with_handle(b"P")),
        *(message for pool_element in elements for message in with_element(pool_element)),
        *(enrp.Presence(1, 2, 0, server) for server in servers),
        *(enrp.ListResponse(1, 2, (server,)) for server in servers),
        asap.ServerAnnounce(1, (inside,)),
        asap.ServerAnnounce(1, unknown=UNKNOWN),
    ]
    for message in messages:
        with pytest.raises(UnsafeMessageError, match="0x8123"):
            check_safe(message)


def test_transports_of_registrars_are_looked_at_too() -> None:
    transport = Transport(Protocol.TCP, 9901, (A, B))
    server = ServerInformation(1, transport)
    for message in (
        asap.ServerAnnounce(1, (SCTP, transport)),
        enrp.Presence(1, 2, 0, server),
        enrp.ListResponse(1, 2, (ServerInformation(3, SCTP), server)),
    ):
        with pytest.raises(UnsafeMessageError, match="TCP transport"):
            check_safe(message)


@pytest.mark.parametrize(
    "message",
    [
        enrp.Presence(0, 2, 0, ServerInformation(1, SCTP)),
        enrp.Presence(1, 2, 0, ServerInformation(0, SCTP)),
        enrp.ListRequest(0, 2),
        enrp.ListResponse(1, 2, (ServerInformation(0, SCTP),)),
        enrp.TakeoverServer(1, 2, 0),
    ],
    ids=lambda message: type(message).__name__,
)
def test_registrar_0_is_refused_in_enrp(message: enrp.EnrpMessage) -> None:
    with pytest.raises(UnsafeMessageError, match="names the registrar 0"):
        check_safe(message)
