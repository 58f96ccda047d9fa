"""The backend in a namespace: its configuration with one zone, its commands, what it says of its pools."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from daemon_kit.control import ControlError, request
from rspdns.cli import main
from rspdns_lab.net.service_manager import ServiceManager

from tests.support.namespaces import Namespace
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


def other_pool(protocol: str, label: str) -> str:
    """Return another pool at the same name: of this protocol, with this label in its targets."""
    return (
        POOL.replace("_udp", f"_{protocol}").replace('"u"', f'"{label}"').replace(HANDLE, f"sip-{protocol}")
    )


def run_here(*words: str) -> subprocess.CompletedProcess[str]:
    """Run an rspdns command in this process."""
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


class Backend:
    """A backend that follows `registrars` and purges the PowerDNS with this control socket."""

    def __init__(
        self, namespace: Namespace, folder: Path, registrars: Sequence[str], pdns_control: Path
    ) -> None:
        self.namespace = namespace
        self.registrars = list(registrars)
        self.config = folder / "rspdns.toml"
        self.log = folder / "backend.log"
        self.admin = folder / "admin.sock"
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.config.write_text(f"""registrars = {json.dumps(self.registrars)}
[pdns]
connector = "unix:{folder}/remote.sock"
control = ["{pdns_control}"]
[admin]
socket = "{self.admin}"
[state]
path = "{folder}/state"
""")

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process that was started last."""
        assert self._process is not None
        return self._process

    def write_zone(self, pools: str, fixed: str = FIXED) -> None:
        """Write the zone's files."""
        zones = self._folder / "zones.d"
        zones.mkdir(exist_ok=True)
        (zones / f"{ZONE}.toml").write_text(f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\n{pools}')
        (zones / f"{ZONE}.zone").write_text(fixed)

    def add_registrar(self, address: str) -> None:
        """Let it follow one more registrar, whatever that is."""
        text = self.config.read_text()
        self.config.write_text(
            text.replace(json.dumps(self.registrars), json.dumps([*self.registrars, address]))
        )

    def start(self, manager: ServiceManager | None = None) -> subprocess.Popen[str]:
        """Start it, as this service manager does if one is given, and wait until it answers."""
        words, descriptors = manager.hand_over() if manager else ([], [])
        self._process = process = self.namespace.start(
            *words,
            *(sys.executable, "-m", "rspdns.cli", "serve", "--log-json", "-c", str(self.config)),
            sctp=True,
            log=self.log,
            descriptors=descriptors,
        )
        until(lambda: process.poll() is not None or self.status() is not None, told=self.log)
        assert process.poll() is None, self.log.read_text()
        return process

    def status(self, admin: Path | None = None) -> dict[str, Any] | None:
        """Return what the backend, with this admin socket, says; None while it does not."""
        try:
            return request(admin or self.admin, "status")
        except ControlError:
            return None

    def pool(self) -> dict[str, Any]:
        """Return the first pool of the status."""
        status: dict[str, Any] = {}
        until(lambda: status.update(self.status() or {}) or status, told=self.log)
        pool: dict[str, Any] = status["zones"][0]["pools"][0]
        return pool

    def is_known(self) -> bool:
        """Whether every pool is known, the real registrars being settled."""
        status = self.status() or {"registrars": [], "zones": []}
        real = status["registrars"][: len(self.registrars)]
        settled = [registrar["standing"] for registrar in real] == ["settled"] * len(self.registrars)
        return settled and all(pool["known"] for zone in status["zones"] for pool in zone["pools"])

    def remembers(self, identifiers: set[int]) -> bool:
        """Whether the last-known-good file, written once a second, has just these members."""
        try:
            pools = json.loads((self._folder / "state" / "last-known-good.json").read_bytes())["content"][
                "pools"
            ]
        except FileNotFoundError:
            return False
        return (
            HANDLE in pools and {member["identifier"] for member in pools[HANDLE]["members"]} == identifiers
        )

    def command(self, *arguments: str, sctp: bool = False) -> subprocess.CompletedProcess[str]:
        """Run an rspdns command with this configuration, in this process: loading takes longer than it does.

        With `sctp` it is a program in the namespace, where SCTP works.
        """
        words = [*arguments, "-c", str(self.config)]
        if sctp:
            return self.namespace.run(sys.executable, "-m", "rspdns.cli", *words, sctp=True)
        return run_here(*words)
