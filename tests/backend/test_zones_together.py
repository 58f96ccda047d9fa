"""Errors between zones and between the files of one are told beside others, not after them."""

from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from rspdns.zones.loading import load_zones

ZONE = """\
zone = "{zone}"
static = "{file}"
[[pool]]
handle = "sip"
service = "_sip._udp"
name = "as"
accept = ["{accept}"]
"""
MASTER = """\
$TTL 300
@ SOA ns1 hostmaster 1 7200 900 1209600 300
@ NS ns1
@ NS ns2
ns1 A 192.0.2.1
ns2 A 192.0.2.2
"""


def errors(folder: Path) -> list[str]:
    with pytest.raises(ConfigurationErrors) as caught:
        load_zones(folder)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def write(folder: Path, name: str, *, zone: str = "example.org", accept: str = "10.0.0.0/8") -> None:
    (folder / f"{name}.toml").write_text(ZONE.format(zone=zone, file="the.zone", accept=accept))


def test_a_zone_in_two_files_hides_no_difference_between_their_pools(tmp_path: Path) -> None:
    (tmp_path / "the.zone").write_text(MASTER)
    write(tmp_path, "a")
    write(tmp_path, "b", accept="10.1.0.0/16")
    write(tmp_path, "c", zone="example.net", accept="10.2.0.0/16")
    told = "the pool 'sip' has other networks in {}; it can have but one list"
    assert errors(tmp_path) == [
        "b.toml:1: zone: the zone example.org is already in a.toml",
        f"b.toml:7: pool[0].accept: {told.format('a.toml')}",
        f"c.toml:7: pool[0].accept: {told.format('a.toml')}",
    ]


def test_a_bad_record_hides_no_name_server_without_an_address(tmp_path: Path) -> None:
    write(tmp_path, "a")
    for bad, missing in (("www A nowhere", "ns2"), ("ns2 A nowhere", None)):
        (tmp_path / "the.zone").write_text(MASTER.replace("ns2 A 192.0.2.2", bad))
        found = errors(tmp_path)
        assert found.pop().startswith("the.zone:6: ")
        server = f"the name server {missing}.example.org has no address in this zone"
        assert found == ([f"the.zone:4: example.org NS: {server}"] if missing else [])
