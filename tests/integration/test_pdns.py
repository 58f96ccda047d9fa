"""What a real PowerDNS puts on the wire from our answers, read by dig, kdig and dnspython."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rspdns.views import PoolView

from tests.backend.making import TCP, UDP, ZONE, member, view, views, zone
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.pdns import Pdns
from tests.support.scripted_backend import ScriptedBackend
from tests.support.slow_connector import SlowConnector

OWNER = f"_sip._udp.as.{ZONE}"
FIXED = """
$TTL 3600
@      SOA   ns1 hostmaster 1 7200 900 1209600 300
@      NS    ns1
ns1    A     10.0.1.1
info   TXT   "some text; and \\"quotes\\""
alias  CNAME info
*.wild MX    10 mail.example.com.
sub    NS    ns.sub
ns.sub A     10.0.1.9
a.b.c  A     10.0.1.2
"""
NOT_KNOWN = TCP.replace('"as"', '"other"')
ZONES = [zone(UDP + NOT_KNOWN, FIXED)]
TWO = views(view(member(1), member(2, "2001:db8::2")))


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[ScriptedBackend]:
    made = ScriptedBackend(ZONES, tmp_path, [tmp_path / "pdns" / "pdns.controlsocket"])
    made.start(TWO)
    yield made
    made.stop()


@pytest.fixture
def pdns(backend: ScriptedBackend, namespace: Namespace, tmp_path: Path) -> Pdns:
    made = Pdns(namespace, tmp_path)
    made.start(ZONE)
    return made


def until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "did not happen"
        time.sleep(0.01)


def status(said: str) -> str:
    return said.partition("status: ")[2].partition(",")[0]


def soa_ttl(said: str) -> int:
    (line,) = [line for line in said.splitlines() if "\tSOA\t" in line]
    return int(line.split()[1])


def test_srv_with_the_addresses_of_its_targets(pdns: Pdns) -> None:
    said = pdns.dig(OWNER, "SRV")
    assert status(said) == "NOERROR"
    assert " aa;" in said
    assert pdns.short(OWNER, "SRV") == [
        f"0 1000 5060 00000001.u.as.{ZONE}.",
        f"0 1000 5060 00000002.u.as.{ZONE}.",
    ]
    additional = said.partition("ADDITIONAL SECTION")[2]
    assert "\tA\t10.0.0.1" in additional
    assert "\tAAAA\t2001:db8::2" in additional


def test_addresses_and_naptr(pdns: Pdns) -> None:
    assert pdns.short(f"as.{ZONE}", "A") == ["10.0.0.1"]
    assert pdns.short(f"as.{ZONE}", "AAAA") == ["2001:db8::2"]
    assert pdns.short(f"00000002.u.as.{ZONE}", "AAAA") == ["2001:db8::2"]
    assert pdns.short(f"as.{ZONE}", "NAPTR") == [f'10 10 "s" "SIP+D2U" "" {OWNER}.']


def test_soa_and_ns(pdns: Pdns) -> None:
    assert pdns.short(ZONE, "NS") == [f"ns1.{ZONE}."]
    (soa,) = pdns.short(ZONE, "SOA")
    mname, rname, serial, *_, minimum = soa.split()
    assert (mname, rname, minimum) == (f"ns1.{ZONE}.", f"hostmaster.{ZONE}.", "1")
    assert int(serial) > 1


def test_fixed_records(pdns: Pdns) -> None:
    assert pdns.short(f"info.{ZONE}", "TXT") == [r'"some text; and \"quotes\""']
    assert f"info.{ZONE}." in pdns.short(f"alias.{ZONE}", "TXT")
    assert pdns.short(f"anything.wild.{ZONE}", "MX") == ["10 mail.example.com."]
    referral = pdns.dig(f"host.sub.{ZONE}", "A")
    assert status(referral) == "NOERROR"
    assert " aa;" not in referral
    assert f"ns.sub.{ZONE}." in referral.partition("AUTHORITY SECTION")[2]


@pytest.mark.parametrize("name", [f"nobody.{ZONE}", f"00000003.u.as.{ZONE}", f"x.{OWNER}"])
def test_no_such_name(pdns: Pdns, name: str) -> None:
    said = pdns.dig(name, "A")
    assert status(said) == "NXDOMAIN"
    assert soa_ttl(said) == 1, "a server that comes back must not stay hidden"


@pytest.mark.parametrize(
    ("name", "qtype"),
    [
        (OWNER, "A"),
        (f"as.{ZONE}", "MX"),
        (ZONE, "A"),
        (f"_udp.as.{ZONE}", "A"),
        (f"u.as.{ZONE}", "SRV"),
        (f"b.c.{ZONE}", "A"),
        (f"00000001.u.as.{ZONE}", "AAAA"),
    ],
)
def test_the_name_is_there_but_not_this_type(pdns: Pdns, name: str, qtype: str) -> None:
    said = pdns.dig(name, qtype)
    assert status(said) == "NOERROR"
    assert "ANSWER: 0" in said
    assert soa_ttl(said) == 1


@pytest.mark.parametrize(
    ("name", "qtype"),
    [
        (f"_sip._tcp.other.{ZONE}", "SRV"),
        (f"other.{ZONE}", "A"),
        (f"00000001.t.other.{ZONE}", "A"),
    ],
)
def test_what_nobody_knows_is_servfail(pdns: Pdns, name: str, qtype: str) -> None:
    assert status(pdns.dig(name, qtype)) == "SERVFAIL"
    assert status(pdns.dig(OWNER, "SRV")) == "NOERROR"


def test_another_zone_is_refused(pdns: Pdns) -> None:
    assert status(pdns.dig("example.com", "A")) == "REFUSED"


def test_the_case_of_the_question_comes_back(pdns: Pdns) -> None:
    said = pdns.dig(f"_SIP._uDp.aS.{ZONE}", "SRV")
    assert f"_SIP._uDp.aS.{ZONE}." in said.partition("ANSWER SECTION")[2]


@pytest.mark.parametrize("size", [512, 1232])
def test_ten_members_are_whole_in_any_size(pdns: Pdns, backend: ScriptedBackend, size: int) -> None:
    backend.publish(views(view(*(member(number) for number in range(1, 11)))))
    until(lambda: len(pdns.short(OWNER, "SRV")) > 2)
    for program in ("dig", "kdig"):
        options = ["+norec", f"+bufsize={size}", "+ignore"]
        said = pdns.namespace.run(program, "@127.0.0.1", *options, OWNER, "SRV").stdout
        assert " tc" not in said.partition("\n\n")[0].lower(), said
        assert len([line for line in said.splitlines() if "\tSRV\t" in line]) >= 5


def test_dnspython_reads_every_type(pdns: Pdns) -> None:
    program = f"""
