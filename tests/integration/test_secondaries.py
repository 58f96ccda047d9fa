"""Real secondaries with the lines of the how-to page: BIND, NSD, Knot, and BIND as a distributor."""

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import dns.rdatatype
import dns.rrset
import dns.zone
import pytest
from rspdns_lab.net.network import call_in

from tests.support.backend import ADDRESS, HANDLE, OWNER, ZONE
from tests.support.chain import Chain
from tests.support.members import Members
from tests.support.namespaces import REPOSITORY, Namespace, end, own_namespace
from tests.support.pages import blocks
from tests.support.pdns import Pdns
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "secondaries.md").read_text()
NS, DISTRIBUTOR, OTHER = "192.0.2.1", "192.0.2.10", "192.0.2.20"
SECONDARIES = {"bind": "192.0.2.11", "nsd": "192.0.2.12", "knot": "192.0.2.13"}
SOON_S = 20.0
"""Without a NOTIFY that it heeds, a secondary is as old as the refresh of the SOA: 7,200 s."""
MEMBERS = 12
"""More than the SRV records of an answer."""
MANY = 101
"""More records of a type at a name than BIND takes by default."""


def lines(language: str) -> str:
    """The block of the page in this language."""
    return blocks(PAGE, language)[0]


def ask(namespace: Namespace, address: str, name: str, kind: str) -> list[dns.rrset.RRset]:
    """The answer of the name server at this address; empty without one."""
    question = dns.message.make_query(name, kind)
    try:
        reply, _ = call_in(
            Path(f"/run/netns/{namespace.name}"),
            lambda: dns.query.udp_with_fallback(question, address, timeout=2),
        )
    except Exception:  # not there yet
        return []
    return list(reply.answer)


class Transferred:
    """The chain at 192.0.2.1, and the secondaries of the page in the same namespace."""

    def __init__(self, namespace: Namespace, folder: Path, *, signed: bool = False) -> None:
        self.namespace, self.folder = namespace, folder
        for address in (NS, DISTRIBUTOR, OTHER, *SECONDARIES.values()):
            namespace.ip("address", "add", f"{address}/32", "dev", "lo")
        self.chain = Chain(namespace, folder)
        self.chain.pdns = Pdns(namespace, folder, address=NS, axfr=["192.0.2.0/24"], signed=signed)
        with (self.chain.backend.config.parent / "zones.d" / f"{ZONE}.zone").open("a") as zone:
            zone.writelines(f"many A 10.9.0.{number}\n" for number in range(1, MANY + 1))
        self.members = Members(namespace, folder, ADDRESS, self.chain.registrars.addresses)
        for number in range(1, MEMBERS + 1):
            self.members.add(number, HANDLE, 5000 + number)
        self.programs: dict[str, subprocess.Popen[str]] = {}

    def targets(self, address: str) -> set[int]:
        """The PE identifiers in the SRV records of the name server at this address."""
        return {
            int(record.target.labels[0], 16)
            for rrset in ask(self.namespace, address, OWNER, "SRV")
            for record in rrset
        }

    def secondary(self, name: str) -> dict[str, Any]:
        status = self.chain.backend.status() or {"secondaries": []}
        return next((each for each in status["secondaries"] if each["name"] == name), {})

    def problem(self, name: str) -> str:
        zones = self.secondary(name).get("zones", [])
        return next((str(zone["problem"]) for zone in zones if zone["problem"]), "")

    def until_right(self, members: set[int], *names: str) -> None:
        for name in names or SECONDARIES:
            until(lambda name=name: self.targets(SECONDARIES[name]) == members, SOON_S, self.log(name))  # type: ignore[misc]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def configure(self, text: str) -> None:
        """Have the backend use these tables."""
        head = self.chain.backend.config.read_text().partition("[[secondary]]")[0]
        self.chain.backend.config.write_text(head + text)
        done = self.chain.backend.command("reload")
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, name: str) -> None:
        """Start a secondary with the lines of the page."""
        own = self.folder / name
        own.mkdir(exist_ok=True)
        file = own / "conf"
        text = lines(name)
        if name == "bind":
            text = text.replace("/var/cache/bind", str(own))
            text = text.replace(
                "    recursion", f'    pid-file none; session-keyfile "{own}/key"; recursion', 1
            )
            file.write_text(text + "controls { };\n")
            command = ["named", "-g", "-c", str(file)]
        elif name == "nsd":
            more = f'server:\n    zonesdir: "{own}"\n    xfrdir: "{own}"\n    pidfile: ""\n    database: ""\n'
            more += (
                f'    username: ""\n    xfrdfile: "{own}/state"\nremote-control:\n    control-enable: no\n'
            )
            file.write_text(more + text)
            command = ["nsd", "-d", "-c", str(file)]
        else:
            secret = re.search(r'secret "(.*)"', self.key().read_text())
            assert secret is not None
            text = text.replace("SECRET", secret[1]).replace("server:\n", f"server:\n    rundir: {own}\n")
            file.write_text(
                text + f"database:\n    storage: {own}\ntemplate:\n  - id: default\n    storage: {own}\n"
            )
            command = ["knotd", "-c", str(file)]
        self.programs[name] = self.namespace.start(*command, log=self.log(name))

    def stop(self, name: str) -> None:
        end(self.programs.pop(name))

    def key(self) -> Path:
        """The key file of the page, made by its command."""
        file = self.folder / "notify.key"
        if not file.exists():
            file.write_text(
                subprocess.run(["tsig-keygen", "notify"], capture_output=True, text=True, check=True).stdout
            )
            file.chmod(0o600)
        return file

    def tables(self) -> str:
        """The tables of the page, all secondaries, with the key in this folder."""
        return lines("toml").replace("/etc/rspdns/keys/notify.key", str(self.key()))


