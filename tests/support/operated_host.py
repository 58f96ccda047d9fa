"""A host whose sidecar an operator handles: reloads, metrics, what a service manager hears."""

import json
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemon_kit.control import request
from prometheus_client.parser import text_string_to_metric_families

from tests.support.agent_host import PATIENCE_S, Host
from tests.support.namespaces import Namespace

TOML = """\
registrars = {registrars}
[state]
path = "{directory}/state"
[control]
path = "{directory}/control.sock"
[metrics]
listen = "10.99.0.1:9155"
[[as]]
name = "one"
handle = "agent-test"
transport = "tcp"
port = 5060
drain_file = "{directory}/drain"
[[as.check]]
type = "tcp-hold"
[[as.check]]
type = "process"
pid_file = "{directory}/pid"
[as.damping]
falls = 0
[as.load]
source = "none"
"""


class Operated(Host):
    """The host of these tests: a server with a pid file, an agent that tells a service manager how it is."""

    def __init__(self, namespace: Namespace, directory: Path) -> None:
        super().__init__(namespace, directory)
        self.notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications.bind(str(directory / "notify.sock"))
        self.notifications.settimeout(PATIENCE_S)
        self.toml = TOML.format(registrars=json.dumps(self.addresses), directory=directory)
        self.config.write_text(self.toml)
        self.server = self.start_tcp_server()
        (directory / "pid").write_text(str(self.server.pid))
        self.agent = namespace.start(
            *(sys.executable, "-m", "ppe_agent.cli", "run", "--log-json", "-c", str(self.config)),
            sctp=True,
            log=directory / "agent.log",
            environment={"NOTIFY_SOCKET": str(directory / "notify.sock"), "WATCHDOG_USEC": "2000000"},
        )

    def status(self) -> dict[str, Any]:
        """Return what the control socket tells, whatever the configuration file says now."""
        return request(self.directory / "control.sock", "status", timeout_s=10)

    def settle(self) -> str:
        """Bring the configuration of the beginning back; return the identifier that all registrars list."""
        (self.directory / "drain").unlink(missing_ok=True)
        self.reload(self.toml)
        self.until_status(lambda one: one["state"] == "in")
        return self.until_in()

    def reload(self, text: str, problem: str | None = None) -> None:
        """Have the agent read this configuration; wait until it did, or refused it."""
        self.config.write_text(text)
        log = self.directory / "agent.log"
        before = log.read_text().count('"reload')
        self.agent.send_signal(signal.SIGHUP)
        deadline_s = time.monotonic() + PATIENCE_S
        while log.read_text().count('"reload') == before:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert (self.status()["reload_problem"] or "") == (problem or "")

    def metrics(self) -> dict[str, float]:
        """Return every sample that /metrics shows."""
        done = self.namespace.run(
            sys.executable,
            "-c",
            "import urllib.request as r; print(r.urlopen('http://10.99.0.1:9155/metrics').read().decode())",
        )
        assert done.returncode == 0, done.stderr
        return {
            sample.name
            + "".join(f" {key}={value}" for key, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(done.stdout)
            for sample in family.samples
        }

    def changes_since(self, before: int) -> list[dict[str, Any]]:
        return self.watch.changes()[before:]

    def until_changed(self, before: int, condition: Callable[[list[dict[str, Any]]], bool]) -> None:
        self.watch.until(lambda _: condition(self.changes_since(before)), PATIENCE_S)
