"""A live zone at fifty secondaries behind a distributor, at three that the backend tells itself, and at three
primaries that it sends DNS UPDATE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from daemon_kit.control import ControlError, request
from pdns_config import DistributorSettings, PdnsSettings, render_named_conf, render_pdns_conf, write_script

from rspdns_lab.bench.programs import cpu_s
from rspdns_lab.chain.hosts import START_TIMEOUT_S, NameServerHost, RegistrarHost, wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.chain.plan import HANDLE, NAME_SERVERS, REGISTRARS, REREGISTRATION_MS, ZONE, LabSetting
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, LabNetwork, call_in, network_prefix
from rspdns_lab.net.preconditions import check_programs, find_sctp
from rspdns_lab.net.processes import Program
from rspdns_lab.secondaries.asking import RecordsAsker, records, serial
from rspdns_lab.secondaries.primaries import ADDRESSES, PRIMARIES, publish_toml, write_key
from rspdns_lab.secondaries.servers import CLIENT, KINDS, PACKAGES, SecondaryKind, SecondaryServer, make

MEMBERS: Final = {number: f"10.53.1.{number}" for number in range(1, 6)}
VICTIM: Final = 5
PORT: Final = 5060
DISTRIBUTOR: Final = "10.53.0.71"
DIRECT: Final = {"nsd": "10.53.0.72", "knot": "10.53.0.73", "bind": "10.53.0.74"}
RATES: Final = (1.0, 10.0, 100.0)
_PATIENCE_S: Final = 30.0
_REST_S: Final = 1.0
_LOOK_S: Final = 1.0
SOA: Final = f"{ZONE}. SOA"
POOL: Final = f"""
[[pool]]
handle  = "{HANDLE}"
label   = "u"
service = "_sip._tcp"
name    = "as"
accept  = ["10.53.0.0/16"]
answers = "all"
slow_start_s = 0
"""


@dataclass(frozen=True)
class ServerDeath:
    """A server was killed. `right_ms`: by the title of its kind, the time until each secondary's first right
    answer, None: not within 30 s."""

    trial: int
    right_ms: Mapping[str, Sequence[float | None]]
    load_average: float


@dataclass(frozen=True)
class BackendRestart:
    """The backend was killed; a server died; the next backend was started. `lost`: secondaries that did not
    answer with the whole zone meanwhile. `right_ms`: from the start of the next backend until all were
    right."""

    lost: int
    right_ms: float | None


@dataclass(frozen=True)
class ChangeStream:
    """Changes at a rate for some time. `serials`: by how much the name server's own moved. `behind`:
    secondaries with another one at the end; `different`: with other records. `went_back`: serials that were
    lower than before. `settled_ms`: from the last change until all were right. `cpu_ms`: processor time a
    second of each program, of the mean of each kind of secondaries."""

    wanted_per_s: float
    changes: int
    seconds: float
    serials: int
    behind: int
    different: int
    went_back: int
    settled_ms: float | None
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    load_average: float = 0.0


def zone_toml() -> str:
    """The zone's file."""
    return f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\nttl = 1\n{POOL}'


def sidecar_toml(folder: str) -> str:
    """The sidecar of all members."""
    servers = "".join(
        f"""
[[as]]
name = "as-{number}"
handle = "{HANDLE}"
transport = "tcp"
address = "{address}"
port = {PORT}
policy = "round-robin"
[[as.check]]
type = "tcp-hold"
[as.damping]
falls = 0
"""
        for number, address in MEMBERS.items()
    )
    registrars = json.dumps(list(REGISTRARS.values()))
    return (
        f"registrars = {registrars}\nreregistration_ms = {REREGISTRATION_MS}\n"
        f'[state]\npath = "{folder}/state"\n[control]\npath = "{folder}/agent.sock"\n{servers}'
    )


