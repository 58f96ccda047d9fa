"""Wireshark's ASAP and ENRP dissectors, written by others from the RFCs, understand whatever we encode."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import astuple, fields
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import ModuleType

import pytest
from rserpool.policies import Priority

from rserpool import (
    CauseCode,
    ErrorCause,
    KnownPolicy,
    Policy,
    PoolElement,
    Protocol,
    ServerInformation,
    Transport,
    asap,
    enrp,
    policies,
)
from tests.rserpool.captures import data_chunk, pcap, sctp_packet

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

Message = asap.AsapMessage | enrp.EnrpMessage

V4, V6 = IPv4Address("192.0.2.7"), IPv6Address("2001:db8::7")
SCTP = Transport(Protocol.SCTP, 7000, (V4, V6), control_channel=True)
TRANSPORTS = [
    SCTP,
    Transport(Protocol.SCTP, 7000, (V6,)),
    Transport(Protocol.TCP, 5060, (V4,), control_channel=True),
    Transport(Protocol.TCP, 5060, (V6,)),
    Transport(Protocol.UDP, 5060, (V4,)),
    Transport(Protocol.UDP_LITE, 5060, (V4,)),
    Transport(Protocol.DCCP, 5060, (V4,), service_code=0x12345678),
]
CAUSES = (ErrorCause(CauseCode.UNKNOWN_POOL_HANDLE), ErrorCause(CauseCode.SECURITY, b"no"))


POLICIES: list[KnownPolicy] = [
    policies.RoundRobin(),
    policies.WeightedRoundRobin(3),
    policies.Random(),
    policies.WeightedRandom(4),
    policies.Priority(5),
    policies.LeastUsed(0.25),
    policies.LeastUsedDegradation(0.25, 0.5),
    policies.PriorityLeastUsed(0.25, 0.5),
    policies.RandomizedLeastUsed(0.25),
    policies.PriorityLeastUsedDegradation(0.25, 0.5),
    policies.WeightedRandomDPF(3, 0.5, 40),
    policies.LeastUsedDPF(0.25, 0.5, 40),
]
# tshark 4.0 has no name for these and shows their bytes.
NAMELESS_POLICIES: list[KnownPolicy] = [
    policies.RandomizedPriorityLeastUsed(0.25, 0.5),
    policies.RandomizedLeastUsedDegradation(0.25, 0.5),
    policies.RandomizedPriorityLeastUsedDegradation(0.25, 0.5),
    policies.LeastUsedDegradationDPF(0.25, 0.5, 0.75, 40),
]


def element(
    transport: Transport = SCTP, policy: Policy = POLICIES[5], at: Transport | None = None
) -> PoolElement:
    return PoolElement(0xA001, 0x1234, 90_000, transport, policy, at)


def every_message() -> Iterator[Message]:
    for transport in TRANSPORTS:
        yield asap.Registration(b"pool", element(transport))
    for policy in POLICIES + NAMELESS_POLICIES:
        yield asap.Registration(b"pool", element(policy=policy))
    yield asap.Deregistration(b"pool", 1)
    yield asap.RegistrationResponse(b"pool", 1)
    yield asap.RegistrationResponse(b"pool", 1, rejected=True, error=CAUSES)
    yield asap.DeregistrationResponse(b"pool", 1)
    yield asap.DeregistrationResponse(b"pool", 1, error=CAUSES)
    yield asap.HandleResolution(b"pools", items=None)
    yield asap.HandleResolution(b"x" * 32, items=128, subscribe=True)
    yield asap.HandleResolutionResponse(
        b"pool", Priority(9), (element(), element()), accepts_subscription=True
    )
    yield asap.HandleResolutionResponse(b"pool", error=CAUSES)
    yield asap.EndpointKeepAlive(7, b"pool")
    yield asap.EndpointKeepAlive(7, b"pool", 1, home=True)
    yield asap.EndpointKeepAliveAck(b"pool", 1)
    yield asap.EndpointUnreachable(b"pool", 1)
    yield asap.ServerAnnounce(7)
    yield asap.ServerAnnounce(7, (SCTP,))
    yield asap.Cookie(b"state")
    yield asap.CookieEcho(b"state")
    yield asap.BusinessCard(b"pool", Priority(9), (element(),))
    yield asap.AsapError(CAUSES)
    server = ServerInformation(7, Transport(Protocol.SCTP, 9901, (V4, V6)))
    at = Transport(Protocol.SCTP, 40000, (V4,))
    for reply_required in (False, True):
        yield enrp.Presence(7, 8, 0xFFFF, server, reply_required)
        yield enrp.HandleTableRequest(7, 8, own_children_only=reply_required)
    entries = (
        enrp.PoolEntry(b"one", (element(at=at), element(at=at))),
        enrp.PoolEntry(b"two", (element(),)),
    )
    yield enrp.HandleTableResponse(7, 8, entries, more_to_send=True)
    yield enrp.HandleTableResponse(7, 8, rejected=True)
    for action in enrp.UpdateAction:
        yield enrp.HandleUpdate(7, 8, action, b"pool", element(at=at), takeover_suggested=True)
    yield enrp.ListRequest(7, 8)
    yield enrp.ListResponse(7, 8, (server, server))
    yield enrp.ListResponse(7, 8, rejected=True)
    yield enrp.InitTakeover(7, 8, 9)
    yield enrp.InitTakeoverAck(7, 8, 9)
    yield enrp.TakeoverServer(7, 8, 9)
    yield enrp.EnrpError(7, 8, CAUSES)


MESSAGES = list(every_message())


def is_asap(message: Message) -> bool:
    return isinstance(message, tuple(asap.MESSAGES.values()))


def packet(tsn: int, message: Message) -> bytes:
    codec: ModuleType = asap if is_asap(message) else enrp
    return sctp_packet(data_chunk(tsn, codec.PPID, codec.encode(message)))


def tshark(path: Path, *arguments: str) -> str:
    command = ["tshark", "-n", "-r", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=150).stdout


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One packet for each message."""
    path = tmp_path_factory.mktemp("tshark") / "ours.pcap"
    path.write_bytes(pcap(*(packet(tsn, message) for tsn, message in enumerate(MESSAGES))))
    return path