@pytest.fixture(scope="module")
def transferred(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transferred]:
    with own_namespace() as namespace:
        made = Transferred(namespace, tmp_path_factory.mktemp("secondaries"))
        for name in SECONDARIES:
            made.start(name)
        made.chain.start()
        made.configure(made.tables())
        yield made


EVERYBODY = set(range(1, MEMBERS + 1))


def test_each_change_is_at_every_secondary_soon_and_whole(transferred: Transferred) -> None:
    transferred.until_right(EVERYBODY)
    assert len(transferred.chain.targets()) < MEMBERS, "PowerDNS itself shows a part"
    for number in (3, 4, 5):
        transferred.members.remove(number)
        transferred.until_right(EVERYBODY - {number})
        transferred.members.add(number, HANDLE, 5000 + number)
        transferred.until_right(EVERYBODY)


def test_large_rrset_is_at_every_secondary(transferred: Transferred) -> None:
    transferred.until_right(EVERYBODY)
    for address in SECONDARIES.values():
        (rrset,) = ask(transferred.namespace, address, f"many.{ZONE}", "A")
        assert len(rrset) == MANY


def test_status_tells_which_serial_each_has(transferred: Transferred) -> None:
    transferred.until_right(EVERYBODY)

    def are_right() -> bool:
        listed = [transferred.secondary(name) for name in SECONDARIES]
        return all(each.get("right") == 1 and each["zones"][0]["behind"] == 0 for each in listed)

    until(are_right, SOON_S, lambda: str(transferred.chain.backend.status()))
    shown = transferred.chain.backend.command("status").stdout
    for name, address in SECONDARIES.items():
        assert re.search(rf"{name} +{address} +1 of 1 .*follows", shown), shown


def test_secondary_that_was_down_follows_again(transferred: Transferred) -> None:
    transferred.until_right(EVERYBODY)
    transferred.stop("nsd")
    transferred.members.remove(2)
    until(lambda: "nothing listens" in transferred.problem("nsd"), SOON_S, lambda: transferred.problem("nsd"))
    transferred.until_right(EVERYBODY - {2}, "bind", "knot")
    nagios = transferred.chain.backend.command("status", "--nagios").stdout
    assert f"secondary nsd: {ZONE}: does not answer" in nagios
    transferred.start("nsd")
    transferred.until_right(EVERYBODY - {2})
    until(lambda: not transferred.problem("nsd"), 40, lambda: transferred.problem("nsd"))
    transferred.members.add(2, HANDLE, 5002)
    transferred.until_right(EVERYBODY)


