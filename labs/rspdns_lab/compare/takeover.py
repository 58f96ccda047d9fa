"""Address takeover, the network-layer alternative: two hosts share an address by CARP or VRRP."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
            config = folder / "keepalived.conf"
            config.write_text(keepalived_conf(self._pair, first=self._first))
            pids = ["-p", f"{folder}/pid", "-r", f"{folder}/vrrp"]
            return ["keepalived", "--dont-fork", "--log-console", "-f", str(config), *pids]
        for name, doing in (("up", "add"), ("down", "del")):
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec ip address {doing} {self._pair.shared}/32 dev "$1"\n')
            script.chmod(0o755)
        options = ["-i", "eth0", "-s", self.host.address, "-v", str(self._pair.group), "-p", "lab"]
        options += ["-a", self._pair.shared, "-u", str(folder / "up"), "-d", str(folder / "down"), "-z"]
        return ["ucarp", *options, *(["-P"] if self._first else ["-k", "100"])]


def keepalived_conf(pair: Pair, *, first: bool) -> str:
    """Return keepalived's configuration. VRRP version 3 knows advertisements below a second."""
    return f"""global_defs {{
    vrrp_version 3
    script_user root
}}
vrrp_instance lab {{
    state {"MASTER" if first else "BACKUP"}
    interface eth0
    virtual_router_id {pair.group}
    priority {200 if first else 100}
    advert_int {pair.advertisement_ms / 1000:g}
    virtual_ipaddress {{
        {pair.shared}/24
    }}
}}
"""
