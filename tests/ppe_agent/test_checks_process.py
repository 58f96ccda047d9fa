"""The process, exec and systemd checks on real processes."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_kit.finding import Life
from ppe_agent.checks.base import CheckState, Timing
from ppe_agent.checks.exec_check import ExecCheck, run_command
from ppe_agent.checks.process import ProcessCheck
from ppe_agent.checks.systemd_unit import SystemdUnitCheck, explained, judge

from tests.ppe_agent.watching import TIMING, watching
from tests.support.stalls import Deadline, Mark

SLOW = Timing(interval_ms=60_000, timeout_ms=250, fall=2, rise=2)
PATIENT = dataclasses.replace(TIMING, timeout_ms=10_000)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process
    process.kill()
    process.wait()


async def test_an_exit_is_seen_without_asking(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with watching(ProcessCheck(pid_file, None, SLOW)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == f"there is no {pid_file}"
        pid_file.write_text(f"{sleeper.pid}\n")
        await watcher.until_state(CheckState.UP)
        assert watcher.last == f"process {sleeper.pid} runs"
        sleeper.kill()
        killed = Mark.now()
        await watcher.until_state(CheckState.DOWN)
        assert killed.ran_s() < 3  # the interval is a minute
        sleeper.wait()
        await watcher.until(lambda: watcher.last == f"process {sleeper.pid} is gone")
        pid_file.write_text("nonsense")
        await watcher.until(lambda: watcher.last == f"{pid_file} holds no process id")


async def test_a_stopped_process_fails(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(str(sleeper.pid))
    async with watching(ProcessCheck(tmp_path / "pid", None, TIMING)) as watcher:
        await watcher.until_state(CheckState.UP)
        sleeper.send_signal(signal.SIGSTOP)
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == f"process {sleeper.pid} is stopped"
        sleeper.send_signal(signal.SIGCONT)
        await watcher.until_state(CheckState.UP)


def start_twice(program: Path) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen([program, "600"]) for _ in range(2)]


async def test_by_name_and_with_a_stale_pid_file(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    program = tmp_path / "server-of-this-test"
    program.symlink_to("/bin/sleep")
    async with watching(ProcessCheck(None, program.name, TIMING)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == "no process is named server-of-this-test"
        servers = start_twice(program)
        try:
            await watcher.until_state(CheckState.UP)
            assert watcher.last == f"process {servers[0].pid} runs"
            (tmp_path / "pid").write_text(str(sleeper.pid))
            async with watching(ProcessCheck(tmp_path / "pid", program.name, TIMING)) as wary:
                await wary.until_state(CheckState.DOWN)
                of = f"process {sleeper.pid} of {tmp_path}/pid"
                assert wary.last == f"{of} is sleep, not server-of-this-test"
                (tmp_path / "pid").write_text(str(servers[1].pid))
                await wary.until_state(CheckState.UP)
        finally:
            for server in servers:
                server.kill()
                server.wait()
        await watcher.until_state(CheckState.DOWN)


async def test_a_command_decides(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = f"test -e {flag} && echo fine || {{ echo; echo 'it is gone'; exit 3; }}"
    async with watching(ExecCheck(["/bin/sh", "-c", script], PATIENT)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == "sh exited with 3: it is gone"
        assert watcher.results[0].life is Life.UNWELL
        flag.touch()
        await watcher.until_state(CheckState.UP)
        assert watcher.last == "sh succeeded: fine"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["/absent"], "/absent can't be run: No such file or directory"),
        (["/bin/sleep", "600"], "sleep did not end within 300 ms"),
        (["/bin/sh", "-c", "kill -SEGV $$"], "sh was ended by SIGSEGV"),
    ],
)
async def test_commands_that_fail(command: list[str], problem: str) -> None:
    timing = dataclasses.replace(TIMING, timeout_ms=300 if "sleep" in command[0] else 10_000)
    async with watching(ExecCheck(command, timing)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == problem


async def test_a_command_leaves_nothing_behind_and_may_talk_without_end(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 600 & echo $! >{pid_file}; yes | head -c 1000000; wait"
    with pytest.raises(TimeoutError):
        await run_command(["/bin/sh", "-c", script], timeout_ms=2000)
    pid = int(pid_file.read_text())
    deadline = Deadline(10)
    while _runs(pid):
        assert not deadline.is_over
        await asyncio.sleep(0.01)
    finished = await run_command([sys.executable, "-c", "print('x' * 300_000)"], timeout_ms=20_000)
    assert (finished.code, len(finished.output), finished.first_line) == (0, 4096, "x" * 120)


@pytest.mark.parametrize("refusal", [None, PermissionError])
async def test_a_command_that_cannot_be_killed_holds_up_nothing_and_is_reaped(
    refusal: type[OSError] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that waits for a disk, for which SIGKILL has to wait too, and one that is another user's."""

    def kill(_: int, __: int) -> None:
        if refusal is not None:
            raise refusal

    monkeypatch.setattr(os, "killpg", kill)
    pids, flag = tmp_path / "pids", tmp_path / "flag"
    command = ["/bin/sh", "-c", f"echo $$ >>{pids}; test -e {flag} || exec sleep 30"]
    started = Mark.now()
    with pytest.raises(TimeoutError):
        await run_command(command, timeout_ms=2000)
    with pytest.raises(TimeoutError):  # and doesn't pile up
        await run_command(command, timeout_ms=100)
    assert started.ran_s() < 15
    (pid,) = map(int, pids.read_text().split())
    os.kill(pid, signal.SIGKILL)
    deadline = Deadline(10)
    while _is_there(pid):
        assert not deadline.is_over
        await asyncio.sleep(0.01)
    flag.touch()
    assert (await run_command(command, timeout_ms=10_000)).code == 0
    assert len(pids.read_text().split()) == 2


