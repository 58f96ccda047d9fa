"""A small network of its own for a lab: hosts are network namespaces, joined by a bridge in another one.

Nothing of it touches the machine's own network: addresses and links exist inside the namespaces only. The
names begin with the lab's prefix, which holds a process identifier, so labs don't meet. Packet filters make a
host lose packets, or keep hosts apart.
"""

import contextlib
import ctypes
import errno
import os
import re
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyroute2 import IPRoute, netns
from pyroute2 import config as pyroute2_config
from pyroute2.netlink.exceptions import NetlinkError

from rspdns_lab.ending import uninterrupted
from rspdns_lab.errors import LabError

RELAYED_CLIENTS: Final = "198.18.0.0/15"
NAMESPACE_FOLDER: Final = Path("/run/netns")
_IP_FORWARD: Final = Path("/proc/sys/net/ipv4/ip_forward")
_COUNTED: Final = re.compile(r"counter (\w+) \{\s*packets (\d+)")
_CLONE_NEWNET: Final = 0x40000000
_KILL_TIMEOUT_S: Final = 5.0
pyroute2_config.default_communicate_timeout = 60  # s; its 2 s are too short for a busy or emulated machine
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Host:
    """One host of a lab: a network namespace with the interface `eth0`, and those by which it joined other
    networks."""

    name: str
    address: str
    namespace: str
    port: str
    """Its port at the bridge."""

    @property
    def path(self) -> Path:
        """The file that stands for the namespace."""
        return NAMESPACE_FOLDER / self.namespace


class LabNetwork:
    """Hosts on one Ethernet. A context manager: leaving it removes everything, with all processes in it.

    `prefix` starts every namespace's name. Raises LabError when namespaces can't be made here.
    """

    def __init__(self, prefix: str, prefix_length: int = 24) -> None:
        self.prefix = prefix
        self.hosts: dict[str, Host] = {}
        self._prefix_length = prefix_length
        self._lan = f"{prefix}-lan"
        self._made: list[str] = []

    def __enter__(self) -> "LabNetwork":
        try:
            self._make_namespace(self._lan)
            self._configure(self._lan, _make_bridge)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_host(self, name: str, address: str) -> Host:
        """Add a host with one address to the network."""
        host = Host(name, address, f"{self.prefix}-{name}", name)
        self._make_namespace(host.namespace)
        self.hosts[name] = host
        self._configure(host.namespace, _set_up)
        return self._attach(host, "eth0")

    def join(self, host: Host, address: str, interface: str) -> Host:
        """Give a host of another network an interface in this one; return it as this network knows it."""
        return self._attach(Host(host.name, address, host.namespace, host.name), interface)

    def _attach(self, host: Host, interface: str) -> Host:
        self._configure(self._lan, partial(_plug_in, host=host, interface=interface))
        has = partial(_address, interface=interface, address=host.address, prefix_length=self._prefix_length)
        self._configure(host.namespace, has)
        return host

    @property
    def switch(self) -> Host:
        """The namespace of the switch, where programs may have devices of their own."""
        return Host("switch", "", self._lan, "")

    def lead_through(self, host: Host, near: str, far: str) -> None:
        """Put two devices at the switch between a host's cable, which is joined to `near`, and all others."""
        self._configure(self._lan, partial(_lead_through, host=host, near=near, far=far))

    def lead_directly(self, host: Host) -> None:
        """Take back `lead_through`."""
        self._configure(self._lan, partial(_lead_directly, host=host))

    def cut(self, host: Host) -> None:
        """Pull the host's cable out of the switch."""
        self._set_port(host, "down")

    def restore(self, host: Host) -> None:
        """Plug it in again."""
        self._set_port(host, "up")

    def close(self) -> None:
        """Kill all that runs in the lab's namespaces and remove them. Safe to repeat; not interrupted."""
        with uninterrupted():
            for namespace in self._made:
                kill_all_in(NAMESPACE_FOLDER / namespace)
            while self._made:
                with contextlib.suppress(OSError):
                    netns.remove(self._made[-1])
                self._made.pop()
            self.hosts.clear()

    def _set_port(self, host: Host, state: str) -> None:
        self._configure(self._lan, lambda lan: lan.link("set", index=_index(lan, host.port), state=state))

    def _make_namespace(self, name: str) -> None:
        self._made.append(name)  # before it is, so that an interruption in between leaves nothing
        try:
            netns.create(name)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES):
                problem = "it needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN); try sudo"
            elif error.errno in (errno.ENOSPC, errno.EINVAL, errno.ENOSYS):
                problem = "this kernel, or this container, allows none"
            else:
                problem = error.strerror or str(error)
            raise LabError(f"can't make the network namespace {name}: {problem}") from None

    def _configure(self, namespace: str, settings: Callable[[Any], None]) -> None:
        """Call `settings` with an open netlink socket of the namespace.

        In a thread, since pyroute2's own way into a namespace is a child process, and one that inherits our
        signal handlers and clean-up.
        """

        def configure() -> None:
            with IPRoute() as netlink:
                settings(netlink)

        try:
            call_in(NAMESPACE_FOLDER / namespace, configure)
        except NetlinkError as error:
            if error.code == errno.EPERM:
                raise LabError("can't set up network links: CAP_NET_ADMIN is missing; try sudo") from None
            if error.code == errno.EOPNOTSUPP:
                raise LabError("this kernel has no veth or no bridge interfaces") from None
            raise LabError(f"can't set up the network of {namespace}: {error}") from None


