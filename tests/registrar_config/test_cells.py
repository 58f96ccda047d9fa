"""The file of the cells: an inventory for each cell, what joins them, and which cell is full."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_kit.config_file import ConfigurationErrors
from registrar_config.cells import load_inventories
from registrar_config.cli import main
from rspdns.gateway.configuration import load_gateway
from rspdns.zones.loading import load_zone

EXAMPLE = Path(__file__).resolve().parents[2] / "registrar-config" / "examples" / "cells.toml"


def rendered(folder: Path, text: str = EXAMPLE.read_text()) -> Path:
    file = folder / "cells.toml"
    file.write_text(text)
    done = CliRunner().invoke(main, ["render", str(file), "--output", str(folder / "out")])
    assert done.exit_code == 0, done.output
    return folder / "out"


def test_each_host_has_the_files_of_its_own_cell(tmp_path: Path) -> None:
    out = rendered(tmp_path)
    assert sorted(path.name for path in out.iterdir()) == ["eu1", "upper", "us1"]
    options = (out / "eu1/r1/registrar-r1.env").read_text()
    assert "--peer=10.1.0.12:9901" in options
    assert "10.2." not in options
    rules = (out / "eu1/r1/rspdns.nft").read_text()
    assert "10.1.0.31" in rules
    assert "10.1.0.21" in rules
    assert "10.2.0.31" not in rules


def test_gateways_may_register_above_and_nobody_else(tmp_path: Path) -> None:
    out = rendered(tmp_path)
    gate = (out / "upper/r1/registrar-r1.gate").read_text()
    assert "10.1.0.31" in gate
    assert "10.2.0.31" in gate
    assert "10.1.16.0" not in gate
    assert "10.0.0.21" in (out / "upper/r1/rspdns.nft").read_text()


def test_packet_filter_of_a_gateway_lets_registrars_of_both_handlespaces_in(tmp_path: Path) -> None:
    out = rendered(tmp_path)
    for path in ("eu1/gateways", "upper/gateways-eu1"):
        rules = (out / path / "rspdns.nft").read_text()
        assert "10.1.0.11" in rules, path
        assert "10.0.0.11" in rules, path
        assert "10.2.0.11" not in rules, path


def test_rendered_gateways_and_upper_zone_are_right(tmp_path: Path) -> None:
    out = rendered(tmp_path)
    gateway = load_gateway(out / "eu1/gateways/10.1.0.31/gateway.toml")
    assert str(gateway.address) == "10.1.0.31"
    assert [pool.upper for pool in gateway.pools] == ["sip-as-udp"]
    assert [registrar.host for registrar in gateway.last_addresses] == ["10.0.0.11"]
    assert load_gateway(out / "us1/gateways/10.2.0.31/gateway.toml").last_choice is None
    soa = "@ SOA ns1 hostmaster 1 3600 600 604800 1\n@ NS ns1\nns1 A 10.0.0.21\n"
    delegations = (out / "upper/delegations.zone").read_text()
    (tmp_path / "z.zone").write_text(f"$ORIGIN ims.example.net.\n$TTL 300\n{soa}{delegations}")
    pool = '[[pool]]\nhandle = "sip-as-udp"\nservice = "_sip._udp"\nname = "as"\n'
    table = (out / "upper/cells.toml").read_text()
    (tmp_path / "z.toml").write_text(f'zone = "ims.example.net"\nstatic = "z.zone"\n{pool}{table}')
    cells = load_zone(tmp_path / "z.toml").config.pools[0].cells or ()
    assert {cell.name for cell in cells} == {"as.eu1.ims.example.net", "as.us1.ims.example.net"}
    assert len(cells) == 3


def test_check_says_which_cell_is_full(tmp_path: Path) -> None:
    file = tmp_path / "cells.toml"
    file.write_text(EXAMPLE.read_text().replace("expected_elements = 1200", "expected_elements = 7000"))
    done = CliRunner().invoke(main, ["check", "--offline", str(file)])
    assert done.exit_code == 0
    assert "eu1: 3 registrars, 3,000 servers: each is asked every 300 ms" in done.output
    words = "cell 'us1' is full: 7,000 servers, and a cell is meant for 3,000; make 3 cells of it"
    assert words in done.output
    assert "'eu1' is full" not in done.output


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '["10.2.16.0/20"]',
            '["10.1.17.0/24"]',
            "10.1.17.0/24 is in 'eu1' already: a host belongs to one cell",
        ),
        ('address = "10.2.0.11"', 'address = "10.1.0.11"', "10.1.0.11 is in 'eu1' already"),
        ('name = "us1"', 'name = "eu1"', "'eu1' is there twice"),
        ('name = "us1"', 'name = "upper"', "is the name of the handlespace above"),
        ('gateways = ["10.2.0.31"]', 'gateways = ["10.2.0.0/24"]', "10.2.0.0/24"),
        ('gateways = ["10.2.0.31"]', "gateways = []", "cell[1].gateways"),
        ('name = "upper-name-servers"', 'name = "gateways-eu1"', "is the name of an entry that is made"),
        ('last_choice = ["r1"]', 'last_choice = ["r9"]', "'r9' is no registrar of [upper]"),
        ('last_choice = ["r1"]', 'last_choice = ["r1", "r2", "r3"]', "names all registrars of [upper]"),
        (
            '["10.2.16.0/20"]\nhandles = ["sip-as-udp"]',
            '["10.2.16.0/20"]\nhandles = ["sip-*"]',
            "cell[1].agent[0].handles[0]: 'sip-*' names no pool",
        ),
        (
            '["10.2.16.0/20"]\nhandles = ["sip-as-udp"]',
            '["10.2.16.0/20"]',
            "cell[1].agent[0]: needs handles",
        ),
        ('address = "10.2.0.12"', 'address = "fd00::1"', "all have IPv4 addresses, or all IPv6"),
    ],
)
def test_wrong_cells_are_told_with_file_and_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = tmp_path / "cells.toml"
    text = EXAMPLE.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(ConfigurationErrors) as refused:
        load_inventories(file)
    assert words in str(refused.value), refused.value
    assert f"{file}:" in str(refused.value)
