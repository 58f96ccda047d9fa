"""The kernel's answers are PowerDNS's: the same questions asked both ways."""

import json
import struct
from collections.abc import Iterator, Mapping

import pytest
from rspdns.fastpath.ready import Question
from rspdns.status.build import fastpath

from rserpool import Protocol
from tests.backend.exposed_metrics import exposed
from tests.backend.making import ZONE, member, view, views, zone
from tests.support.bpf_run import OPT, wire_name
from tests.support.every_record import ALL_SHOWN, FIXED, OTHER, POOLS, SVCB_POOLS, SVCB_VIEWS, pool
from tests.support.fast_path import CLIENT, FAST, FAST_6, SLOW, SLOW_6, FastStage, built, fast_stage
from tests.support.waiting import until

QUESTIONS = 10_000
WHOLE = pool("web", "_xmpp-client._tcp", "w", "web") + 'answers = "all"\n'
"""Its addresses fit into 512 bytes, its SRV records do not."""
ALIAS = pool("https", "_https._tcp", "y", "www", 'svcb = { alpn = ["h2"], apex_alias = true }')
"""Which addresses PowerDNS puts behind an alias is a matter of chance: these answers are not compared."""
ZONES = [
    zone((POOLS + SVCB_POOLS).replace("slow_start_s = 0", ALL_SHOWN) + WHOLE, FIXED),
    zone(
        pool("sip-udp", "_sip._udp", "u", "voice") + ALIAS,
        "$TTL 60\n@ SOA n h 1 2 3 4 5\n@ NS ns.example.net.\n",
        name=OTHER,
    ),
]
VIEWS = views(
    view(member(1, "10.0.0.1"), member(2, "2001:db8::2")),
    view(member(1, "10.0.0.3", "2001:db8::3", protocol=Protocol.TCP, port=5070), handle="sip-tcp"),
    view(
        member(1, "10.0.0.5", "10.9.0.5", "2001:db8::5", protocol=Protocol.SCTP),
        member(2, "10.0.0.6", "10.9.0.6", protocol=Protocol.SCTP),
        handle="sip-sctp",
    ),
    view(handle="sips-tcp"),
    view(member(7, "10.0.0.7", protocol=Protocol.SCTP, port=3868), handle="diameter"),
    view(handle="empty"),
    view(*(member(n, f"10.0.9.{n}", protocol=Protocol.TCP) for n in range(1, 21)), handle="web"),
    view(member(8, "2001:db8::8", "10.0.0.8", protocol=Protocol.TCP, port=80), handle="apex"),
    *SVCB_VIEWS,
)

NAMES = [
    f"{label}.{ZONE}".lstrip(".")
    for label in (
        *("as", "_sip._udp.as", "_sip._tcp.as", "_sip._sctp.as", "_sips._tcp.as", "u.as", "00000001.u.as"),
        *("00000002.u.as", "00000001.t.as", "00000001.s.as", "00000002.s.as", "hss", "_diameter._sctp.hss"),
        *("", "_http._tcp", "00000008.h", "ns1", "nobody", "x.as", "_ldap._tcp.dir", "dir", "alias"),
        *("web", "_xmpp-client._tcp.web", "0000000a.w.web", "https", "svcb", "www", "00000002.y.www"),
        *("_8443._https.alt", "_https.alt", "alt", "_dns.res", "res"),
    )
] + [f"{label}.{OTHER}" for label in ("voice", "_sip._udp.voice", "00000001.u.voice")]