def network_prefix() -> str:
    """Return what the namespaces of a lab of this process begin with; `leftovers.py` knows them by it."""
    return f"rspdns-{os.getpid()}-{secrets.token_hex(2)}"


def _make_bridge(lan: Any) -> None:
    lan.link("add", ifname="lan0", kind="bridge", br_forward_delay=0, br_stp_state=0)
    lan.link("set", index=_index(lan, "lan0"), state="up")


def _plug_in(lan: Any, host: Host, interface: str) -> None:
    peer = {"ifname": interface, "net_ns_fd": host.namespace}
    lan.link("add", ifname=host.port, kind="veth", peer=peer)
    lan.link("set", index=_index(lan, host.port), master=_index(lan, "lan0"), state="up")


def _lead_through(lan: Any, host: Host, near: str, far: str) -> None:
    between = f"{near[:14]}b"
    lan.link("add", ifname=between, kind="bridge", br_forward_delay=0, br_stp_state=0)
    lan.link("set", index=_index(lan, near), master=_index(lan, between), state="up")
    lan.link("set", index=_index(lan, far), master=_index(lan, "lan0"), state="up")
    lan.link("set", index=_index(lan, host.port), master=_index(lan, between))
    lan.link("set", index=_index(lan, between), state="up")


def _lead_directly(lan: Any, host: Host) -> None:
    [port] = lan.get_links(_index(lan, host.port))
    master, direct = port.get_attr("IFLA_MASTER"), _index(lan, "lan0")
    lan.link("set", index=_index(lan, host.port), master=direct)
    if master != direct:
        lan.link("del", index=master)


def _set_up(inside: Any) -> None:
    _forward_nothing()
    inside.link("set", index=_index(inside, "lo"), state="up")


def _address(inside: Any, interface: str, address: str, prefix_length: int) -> None:
    index = _index(inside, interface)
    inside.addr("add", index=index, address=address, prefixlen=prefix_length)
    inside.link("set", index=index, state="up")


def _forward_nothing() -> None:
    """A host of a lab is no router. A new namespace has what the machine has, and with containers that is 1:
    then a host that lost an address would pass on what is sent to it."""
    if _IP_FORWARD.read_text().strip() != "0":
        _IP_FORWARD.write_text("0")


def _index(netlink: Any, interface: str) -> int:
    return int(netlink.link_lookup(ifname=interface)[0])


def processes_in(path: Path) -> list[int]:
    """Return the identifiers of the processes in the network namespace that `path` stands for."""
    try:
        inode = path.stat().st_ino
    except OSError:
        return []
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if (process / "ns/net").stat().st_ino == inode:
                    found.append(int(process.name))
    return found


