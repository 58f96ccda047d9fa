"""`rspdns support`: one archive with what a bug report needs, and nothing secret."""

import os
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rspdns import support
from rspdns.cli import main

from tests.backend.making import FIXED, UDP, ZONE

SECRET = "s3cr3t-value-of-28-letters"  # noqa: S105 - made up
B64 = "kp4/24gyYsEzbuTVJRUMoqGFmN3LYgVDzJ/3oRSP7ys="
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
        texts = {file.name: archive.extractfile(file).read().decode() for file in archive.getmembers()}  # type: ignore[union-attr]
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
        f'[[hook]]\nname = "chat"\npools = ["a"]\nurl = "https://chat.example.net/hooks/{SECRET}"',
        f"GET /v1?token={SECRET}&x=1",
        f"read_tokens = [\n  '{SECRET}',\n  '{SECRET}',\n]",
        f'token = """\n{SECRET}\n{SECRET}"""',
        f'  "token": "{SECRET}", "b": 1',
        f"Environment=RSPDNS_TOKEN={SECRET}",
        f'Environment="A=b" "API_KEY={SECRET}"',
        f"Nov 23 06:00:00 ns1 rspdns[1]: refused: token={SECRET} from 10.0.0.1",
        f"ExecStart=/usr/sbin/pdns_server --api-key={SECRET} --local-port=53",
        f"ExecStart=/usr/bin/check --password {SECRET} --warning 3",
        f"gpgsql-extra-connection-parameters=host=db password={SECRET} port=5432",
        f'key "axfr" {{ algorithm hmac-sha256; secret "{SECRET}"; }};',
        f"dig -y hmac-sha256:transfer:{B64} axfr example.net",
        f"pdnsutil import-tsig-key transfer hmac-md5 '{B64}'",
        f'[as.load]\ncommunity = "{SECRET}"',
        f"exec: snmpget -v2c -c {SECRET} 10.0.0.1 1.3.6.1: timeout",
        f"snmpget -v3 -u me -A {SECRET} -X '{SECRET}' 10.0.0.1",
        f"defCommunity {SECRET}\ndefAuthPassphrase {SECRET}",
        f'headers = {{ Authorization = "Basic {SECRET}" }}',
        f"Authorization: Basic {SECRET}",
        f'command = ["/usr/lib/check", "--password", "{SECRET}"]',
        f"command = [\n  '--api-key',\n  '{SECRET}',\n]",
        f"SetCredential=token:{SECRET}",
        f"pwd={SECRET}",
        f"AUTH_KEY={SECRET}",
        f"http://user:a@{SECRET}@db.example.net/",
        f"GET /v1?key={SECRET}",
        f'"token" = "{SECRET}"',
        f'admin = {{ token = "{SECRET}" }}',
        f"Nov 23 06:00:00 ns1 pdns[1]: api-key={SECRET}",
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----",
    ],
)
def test_secrets_are_left_out(text: str) -> None:
    assert SECRET not in support.redacted(text)
    assert B64 not in support.redacted(text)
    assert support.LEFT_OUT in support.redacted(text)


COMMANDS = [
    ["curl", "-u", f"admin:{SECRET}", "http://h/"],
    ["curl", "--user", f"admin:{SECRET}", "http://h/"],
    ["curl", f"-uadmin:{SECRET}", "http://h/"],
    ["curl", "--oauth2-bearer", SECRET, "http://h/"],
    ["curl", "-b", f"session={SECRET}", "http://h/"],
    ["redis-cli", "-a", SECRET, "ping"],
    ["ldapsearch", "-x", "-D", "cn=a", "-w", SECRET],
    ["sshpass", "-p", SECRET, "ssh", "h"],
    ["mysqladmin", "-u", "me", f"-p{SECRET}", "ping"],
    ["mongosh", "-u", "me", "-p", SECRET],
    ["ipmitool", "-U", "me", "-P", SECRET, "status"],
    ["mosquitto_pub", "-u", "me", "-P", SECRET],
    ["smbclient", "-U", f"me%{SECRET}", "//h/share"],
    ["influx", "-password", SECRET],
    ["openssl", "s_client", "-pass", f"pass:{SECRET}"],
    ["check_own", "-y", SECRET],
]


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(command[:2]) for command in COMMANDS])
def test_passwords_in_arguments_of_commands_are_left_out(command: list[str]) -> None:
    """As a configuration file, systemd, and a log name the command."""
    quoted = ", ".join(f'"{word}"' for word in command)
    configured = f'[[as.check]]\ntype = "exec"\ncommand = [{quoted}]\nfall = 2\n'
    shown = support.redacted(configured)
    assert SECRET not in shown
    assert command[0] in shown
    assert "fall = 2" in shown
    secrets = set(support.secrets_of(configured))
    for text in (" ".join(command), f"exec: {command}: exit status 1", f"ExecStart={' '.join(command)}"):
        assert SECRET not in support.redacted(text, secrets)
        assert SECRET not in support.redacted(text)


