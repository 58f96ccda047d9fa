"""Hostile packets: the program answers nothing that PowerDNS would not answer so, and the daemon goes on."""

import contextlib
import json
import mmap
import os
import random
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path

import dns.message
import pytest
from rspdns.fastpath.messages import hello
from rspdns_lab.net.network import call_in

from tests.backend.making import ZONE, member, view, views, zone
from tests.support.bpf_run import (
    ANSWERED,
    OPT,
    PASSED,
    PORT,
    LoadedProgram,
    answer_of,
    frame,
    loaded_program,
    question,
    sum_of,
    wire_name,
)
from tests.support.fast_path import CLIENT, CLIENT_6, FAST, FAST_6, SLOW, FastStage, built, fast_stage
from tests.support.namespaces import own_namespace
from tests.support.waiting import until

MUTATIONS = 1500
OWNER, HOST = f"_sip._udp.as.{ZONE}", f"as.{ZONE}"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastStage]:
    pools = views(view(member(1, "10.0.0.1", "2001:db8::1"), member(2)))
    with fast_stage([zone()], pools, tmp_path_factory.mktemp("fast"), target="asan") as made:
        yield made


@pytest.fixture
def program(stage: FastStage) -> Iterator[LoadedProgram]:
    with loaded_program(stage) as loaded:
        yield loaded


@pytest.mark.parametrize(("source", "target"), [(CLIENT, FAST), (CLIENT_6, FAST_6)])
@pytest.mark.parametrize("tail", [b"", OPT])
def test_answer_has_right_lengths_and_checksums(
    program: LoadedProgram, source: str, target: str, tail: bytes
) -> None:
    for name, kind in ((OWNER, 33), (HOST, 1), (HOST, 28), (HOST, 35), (f"00000001.u.{HOST}", 28)):
        packet = frame(question(name, kind, tail, int(bool(tail))), source, target)
        returned, changed = program.run(packet)
        assert returned == ANSWERED, name
        said = answer_of(changed)
        assert said[2:4] == b"\x85\0"
        assert said[7] >= 1


def network_faults() -> dict[str, bytes]:
    good = frame(question(OWNER))
    six = frame(question(OWNER), CLIENT_6, FAST_6)

    def changed(packet: bytes, at: int, new: bytes) -> bytes:
        """With the checksum of the IPv4 header right again."""
        packet = packet[:at] + new + packet[at + len(new) :]
        head = packet[14:24] + b"\0\0" + packet[26:34]
        is_ipv4 = packet[12:14] == b"\x08\0"
        return packet[:24] + struct.pack("!H", ~sum_of(head) & 0xFFFF) + packet[26:] if is_ipv4 else packet

    return {
        "wrong UDP checksum": frame(question(OWNER), wrong=0x1234),
        "wrong UDP checksum over IPv6": frame(question(OWNER), CLIENT_6, FAST_6, wrong=1),
        "no UDP checksum over IPv6": six[:60] + b"\0\0" + six[62:],
        "wrong IP checksum": good[:24] + bytes([good[24] ^ 1]) + good[25:],
        "first fragment": changed(good, 20, b"\x20\0"),
        "last fragment": changed(good, 20, b"\0\x08"),
        "IP options": changed(good, 14, b"\x46"),
        "shorter than its header says": changed(good, 16, b"\x05\0"),
        "UDP length": changed(good, 38, b"\0\x20"),
        "TCP": changed(good, 23, b"\6"),
        "another port": changed(good, 36, b"\x14\xe9"),
        "another address": frame(question(OWNER), target=SLOW),
        "to many hosts": b"\1\0\x5e\0\0\1" + good[6:],
        "from many hosts": good[:6] + b"\xff" * 6 + good[12:],
        "from many hosts over IPv6": six[:6] + b"\x33\x33\0\0\0\1" + six[12:],
        "from nowhere": frame(question(OWNER), source="0.0.0.0"),
        "from a group": frame(question(OWNER), source="224.0.0.1"),
        "from port 0": changed(good, 34, b"\0\0"),
        "IPv6 extension header": changed(six, 20, b"\0"),
        "VLAN": good[:12] + b"\x81\0\0\5" + good[12:],
        "ARP": good[:12] + b"\x08\6" + good[14:],
    }


