"""The files of `rspdns up`: the backend's, an example zone's, PowerDNS's, and one for a sidecar to try.

They stand in the folder of this run, which is removed at its end; what killed runs left is removed by the
next one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from daemon_kit.addresses import endpoint
from daemon_kit.errors import FatalError
from daemon_kit.files import read_secret, replace_file
from daemon_kit.logs import get_logger
from pdns_config import PdnsSettings, render_pdns_conf, write_script
from registrar_config import embedded_rules

from rserpool import Protocol, new_pool_key, pool_key_line, read_pool_keys, server_key_line
from rspdns.admin.configuration import AdminConfig
from rspdns.zones.adding import NameServer, NewZone, parse_name_server, toml_text, zone_text

PREFIX = "rspdns-up-"
LOCK = "lock"
"""Held by the owner as long as it lives: who can lock it knows that the owner is gone."""


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Yield a new folder in the directory for temporary files. Raises OSError."""
    remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, contextlib.ExitStack() as held:
        folder = Path(name)
        lock = held.enter_context((folder / f"{LOCK}.new").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / f"{LOCK}.new").rename(folder / LOCK)  # locked before anybody can find it
        yield folder


def remove_abandoned(where: Path) -> None:
    """Remove the folders of this user whose owners are gone."""
    for folder in where.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            state = folder.lstat()
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
                continue
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its owner lives
                for entry in [each for each in folder.iterdir() if each.name != LOCK]:
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
                shutil.rmtree(folder)  # the lock goes last: what is left after an error is found again
                get_logger("up").info("removed_what_a_killed_run_left", folder=str(folder))
            finally:
                os.close(descriptor)


ZONE = "ims.example.net"
HANDLE = "sip-as-udp"
OWNER = f"_sip._udp.as.{ZONE}"
DNS_ADDRESS = "127.0.0.1"
LIVE_PAGE = AdminConfig().listen

SERVERS: Mapping[str, int] = {"sip-1": 5071, "sip-2": 5072, "sip-3": 5073}
"""The SIP servers and their ports, UDP and TCP."""

OWN_PORT = 5060
"""The port of a server of the user's own."""
_WHEN_EMPTY = """
# Here servers are killed to see them go. The default "last-good" would go on answering with the last of them
# after its death: right where a check may err about all servers at once, confusing here.
when_empty = "nodata"
"""


