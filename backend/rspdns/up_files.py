"""The files of `rspdns up`: the backend's, an example zone's, PowerDNS's, and one for a sidecar to try."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pdns_config.render import PdnsSettings, render

from rspdns.admin.configuration import AdminConfig
from rspdns.zone_adding import NameServer, NewZone, parse_name_server, toml_text, zone_text

ZONE = "ims.example.net"
HANDLE = "sip-as-udp"
OWNER = f"_sip._udp.as.{ZONE}"
DNS_ADDRESS = "127.0.0.1"
LIVE_PAGE = AdminConfig().listen

_WHEN_EMPTY = """
# With a single server to try, the default "last-good" would go on answering with it after its death: right
# where a check may err about all servers at once, confusing here.
when_empty = "nodata"
"""


@dataclass(frozen=True, slots=True)
class UpFiles:
    """Where everything of one `rspdns up` lies."""

    folder: Path

    @property
    def backend(self) -> Path:
        """The backend's configuration."""
        return self.folder / "rspdns.toml"

    @property
    def agent(self) -> Path:
        """The configuration of a sidecar."""
        return self.folder / "agent.toml"

    @property
    def remote_socket(self) -> Path:
        """Where PowerDNS asks the backend."""
        return self.folder / "remote.sock"

    @property
    def admin_socket(self) -> Path:
        """Where the backend is asked for its status."""
        return self.folder / "admin.sock"

    @property
    def pdns_control_socket(self) -> Path:
        """Where PowerDNS is asked to purge."""
        return self.folder / "pdns.controlsocket"

    def write(self, address: str, port: int, registrars: Sequence[str]) -> None:
        """Write them all, but keep a zone and `agent.toml` that are there: people edit them.

        `address` is the host's, at which servers may join; `port` is where DNS answers."""
        zones = self.folder / "zones.d"
        zones.mkdir(parents=True, exist_ok=True)
        new = NewZone(ZONE, (_name_server(),), HANDLE, (_network(address),), label="u")
        _write_missing(zones / f"{ZONE}.toml", toml_text(new) + _WHEN_EMPTY)
        _write_missing(zones / f"{ZONE}.zone", zone_text(new))
        settings = PdnsSettings(DNS_ADDRESS, port, f"unix:{self.remote_socket}", str(self.folder))
        (self.folder / "pdns.conf").write_text(render(settings))
        self.backend.write_text(self._backend_text(registrars, settings.control_socket))
        _write_missing(self.agent, self._agent_text(address, registrars))

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

    def _agent_text(self, address: str, registrars: Sequence[str]) -> str:
        return f"""# A sidecar for a SIP server at {address}:5060; see what `rspdns up` prints
registrars = {json.dumps(list(registrars))}

[state]
path = {json.dumps(str(self.folder / "agent-state"))}

[control]
path = {json.dumps(str(self.folder / "agent.sock"))}

[[as]]
name = "sip-1"
handle = {json.dumps(HANDLE)}
transport = "udp"
address = {json.dumps(address)}
port = 5060
policy = "least-used"

[[as.check]]
type = "sip-options"

# With one of these beside it a killed server is out within milliseconds:
# [[as.check]]
# type = "tcp-hold"  # where it listens on TCP, too
# [[as.check]]
# type = "process"
# process = "kamailio"

[as.load]
source = "cpu"
"""


def _write_missing(path: Path, text: str) -> None:
    if not path.exists():
        path.write_text(text)


def _name_server() -> NameServer:
    return parse_name_server(f"ns1={DNS_ADDRESS}", ZONE)


def _network(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"
