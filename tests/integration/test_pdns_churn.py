"""While members come and go, every answer of a signed zone is of one moment: denials prove what they say."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import dns.message
import dns.rcode
import pytest
from pool_user import Member

from tests.backend.making import ZONE, member, view, views
from tests.support.meanwhile import meanwhile
from tests.support.proofs import what_is_wrong
from tests.support.served import Served
from tests.support.signed_zone import OWNER
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("two_members")


def test_a_change_is_served_at_once(signed: Served) -> None:
    """Also what is asked about it anew: PowerDNS has to learn of another moment, and not when its caches run
    out, after 1 to 2 s."""
    took_s = []
    for port in range(5070, 5077):
        until(lambda: signed.pdns.short(f"nobody.{ZONE}", "SOA") == [])
        began_s = time.monotonic()
        extra = member(3) if port % 2 else member(4)
        signed.backend.publish(views(view(member(1, port=port), extra), view(handle="sip-tcp")))
        until(lambda port=port: any(f" {port} " in record for record in signed.pdns.short(OWNER, "SRV")))  # type: ignore[misc]
        took_s.append(time.monotonic() - began_s)
    assert median(took_s) < 2, took_s


@contextmanager
def churn(signed: Served) -> Iterator[list[int]]:
    """Members 3 to 5 come and go, with IPv6 addresses and without; gives the changes so far."""
    changes: list[int] = []

    def change() -> None:
        changes.append(len(changes))
        extra = [
            member(identifier, *([f"2001:db8::{identifier}"] if len(changes) % 3 == 0 else []))
            for identifier in range(3, 3 + len(changes) % 4)
        ]
        now = views(view(member(1), member(2, "2001:db8::2"), *extra), view(handle="sip-tcp"))
        signed.backend.publish(now)

    with meanwhile(change, lambda: 0.02):
        yield changes


@pytest.mark.parametrize("denial", ["nsec", "nsec3"])
def test_every_answer_validates_while_members_come_and_go(signed: Served, denial: str) -> None:
    signed.pdns.util(*(["unset-nsec3", ZONE] if denial == "nsec" else ["set-nsec3", ZONE, "1 0 0 -"]))
    with churn(signed) as changes:
        for turn in range(12):
            for question in (
                (OWNER, "SRV"),
                (f"as.{ZONE}", "A"),
                (f"as.{ZONE}", "MX"),
                (f"no{turn}.{ZONE}", "A"),
                (f"{turn + 9:08x}.u.as.{ZONE}", "A"),
            ):
                said = signed.delv(*question)
                assert "fully validated" in said, (question, said)
    assert len(changes) > 20


def nothing_is_wrong(lines: Sequence[str], fewest: int = 20) -> None:
    """Judge answers, in hexadecimal; those that are the same but for their identifier once."""
    different = {line[4:]: line for line in lines}
    answers = [dns.message.from_wire(bytes.fromhex(line)) for line in different.values()]
    answers = [answer for answer in answers if answer.rcode() != dns.rcode.SERVFAIL]  # a busy machine's
    assert len(answers) > fewest, (len(lines), lines[:3])
    problems = Counter(
        f"{answer.question[0]}: {problem}"
        for answer in answers
        if (problem := what_is_wrong(answer)) is not None
    )
    assert not problems, (len(answers), problems)


ASKING = """
import socket, sys, time
import dns.message
questions = [
    dns.message.make_query(*question.split(), want_dnssec=True, payload=1232).to_wire()
    for question in sys.argv[2:]
]
client = socket.socket(type=socket.SOCK_DGRAM)
client.connect(("127.0.0.1", 53))
client.settimeout(3)
end_s = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end_s:
    for question in questions:
        client.send(question)
        print(client.recv(4096).hex())
