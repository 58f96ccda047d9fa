"""A lab's network: hosts that reach each other, a cable that can be pulled, nothing left behind."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rspdns_lab.errors import LabError
from rspdns_lab.net.leftovers import remove_leftovers
from rspdns_lab.net.network import NAMESPACE_FOLDER, Host, LabNetwork, call_in, processes_in
from rspdns_lab.net.preconditions import in_user_namespace
from rspdns_lab.net.processes import Program, children_of, end_programs

from tests.support.labs import as_ordinary_user, has_user_namespaces, traces
from tests.support.live_systemd import OWN_MOUNTS

pytestmark = pytest.mark.integration


@pytest.fixture
def prefix() -> str:
    return f"rspdns-labtest-{os.getpid()}-{uuid.uuid4().hex[:4]}"


@pytest.fixture
def network(prefix: str) -> Iterator[LabNetwork]:
    with LabNetwork(prefix) as made:
        yield made


def left_behind(prefix: str) -> list[str]:
    return [path.name for path in NAMESPACE_FOLDER.glob(f"{prefix}*")]


def receiver(host: Host) -> socket.socket:
    def bind() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((host.address, 5000))
        made.settimeout(30)
        return made

    result = call_in(host.path, bind)
    assert isinstance(result, socket.socket)
    return result


def send(host: Host, to: Host, text: bytes) -> None:
    def send_it() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(text, (to.address, 5000))

    call_in(host.path, send_it)


def test_hosts_reach_each_other_until_the_cable_is_pulled(network: LabNetwork) -> None:
    first, second = network.add_host("a", "10.53.0.1"), network.add_host("b", "10.53.0.2")
    with receiver(second) as inbox:
        send(first, second, b"one")
        assert inbox.recv(10) == b"one"
        network.cut(second)
        send(first, second, b"lost")
        inbox.settimeout(0.3)
        with pytest.raises(TimeoutError):
            inbox.recv(10)
        network.restore(second)
        inbox.settimeout(30)
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            send(first, second, b"back")
            try:
                inbox.settimeout(0.2)
                if inbox.recv(10) == b"back":
                    return
            except TimeoutError:
                continue
    pytest.fail("the link did not come back")


def test_two_labs_with_the_same_addresses_do_not_meet(prefix: str) -> None:
    with LabNetwork(f"{prefix}-x") as first, LabNetwork(f"{prefix}-y") as other:
        hosts = [(net.add_host("a", "10.53.0.1"), net.add_host("b", "10.53.0.2")) for net in (first, other)]
        with receiver(hosts[0][1]) as inbox, receiver(hosts[1][1]) as other_inbox:
            send(hosts[0][0], hosts[0][1], b"mine")
            assert inbox.recv(10) == b"mine"
            other_inbox.settimeout(0.2)
            with pytest.raises(TimeoutError):
                other_inbox.recv(10)
    assert not left_behind(prefix)


def test_closing_kills_what_runs_inside_even_what_the_lab_did_not_start(prefix: str, tmp_path: Path) -> None:
    with LabNetwork(prefix) as network:
        host = network.add_host("a", "10.53.0.1")
        program = Program("shell", host, ["sh", "-c", "setsid sleep 100 & sleep 100"], tmp_path / "log")
        program.start()
        deadline_s = time.monotonic() + 60
        while len(pids := processes_in(host.path)) < 3 and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert len(pids) >= 3
        path = host.path
    program.ended()
    assert not path.exists()
    assert not left_behind(prefix)
    assert not [pid for pid in pids if _alive(pid)]


def test_an_error_inside_leaves_nothing(prefix: str) -> None:
    def fail() -> None:
        with LabNetwork(prefix) as network:
            network.add_host("a", "10.53.0.1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not left_behind(prefix)


def test_without_privilege_there_is_one_clear_line() -> None:
    code = (
        "from rspdns_lab.errors import LabError\nfrom rspdns_lab.net.network import LabNetwork\n"
        "import os; os.setuid(65534)\n"
        "try:\n    LabNetwork('rspdns-x').__enter__()\n"
        "except LabError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "root" in result.stdout, result.stderr
    assert result.stdout.count("\n") == 1


def test_a_program_is_killed_with_all_its_children(network: LabNetwork, tmp_path: Path) -> None:
    host = network.add_host("a", "10.53.0.1")
    program = Program("shell", host, ["sh", "-c", "sleep 100 & sleep 100"], tmp_path / "log")
    program.start()
    deadline_s = time.monotonic() + 60
    while not children_of(program.pid, "sleep") and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert children_of(program.pid, "sleep")
    program.kill()
    deadline_s = time.monotonic() + 60
    while processes_in(host.path) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not processes_in(host.path)


def test_a_frozen_program_is_ended_in_order_too(network: LabNetwork, tmp_path: Path) -> None:
    host = network.add_host("a", "10.53.0.1")
    code = "trap 'echo in order; exit' TERM; echo ready; while :; do sleep 0.05; done"
    program = Program("shell", host, ["sh", "-c", code], tmp_path / "log")
    program.start()
    deadline_s = time.monotonic() + 20
    while "ready" not in program.log_end() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    program.freeze()
    end_programs([program], timeout_s=20)
    assert "in order" in program.log_end()


def test_leftovers_of_a_killed_lab_are_removed_and_running_labs_are_not(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from rspdns_lab.net.network import LabNetwork\nfrom rspdns_lab.net.processes import Program\n"
        "network = LabNetwork(f'rspdns-{os.getpid()}-abcd').__enter__()\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        "Program('s', network.add_host('a', '10.53.0.1'), ['sleep', '300'], log).start()\n"
        "print('ready', flush=True)\ntime.sleep(300)\n"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as killed,
        LabNetwork(f"rspdns-{os.getpid()}-abcd") as running,
    ):
        host = running.add_host("a", "10.53.0.1")
        assert killed.stdout
        assert killed.stdout.readline() == b"ready\n"
        killed.kill()
        killed.wait()
        assert left_behind(f"rspdns-{killed.pid}-")
        removed, _ = remove_leftovers()
        assert f"rspdns-{killed.pid}-abcd-a" in removed
        assert not left_behind(f"rspdns-{killed.pid}-")
        assert host.path.exists()


def test_leftovers_of_an_ordinary_users_killed_lab_are_ended_too() -> None:
    """Its namespaces have names in its own user namespace only."""
    if not has_user_namespaces():
        pytest.skip("no user namespace can be made here (a chroot, or the kernel forbids it)")
    waits = "import sys, time; print('ready', flush=True); time.sleep(300)"
    code = (
        "import os, subprocess, sys, tempfile, time\n"
        "folder = tempfile.mkdtemp(prefix=f'rspdns-lab-{os.getpid()}-')\n"
        "subprocess.Popen(['unshare', '--net', sys.executable, '-c', sys.argv[1], f'{folder}/server.cfg'])\n"
        "time.sleep(300)\n"
    )
    command = [*as_ordinary_user(), *in_user_namespace([sys.executable, "-c", code, waits])]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout
        assert killed.stdout.readline() == b"ready\n"
        killed.kill()
        killed.wait()
        assert len(traces(killed.pid)) == 2, "its folder, its program"
        remove_leftovers()
        assert traces(killed.pid) == []


def test_leftovers_of_another_user_are_told_and_not_said_to_be_removed() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to others
        Path(folder).chmod(0o755)
        left = Path(folder, "rspdns-lab-4194305-abc")  # above every process identifier
        left.mkdir()
        code = (
            "import os, sys, tempfile\n"
            "from rspdns_lab.cli import main\n"
            f"tempfile.tempdir = {folder!r}\n"
            "os.setgid(65534); os.setuid(65534); sys.argv = ['rspdns-lab', 'clean']; main()\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert left.is_dir()
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {left} is another user's lab's" in done.stderr


def test_an_early_end_is_told_with_the_programs_own_words(network: LabNetwork, tmp_path: Path) -> None:
    host = network.add_host("a", "10.53.0.1")
    program = Program("shell", host, ["sh", "-c", "echo out of cheese >&2; exit 3"], tmp_path / "log")
    program.start()
    deadline_s = time.monotonic() + 60
    while program.is_running and time.monotonic() < deadline_s:
        time.sleep(0.02)
    with pytest.raises(LabError, match="out of cheese"):
        program.expect_running()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


ENDS = """
from pathlib import Path
from rspdns_lab.chain.lab import LabBase
class Lab(LabBase):
    def programs(self):
        yield from ()
