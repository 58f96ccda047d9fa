"""The page about anycast: its recipes for exabgp and bird, two name servers behind a real BGP router."""

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from daemon_kit.control import ControlError, request
from rspdns_lab.chain.hosts import NameServerHost
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import CLIENT, NAME, NAME_SERVERS, ZONE
from rspdns_lab.net.network import Host, join_again, keep_apart
from rspdns_lab.net.processes import Program

from tests.support.namespaces import REPOSITORY
from tests.support.pages import read
from tests.support.stalls import Mark
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "anycast.md").read_text()
ANYCAST = "192.0.2.53"
ROUTER = "10.53.0.1"
MOVED_S = 1.0
"""The bound of the page."""
CLIENT_LOOP = f"""while :; do
    answer=$(dig +time=1 +tries=3 @{ANYCAST} {NAME} A)
    case $answer in *10.53.0.3*) echo right ;; *) echo lost; echo "$answer" >&2 ;; esac
done"""
"""A client that asks again after 1 s, as resolvers do."""
Recipe = Literal["exabgp", "bird"]
RECIPES: dict[str, Recipe] = {"ns1": "exabgp", "ns2": "bird"}
ROUTER_CONF = f"""
router id {ROUTER};
protocol device {{ }}
protocol kernel {{ ipv4 {{ import none; export all; }}; }}
""" + "".join(
    f"""
protocol bgp {name} {{
    local {ROUTER} as 65000;
    neighbor {address} as 65053;
    connect retry time 1; connect delay time 1; error wait time 1, 2; prefer older on;
    ipv4 {{ import all; export none; }};
}}
"""
    for name, address in NAME_SERVERS.items()
)


def block(first_line: str) -> str:
    """Return the block of the page that begins so, or has this line as its second one."""
    found = [block.text for block in read(PAGE) if first_line in block.text.split("\n")[:2]]
    assert len(found) == 1, (first_line, found)
    return found[0]


