"""Connection set-up through a gateway, routed and bridged: what an unmodified client sees."""

import contextlib
import errno
import itertools
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from guard_bench.lab import PROGRAM, Guard

from tests.support.builds import build
from tests.support.gateway import PORT, SERVER, SILENT, SILENT_MAC, GatewayNetwork, gateway_network, inside
from tests.support.namespaces import Namespace
from tests.support.waiting import until

HOUSE = Path(__file__).parents[1]
CLOSED_PORT, OTHER_PORT = 5061, 5062
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 3, 263, 8, 0x10
MUTATIONS = 3000
FUZZED_S = 5
FEW_BYTES = 10_000
WAITS = errno.EAGAIN
"""The errno of a connect() that is given up by its own program."""


def built_with_sanitizers() -> Path:
    """The folder of ppu-guard and of its core's test."""
    build(HOUSE, "asan")
    return HOUSE / "build-asan"


def with_tag(frame: bytes, more: list[tuple[int, int, bytes]]) -> bytes:
    """A frame with its VLAN tag, which the kernel tells beside it (struct tpacket_auxdata)."""
    for _, _, words in more:
        status, tag = struct.unpack("=I12xH", words[:18])
        if status & TP_STATUS_VLAN_VALID:
            return frame[:12] + struct.pack(">HH", 0x8100, tag) + frame[12:]
    return frame


@contextlib.contextmanager
def frames_at(host: Namespace) -> Iterator[list[tuple[float, bytes]]]:
    """The frames that come in at the host's interface, with times."""
    listening: socket.socket = inside(
        host, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    )
    listening.bind(("eth0", ETH_P_ALL))
    listening.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    listening.settimeout(0.1)
    found: list[tuple[float, bytes]] = []
    is_over = threading.Event()

    def listen() -> None:
        while not is_over.is_set():
            with contextlib.suppress(TimeoutError):
                frame, more, _, where = listening.recvmsg(2048, 128)
                if where[2] != socket.PACKET_OUTGOING:
                    found.append((time.monotonic(), with_tag(frame, more)))

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
        listening.close()


@pytest.fixture(scope="module", params=["routed", "bridged"])
def network(request: pytest.FixtureRequest) -> Iterator[GatewayNetwork]:
    with gateway_network(request.param) as made:
        yield made


class Gate:
    """That network, with ppu-guard in the gateway."""

    def __init__(self, network: GatewayNetwork) -> None:
        self.client, self.gate, self.server = network.client, network.gate, network.server
        self.connect, self.filters = network.connect, network.filters
        self.guard: Guard | None = None

    def start(self, pending: int = 1000, repeat: str = "fixed", program: Path = PROGRAM) -> Guard:
        """Start ppu-guard for the silent address and the server, and renew its lease."""
        members = [
            f"{address} {port} {name}"
            for name in ("tcp", "sctp")
            for version in (4, 6)
            for address in (SILENT[version], SERVER[version])
            for port in (PORT, CLOSED_PORT)
        ]
        where = Path("/run/netns") / self.gate.name
        self.guard = Guard(where, "inner", members, pending=pending, repeat=repeat, program=program)
        return self.guard

    def stop(self) -> None:
        """End ppu-guard, and what a killed one left."""
        if self.guard is not None:
            self.guard.stop()
        self.gate.run("tc", "qdisc", "del", "dev", "inner", "clsact")


@pytest.fixture
def gate(network: GatewayNetwork) -> Iterator[Gate]:
    made = Gate(network)
    yield made
    made.stop()


def transport(frame: bytes) -> tuple[int, bytes]:
    """Protocol, and the transport's header with all behind it."""
    if frame[12:14] == b"\x86\xdd":
        return frame[20], frame[54:]
    return (frame[23], frame[34:]) if frame[12:14] == b"\x08\x00" else (0, b"")


def init(source_port: int, tag: int) -> bytes:
    """An SCTP INIT from the client's stack to the silent address, to be sent by a raw socket."""
    chunk = struct.pack(">BBHIIHHI", 1, 0, 20, tag, 65536, 10, 10, 7)
    return struct.pack(">HHII", source_port, PORT, 0, 0) + chunk


