"""`rspdns support`: one archive with what a bug report needs, and nothing secret."""

import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from rspdns import support
from rspdns.cli import main

from tests.backend.making import FIXED, UDP, ZONE

SECRET = "s3cr3t-value-of-28-letters"  # noqa: S105 - made up
PDNS = (
    f"launch=remote\napi-key={SECRET}\n# webserver-password = {SECRET}\n"
    f"gmysql-password={SECRET}\nlocal-port=53\n"
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / f"{ZONE}.toml").write_text(f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\n{UDP}')
    (tmp_path / "zones.d" / f"{ZONE}.zone").write_text(FIXED)
    tokens = tmp_path / "tokens"
    tokens.write_text(SECRET + "\n")
    tokens.chmod(0o600)
    pdns = tmp_path / "powerdns"
    pdns.mkdir()
    (pdns / "pdns.conf").write_text(PDNS)
    monkeypatch.setattr(support, "PDNS_DIRECTORY", pdns)
    told = f'registrars = ["10.0.0.1"]\n[admin]\nsocket = "{tmp_path}/admin.sock"\nwrite_tokens = "tokens"\n'
    (tmp_path / "rspdns.toml").write_text(told)
    return tmp_path / "rspdns.toml"


def test_the_archive_holds_what_a_report_needs_and_no_secret(config: Path, tmp_path: Path) -> None:
    """Also while no backend runs."""
    target = tmp_path / "report.tar.gz"
    result = CliRunner().invoke(main, ["support", "-c", str(config), "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert target.stat().st_mode & 0o077 == 0
    with tarfile.open(target) as archive:
        texts = {one.name: archive.extractfile(one).read().decode() for one in archive.getmembers()}  # type: ignore[union-attr]
    assert {name.split("/")[0] for name in texts} == {"report"}
    assert not [name for name, text in texts.items() if SECRET in text]
    names = " ".join(texts)
    for part in ("rspdns.toml", f"{ZONE}.toml", f"{ZONE}.zone", "pdns.conf", "journal.txt", "check.txt"):
        assert part in names
    assert "no errors" in texts["report/check.txt"]
    assert "rspdns 0." in texts["report/versions.txt"]
    assert "error" in texts["report/status.json"], "no backend runs: it says so"
    assert "local-port=53" in texts[f"report/configuration{tmp_path}/powerdns/pdns.conf"]

    again = CliRunner().invoke(main, ["support", "-c", str(config), "-o", str(target)])
    assert again.exit_code != 0, "an archive that is there is not overwritten"


@pytest.mark.parametrize(
    "text",
    [
        f"api-key={SECRET}",
        f'  password = "{SECRET}"',
        f"gpgsql-password: {SECRET} and more {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"http://user:{SECRET}@host/path",
        f"GET /v1?token={SECRET}&x=1",
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----",
    ],
)
def test_secrets_are_left_out(text: str) -> None:
    assert SECRET not in support.redacted(text)
    assert support.LEFT_OUT in support.redacted(text)


@pytest.mark.parametrize(
    "text", ["monkey=5", 'handle = "key"', "as 3600 SRV 1 1 5060 a.b", "log: token accepted"]
)
def test_text_that_is_no_secret_stays_in_the_archive(text: str) -> None:
    assert support.redacted(text) == text
