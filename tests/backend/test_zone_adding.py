"""`rspdns zone add`: its files are good ones, and its delegation works."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daemon_kit.config_file import ConfigurationErrors
from rspdns.cli import main
from rspdns.zones.adding import NewZone, add_zone, delegation, parse_name_server
from rspdns.zones.loading import load_zones

ZONE = "ims.example.net"


def new(**more: object) -> NewZone:
    servers = tuple(parse_name_server(text, ZONE) for text in ("ns1=192.0.2.1", "ns.example.org=2001:db8::1"))
    return NewZone(ZONE, servers, "sip-udp", ("10.0.0.0/8",), **more)  # type: ignore[arg-type]


def add(zones: Path, *more: str) -> Result:
    command = ["zone", "add", ZONE, "--ns", "ns1=192.0.2.1", "--handle", "sip-udp", "--accept", "10.0.0.0/8"]
    return CliRunner().invoke(main, [*command, f"--zones-dir={zones}", *more])


def test_the_files_are_read_back(tmp_path: Path) -> None:
    add_zone(new(label="u"), tmp_path)
    (zone,) = load_zones(tmp_path)
    assert zone.name == ZONE
    assert zone.sites[0].pools[0].owner == f"_sip._udp.as.{ZONE}"
    assert {record.content for record in zone.static.records[ZONE]} == {f"ns1.{ZONE}", "ns.example.org"}
    assert [record.content for record in zone.static.records[f"ns1.{ZONE}"]] == ["192.0.2.1"]


def test_the_delegation_has_glue_where_it_is_needed() -> None:
    assert delegation(new()).splitlines() == [
        f"{ZONE}. 3600 IN NS ns1.{ZONE}.",
        f"{ZONE}. 3600 IN NS ns.example.org.",
        f"ns1.{ZONE}. 3600 IN A 192.0.2.1",
    ]


def test_zone_add_writes_a_zone_and_says_its_delegation_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    result = add(tmp_path / "zones.d")
    assert result.exit_code == 0, result.output
    assert f"{ZONE}. 3600 IN NS ns1.{ZONE}." in result.output
    assert f"SRV records at _sip._udp.as.{ZONE}: the members of pool sip-udp\n" in result.output
    assert "  _sip._udp is the default; --service gives another\n" in result.output
    assert "  as is the default; --pool-name gives another\n" in result.output
    assert len(load_zones(tmp_path / "zones.d")) == 1


def test_defaults_are_told_only_where_no_option_was_given(tmp_path: Path) -> None:
    result = add(tmp_path, "--service=_http._tcp", "--pool-name=@")
    assert f"SRV records at _http._tcp.{ZONE}: the members of pool sip-udp\n" in result.output
    assert "is the default" not in result.output
    (pool,) = load_zones(tmp_path)[0].sites[0].pools
    assert pool.owner == f"_http._tcp.{ZONE}"


def test_answers_and_weights_of_the_pool_are_options(tmp_path: Path) -> None:
    assert add(tmp_path, "--answers=all", "--weights=wide").exit_code == 0
    (pool,) = load_zones(tmp_path)[0].sites[0].pools
    assert (pool.config.answers, pool.config.weights) == ("all", "wide")


def test_adding_a_zone_never_overwrites_files(tmp_path: Path) -> None:
    add(tmp_path)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    again = add(tmp_path, "--pool-name=other")
    assert again.exit_code == 1
    assert "is there already; add a [[pool]] to its .toml file" in again.output
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("--ns=ns1", "NAME=ADDRESS"),
        ("--ns=ns1=somewhere", "somewhere"),
        ("--accept=10.0.0.1/8", "10.0.0.1/8"),
        ("--service=_sip._xyz", "--service: "),
        ("--handle=" + "x" * 33, "--handle: "),
        ("--handle=a b", "--label: "),
        ("--label=a.b", "--label: "),
        ("--pool-name=a..b", "--pool-name: "),
        ("--accept=10.0.0.1/8", "--accept: "),
    ],
)
def test_a_zone_that_is_wrong_is_refused_and_nothing_written(tmp_path: Path, option: str, word: str) -> None:
    result = add(tmp_path, option)
    assert result.exit_code == 1
    assert word in result.output
    assert "tmp" not in result.output, "files that were never there for the reader"
    assert not list(tmp_path.iterdir())


def test_a_zone_that_does_not_fit_the_others_is_taken_back(tmp_path: Path) -> None:
    add(tmp_path)
    servers = (parse_name_server("ns1=192.0.2.1", "other.example"),)
    clash = NewZone("other.example", servers, "sip-udp", ("192.168.0.0/16",))
    with pytest.raises(ConfigurationErrors):
        add_zone(clash, tmp_path)
    assert [zone.name for zone in load_zones(tmp_path)] == [ZONE]


def test_a_handle_in_upper_case_makes_its_label(tmp_path: Path) -> None:
    assert add(tmp_path, "--handle=H").exit_code == 0
    pool = load_zones(tmp_path)[0].sites[0].pools[0]
    assert pool.config.shards == ("H",)
    assert pool.config.target_label == "h"


def test_other_networks_for_a_pool_are_told_by_the_option(tmp_path: Path) -> None:
    add(tmp_path)
    command = [
        "zone",
        "add",
        "other.example",
        "--ns=ns1=192.0.2.1",
        "--handle=sip-udp",
        "--accept=192.0.2.0/24",
    ]
    result = CliRunner().invoke(main, [*command, f"--zones-dir={tmp_path}"])
    assert result.exit_code == 1
    assert result.output.startswith(f"--accept: the zone {ZONE} gives the pool 'sip-udp'")
    assert "--accept 10.0.0.0/8" in result.output
    assert [zone.name for zone in load_zones(tmp_path)] == [ZONE]


def test_the_zones_directory_is_that_of_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "other.toml"
    command = [
        "zone",
        "add",
        ZONE,
        "--ns=ns1=192.0.2.1",
        "--handle=h",
        "--accept=10.0.0.0/8",
        "-c",
        str(config),
    ]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert f"{config}: is not there" in refused.output
    assert not list(tmp_path.iterdir())
    config.write_text('registrars = ["10.0.0.1"]\nzones_dir = "mine"\n[admin]\nsocket = "/none"\n')
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert len(load_zones(tmp_path / "mine")) == 1
    assert f"Now: rspdns check -c {config}" in result.output
    assert "No backend runs here" in result.output
