"""The kernel answers each asker by `near`, as PowerDNS does: the same questions asked both ways, from askers
in every class."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rspdns.fastpath.ready import Question
from rspdns.zones.zone import Zone, make_zone

from rserpool import Protocol
from tests.backend.making import FIXED, SITES, ZONE, member, view, views, zone
from tests.support.fast_path import FAST, FAST_6, SLOW, SLOW_6, FastStage, fast_stage
from tests.support.served import served
from tests.support.waiting import until

NEAR_US = 'near = { "10.99.0.16/28" = ["us"], "10.99.0.20/32" = ["eu"], "fd00:99::10/124" = ["us", "eu"] }'
NEAR_BOTH = 'near = { "10.99.0.0/24" = ["us"], "10.99.0.18/32" = ["eu"], "10.99.0.0/30" = ["eu"] }'
SOURCES = [f"10.99.0.{number}" for number in (2, 5, 16, 18, 20, 31, 33)]
SOURCES_6 = [f"fd00:99::{number}" for number in ("2", "10", "1f", "20")]
OWNERS = [f"_sip.{protocol}.{name}.{ZONE}" for name in ("as", "own") for protocol in ("_udp", "_tcp")]


def pool(handle: str, protocol: str, name: str, more: str) -> str:
    return (
        f'[[pool]]\nhandle = "{handle}"\nservice = "_sip._{protocol}"\nname = "{name}"\n'
        f'accept = ["10.0.0.0/8"]\norder = ["eu", "us"]\nslow_start_s = 0\nmax_addresses = 8\n{more}\n'
    )


def zone_of(near: str) -> Zone:
    pools = (
        pool("udp", "udp", "as", near)
        + pool("tcp", "tcp", "as", NEAR_BOTH)
        + pool("own", "udp", "own", 'affinity = "asker"\n' + near)
        + pool("plain", "tcp", "plain", "")
    )
    made = zone(pools, FIXED)
    return make_zone(made.config, made.static, sites_of_all=SITES)


def members(protocol: Protocol, handle: str, count: int = 2) -> Any:
    return view(
        *(
            member(100 * site + number, f"10.{site}.0.{number}", protocol=protocol)
            for site in (1, 2)
            for number in range(1, count + 1)
        ),
        handle=handle,
    )


VIEWS = views(
    members(Protocol.UDP, "udp"),
    members(Protocol.TCP, "tcp", 1),
    members(Protocol.UDP, "own", 1),
    members(Protocol.TCP, "plain", 1),
)
QUESTIONS = [
    *((f"_sip._{protocol}.as.{ZONE}", "SRV") for protocol in ("udp", "tcp")),
    *((f"as.{ZONE}", kind) for kind in ("A", "NAPTR")),
    (f"_sip._tcp.plain.{ZONE}", "SRV"),
    (f"_sip._udp.own.{ZONE}", "SRV"),
]
SUBNETS = [
    *(("10.99.0.0", bits) for bits in (1, 8, 16, 24, 27, 28, 30)),
    *(("10.99.0.16", bits) for bits in (28, 30, 32)),
    *(("10.99.0.20", 32), ("10.99.0.18", 31), ("10.99.0.18", 32), ("192.0.2.0", 24), ("0.0.0.0", 0)),
    *(("fd00:99::10", 124), ("fd00:99::10", 128), ("fd00:99::", 64), ("2001:db8::", 32), ("::", 0)),
]
"""Prefixes of one class, of several, of none, and those that say nothing."""

ASK = r"""
import json, socket, sys
import dns.edns, dns.message, dns.query
fast, slow, sources, questions, subnets = json.loads(sys.argv[1])

def ask(server, source, name, kind, subnet):
    options = [dns.edns.ECSOption(*subnet)] if subnet else []
    asked = dns.message.make_query(name, kind, use_edns=0 if options else -1, options=options)
    said = dns.query.udp(asked, server, timeout=5, source=source)
    shown = [sorted(str(rrset) for rrset in part) for part in (said.answer, said.authority, said.additional)]
    records = [sorted(line for rrset in part for line in str(rrset).splitlines())
               for part in (said.answer, said.authority, said.additional)]
    return [records, said.flags, said.edns, said.payload, [str(option) for option in said.options]]

different, shown = [], {}
for source in sources:
    for name, kind in questions:
        for subnet in subnets:
            ours, theirs = (ask(server, source, name, kind, subnet) for server in (fast, slow))
            if ours != theirs:
                different.append([source, name, kind, subnet, ours, theirs])
            shown.setdefault(name, set()).add(json.dumps(ours[0][0]))