@pytest.mark.integration
def test_set_up_that_nobody_answers_is_repeated_and_refused(gate: Gate) -> None:
    guard = gate.start()
    tag = 0x01020304

    def send_init() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP) as raw:
            raw.sendto(init(40000, tag), (SILENT[4], 0))

    with frames_at(gate.server) as arrived, frames_at(gate.client) as returned:
        found: dict[int, tuple[int, float]] = {}
        clients = [
            threading.Thread(
                target=lambda version=version: found.update({version: gate.connect(SILENT[version])})
            )
            for version in (4, 6)
        ]
        for client in clients:
            client.start()
        inside(gate.client, send_init)
        for client in clients:
            client.join()
        until(lambda: any(transport(frame)[0] == socket.IPPROTO_SCTP for _, frame in returned))
    for version in (4, 6):
        assert found[version][0] == errno.ECONNREFUSED
        assert 1.9 < found[version][1] < 4, "two seconds, and not the kernel's 127"
        syns = [
            (at_s, transport(frame)[1])
            for at_s, frame in arrived
            if transport(frame)[0] == socket.IPPROTO_TCP and (frame[12] == 0x86) == (version == 6)
        ]
        assert len(syns) == 4, "its own and three; the client's repetition, after a second, is swallowed"
        assert all(0.3 < later[0] - sooner[0] < 0.9 for sooner, later in itertools.pairwise(syns))
        same = {syn[:16] + syn[18:] for _, syn in syns}
        assert len(same) == 1, "every byte but the checksum, which is not whole where it leaves the client"
    inits = [frame for _, frame in arrived if transport(frame)[0] == socket.IPPROTO_SCTP]
    assert len(inits) == 4
    aborts = [transport(frame)[1] for _, frame in returned if transport(frame)[0] == socket.IPPROTO_SCTP]
    assert [struct.unpack(">HHI4xB", abort[:13]) for abort in aborts] == [(PORT, 40000, tag, 6)]
    until(lambda: guard.count("given_up") == 3 and guard.counters["pending"] == 0)
    assert guard.count("swallowed") == 2


@pytest.mark.integration
@pytest.mark.parametrize("network", ["bridged"], indirect=True)
def test_set_up_in_a_vlan_is_repeated_and_refused_in_it(gate: Gate) -> None:
    gate.start()
    tag = b"\x81\x00\x20\x07"
    addresses = ip_address("10.2.0.2").packed + ip_address(SILENT[4]).packed
    syn = struct.pack(">HHIIBBHHH", 40000, PORT, 99, 0, 0x50, 2, 1000, 0, 0)
    head = struct.pack(">BBHIBBH", 0x45, 0, 40, 0, 64, 6, 0) + addresses

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("eth0", 0))
            macs = bytes.fromhex(SILENT_MAC.replace(":", "")) + raw.getsockname()[4]
            raw.send(macs + tag + b"\x08\x00" + head + syn)

    with frames_at(gate.server) as arrived, frames_at(gate.client) as returned:
        inside(gate.client, send)
        until(lambda: [frame for _, frame in returned if frame[51:52] == b"\x14"])
    assert {frame[12:16] for _, frame in arrived if frame[38:42] == syn[:4]} == {tag}
    assert len([frame for _, frame in arrived if frame[38:42] == syn[:4]]) == 4
    (reset,) = [frame for _, frame in returned if frame[51:52] == b"\x14"]
    assert reset[12:16] == tag
    assert reset[30:38] == addresses[4:] + addresses[:4]
    assert struct.unpack(">I", reset[46:50]) == (100,)


def mutated_setups(draw: random.Random, macs: bytes) -> Iterator[bytes]:
    """Frames of a client that begin a connection, each changed in some places, or of another length."""
    four = ip_address("10.2.0.2").packed + ip_address(SILENT[4]).packed
    six = ip_address("fd02::2").packed + ip_address(SILENT[6]).packed
    for _ in range(MUTATIONS):
        client_port = draw.randrange(1, 65536)
        options = draw.choice((b"", bytes.fromhex("020405b40402080adeadbeef0000000001030307")))
        offset = (5 + len(options) // 4) << 4
        syn = struct.pack(">HHIIBBHHH", client_port, PORT, 99, 0, offset, 2, 1000, 0, 0) + options
        payload, protocol = draw.choice(((syn, 6), (init(client_port, draw.randrange(1, 1 << 32)), 132)))
        head = struct.pack(">BBHIBBH", 0x45, 0, 20 + len(payload), 0, 64, protocol, 0) + four
        head_6 = struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + six
        network = draw.choice((b"\x08\x00" + head, b"\x86\xdd" + head_6))
        tag = draw.choice((b"", b"", b"\x81\x00\x20\x07", b"\x88\xa8\0\5\x81\0\0\6"))
        frame = bytearray(macs + tag + network + payload)
        for _ in range(draw.randrange(4)):
            frame[draw.randrange(12, len(frame))] = draw.randrange(256)
        match draw.randrange(6):
            case 0:
                del frame[draw.randrange(14, len(frame)) :]
            case 1:
                frame += draw.randbytes(draw.randrange(1400 - len(frame)))
        yield bytes(frame)


@pytest.mark.integration
@pytest.mark.parametrize("network", ["bridged"], indirect=True)
def test_mutated_setups_never_stop_the_guard(gate: Gate) -> None:
    guard = gate.start(program=built_with_sanitizers() / "ppu-guard")

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("eth0", 0))
            macs = bytes.fromhex(SILENT_MAC.replace(":", "")) + raw.getsockname()[4]
            for frame in mutated_setups(random.Random(5), macs):
                with contextlib.suppress(BlockingIOError, InterruptedError):
                    raw.send(frame)

    inside(gate.client, send)
    until(lambda: guard.count("guarded") > MUTATIONS / 20 and guard.count("unfit") > 0)
    until(lambda: guard.counters["pending"] == 0)
    assert guard.process.poll() is None
    assert gate.connect(SILENT[4])[0] == errno.ECONNREFUSED


