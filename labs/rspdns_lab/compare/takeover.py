"""Address takeover, the network-layer alternative: two hosts share an address by CARP or VRRP."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program


@dataclass(frozen=True)
class Pair:
    """A protocol with its settings, the shared address and those of the two hosts."""

    key: str
    title: str
    shared: str
    addresses: tuple[str, str]
    group: int
    advertisement_ms: int


PAIRS = (
    Pair("carp", "CARP (ucarp, defaults)", "10.53.0.90", ("10.53.0.91", "10.53.0.92"), 11, 1000),
    Pair("vrrp", "VRRP (keepalived, defaults)", "10.53.0.93", ("10.53.0.94", "10.53.0.95"), 12, 1000),
    Pair(
        "vrrp-tuned",
        "VRRP (keepalived, 100 ms advertisements)",
        "10.53.0.96",
        ("10.53.0.97", "10.53.0.98"),
        13,
        100,
    ),
)


class TakeoverHost:
    """One of the two hosts; the first is the master while it lives."""

    def __init__(self, pair: Pair, host: Host, folder: Path, *, first: bool) -> None:
        self.host = host
        self._pair = pair
        self._first = first
        self._program = Program(pair.key, host, self._command(folder), folder / f"{pair.key}.log")

    @property
    def programs(self) -> Sequence[Program]:
        """The programs that run here."""
        return (self._program,)

    def start(self) -> None:
        """Start it."""
        self._program.start()

    def step_down(self) -> None:
        """Have the administrator hand the address to the other host: by an orderly stop.

        keepalived then advertises priority 0 (RFC 5798, section 6.4.3). ucarp tells the other host nothing;
        nor does it at SIGUSR2, and its -P would take the address back as soon as the other host has it.
        """
        self._program.stop()

    def step_up(self) -> None:
        """Take that back."""
        if not self._program.is_running:
            self._program.start()

    def _command(self, folder: Path) -> list[str]:
        if self._pair.key != "carp":
            pair, shared = self._pair, {"eth0": self._pair.shared}
            conf = keepalived_conf(shared, pair.group, pair.advertisement_ms, first=self._first)
            return keepalived_command(folder, conf)
        for name, doing in (("up", "add"), ("down", "del")):
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec ip address {doing} {self._pair.shared}/32 dev "$1"\n')
            script.chmod(0o755)
        options = ["-i", "eth0", "-s", self.host.address, "-v", str(self._pair.group), "-p", "lab"]
        options += ["-a", self._pair.shared, "-u", str(folder / "up"), "-d", str(folder / "down"), "-z"]
        return ["ucarp", *options, *(["-P"] if self._first else ["-k", "100"])]


def keepalived_conf(shared: Mapping[str, str], group: int, advertisement_ms: int, *, first: bool) -> str:
    """Return keepalived's configuration: the shared address at each interface; they move together.

    VRRP version 3 knows advertisements below a second.
    """
    together = f"vrrp_sync_group lab {{\n    group {{ {' '.join(shared)} }}\n}}\n" if len(shared) > 1 else ""
    instances = "".join(
        f"""vrrp_instance {interface} {{
    state {"MASTER" if first else "BACKUP"}
    interface {interface}
    virtual_router_id {group}
    priority {200 if first else 100}
    advert_int {advertisement_ms / 1000:g}
    virtual_ipaddress {{
        {address}/24
    }}
}}
"""
        for interface, address in shared.items()
    )
    return f"global_defs {{\n    vrrp_version 3\n    script_user root\n}}\n{together}{instances}"


def keepalived_command(folder: Path, conf: str) -> list[str]:
    """Write keepalived's configuration; return the command that runs it in the foreground."""
    file = folder / "keepalived.conf"
    file.write_text(conf)
    pids = ["-p", f"{folder}/pid", "-r", f"{folder}/vrrp"]
    return ["keepalived", "--dont-fork", "--log-console", "-f", str(file), *pids]


def has_address(host: Host, address: str) -> bool:
    """Tell whether a host has the address now. Raises LabError."""
    command = ["nsenter", f"--net={host.path}", "--", "ip", "-4", "-o", "address", "show"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"ip on {host.name}: {done.stderr.strip()}")
    return f" {address}/" in done.stdout
