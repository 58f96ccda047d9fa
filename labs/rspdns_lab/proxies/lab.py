"""Reverse proxies in front of a pool of web servers: with ppu-agent on the proxy's host, and without."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daemon_kit.control import ControlError, request

from rspdns_lab.chain.hosts import START_TIMEOUT_S, RegistrarHost, wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.chain.plan import APPLICATION_SERVERS, NETWORK, REGISTRARS, REREGISTRATION_MS
from rspdns_lab.net.network import Host, call_in
from rspdns_lab.net.preconditions import SctpRunner, check_programs, find_sctp
from rspdns_lab.net.processes import Program

HANDLE: Final = "web"
PORT: Final = 8080
VICTIM: Final = "as1"
PROXIES: Final = ("nginx", "haproxy")
FRONT_PORT: Final = 80
CALM_S: Final = 3.0
RATE_PER_S: Final = 10
PATIENCE_S: Final = 75.0
"""The time that a client waits for its answer; nginx waits for 60 s by default."""


@dataclass(frozen=True)
class ProxyTrial:
    """The result of the requests through one proxy. `calls`: start (s after the fault), delay in ms; None: no
    answer with 200."""

    fault: str
    proxy: str
    has_agent: bool
    trial: int
    calls: Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class ProxyFault:
    """The fault of a web server. `promised`: with the agent no request fails or is late."""

    name: str
    what: str
    do: Callable[[ProxyLab], None]
    undo: Callable[[ProxyLab], None]
    promised: bool = True


def agent_toml(folder: Path) -> str:
    """The file of the how-to page, and where this lab has its files."""
    registrars = json.dumps(list(REGISTRARS.values()))
    return f"""registrars = {registrars}

[[pool]]
handle = "{HANDLE}"
accept = ["{NETWORK}"]

[control]
path = "{folder}/ppu.sock"

[state]
path = "{folder}"
"""


def sidecar_toml(name: str, address: str, folder: Path) -> str:
    """The sidecar's configuration beside a web server."""
    return f"""registrars = {json.dumps(list(REGISTRARS.values()))}
reregistration_ms = {REREGISTRATION_MS}

[control]
path = "{folder}/agent.sock"

[state]
path = "{folder}"

[[as]]
name = "{name}"
handle = "{HANDLE}"
transport = "tcp"
address = "{address}"
port = {PORT}

[[as.check]]
type = "tcp-hold"

[[as.check]]
type = "http"

[as.damping]
falls = 0    # a lab kills its servers as often as it likes
"""