ASK = r"""
import json, random, socket, struct, sys
import dns.message, dns.rdatatype
names, count, seed, fast, slow = json.loads(sys.argv[1])
draw = random.Random(seed)
OF_SERVICE, OF_HOST, ANY_TYPE = (33, 33, 64, 65), (1, 1, 28, 35, 65), (1, 28, 33, 35, 16, 255, 6, 64, 65)
OPTIONS = (  # none, NSID, a cookie, a client subnet, one that nobody knows, padding
    b"", b"", b"", b"", b"\0\3\0\0", b"\0\x0a\0\x08abcdefgh", b"\0\x08\0\4\0\1\0\0", b"\xfd\xe9\0\1x",
    b"\0\x0c\0\3\0\0\0",
)

def question():
    name = draw.choice(names)
    labels = name.split(".")
    common = draw.random() < 0.7
    wire = b"".join(bytes([len(one)]) + one.encode() for one in labels) + b"\0"
    if draw.random() < 0.7:
        is_letter = lambda byte: 65 <= byte & 0xdf <= 90
        wire = bytes(byte ^ 0x20 if is_letter(byte) and draw.random() < 0.5 else byte for byte in wire)
    flags = draw.choice((0, 0x100, 0x100, 0x120, 0x110, 0x130, 0x10, draw.randrange(0x10000) & 0x85ff))
    if flags & 0x7800:
        flags &= 0x07ff
    flags &= 0x7fff
    counts = [1, 0, 0, 0]
    tail = b""
    if draw.random() < 0.6:
        version = 0 if draw.random() < 0.95 else draw.randrange(256)
        edns = (draw.choice((0, 0x8000, 0x8000, draw.randrange(0x10000))), draw.choice(OPTIONS))
        size = draw.choice((0, 100, 511, 512, 513, 1232, 4096, 65535))
        code = 0 if draw.random() < 0.95 else draw.randrange(256)
        tail = b"\0" + struct.pack("!HHBBHH", 41, size, code, version, edns[0], len(edns[1])) + edns[1]
        counts[3] = 1
    if draw.random() < 0.02:
        tail += bytes(draw.randrange(256) for _ in range(draw.randrange(1, 12)))
    kind = draw.choice((OF_SERVICE if name.startswith("_") else OF_HOST) if common else ANY_TYPE)
    group = 1 if draw.random() < 0.97 else draw.choice((3, 255))
    head = struct.pack("!HH4H", draw.randrange(0x10000), flags, *counts)
    return head + wire + struct.pack("!HH", kind, group) + tail

def ask(file, message):
    for _ in range(5):
        file.send(message)
        while True:
            try:
                said = file.recv(65535)
            except TimeoutError:
                break
            if said[:2] == message[:2] and said[12:].lower().startswith(message[12:20].lower()):
                return said
    return None

def sections(wire):
    said = dns.message.from_wire(wire)
    parts = [sorted(line.lower() for rrset in part for line in rrset.to_text().splitlines())
             for part in (said.answer, said.authority, said.additional)]
    question = wire[12:]
    return [wire[2:12].hex(), parts, said.opt.to_text() if said.opt else None, said.question[0].to_text()]

def open_to(address):
    file = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    file.connect((address, 53))
    file.settimeout(2)
    return file

one, other = open_to(fast), open_to(slow)
differing, unanswered = [], 0
for _ in range(count):
    message = question()
    by_powerdns = ask(other, message)
    by_kernel = ask(one, message)
    if by_kernel is None or by_powerdns is None:
        if by_kernel is not by_powerdns:
            differing.append([message.hex(), str(by_kernel), str(by_powerdns)])
        unanswered += 1
        continue
    if by_kernel != by_powerdns and sections(by_kernel) != sections(by_powerdns):
        differing.append([message.hex(), sections(by_kernel), sections(by_powerdns)])
print(json.dumps([differing[:5], len(differing), unanswered]))
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastStage]:
    with fast_stage(ZONES, VIEWS, tmp_path_factory.mktemp("fast"), signed=True) as made:
        yield made


@pytest.mark.parametrize(("fast", "slow", "count"), [(FAST, SLOW, QUESTIONS), (FAST_6, SLOW_6, 2_000)])
def test_kernel_and_powerdns_answer_the_same(stage: FastStage, fast: str, slow: str, count: int) -> None:
    before = stage.decisions()["answered"]
    first, differing, unanswered = stage.ask(ASK, json.dumps([NAMES, count, 7, fast, slow]))
    assert differing == 0, first
    assert unanswered == 0
    assert stage.decisions()["answered"] - before > count / 8


ODD = r"""
import json, socket, sys
import dns.message
fast, slow, questions = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3]))
SILENCE_S, TRIES = 0.5, 3

