"""The paths of calls: one cable, or two stateful firewalls of which one takes over from the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.compare.takeover import has_address, keepalived_command, keepalived_conf
from rspdns_lab.ending import uninterrupted
from rspdns_lab.net.network import (
    Host,
    LabNetwork,
    call_in,
    counted_packets,
    make_router,
    network_prefix,
    packet_filter,
    run_ip,
)
from rspdns_lab.net.preconditions import expect_programs
from rspdns_lab.net.processes import Program

CALLERS: Final = "198.18.0.0/16"
CALLEES: Final = "198.19.0.0/16"
PACKAGES: Final = {"nsenter": "util-linux", "nft": "nftables", "ip": "iproute2"}
FIREWALL_PACKAGES: Final = {"keepalived": "keepalived", "conntrackd": "conntrackd"}
_LEFT: Final = ("10.61.0.10", "10.61.0.1", "10.61.0.2", "10.61.0.100")
_RIGHT: Final = ("10.62.0.10", "10.62.0.1", "10.62.0.2", "10.62.0.100")
"""An end of the calls, the two firewalls, and the address that the firewalls share."""
_SYNC: Final = ("10.63.0.1", "10.63.0.2")
_START_TIMEOUT_S: Final = 30.0
_COUNTED: Final = "priority 0; ip saddr 198.18.0.0/15 meta l4proto udp counter name"
_LEDGER: Final = f"""table inet ledger {{
  counter left {{ }}
  counter came {{ }}
  chain output {{ type filter hook output {_COUNTED} left; }}
  chain input {{ type filter hook input {_COUNTED} came; }}
}}
"""
_RULES: Final = f"""table inet firewall {{
  counter passed {{ }}
  counter refused {{ }}
  chain admit {{
    iifname eth0 ip saddr {CALLERS} udp dport {{ 4569, 16384-16415 }} counter name passed accept
  }}
  chain forward {{
    type filter hook forward priority 0; policy drop;
    ct state established,related counter name passed accept
    ct state new jump admit
    counter name refused
  }}
}}
"""


@dataclass(frozen=True)
class FirewallPair:
    """How a pair of firewalls is run. `synchronised`: conntrackd tells the other one of each flow.

    `strict`: a new flow is admitted only while calls are set up, as by a pinhole that signalling opens;
    otherwise whenever the caller sends.
    """

    title: str
    synchronised: bool
    strict: bool
    advertisement_ms: int


PAIRS: Final = {
    "sync": FirewallPair("state synchronised, 100 ms advertisements", True, True, 100),
    "sync-1s": FirewallPair("state synchronised, 1 s advertisements (default)", True, True, 1000),
    "no-sync": FirewallPair("no synchronisation, 100 ms advertisements", False, True, 100),
    "no-sync-open": FirewallPair("no synchronisation, callers may open flows", False, False, 100),
}


class CallPath(LabBase):
    """Two hosts and a cable between them; see LabBase."""

    def __init__(self) -> None:
        expect_programs(PACKAGES)
        super().__init__()

    def build(self) -> None:
        """Make the two ends."""
        self.caller = self.network.add_host("caller", _LEFT[0])
        self.callee = self.network.add_host("callee", "10.61.0.20")
        self.route(self.callee.address, self.caller.address)

    def route(self, to_callees: str, to_callers: str) -> None:
        """Have both ends own their calls' addresses, count packets, and reach the other end by a router."""
        for host, own, other, router in (
            (self.caller, CALLERS, CALLEES, to_callees),
            (self.callee, CALLEES, CALLERS, to_callers),
        ):
            run_ip(host, f"route add local {own} dev lo", f"route add {other} via {router}")
            packet_filter(host, _LEDGER)

    def start(self) -> None:
        """Start whatever is between the ends."""

    def programs(self) -> Iterator[Program]:
        """Yield all programs."""
        yield from ()

    def came(self) -> int:
        """Return the packets of calls that came to an end, until now."""
        return sum(counted_packets(host, "ledger")["came"] for host in (self.caller, self.callee))

    def lost(self) -> int:
        """Return the packets of calls that left an end and came to none, until now."""
        left = sum(counted_packets(host, "ledger")["left"] for host in (self.caller, self.callee))
        return left - self.came()

    def wait_until_calls_flow(self, calls: int) -> None:
        """Wait until some packets of each call have come. Raises LabError."""
        wait_until(lambda: self.came() > 4 * calls, "calls that flow", _START_TIMEOUT_S)


