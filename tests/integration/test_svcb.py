"""HTTPS and SVCB records: read by dig, kdig, delv, dnspython and Chromium; whole at 512 bytes; signed."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.rdatatype
import dns.rdtypes.svcbbase
import pytest
from pool_user import Member, PoolView

from rserpool import LeastUsed, Protocol
from tests.backend.making import FIXED, ZONE, member, view, views, zone
from tests.support.certificates import openssl
from tests.support.namespaces import REPOSITORY
from tests.support.pages import blocks
from tests.support.served import Served, served, status
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs/how-to/clients/web-servers.md").read_text()
POOL = blocks(PAGE, "toml")[0]
WITH_ALIAS = POOL.replace('"h2"] }', '"h2"], apex_alias = true }')
NAME = f"www.{ZONE}"
SERVICE = f"_https._tcp.{NAME}"
OTHERS = """
[[pool]]
handle = "alt"
service = "_alt._tcp"
name = "alt"
accept = ["10.20.0.0/16", "2001:db8::/32"]
svcb = { alpn = ["http/1.1", "h2"], url_port = 8443 }
[[pool]]
handle = "dns"
service = "_domain-s._tcp"
name = "res"
accept = ["10.20.0.0/16", "2001:db8::/32"]
svcb = { alpn = ["dot"], scheme = "dns" }
[[pool]]
handle = "empty"
service = "_https._tcp"
name = "empty"
accept = ["10.20.0.0/16"]
when_empty = "nodata"
svcb = { alpn = ["h2"] }
"""
BUSY = LeastUsed(0.96)


def target(number: int) -> str:
    return f"{number:08x}.web.{NAME}."


def web(number: int, *addresses: str, port: int = 443, policy: LeastUsed = LeastUsed(0)) -> Member:  # noqa: B008 - frozen
    own = addresses or (f"10.20.0.{number}",)
    return member(number, *own, port=port, policy=policy, protocol=Protocol.TCP)


def pools(*members: Member) -> dict[str, PoolView]:
    return views(
        view(*members, handle="web"),
        view(web(1, "10.20.1.1", "2001:db8::1", port=8443), handle="alt"),
        view(web(1, "2001:db8::2", port=853), handle="dns"),
        view(handle="empty"),
    )


OF_PAGE = pools(web(1), web(2, port=8443), web(3, policy=BUSY))
SAID_ON_PAGE = [line.strip() for line in PAGE.splitlines() if re.match(r"[12] 0000000", line)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A PowerDNS that answers for the pool of the page, with an alias at the apex, and for other pools."""
    with served([zone(WITH_ALIAS + OTHERS)], OF_PAGE, tmp_path_factory.mktemp("svcb")) as made:
        yield made


def shown(served_: Served, *members: Member) -> None:
    """Have these members in DNS, and no others."""
    served_.backend.publish(pools(*members))
    wanted = sorted(str(each.port) for each in members)
    until(lambda: sorted(record.split()[2] for record in served_.pdns.short(SERVICE, "SRV")) == wanted)


def test_dig_and_kdig_read_the_records_of_the_page(made: Served) -> None:
    shown(made, *OF_PAGE["web"].members)
    commands = [shlex.split(line) for line in re.findall(r"^(?:    |\$ )(k?dig .*)$", PAGE, re.MULTILINE)]
    assert [command[0] for command in commands] == ["dig", "kdig", "dig"]
    of_dig, of_kdig, of_apex = (
        sorted(made.namespace.run(name, "@127.0.0.1", *words).stdout.splitlines())
        for name, _, *words in commands
    )
    assert of_dig == SAID_ON_PAGE
    assert of_kdig == [line.replace('"', "") for line in SAID_ON_PAGE]
    assert of_apex == [f"0 {NAME}."]
    assert f"0 {NAME}." in PAGE


def test_last_record_is_that_of_the_pool_if_every_server_listens_at_the_port_of_the_url(made: Served) -> None:
    shown(made, web(1), web(2, "10.20.0.2", "2001:db8::2"))
    records = [
        f'1 {target(1)} alpn="h3,h2" ipv4hint=10.20.0.1',
        f'1 {target(2)} alpn="h3,h2" ipv4hint=10.20.0.2 ipv6hint=2001:db8::2',
    ]
    until(lambda: made.pdns.short(NAME, "HTTPS") == [*records, '2 . alpn="h3,h2"'])
    shown(made, web(1), web(2, "10.20.0.2", "2001:db8::2", port=444))
    records[1] = records[1].replace(" ipv4hint", " port=444 ipv4hint")
    until(lambda: made.pdns.short(NAME, "HTTPS") == records)


