"""Bad configuration given to the commands: every error at once, with file, line and key, no traceback."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.namespaces import Namespace

ADDRESS = "10.99.0.1"
LONG = "h" * 33
AGENT = """\
registrars = ["10.99.0.1", "10.99.0.1:3864"]
[state]
path = "{folder}/state"
[control]
path = "{folder}/agent.sock"
[[as]]
name = "one"
handle = "pool"
transport = "udp"
address = "192.0.2.77"
port = 5060
[[as.check]]
type = "sip-options"
interval = 250
[[as]]
name = "one"
handle = "pool"
transport = "udp"
address = "192.0.2.77"
port = 5060
[[as.check]]
type = "sip-options"
[[as]]
name = "three"
handle = "{long}"
transport = "udp"
port = 5061
polcy = "least-used"
[[as.check]]
type = "sip-options"
"""
BACKEND = """\
registrars = ["10.99.0.1"]
[pdns]
connector = "unix:{folder}/remote.sock"
control = []
[admin]
socket = "{folder}/admin.sock"
[state]
path = "{folder}/state"
stale = 3
"""
ZONE = """\
zone = "ims.example.net"
static = "one.zone"
[[pool]]
handle = "sip"
service = "_sip._udp"
name = "as"
accept = ["10.99.0.0/16"]
[[pool]]
handle = "sip"
label = "again"
service = "_sip._tcp"
name = "as"
accept = ["10.99.0.0/16"]
[[pool]]
handle = "other"
service = "_sip._udp"
name = "AS"
accept = ["10.99.0.0/16"]
[[pool]]
handle = "{long}"
label = "l"
service = "_sip._sctp"
name = "as"
acept = ["10.99.0.0/16"]
"""
MASTER = """\
$TTL 3600
@    SOA  ns1 hostmaster 1 7200 900 1209600 300
@    NS   ns1
ns1  A    10.99.0.300
"""
GOOD_ZONE = """\
zone = "example.org"
static = "good.zone"
"""


@pytest.fixture
def host(namespace: Namespace) -> Namespace:
    """A host with one address besides loopback's."""
    namespace.run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    return namespace


def errors(host: Namespace, folder: Path, *command: str) -> list[str]:
    """Run a command that must refuse its configuration; return its errors, without the folder."""
    said = host.run(sys.executable, "-m", *command, sctp="run" in command or "serve" in command)
    assert said.returncode == 1, said
    assert said.stdout == ""
    assert "Traceback" not in said.stderr
    return said.stderr.replace(f"{folder}/", "").splitlines()


