"""The whole chain with programs not of ours at its ends: rsplib's, and those that read DNS."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, ZONE, other_pool
from tests.support.chain import SCTP_OWNER, SIP_PORTS, Chain
from tests.support.namespaces import Namespace, kill, own_namespace
from tests.support.stalls import Mark
from tests.support.waiting import until

_DNSPYTHON = """
import json, sys, dns.flags, dns.message, dns.query, dns.rcode, dns.rdatatype
found = []
for name, qtype, size, tcp in json.loads(sys.argv[1]):
    edns = {"use_edns": 0, "payload": size} if size else {}
    query = dns.message.make_query(name, qtype, flags=0, **edns)
    answer = (dns.query.tcp if tcp else dns.query.udp)(query, "127.0.0.1", timeout=30)
    sections = [
        [[dns.rdatatype.to_text(rrset.rdtype), one.to_text()] for rrset in section for one in rrset]
        for section in (answer.answer, answer.authority)
    ]
    truncated = bool(answer.flags & dns.flags.TC)
    found.append([dns.rcode.to_text(answer.rcode()), truncated, answer.edns >= 0, *sections])
print(json.dumps(found))
"""
NAME = f"as.{ZONE}"
SOA = f"SOA ns1.{ZONE}. hostmaster.{ZONE}. * 7200 900 1209600 1"


class Question(NamedTuple):
    """A question, and how it is asked."""

    name: str
    qtype: str
    size: int
    """The EDNS payload size; 0: without EDNS."""
    tcp: bool


@dataclass(frozen=True)
class Reading:
    """One program's reading of one answer; records are "TYPE data", sorted, the SOA's serial as "*"."""

    status: str
    is_truncated: bool
    has_edns: bool
    answer: tuple[str, ...]
    authority: tuple[str, ...]


def dig(namespace: Namespace, questions: Sequence[Question]) -> list[Reading]:
    """Ask with BIND's dig."""
    options = ["+noall", "+comments", "+answer", "+authority", "+norec", "+ignore", "+nocookie"]
    return [
        _from_text(namespace, ["dig", *options, "+tries=2", "+time=10"], question) for question in questions
    ]


def kdig(namespace: Namespace, questions: Sequence[Question]) -> list[Reading]:
    """Ask with Knot's kdig."""
    options = ["+noall", "+header", "+opt", "+answer", "+authority", "+norec", "+ignore"]
    return [
        _from_text(namespace, ["kdig", *options, "+retry=1", "+timeout=10"], question)
        for question in questions
    ]


def _from_text(namespace: Namespace, command: list[str], question: Question) -> Reading:
    edns = ["+edns", f"+bufsize={question.size}"] if question.size else ["+noedns"]
    transport = "+tcp" if question.tcp else "+notcp"
    said = namespace.run(*command, "@127.0.0.1", transport, *edns, question.name, question.qtype).stdout
    status = re.search(r"status: (\w+)", said)
    flags = re.search(r"flags: ?([a-z ]*);", said, re.IGNORECASE)
    counts = re.search(r"ANSWER: (\d+)[,;] AUTHORITY: (\d+)", said)
    assert status, said
    assert flags, said
    assert counts, said
    lines = [line for line in said.splitlines() if line and not line.startswith(";")]
    answers = int(counts[1])
    assert len(lines) == answers + int(counts[2]), said
    return Reading(
        status[1],
        "tc" in flags[1].lower().split(),
        re.search(r"udp( size)?: \d", said, re.IGNORECASE) is not None,
        _records(line.split(None, 4)[3:] for line in lines[:answers]),
        _records(line.split(None, 4)[3:] for line in lines[answers:]),
    )


def _records(found: Iterable[Sequence[str]]) -> tuple[str, ...]:
    texts = []
    for kind, data in found:
        words = re.sub(r"\s+", " ", data)
        if kind == "SOA":
            words = re.sub(r"^(\S+ \S+) \d+", r"\1 *", words)
        texts.append(f"{kind} {words}")
    return tuple(sorted(texts))


