"""The bytes that a real PowerDNS puts on the wire from our answers, read by dig, kdig and dnspython."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend.making import TCP, UDP, ZONE, member, view, views, zone
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.pdns import Pdns
from tests.support.served import ScriptedBackend, Served, served, status
from tests.support.waiting import until

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


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(ZONES, TWO, tmp_path_factory.mktemp("pdns")) as made:
        yield made


@pytest.fixture
def backend(everything: Served) -> ScriptedBackend:
    if everything.backend.views is not TWO:
        everything.backend.publish(TWO)
        until(lambda: len(everything.pdns.short(OWNER, "SRV")) == 2)
    return everything.backend


@pytest.fixture
def pdns(everything: Served, backend: ScriptedBackend) -> Pdns:
    return everything.pdns


def soa_ttl(said: str) -> int:
    (line,) = [line for line in said.splitlines() if "\tSOA\t" in line]
    return int(line.split()[1])


def test_an_srv_answer_has_the_addresses_of_its_targets(pdns: Pdns) -> None:
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


def test_addresses_and_naptr_records_are_answered(pdns: Pdns) -> None:
    assert pdns.short(f"as.{ZONE}", "A") == ["10.0.0.1"]
    assert pdns.short(f"as.{ZONE}", "AAAA") == ["2001:db8::2"]
    assert pdns.short(f"00000002.u.as.{ZONE}", "AAAA") == ["2001:db8::2"]
    assert pdns.short(f"as.{ZONE}", "NAPTR") == [f'10 10 "s" "SIP+D2U" "" {OWNER}.']


def test_soa_and_ns_are_answered(pdns: Pdns) -> None:
    assert pdns.short(ZONE, "NS") == [f"ns1.{ZONE}."]
    (soa,) = pdns.short(ZONE, "SOA")
    mname, rname, serial, *_, minimum = soa.split()
    assert (mname, rname, minimum) == (f"ns1.{ZONE}.", f"hostmaster.{ZONE}.", "1")
    assert int(serial) > 1


def test_fixed_records_wildcards_and_referrals_are_answered(pdns: Pdns) -> None:
    assert pdns.short(f"info.{ZONE}", "TXT") == [r'"some text; and \"quotes\""']
    assert f"info.{ZONE}." in pdns.short(f"alias.{ZONE}", "TXT")
    assert pdns.short(f"anything.wild.{ZONE}", "MX") == ["10 mail.example.com."]
    referral = pdns.dig(f"host.sub.{ZONE}", "A")
    assert status(referral) == "NOERROR"
    assert " aa;" not in referral
    assert f"ns.sub.{ZONE}." in referral.partition("AUTHORITY SECTION")[2]


@pytest.mark.parametrize("name", [f"nobody.{ZONE}", f"0000dead.u.as.{ZONE}", f"x.{OWNER}"])
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
def test_a_pool_that_no_registrar_told_of_is_servfail(pdns: Pdns, name: str, qtype: str) -> None:
    assert status(pdns.dig(name, qtype)) == "SERVFAIL"
    assert status(pdns.dig(OWNER, "SRV")) == "NOERROR"


def test_a_zone_that_is_not_served_is_refused(pdns: Pdns) -> None:
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
        answer = dns.query.udp(query, "127.0.0.1", timeout=30)
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


def test_a_zone_is_transferred_once_it_is_wholly_known(pdns: Pdns, backend: ScriptedBackend) -> None:
    said = pdns.dig("+tcp", ZONE, "AXFR")
    assert "communications error" in said, "a zone that is not wholly known"
    assert "\tA\t" not in said
    backend.publish({**TWO, **views(view(handle="sip-tcp"))})
    said = pdns.dig("+tcp", "+noall", "+answer", ZONE, "AXFR")
    assert len([line for line in said.splitlines() if "\tSRV\t" in line]) == 2
    assert "10.0.1.2" in said


def test_the_backend_restarts(tmp_path: Path) -> None:
    with served(ZONES, TWO, tmp_path) as own:
        pdns, backend = own.pdns, own.backend
        again = ScriptedBackend(ZONES, tmp_path, [pdns.control])
        assert len(pdns.short(OWNER, "SRV")) == 2
        serial = int(pdns.short(ZONE, "SOA")[0].split()[2])
        backend.publish(TWO)
        backend._in_loop(backend.connector.close())
        try:
            until(lambda: status(pdns.dig(f"0000ffff.u.as.{ZONE}", "A")) == "SERVFAIL")
            again.start(views(view(member(2))))
            until(lambda: pdns.short(OWNER, "SRV") == [f"0 1000 5060 00000002.u.as.{ZONE}."])
            assert int(pdns.short(ZONE, "SOA")[0].split()[2]) > serial, "the serial went back"
        finally:
            again.stop()
        assert pdns.process is not None
        assert pdns.process.poll() is None


def test_garbage_on_the_connector_harms_nobody(pdns: Pdns, everything: Served) -> None:
    for garbage in (
        b"\x00\xff\n" * 100,
        b"{" * 200_000,
        b"[" * 60_000 + b"\n",
        b'{"method":"lookup"}\n',
        b"x",
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(str(everything.folder / "remote.sock"))
            try:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass
    assert len(pdns.short(OWNER, "SRV")) == 2


def test_clients_that_never_read_harm_nobody(pdns: Pdns, everything: Served) -> None:
    request = json.dumps({"method": "list", "parameters": {"zonename": ZONE}}).encode() + b"\n"
    clients = []
    try:
        for _ in range(20):
            client = socket.socket(socket.AF_UNIX)
            clients.append(client)
            client.setblocking(False)
            client.connect(str(everything.folder / "remote.sock"))
            try:
                while True:
                    client.send(request * 100)
            except BlockingIOError:
                pass
        assert len(pdns.short(OWNER, "SRV")) == 2
    finally:
        for client in clients:
            client.close()


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
        timeout=90,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