@pytest.mark.integration
def test_server_that_answers_is_not_disturbed(gate: Gate) -> None:
    guard = gate.start()

    def listen(version: int) -> socket.socket:
        return socket.create_server(
            (SERVER[version], PORT), family=socket.AF_INET6 if version == 6 else socket.AF_INET
        )

    with frames_at(gate.server) as arrived:
        for version in (4, 6):
            with inside(gate.server, partial(listen, version)):
                assert gate.connect(SERVER[version])[0] == 0
            error, took_s = gate.connect(SERVER[version], CLOSED_PORT)
            assert error == errno.ECONNREFUSED
            assert took_s < 1.9, "the server's own word"
        assert gate.connect(SERVER[4], OTHER_PORT)[0] == errno.ECONNREFUSED
        until(lambda: guard.count("refused") == 2)
        time.sleep(0.7)
    syns = [
        segment
        for _, frame in arrived
        for number, segment in [transport(frame)]
        if number == 6 and segment[13] & 2
    ]
    assert len(syns) == 5, "nothing is sent again"
    assert (guard.count("guarded"), guard.count("answered"), guard.count("repeated")) == (4, 2, 0)


@pytest.mark.integration
@pytest.mark.parametrize("network", ["routed"], indirect=True)
def test_forged_answers_end_nothing(gate: Gate) -> None:
    guard = gate.start()

    def forge() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            for flags in (0x12, 0x14):
                for client_port in ports:
                    head = struct.pack(">HHIIBBHHH", PORT, client_port, 1, 0x12345678, 0x50, flags, 0, 0, 0)
                    ip = struct.pack(">BBHIBBH", 0x45, 0, 40, 0, 64, 6, 0)
                    addresses = ip_address(SILENT[4]).packed + client_address
                    raw.sendto(ip + addresses + head, (str(ip_address(client_address)), 0))

    with frames_at(gate.server) as arrived:
        found: list[tuple[int, float]] = []
        client = threading.Thread(target=lambda: found.append(gate.connect(SILENT[4])))
        client.start()
        until(lambda: [frame for _, frame in arrived if transport(frame)[0] == 6])
        frame = next(frame for _, frame in arrived if transport(frame)[0] == 6)
        ports, client_address = [struct.unpack(">H", transport(frame)[1][:2])[0]], frame[26:30]
        inside(gate.server, forge)
        client.join()
    assert found[0][0] == errno.ECONNREFUSED
    assert found[0][1] > 1.5
    until(lambda: guard.count("forged") >= 1 and guard.count("given_up") == 1)


@pytest.mark.integration
@pytest.mark.parametrize("network", ["routed"], indirect=True)
def test_without_the_agent_or_the_guard_everything_passes(gate: Gate) -> None:
    guard = gate.start()
    os.kill(guard.pid, signal.SIGSTOP)
    time.sleep(0.8)
    with frames_at(gate.server) as arrived:
        assert gate.connect(SILENT[4], timeout_s=1.6)[0] == WAITS
    syns = [frame for _, frame in arrived if transport(frame)[0] == 6]
    assert len(syns) == 2, "the client's own, which nobody swallows"
    guard.is_renewing = False
    os.kill(guard.pid, signal.SIGCONT)
    until(lambda: guard.count("unattended") >= 1)
    time.sleep(3.2)
    assert gate.connect(SILENT[4], timeout_s=0.2)[0] == WAITS
    until(lambda: guard.count("unattended") >= 3)
    assert guard.count("guarded") == 0
    guard.kill()
    assert "guard_in" in gate.filters(), "it could not take its program away"
    with inside(gate.server, lambda: socket.create_server((SERVER[4], PORT))):
        assert gate.connect(SERVER[4])[0] == 0
    other = gate.start()
    assert gate.connect(SILENT[4])[0] == errno.ECONNREFUSED, "another one takes over"
    other.stop()
    assert "guard_in" not in gate.filters()


