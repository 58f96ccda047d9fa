"""Pools with `verify`: the backend itself probes each member from where the DNS server stands."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL
from tests.support.chain import Chain
from tests.support.dns_watch import DnsWatch
from tests.support.members import Members
from tests.support.namespaces import Namespace, own_namespace
from tests.support.waiting import until

HERE, ROUTER, THERE = (1, 2, 3), "10.99.1.1", "10.99.1.2"
FAR = 9
"""The member on a host of its own."""
ALL = {*HERE, FAR}
GATE = f"""\
registrar {ADDRESS}
element {ADDRESS} handles rspdns-sentinel-*,* reports 100
element {THERE} handles *
end
"""
VERIFIED = POOL.replace(f'"{ADDRESS}/32"', '"10.99.0.0/16"') + 'verify = "sip-options"\n'


def port(identifier: int) -> int:
    return 5060 + identifier


class Verified:
    """A chain with a verified pool: three members beside it, one on a host of its own."""

    def __init__(self, namespace: Namespace, host: Namespace, folder: Path) -> None:
        self.namespace, self.host = namespace, host
        self.chain = Chain(namespace, folder, gate=GATE)
        self.chain.backend.write_zone(VERIFIED)
        namespace.ip("link", "add", "far", "type", "veth", "peer", "name", "eth0", "netns", host.name)
        for where, device, address in ((namespace, "far", ROUTER), (host, "eth0", THERE)):
            where.ip("address", "add", f"{address}/24", "dev", device)
            where.ip("link", "set", device, "up")
        host.ip("route", "add", "default", "via", ROUTER)
        self.chain.start()
        self.here = Members(namespace, folder, ADDRESS, self.chain.registrars.addresses)
        self.there = Members(host, folder, THERE, self.chain.registrars.addresses, "far")
        for identifier in HERE:
            self.here.add(identifier, HANDLE, port(identifier))
        self.there.add(FAR, HANDLE, port(FAR))
        self.until_all()

    def until_all(self) -> None:
        until(lambda: self.chain.targets() == ALL and not self.out(), told=self.chain.backend.log)

    def out(self) -> dict[int, str]:
        return {
            int(member["identifier"], 16): member["reason"] for member in self.chain.backend.pool()["out"]
        }

    def drop(self, namespace: Namespace, rule: str) -> None:
        """Have packets that come in dropped without a word, until `pass_all()`."""
        rules = f"table inet cut {{ chain in {{ type filter hook input priority 0; {rule} drop; }}; }}"
        said = namespace.run("nft", rules)
        assert said.returncode == 0, said.stderr

    def pass_all(self, namespace: Namespace) -> None:
        assert namespace.run("nft", "delete", "table", "inet", "cut").returncode == 0


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verified]:
    with own_namespace() as namespace, own_namespace() as host:
        yield Verified(namespace, host, tmp_path_factory.mktemp("verified"))


@pytest.fixture(autouse=True)
def _whole_again(verified: Verified) -> Iterator[None]:
    verified.until_all()
    yield
    for namespace in (verified.namespace, verified.host):
        namespace.run("nft", "flush", "ruleset")


def test_an_unreachable_member_with_a_living_sidecar_is_out_with_its_reason(verified: Verified) -> None:
    verified.drop(verified.namespace, f"udp dport {port(2)}")
    until(lambda: verified.chain.targets() == ALL - {2}, told=verified.chain.backend.log)
    reason = "not reached by the probe of this name server, although the registrars list it"
    assert verified.out()[2] == f"{reason}; it said: no answer within 300 ms"
    assert verified.chain.backend.pool()["verify"] == "sip-options"
    time.sleep(2.5)  # it registers again twice
    assert verified.chain.targets() == ALL - {2}
    verified.pass_all(verified.namespace)
    verified.until_all()


def test_a_host_that_drops_every_packet_leaves_and_returns(verified: Verified) -> None:
    cut_at_s = time.monotonic()
    verified.drop(verified.host, "")
    until(lambda: verified.chain.targets() == ALL - {FAR}, 5, verified.chain.backend.log)
    print(f"out of DNS after {time.monotonic() - cut_at_s:.3f} s")
    verified.pass_all(verified.host)
    verified.until_all()


def test_when_no_probe_is_answered_dns_goes_on(verified: Verified) -> None:
    watch = DnsWatch(verified.namespace, OWNER, verified.chain.folder / "watch.txt")
    began_s = time.monotonic()
    first, last = port(min(ALL)), port(max(ALL))
    verified.drop(verified.namespace, f"udp sport {first}-{last}")  # the answers
    until(
        lambda: "answers the probe" in str((verified.chain.backend.status() or {})["problems"]),
        told=verified.chain.backend.log,
    )
    time.sleep(2)
    everyone = {port(identifier) for identifier in ALL}
    seen = [answer for answer in watch.since(began_s) if answer.problem != "TIMEOUT"]
    assert seen
    # A member that was asked just before the others may fall.
    assert {len(everyone - answer.ports) for answer in seen} <= {0, 1}, "nearly all stay"
    verified.pass_all(verified.namespace)
    verified.until_all()
    until(lambda: (verified.chain.backend.status() or {})["problems"] == [], told=verified.chain.backend.log)


def test_registrars_are_told_where_that_is_wanted(verified: Verified) -> None:
    verified.chain.backend.write_zone(VERIFIED + "report_unreachable = true\n")
    assert verified.chain.backend.command("reload").returncode == 0
    verified.drop(verified.namespace, f"udp dport {port(2)}")
    # Three reports make rspregistrar remove it; it registers again by itself.
    until(
        lambda: "removed by its home registrar" in verified.out().get(2, ""), told=verified.chain.backend.log
    )
    until(lambda: verified.chain.targets() == ALL - {2}, told=verified.chain.backend.log)
    until(
        lambda: "although the registrars list it" in verified.out().get(2, ""),
        told=verified.chain.backend.log,
    )
    assert verified.chain.targets() == ALL - {2}, "it did not come back unproved"
    verified.pass_all(verified.namespace)
    verified.until_all()