def test_other_ports_and_services_have_names_of_their_own(made: Served) -> None:
    own = f"alt.{ZONE}."
    assert made.pdns.short(f"_8443._https.{own}", "HTTPS") == [
        f'1 00000001.alt.{own} alpn="http/1.1,h2" ipv4hint=10.20.1.1 ipv6hint=2001:db8::1',
        f'2 {own} alpn="http/1.1,h2"',
    ]
    assert made.pdns.short(own, "HTTPS") == []
    assert status(made.pdns.dig(f"_https.{own}", "HTTPS")) == "NOERROR"
    assert made.pdns.short(f"_dns.res.{ZONE}", "SVCB") == [
        f'1 00000001.dns.res.{ZONE}. alpn="dot" port=853 ipv6hint=2001:db8::2'
    ]
    for question in ((f"_dns.res.{ZONE}", "HTTPS"), (f"empty.{ZONE}", "HTTPS")):
        assert made.pdns.short(*question) == []
        assert status(made.pdns.dig(*question)) == "NOERROR"


ASK = r"""
import sys
import dns.message, dns.query
said = dns.query.udp(dns.message.make_query(*sys.argv[1:]), "127.0.0.1", timeout=5, one_rr_per_rrset=True)
print(said.to_wire().hex())
"""


def asked(made: Served, name: str, kind: str) -> dns.message.Message:
    """The answer, read by dnspython; over UDP without EDNS."""
    done = made.namespace.run(sys.executable, "-c", ASK, name, kind)
    assert done.returncode == 0, done.stderr
    return dns.message.from_wire(bytes.fromhex(done.stdout))


@pytest.mark.parametrize("family", ["IPv4", "IPv6", "both"])
@pytest.mark.parametrize("port", [443, 8443])
def test_every_answer_is_whole_in_512_bytes_and_hints_are_the_addresses_beside_them(
    made: Served, family: str, port: int
) -> None:
    """The alias brings all that it stands for along."""
    for count in (1, 2, 3, 4, 5, 9):
        addresses = {
            number: [
                *([f"10.20.0.{number}"] if family != "IPv6" else []),
                *([f"2001:db8::{number}"] if family != "IPv4" else []),
            ]
            for number in range(1, count + 1)
        }
        made.backend.publish(pools(*(web(n, *of_it, port=port) for n, of_it in addresses.items())))

        def is_there(count: int = count, addresses: dict[int, list[str]] = addresses) -> bool:
            found = hints(asked(made, NAME, "HTTPS"))
            right = all(of_it == addresses.get(int(owner[:8], 16)) for owner, of_it in found.items())
            return right and len(found) >= min(2, count)

        until(is_there)
        said = asked(made, NAME, "HTTPS")
        assert not said.flags & dns.flags.TC
        assert len(said.to_wire()) <= 512
        for owner, of_target in hints(said).items():
            of_owner = (rrset for rrset in said.additional if rrset.name.to_text() == owner)
            beside = [rdata.to_text() for rrset in of_owner for rdata in rrset]
            assert sorted(of_target) == sorted(beside) == sorted(addresses[int(owner[:8], 16)])
        assert ("." in {rdata.target.to_text() for rrset in said.answer for rdata in rrset}) == (port == 443)
        alias = asked(made, ZONE, "HTTPS")
        assert not alias.flags & dns.flags.TC
        assert [rdata.to_text() for rdata in alias.answer[0]] == [f"0 {NAME}."]


def hints(said: dns.message.Message) -> dict[str, list[str]]:
    """By target, the hints of the members' records in an answer."""
    found = {}
    for rrset in said.answer:
        for rdata in rrset:
            assert isinstance(rdata, dns.rdtypes.svcbbase.SVCBBase)
            if rdata.target.to_text() != ".":
                keys = (dns.rdtypes.svcbbase.ParamKey.IPV4HINT, dns.rdtypes.svcbbase.ParamKey.IPV6HINT)
                of_it = [rdata.params[key] for key in keys if key in rdata.params]
                found[rdata.target.to_text()] = [address for hint in of_it for address in hint.addresses]
    return found


