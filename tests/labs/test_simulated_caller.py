"""The simulator's caller and resolver, and how it finds tables that grow."""

import random
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from pool_user.belief.listing import Deletion, RegistrarListing
from rspdns_lab.simulate.caller import SimulatedResolver, SrvTarget, in_order
from rspdns_lab.simulate.calm import sizes
from rspdns_lab.simulate.kernel import Kernel
from rspdns_lab.simulate.network import SimulatedHost, SimulatedNetwork
from rspdns_lab.simulate.parts import SimulatedNameServer
from rspdns_lab.simulate.powerdns import Packet


@pytest.fixture
def network() -> Iterator[SimulatedNetwork]:
    kernel = Kernel(1)
    network = SimulatedNetwork(kernel)
    for number in (1, 2):
        network.add_host(f"h{number}", f"10.0.0.{number}")
    yield network
    kernel.close()


def test_caller_draws_targets_by_priority_and_weight() -> None:
    """RFC 2782, page 3."""
    chance = random.Random(1)
    found = [
        SrvTarget(1, 0, 5060, "last"),
        SrvTarget(0, 300, 5060, "often"),
        SrvTarget(0, 100, 5060, "seldom"),
    ]
    orders = [[each.target for each in in_order(found, chance.random)] for _ in range(4000)]
    assert all(order[2] == "last" for order in orders)
    assert 2900 < sum(order[0] == "often" for order in orders) < 3100
    idle = [SrvTarget(0, 0, 5060, "zero"), SrvTarget(0, 9, 5060, "nine")]
    firsts = [in_order(idle, chance.random)[0].target for _ in range(2000)]
    assert 100 < firsts.count("zero") < 300  # one in ten


class OneNameServer:
    """A name server that answers with one address, or not at all."""

    def __init__(self, host: SimulatedHost, rcode: str) -> None:
        self.host, self.powerdns, self.rcode, self.asked = host, self, rcode, 0
        self.process = host.start("powerdns")

    def ask(self, name: str, kind: str, answered: Callable[[Packet], None]) -> None:
        self.asked += 1
        records = ({"qname": name, "qtype": kind, "content": "0 0 5060 t.", "ttl": 2},)
        if self.rcode:
            answered(Packet(self.rcode, records if self.rcode == "NOERROR" else ()))


@pytest.mark.parametrize("first", ["SERVFAIL", ""], ids=["fails", "is silent"])
def test_resolver_asks_the_next_name_server_and_keeps_an_answer_for_its_ttl(
    network: SimulatedNetwork, first: str
) -> None:
    servers = [
        OneNameServer(host, rcode)
        for host, rcode in zip(network.hosts.values(), (first, "NOERROR"), strict=True)
    ]
    resolver = SimulatedResolver(
        network.add_host("c1", "10.0.0.9"), cast("list[SimulatedNameServer]", servers)
    )
    seen: list[tuple[float, str]] = []

    def ask() -> None:
        resolver.resolve(
            network,
            "name",
            "SRV",
            lambda packet: seen.append((network.kernel.now, str(packet and packet.rcode))),
        )

    for at_s in (1.0, 2.0, 4.5):
        network.kernel.at(at_s, ask)
    network.kernel.run(6)
    assert [rcode for _, rcode in seen] == ["NOERROR"] * 3
    assert [server.asked for server in servers] == [1, 2]  # the second answer came from the cache
    servers[1].rcode = servers[0].rcode = ""
    network.kernel.at(9, ask)
    network.kernel.run(12)
    assert seen[-1][1] == "None"


def test_tables_are_found_wherever_they_hang() -> None:
    listing = RegistrarListing()
    listing.deletions = dict.fromkeys(range(300), Deletion(0.0, was_settled=True))
    assert (".deletions", 300) in list(sizes(listing))
