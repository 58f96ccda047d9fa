"""PowerDNS denies names by the table of the backend: the same answers as without it, and no look-ups."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend.making import UDP, ZONE, member, view, views, zone
from tests.support.namespaces import own_namespace
from tests.support.pdns import Pdns
from tests.support.served import ScriptedBackend, Served, status
from tests.support.waiting import until

FIXED = """$TTL 3600
@ SOA ns1 hostmaster 1 7200 900 1209600 300
@ NS ns1
ns1 A 10.0.1.1
deep.down.here TXT "x"
alias CNAME ns1
*.wild A 10.0.1.2
closer.wild TXT "no wildcard below"
child NS ns.child
ns.child A 10.0.1.3
moved DNAME elsewhere.example.
"""
INNER = "$TTL 3600\n@ SOA ns hostmaster 1 7200 900 1209600 300\n@ NS ns\nns A 10.0.1.4\n"
OTHER = "$TTL 3600\n@ SOA ns hostmaster 1 7200 900 1209600 300\n@ NS ns\nns A 10.0.1.5\n* TXT wild\n"
OWNERS = (
    *("", "ns1", "here", "down.here", "deep.down.here", "alias", "wild", "*.wild", "closer.wild", "child"),
    *(
        "ns.child",
        "moved",
        "as",
        "_udp.as",
        "_sip._udp.as",
        "u.as",
        "00000001.u.as",
        "00000002.u.as",
        "inner",
    ),
)
BELOW = ("", "x", "x.y", "X.Y.z", "*", r"a\.b", r"a\\", ".".join("abcdefghij" * 8), "a" * 63)

ASKING = r"""
import random, re, socket, sys
import dns.flags, dns.message
owners, below, zone = sys.argv[1].split(","), sys.argv[2].split(","), sys.argv[3]
clients = []
for address in ("127.0.0.1", "127.0.0.2"):
    client = socket.socket(type=socket.SOCK_DGRAM)
    client.connect((address, 53))
    client.settimeout(5)
    clients.append(client)
names = [".".join(part for part in (label, owner, zone) if part) for owner in owners for label in below]
names += ["nobody.example", "example", "x." + "other.example", "other.example", "a.b.other.example"]
for name in names:
    for kind, edns in (("A", -1), ("TXT", 0), ("ANY", -1), ("DS", 0), ("SOA", 0)):
        query = dns.message.make_query(name, kind, use_edns=edns)
        told = []
        for client in clients:
            client.send(query.to_wire())
            data = client.recv(65535)
            answer = dns.message.from_wire(data)
            sections = [sorted(rrset.to_text() for rrset in section) for section in answer.sections]
            text = f"{answer.rcode()} {dns.flags.to_text(answer.flags)} {answer.edns} {sections}"
            told.append(re.sub(r"(hostmaster\.\S+) \d+", r"\1 SERIAL", text))
        print("same" if told[0] == told[1] else f"DIFFERENT {name} {kind}: {told}")
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Pdns]]:
    """A backend and two PowerDNS: one denies names by the table, the other one asks the backend."""
    folder: Path = tmp_path_factory.mktemp("denials")
    with own_namespace() as namespace:
        with_table = Pdns(namespace, folder)
        without = Pdns(namespace, folder, "without", "127.0.0.2", denials=False)
        zones = [
            zone(UDP, FIXED),
            zone("", INNER, name=f"inner.{ZONE}"),
            zone("", OTHER, name="other.example"),
        ]
        backend = ScriptedBackend(zones, folder, [with_table.control, without.control])
        backend.start(views(view(member(1))))
        try:
            with_table.start(ZONE)
            without.start(ZONE)
            yield Served(namespace, backend, with_table, folder), without
        finally:
            backend.stop()


def test_answers_are_the_same_as_without_the_table(served: tuple[Served, Pdns]) -> None:
    said = served[0].namespace.run(
        sys.executable, "-c", ASKING, ",".join(OWNERS), ",".join(BELOW), ZONE, timeout_s=120
    )
    lines = said.stdout.splitlines()
    assert len(lines) > 800, said.stderr
    different = [line for line in lines if line != "same"]
    assert not different, "\n".join(different[:20])


def test_a_name_that_does_not_exist_is_denied_without_a_look_up(served: tuple[Served, Pdns]) -> None:
    beside, without = served
    flood = [rf"{turn}.\000\255.{'a.' * 60}{ZONE}" for turn in range(10)]
    beside.pdns.dig(ZONE, "SOA")
    before = beside.backend.responder.queries["lookup"]
    for name in flood:
        assert status(beside.pdns.dig(name, "A")) == "NXDOMAIN"
    assert beside.backend.responder.queries["lookup"] - before < len(flood), (
        "only the SOA is asked for, if at all"
    )
    before = beside.backend.responder.queries["lookup"]
    assert status(without.dig(f"x.{'a.' * 60}{ZONE}", "A")) == "NXDOMAIN"
    assert beside.backend.responder.queries["lookup"] - before > 50, "what it costs otherwise"