@dataclass(frozen=True, slots=True)
class UpFiles:
    """The paths of all files of one `rspdns up`."""

    folder: Path

    @property
    def backend(self) -> Path:
        """The backend's configuration."""
        return self.folder / "rspdns.toml"

    @property
    def agent(self) -> Path:
        """The configuration of a sidecar for the user's own server."""
        return self.folder / "agent.toml"

    def sidecar(self, server: str) -> Path:
        """The configuration of the sidecar of one of `SERVERS`."""
        return self.folder / f"{server}.toml"

    @property
    def gate_rules(self) -> Path:
        """The hosts that may speak to the registrars: this one."""
        return self.folder / "registrars.gate"

    @property
    def pool_key(self) -> Path:
        """The key of the pool."""
        return self.folder / "pool.key"

    def server_key(self, server: str) -> Path:
        """The key of one of `SERVERS`, or of the user's own: "own"."""
        return self.folder / f"{server}.key"

    def pid(self, name: str) -> Path:
        """The file with the process number of a program."""
        return self.folder / f"{name}.pid"

    @property
    def remote_socket(self) -> Path:
        """The socket at which PowerDNS asks the backend."""
        return self.folder / "remote.sock"

    @property
    def admin_socket(self) -> Path:
        """The socket at which the backend is asked for its status."""
        return self.folder / "admin.sock"

    @property
    def pdns_control_socket(self) -> Path:
        """The socket at which PowerDNS is asked to purge."""
        return self.folder / "pdns.controlsocket"

    def write(self, address: str, port: int, registrars: Sequence[str], *, has_servers: bool = True) -> None:
        """Write them all, but keep a zone and `agent.toml` that are there: people edit them.

        `address` is the host's, at which servers may join; `port` is where DNS answers. `has_servers`: the
        zone names our `SERVERS`, so that they are told by name, and missed.
        """
        zones = self.folder / "zones.d"
        zones.mkdir(parents=True, exist_ok=True)
        self.gate_rules.write_text(embedded_rules(address))
        _write_missing(self.pool_key, f"{pool_key_line(new_pool_key())}\n", mode=0o600)
        for name, its_port in (("own", OWN_PORT), *SERVERS.items()):
            self._write_server_key(name, address, its_port)
        new = NewZone(ZONE, (_name_server(),), HANDLE, (_network(address),), label="u")
        _write_missing(
            zones / f"{ZONE}.toml",
            toml_text(new) + self._key_text + _WHEN_EMPTY + (_expected(address) if has_servers else ""),
        )
        _write_missing(zones / f"{ZONE}.zone", zone_text(new))
        connector = f"unix:{self.remote_socket}"
        script = write_script(self.folder, connector)
        settings = PdnsSettings(DNS_ADDRESS, port, connector, str(self.folder), script=script)
        (self.folder / "pdns.conf").write_text(render_pdns_conf(settings))
        self.backend.write_text(self._backend_text(registrars, settings.control_socket))
        _write_missing(self.agent, self._own_agent_text(address, registrars))
        for name, its_port in SERVERS.items():
            self.sidecar(name).write_text(
                f"# The sidecar of {name}, written anew by every `rspdns up`\n"
                f"{self._agent_text(name, name, address, its_port, registrars)}{_TCP_HOLD}"
            )

    @property
    def _key_text(self) -> str:
        return f"key = {json.dumps(str(self.pool_key))}  # only sidecars with a key of it are believed\n"

    def _write_server_key(self, name: str, address: str, port: int) -> None:
        """Write the key of one server, derived from the pool's newest key. Raises OSError."""
        try:
            pool = read_pool_keys(read_secret(self.pool_key))[-1]
        except ValueError as problem:
            raise FatalError(str(problem)) from None
        made = pool.server_key(Protocol.UDP, ip_address(address), port)
        replace_file(self.server_key(name), f"{server_key_line(made)}\n".encode())

    def _backend_text(self, registrars: Sequence[str], control: str) -> str:
        return f"""registrars = {json.dumps(list(registrars))}

[pdns]
connector = {json.dumps(f"unix:{self.remote_socket}")}
control = [{json.dumps(control)}]

[admin]
socket = {json.dumps(str(self.admin_socket))}

[state]
path = {json.dumps(str(self.folder / "state"))}
"""

    def _agent_text(self, agent: str, server: str, address: str, port: int, registrars: Sequence[str]) -> str:
        return f"""registrars = {json.dumps(list(registrars))}

[state]
path = {json.dumps(str(self.folder / f"{agent}-state"))}

[control]
path = {json.dumps(str(self.folder / f"{agent}.sock"))}

[[as]]
name = {json.dumps(server)}
handle = {json.dumps(HANDLE)}
transport = "udp"
address = {json.dumps(address)}
port = {port}
key = {json.dumps(str(self.server_key(server)))}
policy = "least-used"

[[as.check]]
type = "sip-options"
"""

    def _own_agent_text(self, address: str, registrars: Sequence[str]) -> str:
        return f"""# A sidecar for a SIP server of yours at {address}:{OWN_PORT}; see what `rspdns up` prints
{self._agent_text("agent", "own", address, OWN_PORT, registrars)}
# With one of these beside it a killed server is out within milliseconds:
# [[as.check]]
# type = "tcp-hold"  # where it listens on TCP, too
# [[as.check]]
# type = "process"
# process = "kamailio"

[as.load]
source = "cpu"
"""


_TCP_HOLD = """
[[as.check]]
type = "tcp-hold"

[as.load]
source = "none"  # all three have the same processors

[as.damping]
falls = 0  # it is killed on purpose, and may come back each time
"""


def _expected(address: str) -> str:
    """The names of our servers, for the zone."""
    named = (f"{json.dumps(endpoint(address, port))} = {json.dumps(name)}" for name, port in SERVERS.items())
    return "\n[pool.expect]  # whose absence is told, by name\n" + "\n".join(named) + "\n"


def _write_missing(path: Path, text: str, *, mode: int = 0o644) -> None:
    if not path.exists():
        path.touch(mode)
        path.write_text(text)


def _name_server() -> NameServer:
    return parse_name_server(f"ns1={DNS_ADDRESS}", ZONE)


def _network(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"
