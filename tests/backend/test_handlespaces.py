"""Pools in several handlespaces: configuration, answers and status."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.control import ControlError
from pool_user import (
    Cause,
    Code,
    Departure,
    HandlespaceBeliefs,
    OverrideAction,
    PoolView,
    RememberedPool,
    Standing,
)
from rspdns.check import warnings
from rspdns.configuration import differing, load_configuration
from rspdns.missing import ServerNames, missing
from rspdns.overrides.keeper import Overrides, Wish
from rspdns.readiness import not_ready
from rspdns.status import build
from rspdns.status.model import PoolHandlespaceStatus
from rspdns.status.nagios import Level, check
from rspdns.status.view import view as terminal_view

from tests.backend.configuration_files import GOOD, errors, head, write
from tests.backend.making import NOW, UDP, answered, contents, member, view, views, zone
from tests.backend.statuses import member_status, pool_status, registrar_status, status

CELLS = """
[[handlespace]]
name = "eu"
registrars = ["10.1.0.1", "10.1.0.2", "10.1.0.3"]
[[handlespace]]
name = "us"
registrars = ["10.2.0.1", "10.2.0.2", "10.2.0.3"]
"""
BOTH = UDP + 'handlespaces = ["eu", "us"]\n'
OWNER = "_sip._udp.as.ims.example.net"


def of(handlespace: str, *numbers: int, **more: Any) -> PoolView:
    network = {"eu": "10.1.1", "us": "10.2.1"}[handlespace]
    members = (member(number, f"{network}.{number}") for number in numbers)
    return view(*members, handle=f"{handlespace}/sip-udp", **more)


# Configuration


def test_a_pool_names_its_handlespaces_and_one_needs_no_name(tmp_path: Path) -> None:
    pools = BOTH + UDP.replace("sip-udp", "b").replace('"u"', '"b"').replace("_sip", "_b")
    config = load_configuration(write(tmp_path, CELLS, one=head() + pools + 'handlespace = "us"\n'))
    assert list(config.pool_rules) == ["eu/sip-udp", "us/sip-udp", "us/b"]
    assert [handlespace.name for handlespace in config.handlespaces] == ["eu", "us"]
    only = CELLS[: CELLS.index("[[handlespace]]", 20)]
    config = load_configuration(write(tmp_path, only, one=head() + UDP))
    assert list(config.pool_rules) == ["eu/sip-udp"], "the only one need not be named"


@pytest.mark.parametrize(
    ("main", "pool", "where", "words"),
    [
        ("", UDP, ("rspdns.toml", 1), "registrars are missing"),
        (GOOD + CELLS, UDP, ("rspdns.toml", 1), "goes without [[handlespace]]"),
        (CELLS.replace("10.2.0.2", "10.1.0.2"), BOTH, ("rspdns.toml", 7), "in the handlespace 'eu' already"),
        (CELLS.replace('"us"', '"eu"'), UDP, ("rspdns.toml", 6), "'eu' is there twice"),
        (CELLS.replace('"us"', '"2us"'), UDP, ("rspdns.toml", 6), ""),
        (CELLS, UDP, ("one.toml", 4), "needs handlespace: rspdns.toml has several, eu, us"),
        (CELLS, UDP + 'handlespace = "north"\n', ("one.toml", 10), "north: no [[handlespace]]"),
        (CELLS, UDP + 'handlespaces = ["eu", "x"]\n', ("one.toml", 10), "x: no [[handlespace]]"),
        (GOOD, UDP + 'handlespace = "eu"\n', ("one.toml", 10), "eu: no [[handlespace]] in rspdns.toml"),
        (CELLS, BOTH + 'handlespace = "eu"\n', ("one.toml", 4), "takes either handlespace or handlespaces"),
        (CELLS, BOTH.replace('"us"', '"eu"'), ("one.toml", 4), "a name is there twice"),
    ],
)
def test_wrong_handlespaces_are_told_with_file_line_and_words(
    tmp_path: Path, main: str, pool: str, where: tuple[str, int], words: str
) -> None:
    found = errors(write(tmp_path, main, one=head() + pool))
    assert [(file, line) for file, line, _, problem in found if words in problem] == [where], found


def test_a_handle_may_stand_in_two_handlespaces_and_once_in_each(tmp_path: Path) -> None:
    other = UDP.replace('"u"', '"v"').replace("_sip._udp", "_x._udp")
    here, there = 'handlespace = "eu"\n', 'handlespace = "us"\n'
    load_configuration(write(tmp_path, CELLS, one=head() + UDP + here + other + there))
    found = errors(write(tmp_path, CELLS, one=head() + UDP + here + other + here))
    assert [(line, words) for _, line, _, words in found] == [
        (13, "the handle 'sip-udp' is already used by pool[0]: a pool stands once in a zone")
    ]


def test_a_reload_takes_handlespaces_that_come_and_go(tmp_path: Path) -> None:
    running = load_configuration(write(tmp_path, CELLS, one=head() + BOTH))
    changed = CELLS.replace("10.2.0.2", "10.2.0.9").replace('"eu"', '"north"')
    read = load_configuration(write(tmp_path, changed, one=head() + UDP + 'handlespace = "us"\n'))
    assert differing(running, read) == ["handlespace"], "other registrars wait for a restart"
    taken = running.with_files(read.zones, read.access, (), read)
    assert {each.name: each.registrars[1] for each in taken.handlespaces} == {
        "north": "10.1.0.2",
        "us": "10.2.0.2",
    }


def test_check_warns_of_a_handlespace_with_few_registrars(tmp_path: Path) -> None:
    path = write(tmp_path, CELLS.replace(', "10.2.0.2", "10.2.0.3"', ""), one=head() + BOTH)
    told = [(error.line, error.key) for error in warnings(path, load_configuration(path), {"eu/sip-udp"})]
    assert told == [(7, "handlespace[1].registrars"), (5, "pool[0].handle")]


# Answers


def test_a_pool_is_the_union_of_its_handlespaces_and_names_never_meet() -> None:
    snapshot = answered(zone(BOTH), views(of("eu", 1, 2), of("us", 1)))
    assert sorted(contents(snapshot, OWNER, "SRV")) == [
        "0 1000 5060 00000001-eu.u.as.ims.example.net",
        "0 1000 5060 00000001-us.u.as.ims.example.net",
        "0 1000 5060 00000002-eu.u.as.ims.example.net",
    ]
    assert contents(snapshot, "00000001-us.u.as.ims.example.net", "A") == ["10.2.1.1"]
    left = answered(zone(BOTH), views(of("eu", 2), of("us", 1)))
    assert contents(left, "00000001-us.u.as.ims.example.net", "A") == ["10.2.1.1"], "no name moves"


SITES = """
[[site]]
name = "europe"
handlespace = "eu"
[[site]]
name = "america"
handlespace = "us"
"""


def test_site_of_a_member_is_that_of_the_handlespace_that_vouches_for_it(tmp_path: Path) -> None:
    order = 'order = ["america", "europe"]\nslow_start_s = 0\n'
    path = write(tmp_path, CELLS + SITES, one=head() + BOTH + order)
    pools = load_configuration(path).zones
    found = views(of("eu", 1, 2), of("us", 1))
    members = {
        handle: replace(of_pool, members=tuple(replace(m, handlespace=handle[:2]) for m in of_pool.members))
        for handle, of_pool in found.items()
    }
    assert sorted(contents(answered(pools, members), OWNER, "SRV")) == [
        "0 1000 5060 00000001-us.u.as.ims.example.net",
        "1 1000 5060 00000001-eu.u.as.ims.example.net",
        "1 1000 5060 00000002-eu.u.as.ims.example.net",
    ]


@pytest.mark.parametrize(
    ("sites", "pool", "where", "words"),
    [
        (SITES.replace('"us"', '"eu"'), "", ("rspdns.toml", 14), "'eu' is there twice"),
        (SITES.replace('"us"', '"north"'), "", ("rspdns.toml", 14), "north: no [[handlespace]]"),
        (SITES.replace('handlespace = "us"', ""), "", ("rspdns.toml", 12), "needs networks"),
        (
            SITES.replace('handlespace = "us"', 'networks = ["10.2.0.0/16"]'),
            "",
            ("rspdns.toml", 11),
            "could be in the networks of a [[site]], too",
        ),
        (
            SITES,
            'order = ["europe", "america"]\nmin_share = 0.5\nexpect = { "10.1.1.1:5060" = "a" }\n',
            ("one.toml", 12),
            "needs expect with a table for each handlespace",
        ),
        (SITES, 'expect.north = { "10.1.1.1:5060" = "a" }\n', ("one.toml", 11), "north: no handlespace of"),
        (SITES, 'expect.eu = { "10.1.1.1" = "a" }\n', ("one.toml", 11), "no address with a port"),
        (SITES, 'order = ["europe"]\n', ("one.toml", 11), "lacks america: name every [[site]]"),
    ],
)
def test_wrong_sites_of_handlespaces_are_told_with_file_line_and_words(
    tmp_path: Path, sites: str, pool: str, where: tuple[str, int], words: str
) -> None:
    found = errors(write(tmp_path, CELLS + sites, one=head() + BOTH + pool))
    assert [(file, line) for file, line, _, problem in found if words in problem] == [where], found


def test_share_of_a_site_is_that_of_the_servers_expected_in_its_handlespace(tmp_path: Path) -> None:
    servers = ", ".join(f'"10.1.1.{number}:5060" = "eu-{number}"' for number in range(1, 6))
    order = 'order = ["europe", "america"]\nmin_share = 0.5\n'
    expect = f'expect.eu = {{ {servers} }}\nexpect.us = {{ "10.1.1.9:5060" = "us-1" }}\n'
    path = write(tmp_path, CELLS + SITES, one=head() + BOTH + order + expect)
    (pool,) = load_configuration(path).zones[0].sites[0].pools
    assert pool.sites is not None
    assert pool.sites.least == {"europe": 3, "america": 1}


TWINS = """
expect.eu = { "10.1.1.1:5060" = "sip-1", "10.1.1.2:5060" = "sip-2" }
expect.us = { "10.1.1.1:5060" = "sip-1" }
"""


def test_server_in_both_cells_is_expected_in_each(tmp_path: Path) -> None:
    (of_zone,) = load_configuration(write(tmp_path, CELLS, one=head() + BOTH + TWINS)).zones
    pool = of_zone.sites[0].pools[0].config
    twins = {name: replace(member(1, "10.1.1.1"), handlespace=name) for name in ("eu", "us")}
    of_eu = view(twins["eu"], handle="eu/sip-udp")
    found = missing(pool, [twins["eu"]], [of_eu], NOW)
    server = twins["us"].server_address
    assert (found.expected, found.count) == (3, 2)
    assert ("us/sip-udp", server) in found.never
    left = Departure(twins["us"], NOW - 60, Cause(Code.REMOVED))
    of_us = view(handle="us/sip-udp", departures=(left,))
    found = missing(pool, [twins["eu"]], [of_eu, of_us], NOW)
    assert found.departed == (("us/sip-udp", left),)
    assert found.count == 2
    assert missing(pool, list(twins.values()), [of_eu], NOW).count == 1


def test_names_are_those_of_a_handlespace(tmp_path: Path) -> None:
    other = TWINS.replace('"sip-1" }', '"twin" }')
    server_names = ServerNames(load_configuration(write(tmp_path, CELLS, one=head() + BOTH + other)).zones)
    server = member(1, "10.1.1.1").server_address
    assert [server_names.at(f"{name}/sip-udp", server) for name in ("eu", "us")] == ["sip-1", "twin"]


@pytest.mark.parametrize("second", ["", "us."])
def test_server_is_expected_once_in_a_handlespace(tmp_path: Path, second: str) -> None:
    expect = f'expect.us."10.1.1.1:5060" = "a"\nexpect.{second}"10.1.1.2:5060" = "a"\n'
    found = errors(write(tmp_path, CELLS, one=head() + BOTH + expect))
    assert ["a is there twice" in problem for *_, problem in found] == [True]


async def test_override_of_a_site_names_the_servers_of_its_handlespace(tmp_path: Path) -> None:
    """Both cells have a server at the same address."""
    config = load_configuration(write(tmp_path, CELLS + SITES, one=head() + BOTH))
    pools = [pool for site in config.zones[0].sites for pool in site.pools]
    beliefs = HandlespaceBeliefs(config.handlespaces, config.pool_rules)
    for name, belief in beliefs.by_name.items():
        twin = replace(member(1, "10.1.1.1"), handlespace=name)
        belief.remember(RememberedPool(f"{name}/sip-udp", (twin,), (), NOW), NOW)
    beliefs.evaluate(NOW)
    overrides = Overrides(
        tmp_path, beliefs, lambda: pools, lambda *_: None, lambda: None, sites=lambda: config.sites
    )

    def shown() -> list[str]:
        beliefs.evaluate(NOW + 1)
        return [name for name, seen in beliefs.views.items() if seen.members]

    assert shown() == ["eu/sip-udp", "us/sip-udp"]
    here = (ip_address("10.1.1.1"), 5060)
    told = await overrides.set(Wish(OverrideAction.DOWN, "site:europe", "a test"), "alice")
    (shares,) = told["pools"].values()
    assert [(each["before"], each["after"]) for each in shares] == [(0.5, None), (0.5, 1.0)]
    assert shown() == ["us/sip-udp"]
    assert [overrides.deciding(f"{name}/sip-udp", here) for name in ("eu", "us")] == [1, None]
    with pytest.raises(ControlError, match="would lose its last member"):
        await overrides.set(Wish(OverrideAction.DOWN, "site:america", "a test"), "alice")
    await overrides.set(Wish(OverrideAction.UP, "site:america", "a test"), "alice")
    with pytest.raises(ControlError, match="names some of these servers, too"):
        await overrides.set(Wish(OverrideAction.UP, "site:europe", "a test"), "alice")
    overrides.close()


def test_pool_of_one_handlespace_has_no_site_of_another(tmp_path: Path) -> None:
    pool = UDP + 'handlespace = "us"\norder = ["america", "europe"]\n'
    found = errors(write(tmp_path, CELLS + SITES, one=head() + pool))
    assert ["europe: has no server, since its handlespace" in problem for *_, problem in found] == [True]


def test_shards_in_handlespaces_have_names_of_their_own() -> None:
    pools = BOTH.replace('handle = "sip-udp"', 'handles = ["a", "b"]')
    parts = [f"{name}/{handle}" for name in ("eu", "us") for handle in ("a", "b")]
    of_pool = [view(member(1, f"10.0.{number}.1"), handle=part) for number, part in enumerate(parts)]
    snapshot = answered(zone(pools), views(*of_pool))
    assert len(contents(snapshot, OWNER, "SRV")) == 4


def test_a_handlespace_that_is_unknown_or_too_long_lost_costs_its_members_alone() -> None:
    for lost in (PoolView("eu/sip-udp"), of("eu", 5, stale_since_s=NOW - 4000)):
        snapshot = answered(zone(BOTH), views(lost, of("us", 1)))
        assert contents(snapshot, OWNER, "SRV") == ["0 1000 5060 00000001-us.u.as.ims.example.net"]


def test_a_zone_is_ready_while_one_handlespace_of_each_pool_is_vouched_for() -> None:
    pools = [pool for site in zone(BOTH).sites for pool in site.pools]
    lost = of("eu", 1, stale_since_s=NOW - 3)
    assert not_ready(pools, views(lost, of("us", 1)), NOW) == []
    assert not_ready(pools, views(lost, PoolView("us/sip-udp")), NOW) != []


# Status


def test_status_tells_each_handlespace_of_a_pool() -> None:
    own, snapshot = zone(BOTH), answered(zone(BOTH), views(of("eu", 1), of("us", 1)))
    (told,) = build.zones([own], snapshot, views(of("eu", 1, stale_since_s=NOW - 7), of("us", 1, 2)), NOW)
    (pool,) = told.pools
    assert pool.handlespaces == [
        PoolHandlespaceStatus("eu", known=True, members=1, stale_s=7.0),
        PoolHandlespaceStatus("us", known=True, members=2, stale_s=None),
    ]
    assert (pool.members[0].handlespace, pool.members[0].handle) == ("eu", "eu/sip-udp")
    assert [part.name for part in pool.lost] == ["eu"]
    (unnamed,) = build.zones([zone()], snapshot, views(view(member(1))), NOW)
    assert unnamed.pools[0].handlespaces == []
    assert unnamed.pools[0].members[0].handlespace is None


def lost_cell() -> Any:
    parts = [
        PoolHandlespaceStatus("eu", known=True, members=1, stale_s=60.0),
        PoolHandlespaceStatus("us", known=True, members=1, stale_s=None),
    ]
    members = [
        member_status(1, handlespace="eu", stale=True, home_registrar="0000000a"),
        member_status(2, handlespace="us", home_registrar="0000000a"),
    ]
    registrars = [
        registrar_status(1, handlespace="us"),
        registrar_status(1, handlespace="eu", standing=Standing.DOWN, why="no association"),
    ]
    return status(pool_status(members=members, stale_s=60.0, handlespaces=parts), registrars=registrars)


def test_terminal_names_the_lost_handlespace_and_homes_in_their_own() -> None:
    text = terminal_view(lost_cell(), 120).plain
    assert "handlespace eu: from memory for 1 min 0 s: none of its registrars can be believed" in text
    assert "registrar eu 1" in text
    assert "registrar us 1" in text
    assert "no registrar can be believed" not in text


def test_nagios_is_critical_about_a_handlespace_without_registrars() -> None:
    level, text = check(lost_cell())
    assert level is Level.CRITICAL
    assert "registrar eu 1 (10.0.0.1) is down" in text
    assert "its members of handlespace eu are from memory since 60 s" in text