def ask(address, message):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as file:
        file.connect((address, 53))
        file.settimeout(SILENCE_S)
        file.send(message)
        try:
            return file.recv(65535)
        except TimeoutError:
            return b""

def told(wire):
    try:
        said = dns.message.from_wire(wire)
    except Exception:
        return wire.hex()
    parts = [sorted(line.lower() for rrset in part for line in rrset.to_text().splitlines())
             for part in (said.answer, said.authority, said.additional)]
    return [wire[:12].hex(), parts, said.opt.to_text() if said.opt else None]

differing = {}
for name, text in questions.items():
    message = bytes.fromhex(text)
    for _ in range(TRIES):
        one, other = ask(fast, message), ask(slow, message)
        if told(one) == told(other):
            break
    else:
        differing[name] = [message.hex(), one.hex(), other.hex()]
print(json.dumps(differing))
"""


def odd_questions() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Those that the kernel answers, and those that it must leave to PowerDNS."""
    target = wire_name(f"00000002.s.as.{ZONE}")
    asked = target + b"\0\1\0\1"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x0a\0\0\1"
    tsig = b"\1k\0" + struct.pack("!HHIH", 250, 255, 0, 16 + 13) + b"\x0bhmac-sha256\0" + bytes(16)

    def message(
        rest: bytes = asked, flags: int = 0x100, counts: tuple[int, ...] = (1, 0, 0, 0), number: int = 7
    ) -> bytes:
        return struct.pack("!HH4H", number, flags, *counts) + rest

    def with_opt(opt: bytes) -> bytes:
        return message(asked + opt, counts=(1, 0, 0, 1))

    def of_type(number: int, group: int = 1, name: bytes = target) -> bytes:
        return message(name + struct.pack("!HH", number, group))

    answered = {
        "plain": message(),
        "number 0": message(number=0),
        "number 65535": message(number=65535),
        "no flags": message(flags=0),
        "AD and CD": message(flags=0x130),
        "upper case": message(wire_name(f"00000002.S.AS.{ZONE.upper()}") + b"\0\1\0\1"),
        **{f"OPT of {size}": with_opt(OPT[:3] + size.to_bytes(2) + OPT[5:]) for size in (0, 511, 513, 65535)},
        "DO": with_opt(OPT[:7] + b"\x80\0" + OPT[9:]),
    }
    most = 255 - 3 * 64 - 1 - len(wire_name(ZONE))
    longest, too_long = (
        wire_name(".".join([*["a" * 63] * 3, "b" * size, ZONE])) for size in (most, most + 1)
    )
    assert len(longest) == 255
    passed = {
        "no question": message(b"", counts=(0, 0, 0, 0)),
        "two questions": message(asked + asked, counts=(2, 0, 0, 0)),
        "an answer along": message(asked + record, counts=(1, 1, 0, 0)),
        "an authority along": message(asked + record, counts=(1, 0, 1, 0)),
        "an additional record along": message(asked + record, counts=(1, 0, 0, 1)),
        "TSIG": message(asked + tsig, counts=(1, 0, 0, 1)),
        "OPT and TSIG": message(asked + OPT + tsig, counts=(1, 0, 0, 2)),
        "two OPT records": message(asked + OPT + OPT, counts=(1, 0, 0, 2)),
        "OPT that is not counted": message(asked + OPT),
        "counted OPT that is not there": message(counts=(1, 0, 0, 1)),
        "a byte behind": message(asked + b"x"),
        "a byte behind OPT": with_opt(OPT + b"x"),
        "OPT of another owner": with_opt(b"\1a" + OPT),
        "EDNS version 1": with_opt(OPT[:6] + b"\1" + OPT[7:]),
        "an unknown EDNS flag": with_opt(OPT[:8] + b"\1" + OPT[9:]),
        "an extended code": with_opt(OPT[:5] + b"\1" + OPT[6:]),
        **{
            f"EDNS option {option}": with_opt(OPT[:-2] + b"\0\4" + option.to_bytes(2) + b"\0\0")
            for option in (3, 11, 13, 999)
        },
        "an EDNS option cut off": with_opt(OPT[:-2] + b"\0\3\0\3\0"),
        **{f"opcode {opcode}": message(flags=opcode << 11) for opcode in (1, 2, 4, 5, 6, 15)},
        **{
            name: message(flags=flag)
            for name, flag in (("QR", 0x8000), ("AA", 0x400), ("TC", 0x200), ("RA", 0x80), ("Z", 0x40))
        },
        "a code": message(flags=2),
        **{f"class {number}": of_type(1, number) for number in (0, 3, 4, 254, 255)},
        **{
            f"type {number}": of_type(number)
            for number in (0, 2, 5, 6, 16, 39, 41, 65, 249, 251, 252, 255, 65535)
        },
        "a pointer": message(b"\xc0\x0c\0\1\0\1"),
        "a label and a pointer": message(b"\2as\xc0\x0c\0\1\0\1"),
        "a label of 64 bytes": message(b"\x40" + b"a" * 64 + asked),
        "a name of 255 bytes": of_type(1, name=longest),
        "a name of 256 bytes": of_type(1, name=too_long),
        "the root": of_type(1, name=b"\0"),
        "a name that does not end": message(target[:-1]),
        "a question cut off": message(asked[:-1]),
        "a header cut off": message()[:11],
    }
    return answered, passed