import json, dns.message, dns.query
found = {{}}
for name, qtype in {[(OWNER, "SRV"), (f"as.{ZONE}", "NAPTR"), (f"as.{ZONE}", "A"), (ZONE, "SOA")]!r}:
    for size in (512, 1232):
        query = dns.message.make_query(name, qtype, use_edns=0, payload=size)
        answer = dns.query.udp(query, "127.0.0.1", timeout=5)
        found[f"{{qtype}} {{size}}"] = sum(len(rrset) for rrset in answer.answer)
print(json.dumps(found))
"""
    said = pdns.namespace.run(sys.executable, "-c", program)
    found = json.loads(said.stdout or said.stderr)
    assert found == {
        f"{qtype} {size}": count
        for qtype, count in (("SRV", 2), ("NAPTR", 1), ("A", 1), ("SOA", 1))
        for size in (512, 1232)
    }


def test_a_change_is_served_soon_and_the_serial_moves(pdns: Pdns, backend: ScriptedBackend) -> None:
    before = int(pdns.short(ZONE, "SOA")[0].split()[2])
    assert len(pdns.short(OWNER, "SRV")) == 2
    began_s = time.monotonic()
    backend.publish(views(view(member(2))))
    until(lambda: pdns.short(OWNER, "SRV") == [f"0 1000 5060 00000002.u.as.{ZONE}."])
    took_s = time.monotonic() - began_s
    assert took_s < 1, "slower than the caches run out: the purge does not work"
    until(lambda: int(pdns.short(ZONE, "SOA")[0].split()[2]) > before)
    assert pdns.short(f"00000001.u.as.{ZONE}", "A") == []


def test_a_zone_transfer(pdns: Pdns, backend: ScriptedBackend) -> None:
    said = pdns.dig("+tcp", ZONE, "AXFR")
    assert "communications error" in said, "a zone that is not wholly known"
    assert "\tA\t" not in said
    backend.publish({**TWO, **views(view(handle="sip-tcp"))})
    said = pdns.dig("+tcp", "+noall", "+answer", ZONE, "AXFR")
    assert len([line for line in said.splitlines() if "\tSRV\t" in line]) == 2
    assert "10.0.1.2" in said


def test_a_new_zone_is_served_at_once(pdns: Pdns, backend: ScriptedBackend) -> None:
    assert status(pdns.dig("new.example", "SOA")) == "REFUSED"
    backend.set_zones([*ZONES, zone("", FIXED, name="new.example")], TWO)
    until(lambda: status(pdns.dig("new.example", "SOA")) == "NOERROR")
    assert pdns.short("ns1.new.example", "A") == ["10.0.1.1"]


def test_the_backend_restarts(pdns: Pdns, backend: ScriptedBackend, tmp_path: Path) -> None:
    again = ScriptedBackend(ZONES, tmp_path, [pdns.control])
    assert len(pdns.short(OWNER, "SRV")) == 2
    serial = int(pdns.short(ZONE, "SOA")[0].split()[2])
    backend.publish(TWO)
    backend._in_loop(backend.connector.close())
    try:
        until(lambda: status(pdns.dig("x.not-cached." + ZONE, "A")) == "SERVFAIL")
        again.start(views(view(member(2))))
        until(lambda: pdns.short(OWNER, "SRV") == [f"0 1000 5060 00000002.u.as.{ZONE}."])
        assert int(pdns.short(ZONE, "SOA")[0].split()[2]) > serial, "the serial went back"
    finally:
        again.stop()
    assert pdns.process is not None
    assert pdns.process.poll() is None


def test_garbage_on_the_connector_harms_nobody(pdns: Pdns, tmp_path: Path) -> None:
    for garbage in (
        b"\x00\xff\n" * 100,
        b"{" * 200_000,
        b"[" * 60_000 + b"\n",
        b'{"method":"lookup"}\n',
        b"x",
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(tmp_path / "remote.sock"))
            try:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass
    assert len(pdns.short(OWNER, "SRV")) == 2


def test_clients_that_never_read_harm_nobody(pdns: Pdns, tmp_path: Path) -> None:
    request = json.dumps({"method": "list", "parameters": {"zonename": ZONE}}).encode() + b"\n"
    clients = []
    try:
        for _ in range(20):
            client = socket.socket(socket.AF_UNIX)
            clients.append(client)
            client.setblocking(False)
            client.connect(str(tmp_path / "remote.sock"))
            try:
                while True:
                    client.send(request * 100)
            except BlockingIOError:
                pass
        assert len(pdns.short(OWNER, "SRV")) == 2
    finally:
        for client in clients:
            client.close()


def test_the_same_backend_serves_two_powerdns(
    backend: ScriptedBackend, namespace: Namespace, tmp_path: Path
) -> None:
    first, second = Pdns(namespace, tmp_path), Pdns(namespace, tmp_path, "pdns2", "127.0.0.2")
    for one in (first, second):
        one.start(ZONE)
    backend.publish(views(view(member(2))))
    for one in (first, second):
        until(lambda one=one: len(one.short(OWNER, "SRV")) == 1)  # type: ignore[misc]


def test_a_stuck_control_socket_holds_up_only_its_own(namespace: Namespace, tmp_path: Path) -> None:
    """PowerDNS reads one control client after the other; one that says nothing holds up all."""
    first, second = Pdns(namespace, tmp_path), Pdns(namespace, tmp_path, "pdns2", "127.0.0.2")
    backend = ScriptedBackend(ZONES, tmp_path, [first.control, second.control])
    backend.start(TWO)
    try:
        for one in (first, second):
            one.start(ZONE)
        with socket.socket(socket.AF_UNIX) as idle:
            idle.connect(str(first.control))
            time.sleep(0.1)
            backend.publish(views(view(member(9))))
            nine = [f"0 1000 5060 00000009.u.as.{ZONE}."]
            until(lambda: second.short(OWNER, "SRV") == nine, 1)
            until(lambda: backend.purger.sockets[0].problem)
        until(lambda: backend.purger.sockets[0].problem is None)
        until(lambda: first.short(OWNER, "SRV") == nine, 4)
    finally:
        backend.stop()


def test_powerdns_does_not_start_without_the_backend(namespace: Namespace, tmp_path: Path) -> None:
    """Why the drop-in orders them; if this changes, the drop-in and the documents can too."""
    made = Pdns(namespace, tmp_path)
    with pytest.raises(AssertionError):
        made.start(ZONE)


def test_the_example_configuration_is_taken_by_powerdns() -> None:
    example = REPOSITORY / "pdns-config" / "examples"
    said = subprocess.run(
        ["pdns_server", f"--config-dir={example}", "--config=check"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr


LOAD = """
import socket, sys, time
import dns.message
questions = [dns.message.make_query(name, "SRV").to_wire() for name in sys.argv[1:]]
client = socket.socket(type=socket.SOCK_DGRAM)
client.connect(("127.0.0.1", 53))
client.settimeout(1)
while True:
    for question in questions:
        for _ in range(20):
            client.send(question)
    try:
        for _ in range(20 * len(questions)):
            client.recv(4096)
    except OSError:
        pass
    time.sleep(0.002)