def columns(capture: Path, *names: str) -> list[list[str]]:
    """The values that tshark reads in these fields, a row for each message; several values are joined by
    commas."""
    options = [part for name in names for part in ("-e", name)]
    table = tshark(capture, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", *options)
    rows = [line.split("\t") for line in table.splitlines()]
    assert len(rows) == len(MESSAGES)
    return rows


def test_every_message_and_policy_we_know_is_dissected() -> None:
    assert {type(message) for message in MESSAGES} == {*asap.MESSAGES.values(), *enrp.MESSAGES.values()}
    assert {type(policy) for policy in POLICIES + NAMELESS_POLICIES} == set(policies.POLICIES.values())


def test_nothing_is_malformed(capture: Path) -> None:
    trouble = tshark(capture, "-V", "-Y", "_ws.malformed || _ws.expert.severity >= 0x600000")
    assert not trouble, trouble[-3000:]


def test_each_is_the_message_it_should_be(capture: Path) -> None:
    rows = columns(capture, "asap.message_type", "enrp.message_type")
    expected = [
        [str(message.TYPE), ""] if is_asap(message) else ["", str(message.TYPE)] for message in MESSAGES
    ]
    assert rows == expected


def test_every_parameter_cause_and_policy_has_a_name(capture: Path) -> None:
    unnamed = re.findall(r"(\w+ Type|Cause Code): Unknown \(0x(\w+)\)", tshark(capture, "-V"))
    assert unnamed == [("Policy Type", f"{policy.TYPE:08x}") for policy in NAMELESS_POLICIES]


def test_a_damaged_message_would_be_noticed(tmp_path: Path) -> None:
    """The two tests above can fail."""
    path = tmp_path / "damaged.pcap"
    good = asap.encode(asap.Registration(b"pool", element()))
    bad = [good.replace(b"pool", b"pool\xff\xff\xff\xff"), good.replace(b"\x00\x0a", b"\x07\x77")]
    path.write_bytes(pcap(*(sctp_packet(data_chunk(tsn, asap.PPID, data)) for tsn, data in enumerate(bad))))
    assert tshark(path, "-Y", "frame.number == 1 && _ws.malformed")
    assert "Unknown (0x0777)" in tshark(path, "-V", "-Y", "frame.number == 2")


def test_tshark_reads_the_pool_element_we_meant(capture: Path) -> None:
    rows = columns(
        capture,
        "asap.pool_handle_pool_handle",
        "asap.pool_element_pe_identifier",
        "asap.pool_element_home_enrp_server_identifier",
        "asap.pool_element_registration_life",
        "asap.sctp_transport_port",
        "asap.transport_use",
        "asap.ipv4_address",
        "asap.ipv6_address",
    )
    expected = [b"pool".hex(), "0x0000a001", "0x00001234", "90000", "7000", "1", str(V4), str(V6)]
    assert rows[0] == expected


IN_PER_CENT = ("load", "degradation")
"""The fields that tshark shows in per cent of full load."""


def test_tshark_reads_the_policies_we_meant(capture: Path) -> None:
    prefix = "asap.pool_member_selection_policy_"
    rows = columns(
        capture,
        prefix + "type",
        *(prefix + name for name in ("weight", "priority", "load", "degradation", "load_dpf", "weight_dpf")),
        prefix + "distance",
    )
    for policy, row in zip(POLICIES, rows[len(TRANSPORTS) :], strict=False):
        assert int(row[0], 16) == policy.TYPE
        if isinstance(policy, policies.PriorityLeastUsedDegradation):
            continue  # tshark 4.0 knows its name only
        shown = [float(value) for value in row[1:] if value]
        values = zip(fields(policy), astuple(policy), strict=True)
        meant = [value * 100 if field.name in IN_PER_CENT else value for field, value in values]
        assert shown == pytest.approx(meant, rel=1e-6), policy