LEAVES_ONE = """
import asyncio, os, pathlib, resource, time
resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, {hard}))
from ppe_agent.leftovers import adopt_orphans
adopt_orphans()
from ppe_agent.checks.exec_check import run_command
async def leave():
    script = "setsid sleep 30 >/dev/null 2>&1 & echo $!; sleep 0.2"
    pid = (await run_command(["/bin/sh", "-c", script], timeout_ms=20_000)).first_line
    until_s = time.monotonic() + {wait_s}
    while (is_there := pathlib.Path("/proc", pid).exists()) and time.monotonic() < until_s:
        await asyncio.sleep(0.02)
    if is_there:
        os.kill(int(pid), 9)
    print("stays" if is_there else "is killed")
asyncio.run(leave())
"""


@pytest.mark.parametrize(("hard", "wait_s", "fate"), [(819_200, 10, "is killed"), (0, 0.2, "stays")])
async def test_leftovers_are_killed_without_bytes_in_message_queues_or_a_warning_says_that_they_stay(
    hard: int, wait_s: float, fate: str
) -> None:
    """As with LimitMSGQUEUE=0 in the unit's configuration."""
    program = LEAVES_ONE.format(hard=hard, wait_s=wait_s)
    finished = await run_command([sys.executable, "-c", program], timeout_ms=30_000)
    *warnings, last = finished.output.splitlines()
    assert (last, finished.code) == (fate, 0)
    assert ["leftovers_stay" in warning for warning in warnings] == ([True] if fate == "stays" else [])