"""


@pytest.mark.exact
@pytest.mark.parametrize("denial", ["nsec", "nsec3"])
def test_a_member_that_leaves_is_denied_as_it_was_asked_for(signed: Served, denial: str) -> None:
    """PowerDNS may know from before that its name exists, and asks for the proof when it does no more."""
    signed.pdns.util(*(["unset-nsec3", ZONE] if denial == "nsec" else ["set-nsec3", ZONE, "1 0 0 -"]))
    targets = [f"{identifier:08x}.u.as.{ZONE}" for identifier in (3, 4, 5)]
    questions = [f"{target} {kind}" for target in targets for kind in ("A", "AAAA", "MX")]
    questions += [f"as.{ZONE} {kind}" for kind in ("AAAA", "MX")]
    questions += [f"x.{target} A" for target in targets]
    with churn(signed):
        said = signed.namespace.run(sys.executable, "-c", ASKING, "1.5", *questions)
    nothing_is_wrong(said.stdout.split())


JOIN_EVERY_S = 0.01
ASKING_FOR_NEWCOMERS = """
import socket, sys, time
import dns.message
seconds, zone, every_s, turn = float(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
client = socket.socket(type=socket.SOCK_DGRAM)
client.connect(("127.0.0.1", 53))
client.settimeout(3)
end_s = time.monotonic() + seconds
while time.monotonic() < end_s:
    turn += 1
    name = f"{int(time.monotonic() / every_s) % 2**28 + turn % 3:08x}.u.as.{zone}"
    questions = (name, "A"), (name, "AAAA"), (f"x.{name}", "A"), (name, "MX"), (f"as.{zone}", "AAAA")
    name, kind = questions[turn % len(questions)]
    client.send(dns.message.make_query(name, kind, want_dnssec=True, payload=1232).to_wire())
    print(client.recv(4096).hex())
"""


@contextmanager
def newcomers(signed: Served) -> Iterator[None]:
    """Every `JOIN_EVERY_S` one comes that was never there, named by the time; some have an IPv6 address."""

    def newcomer(number: int) -> Member:
        dual = [f"2001:db8::{1 + number % 99}"] if number % 7 < 2 else []
        return member(number, f"10.1.{number // 100 % 100}.{number % 100}", *dual)

    def change() -> None:
        number = int(time.monotonic() / JOIN_EVERY_S) % 2**28
        newest, other = newcomer(number), newcomer(number - 1)
        signed.backend.publish(views(view(member(1), newest, other), view(handle="sip-tcp")))

    with meanwhile(change, lambda: JOIN_EVERY_S - time.monotonic() % JOIN_EVERY_S):
        yield


@pytest.mark.exact
@pytest.mark.parametrize("denial", ["nsec", "nsec3"])
def test_a_member_that_joins_while_it_is_denied(signed: Served, denial: str) -> None:
    """Several threads of PowerDNS are asked for who is about to come: what one learned, the others know."""
    signed.pdns.util(*(["unset-nsec3", ZONE] if denial == "nsec" else ["set-nsec3", ZONE, "1 0 0 -"]))
    command = [sys.executable, "-c", ASKING_FOR_NEWCOMERS, "4", ZONE, str(JOIN_EVERY_S)]
    with newcomers(signed), ThreadPoolExecutor() as askers:
        said = list(askers.map(lambda turn: signed.namespace.run(*command, str(turn)), range(4)))
    nothing_is_wrong([line for done in said for line in done.stdout.split()])


ASKING_UNTIL_TOLD = """
import pathlib, socket, sys
import dns.message
client = socket.socket(type=socket.SOCK_DGRAM)
client.connect(("127.0.0.1", 53))
client.settimeout(1)
turn = 0
while not pathlib.Path(sys.argv[1], "stop").exists():
    turn += 1
    pathlib.Path(sys.argv[1], "asking").touch()
    for question in sys.argv[2:]:
        name, kind = question.replace("no.", f"no{turn % 50}.").split()
        client.send(dns.message.make_query(name, kind, want_dnssec=True, payload=1232).to_wire())
        try:
            print(client.recv(4096).hex())
        except TimeoutError:
            pass
"""


def test_a_key_and_the_kind_of_denial_change_while_it_is_asked(signed: Served, tmp_path: Path) -> None:
    """A key is rolled over, the parent is told of it by CDS, and denials go over to NSEC3 and back."""
    pdns, stop = signed.pdns, tmp_path / "stop"
    questions = [f"{OWNER} SRV", f"as.{ZONE} MX", f"no.{ZONE} A", f"{ZONE} CDS"]

    def validate() -> list[str]:
        said = []
        while not stop.exists():
            said += [signed.delv(*question.split()) for question in questions]
        return said

    def identifiers() -> list[str]:
        told = pdns.util("show-zone", ZONE).splitlines()
        return sorted((line.split()[2] for line in told if line.startswith("ID = ")), key=int)

    pdns.util("unset-nsec3", ZONE)
    pdns.util("add-zone-key", ZONE, "ksk", "inactive", "published", "ecdsa256")
    until(lambda: len(pdns.short(ZONE, "DNSKEY")) == 2)
    signed.trust(ZONE)
    old, new = identifiers()
    with ThreadPoolExecutor() as threads:
        command = [sys.executable, "-c", ASKING_UNTIL_TOLD, str(tmp_path), *questions]
        asking = threads.submit(signed.namespace.run, *command)
        validating = threads.submit(validate)
        try:
            until((tmp_path / "asking").exists)
            pdns.util("activate-zone-key", ZONE, new)
            pdns.util("set-nsec3", ZONE, "1 0 0 -")
            pdns.util("set-publish-cds", ZONE)
            until(lambda: len(pdns.short(ZONE, "CDS")) == 2)
            pdns.util("set-nsec3", ZONE, "1 0 2 abcd")
            pdns.util("deactivate-zone-key", ZONE, old)
            pdns.util("unset-publish-cds", ZONE)
            pdns.util("remove-zone-key", ZONE, old)
            until(lambda: len(pdns.short(ZONE, "DNSKEY")) == 1)
            pdns.util("unset-nsec3", ZONE)
            until(lambda: "\tNSEC\t" in pdns.dig("+dnssec", f"nobody-at-all.{ZONE}", "A"))
        finally:
            stop.touch()
        nothing_is_wrong(asking.result().stdout.split(), len(questions))
        said = [verdict for verdict in validating.result() if "timed out" not in verdict]
    signed.trust(ZONE)
    assert not [verdict for verdict in said if "fully validated" not in verdict]
    assert len(said) >= len(questions)