def secondaries_toml() -> str:
    """The tables of the backend: the distributor, and the secondaries that it tells itself."""
    told = {"distributor": DISTRIBUTOR, **DIRECT}
    return "".join(f'\n[[secondary]]\nname = "{name}"\naddress = "{told[name]}"\n' for name in told)


class SecondariesLab(LabBase):
    """The running lab; see LabBase. `count`: the secondaries behind the distributor."""

    def __init__(self, count: int) -> None:
        check_programs(PACKAGES)
        super().__init__()
        self.network = LabNetwork(network_prefix(), 16)
        self._count = count
        self._sctp = find_sctp()
        self.registrars: list[RegistrarHost] = []
        self.secondaries: list[SecondaryServer] = []
        self._members: list[Program] = []
        self._agent: list[Program] = []
        self._distributor: list[Program] = []

    def build(self) -> None:
        """Make all hosts with their files."""
        peers = list(REGISTRARS.values())
        for number, (name, address) in enumerate(REGISTRARS.items(), start=1):
            host = self.network.add_host(name, address)
            self.registrars.append(RegistrarHost(host, number, peers, self.made(name), self._sctp))
        self._build_name_server(peers)
        self._build_members()
        self.client = self.network.add_host("client", CLIENT)
        addresses = {f"s{number}": f"10.53.2.{number}" for number in range(1, self._count + 1)}
        self._build_distributor(list(addresses.values()))
        for kind, address in DIRECT.items():
            host = self.network.add_host(f"d-{kind}", address)
            self._add(KINDS[kind], "direct", host, NAME_SERVERS["ns1"])
        for kind, address in ADDRESSES.items():
            host = self.network.add_host(f"p-{kind}", address)
            self._add(PRIMARIES[kind], "published", host, NAME_SERVERS["ns1"])
        for index, (name, address) in enumerate(addresses.items()):
            host, kind = self.network.add_host(name, address), ("knot", "nsd")[index % 2]
            self._add(KINDS[kind], "distributor", host, DISTRIBUTOR)

    def _add(self, kind: SecondaryKind, path: str, host: Host, primary: str) -> None:
        self.secondaries.append(make(kind, path, host, primary, self.made(host.name)))

    def _build_name_server(self, peers: Sequence[str]) -> None:
        address = NAME_SERVERS["ns1"]
        host = self.network.add_host("ns1", address)
        self.name_server = NameServerHost(host, peers, [address], self.made("ns1"), self._sctp, LabSetting())
        folder = self.name_server.folder
        (folder / "zones.d" / f"{ZONE}.toml").write_text(zone_toml())
        with (folder / "rspdns.toml").open("a") as file:
            file.write(secondaries_toml() + publish_toml(write_key(folder)))
        settings = PdnsSettings(
            listen_address=address,
            connector=f"unix:{folder}/remote.sock",
            script=write_script(folder, f"unix:{folder}/remote.sock"),
            socket_dir=str(folder),
            axfr=["10.53.0.0/16"],
        )
        (folder / "pdns.conf").write_text(render_pdns_conf(settings))

    def _build_members(self) -> None:
        host, folder = self.network.add_host("as", "10.53.0.31"), self.made("as")
        commands = "".join(f"address add {address}/16 dev eth0\n" for address in MEMBERS.values())
        call_in(
            host.path, lambda: subprocess.run(["ip", "-batch", "-"], input=commands, text=True, check=True)
        )
        (folder / "agent.toml").write_text(sidecar_toml(str(folder)))
        for number, address in MEMBERS.items():
            command = [
                sys.executable,
                "-m",
                "rspdns_lab.chain.named_server",
                "http",
                address,
                str(PORT),
                "up",
            ]
            self._members.append(Program(f"as-{number}", host, command, folder / f"{number}.log"))
        agent = [sys.executable, "-m", "ppe_agent.cli", "run", "-c", str(folder / "agent.toml")]
        log = folder / "agent.log"
        self._agent = [Program("agent", host, self._sctp.command(agent), log, self._sctp.environment)]
        self.victim = self._members[VICTIM - 1]

    def _build_distributor(self, secondaries: Sequence[str]) -> None:
        host, folder = self.network.add_host("dist", DISTRIBUTOR), self.made("dist")
        settings = DistributorSettings(DISTRIBUTOR, NAME_SERVERS["ns1"], [ZONE], secondaries, 53, str(folder))
        own = f'    pid-file none;\n    session-keyfile "{folder}/session";\n'
        text = render_named_conf(settings).replace("options {\n", f"options {{\n{own}", 1)
        (folder / "named.conf").write_text(text + "controls { };\n")
        command = ["named", "-g", "-n", "1", "-c", str(folder / "named.conf")]
        self._distributor = [Program("distributor", host, command, folder / "log")]

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        for secondary in self.secondaries:
            yield secondary.program
        yield from self._distributor
        yield from self._agent
        yield from self._members
        if hasattr(self, "name_server"):
            yield from self.name_server.programs
        for registrar in self.registrars:
            yield from registrar.programs

    def start(self) -> None:
        """Start every part, and wait until each secondary has the whole pool. Raises LabError."""
        for registrar in self.registrars:
            registrar.start()
        for registrar in self.registrars:
            registrar.wait()
        self.name_server.start()
        self.name_server.wait()
        for program in (*self._members, *self._agent, *self._distributor):
            program.start()
        wait_until(
            lambda: len(self.name_server.members()) == len(MEMBERS),
            "all servers in their pool",
            START_TIMEOUT_S,
            *self._agent,
        )
        wait_until(
            lambda: set(self.name_server.registrar_standings()) == {"settled"},
            "all registrars settled",
            START_TIMEOUT_S,
            self.name_server.backend,
        )
        for secondary in self.secondaries:
            secondary.program.start()
        self.asker: RecordsAsker = call_in(self.client.path, lambda: RecordsAsker(self.addresses))
        self.wait_until_whole()

    @property
    def addresses(self) -> list[str]:
        """The name server, the distributor, then every secondary."""
        own = [NAME_SERVERS["ns1"], DISTRIBUTOR]
        return [*own, *(secondary.host.address for secondary in self.secondaries)]

    @property
    def published(self) -> slice:
        """The places in `addresses` of those that are sent DNS UPDATE."""
        first = self.addresses.index(next(iter(ADDRESSES.values())))
        return slice(first, first + len(ADDRESSES))

    @property
    def titles(self) -> list[str]:
        """The titles of the rows of `addresses`."""
        return ["PowerDNS itself", "the distributor", *(secondary.title for secondary in self.secondaries)]

    def wait_until_whole(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until each secondary answers with all members. Raises LabError."""
        right = self.asker.until_records(len(MEMBERS), timeout_s)
        if missing := [address for index, address in enumerate(self.addresses) if index not in right]:
            raise LabError(f"these don't have the whole pool: {', '.join(missing)}")

    def ask(self, command: str, **keys: Any) -> dict[str, Any]:
        """Give the backend a command. Raises ControlError."""
        return request(self.name_server.folder / "admin.sock", command, **keys)

    def in_client(self, function: Callable[[], Any]) -> Any:
        """Call it on the client's host."""
        return call_in(self.client.path, function)

    def processor_s(self) -> dict[str, float]:
        """Processor time so far: of each program of the name server, and of the mean of each kind."""
        found = {
            "PowerDNS": cpu_s([self.name_server.pdns]),
            "backend": cpu_s([self.name_server.backend]),
            "the distributor": cpu_s(self._distributor),
        }
        for title in dict.fromkeys(secondary.title for secondary in self.secondaries):
            own = [secondary.program for secondary in self.secondaries if secondary.title == title]
            found[title] = cpu_s(own) / len(own)
        return found


def run_death(lab: SecondariesLab, trial: int) -> ServerDeath:
    """Kill a server, and look when each secondary is right; then start it again. Raises LabError."""
    lab.wait_until_whole()
    time.sleep(_REST_S)
    answers: dict[int, float] = {}

    def look() -> None:
        answers.update(lab.asker.until_records(len(MEMBERS) - 1, _PATIENCE_S))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    time.sleep(0.05)
    killed_s = lab.victim.kill()
    looking.join()
    lab.victim.start()
    right_ms: dict[str, list[float | None]] = {}
    for index, title in enumerate(lab.titles):
        at_s = answers.get(index)
        right_ms.setdefault(title, []).append(None if at_s is None else round(1000 * (at_s - killed_s), 1))
    return ServerDeath(trial, right_ms, round(os.getloadavg()[0], 1))


def run_restart(lab: SecondariesLab) -> BackendRestart:
    """Kill the backend, then a server; start the next backend. Raises LabError."""
    lab.wait_until_whole()
    lab.name_server.backend.kill()
    lab.victim.kill()
    time.sleep(3 * _REST_S)
    counts = lab.asker.counts()
    lost = sum(counts.get(index) != len(MEMBERS) for index in range(1, len(lab.addresses)))
    began_s = time.monotonic()
    lab.name_server.start_backend()
    right = lab.asker.until_records(len(MEMBERS) - 1, 2 * _PATIENCE_S)
    lab.victim.start()
    is_right = len(right) == len(lab.addresses)
    return BackendRestart(lost, round(1000 * (max(right.values()) - began_s), 1) if is_right else None)


class _Serials:
    """Looks at the serial of each secondary all the time, in a thread."""

    def __init__(self, lab: SecondariesLab) -> None:
        self.went_back = 0
        self._lab = lab
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: lab.in_client(self._look), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        last: dict[str, int] = {}
        while not self._ended.wait(_LOOK_S):
            for address in self._lab.addresses:
                now = serial(address)
                if now is not None:
                    self.went_back += now < last.get(address, 0)
                    last[address] = now


def run_stream(lab: SecondariesLab, per_s: float, seconds: float) -> ChangeStream:
    """Take a server out and back in, again and again; then compare every secondary. Raises LabError."""
    lab.wait_until_whole()
    first = lab.in_client(lambda: serial(lab.addresses[0])) or 0
    watch, before = _Serials(lab), lab.processor_s()
    began_s = time.monotonic()
    changes, number = 0, None
    while (now := time.monotonic()) < began_s + seconds or number is not None:
        try:
            if number is None:
                done = lab.ask("override", action="down", servers=MEMBERS[VICTIM], reason="the lab")
                number = done["override"]["number"]
            else:
                lab.ask("clear", named=[str(number)])
                number = None
        except ControlError as problem:
            raise LabError(f"the backend takes no override: {problem}") from None
        changes += 1
        time.sleep(max(0.0, began_s + changes / per_s - time.monotonic()))
    took_s = now - began_s
    after = lab.processor_s()
    ended_s = time.monotonic()
    right = lab.asker.until_records(len(MEMBERS), _PATIENCE_S)
    watch.close()
    time.sleep(2 * _REST_S)
    serials = [lab.in_client(partial(serial, address)) for address in lab.addresses]
    zones = [lab.in_client(partial(records, address)) for address in lab.addresses]
    del serials[lab.published], zones[lab.published]
    for address in list(ADDRESSES.values()):
        published = lab.in_client(partial(records, address))
        zones.append(published and {**published, SOA: (zones[0] or {}).get(SOA, "")})  # its serial is its own
    del zones[1]  # the distributor gives the zone to secondaries alone
    is_settled = len(right) == len(lab.addresses)
    return ChangeStream(
        per_s,
        changes,
        round(took_s, 1),
        (serials[0] or 0) - first,
        sum(each != serials[0] for each in serials),
        sum(zone is None or zone != zones[0] for zone in zones),
        watch.went_back,
        round(1000 * (max(right.values()) - ended_s), 1) if is_settled else None,
        {title: round(1000 * (after[title] - before[title]) / took_s, 1) for title in after},
        round(os.getloadavg()[0], 1),
    )