def test_odd_questions_are_answered_alike_by_kernel_and_powerdns(stage: FastStage) -> None:
    def by_kernel(questions: Mapping[str, bytes]) -> int:
        """How many the kernel answered."""
        (stage.folder / "odd").write_text(
            json.dumps({name: question.hex() for name, question in questions.items()})
        )
        before = stage.decisions()["answered"]
        assert stage.ask(ODD, FAST, SLOW, str(stage.folder / "odd")) == {}
        return stage.decisions()["answered"] - before

    answered, passed = odd_questions()
    assert by_kernel(passed) == 0
    # Again where this machine stood still for longer than a lease: PowerDNS answers then.
    until(lambda: by_kernel(answered) >= len(answered))


def test_question_that_the_kernel_must_not_answer_reaches_powerdns_untouched(stage: FastStage) -> None:
    """TCP, a transfer, a long name, and questions for other addresses and ports."""
    before = stage.decisions()
    owner = f"_sip._udp.as.{ZONE}"
    dig = ("dig", "+norec", "+tries=1", "+time=5", "+short")
    assert "as.ims" in stage.client.run(*dig, f"@{FAST}", "+tcp", owner, "SRV").stdout
    assert "as.ims" in stage.client.run(*dig, f"@{SLOW}", owner, "SRV").stdout
    assert "status: NXDOMAIN" in stage.client.run("dig", f"@{FAST}", f"{'long.' * 40}{ZONE}", "A").stdout
    assert stage.decisions()["answered"] == before["answered"]
    assert stage.decisions()["long_name"] > before["long_name"]


def test_status_counts_by_name(stage: FastStage) -> None:
    def counts() -> tuple[int, int]:
        name = f"00000002.s.as.{ZONE}"
        (found,) = [row for row in stage.status()["asked"] if (row["name"], row["type"]) == (name, "A")]
        return found["answered"], found["passed"]

    answered, passed = counts()
    ask = ("dig", f"@{FAST}", "+tries=1", f"00000002.s.as.{ZONE}", "A")
    stage.client.run(*ask, "+nocookie")
    stage.client.run(*ask, "+cookie")
    assert counts() == (answered + 1, passed + 1)