def test_backend_that_is_killed_leaves_the_zone_and_the_next_repairs_it(transferred: Transferred) -> None:
    transferred.until_right(EVERYBODY)
    end(transferred.chain.backend.process)
    transferred.members.remove(6)
    for address in SECONDARIES.values():
        assert transferred.targets(address) == EVERYBODY
    transferred.chain.backend.start()
    transferred.until_right(EVERYBODY - {6})
    transferred.members.add(6, HANDLE, 5006)
    transferred.until_right(EVERYBODY)


WRONG = """
server:
    listen: 192.0.2.20@53
    rundir: {folder}
database:
    storage: {folder}
template:
  - id: default
    storage: {folder}
remote:
  - id: rspdns
    address: 192.0.2.1@53
zone:
{zones}
"""
REFUSING = f"  - domain: {ZONE}\n    master: rspdns\n"
AHEAD = f"  - domain: {ZONE}\n    file: ahead\n    acl: notify\n"
ACL = "acl:\n  - id: notify\n    address: 192.0.2.1\n    action: notify\n"
TABLE = f'[[secondary]]\nname = "other"\naddress = "{OTHER}"\nsource = "{NS}"\n'
KEYED = f'{TABLE}tsig = "{{key}}"\n'
CASES = {
    "refused NOTIFY": (WRONG.replace("{zones}", REFUSING), TABLE, "refuses NOTIFY (NOTAUTH): allow it"),
    "zone not there": (WRONG.replace("zone:\n{zones}", ""), TABLE, "refuses NOTIFY"),
    "serial ahead": (ACL + WRONG.replace("{zones}", AHEAD), TABLE, "has a later serial"),
    "key not there": (ACL + WRONG.replace("{zones}", REFUSING), KEYED, "(BADKEY): it does not know the key"),
}


@pytest.mark.parametrize("case", CASES)
def test_trouble_of_a_secondary_is_one_clear_line(
    transferred: Transferred, tmp_path: Path, case: str
) -> None:
    text, table, words = CASES[case]
    (tmp_path / "conf").write_text(text.format(folder=tmp_path))
    later = int(time.time()) + 10_000_000
    (tmp_path / "ahead").write_text(f"$TTL 5\n@ SOA ns h {later} 3600 600 86400 5\n@ NS ns\nns A 192.0.2.1\n")
    other = transferred.namespace.start("knotd", "-c", str(tmp_path / "conf"), log=tmp_path / "log")
    try:
        transferred.configure(transferred.tables() + table.format(key=transferred.key()))
        until(lambda: words in transferred.problem("other"), SOON_S, lambda: transferred.problem("other"))
        transferred.members.remove(7)
        transferred.until_right(EVERYBODY - {7})
        transferred.members.add(7, HANDLE, 5007)
        transferred.until_right(EVERYBODY)
        logged = transferred.chain.backend.log.read_text().splitlines()
        said = [
            line for line in logged if '"secondary_fails"' in line and '"other"' in line and words in line
        ]
        assert len(said) == 1, said
    finally:
        end(other)
        transferred.configure(transferred.tables())
        transferred.chain.backend.log.write_text("")


def anchored(folder: Path, keys: Iterable[str]) -> Path:
    """A file of trust anchors of the zone for delv."""
    file = folder / "anchor"
    lines = (f'"{ZONE}" {key};' for key in keys)
    file.write_text(f"trust-anchors {{ {' '.join(lines)} }};\n")
    return file


def doubts(namespace: Namespace, address: str, anchor: Path) -> str:
    """The words of delv about answers and denials of a name server that do not validate."""
    said = ""
    for question in ((OWNER, "SRV"), (f"nobody.{ZONE}", "A"), (f"as.{ZONE}", "TXT")):
        done = namespace.run("delv", f"@{address}", "-a", str(anchor), f"+root={ZONE}", *question)
        said += "" if "fully validated" in done.stdout else f"{question}: {done.stdout}{done.stderr}"
    return said


