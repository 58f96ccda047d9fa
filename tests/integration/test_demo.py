"""The whole chain on real parts: the demo keeps its bounds, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

DEMO = (sys.executable, "-m", "rspdns_lab.cli", "demo")
NAMESPACES = Path("/run/netns")


def traces(pid: int) -> list[str]:
    """Return what is left of the lab that the process `pid` ran: namespaces, files, programs."""
    namespaces = [str(path) for path in NAMESPACES.glob(f"rspdns-{pid}-*")]
    programs = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if f"rspdns-lab-{pid}-" in command:
                programs.append(command)
    files = [str(path) for path in Path(tempfile.gettempdir()).glob(f"rspdns-lab-{pid}-*")]
    return namespaces + programs + files


@pytest.mark.timeout(400)
def test_the_demo_keeps_its_bounds_and_leaves_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "demo.json"
    with subprocess.Popen(
        [*DEMO, "--json", str(figures)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        story, _ = process.communicate(timeout=350)
    assert process.returncode == 0, story
    outcome = json.loads(figures.read_text())
    assert outcome["ok"] is True
    steps = {step["name"]: step for step in outcome["steps"]}
    assert list(steps) == [
        "as-killed",
        "as-back",
        "as-drained",
        "as-link-cut",
        "registrar-killed",
        "name-server-killed",
    ]
    for step in steps.values():
        assert (step["empty"], step["servfail"]) == (0, 0), story
        assert step["answers"] > 100
    assert steps["as-killed"]["wrong"] > 0  # a fault that nobody can notice would prove nothing
    assert steps["as-killed"]["last_wrong_ms"] < 500
    assert steps["as-link-cut"]["last_wrong_ms"] < 3000
    assert steps["registrar-killed"]["wrong"] == 0
    assert steps["name-server-killed"]["wrong"] == 0
    assert "as1" in story
    lines = story.splitlines()
    assert lines[-1] == "all bounds kept"
    drained = next(number for number, line in enumerate(lines) if line.startswith("as-drained"))
    says = next(number for number, line in enumerate(lines) if number > drained and "ns1 says:" in line)
    undone = next(number for number, line in enumerate(lines) if "as2 undrained; back in DNS after" in line)
    assert drained < says < undone
    assert "as2 (weight" not in lines[says]
    assert not traces(process.pid)


def wait_for_namespaces(pid: int, count: int) -> None:
    end_s = time.monotonic() + 60
    while len(list(NAMESPACES.glob(f"rspdns-{pid}-*"))) < count:
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_cleans_up(number: signal.Signals) -> None:
    with subprocess.Popen([*DEMO], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_for_namespaces(process.pid, 10)
        time.sleep(2)
        process.send_signal(number)
        story, _ = process.communicate(timeout=60)
    assert process.returncode == 130, story
    assert "Traceback" not in story
    assert not traces(process.pid)


def test_a_part_that_does_not_start_ends_it_cleanly(tmp_path: Path) -> None:
    broken = tmp_path / "kamailio"
    broken.write_text("#!/bin/sh\necho no shared memory today >&2\nexit 1\n")
    broken.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [*DEMO], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        story, _ = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "no shared memory today" in story
    assert "Traceback" not in story
    assert not traces(process.pid)


def test_missing_programs_are_named_in_one_line() -> None:
    code = (
        "import rspdns_lab.preconditions as p\n"
        "p.shutil.which = lambda name, path=None: None if name == 'kamailio' else name\n"
        "import sys; sys.argv = ['rspdns-lab', 'demo']\n"
        "from rspdns_lab.cli import main; main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "error: missing: kamailio; install them: apt-get install kamailio\n"


def test_without_any_privilege_there_is_one_clear_line() -> None:
    code = (
        "import os, sys\n"
        "from rspdns_lab.cli import main\n"  # before: the folder need not be readable for everyone
        "os.setgid(65534); os.setuid(65534); os.environ['PATH'] = '/nonexistent'\n"
        "sys.argv = ['rspdns-lab', 'demo']; main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert "root" in result.stderr


def test_without_root_a_user_namespace_does() -> None:
    """Where the machine allows it; where not (in a chroot, for one), that is said."""
    ordinary_user = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    allowed = subprocess.run([*ordinary_user, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        pytest.skip(f"no unprivileged user namespaces here: {allowed.stderr.strip()}")
    network = (
        "from rspdns_lab.network import Network\n"
        "with Network('rspdns-nobody') as network: print(network.add_host('a', '10.53.0.1').address)"
    )
    code = (
        "import os, sys\n"
        "from rspdns_lab.privilege import in_user_namespace\n"
        "assert os.geteuid() == 1000\n"
        f"command = in_user_namespace([sys.executable, '-c', {network!r}])\n"
        "os.execvp(command[0], command)\n"
    )
    command = [*ordinary_user, sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout == "10.53.0.1\n", result.stderr
