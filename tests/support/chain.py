"""The whole chain in one namespace: three registrars with sentinels, the backend, PowerDNS."""

import json
import os
import signal
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from daemon_kit.control import ControlError, request
from pool_user.memory import FILE_NAME
from registrar_config.embedded import embedded_commands, embedded_registrars

from tests.support.agent_host import give_address
from tests.support.namespaces import Namespace
from tests.support.pdns import Pdns
from tests.support.service_manager import ServiceManager
from tests.support.waiting import until

ADDRESS = "10.99.0.1"
ZONE = "ims.example.net"
OWNER = f"_sip._udp.as.{ZONE}"
HANDLE = "sip-udp"
POOL = f"""
[[pool]]
handle = "{HANDLE}"
label = "u"
service = "_sip._udp"
name = "as"
accept = ["{ADDRESS}/32"]
slow_start_s = 0
"""
FIXED = """$TTL 3600
@    SOA  ns1 hostmaster 1 7200 900 1209600 300
@    NS   ns1
ns1  A    127.0.0.1
"""
GENEROUS_S = 60.0


class Chain:
    """`when_empty` and more keys of the pool are given as TOML text, `pdns` are settings of pdns-config."""

    address = ADDRESS
    """Where all of it is, IPv4 or IPv6."""
    agent_reregistration_ms = 300
    """A registrar is settled when it has been up for twice as long."""

    def __init__(self, namespace: Namespace, folder: Path, more: str = "", **pdns: Any) -> None:
        self.namespace = namespace
        self.folder = folder
        self.config = folder / "rspdns.toml"
        self.log = folder / "backend.log"
        self.registrars = embedded_registrars(self.address)
        give_address(namespace, self.address)
        self.registrar_programs = [self._start_registrar(number) for number in (1, 2, 3)]
        self.pdns = Pdns(namespace, folder, **pdns)
        network = ip_network(f"{self.address}/{64 if ':' in self.address else 32}", strict=False)
        self.write_zone((POOL + more).replace(f"{ADDRESS}/32", str(network)))
        self.config.write_text(f"""registrars = {json.dumps(self.registrars)}
[pdns]
connector = "unix:{folder}/remote.sock"
control = ["{self.pdns.control}"]
[admin]
socket = "{folder}/admin.sock"
[state]
path = "{folder}/state"
""")

    def _start_registrar(self, number: int) -> subprocess.Popen[str]:
        settling = f"--agent-reregistration-ms={self.agent_reregistration_ms}"
        command = [*embedded_commands(self.address)[number - 1], settling, "--log-json"]
        return self.namespace.start(*command, sctp=True, log=self.folder / f"registrar-{number}.log")

    def start_registrars(self, *numbers: int) -> None:
        """Start these registrars anew; without any, all."""
        for number in numbers or (1, 2, 3):
            self.registrar_programs[number - 1] = self._start_registrar(number)

    def kill_registrars(self) -> None:
        """All of them, with their sentinels and supervisors."""
        for program in self.registrar_programs:
            end(program, signal.SIGKILL)

    def write_zone(self, pools: str, fixed: str = FIXED) -> None:
        """Write the zone's files."""
        zones = self.folder / "zones.d"
        zones.mkdir(exist_ok=True)
        (zones / f"{ZONE}.toml").write_text(f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\n{pools}')
        (zones / f"{ZONE}.zone").write_text(fixed)

    def start_backend(self, manager: ServiceManager | None = None) -> subprocess.Popen[str]:
        """Start the backend, as this service manager does if one is given, and wait until it answers."""
        command = [
            *(manager.wrapper() if manager else ()),
            sys.executable,
            "-m",
            "rspdns.cli",
            "serve",
            "--log-json",
            "-c",
            str(self.config),
        ]
        backend = self.namespace.start(
            *command,
            sctp=True,
            log=self.log,
            environment=manager.environment if manager else None,
            descriptors=manager.descriptors if manager else (),
        )
        until(lambda: backend.poll() is not None or self.status() is not None, told=self.log)
        assert backend.poll() is None, self.log.read_text()
        return backend

    def start(self) -> subprocess.Popen[str]:
        """Start backend and PowerDNS, and wait until the pool is known; return the backend."""
        backend = self.start_backend()
        self.pdns.start(ZONE)
        until(self.is_known, 40, self.log)
        return backend

    def status(self, admin: Path | None = None) -> dict[str, Any] | None:
        """What the backend, with this admin socket, says; None while it does not."""
        try:
            return request(admin or self.folder / "admin.sock", "status")
        except ControlError:
            return None

    def pool(self) -> dict[str, Any]:
        """The pool in the status."""
        status: dict[str, Any] = {}
        until(lambda: status.update(self.status() or {}) or status, told=self.log)
        pool: dict[str, Any] = status["zones"][0]["pools"][0]
        return pool

    def is_known(self) -> bool:
        """Whether the pool is known, all registrars being settled."""
        status = self.status() or {"registrars": [{"standing": ""}]}
        return all(one["standing"] == "settled" for one in status["registrars"]) and self.pool()["known"]

    def targets(self, owner: str = OWNER) -> set[int] | str:
        """The PE identifiers DNS gives, or the status of an answer without any."""
        said = self.pdns.dig(owner, "SRV")
        found = {
            int(words[-1].partition(".")[0], 16)
            for words in map(str.split, said.splitlines())
            if words[3:4] == ["SRV"] and words[-1][8:9] == "."
        }
        return found or said.partition("status: ")[2].partition(",")[0]

    def remembers(self, identifiers: set[int], handle: str = HANDLE) -> bool:
        """Whether the last-known-good file, written once a second, has just these members."""
        try:
            pools = json.loads((self.folder / "state" / FILE_NAME).read_bytes())["content"]["pools"]
        except FileNotFoundError:
            return False
        return (
            {one["identifier"] for one in pools[handle]["members"]} == identifiers
            if handle in pools
            else False
        )

    def command(self, *arguments: str, sctp: bool = False) -> subprocess.CompletedProcess[str]:
        """Run an rspdns command with this configuration; with `sctp`, where SCTP works, in the namespace."""
        command = [sys.executable, "-m", "rspdns.cli", *arguments, "-c", str(self.config)]
        return subprocess.run(
            self.namespace.command(*command, sctp=True) if sctp else command,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )


def end(program: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> int:
    """Send a signal to a program started in a namespace and wait for its end; return its exit code."""
    os.killpg(program.pid, number)
    return program.wait(60)