def kill_all_in(path: Path) -> None:
    """Kill every process in a network namespace, and wait until they are gone, for 5 s at most."""
    kill_until_gone(lambda: processes_in(path))


def kill_until_gone(find: Callable[[], Collection[int]]) -> None:
    """Kill the processes that `find` finds, this one excepted, until it finds none, for 5 s at most."""
    end_s = time.monotonic() + _KILL_TIMEOUT_S
    while (found := find()) and time.monotonic() < end_s:
        for pid in found:
            if pid != os.getpid():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


class InNamespace(threading.Thread):
    """Runs one function in a network namespace: a thread, since each can be in another one."""

    def __init__(self, path: Path, function: Any) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._function = function
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Enter the namespace and call the function."""
        try:
            with self._path.open() as file:
                if _LIBC.setns(file.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns failed")  # noqa: TRY301 - in the thread that moves
            self.result = self._function()
        except BaseException as error:
            self.error = error


def call_in(path: Path, function: Any) -> Any:
    """Call `function` in the network namespace `path` and return its result, or raise what it raised."""
    thread = InNamespace(path, function)
    thread.start()
    thread.join()
    if thread.error is not None:
        raise thread.error
    return thread.result


def lose_packets(host: Host, percent: float) -> None:
    """Have a host lose a share of the packets that reach it from others. Raises LabError."""
    below = round(percent * 100)
    packet_filter(
        host,
        f"""table inet loss {{
  counter lost {{ }}
  chain input {{
    type filter hook input priority -300; policy accept;
    iif != lo numgen random mod 10000 < {below} counter name lost drop
  }}
}}
""",
    )


def lose_no_packets(host: Host) -> None:
    """End `lose_packets()`. Raises LabError."""
    packet_filter(host, "delete table inet loss\n")


def lost_packets(host: Host) -> int:
    """Return how many packets it has lost so."""
    return counted_packets(host, "loss")["lost"]


def counted_packets(host: Host, table: str) -> dict[str, int]:
    """Return the packets of each named counter of a packet filter's table. Raises LabError."""
    text = packet_filter(host, f"list counters table inet {table}\n")
    return {name: int(packets) for name, packets in _COUNTED.findall(text)}


def keep_apart(host: Host, others: Sequence[Host]) -> None:
    """Have a host lose all packets that come from `others`. Raises LabError."""
    addresses = ", ".join(other.address for other in others)
    packet_filter(
        host,
        f"""table inet apart {{
  chain input {{
    type filter hook input priority -300; policy accept;
    ip saddr {{ {addresses} }} drop
  }}
}}
""",
    )


def join_again(host: Host) -> None:
    """Take `keep_apart` back; without one nothing happens."""
    packet_filter(host, "table inet apart\ndelete table inet apart\n")


def route_clients(host: Host) -> None:
    """Have servers of a host answer the clients of ppu-agents: `[relay] clients` of its sidecar."""
    run_ip(host, f"route add local {RELAYED_CLIENTS} dev lo")


def run_ip(host: Host, *commands: str) -> None:
    """Have `ip` do these on a host. Raises LabError."""
    command = ["nsenter", f"--net={host.path}", "--", "ip", "-batch", "-"]
    done = subprocess.run(command, input="\n".join(commands), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"ip on {host.name}: {done.stderr.strip()}")


def make_router(host: Host) -> None:
    """Have a host pass packets on, and send no redirects."""

    def forward() -> None:
        _IP_FORWARD.write_text("1")
        _IP_FORWARD.with_name("conf").joinpath("all/send_redirects").write_text("0")

    call_in(host.path, forward)


def packet_filter(host: Host, text: str) -> str:
    """Have nft do `text` on a host; return its output. Raises LabError."""
    command = ["nsenter", f"--net={host.path}", "--", "nft", "-f", "-"]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise LabError("nsenter is missing; install it: apt-get install util-linux") from None
    except subprocess.CalledProcessError as error:
        raise LabError(f"nft on {host.name}: {error.stderr.strip()} (Debian package: nftables)") from None
    return done.stdout