async def test_a_command_does_not_speak_to_systemd_for_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemctl does with the socket it finds, at each look: systemd would log each as not permitted."""
    for name in ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "OWN_NAME"):
        monkeypatch.setenv(name, "here")
    finished = await run_command(["/bin/sh", "-c", "env | grep =here"], timeout_ms=10_000)
    assert finished.output == "OWN_NAME=here\n"


def _is_there(pid: int) -> bool:
    """Tell whether it runs, or ended and was not reaped."""
    return Path(f"/proc/{pid}").exists()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("text", "life", "reason", "pid"),
    [
        ("ActiveState=active\nSubState=running\nMainPID=7", Life.ALIVE, "is active (running)", 7),
        ("ActiveState=reloading\nSubState=reload\nMainPID=7", Life.ALIVE, "is reloading (reload)", 7),
        ("ActiveState=activating\nSubState=start\nMainPID=7", Life.UNWELL, "is activating (start)", 0),
        ("ActiveState=inactive\nSubState=dead\nResult=success", Life.REFUSED, "is inactive (dead)", 0),
        (
            "ActiveState=failed\nSubState=failed\nResult=exit-code",
            Life.REFUSED,
            "is failed (failed): exit-code",
            0,
        ),
    ],
)
def test_each_state_of_a_unit_has_its_life_and_words(text: str, life: Life, reason: str, pid: int) -> None:
    outcome, found = judge("sip.service", text)
    assert (outcome.life, outcome.words, found) == (life, f"sip.service {reason}", pid)


def test_a_unit_that_is_unknown() -> None:
    outcome, _ = judge("sip.service", "LoadState=not-found\nActiveState=inactive\nSubState=dead\n")
    assert (outcome.life, outcome.words) == (Life.UNKNOWN, "systemd knows no unit sip.service")


async def test_the_main_process_of_a_unit_is_watched_between_questions(
    sleeper: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without systemd as init here, a script takes the place of systemctl."""
    script = tmp_path / "systemctl"
    script.write_text(
        "#!/bin/sh\n"
        '[ "$1 $2" = "--system show" ] && [ "$4 $5" = "-- sip.service" ] || exit 1\n'
        f"if [ -e {tmp_path}/gone ]; then echo ActiveState=failed; echo SubState=failed; echo Result=signal\n"
        f"else echo ActiveState=active; echo SubState=running; echo MainPID={sleeper.pid}; fi\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    timing = dataclasses.replace(SLOW, timeout_ms=10_000)
    async with watching(SystemdUnitCheck("sip.service", timing)) as watcher:
        await watcher.until_state(CheckState.UP)
        assert watcher.last == "sip.service is active (running)"
        (tmp_path / "gone").touch()
        sleeper.kill()
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == "sip.service is failed (failed): signal"


async def test_where_there_is_no_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with watching(SystemdUnitCheck("sip.service", TIMING)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.last == "systemctl can't be run: No such file or directory"


@pytest.mark.parametrize(
    "words",
    [
        "Failed to connect to bus: No such file or directory",
        "Failed to connect to system scope bus via local transport: No such file or directory",
        "Failed to connect to user scope bus via machine transport: Permission denied",
    ],
)
def test_the_words_of_any_systemd_without_a_bus_are_explained(words: str) -> None:
    assert "is dbus installed here" in explained(words)
    assert explained("Unit server.service could not be found.") == "Unit server.service could not be found."


NUMBERS_RUN_OUT = """
import resource, subprocess
resource.setrlimit(resource.RLIMIT_MSGQUEUE, (1, 1))
from ppe_agent.leftovers import Commands
commands = Commands()
for _ in range(3):
    number = commands.next_number()
    print(number)
    commands.began(number, subprocess.Popen(["true"]))
"""


def test_commands_beyond_the_last_number_have_the_own_limit() -> None:
    """The search for a free number never ended."""
    done = subprocess.run([sys.executable, "-c", NUMBERS_RUN_OUT], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["0", "1", "1"], done.stderr


NUMBERS_ARE_SHARED = """
import asyncio, resource, subprocess, time
resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
from ppe_agent.leftovers import Commands
async def main():
    commands = Commands()
    failing, other = (subprocess.Popen(["sh", "-c", script]) for script in ("exit 3", "sleep 0.5"))
    for process in (failing, other):
        commands.began(commands.next_number(), process)
    time.sleep(0.3)
    commands.ended()
    print(failing.wait(), other.wait())
asyncio.run(main())
"""


def test_commands_that_share_a_number_keep_their_exit_status() -> None:
    """Another command's end reaped them, so that a check that failed passed."""
    done = subprocess.run(
        [sys.executable, "-c", NUMBERS_ARE_SHARED], capture_output=True, text=True, timeout=30
    )
    assert done.stdout.split() == ["3", "0"], done.stderr