@pytest.mark.parametrize("fault", network_faults())
def test_packet_that_the_kernel_may_drop_or_treat_otherwise_is_passed_on(
    program: LoadedProgram, fault: str
) -> None:
    packet = network_faults()[fault]
    returned, changed = program.run(packet)
    assert returned == PASSED
    assert changed == packet


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *((source, FAST) for source in (FAST, "127.0.0.1", "0.0.0.1", "239.1.1.1", "255.255.255.255")),
        *((source, FAST_6) for source in (FAST_6, "::", "::1", f"::ffff:{CLIENT}", "ff02::1")),
    ],
)
def test_question_from_a_source_that_no_network_carries_is_passed_on(
    stage: FastStage, program: LoadedProgram, source: str, target: str
) -> None:
    """A forged source: an answer would go to this host itself, or to nobody."""
    (link,) = json.loads(stage.server.run("ip", "-j", "link", "show", "server").stdout)
    mac = bytes.fromhex(link["address"].replace(":", ""))

    def run(asking: str) -> tuple[int, bytes]:
        packet = mac + frame(question(OWNER), asking, target)[6:]
        returned, changed = call_in(
            Path("/run/netns") / stage.server.name, lambda: program.run(packet, link["ifindex"])
        )
        return returned, changed if returned == ANSWERED else packet

    assert run(CLIENT_6 if ":" in target else CLIENT)[0] == ANSWERED
    assert run(source)[0] == PASSED


def messages(draw: random.Random) -> Iterator[bytes]:
    """A corpus of questions that are broken in some way, and some that are whole."""
    good = [
        question(OWNER),
        question(HOST, 1),
        question(HOST, 35, OPT, 1),
        question(f"00000001.u.{HOST}", 28, OPT, 1),
    ]
    for message in good:
        yield from (message[:size] for size in range(len(message)))
        for at in range(len(message)):
            yield from (
                message[:at] + bytes([value]) + message[at + 1 :] for value in (0, 1, 0x3F, 0x40, 0xC0, 0xFF)
            )
        yield from (message + bytes(draw.randrange(256) for _ in range(size)) for size in range(1, 30))
    head = good[0][:12]
    for pointer in (b"\xc0\x0c", b"\xc0\x0d", b"\xc0\xff", b"\xff\xff", b"\x01a\xc0\x0c", b"\xc0"):
        yield head + pointer + b"\0\x21\0\1"
        yield head + wire_name("_sip._udp.as")[:-1] + pointer + b"\0\x21\0\1"
    yield head + b"\x01a" * 126 + b"\0\0\1\0\1"
    yield head + b"\x01a" * 130 + b"\0\0\1\0\1"
    yield head + b"\x3f" + b"a" * 63 + b"\x3f" + b"b" * 63 + b"\0\0\1\0\1"
    yield head + b"\0\0\1\0\1"
    for _ in range(300):
        yield bytes(draw.randrange(256) for _ in range(draw.randrange(300)))


ASK = r"""
import json, socket, sys
file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
file.connect((sys.argv[1], 53))
file.settimeout(2)
said = []
for text in json.load(open(sys.argv[2])):
    message = bytes.fromhex(text)
    for _ in range(5):
        file.send(message)
        try:
            answer = file.recv(65535)
            while answer[:2] != message[:2]:
                answer = file.recv(65535)
            break
        except TimeoutError:
            answer = b""
    said.append(answer.hex())
print(json.dumps(said))
"""


def sections(wire: bytes) -> list[object]:
    """The contents of a message: header, question, each section's records as a set, OPT."""
    said = dns.message.from_wire(wire)
    parts = [
        sorted(line.lower() for rrset in part for line in rrset.to_text().splitlines())
        for part in (said.answer, said.authority, said.additional)
    ]
    return [wire[:12], said.question[0].to_text(), parts, said.opt.to_text() if said.opt else None]