@pytest.mark.parametrize(
    "listed",
    [
        f'["/usr/lib/x/prog", "-q", "a]b", "-k", "{SECRET}"]',
        f'[\n  "/opt/prog", # program ]\n  "-k", "{SECRET}", # "it"\n]',
        f'[ # the program\n  "/opt/prog",\n  "-k", "{SECRET}"\n]',
        f'["/opt/prog", "a\\"b", "-k", "{SECRET}"]',
        f"['/opt/prog', '-k', '{SECRET}']",
    ],
)
def test_arguments_are_left_out_however_the_list_is_written(listed: str) -> None:
    configured = f'[[as.check]]\ntype = "exec"\ncommand = {listed}\nfall = 2\n'
    shown = support.redacted(configured)
    assert SECRET not in shown
    assert "prog" in shown
    assert "fall = 2" in shown
    assert SECRET in set(support.secrets_of(configured))


def test_password_of_a_program_that_is_not_known_is_left_out(config: Path) -> None:
    configured = f'command = ["/opt/own", "radius", "{SECRET}"]\nargs = ["a", "--x", "{SECRET}"]'
    assert SECRET not in support.redacted(configured)
    assert set(support.secrets_of(configured)) == {SECRET}


def test_archive_is_its_owners_alone_from_its_first_moment(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    opened = tarfile.open

    def look(*words: Any, **more: Any) -> Any:
        modes.append((tmp_path / "a.tar.gz").stat().st_mode & 0o777)
        return opened(*words, **more)

    monkeypatch.setattr(tarfile, "open", look)
    monkeypatch.setattr(Path, "chmod", lambda *_: pytest.fail("it had another mode before"))
    before = os.umask(0)
    try:
        support.write_archive(config, str(tmp_path / "none.sock"), tmp_path / "a.tar.gz")
    finally:
        os.umask(before)
    assert modes == [0o600]


@pytest.mark.parametrize(
    "text",
    [
        "monkey=5",
        'handle = "key"',
        "as 3600 SRV 1 1 5060 a.b",
        "log: token accepted",
        "http://127.0.0.1:8053/metrics",
        "registrars = ['10.0.0.1:3863/9901']",
        "hmac-sha256 is used",
        "snmpd -c /etc/snmp/snmpd.conf",
    ],
)
def test_text_that_is_no_secret_stays_in_the_archive(text: str) -> None:
    assert support.redacted(text) == text


@pytest.mark.parametrize(
    "part",
    [
        " ",
        "\t",
        "# ",
        "a.",
        "[",
        '"',
        "a=",
        "--",
        "token ",
        "snmpget -c ",
        "curl -u ",
        'args=["',
        'command=["a",\n',
        "//a:b@",
        '"--password", ',
    ],
)
def test_leaving_out_takes_no_longer_than_the_text_is_long(part: str) -> None:
    """A line of 8,000 spaces took 24 s, four times as long as one of 4,000."""
    began_s = time.monotonic()
    support.redacted(part * 200_000)
    assert time.monotonic() - began_s < 20


def test_secret_of_a_configuration_file_is_left_out_of_logs_too(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log lacks the secret, whatever is before it. The sidecar's configuration is there without it."""
    (tmp_path / "ppe-agent").mkdir()
    agent = f'[[as]]\nname = "one"\n[as.load]\ncommunity = "{SECRET}"\n'
    (tmp_path / "ppe-agent" / "agent.toml").write_text(agent)
    monkeypatch.setattr(support, "ETC", tmp_path)
    monkeypatch.setattr(support, "COMMANDS", {"journal": ("echo", f"asked with <{SECRET}>, no answer")})
    support.write_archive(config, str(tmp_path / "none.sock"), tmp_path / "report.tar.gz")
    with tarfile.open(tmp_path / "report.tar.gz") as archive:
        texts = {file.name: archive.extractfile(file).read().decode() for file in archive.getmembers()}  # type: ignore[union-attr]
    assert not [name for name, text in texts.items() if SECRET in text]
    assert "asked with <(left out)>, no answer" in texts["report/journal.txt"]
    (sidecar,) = [text for name, text in texts.items() if name.endswith("agent.toml")]
    assert 'name = "one"' in sidecar