"""


def test_no_old_answer_outlives_the_last_purge(
    backend: ScriptedBackend, namespace: Namespace, tmp_path: Path
) -> None:
    """A look-up under way during a purge puts the old answer back; the repeats must remove it."""
    slow = SlowConnector(tmp_path / "slow.sock", tmp_path / "remote.sock", delay_s=0.002)
    pdns = Pdns(namespace, tmp_path, remote="slow.sock")
    try:
        pdns.start(ZONE)
        namespace.start(sys.executable, "-c", LOAD, OWNER)
        time.sleep(0.5)
        for change in range(40):
            backend.publish(views(view(member(1))))
            time.sleep(0.003 + change % 10 / 1000)  # the look-ups that this change brings are under way
            backend.publish(views(view(member(100 + change))))
            time.sleep(0.2)
            assert pdns.short(OWNER, "SRV") == [f"0 1000 5060 {100 + change:08x}.u.as.{ZONE}."]
    finally:
        slow.close()


def test_a_thousand_members_change_at_once(
    backend: ScriptedBackend, namespace: Namespace, tmp_path: Path
) -> None:
    pools = "".join(
        UDP.replace("sip-udp", f"p{number}").replace('"as"', f'"as{number}"') for number in range(100)
    )
    made = Pdns(namespace, tmp_path)

    def everyone(shift: int) -> dict[str, PoolView]:
        of_pools = (
            view(*(member(shift + one, f"10.0.{number}.{one + 1}") for one in range(10)), handle=f"p{number}")
            for number in range(100)
        )
        return views(*of_pools)

    backend.set_zones([zone(pools, FIXED, head="ttl = 60")], everyone(0))
    made.start(ZONE)
    asked = [f"_sip._udp.as{number}.{ZONE}" for number in (0, 50, 99)]
    for owner in asked:
        assert all(line.split()[3].startswith("0000000") for line in made.short(owner, "SRV"))
    backend.publish(everyone(0x1000))
    changed_s = time.monotonic()
    until(lambda: all("00001" in line for owner in asked for line in made.short(owner, "SRV")))
    assert time.monotonic() - changed_s < 10, "slower than the packet cache runs out"