def assert_answered_as_by_powerdns(stage: FastStage, answered: Mapping[bytes, bytes]) -> None:
    (stage.folder / "questions").write_text(json.dumps([message.hex() for message in answered]))
    said = stage.ask(ASK, SLOW, str(stage.folder / "questions"))
    for (message, by_kernel), of_powerdns in zip(answered.items(), said, strict=True):
        by_powerdns = bytes.fromhex(of_powerdns)
        assert len(by_kernel) == len(by_powerdns), message.hex()
        assert sections(by_kernel) == sections(by_powerdns), message.hex()


def answered_of(program: LoadedProgram, corpus: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The messages that the kernel answers, with its answers; the others it leaves as they are."""
    answered: dict[bytes, bytes] = {}
    for message, packet in corpus:
        returned, changed = program.run(packet)
        assert returned in (ANSWERED, PASSED), packet.hex()
        if returned == PASSED:
            assert changed == packet
        else:
            answered[message] = answer_of(changed)
    return answered


def test_broken_questions_are_answered_as_powerdns_answers_them_or_not_at_all(
    stage: FastStage, program: LoadedProgram
) -> None:
    corpus = [message for message in dict.fromkeys(messages(random.Random(3))) if len(message) < 1400]
    answered = answered_of(program, ((message, frame(message)) for message in corpus))
    assert len(corpus) > 1500
    assert 50 < len(answered) < len(corpus) / 2
    assert_answered_as_by_powerdns(stage, answered)


WHOLE = [
    question(name, kind, tail, int(bool(tail)))
    for name, kind in ((OWNER, 33), (HOST, 1), (HOST, 28), (HOST, 35), (f"00000001.u.{HOST}", 28))
    for tail in (b"", OPT, OPT[:7] + b"\x80\0" + OPT[9:])
]
PIECES = (
    *(b"\xc0\x0c", b"\xc0\x0d", b"\xc0\x1c", b"\xff\xff", b"\0", b"\x3f", b"\x40", b"\x01a", b"\0\x29"),
    *(OPT, b"\0\x0a\0\x08abcdefgh", b"\0\x21\0\1", b"\0\1\0\3", wire_name(HOST), b"a" * 63, bytes(200)),
)


def mutated(draw: random.Random) -> bytes:
    """A whole question, with one to three bytes changed; now and then in its case alone."""
    message = bytearray(draw.choice(WHOLE))
    if draw.random() < 0.2:
        return bytes(byte ^ 0x20 if chr(byte).isalpha() and draw.random() < 0.5 else byte for byte in message)
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.randrange(len(message) + 1)
        match draw.randrange(8):
            case 0:
                message[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                message[at : at + 1] = bytes([message[min(at, len(message) - 1)] ^ 1 << draw.randrange(8)])
            case 2:
                message[at:at] = draw.choice(PIECES)
            case 3:
                message[at : at + 2] = draw.choice(PIECES)
            case 4:
                del message[at : at + draw.randrange(1, 5)]
            case 5:
                message[2 + 2 * draw.randrange(5) :][:2] = draw.randbytes(2)
            case 6:
                start = 2 + 2 * draw.randrange(5)
                message[start : start + 2] = draw.choice((b"\0\0", b"\0\1", b"\0\2", b"\1\0", b"\x80\0"))
            case _:
                other = draw.choice(WHOLE)
                message[at:] = other[draw.randrange(len(other)) :]
        if not message:
            return b""
    return bytes(message)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("source", "target"), [(CLIENT, FAST), (CLIENT_6, FAST_6)], ids=["IPv4", "IPv6"])
def test_mutated_questions_are_answered_as_powerdns_answers_them_or_not_at_all(
    stage: FastStage, program: LoadedProgram, source: str, target: str, seed: int
) -> None:
    draw = random.Random(seed)
    corpus = list(dict.fromkeys(mutated(draw) for _ in range(MUTATIONS)))
    answered = answered_of(program, ((message, frame(message, source, target)) for message in corpus))
    assert MUTATIONS / 30 < len(answered) < MUTATIONS / 2
    assert_answered_as_by_powerdns(stage, answered)


def what_is_wrong(packet: bytes) -> str:
    """Why a host at FAST or FAST_6 would not take this frame as a datagram for its port 53; empty: it would.

    Written from the RFCs (791, 768, 8200), without a look at the program.
    """
    if (packet[0] | packet[6]) & 1:
        return "to many hosts, or from them"
    if packet[12:14] == b"\x08\0":
        ip, version = packet[14:34], 4
        length, flags = int.from_bytes(ip[2:4], "big"), int.from_bytes(ip[6:8], "big")
        if ip[0] != 0x45 or sum_of(ip) != 0xFFFF or flags & 0xBFFF or ip[9] != 17:
            return "IP header"
        source, target, start = ip[12:16], ip[16:20], 34
        size = length - 20
        if ip_address(source).is_multicast or source[0] in (0, 127) or source[0] >= 240:
            return "source"
    elif packet[12:14] == b"\x86\xdd":
        ip, version = packet[14:54], 6
        size = int.from_bytes(ip[4:6], "big")
        if ip[0] >> 4 != 6 or ip[6] != 17:
            return "IPv6 header"
        source, target, start = ip[8:24], ip[24:40], 54
        if ip_address(source).is_multicast or ip_address(source).is_unspecified:
            return "source"
    else:
        return "not IP"
    if str(ip_address(target)) != (FAST if version == 4 else FAST_6):
        return "another address"
    udp = packet[start : start + size]
    if len(udp) != size or size < 8 or udp[2:4] != b"\0\x35" or int.from_bytes(udp[4:6], "big") != size:
        return "UDP header"
    pseudo = source + target + struct.pack("!HH", 17, size)
    check = int.from_bytes(udp[6:8], "big")
    if check == 0:
        return "" if version == 4 else "no checksum"
    return "" if sum_of(pseudo + udp) == 0xFFFF else "checksum"


@pytest.mark.parametrize("seed", range(2))
def test_mutated_frames_are_answered_only_where_a_host_would_take_them(
    stage: FastStage, program: LoadedProgram, seed: int
) -> None:
    """Heads of Ethernet, IP and UDP, too, with checksums that were made right again half of the time."""
    draw = random.Random(seed)
    answered: dict[bytes, bytes] = {}
    count = 0
    for _ in range(MUTATIONS):
        message = draw.choice(WHOLE)
        ends = ((CLIENT, FAST), (CLIENT_6, FAST_6))[draw.randrange(2)]
        packet = bytearray(frame(message, *ends))
        start = 34 if ends[0] == CLIENT else 54
        for _ in range(draw.choice((1, 1, 2))):
            at = draw.choice((draw.randrange(start + 8), draw.randrange(len(packet))))
            packet[at] = draw.choice((draw.randrange(256), packet[at] ^ 1 << draw.randrange(8)))
        if draw.random() < 0.2:
            packet = (
                packet[: draw.randrange(start, len(packet))] if draw.random() < 0.5 else packet + bytes(9)
            )
        if start == 34 and draw.random() < 0.7 and len(packet) > 34:
            packet[24:26] = bytes(2)
            packet[24:26] = struct.pack("!H", ~sum_of(bytes(packet[14:34])) & 0xFFFF)
        if draw.random() < 0.5 and len(packet) > start + 8:
            addresses = packet[26:34] if start == 34 else packet[22:54]
            packet[start + 6 : start + 8] = bytes(2)
            size = int.from_bytes(packet[start + 4 : start + 6], "big")
            pseudo = bytes(addresses) + struct.pack("!HH", 17, size)
            check = ~sum_of(pseudo + bytes(packet[start : start + size])) & 0xFFFF or 0xFFFF
            packet[start + 6 : start + 8] = struct.pack("!H", check)
        returned, changed = program.run(bytes(packet))
        assert returned in (ANSWERED, PASSED), packet.hex()
        if returned == PASSED:
            assert changed == packet
            continue
        count += 1
        assert what_is_wrong(bytes(packet)) == "", packet.hex()
        size = int.from_bytes(packet[start + 4 : start + 6], "big")
        asked = bytes(packet[start + 8 : start + size])
        if packet[start : start + 2] == struct.pack("!H", PORT):
            answered[asked] = answer_of(changed)
    assert count > MUTATIONS / 30
    assert_answered_as_by_powerdns(stage, answered)


@pytest.mark.parametrize("command", ["status", "trace", "detach"])
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (struct.pack("=I", 0xFFFFFFFF) + b"p" + b"A" * 60000, "impossible length"),
        (struct.pack("=I", 1 << 31) + b"p" + b"A" * 60000, "impossible length"),
        (struct.pack("=I", 0), "impossible length"),
        (struct.pack("=I", 60) + b"p", "in the midst of its reply"),
        (struct.pack("=I", 6) + b"e\x1b[2J\n", "?[2J"),
    ],
)
def test_hostile_daemon_harms_nobody_who_asks_it(
    tmp_path: Path, command: str, reply: bytes, said: str
) -> None:
    """The program that asks runs as root, and is built with AddressSanitizer here."""
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(str(tmp_path / "sock"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                connection.sendall(reply)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(100)

        answering = threads.submit(answer)
        with own_namespace() as namespace:
            program = str(built("asan"))
            done = namespace.run(program, command, "--socket", str(tmp_path / "sock"), timeout_s=60)
        answering.result(60)
    assert done.returncode == 1
    assert said in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "Sanitizer" not in done.stderr


def test_garbage_at_the_socket_does_not_harm(stage: FastStage) -> None:
    """The daemon is built with AddressSanitizer and UBSan here."""
    draw = random.Random(4)
    greeting = hello(1232)
    bodies = (b"", b"\xff" * 40, bytes(600), struct.pack("=HHHB", 33, 0, 0, 255) + b"\xff" * 300)
    for number in range(150):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(stage.socket))
            parts = [greeting] if number % 3 == 0 else []
            for _ in range(draw.randrange(1, 6)):
                body = draw.choice(bodies) if draw.random() < 0.5 else draw.randbytes(draw.randrange(700))
                size = len(body) + 1 if draw.random() < 0.8 else draw.randrange(1 << 32)
                parts.append(struct.pack("=IB", size, draw.choice(b"HPCRESTNFX\0\xff")) + body)
            try:
                client.sendall(b"".join(parts))
                client.recv(100)
            except (ConnectionError, TimeoutError):
                pass
    assert stage.daemons[0].poll() is None, (stage.folder / "fastpath.log").read_text()
    stage.wait_until_ready()


def test_killed_backend_keeps_its_lease_and_one_that_says_nonsense_loses_it(stage: FastStage) -> None:
    """PowerDNS's own caches would outlive a backend that is killed, too."""

    def lease_after(last_words: bytes) -> int:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(stage.socket))
            client.sendall(hello(1232))
            said, (file,), _, _ = socket.recv_fds(client, 100, 1)
            with mmap.mmap(file, mmap.PAGESIZE) as memory, memoryview(memory).cast("Q") as leases:
                number = struct.unpack("=IBH", said)[2]
                leases[number] = time.monotonic_ns()
                client.sendall(last_words)
                while last_words and client.recv(1000):
                    pass
        os.close(file)
        until(lambda: not stage.status()["backend"])
        left: int = stage.status()["lease_ms"]
        until(lambda: stage.status()["lease_ms"] == 0)
        return left

    stage.backend.freeze(6)
    until(lambda: stage.status()["lease_ms"] == 0)
    assert lease_after(struct.pack("=IB", 1, ord("X"))) == 0
    # The best of some: the machine may stand still for as long as a lease lasts.
    assert max(lease_after(b"") for _ in range(3)) > 0
    stage.wait_until_ready()