@pytest.mark.parametrize("command", ["check", "run"])
def test_every_error_of_agent_toml_is_told_with_its_line(
    host: Namespace, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(AGENT.format(folder=tmp_path, long=LONG))
    foreign = (
        '192.0.2.77 is no address of this host; "auto" takes the one towards the first registrar; a server '
        "on another host needs remote = true"
    )
    assert errors(host, tmp_path, "ppe_agent.cli", command, "-c", str(file)) == [
        f"agent.toml:10: as[0].address: {foreign}",
        "agent.toml:14: as[0].check[0].interval: unknown key; did you mean 'interval_ms'?",
        "agent.toml:16: as[1].name: 'one' is there twice",
        f"agent.toml:19: as[1].address: {foreign}",
        "agent.toml:20: as[1].port: the same pool, transport, address (192.0.2.77) and port as in "
        "another [[as]]",
        f"agent.toml:25: as[2].handle: a pool handle has 1 to 32 bytes, this one 33 (is '{LONG}')",
        "agent.toml:28: as[2].polcy: unknown key; did you mean 'policy'?",
    ]
    assert not (tmp_path / "agent.sock").exists()


@pytest.mark.parametrize("command", ["check", "serve"])
def test_every_error_of_the_backends_files_is_told_with_its_line(
    host: Namespace, tmp_path: Path, command: str
) -> None:
    zones = tmp_path / "zones.d"
    zones.mkdir()
    (tmp_path / "rspdns.toml").write_text(BACKEND.format(folder=tmp_path))
    (zones / "one.toml").write_text(ZONE.format(long=LONG))
    (zones / "one.zone").write_text(MASTER)
    (zones / "two.toml").write_text(GOOD_ZONE.replace("good", "missing"))
    found = errors(host, tmp_path, "rspdns.cli", command, "-c", str(tmp_path / "rspdns.toml"))
    expected = [
        ("rspdns.toml:9: state.stale: ", "unknown key"),
        ("zones.d/one.toml:9: pool[1].handle: ", "already used by pool[0]"),
        ("zones.d/one.toml:16: pool[2].service: ", "already has its SRV records"),
        ("zones.d/one.toml:19: pool[3].accept: ", "is missing"),
        ("zones.d/one.toml:20: pool[3].handle: ", "this one 33"),
        ("zones.d/one.toml:24: pool[3].acept: ", "did you mean 'accept'"),
        ("zones.d/one.zone:4: ", "10.99.0.300"),
        ("zones.d/two.toml:2: static: ", "missing.zone: can't be read: No such file"),
    ]
    assert len(found) == len(expected), "\n".join(found)
    for line, (location, words) in zip(found, expected, strict=True):
        assert line.startswith(location), line
        assert words in line
    assert not (tmp_path / "remote.sock").exists()
    assert not (tmp_path / "admin.sock").exists()


NOT_TOML = [
    (b'registrars = ["10.99.0.1"\n[state]\n', 2),
    (b"a = 1\na = 2\n", 2),
    (b"registrars = [\n", 1),
    (b'x = "\xff"\n', 1),
    (b"\0" * 100, 1),
    (b"a = " + b"[" * 100_000, 0),
]


@pytest.mark.parametrize(("module", "command"), [("ppe_agent.cli", "run"), ("rspdns.cli", "serve")])
def test_every_program_tells_the_line_of_a_file_that_is_no_toml(
    host: Namespace, tmp_path: Path, module: str, command: str
) -> None:
    (tmp_path / "zones.d").mkdir()
    file = tmp_path / "bad.toml"
    for text, line in NOT_TOML:
        file.write_bytes(text)
        (error,) = errors(host, tmp_path, module, command, "-c", str(file))
        assert error.startswith(f"bad.toml:{line}: not " if line else "bad.toml: nested"), error


@pytest.mark.parametrize(("module", "command"), [("ppe_agent.cli", "run"), ("rspdns.cli", "serve")])
def test_a_file_that_is_not_there_or_no_file(
    host: Namespace, tmp_path: Path, module: str, command: str
) -> None:
    missing = errors(host, tmp_path, module, command, "-c", str(tmp_path / "none.toml"))
    assert missing[0].startswith("none.toml: can't be read: No such file")
    (tmp_path / "folder").mkdir()
    folder = errors(host, tmp_path, module, command, "-c", str(tmp_path / "folder"))
    assert folder[0].startswith("folder: can't be read: Is a directory")
    os.mkfifo(tmp_path / "pipe")
    pipe = errors(host, tmp_path, module, command, "-c", str(tmp_path / "pipe"))
    assert pipe[0] == "pipe: can't be read: it is no regular file (a pipe, a device or a socket)"


def test_a_zone_that_is_no_toml_is_told_with_the_errors_of_the_others(
    host: Namespace, tmp_path: Path
) -> None:
    zones = tmp_path / "zones.d"
    zones.mkdir()
    (tmp_path / "rspdns.toml").write_text(BACKEND.format(folder=tmp_path))
    (zones / "one.toml").write_text('zone = "example.org\n')
    (zones / "two.toml").write_text(GOOD_ZONE + "tll = 3\n")
    (zones / "good.zone").write_text(MASTER.replace("300\n", "30\n").replace("ns1  A", "ns1  B"))
    found = errors(host, tmp_path, "rspdns.cli", "check", "-c", str(tmp_path / "rspdns.toml"))
    locations = [line.split(": ")[0] for line in found]
    assert locations == ["rspdns.toml:9", "zones.d/good.zone:4", "zones.d/one.toml:1", "zones.d/two.toml:3"]


@pytest.mark.parametrize("program", ["agent", "backend"])
def test_a_directory_where_it_may_not_write(host: Namespace, tmp_path: Path, program: str) -> None:
    """Told in one line when it starts, not by a traceback."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    if program == "agent":
        text = AGENT.split('[[as]]\nname = "one"')[0].replace("{folder}", str(blocked))
        text += '[[as]]\nname = "x"\nhandle = "pool"\ntransport = "udp"\nport = 5060\n'
        text += '[[as.check]]\ntype = "sip-options"\n'
        command = ("ppe_agent.cli", "run")
    else:
        (tmp_path / "zones.d").mkdir()
        text = BACKEND.replace("stale = 3\n", "").replace("{folder}", str(blocked))
        command = ("rspdns.cli", "serve")
    (tmp_path / "it.toml").write_text(text)
    found = errors(host, tmp_path, *command, "-c", str(tmp_path / "it.toml"))
    assert any(line.startswith("error: ") and "file" in line for line in found), found
