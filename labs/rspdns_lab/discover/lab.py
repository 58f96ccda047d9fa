"""A pool of 40 web servers, and clients with lists of them out of DNS, while loads change and one dies."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daemon_kit.control import ControlError, request

from rspdns_lab.chain.hosts import START_TIMEOUT_S, NameServerHost, RegistrarHost, wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.chain.plan import NAME_SERVERS, REGISTRARS, REREGISTRATION_MS, LabSetting
from rspdns_lab.chain.texts import static_zone
from rspdns_lab.discover.clients import PORT, Client, Envoy, Haproxy, Nginx, Prometheus
from rspdns_lab.net.network import Host, LabNetwork, call_in, network_prefix
from rspdns_lab.net.preconditions import check_programs, find_sctp
from rspdns_lab.net.processes import Program

SERVERS: Final = {number: f"10.53.1.{number}" for number in range(1, 41)}
VICTIM: Final = 7
WHOLE, REDRAWN = "whole.example", "redrawn.example"
"""The zones: the pool of the page, and the same servers with the default answers."""
STEP_S: Final = 5.0
"""Time between two changes of all loads."""
_LOOK_S: Final = 0.05
_SETTLE_S: Final = 90.0
_AFTER_S: Final = 17.0
"""Longer than any client may take to drop a dead server."""
_POOL: Final = """
[[pool]]
handle  = "web"
service = "_http._tcp"
name    = "web"
accept  = ["10.53.0.0/16"]
"""
_WHOLE_ANSWERS: Final = 'answers = "all"\nweights = "wide"\n'

Lists = Sequence[tuple[float, Mapping[str, int | None]]]
"""A client's list at moments (monotonic, s)."""


@dataclass(frozen=True)
class DiscoverTrial:
    """The list of a client in one trial.

    `listed`: servers on it. `flaps`: servers that came or went while loads changed, in `seconds`. `weights`:
    different weights at a time, at most. `follow_ms`: from a change of all loads until its weights are these,
    None: not before the next change. `out_ms`: from the kill of a server until it was first seen off the list
    for good; None: it never was, or the client fell silent. `poll_s` is the client's own part of that.
    `load_average`: of the machine, in the minute before the end.
    """

    client: str
    answers: str
    trial: int
    seconds: float
    listed: int
    flaps: int | None
    weights: int | None
    follow_ms: Sequence[float | None]
    out_ms: float | None
    poll_s: float
    version: str
    load_average: float


def owner(zone: str) -> str:
    """The name of the SRV records."""
    return f"_http._tcp.web.{zone}"


def load_of(number: int, step: int) -> float:
    """The load of a server, 0 to 95 %: at each step every server has another server's load of before."""
    return (number * 7 + step) % 20 / 20


def haproxy_weight(load: float) -> int:
    """The weight that HAProxy makes of the wide weight of this load."""
    return (round(65535 * (1 - load)) + 255) // 256


def zone_toml(zone: str) -> str:
    """The zone's file: the pool of the page, or the same with default answers; without slow start."""
    more = _WHOLE_ANSWERS if zone == WHOLE else ""
    return f'zone = "{zone}"\nstatic = "{zone}.zone"\nttl = 1\n{_POOL}{more}slow_start_s = 0\n'


def sidecar_toml(folder: Path) -> str:
    """The sidecar of all servers; each has its load in a file."""
    servers = "".join(
        f"""
[[as]]
name = "web-{number}"
handle = "web"
transport = "tcp"
address = "{address}"
port = {PORT}
[[as.check]]
type = "tcp-hold"
[as.damping]
falls = 0
[as.load]
source = "file"
path = "{folder}/load-{number}"
interval_ms = 200
smoothing_ms = 0
min_update_interval_ms = 100
max_age_ms = 3600000
"""
        for number, address in SERVERS.items()
    )
    registrars = json.dumps(list(REGISTRARS.values()))
    return (
        f"registrars = {registrars}\nreregistration_ms = {REREGISTRATION_MS}\n"
        f'[state]\npath = "{folder}/state"\n[control]\npath = "{folder}/agent.sock"\n{servers}'
    )


