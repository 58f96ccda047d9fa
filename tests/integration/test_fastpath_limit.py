"""The limit of questions from one source prefix: what is above a rate gets TC or no answer, nothing else."""

import itertools
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from rspdns.fastpath import FastPathConfig, LimitConfig

from tests.backend.making import ZONE, member, view, views, zone
from tests.support.bpf_run import (
    ANSWERED,
    DROPPED,
    OPT,
    PASSED,
    LoadedProgram,
    answer_of,
    frame,
    loaded_program,
    question,
    wire_name,
)
from tests.support.fast_path import CLIENT_6, FAST, FAST_6, FastStage, fast_stage
from tests.support.waiting import until

OWNER, HOST = f"_sip._udp.as.{ZONE}", f"as.{ZONE}"
OPEN = "open.example.net"
"""A zone with a wildcard."""
LIMIT = LimitConfig(deep_per_s=10, all_per_s=300, slip=3, ipv4_prefix_bits=24, ipv6_prefix_bits=48)
ASKED = 40
DEEP = f"{'a.' * 100}{ZONE}"
WILDCARD = "$TTL 60\n@ SOA n h 1 2 3 4 5\n@ NS ns.example.net.\n* A 10.0.0.9\n"
POOL = """
[[pool]]
handle = "other"
label = "u"
service = "_sip._udp"
name = "as"
accept = ["10.0.0.0/8"]
"""
_THIRD = itertools.count(1)


def elsewhere() -> str:
    """An address whose prefix has asked nothing yet."""
    return f"10.50.{next(_THIRD)}.7"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastStage]:
    pools = views(view(member(1), member(2)), view(member(1), handle="other"))
    zones = [zone(), zone(POOL, WILDCARD, name=OPEN)]
    with fast_stage(zones, pools, tmp_path_factory.mktemp("fast"), target="asan", limit=LIMIT) as made:
        yield made


@pytest.fixture
def program(stage: FastStage) -> Iterator[LoadedProgram]:
    with loaded_program(stage) as loaded:
        until(lambda: stage.status()["zones_with_depth"] == 2)
        yield loaded


def became_of(
    program: LoadedProgram, packets: Callable[[int], bytes], asked: int = ASKED
) -> tuple[Counter[int], list[bytes], float]:
    """The decisions on these packets, the answers, and how long it took in s."""
    began_s = time.monotonic()
    results = [program.run(packets(number)) for number in range(asked)]
    took_s = time.monotonic() - began_s
    answers = [answer_of(packet) for returned, packet in results if returned == ANSWERED]
    return Counter(returned for returned, _ in results), answers, took_s


