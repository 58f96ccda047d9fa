"""What `rspdns up` writes into a directory that it was given before."""

from pathlib import Path

import pytest
from rspdns.up.files import SERVERS, ZONE, UpFiles
from rspdns.zones.loading import load_zone


def test_what_was_edited_stays(tmp_path: Path) -> None:
    files = UpFiles(tmp_path)
    files.write("10.0.0.1", 5300, ["10.0.0.1"])
    edited = [files.agent, tmp_path / "zones.d" / f"{ZONE}.toml", tmp_path / "zones.d" / f"{ZONE}.zone"]
    for path in edited:
        path.write_text("edited")
    files.write("10.0.0.1", 5301, ["10.0.0.1"])
    assert [path.read_text() for path in edited] == ["edited"] * 3
    assert "5301" in (tmp_path / "pdns.conf").read_text()


@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize("has_servers", [True, False])
def test_its_servers_are_expected_by_name(tmp_path: Path, address: str, has_servers: bool) -> None:
    UpFiles(tmp_path).write(address, 5300, [address], has_servers=has_servers)
    zone = load_zone(tmp_path / "zones.d" / f"{ZONE}.toml")
    (pool,) = zone.config.pools
    assert pool.when_empty == "nodata"
    named = {name: (str(where), port) for (where, port), name in pool.names.items()}
    assert named == ({name: (address, port) for name, port in SERVERS.items()} if has_servers else {})