lab = Lab()
lab.folder = Path("{folder}/lab")
lab.close()
"""


@pytest.mark.parametrize("room", ["full", "free"])
def test_a_lab_that_ends_on_a_full_disk_says_so(tmp_path: Path, room: str) -> None:
    """Programs that can't write their logs and files fail in ways that don't tell why."""
    fill = "head --bytes=1M /dev/zero >lab/log 2>/dev/null" if room == "full" else "true"
    mounted = (
        f"mount -t tmpfs -o size=64k none {tmp_path} && cd {tmp_path} && mkdir lab && {{ {fill}; cd /; }}"
    )
    ends = f"{mounted}; {sys.executable} -c '{ENDS.format(folder=tmp_path)}' && ls {tmp_path}"
    done = subprocess.run(
        [sys.executable, "-c", OWN_MOUNTS, "bash", "-c", ends],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ("is full: what failed may have failed for that" in done.stderr) == (room == "full"), done.stderr
    assert not done.stdout, "it is removed"


def test_a_host_passes_on_no_packets_of_others_even_where_the_machine_does(network: LabNetwork) -> None:
    setting = Path("/proc/sys/net/ipv4/ip_forward")
    host = network.add_host("a", "10.53.0.1")
    assert call_in(host.path, setting.read_text).strip() == "0"


# A private file: one program sees another file instead of one; nobody else does. Also inside a chroot.

CAT = """
#include <stdio.h>
int main(int count, char **names) { FILE *file = fopen(names[1], "r"); int byte;
  while (file && (byte = getc(file)) != EOF) putchar(byte);
  return !file || count != 2; }
"""


def test_the_other_file_is_seen_by_the_program_alone(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("one\n")
    other.write_text("another\n")
    command = [sys.executable, "-m", "rspdns_lab.net.private_file", str(other), str(file), "cat", str(file)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "another\n"
    assert file.read_text() == "one\n"


def test_in_a_chroot_whose_root_is_no_mount_point(tmp_path: Path) -> None:
    (tmp_path / "cat.c").write_text(CAT)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "file").write_text("one\n")
    (tmp_path / "other").write_text("another\n")
    subprocess.run(["cc", "-static", "-o", tmp_path / "cat", tmp_path / "cat.c"], check=True)
    inside = "import os, sys; from rspdns_lab.net import private_file; os.chroot(sys.argv[1]); "
    inside += "private_file.run('/other', '/file', ['/cat', '/file'])"
    done = subprocess.run(
        [sys.executable, "-c", inside, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "another\n", done.stderr
    assert (tmp_path / "file").read_text() == "one\n"


def test_a_missing_private_file_is_told_in_one_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "rspdns_lab.net.private_file",
        str(tmp_path / "none"),
        "/etc/hosts",
        "true",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: mounting on /etc/hosts: No such file or directory\n"
