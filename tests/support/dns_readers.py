"""Three programs that read DNS answers, none of them ours: dig, kdig, dnspython. All say it the same way."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.namespaces import Namespace


class Question(NamedTuple):
    """What to ask, and how."""

    name: str
    qtype: str
    size: int
    """The EDNS payload size; 0: without EDNS."""
    tcp: bool


@dataclass(frozen=True)
class Reading:
    """What one program read in one answer; records are "TYPE data", sorted, the SOA's serial as "*"."""

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


def dnspython(namespace: Namespace, questions: Sequence[Question]) -> list[Reading]:
    """Ask with dnspython."""
    said = namespace.run(sys.executable, "-c", _DNSPYTHON, json.dumps(questions))
    assert said.returncode == 0, said.stderr
    return [
        Reading(status, truncated, edns, _records(answer), _records(authority))
        for status, truncated, edns, answer, authority in json.loads(said.stdout)
    ]
