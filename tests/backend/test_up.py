"""`rspdns up`: its folder and files, and what its SIP servers answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rspdns.up.files import SERVERS, ZONE, UpFiles, remove_abandoned
from rspdns.up.sip_server import answer
from rspdns.zones.loading import load_zone

OWNER = """\
import sys, time
from rspdns.up.files import own_folder
with own_folder() as folder:
    (folder / "logs").mkdir()
    (folder / "logs" / "one").touch()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_folders_of_killed_runs_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rspdns-up-without-a-lock").mkdir()
    (tmp_path / "rspdns-up-link").symlink_to(tmp_path / "rspdns-up-without-a-lock")
    (tmp_path / "rspdns-up-file").touch()
    others = set(tmp_path.iterdir())
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)}
        )
        for _ in range(2)
    ]
    folders = [Path(owner.stdout.readline().strip()) for owner in owners if owner.stdout]
    try:
        remove_abandoned(tmp_path)
        assert set(tmp_path.iterdir()) == {*others, *folders}
        owners[0].kill()
        owners[0].wait()
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: 12345)
            remove_abandoned(tmp_path)
        assert set(tmp_path.iterdir()) == {*others, *folders}, "another user's"
        remove_abandoned(tmp_path)
        assert set(tmp_path.iterdir()) == {*others, folders[1]}
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate()


def test_files_that_were_edited_stay_as_they_are(tmp_path: Path) -> None:
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
def test_the_servers_of_rspdns_up_are_expected_by_name(
    tmp_path: Path, address: str, has_servers: bool
) -> None:
    UpFiles(tmp_path).write(address, 5300, [address], has_servers=has_servers)
    zone = load_zone(tmp_path / "zones.d" / f"{ZONE}.toml")
    (pool,) = zone.config.pools
    assert pool.when_empty == "nodata"
    expected = pool.expect if isinstance(pool.expect, tuple) else ()
    named = {server.name: (str(server.address), server.port) for server in expected}
    assert named == ({name: (address, port) for name, port in SERVERS.items()} if has_servers else {})


OPTIONS = (
    b"OPTIONS sip:10.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nv: SIP/2.0/UDP b\r\n"
    b"From: <sip:a@b>;tag=1\r\n"
    b"t: <sip:c@d>\r\nCall-ID: x@y\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 0\r\nContent-Length: 0\r\n\r\n"
)


def test_options_is_answered_with_what_the_client_needs_to_know_its_answer() -> None:
    assert answer(OPTIONS) == (
        b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nVia: SIP/2.0/UDP b\r\n"
        b"From: <sip:a@b>;tag=1\r\n"
        b"To: <sip:c@d>;tag=up\r\nCall-ID: x@y\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )


def test_a_call_is_refused() -> None:
    said = answer(OPTIONS.replace(b"OPTIONS", b"INVITE"))
    assert said is not None
    assert said.startswith(b"SIP/2.0 501 Not Implemented\r\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0" * 70_000,
        b"SIP/2.0 200 OK\r\n\r\n",
        OPTIONS.replace(b"OPTIONS sip", b"ACK sip"),
        b"\xff\r\n\r\n",
    ],
)
def test_a_message_that_is_no_request_is_not_answered_by_the_example_server(garbage: bytes) -> None:
    assert answer(garbage) is None