def run(host: Host, *command: str) -> str:
    done = subprocess.run(
        ["nsenter", f"--net={host.path}", "--", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


class Announcer:
    """One name server with a recipe of the page."""

    def __init__(self, server: NameServerHost, recipe: Recipe) -> None:
        self.server, self.host = server, server.host
        folder = server.folder
        self._folder = folder
        self.check = self._script(
            "dns-ready", block("curl -fs -m 0.2 -o /dev/null http://127.0.0.1:8054/ready/ims.example.net &&")
        )
        run(self.host, *block(f"ip address add {ANYCAST}/32 dev lo").split())
        conf = folder / "pdns.conf"  # the lab's PowerDNS listens at one address
        conf.write_text(re.sub("(?m)^local-address=.*$", rf"\g<0>, {ANYCAST}", conf.read_text()))
        server.pdns.stop()
        server.pdns.start()
        if recipe == "exabgp":
            conf = self._file("exabgp.conf", block("process dns-ready {"))
            self.programs = [
                Program(
                    "exabgp",
                    self.host,
                    ["/usr/sbin/exabgp", str(conf)],
                    folder / "exabgp.log",
                    {"exabgp.daemon.drop": "false", "exabgp.api.cli": "false", "exabgp.log.level": "WARNING"},
                )
            ]
        else:
            self.programs = [
                bird(self.host, self._file("bird.conf", block("router id 10.0.0.21;")), folder),
                Program(
                    "announce",
                    self.host,
                    [str(self._script("announce-ready", block("failed=0 passed=0 state=")))],
                    folder / "announce.log",
                ),
            ]

    def start(self) -> None:
        for program in self.programs:
            program.start()
            time.sleep(0.5)

    def _file(self, name: str, text: str) -> Path:
        for of_page, here in (
            ("10.0.0.21", self.host.address),
            ("10.0.0.1;", f"{ROUTER};"),
            ("10.0.0.1 ", f"{ROUTER} "),
            ("ims.example.net", ZONE),
            ("/usr/local/bin/dns-ready", str(self._folder / "dns-ready")),
            ("birdc ", f"/usr/sbin/birdc -s {self._folder}/bird.ctl "),
        ):
            text = text.replace(of_page, here)
        path = self._folder / name
        path.write_text(text)
        return path

    def _script(self, name: str, text: str) -> Path:
        path = self._file(name, text)
        path.chmod(0o755)
        return path


def bird(host: Host, conf: Path, folder: Path) -> Program:
    command = ["/usr/sbin/bird", "-f", "-c", str(conf), "-s", str(folder / "bird.ctl")]
    return Program("bird", host, [*command, "-P", str(folder / "bird.pid")], folder / "bird.log")


class Shared:
    """The lab, a router beside it, and a client that asks the shared address all the time."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.router = lab.network.add_host("router", ROUTER)
        client = lab.network.hosts[CLIENT[0]]
        for setting in ("ip_forward=1", "conf.all.send_redirects=0", "conf.eth0.send_redirects=0"):
            run(self.router, "sysctl", "-qw", f"net.ipv4.{setting}")
        folder = lab.made("router")
        (folder / "bird.conf").write_text(ROUTER_CONF)
        self.servers = {name: Announcer(server, RECIPES[name]) for name, server in lab.name_servers.items()}
        self.birdc = ("/usr/sbin/birdc", "-s", str(folder / "bird.ctl"))
        self.programs = [bird(self.router, folder / "bird.conf", folder)]
        for announcer in self.servers.values():
            self.programs += announcer.programs
        run(client, "ip", "route", "add", f"{ANYCAST}/32", "via", ROUTER)
        self.asked = folder / "client.log"
        self.client = Program(
            "client", client, ["sh", "-c", f"({CLIENT_LOOP}) 2>>{folder}/lost.log"], self.asked
        )

    def start(self) -> None:
        self.programs[0].start()
        for announcer in self.servers.values():
            announcer.start()
        until(lambda: {self.med(name) for name in NAME_SERVERS} == {100}, 30, self.routes)
        until(lambda: self.via() is not None)
        self.client.start()
        self.programs.insert(0, self.client)

    def routes(self) -> str:
        return run(self.router, *self.birdc, "show", "route", "all")

    def med(self, name: str) -> int | None:
        """Return the MED with which a name server announces the address."""
        of_server = self.routes().partition(f"[{name} ")[2].partition("unicast")[0]
        found = re.search(r"BGP.med: (\d+)", of_server)
        return int(found[1]) if found else None

    def via(self) -> str | None:
        """Return the name server to which the router's kernel sends questions."""
        said = run(self.router, "ip", "route", "get", ANYCAST)
        return next((name for name, address in NAME_SERVERS.items() if f"via {address}" in said), None)

    def lost(self) -> int:
        """Return how many questions of the client had no answer since the last call."""
        answered = len(self.asked.read_text().split())
        until(lambda: len(self.asked.read_text().split()) > answered)  # the one under way, too
        words = self.asked.read_text().split()
        self.asked.write_text("")
        assert len(words) > 10
        if "lost" in words:
            print((self.asked.parent / "lost.log").read_text()[-2000:])
        return words.count("lost")

    def moves_within_s(self, away_from: str, happens: Callable[[], object]) -> float:
        """Return how many seconds after the beginning of `happens` the router used another name server."""
        mark = Mark.now()
        happens()
        until(lambda: self.via() != away_from, every_s=0.005)
        moved_s = time.monotonic() - mark.at_s
        print(f"{away_from} ({RECIPES[away_from]}): moved after {1000 * moved_s:.0f} ms")
        return min(moved_s, mark.ran_s())


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with Lab() as lab:
        lab.start_registrars()
        lab.start_application_servers()
        lab.start_name_servers()
        lab.wait_until_all_are_answered()
        lab.wait_until_settled()
        made = Shared(lab)
        try:
            made.start()
            yield made
        finally:
            for program in made.programs:
                program.stop()


def prefer(shared: Shared, name: str) -> None:
    """Have the router use this name server, by taking the route of the other one away for a moment."""
    other = next(other for other in NAME_SERVERS if other != name)
    until(lambda: {shared.med(each) for each in NAME_SERVERS} == {100}, 30)
    run(shared.router, *shared.birdc, "disable", other)
    until(lambda: shared.via() == name, 30)
    run(shared.router, *shared.birdc, "enable", other)
    until(lambda: shared.med(other) == 100, 30)


def is_stale(server: NameServerHost) -> bool:
    with contextlib.suppress(ControlError, LookupError):
        pools = request(server.folder / "admin.sock", "status")["zones"][0]["pools"]
        return any(pool["stale_s"] is not None for pool in pools)
    return False


def registrars(shared: Shared) -> list[Host]:
    return [registrar.host for registrar in shared.lab.registrars.values()]


@pytest.mark.parametrize("name", NAME_SERVERS)
def test_route_leaves_a_killed_backend_and_no_question_is_lost(shared: Shared, name: str) -> None:
    prefer(shared, name)
    server = shared.lab.name_servers[name]
    moved_s = shared.moves_within_s(name, server.backend.kill)
    until(lambda: shared.med(name) == 1000)
    server.start_backend()
    until(lambda: shared.med(name) == 100)
    assert shared.lost() == 0
    assert moved_s < MOVED_S


@pytest.mark.parametrize("name", NAME_SERVERS)
def test_route_leaves_a_backend_that_believes_no_registrar(shared: Shared, name: str) -> None:
    prefer(shared, name)
    server = shared.lab.name_servers[name]
    keep_apart(server.host, registrars(shared))
    try:
        until(lambda: is_stale(server), every_s=0.005)
        moved_s = shared.moves_within_s(name, lambda: None)
    finally:
        join_again(server.host)
    until(lambda: shared.med(name) == 100)
    assert shared.lost() == 0
    assert moved_s < MOVED_S


@pytest.mark.parametrize("name", NAME_SERVERS)
def test_route_leaves_a_killed_powerdns(shared: Shared, name: str) -> None:
    prefer(shared, name)
    server = shared.lab.name_servers[name]
    moved_s = shared.moves_within_s(name, server.pdns.kill)
    server.pdns.start()
    until(lambda: shared.med(name) == 100)
    print(f"{shared.lost()} questions were refused before")
    assert moved_s < MOVED_S


def test_route_stays_when_no_name_server_is_ready(shared: Shared) -> None:
    for server in shared.lab.name_servers.values():
        keep_apart(server.host, registrars(shared))
    try:
        until(lambda: {shared.med(name) for name in NAME_SERVERS} == {1000})
        assert shared.via() is not None
        time.sleep(1)
        assert shared.lost() == 0
    finally:
        for server in shared.lab.name_servers.values():
            join_again(server.host)
    until(lambda: {shared.med(name) for name in NAME_SERVERS} == {100})