def test_whole_but_wrong_messages_of_a_backend_are_refused(stage: FastStage) -> None:
    """Spoken by the only backend there is: its connection ends, and nothing of it is answered."""
    stage.backend.freeze(2.5)
    until(lambda: stage.status()["lease_ms"] == 0)
    greeting = hello(1232)
    name = wire_name("evil.example")
    put = struct.pack("=HHHB", 1, 0, 0, len(name)) + name
    record = b"\1" + struct.pack("=HHH", 1, 0, 4) + b"abcd"
    wrong = {
        "too many variants": put + b"\x11" + struct.pack("=HHH", 1, 0, 4) + b"abcd",
        "too long": put + b"\1" + struct.pack("=HHH", 1, 0, 497) + bytes(497),
        "longer than the message": put + b"\1" + struct.pack("=HHH", 1, 0, 400) + b"abcd",
        "more behind it": put + b"\1" + struct.pack("=HHH", 1, 0, 4) + b"abcdef",
        "a name that does not end": struct.pack("=HHHB", 1, 0, 0, 4) + b"\3abc" + b"\0",
        "a name in upper case": struct.pack("=HHHB", 1, 0, 0, 5) + b"\3ABC\0" + b"\0",
        "a class with classes": struct.pack("=HHHB", 1, 1, 1, len(name)) + name + record,
    }
    for fault, body in wrong.items():
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(stage.socket))
            client.sendall(greeting + struct.pack("=IB", len(body) + 1, ord("P")) + body)
            said = b""
            while part := client.recv(1000):
                said += part
            assert b"these are no answers to a name" in said, fault
    wrong_limits = {
        "a prefix that is too long": struct.pack("=IBIIBBH", 13, ord("L"), 10, 0, 33, 56, 2),
        "no slip": struct.pack("=IBIIBBH", 13, ord("L"), 10, 0, 24, 56, 0),
        "a rate above all": struct.pack("=IBIIBBH", 13, ord("L"), 1_000_001, 0, 24, 56, 2),
        "a depth of 128 labels": struct.pack("=IBBB", 8, ord("Z"), 128, 5) + b"\3net\0",
        "a zone that does not end": struct.pack("=IBBB", 8, ord("Z"), 3, 5) + b"\4net\0",
        "networks of the classes 0": struct.pack("=IBH", 3, ord("N"), 0),
        "to forget more classes than there can be": struct.pack("=IBH", 3, ord("F"), 1024),
    }
    for fault, body in wrong_limits.items():
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(stage.socket))
            client.sendall(greeting + body)
            said = b"".join(iter(lambda client=client: client.recv(1000), b""))  # type: ignore[misc]
            assert b"this is no" in said or b"these are no networks" in said, fault
    wrong_networks = {
        "a prefix that is too long": struct.pack("=HBB16s", 1, 4, 33, bytes(16)),
        "another version of IP": struct.pack("=HBB16s", 1, 5, 8, bytes(16)),
        "a block cut off": struct.pack("=HBB15s", 1, 6, 8, bytes(15)),
    }
    for fault, body in wrong_networks.items():
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(stage.socket))
            client.sendall(greeting + struct.pack("=IBH", 3 + len(body), ord("N"), 1) + body)
            said = b"".join(iter(lambda client=client: client.recv(1000), b""))  # type: ignore[misc]
            assert b"these are no networks" in said, fault
    with socket.socket(socket.AF_UNIX) as client:  # a message of an earlier version
        client.connect(str(stage.socket))
        client.sendall(greeting + struct.pack("=IBQ", 9, ord("R"), time.monotonic_ns()))
        assert b"unknown message" in b"".join(iter(lambda: client.recv(1000), b""))
    assert stage.daemons[0].poll() is None, (stage.folder / "fastpath.log").read_text()
    stage.wait_until_ready()
