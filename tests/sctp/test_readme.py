"""The README of sctp-userland says where everything is."""

from tests.support.builds import SCTP_USERLAND


def test_every_source_file_is_named() -> None:
    told = (SCTP_USERLAND / "README.md").read_text()
    files = [
        path.name for folder in ("sctpd", "preload", "fuzz") for path in (SCTP_USERLAND / folder).glob("*.c")
    ]
    assert len(files) > 30
    assert [name for name in files if f"`{name}`" not in told and f"/{name}`" not in told] == []
