"""Pools of cells: NAPTR and SRV records that lead to the names of the cells whose gateways are in."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from daemon_kit.config_file import ConfigurationErrors
from pool_user import Member
from rserpool.policies import LeastUsedDegradation
from rspdns.answers.snapshot import NODATA, Snapshot
from rspdns.zones.loading import load_zone
from rspdns.zones.zone import probing_by_handle

from tests.backend.making import FIXED, NOW, UDP, ZONE, answered, built, member, records, view, views, zone

CELLS = """
cells = { "10.1.0.0/30" = "as.eu1.ims.example.net", "10.2.0.1" = "as.us1.ims.example.net" }
"""
POOL = UDP.replace('"10.0.0.0/8"', '"10.1.0.0/30", "10.2.0.1"') + CELLS
DELEGATED = FIXED + "eu1 NS ns.eu1\nns.eu1 A 10.1.0.9\nus1 NS ns.us1\nns.us1 A 10.2.0.9\n"
OWNER, NAME = f"_sip._udp.as.{ZONE}", f"as.{ZONE}"


def gateway(identifier: int, address: str, load: float = 0.0, servers: int = 100) -> Member:
    return member(identifier, address, policy=LeastUsedDegradation(load, 1 / servers))


def eu(identifier: int = 1, address: str = "10.1.0.1", **more: float) -> Member:
    return gateway(identifier, address, more.get("load", 0.0), int(more.get("servers", 100)))


def us(**more: float) -> Member:
    return gateway(9, "10.2.0.1", more.get("load", 0.0), int(more.get("servers", 100)))


def srv(snapshot: Snapshot) -> set[str]:
    return {record.content for record in records(snapshot, OWNER, "SRV")}


def naptr(snapshot: Snapshot) -> list[str]:
    return [record.content for record in records(snapshot, NAME, "NAPTR")]


def snapshot(*gateways: Member, seed: int = 1) -> Snapshot:
    return answered(zone(POOL, DELEGATED), views(view(*gateways)), seed=seed)


def test_srv_targets_are_the_names_of_the_cells() -> None:
    assert srv(snapshot(eu(), us())) == {
        "0 1000 5060 as.eu1.ims.example.net",
        "0 1000 5060 as.us1.ims.example.net",
    }


def test_weight_is_what_a_cell_has_free() -> None:
    assert srv(snapshot(eu(servers=300, load=0.5), us(servers=75))) == {
        "0 500 5060 as.eu1.ims.example.net",
        "0 250 5060 as.us1.ims.example.net",
    }


def test_two_gateways_of_a_cell_are_one_target() -> None:
    both = snapshot(eu(1), eu(2, "10.1.0.2"), us())
    assert len(srv(both)) == len(naptr(both)) == 2
    assert srv(both) == srv(snapshot(eu(2, "10.1.0.2"), us())) == srv(snapshot(eu(1), us()))


def test_naptr_leads_to_the_srv_records_of_the_cells() -> None:
    firsts = Counter(naptr(snapshot(eu(servers=300), us(), seed=seed))[0] for seed in range(200))
    assert naptr(snapshot(us())) == ['10 10 "s" "SIP+D2U" "" _sip._udp.as.us1.ims.example.net']
    share = firsts['10 10 "s" "SIP+D2U" "" _sip._udp.as.eu1.ims.example.net'] / 200
    assert 0.65 < share < 0.85, firsts


def test_naptr_order_is_kept_until_the_ttl_is_over_and_drawn_again_then() -> None:
    draw, of_zone = Random(3), zone(POOL, DELEGATED)
    before = built([of_zone], views(view(eu(), us())), None, NOW, 1, draw).after
    for load in (0.1, 0.2):
        after = built([of_zone], views(view(eu(load=load), us())), before, NOW + 0.5, 2, draw).after
        assert naptr(after) == naptr(before)
    drawn = {
        tuple(naptr(built([of_zone], views(view(eu(), us())), before, NOW + 2 + n, 3, draw).after))
        for n in range(20)
    }
    assert len(drawn) == 2


def test_overloaded_cell_is_behind_the_others() -> None:
    loaded = [snapshot(eu(load=0.97), us(), seed=seed) for seed in range(9)]
    assert {text.split()[0] for text in srv(loaded[0]) if "eu1" in text} == {"1"}
    assert all(naptr(each)[0].endswith("as.us1.ims.example.net") for each in loaded)


def test_gateways_give_no_addresses_and_are_not_probed() -> None:
    of_zone = zone(POOL, DELEGATED)
    found = snapshot(eu(), us())
    assert found.lookup(NAME, "A") == NODATA
    assert not [name for name in found.nodes[ZONE] if name.startswith("00000001.")]
    assert not probing_by_handle([of_zone])


@pytest.mark.parametrize(
    ("pool", "fixed", "words"),
    [
        (POOL + 'verify = "sip-options"\n', DELEGATED, "has no use for verify with cells"),
        (POOL + 'key = "/nowhere.key"\n', DELEGATED, "has no use for key with cells"),
        (POOL.replace('10.2.0.1"]', '10.1.0.2"]'), DELEGATED, "not in accept"),
        (POOL.replace('10.2.0.1"]', '10.2.0.1", "10.3.0.0/24"]'), DELEGATED, "gateways in 10.3.0.0/24"),
        (POOL.replace('"10.2.0.1" =', '"10.1.0.2" ='), DELEGATED, "overlaps 10.1.0.0/30"),
        (POOL.replace('"as.us1', '"a..us1'), DELEGATED, "empty label"),
        (POOL, FIXED, "as.eu1.ims.example.net is in this zone, and no NS record"),
    ],
)
def test_wrong_cells_are_reported(tmp_path: Path, pool: str, fixed: str, words: str) -> None:
    (tmp_path / "z.toml").write_text(f'zone = "{ZONE}"\nstatic = "z.zone"\n{pool}')
    (tmp_path / "z.zone").write_text(fixed)
    with pytest.raises(ConfigurationErrors) as refused:
        load_zone(tmp_path / "z.toml")
    assert words in str(refused.value), refused.value
    assert "z.toml" in str(refused.value)