def test_signed_zone_is_left_to_powerdns(stage: FastStage) -> None:
    stage.pdns.util("secure-zone", OTHER)
    until(lambda: not any(row["name"].endswith(OTHER) for row in stage.status()["asked"]))
    said = stage.client.run("dig", f"@{FAST}", "+dnssec", "+tries=1", f"voice.{OTHER}", "A").stdout
    assert "RRSIG" in said


def test_trace_tells_what_became_of_each_question(stage: FastStage) -> None:
    log = stage.folder / "trace"
    tracing = stage.server.start(str(built()), "trace", "--socket", str(stage.socket), log=log)
    try:
        name = f"00000002.s.as.{ZONE}"
        expected = (
            f"{CLIENT}#",
            f"{name} A answered",
            f"{name} A edns",
            f"nobody.{ZONE} A unknown_name",
        )

        def is_told() -> bool:
            """Asked until the tracing has begun."""
            ask = ("dig", f"@{FAST}", "+tries=1")
            for words in (
                (name, "A", "+nocookie"),
                (name, "A", "+cookie"),
                (f"nobody.{ZONE}", "A", "+nocookie"),
            ):
                stage.client.run(*ask, *words)
            text = log.read_text()
            return all(line in text for line in expected)

        until(is_told, told=log)
    finally:
        tracing.terminate()
        tracing.wait(30)
    assert json.loads(stage.command("status"))["decisions"]["edns"] > 0


def test_kernel_answers_for_https_and_svcb_and_leaves_aliases_to_powerdns(stage: FastStage) -> None:
    before = stage.decisions()["answered"]
    questions = [
        (f"www.{ZONE}", "HTTPS"),
        (f"_8443._https.alt.{ZONE}", "HTTPS"),
        (f"_dns.res.{ZONE}", "SVCB"),
    ]
    for name, kind in questions:
        said = stage.client.run("dig", f"@{FAST}", "+short", "+nocookie", name, kind).stdout
        assert "hint=" in said, name
    assert stage.decisions()["answered"] - before == len(questions)
    alias = stage.client.run("dig", f"@{FAST}", "+short", "+nocookie", OTHER, "HTTPS").stdout
    assert alias == f"0 www.{OTHER}.\n"
    assert stage.decisions()["answered"] - before == len(questions)
    until(lambda: {Question(*question) for question in questions} <= stage.link.asked.keys())


def test_status_view_and_metrics_tell_what_the_kernel_did(stage: FastStage) -> None:
    name = f"00000002.s.as.{ZONE}"
    before = stage.decisions()["answered"]
    stage.client.run("dig", f"@{FAST}", "+tries=1", "+nocookie", name, "A")
    until(lambda: stage.link.daemon and stage.link.daemon.decisions["answered"] > before)
    found = fastpath(stage.link)
    assert found is not None
    assert (found.problem, found.mode) == (None, "tc")
    assert [(interface.name, interface.attached) for interface in found.interfaces] == [("server", True)]
    assert found.decisions.keys() == stage.decisions().keys()
    (of_name,) = [row for row in found.asked if (row.name, row.type) == (name, "A")]
    text = exposed(fast=found)
    for line in (
        "rspdns_fastpath_up 1.0",
        f"rspdns_fastpath_names {len(stage.link._ready)}.0",
        f'rspdns_fastpath_decisions_total{{decision="answered"}} {found.decisions["answered"]}.0',
        'rspdns_fastpath_decisions_total{decision="limited_tc"} 0.0',
        'rspdns_fastpath_attached{interface="server"} 1.0',
        f'rspdns_fastpath_answered_total{{name="{name}",type="A"}} {of_name.answered}.0',
    ):
        assert f"\n{line}\n" in text, line
