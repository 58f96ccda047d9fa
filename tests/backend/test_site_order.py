"""The order of a pool's sites: enough, back, spilling; and what of it is in SRV and address records."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.config_file import ConfigurationErrors
from pool_user import Member, NamedServers, OverrideAction, PoolOverride, weights
from rspdns.answers.pool_state import PoolState, state_of
from rspdns.answers.records import site_nodes
from rspdns.answers.site_order import SiteState, next_change_s, site_states
from rspdns.configuration import load_configuration
from rspdns.overrides.book import given, outlook
from rspdns.zones.configuration import PoolConfig
from rspdns.zones.sites import SiteConfig, SiteRules, Sites
from rspdns.zones.zone import Pool

from tests.backend.making import BASE, EU, NOW, UDP, US, Believed, server, view, views, zone

SITES = Sites(
    {
        "eu": (ip_network("10.1.0.0/16"),),
        "us": (ip_network("10.2.0.0/16"),),
        "ap": (ip_network("10.3.0.0/16"),),
    },
    "us",
)
TWO = Sites({name: SITES.networks[name] for name in ("eu", "us")}, "us")


def members(**of_site: Sequence[float]) -> dict[str, Member]:
    """Members by label, at each site as many as loads are given."""
    found = [
        server(site, number, load) for site, loads in of_site.items() for number, load in enumerate(loads, 1)
    ]
    return {f"{each.identifier:08x}": each for each in found}


def rules(**other: Any) -> SiteRules:
    values: dict[str, Any] = {
        "names": ("eu", "us"),
        "networks": TWO.networks,
        "least": {"eu": 2, "us": 2},
        "back_after_s": 60.0,
    }
    return SiteRules(**values | other)


def ranks(states: Mapping[str, SiteState]) -> dict[str, int]:
    return {name: state.rank for name, state in states.items()}


def test_sites_follow_in_their_order_while_each_is_enough() -> None:
    states = site_states(rules(), members(eu=[0, 0], us=[0, 0]), {}, 0)
    assert ranks(states) == {"eu": 0, "us": 1}
    assert next_change_s(rules(), states) == float("inf")


def test_site_that_is_not_enough_is_behind_at_once_and_back_only_after_a_while() -> None:
    states = site_states(rules(), members(eu=[0] * 4, us=[0] * 4), {}, 0)
    states = site_states(rules(), members(eu=[0, 0], us=[0] * 4), states, 10)
    assert ranks(states) == {"eu": 0, "us": 1}, "two of four are enough"
    states = site_states(rules(), members(eu=[0], us=[0] * 4), states, 20)
    assert ranks(states) == {"eu": 1, "us": 0}
    states = site_states(rules(), members(eu=[0] * 4, us=[0] * 4), states, 30)
    assert ranks(states) == {"eu": 1, "us": 0}
    assert next_change_s(rules(), states) == 90
    states = site_states(rules(), members(eu=[0], us=[0] * 4), states, 80)
    states = site_states(rules(), members(eu=[0] * 4, us=[0] * 4), states, 85)
    assert ranks(site_states(rules(), members(eu=[0] * 4, us=[0] * 4), states, 144)) == {"eu": 1, "us": 0}
    assert ranks(site_states(rules(), members(eu=[0] * 4, us=[0] * 4), states, 145)) == {"eu": 0, "us": 1}


def test_when_no_site_is_enough_the_order_holds() -> None:
    assert ranks(site_states(rules(), members(eu=[0], us=[0]), {}, 0)) == {"eu": 0, "us": 1}
    assert ranks(site_states(rules(), {}, {}, 0)) == {"eu": 0, "us": 1}


def test_first_site_spills_by_its_mean_load_and_does_not_swing() -> None:
    spilling = rules(spill_at=0.8, spill_back=0.6)
    states: Mapping[str, SiteState] = {}
    for now, load, expected in (
        (0, 0.7, False),
        (1, 0.8, True),
        (2, 0.6, True),
        (61, 0.61, True),
        (62, 0.5, True),
        (121, 0.6, True),
        (122, 0.6, False),
        (123, 0.79, False),
    ):
        states = site_states(spilling, members(eu=[load, load], us=[0.1, 0.1]), states, now)
        assert states["eu"].is_spilling is expected, load
        assert ranks(states) == ({"eu": 0, "us": 0} if expected else {"eu": 0, "us": 1})
    alone = site_states(spilling, members(eu=[0.9, 0.9], us=[0.1]), {}, 0)
    assert ranks(alone) == {"eu": 0, "us": 1}, "a site that is not enough takes nothing"


POOL = UDP + 'order = ["eu", "us"]\nslow_start_s = 0\n'


def states_over(pool: Pool, *moments: tuple[float, Mapping[str, Member]]) -> list[PoolState]:
    believed, found = Believed(), list[PoolState]()
    for now, of_moment in moments:
        before = found[-1] if found else None
        step = believed.to(views(view(*of_moment.values())))
        found.append(state_of(pool, step, before, NOW + now, 3600, 1))
    return found


def pool_of(text: str, sites: Sites = TWO) -> Pool:
    pool = zone(text).sites[0].pools[0]
    return replace(pool, sites=pool.config.site_rules(sites))


def test_srv_priorities_are_those_of_sites_and_addresses_of_the_first() -> None:
    pool = pool_of(POOL + "min_in = 2\n")
    whole, dead = members(eu=[0.0, 0.97], us=[0, 0]), members(eu=[0.0], us=[0, 0])
    before, after, later = states_over(pool, (0, whole), (0.2, dead), (0.3, whole))
    assert {label: each.priority for label, each in before.weights.items()} == {
        "00000065": 0,
        "00000066": 1,
        "000000c9": 2,
        "000000ca": 2,
    }
    assert {each.priority for label, each in after.weights.items() if label[-2] == "c"} == {0}
    assert after.weights["00000065"].priority > 0, "within the second in which weights hold still"
    assert later.rebuild_at_s <= NOW + 61
    (site,) = zone(POOL).sites
    from random import Random

    nodes, _ = site_nodes(site, [after], 1, Random(1))
    addresses = {record.content for record in nodes[site.name].records if record.type == "A"}
    assert addresses == {"10.2.0.1", "10.2.0.2"}


def test_share_is_that_of_the_calls_of_its_site() -> None:
    at_sites = members(eu=[0, 0], us=[0, 0])
    at_sites["00000065"] = replace(at_sites["00000065"], share=0.05)
    (state,) = states_over(pool_of(POOL), (0, at_sites))
    assert weights.shares(state.weights) == pytest.approx(
        {"00000065": 0.05, "00000066": 0.95, "000000c9": 0.0, "000000ca": 0.0}, abs=1e-4
    )


def test_shares_are_foretold_with_the_order_of_the_sites() -> None:
    def nameless(handle: str, member: Member) -> None:
        return None

    def override(action: OverrideAction, network: str, share: float | None = None) -> PoolOverride:
        return PoolOverride(1, action, NamedServers(networks=(ip_network(network),)), "a test", share)

    pool, seen = pool_of(POOL), {"sip-udp": view(*members(eu=[0, 0], us=[0, 0]).values())}
    few = override(OverrideAction.SHARE, "10.1.0.1/32", 0.6)
    shares = outlook(pool, seen, [], [few], NOW, nameless)
    assert [each.before for each in shares] == [0.5, 0.5, 0.0, 0.0]
    assert [each.after for each in shares] == pytest.approx([0.6, 0.4, 0.0, 0.0], abs=1e-4)
    shares = outlook(pool, seen, [], [override(OverrideAction.DOWN, "10.1.0.0/16")], NOW, nameless)
    assert [each.after for each in shares] == [None, None, 0.5, 0.5]
    other = override(OverrideAction.SHARE, "10.2.0.1/32", 0.6)
    assert given(pool, seen, [few, other], NOW) == 0.6, "each of its own site"
    assert given(replace(pool, sites=None), seen, [few, other], NOW) == 1.2


def test_spilling_of_a_site_ends_by_time_alone() -> None:
    pool = pool_of(POOL + "spill_at = 0.8\nback_after_s = 30\n")
    hot, cool = members(eu=[0.9, 0.9], us=[0, 0]), members(eu=[0.1, 0.1], us=[0, 0])
    before, cooled, after = states_over(pool, (0, hot), (10, cool), (40, cool))
    assert before.sites["eu"].is_spilling
    assert cooled.sites["eu"].is_spilling
    assert cooled.rebuild_at_s == NOW + 40
    assert not after.sites["eu"].is_spilling


def test_drained_site_is_not_enough_and_its_servers_are_standbys() -> None:
    whole = members(eu=[0, 0], us=[0, 0])
    drained = {
        label: replace(each, share=0.0) if label < "000000c8" else each for label, each in whole.items()
    }
    (state,) = states_over(pool_of(POOL), (0, drained))
    assert ranks(state.sites) == {"eu": 1, "us": 0}
    assert {label for label, each in state.weights.items() if each.standby} == {"00000065", "00000066"}
    assert len(state.targets) == 4


def test_member_in_no_site_comes_last() -> None:
    (state,) = states_over(pool_of(POOL), (0, members(eu=[0], us=[0], nowhere=[0])))
    priorities = {label: each.priority for label, each in state.weights.items()}
    assert priorities["00000385"] == max(priorities.values()) == 2


ELSEWHERE = US.replace("us", "far").replace("10.2.0.0", "192.168.0.0")


def config(text: str) -> PoolConfig:
    return zone(text).sites[0].pools[0].config


def test_least_members_are_min_in_or_a_share_of_those_expected() -> None:
    expect = ", ".join(f'"10.1.0.{number}:5060" = "eu-{number}"' for number in range(1, 6))
    pool = config(POOL + f"min_share = 0.5\nexpect = {{{expect}}}\n")
    of_pool = pool.site_rules(TWO)
    assert of_pool is not None
    assert of_pool.least == {"eu": 3, "us": 1}
    expect = ", ".join(f'"10.1.0.{number}:5060" = "eu-{number}"' for number in range(1, 26))
    exact = config(POOL + f"min_share = 0.28\nexpect = {{{expect}}}\n").site_rules(TWO)
    assert exact is not None
    assert exact.least["eu"] == 7, "floats make it more: 0.28 * 25 > 7"
    spilling = config(POOL + "spill_at = 0.8\n").site_rules(TWO)
    assert spilling is not None
    assert spilling.spill_back == pytest.approx(0.6)


def test_own_first_is_the_site_of_the_name_server_before_the_others() -> None:
    own = config(UDP + 'order = "own-first"\n').site_rules(SITES)
    assert own is not None
    assert own.names == ("us", "eu", "ap")


@pytest.mark.parametrize(
    ("text", "of_pool", "words"),
    [
        (EU + US.replace("10.2.0.0/16", "10.1.128.0/17"), "", "overlaps a network of the site 'eu'"),
        (EU + EU, "", "'eu' is there twice"),
        (EU.replace("eu", "E U"), "", "site[0].name"),
        (EU.replace('["10.1.0.0/16"]', "[]"), "", "needs at least one"),
        (EU.replace("10.1.0.0/16", "10.1.0.0/33"), "", "site[0].networks"),
        (f'own_site = "ap"\n{EU}', "", "ap: no [[site]] has this name"),
        (EU + US, 'order = ["eu"]', "lacks us: name every [[site]]"),
        (EU + US, 'order = ["eu", "us", "ap"]', "ap: no [[site]] in rspdns.toml has this name"),
        (EU + US, 'order = ["eu", "us", "eu"]', "names a site twice"),
        (EU + US, 'order = "own-first"', "needs own_site"),
        (f'own_site = "eu"\n{EU}{US}{ELSEWHERE}', 'order = "own-first"', "far: has no server"),
        ('own_site = "eu"\n[[site]]\nname = ["eu"]\n', "", "site[0].name: must be text"),
        (EU + US, "order = []", "needs at least one"),
        (EU + US, "min_in = 2", "needs order"),
        (EU + US, 'order = ["eu", "us"]\nmin_share = 0.5', "min_share needs expect as a table"),
        (EU + US, 'order = ["eu", "us"]\nspill_back = 0.5', "spill_back needs spill_at"),
        (EU + US, 'order = ["eu", "us"]\nspill_at = 0.5\nspill_back = 0.6', "must be below spill_at"),
    ],
)
def test_check_tells_what_is_wrong_with_sites(tmp_path: Path, text: str, of_pool: str, words: str) -> None:
    folder = tmp_path / "zones.d"
    folder.mkdir()
    (folder / "x.zone").write_text("$TTL 60\n@ SOA ns1 h 1 1 1 1 1\n@ NS ns1\nns1 A 10.0.0.9\n")
    (folder / "x.toml").write_text(f'zone = "example.net"\nstatic = "x.zone"\n{UDP}{of_pool}\n')
    (tmp_path / "rspdns.toml").write_text(BASE + text)
    with pytest.raises(ConfigurationErrors) as told:
        load_configuration(tmp_path / "rspdns.toml")
    error = str(told.value)
    assert any(word in error for word in words.split("|")), error
    assert ".toml" in error


def test_a_right_configuration_has_its_sites(tmp_path: Path) -> None:
    folder = tmp_path / "zones.d"
    folder.mkdir()
    (folder / "x.zone").write_text("$TTL 60\n@ SOA ns1 h 1 1 1 1 1\n@ NS ns1\nns1 A 10.0.0.9\n")
    (folder / "x.toml").write_text(f'zone = "example.net"\nstatic = "x.zone"\n{UDP}order = "own-first"\n')
    (tmp_path / "rspdns.toml").write_text(f'own_site = "us"\n{BASE}{EU}{US}')
    found = load_configuration(tmp_path / "rspdns.toml")
    assert [type(site) for site in found.sites] == [SiteConfig, SiteConfig]
    pool = found.zones[0].sites[0].pools[0]
    assert pool.sites is not None
    assert pool.sites.names == ("us", "eu")