def servers_conf(folder: Path) -> str:
    """The nginx that is all servers but the victim."""
    listens = "".join(
        f"        listen {address}:{PORT};\n" for number, address in SERVERS.items() if number != VICTIM
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    says = r'default_type text/plain; return 200 "up{server=\"$server_addr\"} 1\n";'
    return (
        f"user root;\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\n"
        f"events {{ worker_connections 2048; }}\nhttp {{\n    access_log off;\n{temporary}"
        f"    server {{\n{listens}        location / {{ {says} }}\n    }}\n}}\n"
    )


class DiscoverLab(LabBase):
    """The running lab; see LabBase."""

    def __init__(self) -> None:
        check_programs({"haproxy": "haproxy", "nginx": "nginx-light", "prometheus": "prometheus"})
        super().__init__()
        self.network = LabNetwork(network_prefix(), 16)
        self._sctp = find_sctp()
        self.registrars: list[RegistrarHost] = []
        self.clients: list[Client] = []
        self._server_programs: list[Program] = []

    def build(self) -> None:
        """Make all hosts with their files."""
        peers = list(REGISTRARS.values())
        for number, (name, address) in enumerate(REGISTRARS.items(), start=1):
            host = self.network.add_host(name, address)
            self.registrars.append(RegistrarHost(host, number, peers, self.made(name), self._sctp))
        address = NAME_SERVERS["ns1"]
        host = self.network.add_host("ns1", address)
        self.name_server = NameServerHost(host, peers, [address], self.made("ns1"), self._sctp, LabSetting())
        zones = self.name_server.folder / "zones.d"
        for zone in (WHOLE, REDRAWN):
            (zones / f"{zone}.toml").write_text(zone_toml(zone))
            fixed = static_zone([address]).partition("\n")[2]
            (zones / f"{zone}.zone").write_text(f"$ORIGIN {zone}.\n{fixed}")
        self._build_servers()
        self._client_host = self.network.add_host("client", "10.53.0.61")

    def _build_servers(self) -> None:
        host, self._folder = self.network.add_host("web", "10.53.0.31"), self.made("web")
        call_in(host.path, lambda: _add_addresses(list(SERVERS.values())))
        self.report_loads(0)
        (self._folder / "agent.toml").write_text(sidecar_toml(self._folder))
        (self._folder / "nginx.conf").write_text(servers_conf(self._folder))
        nginx = ["nginx", "-p", str(self._folder), "-c", str(self._folder / "nginx.conf")]
        named = [sys.executable, "-m", "rspdns_lab.chain.named_server", "http", SERVERS[VICTIM], str(PORT)]
        self.victim = Program("victim", host, [*named, "up 1\n"], self._folder / "victim.log")
        agent = [sys.executable, "-m", "ppe_agent.cli", "run", "-c", str(self._folder / "agent.toml")]
        log = self._folder / "agent.log"
        self._server_programs = [
            Program("agent", host, self._sctp.command(agent), log, self._sctp.environment),
            Program("servers", host, nginx, self._folder / "log"),
            self.victim,
        ]

    def report_loads(self, step: int) -> None:
        """Let all servers have the loads of a step."""
        for number in SERVERS:
            file = self._folder / f"load-{number}"
            new = file.with_suffix(".new")
            new.write_text(f"{load_of(number, step)}\n")
            new.rename(file)

    def start(self) -> None:
        """Start every part, and wait until each client lists what it should."""
        for registrar in self.registrars:
            registrar.start()
        for registrar in self.registrars:
            registrar.wait()
        self.name_server.start()
        self.name_server.wait()
        for program in reversed(self._server_programs):
            program.start()
        names: dict[str, str] = {}

        def are_all_in() -> bool:
            names.update(self._names())
            return len(names) == len(SERVERS)

        wait_until(are_all_in, "all servers in their pool", START_TIMEOUT_S, *self._server_programs)
        self._make_clients(names)
        for client in self.clients:
            client.start()
        self.wait_until_listed()

    def _make_clients(self, names: Mapping[str, str]) -> None:
        host, server = self._client_host, self.name_server.host.address

        def folder(name: str) -> tuple[Host, Path]:
            return host, self.made(name)

        self.clients = [
            Haproxy("haproxy", *folder("haproxy"), server, owner(WHOLE)),
            Haproxy("haproxy, default answers", *folder("redrawn"), server, owner(REDRAWN)),
            Nginx(*folder("nginx"), server, f"web.{WHOLE}"),
            Prometheus(*folder("prometheus"), server, owner(WHOLE), names),
        ]
        if Envoy.is_here():
            self.clients.append(Envoy(*folder("envoy"), server, f"web.{WHOLE}"))

    def _names(self) -> dict[str, str]:
        """The address of each member by the first label of its target name."""
        try:
            zones = request(self.name_server.folder / "admin.sock", "status")["zones"]
        except ControlError:
            return {}
        pools = [pool for zone in zones if zone["zone"] == WHOLE for pool in zone["pools"]]
        return {member["identifier"]: member["addresses"][0] for pool in pools for member in pool["members"]}

    def wait_until_listed(self) -> None:
        """Wait until each client lists all servers; with default answers, some. Raises LabError."""
        for client in self.clients:
            least = 1 if client.name.endswith("answers") else len(SERVERS)
            wait_until(
                lambda client=client, least=least: len(seen(client) or ()) >= least,  # type: ignore[misc]
                f"{client.name} lists the servers",
                _SETTLE_S,
                *client.programs,
            )

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        for client in self.clients:
            client.close()
            yield from client.programs
        yield from self._server_programs
        if hasattr(self, "name_server"):
            yield from self.name_server.programs
        for registrar in self.registrars:
            yield from registrar.programs


def _add_addresses(addresses: Sequence[str]) -> None:
    commands = "".join(f"address add {address}/16 dev eth0\n" for address in addresses)
    subprocess.run(["ip", "-batch", "-"], input=commands, text=True, check=True)


def seen(client: Client) -> Mapping[str, int | None] | None:
    """The client's list; None while it does not tell."""
    try:
        return client.listed()
    except (OSError, LookupError, ValueError, http.client.HTTPException):
        return None


class Watcher:
    """Looks at a client's list all the time, in a thread. Times are monotonic seconds."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.lists: list[tuple[float, Mapping[str, int | None]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            found = seen(self.client)
            if found is not None:
                self.lists.append((time.monotonic(), found))


def run_trial(lab: DiscoverLab, trial: int, seconds: float) -> list[DiscoverTrial]:
    """Change all loads for `seconds`, then kill a server. Return what each client's list was."""
    draw = random.Random(trial)  # noqa: S311 - chance, not a secret
    watchers = [Watcher(client) for client in lab.clients]
    try:
        steps: list[tuple[float, int]] = []
        began_s = time.monotonic()
        while time.monotonic() < began_s + seconds:
            step = len(steps) + 1
            lab.report_loads(step)
            steps.append((time.monotonic(), step))
            time.sleep(STEP_S + draw.random())  # in no step with the clients' own polls
        killed_s = lab.victim.kill()
        time.sleep(_AFTER_S)
    finally:
        for watcher in watchers:
            watcher.close()
    lab.victim.start()
    lab.wait_until_listed()
    return [result(watcher, trial, steps, killed_s) for watcher in watchers]


def result(
    watcher: Watcher, trial: int, steps: Sequence[tuple[float, int]], killed_s: float
) -> DiscoverTrial:
    """Sum up the lists of one client."""
    client = watcher.client
    before = [(at_s, found) for at_s, found in watcher.lists if at_s < killed_s]
    flaps = sum(len(new.keys() ^ old.keys()) for (_, old), (_, new) in itertools.pairwise(before))
    weights = [len(set(found.values())) for _, found in before if None not in found.values()]
    is_whole = not client.name.endswith("answers")
    out_s = seen_out_s([look for look in watcher.lists if look[0] >= killed_s]) if is_whole else None
    if out_s is not None:
        out_s = max(0.0, out_s - killed_s - (client.used_within_s or 0.0))
    return DiscoverTrial(
        client.name,
        "all, wide" if is_whole else "default",
        trial,
        round(killed_s - steps[0][0], 1),
        len(before[-1][1]) if before else 0,
        flaps if client.used_within_s is None else None,
        max(weights, default=None),
        followed_ms(before, steps, killed_s) if is_whole and weights else [],
        None if out_s is None else round(1000 * out_s, 1),
        client.poll_s,
        client.version(),
        round(os.getloadavg()[0], 1),
    )


def seen_out_s(lists: Lists) -> float | None:
    """When the dead server was first seen off the list for good; None: it was not; pure."""
    out_s = None
    for at_s, listed in lists:
        if SERVERS[VICTIM] in listed:
            out_s = None
        elif out_s is None:
            out_s = at_s
    return out_s


def followed_ms(lists: Lists, steps: Sequence[tuple[float, int]], killed_s: float) -> list[float | None]:
    """How many ms after each change of the loads all weights were those of its loads; pure.

    None: they were not before the next change, the last one's before the kill.
    """
    found: list[float | None] = []
    ends = [*(at_s for at_s, _ in steps[1:]), killed_s]
    for (began_s, step), end_s in zip(steps, ends, strict=True):
        wanted = {address: haproxy_weight(load_of(number, step)) for number, address in SERVERS.items()}
        times = (at_s for at_s, listed in lists if began_s <= at_s < end_s and dict(listed) == wanted)
        first_s = next(times, None)
        found.append(None if first_s is None else round(1000 * (first_s - began_s), 1))
    return found
