"""Connection set-up that nobody answers, in a real kernel: paced towards members, and towards nobody else."""

import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

import pytest
from pool_user import PoolView
from ppu_agent.kernel import Pacer, Pacing
from ppu_agent.mechanisms.pace import paced
from ppu_agent.plan import PoolPolicy, plan
from rspdns_lab.net.network import call_in

from rserpool import Protocol
from tests.ppu_agent.making import POOL, member, policy
from tests.support.namespaces import Namespace, own_namespace

MEMBER, OTHER, HERE = "10.99.8.9", "10.99.8.10", "10.99.8.1"
PORT = 5060
FIXED = Pacing(500, 2000, learns=False)
USER_TIMEOUT = socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT
_RTO_OFFSET = 8
Found = TypeVar("Found")


@contextlib.contextmanager
def silent_network() -> Iterator[Namespace]:
    """A host whose neighbours are silent."""
    with own_namespace() as host:
        host.ip("link", "add", "eth0", "type", "veth", "peer", "name", "silent")
        host.ip("addr", "add", f"{HERE}/24", "dev", "eth0")
        for link in ("eth0", "silent"):
            host.ip("link", "set", link, "up")
        for neighbour in (MEMBER, OTHER):
            host.ip("neigh", "add", neighbour, "lladdr", "02:00:00:00:00:09", "dev", "eth0")
        yield host


@pytest.fixture
def host() -> Iterator[Namespace]:
    with silent_network() as host:
        yield host


@pytest.fixture
def pacer(host: Namespace) -> Iterator[Pacer]:
    made = inside(host, Pacer)
    yield made
    made.close()


def inside(host: Namespace, function: Callable[[], Found]) -> Found:
    found: Found = call_in(Path("/run/netns") / host.name, function)
    return found


def set_up(host: Namespace, address: str, port: int = PORT) -> tuple[int, int]:
    """Begin to connect; return ms until the next SYN, and until it gives up (0: as usual)."""

    def connect() -> tuple[int, int]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as connecting:
            connecting.setblocking(False)
            assert connecting.connect_ex((address, port)) == errno.EINPROGRESS
            info = connecting.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
            rto_us: int = struct.unpack_from("=I", info, _RTO_OFFSET)[0]
            return rto_us // 1000, connecting.getsockopt(*USER_TIMEOUT)

    return inside(host, connect)


@pytest.mark.integration
def test_set_up_is_paced_towards_members_only(host: Namespace, pacer: Pacer) -> None:
    usual = set_up(host, MEMBER)
    assert usual[0] >= 1000
    pacer.set({(ip_address(MEMBER), PORT): FIXED})
    assert set_up(host, MEMBER) == (500, 2000)
    assert set_up(host, f"::ffff:{MEMBER}") == (500, 2000), "by a socket for both IP versions"
    assert set_up(host, MEMBER, PORT + 1) == usual
    assert set_up(host, OTHER) == usual
    pacer.set({(ip_address(OTHER), PORT): FIXED})
    assert set_up(host, MEMBER) == usual
    pacer.close()
    assert set_up(host, OTHER) == usual


@pytest.mark.integration
def test_other_network_namespaces_are_not_paced(host: Namespace, pacer: Pacer) -> None:
    pacer.set({(ip_address(MEMBER), PORT): FIXED})
    with silent_network() as other:
        assert set_up(other, MEMBER)[1] == 0
    assert set_up(host, MEMBER)[1] == FIXED.give_up_ms


@pytest.mark.integration
def test_set_up_that_nobody_answers_fails_soon(host: Namespace, pacer: Pacer) -> None:
    pacer.set({(ip_address(MEMBER), PORT): FIXED})

    def connect() -> int:
        with socket.socket() as connecting:
            connecting.settimeout(60)
            return connecting.connect_ex((MEMBER, PORT))

    assert inside(host, connect) == errno.ETIMEDOUT, "the kernel's own patience is 127 s"


@pytest.mark.integration
def test_programs_own_patience_holds_where_it_is_shorter(host: Namespace, pacer: Pacer) -> None:
    pacer.set({(ip_address(MEMBER), PORT): FIXED})

    def patience_ms() -> list[int]:
        found = []
        for own_ms in (700, 5000):
            with socket.socket() as connecting:
                connecting.setblocking(False)
                connecting.setsockopt(*USER_TIMEOUT, own_ms)
                connecting.connect_ex((MEMBER, PORT))
                found.append(connecting.getsockopt(*USER_TIMEOUT))
        return found

    assert inside(host, patience_ms) == [700, 2000]


@pytest.mark.integration
@pytest.mark.parametrize("own_ms", [0, 700, 2000, 5000])
@pytest.mark.parametrize("is_second_try", [False, True])
def test_established_connection_has_the_programs_own_patience_and_tells_the_round_trip(
    host: Namespace, pacer: Pacer, own_ms: int, is_second_try: bool
) -> None:
    address = ip_address(HERE)
    pacer.set({(address, PORT): FIXED._replace(learns=True)})

    def connect() -> int:
        with socket.socket() as server, socket.socket() as client:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((HERE, PORT))
            client.setsockopt(*USER_TIMEOUT, own_ms)
            if is_second_try:
                assert client.connect_ex((HERE, PORT)) == errno.ECONNREFUSED
            server.listen()
            client.connect((HERE, PORT))
            return client.getsockopt(*USER_TIMEOUT)

    assert inside(host, connect) == own_ms
    assert (pacer.round_trip_ms(address, PORT) or 0) > 0
    pacer.set({(ip_address(MEMBER), PORT): FIXED})
    assert pacer.round_trip_ms(address, PORT) is None


def test_living_tcp_members_are_paced_as_the_first_pool_says() -> None:
    tcp = PoolView("sip-tcp", (member(3, Protocol.TCP),), known=True)
    views = {POOL: PoolView(POOL, (member(1),), known=True), "sip-tcp": tcp}
    actions = policy().on_dead
    learned = FIXED._replace(learns=True)
    policies = [
        PoolPolicy(POOL, actions, (Protocol.TCP,), FIXED),
        PoolPolicy("sip-tcp", actions, (), learned),
        PoolPolicy("unknown", actions, (), learned),
    ]
    assert paced(plan(policies, views, {}, {})) == {
        (ip_address("10.0.0.1"), 5060): FIXED,
        (ip_address("10.0.0.3"), 5060): learned,
    }
    assert paced(plan([policy(also=(Protocol.TCP,))], views, {}, {})) == {}
