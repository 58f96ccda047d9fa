"""A sidecar (ppe-agent) in a namespace: its configuration, its commands, and what it says of its servers."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from daemon_kit.control import ControlError, request

from tests.support.namespaces import Namespace
from tests.support.waiting import until

PATIENCE_S = 40.0
"""A shared machine may need long to start a program; what never happens is what a test is after."""


def server_text(
    name: str, handle: str, transport: str, port: int, check: str, load: str = 'source = "none"'
) -> str:
    """Return one server of a sidecar's configuration, which no fall holds back."""
    return f"""[[as]]
name = "{name}"
handle = "{handle}"
transport = "{transport}"
port = {port}
[[as.check]]
type = "{check}"
[as.damping]
falls = 0
[as.load]
{load}
"""


class Sidecar:
    """A sidecar whose files are `<folder>/<name>.toml`, `.log`, `.sock` and `-state`."""

    def __init__(
        self, namespace: Namespace, folder: Path, registrars: Sequence[str], name: str = "agent"
    ) -> None:
        self.namespace = namespace
        self.registrars = list(registrars)
        self.config = folder / f"{name}.toml"
        self.log = folder / f"{name}.log"
        self.control = folder / f"{name}.sock"
        self.load_file = folder / "load"
        self.state = folder / f"{name}-state"
        self.paths = f'[state]\npath = "{self.state}"\n[control]\npath = "{self.control}"\n'
        """The tables of a configuration that name its files."""

    def configure(self, *servers: str, registrars: Sequence[str] = ()) -> None:
        """Configure these servers, as `server_text` gives them, or other tables."""
        known = json.dumps(list(registrars or self.registrars))
        self.config.write_text(f"registrars = {known}\n{self.paths}{''.join(servers)}")

    def configure_server(self, handle: str, check: str, transport: str) -> None:
        """Configure a server "one" at port 5060, whose load is what `set_load` says, 0.25 at first."""
        load = f'source = "file"\npath = "{self.load_file}"\nmax_age_ms = 3600000\nsmoothing_ms = 0'
        self.set_load(0.25)
        self.configure(server_text("one", handle, transport, 5060, check, load))

    def set_load(self, load: float) -> None:
        """Let the server that `configure_server` configured have this load, 0 to 1."""
        new = self.load_file.with_suffix(".new")
        new.write_text(str(load))
        new.rename(self.load_file)

    def start(self, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start it."""
        return self.namespace.start(
            *(sys.executable, "-m", "ppe_agent.cli", "run", "--log-json", "-c", str(self.config)),
            sctp=True,
            log=self.log,
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

    def status(self) -> dict[str, Any]:
        """Return what the control socket tells, as `ppe-agent status` has it."""
        return request(self.control, "status", timeout_s=10)

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until `condition` holds of the status."""
        seen: Any = None

        def holds() -> bool:
            nonlocal seen
            try:
                seen = self.status()
            except ControlError as problem:
                seen = problem
                return False
            return condition(seen)

        until(holds, PATIENCE_S, lambda: f"{seen}; {self.log.read_text()}", 0.05)

    def until_status(
        self, condition: Callable[[dict[str, Any]], bool], name: str | None = None
    ) -> dict[str, Any]:
        """Wait until `condition` holds of the server `name` (None: the first); return its status."""
        found: list[dict[str, Any]] = []

        def holds(status: dict[str, Any]) -> bool:
            servers = status["as"]
            found[:] = [
                server
                for server in servers
                if server["name"] == (name or servers[0]["name"]) and condition(server)
            ]
            return bool(found)

        self.until(holds)
        return found[0]

    def until_state(self, state: str) -> dict[str, Any]:
        """Wait until the first server is in `state`; return its status."""
        return self.until_status(lambda server: server["state"] == state)

    def logged_after(self, since_s: float, event: str) -> float:
        """Return how long after `since_s` (seconds since 1970) it first logged `event`."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            for line in self.log.read_text().splitlines():
                if f'"event": "{event}"' in line:
                    told = json.loads(line)
                    if (at_s := datetime.fromisoformat(told["timestamp"]).timestamp()) >= since_s:
                        return at_s - since_s
            time.sleep(0.02)
        raise AssertionError(f"no {event}: {self.log.read_text()}")