class Firewall:
    """One of the two firewalls: eth0 towards the callers, eth1 towards the callees, eth2 to the other one."""

    def __init__(self, host: Host, folder: Path, pair: FirewallPair, *, first: bool) -> None:
        self.host = host
        self._folder = folder
        shared = {"eth0": _LEFT[3], "eth1": _RIGHT[3]}
        conf = keepalived_conf(shared, 61, pair.advertisement_ms, first=first)
        command = keepalived_command(folder, conf)
        self.keepalived = Program("keepalived", host, command, folder / "keepalived.log")
        self.programs = [self.keepalived]
        if pair.synchronised:
            file = folder / "conntrackd.conf"
            file.write_text(conntrackd_conf(folder, *(_SYNC if first else reversed(_SYNC))))
            command = ["conntrackd", "-C", str(file)]
            self.programs.append(Program("conntrackd", host, command, folder / "conntrackd.log"))
        make_router(host)
        run_ip(host, f"route add {CALLERS} via {_LEFT[0]}", f"route add {CALLEES} via {_RIGHT[0]}")
        packet_filter(host, _RULES)

    @property
    def is_master(self) -> bool:
        """Whether it has both shared addresses, and conntrackd, where it runs, has opened its socket."""
        ready = len(self.programs) == 1 or (self._folder / "conntrackd.ctl").exists()
        return ready and has_address(self.host, _LEFT[3]) and has_address(self.host, _RIGHT[3])

    def flows(self) -> int:
        """Return how many flows it knows."""
        return int(call_in(self.host.path, Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text))


class FirewallPath(CallPath):
    """Two firewalls between the ends; the first is the master while it lives."""

    def __init__(self, pair: FirewallPair) -> None:
        expect_programs({**PACKAGES, **FIREWALL_PACKAGES})
        super().__init__()
        self.pair = pair
        self.right, self.sync = LabNetwork(network_prefix()), LabNetwork(network_prefix())
        self.firewalls: list[Firewall] = []
        self._ports: list[tuple[LabNetwork, Host]] = []

    def build(self) -> None:
        """Make the ends, and two firewalls in three networks."""
        self.right.__enter__()
        self.sync.__enter__()
        self.caller = self.network.add_host("caller", _LEFT[0])
        self.callee = self.right.add_host("callee", _RIGHT[0])
        self.route(_LEFT[3], _RIGHT[3])
        for index, name in enumerate(("fw1", "fw2")):
            host = self.network.add_host(name, _LEFT[1 + index])
            right = self.right.join(host, _RIGHT[1 + index], "eth1")
            sync = self.sync.join(host, _SYNC[index], "eth2")
            if index == 0:
                self._ports = [(self.network, host), (self.right, right), (self.sync, sync)]
            self.firewalls.append(Firewall(host, self.made(name), self.pair, first=index == 0))

    def start(self) -> None:
        """Start both firewalls; wait until the first one is master."""
        for program in self.programs():
            program.start()
        first, second = self.firewalls
        wait_until(
            lambda: first.is_master and not second.is_master,
            "the first firewall has the shared addresses",
            _START_TIMEOUT_S,
            *self.programs(),
        )

    def end_set_up(self) -> None:
        """End the calls' set-up: with strict firewalls, only flows that they know pass from now on."""
        if self.pair.strict:
            for firewall in self.firewalls:
                packet_filter(firewall.host, "flush chain inet firewall admit\n")

    def fail(self, fault: str) -> None:
        """Stop the first firewall's keepalived, which hands the addresses over, or pull all its cables."""
        if fault == "soft":
            self.firewalls[0].keepalived.stop()
        for network, port in self._ports if fault == "hard" else ():
            network.cut(port)

    def programs(self) -> Iterator[Program]:
        """Yield all programs."""
        for firewall in self.firewalls:
            yield from firewall.programs

    def close(self) -> None:
        """End all; see LabBase."""
        with uninterrupted():
            super().close()
            self.right.close()
            self.sync.close()


def conntrackd_conf(folder: Path, own: str, other: str) -> str:
    """Return conntrackd's configuration: it tells the other firewall of the calls' flows.

    The states go into the kernel at once (no external cache), so a take-over needs no script.
    """
    return f"""Sync {{
    Mode FTFW {{ DisableExternalCache On StartupResync On }}
    UDP {{
        IPv4_address {own} IPv4_Destination_Address {other} Port 3780 Interface eth2 Checksum On
    }}
}}
General {{
    HashSize 32768 HashLimit 131072 LogFile {folder}/conntrackd.messages
    LockFile {folder}/conntrackd.lock UNIX {{ Path {folder}/conntrackd.ctl }}
    NetlinkBufferSize 4194304 NetlinkBufferSizeMaxGrowth 16777216
    Filter From Kernelspace {{ Protocol Accept {{ UDP }} Address Accept {{ IPv4_address 198.18.0.0/15 }} }}
}}
"""
