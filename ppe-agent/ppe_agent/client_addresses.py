"""`[relay] clients`: the addresses at which servers see the clients that ppu-agents bring.

A client must not look like a program of this host: many servers trust loopback and their own address. So
each flow has an address of a network that nobody else uses. The operator routes the network to this host:
`ip route add local 198.18.0.0/15 dev lo`. The kernel then drops packets from outside with such a source.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final

from ppe_agent.addresses import Address

Network = IPv4Network | IPv6Network

DEFAULT_NETWORKS: Final = ("198.18.0.0/15", "2001:2::/48")
"""Those of benchmarks (RFC 2544, RFC 5180): no host has such an address, and no server trusts them."""
_FREEBIND: Final = {4: (socket.IPPROTO_IP, 15), 6: (socket.IPPROTO_IPV6, 78)}
"""IP_FREEBIND and IPV6_FREEBIND: the address is routed here, and no interface has it."""
_FAMILY: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_IPV4_ROUTES, _IPV6_ROUTES = Path("/proc/net/route"), Path("/proc/net/ipv6_route")


def client_socket(
    networks: Sequence[Network], kind: socket.SocketKind, server: tuple[Address, int], number: int, port: int
) -> socket.socket:
    """A socket for client `number` at its address; at `port` if that is free there. Raises OSError.

    A datagram socket is connected to the server, a stream socket is not.
    """
    version = server[0].version
    made = _bindable(version, kind)
    try:
        address = str(_address(networks, version, number))
        try:
            made.bind((address, port))
        except OSError as problem:
            if problem.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            made.bind((address, 0))
        if kind == socket.SOCK_DGRAM:
            made.connect((str(server[0]), server[1]))
    except OSError:
        made.close()
        raise
    return made


def problem_of(networks: Sequence[Network], servers: Iterable[Address]) -> str | None:
    """The reason why these servers could not answer clients at such addresses; None when they can."""
    for version in sorted({server.version for server in servers}):
        network = next((candidate for candidate in networks if candidate.version == version), None)
        if network is None:
            return f"has no IPv{version} network, which a server with relay = true needs"
        if not _is_local(network):
            ip = "ip" if version == 4 else "ip -6"
            return (
                f"servers can't answer clients in {network}, since no route leads it to this host: "
                f"{ip} route add local {network} dev lo"
            )
    return None


def cautions(networks: Sequence[Network]) -> Iterator[str]:
    """Warnings for the operator about these networks."""
    loopback = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
    for network in networks:
        if any(_overlap(network, of_loopback) for of_loopback in loopback):
            yield f"{network} is loopback: a server that trusts its own host trusts all these clients"
        for route, device in _routes():
            if device != "lo" and route.prefixlen and _overlap(network, route):
                yield f"{network} collides with the route to {route} by {device}: take another network"


def _address(networks: Sequence[Network], version: int, number: int) -> Address:
    network = next((candidate for candidate in networks if candidate.version == version), None)
    if network is None:
        raise OSError(errno.EADDRNOTAVAIL, "no network for clients")
    if network.num_addresses < 4:
        return network[0]
    return network[1 + number % (network.num_addresses - 2)]


def _is_local(network: Network) -> bool:
    """Whether a datagram from an address of the network to itself arrives. It never leaves this host."""
    with contextlib.suppress(OSError), _bindable(network.version, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        probe.settimeout(0.2)
        probe.bind((str(_address((network,), network.version, 0)), 0))
        probe.connect(probe.getsockname())
        probe.send(b"?")
        return probe.recv(1) == b"?"
    return False


def _bindable(version: int, kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(_FAMILY[version], kind)
    made.setblocking(False)
    made.setsockopt(*_FREEBIND[version], 1)
    return made


def _routes() -> Iterator[tuple[Network, str]]:
    """The routes of this host, and the device of each."""
    with contextlib.suppress(OSError):
        for line in _IPV4_ROUTES.read_text().splitlines()[1:]:
            device, destination, *_, mask = line.split()[:8]
            address, bits = (int(word, 16).to_bytes(4, sys.byteorder) for word in (destination, mask))
            yield IPv4Network((address, int.from_bytes(bits, "big").bit_count())), device
    with contextlib.suppress(OSError):
        for line in _IPV6_ROUTES.read_text().splitlines():
            destination, prefix, *_, device = line.split()
            yield ip_network((bytes.fromhex(destination), int(prefix, 16))), device


def _overlap(network: Network, other: Network) -> bool:
    return network.version == other.version and network.overlaps(other)