print(json.dumps([different, {name: len(those) for name, those in shown.items()}]))
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastStage]:
    folder = tmp_path_factory.mktemp("near")
    with fast_stage([zone_of(NEAR_US)], VIEWS, folder, target="asan", near=True) as made:
        for address in (*SOURCES[1:], *SOURCES_6[1:]):
            bits, more = ("64", ["nodad"]) if ":" in address else ("24", [])
            made.client.ip("address", "add", f"{address}/{bits}", "dev", "client", *more)
        until(lambda: is_near_known(made))
        yield made


def is_near_known(stage: FastStage) -> bool:
    """Whether the kernel has the answers of all classes."""
    return stage.link.is_answering and Question(QUESTIONS[0][0], "SRV", 1) in stage.link._ready.all


def compared(
    stage: FastStage, fast: str, slow: str, sources: Sequence[str], subnets: Sequence[object] = (None,)
) -> tuple[list[object], dict[str, int]]:
    """The answers that differ, and how many different ones each name had."""
    different, shown = stage.ask(ASK, json.dumps([fast, slow, sources, QUESTIONS, subnets]))
    return different, shown


@pytest.mark.parametrize(("fast", "slow", "sources"), [(FAST, SLOW, SOURCES), (FAST_6, SLOW_6, SOURCES_6)])
def test_asker_of_each_class_is_answered_as_by_powerdns(
    stage: FastStage, fast: str, slow: str, sources: Sequence[str]
) -> None:
    before = stage.decisions()["answered"]
    different, shown = compared(stage, fast, slow, sources)
    assert different == []
    assert shown[OWNERS[0]] == 2, "one for each order"
    assert stage.decisions()["answered"] - before >= 5 * len(sources), "all but the name with affinity"


def test_asker_that_a_resolver_tells_is_answered_as_by_powerdns_with_the_scope(stage: FastStage) -> None:
    before = stage.decisions()["answered"]
    different, shown = compared(stage, FAST, SLOW, SOURCES[:1], SUBNETS)
    assert different == []
    assert shown[OWNERS[0]] == 2
    answered = stage.decisions()["answered"] - before
    assert 20 <= answered <= 32, "but those of several classes, and those that say nothing"


def test_reload_with_other_networks_answers_by_these_and_forgets_the_former(stage: FastStage) -> None:
    blocks = stage.status()["near_blocks"]
    other = 'near = { "10.99.0.2/32" = ["us"] }'
    stage.backend.set_zones([zone_of(other)], VIEWS)
    try:
        until(lambda: is_near_known(stage))
        different, shown = compared(stage, FAST, SLOW, SOURCES)
        assert different == []
        assert shown[OWNERS[0]] == 2
        until(lambda: stage.status()["near_blocks"] < blocks)
        of_both = stage.status()["near_blocks"]
        stage.backend.set_zones([zone_of("")], VIEWS)
        until(lambda: 0 < stage.status()["near_blocks"] < of_both)
        assert compared(stage, FAST, SLOW, SOURCES[:2])[0] == []
    finally:
        stage.backend.set_zones([zone_of(NEAR_US)], VIEWS)
        until(lambda: stage.status()["near_blocks"] == blocks)


def test_change_of_a_pool_is_seen_by_askers_of_each_class(stage: FastStage) -> None:
    until(lambda: is_near_known(stage))
    stage.backend.publish(VIEWS | views(members(Protocol.UDP, "udp", 1)))
    try:
        different, _ = compared(stage, FAST, SLOW, SOURCES)
        assert different == []
    finally:
        stage.backend.publish(VIEWS)


def test_networks_of_a_former_connection_are_forgotten(stage: FastStage) -> None:
    until(lambda: is_near_known(stage))
    blocks = stage.status()["near_blocks"]
    asyncio.run_coroutine_threadsafe(reconnect(stage), stage.backend._loop).result(10)
    until(lambda: is_near_known(stage) and stage.status()["near_blocks"] == blocks)
    assert compared(stage, FAST, SLOW, SOURCES[:3])[0] == []


async def reconnect(stage: FastStage) -> None:
    stage.link._drop("a test")


def test_signed_zone_answers_each_asker_with_signatures_that_are_right(tmp_path: Path) -> None:
    """PowerDNS's answers: the kernel has none of a signed zone."""
    zones = [zone_of('near = { "127.0.0.0/8" = ["us"] }')]
    with served(zones, VIEWS, tmp_path, signed=True, near=True) as made:
        made.pdns.util("secure-zone", ZONE)
        name = QUESTIONS[0][0]
        until(lambda: "RRSIG" in made.pdns.dig(name, "SRV", "+dnssec"))
        near, far = made.delv(name, "SRV"), made.pdns.dig(name, "SRV", "+dnssec", "+subnet=192.0.2.7/32")
    assert "fully validated" in near
    assert "SRV\t0 1000 5060 000000c9" in near, "us is the first one for this host"
    assert "SRV\t0 1000 5060 00000065" in far, "eu for others"
    assert "CLIENT-SUBNET: 192.0.2.7/32/1" in far
    assert "RRSIG\tSRV" in far
