"""The table of names by which PowerDNS denies: what it lists, and what it leaves to the backend."""

from pathlib import Path

import pdns_config
import pytest
from rspdns.pdns import name_table
from rspdns.pdns.name_table import MEMBERS, NOTHING, UNKNOWN, table

from tests.backend.making import UDP, ZONE, zone

FIXED = """$TTL 3600
@ SOA ns1 hostmaster 1 7200 900 1209600 300
@ NS ns1
ns1 A 10.0.1.1
deep.down TXT x
*.wild A 10.0.1.2
child NS ns.child
ns.child A 10.0.1.3
"""
INNER = "$TTL 3600\n@ SOA ns hostmaster 1 7200 900 1209600 300\n@ NS ns\nns A 10.0.1.4\n"


def kinds(text: str) -> dict[str, str]:
    return {line[2:]: line[0] for line in text.splitlines() if not line.startswith("Z ")}


def test_every_name_but_the_members_is_listed() -> None:
    found = kinds(table([zone(UDP, FIXED)], (), 7))
    assert found[ZONE] == found[f"ns1.{ZONE}"] == found[f"down.{ZONE}"] == found[f"as.{ZONE}"] == NOTHING
    assert found[f"_udp.as.{ZONE}"] == found[f"_sip._udp.as.{ZONE}"] == NOTHING
    assert found[f"u.as.{ZONE}"] == MEMBERS
    assert not any(name.endswith(f".u.as.{ZONE}") for name in found)


def test_names_below_wildcards_and_delegations_are_left_to_the_backend() -> None:
    found = kinds(table([zone(UDP, FIXED)], (), 7))
    for name in ("wild", "*.wild", "child", "ns.child"):
        assert found[f"{name}.{ZONE}"] == UNKNOWN


def test_the_soa_is_that_of_a_denial() -> None:
    first = table([zone(UDP, FIXED)], (), 7).splitlines()[0]
    assert first == f"Z {ZONE} 1 ns1.{ZONE}. hostmaster.{ZONE}. 7 7200 900 1209600 1"


def test_signed_zones_and_what_is_below_them_are_left_out() -> None:
    inner = f"inner.{ZONE}"
    both = [zone(UDP, FIXED), zone("", INNER, name=inner)]
    assert kinds(table(both, (inner,), 7))[inner] == UNKNOWN
    assert f"ns.{inner}" not in kinds(table(both, (inner,), 7))
    assert kinds(table(both, (ZONE,), 7)) == {inner: NOTHING, f"ns.{inner}": NOTHING}
    assert table(both, (ZONE, inner), 7) == ""


def test_too_many_names_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_table, "MAX_NAMES", 5)
    assert table([zone(UDP, FIXED)], (), 7) == ""


def test_a_folder_that_can_not_be_written_stops_nothing(tmp_path: Path) -> None:
    name_table.write(f"unix:{tmp_path}/no such folder/remote.sock", [zone(UDP, FIXED)], (), 7)
    name_table.write(f"unix:{tmp_path}/remote.sock", [zone(UDP, FIXED)], (), 7)
    assert [path.name for path in tmp_path.iterdir()] == ["remote.sock.names"]


def test_table_is_no_longer_than_the_script_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (Path(pdns_config.__file__).with_name("name_table.lua")).read_text()
    assert f"= {name_table.MAX_BYTES}, {name_table.MAX_LINES}, 65\n" in script
    others = [zone("", INNER, name=name) for name in ("elsewhere.example", f"inner.{ZONE}")]
    text = table([zone(UDP, FIXED), *others], [other.name for other in others], 7)
    assert f"? inner.{ZONE}\n" in text
    assert "elsewhere" not in text
    monkeypatch.setattr(name_table, "MAX_BYTES", len(text) - 1)
    assert table([zone(UDP, FIXED), *others], [other.name for other in others], 7) == ""


def test_a_zone_that_is_left_out_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_table, "_kinds", None)  # must not be called
    monkeypatch.setattr(name_table, "MAX_NAMES", 5)
    assert table([zone(UDP, FIXED)], (), 7) == ""
    monkeypatch.undo()
    monkeypatch.setattr(name_table, "_kinds", None)
    assert table([zone(UDP, FIXED)], (ZONE,), 7) == ""
