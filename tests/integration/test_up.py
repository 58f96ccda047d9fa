"""`rspdns up`: one command, everything runs; Ctrl-C, nothing is left."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.agent_host import give_address
from tests.support.namespaces import Namespace
from tests.support.stalls import Deadline

ADDRESS = "10.99.0.1"
OWNER = "_sip._udp.as.ims.example.net"
COMMAND = [sys.executable, "-m", "rspdns.cli", "up", f"--address={ADDRESS}"]


def until(condition: Callable[[], object], log: Path, timeout_s: float = 60) -> None:
    deadline = Deadline(timeout_s)
    while not condition():
        assert not deadline.is_over, log.read_text()
        time.sleep(0.05)


def programs_in(namespace: Namespace) -> list[str]:
    """What still runs in the namespace, the SCTP daemon apart: it leaves by itself when nobody needs it."""
    pids = subprocess.run(
        ["ip", "netns", "pids", namespace.name], capture_output=True, text=True, check=True
    ).stdout.split()
    found = []
    for pid in pids:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [command for command in found if "sctpd" not in command.split(" ")[0]]


def until_ended(namespace: Namespace, timeout_s: float = 60) -> None:
    deadline = Deadline(timeout_s)
    while left := programs_in(namespace):
        assert not deadline.is_over, left
        time.sleep(0.05)


@pytest.fixture
def host(namespace: Namespace) -> Namespace:
    give_address(namespace, ADDRESS)
    return namespace


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_one_command_runs_everything_and_leaves_nothing(
    host: Namespace, tmp_path: Path, how: signal.Signals
) -> None:
    log = tmp_path / "log"
    folder = tmp_path / "up"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:  # a backend that was killed leaves its socket
        killed.bind(str(folder / "remote.sock"))
    up = host.start(*COMMAND, f"--directory={folder}", log=log, environment={"PYTHONUNBUFFERED": "1"})
    until(lambda: "ready." in log.read_text() or up.poll() is not None, log)
    assert up.poll() is None, log.read_text()
    said = host.run("dig", "@127.0.0.1", "-p", "5300", OWNER, "SRV").stdout
    assert "status: NOERROR" in said
    assert "SOA" in said, "an empty pool that is known to be empty"
    status = host.run(sys.executable, "-m", "rspdns.cli", "status", "-c", str(folder / "rspdns.toml")).stdout
    assert status.count("settled") >= 3
    assert any("pdns_server" in command for command in programs_in(host))
    up.send_signal(how)
    assert up.wait(90) == (-9 if how is signal.SIGKILL else 0)
    until_ended(host)
    if how is not signal.SIGKILL:
        assert not [path for path in folder.iterdir() if path.is_socket()], "a socket was left behind"


def test_without_a_directory_no_file_is_left(host: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    short = Path(tempfile.mkdtemp(prefix="up-"))  # a unix socket's path holds at most 107 bytes
    (short / "rspdns-up-killed").mkdir()
    (short / "rspdns-up-killed" / "lock").touch()
    environment = {"TMPDIR": str(short), "PYTHONUNBUFFERED": "1"}
    up = host.start(*COMMAND, log=log, environment=environment)
    until(lambda: "started;" in log.read_text() or up.poll() is not None, log)
    assert up.poll() is None, log.read_text()
    up.send_signal(signal.SIGINT)
    assert up.wait(90) == 0, log.read_text()
    short.rmdir()  # only an empty folder can be removed


def test_a_server_with_its_sidecar_joins(host: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    folder = tmp_path / "up"
    data = Path(__file__).resolve().parents[1] / "ppe_agent" / "data"
    up = host.start(*COMMAND, f"--directory={folder}", log=log, environment={"PYTHONUNBUFFERED": "1"})
    until(lambda: "ready." in log.read_text() or up.poll() is not None, log)
    host.start("sipp", "-sf", str(data / "options.xml"), "-i", ADDRESS, "-p", "5060", "-t", "u1", "-nostdin")
    host.start(
        *(sys.executable, "-m", "ppe_agent.cli", "run", "-c", str(folder / "agent.toml")),
        sctp=True,
        log=tmp_path / "agent.log",
    )
    dig = ("dig", "@127.0.0.1", "-p", "5300", "+short", OWNER, "SRV")
    until(lambda: "5060" in host.run(*dig).stdout, tmp_path / "agent.log")


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_a_busy_port_is_one_clear_line(host: Namespace, tmp_path: Path, kind: str) -> None:
    program = (
        f"import socket, time; s = socket.socket(type=socket.SOCK_{'DGRAM' if kind == 'udp' else 'STREAM'}); "
        "s.bind(('127.0.0.1', 5300)); kind = s.type; "
        "kind == socket.SOCK_STREAM and s.listen(); print('busy', flush=True); time.sleep(60)"
    )
    busy = host.start(sys.executable, "-c", program)
    assert busy.stdout is not None
    assert busy.stdout.readline() == "busy\n"
    done = host.run(*COMMAND, timeout_s=150)
    assert done.returncode == 1
    assert done.stderr == "error: port 5300 of 127.0.0.1 is in use; choose another one with --port\n"


def test_a_busy_port_of_the_live_page_is_said(host: Namespace, tmp_path: Path) -> None:
    busy = host.start(sys.executable, "-u", "-m", "http.server", "--bind=127.0.0.1", "8054")
    assert busy.stdout is not None
    assert busy.stdout.readline().startswith("Serving")
    log = tmp_path / "log"
    up = host.start(*COMMAND, log=log, environment={"PYTHONUNBUFFERED": "1"})
    until(lambda: "Ctrl-C stops" in log.read_text() or up.poll() is not None, log)
    assert "There is no live page: the backend can't listen at 127.0.0.1:8054." in log.read_text()
    assert "http://" not in log.read_text()


def test_a_busy_registrar_port_is_one_clear_line(host: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "first"
    host.start(*COMMAND, log=log, environment={"PYTHONUNBUFFERED": "1"})
    until(lambda: "started;" in log.read_text(), log)
    second = host.run(*COMMAND, "--port=5301", timeout_s=150)
    assert second.returncode == 1
    assert second.stderr.startswith(f"error: ASAP port {ADDRESS}:3863 is in use; is another `rspdns up`")
    assert "--address" in second.stderr
    assert second.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["pdns_server", "rspregistrar"])
def test_a_missing_program_is_named_with_its_package(tmp_path: Path, missing: str) -> None:
    """Run with a file system in which the program is not: a mount namespace hides it."""
    path = shutil.which(missing, path="/usr/sbin:/usr/bin")
    assert path
    empty = tmp_path / "empty"
    empty.write_text("")
    hide = [sys.executable, "-m", "rspdns_lab.private_file", str(empty), path]
    done = subprocess.run([*hide, *COMMAND], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1
    assert f"not installed: {missing}" in done.stderr
    assert "apt-get install" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [COMMAND, [sys.executable, "-m", "rspdns_lab.cli", "demo"]])
def test_a_missing_backend_of_powerdns_is_named_with_its_package(tmp_path: Path, command: list[str]) -> None:
    """Played by a `pdns_server` that lists its modules as the real one does without that package."""
    fake = tmp_path / "pdns_server"
    fake.write_text("#!/bin/sh\nprintf 'Modules available:\\nbind\\n'\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=environment)
    assert done.returncode in (1, 2)
    assert "apt-get install pdns-backend-remote" in done.stderr
    assert done.stderr.count("\n") == 1


def test_every_error_of_a_zone_is_told(host: Namespace, tmp_path: Path) -> None:
    zones = tmp_path / "up" / "zones.d"
    zones.mkdir(parents=True)
    (zones / "a.toml").write_text("zone = 1\nfoo = 2\n")
    done = host.run(*COMMAND[:-1], f"--address={ADDRESS}", f"--directory={tmp_path / 'up'}", timeout_s=150)
    assert done.returncode == 1
    assert "a.toml:1: zone: " in done.stderr
    assert "a.toml:2: foo: unknown key" in done.stderr
    assert "static: is missing" in done.stderr


def test_an_address_that_is_not_ours_is_one_clear_line(host: Namespace) -> None:
    done = host.run(*COMMAND[:-1], "--address=192.0.2.77", timeout_s=150)
    assert done.returncode == 1
    assert done.stderr.startswith("error: --address: 192.0.2.77 is none of this host")
    assert done.stderr.count("\n") == 1


def test_what_is_printed_can_be_pasted_without_the_commands_on_the_path(
    host: Namespace, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONUNBUFFERED": "1"}
    up = host.start(*COMMAND, log=log, environment=environment)
    until(lambda: "ready." in log.read_text() or up.poll() is not None, log)
    (status,) = (line.strip() for line in log.read_text().splitlines() if " status -c " in line)
    (agent,) = (line.strip() for line in log.read_text().splitlines() if " run -c " in line)
    clean = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c")
    said = host.run(*clean, status)
    assert said.returncode == 0, said.stderr
    assert "nobody lives" in said.stdout
    assert host.run(*clean, agent.replace(" run -c ", " check -c ")).returncode == 0


def test_without_the_privilege_for_sctp_one_clear_line_says_so(host: Namespace) -> None:
    user = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    if host.run("python3", "-c", "import socket; socket.socket(2, 5, 132)").returncode == 0:
        pytest.skip("this kernel has SCTP; nobody needs a privilege")
    done = host.run(*user, *COMMAND, timeout_s=150)
    assert done.returncode == 1
    assert done.stderr.startswith("error: sctpd: CAP_NET_RAW is missing")
    assert "as root" in done.stderr
    assert done.stderr.count("\n") == 1