def assert_limited(found: Counter[int], per_s: int, took_s: float) -> None:
    """At most the rate went on; of the rest each third, the first among them, was answered."""
    assert per_s <= found[PASSED] <= per_s * (1 + took_s) + 1
    limited = found[ANSWERED] + found[DROPPED]
    assert found[ANSWERED] == -(-limited // LIMIT.slip)
    assert found.total() == found[PASSED] + limited


@pytest.mark.parametrize(
    ("source", "target"), [("10.60.0.1", FAST), ("fd00:60::1", FAST_6)], ids=["IPv4", "IPv6"]
)
def test_deep_names_above_the_rate_get_tc_or_no_answer(
    program: LoadedProgram, source: str, target: str
) -> None:
    """From different addresses of one prefix, each name another one; nothing but TC is in the answer."""
    head = source[:-1]

    def packet(number: int) -> bytes:
        name = f"Host-{number}.{DEEP}"
        tail, count = (OPT, 1) if number % 2 else (b"", 0)
        return frame(question(name, 1, tail, count), f"{head}{number + 1}", target)

    found, answers, took_s = became_of(program, packet)
    assert_limited(found, 10, took_s)
    for said in answers:
        assert said[2:4] == b"\x83\0"  # QR, TC, RD as asked, no error
        has_opt = said[10:12] == b"\0\1"
        assert said[4:10] == b"\0\1\0\0\0\0"
        number = int(said[18:].split(b".")[0][: said[12] - 5])
        assert has_opt == bool(number % 2)
        sent = question(f"Host-{number}.{DEEP}", 1)
        assert said[12:] == sent[12:] + (OPT if has_opt else b"")


@pytest.mark.parametrize(
    "fault",
    ["a cookie", "512 bytes of padding", "DO", "unknown flags", "two records behind it", "class CHAOS"],
)
def test_deep_question_is_limited_however_it_is_dressed(program: LoadedProgram, fault: str) -> None:
    cookie = b"\0\x0a\0\x08abcdefgh"
    padding = struct.pack("!HH", 12, 512) + bytes(512)

    def opt(options: bytes = b"", flags: int = 0) -> bytes:
        return b"\0" + struct.pack("!HHBBHH", 41, 1232, 0, 0, flags, len(options)) + options

    asked = question(DEEP, 1)
    dressed, has_opt = {
        "a cookie": (question(DEEP, 1, opt(cookie), 1), True),
        "512 bytes of padding": (question(DEEP, 1, opt(padding), 1), True),
        "DO": (question(DEEP, 1, opt(flags=0x8000), 1), True),
        "unknown flags": (asked[:2] + b"\1\x4f" + asked[4:], False),
        "two records behind it": (question(DEEP, 1, opt() * 2, 2), True),
        "class CHAOS": (asked[:-1] + b"\3", False),
    }[fault]
    source = elsewhere()
    found, answers, took_s = became_of(program, lambda number: frame(dressed, source))
    assert_limited(found, 10, took_s)
    for said in answers:
        assert said[2] == 0x83
        assert len(said) == len(asked) + 11 * has_opt <= len(dressed)
        if fault == "DO":
            assert said[-4:-2] == b"\x80\0"


def test_other_names_are_not_touched_by_the_limit_of_deep_names(program: LoadedProgram) -> None:
    """From one prefix that has long asked too much."""
    source = elsewhere()
    found, _, _ = became_of(program, lambda number: frame(question(DEEP, 1), source))
    assert found[DROPPED] > 0
    for name, kind, expected in (
        (OWNER, 33, ANSWERED),
        (HOST, 1, ANSWERED),
        (f"00000001.u.{HOST}", 1, ANSWERED),
        (f"nobody.u.{HOST}", 1, PASSED),
        (f"{'a.' * 100}{OPEN}", 1, PASSED),
        (f"{'a.' * 60}elsewhere.example", 1, PASSED),
    ):
        packet = frame(question(name, kind), source)
        seen, answers, _ = became_of(program, lambda number, packet=packet: packet, 20)  # type: ignore[misc]
        assert seen == {expected: 20}, name
        assert all(said[2:4] == b"\x85\0" and said[7] for said in answers)
    for other in (elsewhere(), CLIENT_6):
        packet = frame(question(DEEP, 1), other, FAST_6 if ":" in other else FAST)
        assert program.run(packet)[0] == PASSED


def test_message_that_is_no_question_is_left_to_powerdns(program: LoadedProgram) -> None:
    source, good = elsewhere(), question(DEEP, 1)
    for broken in (
        good[:12] + b"\xc0\x0c\0\1\0\1",
        good[:40],
        good[:2] + b"\x81" + good[3:],
        good[:2] + b"\x29" + good[3:],
        good[:4] + b"\0\2" + good[6:],
        good[:12] + b"\x01a" * 127 + b"\0\0\1\0\1",
    ):
        packet = frame(broken, source)
        found, _, _ = became_of(program, lambda number, packet=packet: packet)  # type: ignore[misc]
        assert found == {PASSED: ASKED}, broken.hex()


def test_all_questions_of_a_prefix_above_their_rate_are_limited(program: LoadedProgram) -> None:
    source = elsewhere()
    packets = [frame(question(OWNER), source), frame(question(f"nobody.{ZONE}"), source)]
    began_s = time.monotonic()
    results = [program.run(packets[number % 2]) for number in range(1200)]
    took_s = time.monotonic() - began_s
    kinds = Counter(
        "TC" if returned == ANSWERED and answer_of(packet)[2] & 2 else returned
        for returned, packet in results
    )
    went_on = kinds[ANSWERED] + kinds[PASSED]
    limited = kinds["TC"] + kinds[DROPPED]
    assert 300 <= went_on <= 300 * (1 + took_s) + 1
    assert kinds["TC"] == -(-limited // LIMIT.slip)
    assert program.run(frame(question(OWNER), elsewhere()))[0] == ANSWERED


MANY_AT_ONCE = r"""
import json, socket, sys, time
wire = b"".join(bytes([len(one)]) + one.encode() for one in sys.argv[2].split(".")) + b"\0\0\x21\0\1"
file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
file.connect((sys.argv[1], 53))
began = time.monotonic()
for _ in range(int(sys.argv[3])):
    file.send(b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + wire)
print(json.dumps(time.monotonic() - began))
"""


def test_source_prefix_is_limited_without_any_configuration(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A forged source: its victim gets no more than the limit's worth of answers."""
    default = FastPathConfig().limit
    folder = tmp_path_factory.mktemp("fast")
    with fast_stage([zone()], views(view(member(1))), folder, limit=default) as stage:

        def is_limited() -> bool:
            before = stage.decisions()
            took_s = stage.ask(MANY_AT_ONCE, FAST, OWNER, "20000")
            after = stage.decisions()
            assert after["answered"] - before["answered"] <= default.all_per_s * (1 + took_s) + 1
            return after["limited_dropped"] > before["limited_dropped"]

        until(is_limited)  # at once, unless the machine is too slow to ask that much


FLOOD = r"""
import collections, json, os, socket, sys, time
wire = b"".join(bytes([len(one)]) + one.encode() for one in sys.argv[2].split(".")) + b"\0\0\1\0\1"
file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
file.connect((sys.argv[1], 53))
file.setblocking(False)
kinds, end = collections.Counter(), time.monotonic() + float(sys.argv[3])
while time.monotonic() < end and not os.path.exists(sys.argv[4]):
    file.send(b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + wire)
    time.sleep(0.002)
    try:
        said = file.recv(512)
        kinds["TC" if said[2] & 2 else str(said[3] & 15)] += 1
    except BlockingIOError:
        pass
print(json.dumps(kinds))
"""
NXDOMAIN = "3"


def test_limited_client_comes_again_over_tcp_and_the_limit_ends_with_the_lease(stage: FastStage) -> None:
    """Over a network; a reloaded zone has other depths at once."""
    stage.wait_until_ready()
    deep, end = f"{'b.' * 90}{ZONE}", stage.folder / "end of the flood"
    with ThreadPoolExecutor(1) as threads:
        flooding = threads.submit(stage.ask, FLOOD, FAST, deep, "60", str(end))

        def is_answered_over_tcp() -> bool:
            text = stage.client.run("dig", f"@{FAST}", "+tries=3", "+time=1", deep, "A").stdout
            return "Truncated, retrying in TCP mode" in text and "status: NXDOMAIN" in text

        until(lambda: is_answered_over_tcp() or flooding.done())
        assert not flooding.done()
        end.touch()
        seen = flooding.result()
    assert seen["TC"] > 0
    assert seen[NXDOMAIN] > 0
    assert stage.decisions()["limited_tc"] >= seen["TC"]
    end.unlink()
    stage.backend.freeze(7.0)
    until(lambda: stage.status()["lease_ms"] == 0)
    before = stage.decisions()
    stage.ask(FLOOD, FAST, deep, "0.5", str(end))
    assert stage.decisions()["limited_tc"] == before["limited_tc"]
    stage.wait_until_ready()
    fixed = "$TTL 60\n@ SOA n h 1 2 3 4 5\n@ NS ns\nns A 10.0.0.8\n* A 10.0.0.9\n"
    stage.backend.set_zones([zone(fixed=fixed)], stage.backend.views)
    until(lambda: stage.status()["zones_with_depth"] == 1)
    assert "TC" not in stage.ask(FLOOD, FAST, deep, "1", str(end))


def test_wire_name_of_the_flood_is_longer_than_the_map_takes() -> None:
    """The length that these tests rely on."""
    assert 128 < len(wire_name(DEEP)) < 255
