"""The simulator: the same seed does the same, its models lose what they should, and no promise is broken."""

import ast
import asyncio
import errno
import importlib.util
import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from rspdns_lab.simulate.associations import SctpNetwork
from rspdns_lab.simulate.broken_import import break_function
from rspdns_lab.simulate.cli import worker_environment
from rspdns_lab.simulate.disk import OsModule
from rspdns_lab.simulate.kernel import EndlessLoopError, Kernel
from rspdns_lab.simulate.mutant_page import markdown
from rspdns_lab.simulate.mutant_trials import MutantTrial
from rspdns_lab.simulate.mutants import MUTANTS, Mutant
from rspdns_lab.simulate.mutations import GROUPS, LEFT_OUT, is_tried, mutated, mutations, spread
from rspdns_lab.simulate.network import SimulatedHost, SimulatedNetwork
from rspdns_lab.simulate.regressions import REGRESSIONS
from rspdns_lab.simulate.sctp_socket import SimulatedSctpSocket

from rserpool import AssociationFailed, AssociationLost, AssociationUp, SctpMessage

PLAYER = "tests.labs.simulated_registrars"
AT_REGISTRARS = (
    "found_by_all",
    "deregistered",
    "own_port",
    "killed_registrar",
    "frozen_registrar",
    "woken_registrar",
    "taken_over",
    "pinned",
)
"""Scenarios of rserpool_scenarios.py, which test_rserpool_registrar.py plays with real registrars."""
NEW_S = 8
"""New scenarios begin for so long, in seconds of the processor."""
FOLDED = "server-killed,server-frozen,sidecar-killed,sidecar-frozen,server-power,registrar-killed"
FAULTS = "server-killed,registrar-killed,lossy,parted"


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel(1)
    yield kernel
    kernel.close()


@pytest.fixture
def network(kernel: Kernel) -> SimulatedNetwork:
    network = SimulatedNetwork(kernel)
    SimulatedSctpSocket.sctp = SctpNetwork(network)
    for number in (1, 2):
        network.add_host(f"h{number}", f"10.0.0.{number}")
    return network


class Speaker:
    """A process with a socket that notes what it reads."""

    def __init__(self, host: SimulatedHost) -> None:
        self.process = host.start("speaker")
        self.read: list[object] = []
        self.process.do(self._open)

    def _open(self) -> None:
        self.socket = SimulatedSctpSocket(port=7, listens=True)
        self.process.add_reader(self.socket.fileno(), self._read)

    def _read(self) -> None:
        self.read.append(self.socket.receive())

    @property
    def texts(self) -> list[bytes]:
        return [news.data for news in self.read if isinstance(news, SctpMessage)]


def speakers(network: SimulatedNetwork) -> tuple[Speaker, Speaker]:
    near, other = (Speaker(host) for host in network.hosts.values())
    network.kernel.run(0.1)
    near.socket.connect(("10.0.0.2", 7))
    return near, other