def nginx_conf(folder: Path, address: str) -> str:
    """nginx with its defaults: connecting takes 60 s at most, and a server that failed has a rest of 10 s."""
    servers = "\n".join(f"        server {address}:{PORT};" for address in APPLICATION_SERVERS.values())
    temporary = "\n".join(
        f"    {kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""user root;
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
{temporary}
    upstream web {{
{servers}
    }}
    server {{
        listen {address}:{FRONT_PORT};
        location / {{ proxy_pass http://web; }}
    }}
}}
"""


def haproxy_cfg(address: str) -> str:
    """HAProxy with the timeouts of Debian's file, and its own checks of connections every 2 s."""
    servers = "\n".join(
        f"    server {name} {address}:{PORT} check" for name, address in APPLICATION_SERVERS.items()
    )
    return f"""defaults
    mode http
    timeout connect 5000
    timeout client 50000
    timeout server 50000
frontend all
    bind {address}:{FRONT_PORT}
    default_backend web
backend web
    option redispatch
{servers}
"""


def proxy_command(kind: str, conf: Path) -> list[str]:
    """How a proxy is started in the foreground with this file."""
    if kind == "nginx":
        return ["nginx", "-p", str(conf.parent), "-c", str(conf)]
    return ["haproxy", "-db", "-f", str(conf)]


class WebServer:
    """A web server and its sidecar."""

    def __init__(self, name: str, host: Host, folder: Path, sctp: SctpRunner) -> None:
        self.host = host
        program = [sys.executable, "-m", "rspdns_lab.chain.named_server", "http"]
        command = [*program, host.address, str(PORT), name]
        self.server = Program("web", host, command, folder / "web.log")
        (folder / "agent.toml").write_text(sidecar_toml(name, host.address, folder))
        sidecar = [sys.executable, "-m", "ppe_agent.cli", "run", "-c", str(folder / "agent.toml")]
        self.sidecar = Program("agent", host, sctp.command(sidecar), folder / "agent.log", sctp.environment)

    def signal(self, number: int) -> None:
        """Send a signal to the web server."""
        os.killpg(self.server.pid, number)


class Proxy:
    """A reverse proxy, and its requests."""

    def __init__(self, kind: str, host: Host, folder: Path, sctp: SctpRunner, *, has_agent: bool) -> None:
        self.kind, self.has_agent, self.host = kind, has_agent, host
        conf = folder / f"{kind}.conf"
        address = host.address
        conf.write_text(nginx_conf(folder, address) if kind == "nginx" else haproxy_cfg(address))
        self.programs = [Program(kind, host, proxy_command(kind, conf), folder / f"{kind}.log")]
        self.control = folder / "ppu.sock"
        if has_agent:
            (folder / "ppu-agent.toml").write_text(agent_toml(folder))
            agent = [sys.executable, "-m", "ppu_agent.cli", "run", "-c", str(folder / "ppu-agent.toml")]
            self.programs.append(
                Program("ppu-agent", host, sctp.command(agent), folder / "ppu-agent.log", sctp.environment)
            )

    def is_ready(self) -> bool:
        """Whether every server answers through it, and its agent sees all of them."""
        answered = {self.ask() for _ in range(2 * len(APPLICATION_SERVERS))}
        return answered >= set(APPLICATION_SERVERS) and (not self.has_agent or self._sees_all())

    def ask(self) -> str:
        """Which server answers a request; empty for none."""
        found: str = call_in(self.host.path, lambda: asyncio.run(self._ask(1.0)))
        return found

    def place(self, seconds: float) -> list[tuple[float, float | None]]:
        """Place requests at RATE_PER_S; return when each began (monotonic, s), and its delay in ms."""
        found: list[tuple[float, float | None]] = []

        async def request() -> None:
            began_s = time.monotonic()
            by = await self._ask(PATIENCE_S)
            found.append((began_s, (time.monotonic() - began_s) * 1000 if by else None))

        async def all_of_them() -> None:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(round(RATE_PER_S * seconds)):
                    tasks.create_task(request())
                    await asyncio.sleep(1 / RATE_PER_S)

        call_in(self.host.path, lambda: asyncio.run(all_of_them()))
        return sorted(found)

    async def _ask(self, patience_s: float) -> str:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(patience_s):
                reader, writer = await asyncio.open_connection(self.host.address, FRONT_PORT)
                try:
                    writer.write(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
                    answer = await reader.read()
                finally:
                    writer.close()
            if answer.startswith(b"HTTP/1.1 200 "):
                return answer.rpartition(b"\r\n\r\n")[2].decode()
        return ""

    def _sees_all(self) -> bool:
        try:
            status = request(self.control, "status")
        except ControlError:
            return False
        (pool,) = status["pool"]
        return len(pool["members"]) == len(APPLICATION_SERVERS) and not status["treated"]


class ProxyLab(LabBase):
    """The running lab; see LabBase."""

    def __init__(self, proxies: Sequence[str] = PROXIES) -> None:
        check_programs({proxy: "nginx-light" if proxy == "nginx" else proxy for proxy in proxies})
        super().__init__()
        self._sctp = find_sctp()
        self._kinds = proxies
        self.registrars: list[RegistrarHost] = []
        self.servers: dict[str, WebServer] = {}
        self.proxies: list[Proxy] = []

    def build(self) -> None:
        """Make all hosts with their files."""
        for number, (name, address) in enumerate(REGISTRARS.items(), start=1):
            host = self.network.add_host(name, address)
            self.registrars.append(
                RegistrarHost(host, number, list(REGISTRARS.values()), self.made(name), self._sctp)
            )
        for name, address in APPLICATION_SERVERS.items():
            host = self.network.add_host(name, address)
            self.servers[name] = WebServer(name, host, self.made(name), self._sctp)
        ways = [(kind, has_agent) for kind in self._kinds for has_agent in (False, True)]
        for number, (kind, has_agent) in enumerate(ways):
            host = self.network.add_host(f"proxy{number}", f"10.53.0.{100 + number}")
            folder = self.made(f"proxy{number}")
            self.proxies.append(Proxy(kind, host, folder, self._sctp, has_agent=has_agent))

    def start(self) -> None:
        """Start every part, and wait until all is well."""
        for registrar in self.registrars:
            registrar.start()
        for registrar in self.registrars:
            registrar.wait()
        for server in self.servers.values():
            server.server.start()
            server.sidecar.start()
        for proxy in self.proxies:
            for program in proxy.programs:
                program.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until every server answers through every proxy. Raises LabError."""
        for proxy in self.proxies:
            wait_until(
                proxy.is_ready, f"all servers answer through {proxy.kind}", START_TIMEOUT_S, *proxy.programs
            )

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        for proxy in self.proxies:
            yield from proxy.programs
        for server in self.servers.values():
            yield from (server.sidecar, server.server)
        for registrar in self.registrars:
            yield from registrar.programs


def run_fault(lab: ProxyLab, fault: ProxyFault, trial: int, seconds: float) -> list[ProxyTrial]:
    """Place requests, do the fault, go on for `seconds`, wait for the last answer. The fault stays."""
    found: dict[Proxy, list[tuple[float, float | None]]] = {}

    def place(proxy: Proxy) -> None:
        found[proxy] = proxy.place(CALM_S + seconds)

    threads = [threading.Thread(target=place, args=(proxy,), daemon=True) for proxy in lab.proxies]
    for thread in threads:
        thread.start()
    time.sleep(CALM_S)
    fault_at_s = time.monotonic()
    fault.do(lab)
    for thread in threads:
        thread.join()
    return [
        ProxyTrial(
            fault.name,
            proxy.kind,
            proxy.has_agent,
            trial,
            [(round(at_s - fault_at_s, 3), delay_ms and round(delay_ms, 1)) for at_s, delay_ms in calls],
        )
        for proxy, calls in found.items()
    ]


FAULTS: Final = (
    ProxyFault(
        "killed",
        f"{VICTIM}'s web server is killed",
        lambda lab: lab.servers[VICTIM].signal(signal.SIGKILL),
        lambda lab: lab.servers[VICTIM].server.start(),
    ),
    ProxyFault(
        "cut",
        f"{VICTIM}'s network cable is pulled",
        lambda lab: lab.network.cut(lab.servers[VICTIM].host),
        lambda lab: lab.network.restore(lab.servers[VICTIM].host),
    ),
    ProxyFault(
        "hung",
        f"{VICTIM}'s web server hangs (SIGSTOP); its kernel accepts connections until its queue is full",
        lambda lab: lab.servers[VICTIM].signal(signal.SIGSTOP),
        lambda lab: lab.servers[VICTIM].signal(signal.SIGCONT),
        promised=False,
    ),
)
