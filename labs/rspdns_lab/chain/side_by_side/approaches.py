"""The ways to serve the application servers' names that are compared, each on a name server of its own."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rspdns_lab.chain.hosts import NameServerHost
from rspdns_lab.chain.plan import REGISTRARS, ZONE, LabSetting
from rspdns_lab.chain.side_by_side import texts
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host
from rspdns_lab.net.preconditions import SctpRunner
from rspdns_lab.net.processes import Program

TITLES: Final = {
    "static": "static zone (PowerDNS, bind backend)",
    "lua": "PowerDNS LUA records (ifportup, every second)",
    "lua-default": "PowerDNS LUA records (ifportup, its defaults)",
    "gdnsd": "gdnsd (tcp_connect every 2 s, no damping)",
    "gdnsd-default": "gdnsd (tcp_connect, its defaults)",
    "rspdns": "rspdns",
}
NAME_SERVERS: Final = {approach: f"10.53.0.{61 + index}" for index, approach in enumerate(TITLES)}


class Approach(ABC):
    """A name server for the lab's zone, on `host`, with its files in `folder`."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.drained: set[str] = set()

    @property
    @abstractmethod
    def programs(self) -> Sequence[Program]:
        """The programs that run here."""

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    def drain(self, name: str) -> None:
        """Take an application server out as the operator of this name server does it."""
        self.drained.add(name)
        self.show()

    def undrain(self, name: str) -> None:
        """Take it in again."""
        self.drained.discard(name)
        self.show()

    @abstractmethod
    def show(self) -> None:
        """Have it answer without the drained ones."""


class ZoneFile(Approach):
    """PowerDNS with a zone file that somebody edits and reloads; `lua` for one with LUA records."""

    def __init__(self, host: Host, folder: Path, *, lua: bool, tuned: bool = True) -> None:
        super().__init__(host, folder)
        lua_zone = partial(texts.lua_zone, tuned=tuned)
        self._zone: Callable[..., str] = lua_zone if lua else texts.static_zone
        self._serial = 0
        self._pdns = Program("pdns", host, ["pdns_server", f"--config-dir={folder}"], folder / "pdns.log")
        (folder / "pdns.conf").write_text(texts.pdns_conf(host.address, folder, lua=lua, tuned=tuned))
        (folder / "named.conf").write_text(f'zone "{ZONE}" {{ type master; file "{folder}/zone"; }};\n')
        self._write()

    @property
    def programs(self) -> Sequence[Program]:
        """The programs that run here."""
        return (self._pdns,)

    def start(self) -> None:
        """Start it."""
        self._pdns.start()

    def show(self) -> None:
        """Edit the zone, reload it, and throw away what the caches hold of it."""
        self._write()
        for command in (["bind-reload-now", ZONE], ["purge", f"{ZONE}$"]):
            run_command(self.host, ["pdns_control", f"--socket-dir={self.folder}", *command])

    def _write(self) -> None:
        self._serial += 1
        (self.folder / "zone").write_text(self._zone(self.host.address, self._serial, self.drained))


class Gdnsd(Approach):
    """gdnsd: static SRV, whose one target has the addresses that pass its checks."""

    def __init__(self, host: Host, folder: Path, *, tuned: bool = True) -> None:
        super().__init__(host, folder)
        for name in ("zones", "run", "state"):
            (folder / name).mkdir()
        (folder / "config").write_text(texts.gdnsd_config(host.address, folder, tuned=tuned))
        (folder / "zones" / ZONE).write_text(texts.gdnsd_zone(host.address))
        self._gdnsd = Program("gdnsd", host, ["gdnsd", "-c", str(folder), "start"], folder / "gdnsd.log")

    @property
    def programs(self) -> Sequence[Program]:
        """The programs that run here."""
        return (self._gdnsd,)

    def start(self) -> None:
        """Start it."""
        self._gdnsd.start()

    def show(self) -> None:
        """Write the file of administered states, which gdnsd watches."""
        (self.folder / "state" / "admin_state").write_text(texts.gdnsd_admin_state(self.drained))


class Rspdns(Approach):
    """PowerDNS with the rspdns backend. Its servers are drained at their agents, by `drain_at_agent`."""

    def __init__(
        self,
        host: Host,
        folder: Path,
        sctp: SctpRunner,
        drain_at_agent: Callable[[str, bool], None],
        *,
        tcp: bool = False,
    ) -> None:
        super().__init__(host, folder)
        registrars = list(REGISTRARS.values())
        self._server = NameServerHost(host, registrars, [host.address], folder, sctp, LabSetting(tcp=tcp))
        self._drain_at_agent = drain_at_agent
        self._shown: set[str] = set()

    @property
    def programs(self) -> Sequence[Program]:
        """The programs that run here."""
        return self._server.programs

    def start(self) -> None:
        """Start the backend, then PowerDNS."""
        self._server.start()
        self._server.wait()

    def show(self) -> None:
        """Have the agents withdraw their servers, or register them again."""
        for name in self.drained ^ self._shown:
            self._drain_at_agent(name, name in self.drained)
        self._shown = set(self.drained)


_COMMAND_TIMEOUT_S: Final = 10.0


def run_command(host: Host, command: Sequence[str]) -> None:
    """Run a command on a host. Raises LabError when it fails."""
    done = subprocess.run(
        ["nsenter", f"--net={host.path}", "--", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMMAND_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)} on {host.name}: {(done.stderr or done.stdout).strip()}")