@pytest.mark.parametrize("denial", ["nsec", "nsec3"])
def test_answers_and_denials_of_a_signed_zone_validate(tmp_path: Path, denial: str) -> None:
    fixed = FIXED + 'info TXT "some text"\n'
    with served([zone(WITH_ALIAS + OTHERS, fixed)], OF_PAGE, tmp_path, signed=True) as made:
        made.pdns.sign(ZONE)
        if denial == "nsec3":
            made.pdns.util("set-nsec3", ZONE, "1 0 0 -")
            until(lambda: "NSEC3" in made.pdns.dig("+dnssec", f"nobody.{ZONE}", "A").split())
        positive = [(NAME, "HTTPS"), (ZONE, "HTTPS"), (f"_8443._https.alt.{ZONE}", "HTTPS")]
        for question in (*positive, (f"_dns.res.{ZONE}", "SVCB")):
            assert "; fully validated" in made.delv(*question), question
        for name, kind in [
            *((f"{label}.{ZONE}", "HTTPS") for label in ("alt", "_https.alt", "_dns.res", "empty", "info")),
            (NAME, "SVCB"),
        ]:
            said = made.delv(name, kind)
            assert "negative response, fully validated" in said, (name, said)
            assert "NXRRSET" in said, (name, said)
        assert "NXDOMAIN" in made.delv(f"_8444._https.alt.{ZONE}", "HTTPS")
        for name, kind in ((NAME, "HTTPS"), (ZONE, "HTTPS"), (f"_dns.res.{ZONE}", "SVCB")):
            denied = made.pdns.dig("+dnssec", "+tcp", name, "MX")
            proofs = [
                words for line in denied.splitlines() if (words := line.split())[3:4] == [denial.upper()]
            ]
            assert any(kind in words[4:] for words in proofs), denied


WEB_SERVER = r"""
import http.server, socket, ssl, sys, threading

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"<title>{self.server.what}</title>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def serve(port, what):
    server = http.server.ThreadingHTTPServer(("10.20.0.1", port), Page)
    server.what = what
    threading.Thread(target=server.serve_forever).start()
    return server

quic = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
quic.bind(("10.20.0.1", 443))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
for port in (443, 8443):
    over_tls = serve(port, "TLS")
    over_tls.socket = context.wrap_socket(over_tls.socket, server_side=True)
serve(80, "plain")
print("ready", flush=True)
while quic.recv(2000):
    print("QUIC", flush=True)
"""
RESOLV = "/etc/resolv.conf"
ONLY_BY_RECORDS = "--disable-features=HttpsUpgrades,HttpsFirstBalancedMode,HttpsFirstBalancedModeAutoEnable"
"""Else Chromium tries TLS wherever http:// is written."""
EXTRA_TIME = "UseDnsHttpsSvcbInsecureExtraTime"
PATIENTLY = f"--enable-features=UseDnsHttpsSvcb:{EXTRA_TIME}Min/0/{EXTRA_TIME}Max/0/{EXTRA_TIME}Percent/0"
"""Else Chromium, once it has the addresses, waits 5 to 50 ms for the HTTPS record: too short when busy."""


@pytest.mark.parametrize(
    ("svcb", "port", "title", "speaks_quic"),
    [
        ('{ alpn = ["h3", "h2"] }', 443, "TLS", True),
        ('{ alpn = ["h3", "h2"] }', 8443, "TLS", False),
        ('{ alpn = ["h2"] }', 443, "TLS", False),
        (None, 443, "plain", False),
    ],
)
def test_chromium_takes_tls_and_quic_from_the_record(
    tmp_path: Path, svcb: str | None, port: int, title: str, speaks_quic: bool
) -> None:
    """Chromium's own DNS client asks PowerDNS; without a record it opens http:// as it is written."""
    pool = re.sub(r"^svcb .*\n", f"svcb = {svcb}\n" if svcb else "", POOL, flags=re.MULTILINE)
    certificate, key, log = (tmp_path / name for name in ("web.pem", "web.key", "web.log"))
    of_server = ("-subj", f"/CN={NAME}", "-keyout", key, "-out", certificate)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", *of_server)
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    with served([zone(pool)], views(view(web(1, port=port), handle="web")), tmp_path) as made:
        made.namespace.ip("address", "add", "10.20.0.1/32", "dev", "lo")
        made.namespace.start(sys.executable, "-c", WEB_SERVER, str(certificate), str(key), log=log)
        until(lambda: "ready" in log.read_text(), told=log)
        done = made.namespace.run(
            *(sys.executable, "-m", "rspdns_lab.net.private_file", str(tmp_path / "resolv.conf"), RESOLV),
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *(
                "--ignore-certificate-errors",
                f"--user-data-dir={tmp_path / 'profile'}",
                ONLY_BY_RECORDS,
                PATIENTLY,
            ),
            *("--dump-dom", f"http://{NAME}/"),
        )
        assert f"<title>{title}</title>" in done.stdout, done.stdout + done.stderr
        assert ("QUIC" in log.read_text()) == speaks_quic
