"""The bytes captured of every message, and what they mean."""

import json
from ipaddress import IPv4Address
from pathlib import Path

from rserpool.errors import ErrorCause
from rserpool.parameters import PoolElement, Protocol, ServerInformation, Transport
from rserpool.policies import (
    LeastUsed,
    LeastUsedDegradation,
    Policy,
    Priority,
    PriorityLeastUsed,
    RandomizedLeastUsed,
    RoundRobin,
    WeightedRandom,
    WeightedRoundRobin,
)

from rserpool import asap, enrp

DATA = Path(__file__).parent / "data" / "asap-enrp-vectors.json"
VECTORS = {
    vector["name"]: bytes.fromhex(vector["bytes"]) for vector in json.loads(DATA.read_text())["vectors"]
}
UNSAFE = "handle_resolution_with_33_byte_handle_CRASHES_rspregistrar"
R1, R2, R3 = 0x11111111, 0x22222222, 0x33333333
NOBODY = 0


def load(number: int) -> float:
    return number / 0xFFFFFFFF


def sctp(port: int, last: int, control: bool = False) -> Transport:
    return Transport(Protocol.SCTP, port, (IPv4Address(f"10.9.0.{last}"),), control)


def p1(number: int, home: int, asap_port: int | None = None) -> PoolElement:
    """Element 0xa00N of pool P1: port 700N, address 10.9.0.(10 + N), load N/16."""
    at = None if asap_port is None else sctp(asap_port, 10 + number)
    policy = LeastUsed(load(number << 28))
    return PoolElement(0xA000 + number, home, 120_000, sctp(7000 + number, 10 + number), policy, at)


def web(home: int, asap: Transport | None = None, units: int = 0x33333333) -> PoolElement:
    tcp = Transport(Protocol.TCP, 8080, (IPv4Address("10.9.0.14"),))
    return PoolElement(0x7357, home, 60_000, tcp, LeastUsed(load(units)), asap)


def registered(handle: bytes, policy: Policy) -> asap.Registration:
    return asap.Registration(handle, PoolElement(0x1000, NOBODY, 60_000, sctp(7000, 14), policy))


def rejected(code: int) -> asap.RegistrationResponse:
    return asap.RegistrationResponse(b"V", 0xBAD, rejected=True, error=(ErrorCause(code),))


def registrar(identifier: int) -> ServerInformation:
    return ServerInformation(identifier, sctp(9901, identifier & 0xF))


EXPECTED: dict[str, asap.AsapMessage | enrp.EnrpMessage] = {
    "asap_registration_librsplib_enhanced": asap.Registration(
        b"EchoPool", PoolElement(0x0A3B4D0F, NOBODY, 90_000, sctp(50424, 11, control=True), LeastUsed(0.0))
    ),
    "asap_registration_librsplib_basic_tcp_leastused": asap.Registration(b"web", web(NOBODY)),
    "asap_registration_native_sctp_leastused": asap.Registration(b"P1", p1(1, NOBODY)),
    "asap_registration_response_ok": asap.RegistrationResponse(b"P1", 0xA001),
    "asap_registration_response_reject_ctrlch": asap.RegistrationResponse(
        b"EchoPool", 0xC0DE, rejected=True, error=(ErrorCause(8),)
    ),
    "asap_handle_resolution_128items": asap.HandleResolution(b"P1", items=128),
    "asap_handle_resolution_plain": asap.HandleResolution(b"big", items=None),
    "asap_handle_resolution_response_3PEs_leastused": asap.HandleResolutionResponse(
        b"P1", LeastUsed(load(1 << 28)), (p1(1, R1), p1(2, R2), p1(3, R3))
    ),
    "asap_registration_policy_WRR": registered(b"polWRR", WeightedRoundRobin(0)),
    "asap_registration_policy_RR": registered(b"polRR", RoundRobin()),
    "asap_registration_policy_PRIO": registered(b"polPRIO", Priority(0)),
    "asap_registration_policy_LUD": registered(b"polLUD", LeastUsedDegradation(0.0, load(1 << 28))),
    "asap_registration_policy_WRAND": registered(b"polWRAND", WeightedRandom(0)),
    "asap_registration_policy_PLU": registered(b"polPLU", PriorityLeastUsed(0.0, load(0x100))),
    "asap_registration_policy_RLU": registered(b"polRLU", RandomizedLeastUsed(0.0)),
    "asap_handle_resolution_response_notfound": asap.HandleResolutionResponse(b"P", error=(ErrorCause(9),)),
    "asap_endpoint_keepalive": asap.EndpointKeepAlive(R1, b"web", 0x7357),
    "asap_endpoint_keepalive_H": asap.EndpointKeepAlive(R3, b"P", 0xA008, home=True),
    "asap_endpoint_keepalive_ack": asap.EndpointKeepAliveAck(b"web", 0x7357),
    "asap_deregistration_librsplib": asap.Deregistration(b"web", 0x7357),
    "asap_deregistration_response": asap.DeregistrationResponse(b"web", 0x7357),
    "asap_endpoint_unreachable": asap.EndpointUnreachable(b"P1", 0xA003),
    "asap_server_announce": asap.ServerAnnounce(R2),
    "enrp_presence_multicast": enrp.Presence(R2, NOBODY, 0xFFFF, registrar(R2)),
    "enrp_presence_reply_required": enrp.Presence(R1, R2, 0xFFFF, registrar(R1), reply_required=True),
    "enrp_list_request": enrp.ListRequest(R2, R1),
    "enrp_list_response": enrp.ListResponse(R2, R1, (registrar(R1), registrar(R3))),
    "enrp_handle_table_request_all": enrp.HandleTableRequest(R1, R2),
    "enrp_handle_table_request_own_children": enrp.HandleTableRequest(R1, R3, own_children_only=True),
    "enrp_handle_table_response_2PEs": enrp.HandleTableResponse(
        R3, R1, (enrp.PoolEntry(b"P1", (p1(1, R2, asap_port=56283), p1(3, R3, asap_port=50328))),)
    ),
    "enrp_handle_update_add": enrp.HandleUpdate(
        R1, R2, enrp.UpdateAction.ADD, b"web", web(R1, sctp(40989, 14))
    ),
    "enrp_handle_update_del": enrp.HandleUpdate(
        R1, R3, enrp.UpdateAction.DELETE, b"web", web(R1, sctp(40989, 14), units=0x34333333)
    ),
    "enrp_init_takeover": enrp.InitTakeover(R3, R2, R1),
    "enrp_init_takeover_ack": enrp.InitTakeoverAck(R2, R3, R1),
    "enrp_takeover_server": enrp.TakeoverServer(R3, R2, R1),
    "asap_error_unknown_policy": asap.AsapError((ErrorCause(0x100B),)),
    "asap_error_unknown_tlv_0x4777": asap.AsapError((ErrorCause(3, bytes.fromhex("477700087a7a7a7a")),)),
    UNSAFE: asap.HandleResolution(b"H" * 33, items=128),
    "asap_reg_reject_policy_mismatch": rejected(5),
    "asap_reg_reject_wrong_transport": rejected(0x100A),
    "asap_reg_reject_address_not_in_association": rejected(0xF008),
}