@pytest.mark.integration
@pytest.mark.parametrize("network", ["routed"], indirect=True)
def test_learned_round_trip_makes_it_refuse_sooner(gate: Gate) -> None:
    guard = gate.start(repeat="rtt")
    with inside(gate.server, lambda: socket.create_server((SERVER[4], PORT))):
        assert gate.connect(SERVER[4])[0] == 0
        until(lambda: guard.count("answered") == 1)
        silence = "{ chain c { type filter hook input priority 0; tcp dport 5060 drop; }; }"
        assert gate.server.run("nft", f"table inet silent {silence}").returncode == 0
        try:
            error, took_s = gate.connect(SERVER[4])
        finally:
            gate.server.run("nft", "delete", "table", "inet", "silent")
    assert error == errno.ECONNREFUSED
    assert 0.15 < took_s < 1.5, "four times 50 ms, the least"
    until(lambda: guard.count("given_up") == 1)
    error, took_s = gate.connect(SILENT[4])
    assert error == errno.ECONNREFUSED
    assert took_s > 1.5, "nothing is known of this one"


@pytest.mark.integration
@pytest.mark.parametrize("network", ["routed"], indirect=True)
def test_renamed_interface_is_given_back(gate: Gate) -> None:
    guard = gate.start()
    until(lambda: "ppu_guard" in gate.filters() or "direct-action" in gate.filters())
    for before, after in (("inner", "before"), ("before", "inner")):
        gate.gate.ip("link", "set", before, "name", after)
        if after == "before":
            guard.stop()
    assert "direct-action" not in gate.filters()


def test_full_table_lets_pass(gate: Gate) -> None:
    guard = gate.start(pending=1)

    def begin() -> list[socket.socket]:
        clients = [socket.socket() for _ in range(30)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex((SILENT[4], PORT))
        return clients

    with frames_at(gate.server) as arrived:
        clients = inside(gate.client, begin)
        until(lambda: guard.count("full") >= 20)
        until(
            lambda: len({transport(frame)[1][:2] for _, frame in arrived if transport(frame)[0] == 6}) == 30
        )
        for client in clients:
            client.close()
    assert guard.count("guarded") == 8, "as many as there is room for, though one was asked for"


@pytest.mark.integration
@pytest.mark.parametrize("network", ["bridged"], indirect=True)
def test_flood_from_forged_sources_stops_no_set_up(gate: Gate) -> None:
    """The table is full of what nobody answers; what a server answers is set up, as without the guard."""
    guard = gate.start(pending=500)
    draw = random.Random(9)
    macs = bytes.fromhex(SILENT_MAC.replace(":", ""))

    def flood() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("eth0", 0))
            while not is_over.is_set():
                source = draw.randbytes(4)
                head = (
                    struct.pack(">BBHIBBH", 0x45, 0, 40, 0, 64, 6, 0) + source + ip_address(SILENT[4]).packed
                )
                syn = struct.pack(">HHIIBBHHH", draw.randrange(1, 65536), PORT, 99, 0, 0x50, 2, 1000, 0, 0)
                with contextlib.suppress(BlockingIOError, InterruptedError, OSError):
                    raw.send(macs + raw.getsockname()[4] + b"\x08\x00" + head + syn)

    before = guard.counters["bytes"]
    is_over = threading.Event()
    flooding = threading.Thread(target=lambda: inside(gate.client, flood))
    with inside(gate.server, lambda: socket.create_server((SERVER[4], PORT))):
        flooding.start()
        try:
            until(lambda: guard.count("full") > 0)
            for _ in range(20):
                assert gate.connect(SERVER[4])[0] == 0
        finally:
            is_over.set()
            flooding.join()
    assert guard.counters["bytes"] < before + FEW_BYTES
    until(lambda: guard.counters["pending"] == 0)
    assert guard.count("given_up") > 500 * 0.9
    assert gate.connect(SILENT[4])[0] == errno.ECONNREFUSED, "there is room again"


def test_core_of_the_guard() -> None:
    program = built_with_sanitizers() / "core-test"
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.exact
@pytest.mark.timeout(300)
def test_guided_by_coverage(tmp_path: Path) -> None:
    """The BPF program and ppu-guard's core in one; `make fuzz` runs longer."""
    build(HOUSE, "fuzzer")
    fuzzing = HOUSE / "build-fuzz"
    limits = ["-seed=1", f"-max_total_time={FUZZED_S}", "-max_len=1024", "-len_control=0"]
    run = subprocess.run(
        [
            str(fuzzing / "guard"),
            *limits,
            f"-artifact_prefix={tmp_path}/",
            str(tmp_path),
            str(fuzzing / "seeds"),
        ],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    assert "Done " in run.stderr, run.stderr[-2000:]
