"""An AS host in a namespace: three registrars, a server, its agent, and a watch on their pool."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from daemon_kit.control import ControlError, request
from ppe_agent.configuration import control_path
from rserpool.machine.registrar_choice import RegistrarAddress

from tests.ppe_agent.servers import DATA, TCP_SERVER
from tests.support.namespaces import Namespace
from tests.support.registrars import PoolWatch, start_registrars

ADDRESS = "10.99.0.1"
HANDLE = "agent-test"
PATIENCE_S = 40
"""A shared machine may need long to start a program; what never happens is what a test is after."""
CONFIG = """\
registrars = {registrars}
[state]
path = "{directory}/state"
[control]
path = "{directory}/control.sock"
[[as]]
name = "one"
handle = "agent-test"
transport = "{transport}"
port = 5060
[[as.check]]
type = "{check}"
[as.damping]
falls = 0
[as.load]
source = "file"
path = "{directory}/load"
max_age_ms = 3600000
smoothing_ms = 0
"""


def give_address(namespace: Namespace, address: str) -> None:
    """Give the namespace an interface with `address`, as a host in a network has it."""
    for command in (
        "link add eth0 type veth peer name eth0-peer",
        "link set eth0-peer up",
        "link set eth0 up",
        f"address add {address}/{64 if ':' in address else 24} dev eth0"
        + (" nodad" if ":" in address else ""),
    ):
        done = namespace.run("ip", *command.split())
        assert done.returncode == 0, done.stderr


def once_within(limit_s: float, attempt: Callable[[], float], attempts: int = 3) -> None:
    """Make attempts until one takes less than `limit_s`: it can, though a busy machine may hold up others."""
    took_s: list[float] = []
    while not took_s or took_s[-1] >= limit_s:
        assert len(took_s) < attempts, f"none took less than {limit_s} s: {took_s}"
        took_s.append(attempt())


class Host:
    """A namespace with three registrars, a server and its agent."""

    def __init__(
        self, namespace: Namespace, directory: Path, address: str = ADDRESS, *, with_registrars: bool = True
    ) -> None:
        self.namespace = namespace
        self.directory = directory
        self.address = address
        self.config = directory / "agent.toml"
        self.addresses = [str(RegistrarAddress(address, port)) for port in (3863, 3864, 3865)]
        if with_registrars:
            give_address(namespace, address)
            self.registrars = start_registrars(namespace, directory, address)
            self.watch = PoolWatch(namespace, HANDLE, self.addresses, directory / "watch.log")
        self.set_load(0.25)

    def configure(self, check: str, transport: str) -> None:
        registrars = json.dumps(self.addresses)
        text = CONFIG.format(
            registrars=registrars, directory=self.directory, check=check, transport=transport
        )
        self.config.write_text(text)

    def set_load(self, load: float) -> None:
        (self.directory / "load.new").write_text(str(load))
        (self.directory / "load.new").rename(self.directory / "load")

    def start_tcp_server(self, port: int = 5060) -> subprocess.Popen[str]:
        return self.namespace.start(sys.executable, "-c", TCP_SERVER, str(port), "-1", self.address)

    def start_sipp(self) -> subprocess.Popen[str]:
        arguments = [
            "-sf",
            str(DATA / "options.xml"),
            "-i",
            self.address,
            "-p",
            "5060",
            "-t",
            "u1",
            "-nostdin",
        ]
        return self.namespace.start("sipp", *arguments, log=self.directory / "sipp.log")

    def start_agent(self, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return self.namespace.start(
            *(sys.executable, "-m", "ppe_agent.cli", "run", "--log-json", "-c", str(self.config)),
            sctp=True,
            log=self.directory / "agent.log",
            environment=environment,
        )

    def run_command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a ppe-agent command; the control socket is a file, so it works from outside."""
        return subprocess.run(
            [sys.executable, "-m", "ppe_agent.cli", *arguments, "-c", str(self.config)],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )

    def command(self, *arguments: str) -> str:
        """Run a command that must succeed; return what it prints."""
        done = self.run_command(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def until_state(self, state: str) -> dict[str, Any]:
        """Wait for the agent and until its AS is in `state`; return the status of the AS."""
        return self.until_status(lambda server: server["state"] == state)

    def until_status(
        self, condition: Callable[[dict[str, Any]], bool], name: str | None = None
    ) -> dict[str, Any]:
        """Wait for the agent and until `condition` holds of its AS `name` (None: the first); return its
        status.

        Asks at the control socket as `ppe-agent status` does, without starting a program for each question.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        seen: Any = None
        while time.monotonic() < deadline_s:
            try:
                seen = self.status()["as"]
            except ControlError as problem:
                seen = problem
            else:
                for server in seen:
                    if server["name"] == (name or seen[0]["name"]) and condition(server):
                        return dict(server)
            time.sleep(0.05)
        raise AssertionError(f"{seen}; {(self.directory / 'agent.log').read_text()}")

    def until(self, condition: Callable[[dict[str, Any]], bool], log: str = "") -> None:
        """Wait until `condition` holds of what the control socket tells."""
        deadline_s = time.monotonic() + PATIENCE_S
        seen: Any = None
        while time.monotonic() < deadline_s:
            try:
                seen = self.status()
                if condition(seen):
                    return
            except ControlError as problem:
                seen = problem
            time.sleep(0.05)
        raise AssertionError(f"{log} {seen}; {(self.directory / 'agent.log').read_text()}")

    def status(self) -> dict[str, Any]:
        """Return what the control socket tells."""
        return request(control_path(self.config), "status", timeout_s=10)

    def until_in(self) -> str:
        """Wait until every registrar lists the same one element; return its identifier."""
        view = self.watch.until(lambda view: all(len(view.get(each) or {}) == 1 for each in self.addresses))
        identifiers = {next(iter(view[each] or {})) for each in self.addresses}
        assert len(identifiers) == 1
        return identifiers.pop()

    def until_out(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until no registrar lists an element."""
        self.watch.until(lambda view: all(view.get(each) == {} for each in self.addresses), timeout_s)

    def logged_after(self, since_s: float, event: str) -> float:
        """Return how long after `since_s` (seconds since 1970) the agent first logged `event`."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            for line in (self.directory / "agent.log").read_text().splitlines():
                if f'"event": "{event}"' in line:
                    told = json.loads(line)
                    if (at_s := datetime.fromisoformat(told["timestamp"]).timestamp()) >= since_s:
                        return at_s - since_s
            time.sleep(0.02)
        raise AssertionError(f"no {event}: {(self.directory / 'agent.log').read_text()}")