@pytest.mark.parametrize("signs", [False, True], ids=["plain", "signed"])
def test_distributor_sends_increments_on(transferred: Transferred, tmp_path: Path, signs: bool) -> None:
    transferred.until_right(EVERYBODY)
    command = re.search(r"rspdns (distributor-conf --listen.*?) > ", PAGE, re.DOTALL)
    assert command is not None
    words = command[1].replace("\\\n", " ").replace("192.0.2.12", OTHER).split() + ["--sign"] * signs
    done = subprocess.run(
        [sys.executable, "-m", "rspdns.cli", *words], capture_output=True, text=True, check=True
    )
    text = done.stdout.replace("/var/cache/bind", str(tmp_path))
    own = f'    pid-file none; session-keyfile "{tmp_path}/key";\n'
    (tmp_path / "named.conf").write_text(text.replace("options {\n", "options {\n" + own) + "controls { };\n")
    bind = transferred.namespace.start(
        "named", "-g", "-c", str(tmp_path / "named.conf"), log=tmp_path / "bind.log"
    )
    behind = tmp_path / "behind"
    behind.mkdir()
    knot = f"{ACL}{WRONG}".replace("{zones}", f"{REFUSING}    acl: notify\n").replace(NS, DISTRIBUTOR)
    knot = knot.replace(f"{DISTRIBUTOR}@53\n", f"{DISTRIBUTOR}@53\n    via: {OTHER}\n")
    (behind / "conf").write_text(knot.format(folder=behind))
    secondary = transferred.namespace.start("knotd", "-c", str(behind / "conf"), log=behind / "log")
    try:
        table = blocks(PAGE, "toml")[1]
        transferred.configure(f"{table}signs = true\n" if signs else table)
        until(lambda: transferred.targets(OTHER) == EVERYBODY, SOON_S, tmp_path / "bind.log")
        for number in (8, 9):
            transferred.members.remove(number)
            without = EVERYBODY - {number}
            until(lambda without=without: transferred.targets(OTHER) == without, SOON_S, behind / "log")  # type: ignore[misc]
            transferred.members.add(number, HANDLE, 5000 + number)
            until(lambda: transferred.targets(OTHER) == EVERYBODY, SOON_S, behind / "log")
        log = (behind / "log").read_text()
        assert len(re.findall(r"IXFR, incoming.*finished", log)) >= 4, log
        until(lambda: transferred.secondary("distributor")["right"] == 1, SOON_S)
        assert transferred.problem("distributor") == ""
        if signs:
            found = re.search(r"^    (dig .* DNSKEY) \| (dnssec-dsfromkey .*)", PAGE, re.MULTILINE)
            assert found is not None
            keys = transferred.namespace.run(*found[1].split()).stdout
            digest = subprocess.run(
                found[2].split(), input=keys, capture_output=True, text=True, check=True
            ).stdout.split()
            anchor = anchored(tmp_path, [f'static-ds {" ".join(digest[3:6])} "{digest[6]}"'])
            for address in (DISTRIBUTOR, OTHER):
                assert doubts(transferred.namespace, address, anchor) == ""
    finally:
        end(secondary)
        end(bind)
        transferred.configure(transferred.tables())


def test_signed_zone_validates_at_every_secondary_after_each_change(tmp_path: Path) -> None:
    with own_namespace() as namespace:
        made = Transferred(namespace, tmp_path, signed=True)
        for name in SECONDARIES:
            made.start(name)
        made.chain.start()
        pdns = made.chain.pdns
        pdns.sign(ZONE)
        fields = [line.split(maxsplit=3) for line in pdns.short(ZONE, "DNSKEY")]
        keys = (f'static-key {" ".join(head)} "{key.replace(" ", "")}"' for *head, key in fields)
        anchor = anchored(tmp_path, keys)
        made.configure(made.tables())
        for everybody in (EVERYBODY, EVERYBODY - {3}):
            if 3 not in everybody:
                made.members.remove(3)
            made.until_right(everybody)
            for address in SECONDARIES.values():
                assert doubts(namespace, address, anchor) == ""
