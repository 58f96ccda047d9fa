"""What `rspdns up` writes into a directory that it was given before."""

from pathlib import Path

from rspdns.up.files import ZONE, UpFiles


def test_what_was_edited_stays(tmp_path: Path) -> None:
    files = UpFiles(tmp_path)
    files.write("10.0.0.1", 5300, ["10.0.0.1"])
    edited = [files.agent, tmp_path / "zones.d" / f"{ZONE}.toml", tmp_path / "zones.d" / f"{ZONE}.zone"]
    for path in edited:
        path.write_text("edited")
    files.write("10.0.0.1", 5301, ["10.0.0.1"])
    assert [path.read_text() for path in edited] == ["edited"] * 3
    assert "5301" in (tmp_path / "pdns.conf").read_text()
