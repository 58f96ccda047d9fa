"""The files of `make install`, which work where it puts them; the lines of `sctpd --status`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import SCTP_USERLAND, SCTPD, daemons, start_sctpd

from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

INSTALLED = (
    "bin/sctp-run",
    "bin/sctpd",
    "lib/sctp-userland/libsctp-userland.so",
    "lib/systemd/system/sctpd.service",
    "lib/sysusers.d/sctpd.conf",
    "bin/sctp-shim",
    "share/man/man1/sctp-run.1",
    "share/man/man1/sctp-shim.1",
    "share/man/man8/sctpd.8",
)
CONNECTED = """
import socket, sys
a = socket.socket(2, 1, 132); a.bind(('127.0.0.1', 5800)); a.listen(1)
b = socket.socket(2, 1, 132); b.connect(a.getsockname()); c, _ = a.accept()
print('connected', flush=True)
c.recv(10)
"""


MOST_EXPOSURE = 2.0
"""1.9 of 10 with systemd 252: it needs a raw socket and the host's network."""


def install(*variables: str) -> None:
    command = ["make", "-s", "-C", str(SCTP_USERLAND), "install", *variables]
    subprocess.run(command, check=True, capture_output=True)


def test_installed_programs_serve(namespace: Namespace, tmp_path: Path) -> None:
    install(f"DESTDIR={tmp_path}", "PREFIX=/opt/sctp")
    prefix = tmp_path / "opt/sctp"
    for name in INSTALLED:
        assert (prefix / name).is_file(), name
    assert "/usr/local" not in (prefix / "lib/systemd/system/sctpd.service").read_text()
    code = "import socket; socket.socket(2, 1, 132); print('made')"
    run = namespace.run(str(prefix / "bin/sctp-run"), sys.executable, "-c", code)
    assert run.stdout == "made\n", run.stderr
    assert Path(os.readlink(f"/proc/{daemons(namespace)[0]}/exe")).is_relative_to(tmp_path)


def test_unit_is_valid(tmp_path: Path) -> None:
    install(f"PREFIX={tmp_path}")
    unit = tmp_path / "lib/systemd/system/sctpd.service"
    text = unit.read_text()
    assert "\nAmbientCapabilities=CAP_NET_RAW\n" in text
    assert "\nRestart=always\n" in text
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in run.stderr.splitlines() if "sctpd.service" in line]
    assert not complaints
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    exposure = re.search(r"exposure level .*: ([0-9.]+)", said)
    assert exposure is not None, said
    assert float(exposure[1]) <= MOST_EXPOSURE


def test_manual_names_every_option() -> None:
    help_text = subprocess.run([str(SCTPD), "--help"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"--[a-z-]+", help_text))
    manual = (SCTP_USERLAND / "man/sctpd.8").read_text().replace("\\-", "-")
    assert len(options) > 10
    assert not [option for option in options if option not in manual]


def test_manuals_are_well_formed() -> None:
    """And that of sctp-run names what its script reads from the environment."""
    pages = [SCTP_USERLAND / "man" / name for name in ("sctp-run.1", "sctp-shim.1", "sctpd.8")]
    for page in pages:
        command = ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", str(page)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert run.stderr == ""
        assert "SEE ALSO" in run.stdout
    script = (SCTP_USERLAND / "sctp-run").read_text()
    read = {*re.findall(r"\$\{?(SCTP[A-Z_]+)", script), "SCTPD_OPTIONS"}
    assert not [name for name in read if name not in pages[0].read_text().replace("\\-", "-")]


def test_status_shows_sockets_associations_and_paths(namespace: Namespace) -> None:
    start_sctpd(namespace)
    empty = namespace.run(str(SCTPD), "--status")
    assert empty.returncode == 0
    assert empty.stdout.splitlines()[1:] == ["no sockets"]
    assert json.loads(namespace.run(str(SCTPD), "--status", "--json").stdout)["sockets"] == []
    client = namespace.start(sys.executable, "-c", CONNECTED, sctp=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "connected\n"
    sockets = json.loads(namespace.run(str(SCTPD), "--status", "--json").stdout)["sockets"]
    listener = next(socket for socket in sockets if socket["state"] == "listening")
    assert (listener["style"], listener["port"], listener["addresses"]) == ("one-to-one", 5800, ["127.0.0.1"])
    connecting = next(socket for socket in sockets if socket["port"] != listener["port"])
    (association,) = connecting["associations"]
    assert (association["state"], association["peer_port"]) == ("established", 5800)
    assert [(path["address"], path["state"]) for path in association["paths"]] == [("127.0.0.1", "active")]
    text = namespace.run(str(SCTPD), "--status").stdout
    assert f"one-to-one listening user=0 process={client.pid} port=5800 addresses=127.0.0.1\n" in text
    assert " established peer-port=5800 " in text
    assert "path 127.0.0.1 active " in text


MANY = """
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
server = socket.socket(2, 5, 132)
server.bind(("127.0.0.1", 5801))
server.listen(1000)
held = []
for _ in range(1000):
    held.append(socket.socket(2, 1, 132))
    held[-1].connect(("127.0.0.1", 5801))
print("connected", flush=True)
server.recv(10)
"""


def test_status_shows_a_thousand_associations_of_one_socket(namespace: Namespace) -> None:
    start_sctpd(namespace)
    client = namespace.start(sys.executable, "-c", MANY, sctp=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "connected\n"
    sockets = json.loads(namespace.run(str(SCTPD), "--status", "--json").stdout)["sockets"]
    assert len(sockets) == 1001
    (server,) = (socket for socket in sockets if socket["style"] == "one-to-many")
    identifiers = [association["association"] for association in server["associations"]]
    assert len(set(identifiers)) == len(identifiers) == 1000
    ports = {association["peer_port"] for association in server["associations"]}
    assert ports == {socket["port"] for socket in sockets if socket is not server}
    text = namespace.run(str(SCTPD), "--status").stdout
    of_server = text[text.index("one-to-many") :].split("one-to-one")[0]
    assert of_server.count("\n    association ") == of_server.count("\n      path ") == 1000


SQUATTER = """
import socket, time
squatter = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
squatter.bind("\\0sctp-userland")
squatter.listen(8)
print("sits", flush=True)
time.sleep(100)
"""


def test_sctpd_that_never_answers_is_given_up(namespace: Namespace) -> None:
    """A program of root has the name, so it is believed and asked. Others: `test_stranger.py`."""
    squatter = namespace.start(sys.executable, "-c", SQUATTER)
    assert squatter.stdout is not None
    assert squatter.stdout.readline() == "sits\n"
    run = namespace.run(str(SCTPD), "--status", "--json")
    assert run.returncode == 1
    assert "doesn't answer" in run.stderr
    assert run.stdout == ""


def test_status_without_a_daemon_says_so(namespace: Namespace) -> None:
    run = namespace.run(str(SCTPD), "--status")
    assert run.returncode == 1
    assert "none runs in this network namespace" in run.stderr


def test_sctp_run_explains_itself() -> None:
    run = SCTP_USERLAND / "sctp-run"
    asked = subprocess.run([run, "--help"], capture_output=True, text=True, check=True)
    assert "SCTPD_OPTIONS" in asked.stdout
    assert asked.stderr == ""
    nothing = subprocess.run([run], capture_output=True, text=True, check=False)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert nothing.stderr.startswith("usage: sctp-run [--shim FILE] COMMAND")