def work(*arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "rspdns_lab.simulate", *arguments]
    done = subprocess.run(command, env=worker_environment(), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_timers_fire_in_order_and_time_passes_at_once(kernel: Kernel) -> None:
    host, seen = SimulatedNetwork(kernel).add_host("h", "10.0.0.1"), list[tuple[str, float]]()
    process = host.start("sleeper")

    async def sleep(name: str, time_s: float) -> None:
        await asyncio.sleep(time_s)
        seen.append((name, round(kernel.now, 6)))

    process.do(lambda: [process.create_task(sleep(*each)) for each in (("late", 3600.0), ("soon", 0.5))])
    kernel.run(7200)
    assert seen == [("soon", 0.5), ("late", 3600.0)]


def test_clock_that_runs_slow_makes_its_host_late(kernel: Kernel) -> None:
    host, seen = SimulatedNetwork(kernel).add_host("h", "10.0.0.1"), list[float]()
    host.clock.drift(0.5)
    process = host.start("sleeper")
    process.do(lambda: process.call_later(1.0, lambda: seen.append(kernel.now)))
    kernel.run(10)
    assert seen == [pytest.approx(2.0)]


def test_frozen_process_does_everything_when_it_wakes_and_a_killed_one_nothing(kernel: Kernel) -> None:
    network, seen = SimulatedNetwork(kernel), list[str]()
    frozen, killed = (network.add_host(name, name).start(name) for name in ("frozen", "killed"))
    for process in (frozen, killed):
        process.call_later(1.0, seen.append, process.name.split()[1])
    frozen.freeze()
    killed.kill()
    kernel.run(5)
    assert seen == []
    frozen.wake()
    kernel.run(5)
    assert seen == ["frozen"]


def test_loop_without_end_is_found(kernel: Kernel) -> None:
    process = SimulatedNetwork(kernel).add_host("h", "10.0.0.1").start("busy")

    def again() -> None:
        process.call_soon(again)

    process.call_later(0.5, again)
    with pytest.raises(EndlessLoopError, match="h busy"):
        kernel.run(1)


def test_messages_arrive_once_and_in_order_over_a_bad_way(network: SimulatedNetwork) -> None:
    near, other = speakers(network)
    for way in (("h1", "h2"), ("h2", "h1")):
        network.loss[way], network.slowness_s[way] = 0.3, 0.05
    network.doubling = 0.3
    network.kernel.run(3)
    sent = [b"%d" % number for number in range(50)]
    for data in sent:
        near.socket.send(1, 11, data)
    network.kernel.run(20)
    assert other.texts == sent
    assert AssociationUp(1, ("10.0.0.1", 7)) in other.read


def test_association_breaks_on_the_side_that_hears_nothing(network: SimulatedNetwork) -> None:
    near, _ = speakers(network)
    network.kernel.run(1)
    network.cut([("h2", "h1")])
    near.socket.send(1, 11, b"hello")
    network.kernel.run(2)
    assert not any(isinstance(news, AssociationLost) for news in near.read)
    network.kernel.run(10)
    assert isinstance(near.read[-1], AssociationLost)


def test_idle_association_breaks_by_its_heartbeats(network: SimulatedNetwork) -> None:
    near, other = speakers(network)
    network.kernel.run(1)
    network.hosts["h2"].power_off()
    network.kernel.run(30)
    assert isinstance(near.read[-1], AssociationLost)
    assert other.texts == []


def test_end_of_a_process_is_told_at_once_and_that_of_a_host_is_not(network: SimulatedNetwork) -> None:
    near, other = speakers(network)
    network.kernel.run(1)
    other.process.kill()
    network.kernel.run(1.01)
    assert isinstance(near.read[-1], AssociationLost)
    near.socket.connect(("10.0.0.2", 7))
    network.kernel.run(1.1)
    assert isinstance(near.read[-1], AssociationFailed)  # nobody listens there any more


def test_same_seed_writes_the_same_trace(tmp_path: Path) -> None:
    for name in ("first", "second"):
        work("8", "8", "0.65", "--size", "3,3,2", "--faults", FAULTS, "--trace", str(tmp_path / name))
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert "fault" in (tmp_path / "first").read_text()


def test_folded_questions_and_checks_tell_the_same_changes(tmp_path: Path) -> None:
    """Keep-alives, look-ups and checks that can't but be answered are one event each; packet by packet they
    bring the same members in and out, in the same order, at about the same times."""
    changes = []
    for name, options in (("folded", ()), ("unfolded", ("--unfolded",))):
        trace = tmp_path / name
        work("5", "5", "1.4", "--size", "3,3,2", "--faults", FOLDED, "--trace", str(trace), *options)
        changes.append(membership_changes(trace.read_text()))
    folded, unfolded = changes
    assert [where for where, _ in folded] == [where for where, _ in unfolded]
    assert len(folded) > 20
    for (where, at_s), (_, unfolded_s) in zip(folded, unfolded, strict=True):
        assert at_s == pytest.approx(unfolded_s, abs=0.3), where


def membership_changes(trace: str) -> list[tuple[tuple[str, str, str], float]]:
    """The members that joined and left, by name server and member, with their times."""
    found = re.findall(r"^ *([0-9.]+) (\S+) +believes (joined|left) (\S+):", trace, re.MULTILINE)
    ordered = sorted(found, key=lambda each: (each[1], each[3], float(each[0])))
    return [((name_server, member, what), float(at_s)) for at_s, name_server, what, member in ordered]


def test_model_of_the_registrar_passes_what_real_registrars_pass() -> None:
    command = [sys.executable, "-m", PLAYER, *AT_REGISTRARS]
    done = subprocess.run(command, env=worker_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_changes_a_text_that_stands_in_its_module_once(mutant: Mutant) -> None:
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).read_text().count(mutant.old) == 1


SOURCE = """
LONG_S = 2.0

def is_due(at_s, now):
    if at_s is None:
        return False
    log.info("looked at")
    forget(at_s)
    return at_s <= now and not False

def words(at_s) -> str:
    return "due" if at_s > 0 else "not due"
"""


def test_made_mutants_change_conditions_constants_and_statements_but_no_words() -> None:
    made = mutations("module", SOURCE)
    assert [each.words for each in made] == [
        "LONG_S: 2.0 -> 20.0",
        "LONG_S: 2.0 -> 0.2",
        "at_s is None -> at_s is not None",
        "False -> True",
        "without forget(at_s)",
        "at_s <= now -> at_s > now",
        "False -> True",
        "at_s <= now and (not False) -> at_s <= now or not False",
    ]
    assert [each.function for each in made] == ["", "", *["is_due"] * 6]
    changed = {ast.unparse(mutated(SOURCE, each.number)) for each in made}
    assert len(changed) == len(made)
    assert ast.unparse(ast.parse(SOURCE)) not in changed


@pytest.mark.parametrize("module", [module for modules in GROUPS.values() for module in modules])
def test_made_mutants_of_every_module_compile(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    made = mutations(module, source)
    assert made
    compile(mutated(source, made[len(made) // 2].number), module, "exec")


def source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text()


def test_mutants_that_are_tried_are_spread_over_the_modules() -> None:
    modules = [module for modules in GROUPS.values() for module in modules]
    offered = [
        [each for each in mutations(module, source_of(module)) if is_tried(each)] for module in modules
    ]
    chosen = [each.module for each in spread(offered, 3 * len(modules))]
    assert {module: chosen.count(module) for module in modules} == dict.fromkeys(modules, 3)


@pytest.mark.parametrize("left", [each for names in LEFT_OUT.values() for each in names])
def test_function_that_is_left_out_is_there(left: str) -> None:
    module = next(
        module for modules in GROUPS.values() for module in modules if left.startswith(f"{module}.")
    )
    functions = {each.function for each in mutations(module, source_of(module))}
    name = left.removeprefix(f"{module}.")
    assert any(function == name or function.startswith(f"{name}.") for function in functions)


def test_function_is_broken_where_others_have_imported_it() -> None:
    module = ModuleType("module")
    module.__file__ = "module.py"
    exec(SOURCE, vars(module))  # noqa: S102 - a source of this test
    is_due = vars(module)["is_due"]
    (number,) = [
        each.number for each in mutations("module", SOURCE) if each.words.startswith("at_s is None ->")
    ]
    assert is_due(None, 1.0) is False
    break_function(module, mutated(SOURCE, number), "is_due")
    assert is_due(3.0, 1.0) is False
    with pytest.raises(LookupError):
        break_function(module, mutated(SOURCE, number), "other")


def test_scenario_finds_a_broken_function_and_nothing_without_it() -> None:
    (mutation,) = [
        each
        for each in mutations("rspdns.answers.purges", source_of("rspdns.answers.purges"))
        if each.words.startswith("without self._purger.purge((*first,")
    ]
    job = {"faults": "server-killed", "size": "3,2,1", "minutes": 0.8, "scenarios": 2, "seconds": 60.0}
    command = [sys.executable, "-m", "rspdns_lab.simulate.mutant_server"]
    mutants = ({"name": "", "function": ""}, {"name": mutation.name, "function": mutation.function})
    done = subprocess.run(
        command,
        input="".join(f"{json.dumps(job | mutant)}\n" for mutant in mutants),
        env=worker_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each.get("status", each.get("promise")) for each in told[:3]] == ["", "", 0], done.stdout
    assert told[-2]["promise"]
    assert told[-1] == {"status": 0}


def test_page_of_mutants_counts_what_was_not_reached_and_names_survivors() -> None:
    def trial(name: str, promise: str, *, is_reached: bool = True) -> MutantTrial:
        return MutantTrial(name, "belief", "m", "m.f", "a -> b", promise, 1, 1, 2.0, is_reached)

    trials = [trial("m#1", "serials_grow"), trial("m#2", ""), trial("m#3", "", is_reached=False)]
    page = markdown(trials, 60, "Here.", {"words": ("m.g",)}, {"m#2": "It makes no difference."})
    assert "| belief | 3 | 1 | 1 | 0 | 1 | 50% |" in page
    assert "| `m.f` | `a -> b` | It makes no difference. |" in page
    assert "| words | `m.g` |" in page


def test_full_disk_of_a_host_takes_no_file(network: SimulatedNetwork) -> None:
    disk, seen = OsModule(), list[int | None]()
    OsModule.network = network
    host = network.hosts["h1"]

    def write() -> None:
        try:
            disk.fsync(1)
        except OSError as problem:
            seen.append(problem.errno)

    process = host.start("writer")
    for host.is_disk_full in (True, False):
        process.do(write)
    assert seen == [errno.ENOSPC]


def test_scenarios_break_no_promise() -> None:
    """The old scenarios, then new ones. A seed that breaks a promise is shown: run it again with
    `rspdns-lab simulate --seed N --minutes 0.75 --size 3,4,2 --shrink --trace -`."""
    for regression in REGRESSIONS:
        (outcome,) = work(*regression.words)
        assert outcome["broken"] == [], outcome
    seed = secrets.randbelow(100_000_000)
    outcomes = work(str(seed), str(seed + 1000), "0.75", "--size", "3,4,2", "--for-s", str(NEW_S))
    assert outcomes
    assert [outcome for outcome in outcomes if outcome["broken"]] == []
