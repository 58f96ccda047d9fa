"""`rspdns up`: one command, everything runs; Ctrl-C, nothing is left."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.support import attacks
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.pages import blocks
from tests.support.stalls import Deadline
from tests.support.waiting import until

ADDRESS = "10.99.0.1"
OWNER = "_sip._udp.as.ims.example.net"
PAGE = (REPOSITORY / "docs/tutorial/your-own-kamailio.md").read_text()
FOLDER = "/tmp/trial"  # noqa: S108 - a word of the page
COMMAND = [sys.executable, "-m", "rspdns.cli", "up", f"--address={ADDRESS}"]


def programs_in(namespace: Namespace) -> list[str]:
    """The programs that still run in the namespace, the SCTP daemon apart: it leaves by itself when no
    program needs it."""
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


def text_of(path: Path) -> str:
    """The text of the file; "" while it is not there."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def until_ended(namespace: Namespace, timeout_s: float = 60) -> None:
    deadline = Deadline(timeout_s)
    while left := programs_in(namespace):
        assert not deadline.is_over, left
        time.sleep(0.05)


@pytest.fixture
def host(namespace: Namespace) -> Namespace:
    namespace.give_address(ADDRESS)
    return namespace


def start(host: Namespace, log: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    """Start it, and wait until it says that all is ready."""
    up = host.start(*COMMAND, *options, log=log, environment={**environment, "PYTHONUNBUFFERED": "1"})
    until(lambda: "ready." in log.read_text() or up.poll() is not None, told=log)
    assert up.poll() is None, log.read_text()
    return up


def kamailio_of_debian(host: Namespace, folder: Path) -> subprocess.Popen[str]:
    """Start Kamailio with the script of Debian's package, as its unit does but for the folder."""
    return host.start(
        *("kamailio", "-f", "/etc/kamailio/kamailio.cfg", "-DD", "-E", "-m", "32", "-M", "4"),
        *("-Y", str(folder), "-P", str(folder / "kamailio.pid")),
        log=folder / "kamailio.log",
    )


def test_rspdns_up_runs_everything_and_leaves_nothing(host: Namespace, tmp_path: Path) -> None:
    """The commands that it prints work when pasted, wherever our commands are. Then the tutorial "Your own
    Kamailio" goes on: Debian's Kamailio joins, and leaves when it is stopped."""
    (up_words,) = re.findall(rf"^    rspdns up (.*) --directory {FOLDER}$", PAGE, re.M)
    (ask,) = re.findall(r"^    (dig .*)$", PAGE, re.M)
    log, folder = tmp_path / "log", tmp_path / "up"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:  # a backend that was killed leaves its socket
        killed.bind(str(folder / "remote.sock"))
    up = start(host, log, up_words, f"--directory={folder}", PATH="/usr/sbin:/usr/bin:/sbin:/bin")
    said = host.run("dig", "@127.0.0.1", "-p", "5300", OWNER, "SRV").stdout
    assert "status: NOERROR" in said
    assert "SOA" in said, "an empty pool that is known to be empty"
    assert any("pdns_server" in command for command in programs_in(host))

    (status,) = (line.strip() for line in log.read_text().splitlines() if " status -c " in line)
    (agent,) = (line.strip() for line in log.read_text().splitlines() if " run -c " in line)
    clean = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c")
    told = host.run(*clean, status)
    assert told.returncode == 0, told.stderr
    assert "no server is alive" in told.stdout
    assert "registrars 1, 2, 3: settled" in told.stdout
    assert host.run(*clean, agent.replace(" run -c ", " check -c ")).returncode == 0

    attacks.attack(host, ADDRESS, (ADDRESS, 3863), [attacks.long_handle()])
    registrar = folder / "registrar-1.log"
    until(lambda: "handle-too-long" in registrar.read_text(), told=registrar)
    assert "registrar_died" not in registrar.read_text()

    second = host.run(*COMMAND, "--port=5301")
    assert second.returncode == 1
    assert second.stderr.startswith(f"error: ASAP port {ADDRESS}:3863 is in use; is another `rspdns up`")
    assert "--address" in second.stderr
    assert second.stderr.count("\n") == 1

    assert host.run("sh", "-c", ask).stdout == ""
    kamailio = kamailio_of_debian(host, tmp_path)
    started = blocks(PAGE, "sh")[0].replace(FOLDER, str(folder)).split()
    assert shlex.split(agent)[-3:] == started[-3:], "the page has the printed command"
    sidecar = host.start(
        *(sys.executable, "-m", "ppe_agent.cli", *started[1:]), sctp=True, log=tmp_path / "agent.log"
    )
    shape = re.sub("[0-9a-f]{8}", "[0-9a-f]{8}", re.escape(blocks(PAGE, "text")[0].strip()))
    shape = shape.replace("0\\ 1000", r"\d \d+", 1)  # as loaded as this machine is

    def answer() -> str:
        return host.run("sh", "-c", ask).stdout.strip()

    until(lambda: re.fullmatch(shape, answer()), told=tmp_path / "agent.log")
    kamailio.terminate()
    until(lambda: answer() == "", told=tmp_path / "agent.log")
    kamailio.wait(90)
    kamailio_of_debian(host, tmp_path)
    until(lambda: re.fullmatch(shape, answer()), told=tmp_path / "agent.log")
    sidecar.terminate()
    assert sidecar.wait(90) == 0
    up.send_signal(signal.SIGTERM)
    assert up.wait(90) == 0
    until(lambda: not [command for command in programs_in(host) if "kamailio" not in command], told=log)
    assert not [path for path in folder.iterdir() if path.is_socket()], "a socket was left behind"


def shown(host: Namespace) -> set[int]:
    """The ports of the servers that DNS shows."""
    answer = host.run("dig", "@127.0.0.1", "-p", "5300", "+short", OWNER, "SRV").stdout
    return {int(line.split()[2]) for line in answer.splitlines() if line[:1].isdigit()}


def test_three_servers_are_in_dns_at_the_first_question(host: Namespace, tmp_path: Path) -> None:
    """The commands that it prints kill one server and drain another; the killed one comes back; PowerDNS
    too is started again."""
    log, folder = tmp_path / "log", tmp_path / "up"
    up = start(host, log, f"--directory={folder}")
    assert shown(host) == {5071, 5072, 5073}, log.read_text()
    said = host.run("dig", "@127.0.0.1", "-p", "5300", f"as.{OWNER.split('.as.')[1]}", "A", "+short").stdout
    assert ADDRESS in said
    until(lambda: "Ctrl-C stops" in log.read_text(), told=log)
    commands = [line.strip() for line in log.read_text().splitlines() if line.startswith("    ")]
    (status,) = (command for command in commands if " status -c " in command)
    told = host.run("sh", "-c", status.removesuffix(" --watch")).stdout
    assert all(f"\n{name} " in told for name in ("sip-1", "sip-2", "sip-3")), told
    (kill,) = (command for command in commands if command.startswith("kill -9 "))
    (drain,) = (command for command in commands if " drain -c " in command)
    assert host.run("sh", "-c", kill).returncode == 0
    until(lambda: shown(host) == {5072, 5073}, told=log)
    until(lambda: "sip-1 was ended by SIGKILL; it is started again in 15 s" in log.read_text(), told=log)
    drained = host.run("sh", "-c", drain.replace("sip-1.toml", "sip-2.toml"))
    assert drained.returncode == 0, drained.stderr
    until(lambda: shown(host) == {5073}, told=log)
    until(lambda: shown(host) == {5071, 5073}, told=log, timeout_s=90)

    pdns = folder / "pdns.pid"
    before = pdns.read_text()
    assert host.run("kill", "-9", before.strip()).returncode == 0
    until(lambda: text_of(pdns) not in ("", before), told=log)
    until(lambda: shown(host) == {5071, 5073}, told=log)
    assert "pdns was ended by SIGKILL; it is started again in 1 s" in log.read_text()
    assert host.run("kill", "-9", (folder / "backend.pid").read_text().strip()).returncode == 0
    until(lambda: "backend is started again" in log.read_text(), told=log)
    assert up.poll() is None
    up.send_signal(signal.SIGINT)
    assert up.wait(90) == 0, log.read_text()
    until_ended(host)
    assert not list(folder.glob("*.pid"))


def test_killed_it_takes_all_along(host: Namespace, tmp_path: Path) -> None:
    up = start(host, tmp_path / "log", f"--directory={tmp_path / 'up'}")
    up.send_signal(signal.SIGKILL)
    assert up.wait(90) == -signal.SIGKILL
    until_ended(host)


def test_without_a_directory_no_file_is_left(host: Namespace, tmp_path: Path) -> None:
    """Ended by Ctrl-C; and without a live page, whose port is busy."""
    busy = host.start(sys.executable, "-u", "-m", "http.server", "--bind=127.0.0.1", "8054")
    assert busy.stdout is not None
    assert busy.stdout.readline().startswith("Serving")
    log = tmp_path / "log"
    short = Path(tempfile.mkdtemp(prefix="up-"))  # a unix socket's path holds at most 107 bytes
    (short / "rspdns-up-killed").mkdir()
    (short / "rspdns-up-killed" / "lock").touch()
    up = start(host, log, "--no-servers", TMPDIR=str(short))
    until(lambda: "Ctrl-C stops" in log.read_text(), told=log)
    assert "There is no live page: the backend can't listen at 127.0.0.1:8054." in log.read_text()
    assert "http://" not in log.read_text()
    up.send_signal(signal.SIGINT)
    assert up.wait(90) == 0, log.read_text()
    until(lambda: not [command for command in programs_in(host) if "http.server" not in command], told=log)
    assert [path.name for path in short.iterdir() if path.name != f"sctpd-{os.geteuid()}.log"] == []
    shutil.rmtree(short)


def test_a_busy_port_of_a_server_is_one_clear_line(host: Namespace) -> None:
    busy = host.start(sys.executable, "-u", "-m", "http.server", f"--bind={ADDRESS}", "5072")
    assert busy.stdout is not None
    assert busy.stdout.readline().startswith("Serving")
    done = host.run(*COMMAND, timeout_s=150)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: port 5072 of {ADDRESS} is in use; end the program")
    assert "--no-servers" in done.stderr
    assert done.stderr.count("\n") == 1


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


@pytest.mark.parametrize("missing", ["pdns_server", "rspregistrar"])
def test_a_missing_program_is_named_with_its_package(tmp_path: Path, missing: str) -> None:
    """Run with a file system in which the program is not: a mount namespace hides it."""
    path = shutil.which(missing, path="/usr/sbin:/usr/bin")
    assert path
    empty = tmp_path / "empty"
    empty.write_text("")
    hide = [sys.executable, "-m", "rspdns_lab.net.private_file", str(empty), path]
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
    assert done.stderr.startswith("error: --address: 192.0.2.77 is not an address of this host")
    assert done.stderr.count("\n") == 1


def test_without_the_privilege_for_sctp_one_clear_line_says_so(host: Namespace) -> None:
    user = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    if host.run("python3", "-c", "import socket; socket.socket(2, 5, 132)").returncode == 0:
        pytest.skip("this kernel has SCTP; nobody needs a privilege")
    done = host.run(*user, *COMMAND, timeout_s=150)
    assert done.returncode == 1
    assert done.stderr.startswith("error: sctpd: CAP_NET_RAW is missing")
    assert "as root" in done.stderr
    assert done.stderr.count("\n") == 1