def test_names_that_a_reload_brings_are_answered_within_seconds(served: tuple[Served, Pdns]) -> None:
    beside, _ = served
    zones = beside.backend.zones
    assert status(beside.pdns.dig(f"new.{ZONE}", "TXT")) == "NXDOMAIN"
    changed = [zone(UDP, f'{FIXED}new TXT "there"\n'), *zones[1:]]
    beside.backend.set_zones(changed, beside.backend.views)
    until(lambda: beside.pdns.short(f"new.{ZONE}", "TXT") == ['"there"'])
    beside.backend.set_zones(zones, beside.backend.views)
    until(lambda: status(beside.pdns.dig(f"new.{ZONE}", "TXT")) == "NXDOMAIN")


def test_the_backend_writes_the_table_alone(served: tuple[Served, Pdns]) -> None:
    """The backend never writes a program that PowerDNS runs."""
    files = {path.name for path in served[0].folder.glob("remote*")}
    assert files == {"remote.sock", "remote.sock.names"}


_SOA_LINE = f"Z {ZONE} 1 ns1.{ZONE}. hostmaster.{ZONE}. 7 7200 900 1209600 1\n= {ZONE}\n"
HOSTILE = {
    "ttl": f"Z {ZONE} ttl\n= {ZONE}\n",
    "soa": f"Z {ZONE} 1 x\n= {ZONE}\n",
    "no soa": f"= {ZONE}\n",
    "a program": 'os.execute("touch RAN")\nio.open("RAN", "w")\n',
    "too many bytes": _SOA_LINE + f"= {'a' * 5000}.{ZONE}\n" * 900,
    "too many lines": _SOA_LINE + "".join(f"= {turn}.{ZONE}\n" for turn in range(20_000)),
    "binary": "\0\n\0" * 1000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_broken_table_proves_nothing(served: tuple[Served, Pdns], case: str) -> None:
    beside, _ = served
    file = beside.folder / "remote.sock.names"
    whole = file.read_text()
    ran = beside.folder / "ran"
    file.write_text(f"{case:064}\n{HOSTILE[case].replace('RAN', str(ran))}")
    try:
        before = beside.backend.responder.queries["lookup"]
        end_s = time.monotonic() + 5
        while time.monotonic() < end_s and beside.backend.responder.queries["lookup"] < before + 60:
            said = beside.pdns.dig(f"x{time.monotonic_ns()}.a.b.c.d.{ZONE}", "A")
            assert status(said) == "NXDOMAIN"
            assert "SOA" in said
        assert beside.backend.responder.queries["lookup"] >= before + 60, "every thread asks the backend"
        assert not ran.exists()
    finally:
        file.write_text(whole)


def test_table_without_an_end_is_left_after_its_bound(served: tuple[Served, Pdns]) -> None:
    beside, _ = served
    file = beside.folder / "remote.sock.names"
    whole = file.read_text()
    file.unlink()
    file.symlink_to("/dev/zero")
    try:
        before = beside.backend.responder.queries["lookup"]
        end_s = time.monotonic() + 5
        while time.monotonic() < end_s and beside.backend.responder.queries["lookup"] < before + 60:
            assert status(beside.pdns.dig(f"x{time.monotonic_ns()}.a.b.c.d.{ZONE}", "A")) == "NXDOMAIN"
        assert beside.backend.responder.queries["lookup"] >= before + 60, "every thread asks the backend"
    finally:
        file.unlink()
        file.write_text(whole)


def test_a_signed_zone_is_denied_with_proofs(tmp_path: Path) -> None:
    with own_namespace() as namespace:
        pdns = Pdns(namespace, tmp_path, signed=True)
        backend = ScriptedBackend([zone(UDP, FIXED)], tmp_path, [pdns.control])
        backend.start(views(view(member(1))))
        try:
            pdns.start(ZONE)
            assert status(pdns.dig(f"x.{ZONE}", "A", "+dnssec")) == "NXDOMAIN"
            pdns.util("secure-zone", ZONE)
            until(lambda: " NSEC " in pdns.dig(f"x.{ZONE}", "A", "+dnssec").replace("\t", " "))
            pdns.util("disable-dnssec", ZONE)
            until(lambda: "RRSIG" not in pdns.dig(f"x.{ZONE}", "A", "+dnssec"))
            assert status(pdns.dig(f"x.{ZONE}", "A", "+dnssec")) == "NXDOMAIN"
        finally:
            backend.stop()