def dnspython(namespace: Namespace, questions: Sequence[Question]) -> list[Reading]:
    """Ask with dnspython."""
    said = namespace.run(sys.executable, "-c", _DNSPYTHON, json.dumps(questions))
    assert said.returncode == 0, said.stderr
    return [
        Reading(status, truncated, edns, _records(answer), _records(authority))
        for status, truncated, edns, answer, authority in json.loads(said.stdout)
    ]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain with three SIP servers of one agent, and an element of rsplib."""
    with own_namespace() as namespace:
        chain = Chain(namespace, tmp_path_factory.mktemp("interop"), other_pool("sctp", "s"))
        for port in SIP_PORTS:
            chain.start_sip(port)
        chain.start_sidecar()
        chain.start_rspserver("rspserver")
        chain.start()
        until(lambda: chain.targets_at(OWNER) == set(SIP_PORTS), told=chain.sidecar.log)
        until(lambda: len(chain.targets_at(SCTP_OWNER)) == 1, told=chain.folder / "rspserver.log")
        yield chain


def identifiers(chain: Chain) -> dict[int, str]:
    """The PE identifiers DNS shows of the SIP servers, by port."""
    return {
        int(line.split()[2]): line.split()[3].partition(".")[0] for line in chain.pdns.short(OWNER, "SRV")
    }


def listed(index: str, handle: str) -> set[tuple[str, str]]:
    """Identifier and endpoint of each element of a pool, in what hsdump printed."""
    pool = index.partition(f'Pool "{handle}"')[2].partition("+-- Pool")[0]
    found = re.findall(r"#\d+: \$([0-9a-f]{8})(?:.*\n)*?.*userT: \{([^}]*)\} (\d+/\w+)", pool)
    return {(identifier, f"{address} {port}") for identifier, address, port in found}


def test_an_element_of_rsplib_is_in_dns_and_out_when_it_is_killed(chain: Chain) -> None:
    before = chain.targets_at(SCTP_OWNER)
    second = chain.start_rspserver("second")
    until(lambda: len(chain.targets_at(SCTP_OWNER)) == 2, told=chain.folder / "second.log")
    (port,) = chain.targets_at(SCTP_OWNER) - before
    (record,) = [line for line in chain.pdns.short(SCTP_OWNER, "SRV") if line.split()[2] == str(port)]
    target = record.split()[3]
    assert re.fullmatch(rf"[0-9a-f]{{8}}\.s\.as\.{re.escape(ZONE)}\.", target)
    assert chain.pdns.short(target, "A") == [ADDRESS]
    assert (target[:8], f"{ADDRESS} {port}/SCTP") in listed(chain.registrars.hsdump(1), "sip-sctp")
    killed = Mark.now()
    kill(second)
    until(lambda: chain.targets_at(SCTP_OWNER) == before)
    assert killed.ran_s() < 1.5
    # The address of a target that has left is answered a little longer, for SRV answers under way.
    until(lambda: "status: NXDOMAIN" in chain.pdns.dig(target, "A"), told=chain.backend.log)
    assert chain.targets_at(OWNER) == set(SIP_PORTS)


def test_every_registrar_tells_hsdump_of_our_elements_what_dns_tells(chain: Chain) -> None:
    expected = {(identifier, f"{ADDRESS} {port}/UDP") for port, identifier in identifiers(chain).items()}
    assert len(expected) == 3
    for number in (1, 2, 3):
        index = chain.registrars.hsdump(number)
        assert f'Pool "{HANDLE}", Policy "LeastUsed", Protocol UDP' in index
        assert listed(index, HANDLE) == expected


@pytest.mark.parametrize("registrar", [3863, 3864, 3865])
def test_rsplibs_pool_user_finds_our_elements(chain: Chain, registrar: int) -> None:
    """rspterminal asks for one element. It speaks SCTP, not SIP, but its log tells whom it found."""
    user = subprocess.Popen(
        chain.namespace.command(
            *("rspterminal", f"-poolhandle={HANDLE}", f"-registrar={ADDRESS}:{registrar}", "-loglevel=7"),
            sctp=True,
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        time.sleep(1.5)
    finally:
        user.terminate()
        said, _ = user.communicate(timeout=60)
    said = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert "Successfully got response" in said, said
    pattern = r"Adding pool element to cache: \$([0-9a-f]{8})(?:.*\n)*?.*userT: \{([^}]*)\} (\d+)/UDP"
    found = {(int(port), identifier) for identifier, address, port in re.findall(pattern, said)}
    assert found, said
    assert found <= set(identifiers(chain).items())


def expectations(chain: Chain) -> dict[tuple[str, str], tuple[str, list[str], list[str]]]:
    """For each name and type: the status, the answer's records and the authority section's."""
    ours = identifiers(chain)
    target = f"{ours[5060]}.u.as.{ZONE}"
    naptr = [
        f'NAPTR 10 10 "s" "SIP+D2S" "" {SCTP_OWNER}.',
        f'NAPTR 10 10 "s" "SIP+D2U" "" {OWNER}.',
    ]
    srv = [f"SRV 0 1000 {port} {identifier}.u.as.{ZONE}." for port, identifier in ours.items()]
    return {
        (OWNER, "SRV"): ("NOERROR", srv, []),
        (NAME, "NAPTR"): ("NOERROR", naptr, []),
        (NAME, "A"): ("NOERROR", [f"A {ADDRESS}"], []),
        (target, "A"): ("NOERROR", [f"A {ADDRESS}"], []),
        (ZONE, "SOA"): ("NOERROR", [SOA], []),
        (ZONE, "NS"): ("NOERROR", [f"NS ns1.{ZONE}."], []),
        (NAME, "AAAA"): ("NOERROR", [], [SOA]),
        (target, "AAAA"): ("NOERROR", [], [SOA]),
        (f"_udp.as.{ZONE}", "SRV"): ("NOERROR", [], [SOA]),
        (f"nobody.{ZONE}", "SRV"): ("NXDOMAIN", [], [SOA]),
        (f"00000000.u.as.{ZONE}", "A"): ("NXDOMAIN", [], [SOA]),
        ("example.com", "A"): ("REFUSED", [], []),
    }


READERS = [dig, kdig, dnspython]


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
@pytest.mark.parametrize("read", READERS)
def test_our_answers_read_by_others(
    chain: Chain, read: Callable[[Namespace, Sequence[Question]], list[Reading]], tcp: bool
) -> None:
    """Whole at every size, never truncated."""
    expected = expectations(chain)
    questions = [Question(*asked, size, tcp) for asked in expected for size in (0, 512, 1232)]
    for question, reading in zip(questions, read(chain.namespace, questions), strict=True):
        status, answer, authority = expected[question.name, question.qtype]
        assert reading == Reading(
            status, False, question.size > 0, tuple(sorted(answer)), tuple(authority)
        ), question


@pytest.mark.parametrize("read", READERS)
def test_any_is_truncated_over_udp_and_whole_over_tcp(
    chain: Chain, read: Callable[[Namespace, Sequence[Question]], list[Reading]]
) -> None:
    """ANY over UDP is sent to TCP, PowerDNS's way of being no amplifier; there it tells all."""
    over_udp, over_tcp = read(
        chain.namespace, [Question(NAME, "ANY", 1232, False), Question(NAME, "ANY", 1232, True)]
    )
    assert (over_udp.status, over_udp.is_truncated, over_udp.answer) == ("NOERROR", True, ())
    assert (over_tcp.status, over_tcp.is_truncated) == ("NOERROR", False)
    assert {record.split()[0] for record in over_tcp.answer} == {"A", "NAPTR"}
