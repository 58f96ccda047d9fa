"""A gateway between a client and a server, routed or bridged: what an unmodified client sees through it."""

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rspdns_lab.net.network import call_in

from tests.support.namespaces import Namespace, own_namespace
from tests.support.waiting import until

SILENT, SERVER = {4: "10.2.0.9", 6: "fd02::9"}, {4: "10.2.0.8", 6: "fd02::8"}
SILENT_MAC = "02:00:00:00:00:09"
PORT = 5060


def inside(host: Namespace, function: Callable[[], Any]) -> Any:
    """Call the function in the host's namespace."""
    return call_in(Path("/run/netns") / host.name, function)


class GatewayNetwork:
    """A client, a gateway, and behind it a server, and an address that is silent."""

    def __init__(self, client: Namespace, gate: Namespace, server: Namespace, *, is_bridge: bool) -> None:
        self.client, self.gate, self.server = client, gate, server
        self.is_bridge = is_bridge
        for link, host in (("inner", client), ("outer", server)):
            gate.ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            gate.ip("link", "set", link, "up")
            host.ip("link", "set", "eth0", "up")
        for version, length in ((4, 24), (6, 64)):
            net = "10.{}.0.{}" if version == 4 else "fd0{}::{}"
            here = 2 if is_bridge else 1
            self._give(client, "eth0", f"{net.format(here, 2)}/{length}")
            self._give(server, "eth0", f"{SERVER[version]}/{length}")
            if not is_bridge:
                self._give(gate, "inner", f"{net.format(1, 1)}/{length}")
                self._give(gate, "outer", f"{net.format(2, 1)}/{length}")
                client.ip("route", "add", "default", "via", net.format(1, 1))
                server.ip("route", "add", "default", "via", net.format(2, 1))
            asking, link = (client, "eth0") if is_bridge else (gate, "outer")
            asking.ip("neigh", "replace", SILENT[version], "lladdr", SILENT_MAC, "dev", link)
        if is_bridge:
            gate.ip("link", "add", "br0", "type", "bridge")
            for link in ("inner", "outer"):
                gate.ip("link", "set", link, "master", "br0")
            gate.ip("link", "set", "br0", "up")
            for address in ("10.2.0.7/24", "fd02::7/64"):
                self._give(gate, "br0", address)
        else:
            for setting in ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"):
                gate.run("sysctl", "-qw", setting)
        # New links carry nothing for about a second: a set-up through them would be repeated or refused.
        until(
            lambda: all(
                self.connect(address, timeout_s=0.5)[0] == errno.ECONNREFUSED for address in SERVER.values()
            )
        )

    @staticmethod
    def _give(host: Namespace, link: str, address: str) -> None:
        host.ip("addr", "add", address, "dev", link, *(("nodad",) if ":" in address else ()))

    def connect(self, address: str, port: int = PORT, timeout_s: float = 30) -> tuple[int, float]:
        """Have a program on the client's host connect: its error, and after how many seconds."""

        def connect() -> tuple[int, float]:
            began_s = time.monotonic()
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
                sock.settimeout(timeout_s)
                return sock.connect_ex((address, port)), time.monotonic() - began_s

        found: tuple[int, float] = inside(self.client, connect)
        return found

    def filters(self) -> str:
        """The BPF programs at the client's interface."""
        return "".join(
            self.gate.run("tc", "filter", "show", "dev", "inner", way).stdout for way in ("ingress", "egress")
        )


@contextmanager
def gateway_network(kind: str) -> Iterator[GatewayNetwork]:
    """Make the network, "routed" or "bridged", for all tests of a module."""
    with own_namespace() as client, own_namespace() as gate, own_namespace() as server:
        yield GatewayNetwork(client, gate, server, is_bridge=kind == "bridged")
