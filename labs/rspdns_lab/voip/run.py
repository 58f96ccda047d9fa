"""The measurements of `rspdns-lab voip`: runs of calls, fail-overs of firewalls, a load sweep."""

import contextlib
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, counted_packets
from rspdns_lab.net.preconditions import compile_c
from rspdns_lab.voip.configuration import CallRun, PathEnds
from rspdns_lab.voip.paths import PAIRS, CallPath, FirewallPath
from rspdns_lab.voip.quality import CODECS, CallAccount, CallQuality, judge

SOURCE: Final = Path(__file__).with_name("generator.c")
SET_UP_S: Final = 1.5
"""From the first packets until strict firewalls admit no new flows."""
FAULT_S: Final = 2.0
FAULTS: Final = {
    "soft": "the administrator stops the first firewall",
    "hard": "all cables of the first firewall are pulled out",
}
SWEEP: Final = (50, 100, 200, 400, 816, 1250, 2500, 5000)
SWEEP_PATHS: Final = {"cable": "a cable", "firewalls": "two firewalls, state synchronised"}
CARRIED: Final = 0.95


@dataclass(frozen=True)
class VoipTrial:
    """One measurement. `part`: "calls", "failover" or "sweep"; `name`: its run, pair and fault, or path.

    `packet_us`: the time that a packet takes to be sent, which is taken off the delays. `processor`: percent
    of the machine's processors in each state. `unseen_loss`: what calls lost more than packet filters missed.
    `flows`: of the second firewall before the fault; `refused`: packets that it refused.
    """

    part: str
    name: str
    trial: int
    run: Mapping[str, Any]
    planned_per_s: float
    sent_per_s: float
    delivered_per_s: float
    packet_us: float
    behind_ms: float
    delay_p50_ms: float
    delay_p99_ms: float
    rtcp_sent: int
    rtcp_received: int
    overflowed: int
    processor: Mapping[str, float]
    quality: CallQuality
    unseen_loss: int = 0
    flows: int = 0
    refused: int = 0


def read_trial(fields: Mapping[str, Any]) -> VoipTrial:
    """Return one as `asdict` gave it to JSON. Raises TypeError or LookupError for something else."""
    return VoipTrial(**{**fields, "quality": CallQuality(**fields["quality"])})


@contextlib.contextmanager
def generator() -> Iterator[Path]:
    """Compile the generator; it is removed afterwards. Raises LabError."""
    with tempfile.TemporaryDirectory(prefix="rspdns-lab-voip-") as folder:
        yield compile_c(SOURCE, Path(folder) / "generator", "-pthread", libraries=["-lm"])


def make_calls(
    program: Path, path: CallPath | PathEnds, run: CallRun, meanwhile: Callable[[], object]
) -> Sequence[Mapping[str, Any]]:
    """Run the generator, and `meanwhile` beside it; return what it found of each way. Raises LabError."""
    codec = CODECS[run.codec]
    figures = (run.calls, codec.speech_bytes, codec.packet_ms, codec.rtp_type, run.medium, run.duration_s)
    namespaces = [end.path if isinstance(end, Host) else end for end in (path.caller, path.callee)]
    command = [*map(str, (program, *namespaces, *figures)), run.direction, str(int(run.rtcp))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            meanwhile()
            found, problems = process.communicate(timeout=run.duration_s + 60)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise LabError(f"the generator of calls ended: {problems.strip()}")
    return list(json.loads(found).values())


def measure(
    kind: tuple[str, str, int],
    run: CallRun,
    program: Path,
    path: CallPath | PathEnds,
    meanwhile: Callable[[], object] = lambda: None,
) -> VoipTrial:
    """Make the calls of `run`; `kind`: part, name and trial. Raises LabError."""
    counted = path if isinstance(path, CallPath) else None
    lost_before = counted.lost() if counted else 0
    psutil.cpu_times_percent()
    streams = make_calls(program, path, run, meanwhile)
    processor = psutil.cpu_times_percent()
    lost_on_path = counted.lost() - lost_before if counted else 0
    accounts = [CallAccount(*row) for stream in streams for row in stream["calls"]]
    took_s = max(stream["took_s"] for stream in streams)

    def total(figure: str) -> int:
        return sum(stream[figure] for stream in streams)

    return VoipTrial(
        *kind,
        run=run.model_dump(),
        planned_per_s=round(total("planned") / run.duration_s, 1),
        sent_per_s=round(total("sent") / took_s, 1),
        delivered_per_s=round((total("arrived") - total("rtcp_received")) / took_s, 1),
        packet_us=round(max(stream["packet_us"] for stream in streams), 2),
        behind_ms=max(stream["behind_ms"] for stream in streams),
        delay_p50_ms=max(stream["delay_p50_ms"] for stream in streams),
        delay_p99_ms=max(stream["delay_p99_ms"] for stream in streams),
        rtcp_sent=total("rtcp_sent"),
        rtcp_received=total("rtcp_received"),
        overflowed=total("overflowed"),
        processor=processor._asdict(),
        quality=judge(accounts, CODECS[run.codec]),
        unseen_loss=unseen_loss(streams, lost_on_path) if counted and run.medium != "trunk" else 0,
    )


def unseen_loss(streams: Sequence[Mapping[str, Any]], lost_on_path: int) -> int:
    """Return by how much the calls' losses differ from those that the packet filters at both ends counted.

    Packets that the sender was refused, or that an overflowing socket dropped, were not lost on the path.
    """
    by_calls = 0
    for stream in streams:
        accounts = [CallAccount(*row) for row in stream["calls"]]
        by_calls += sum(account.lost - account.duplicates for account in accounts)
        by_calls += stream["rtcp_sent"] - stream["rtcp_received"] - stream["overflowed"] - stream["refused"]
    return by_calls - lost_on_path


def run_calls(
    program: Path, runs: Sequence[tuple[int, CallRun]], ends: PathEnds | None, say: Callable[[str], object]
) -> Iterator[Sequence[VoipTrial]]:
    """Make these runs of calls, each with its number, over a cable or between `ends`. Raises LabError."""
    with contextlib.nullcontext(ends) if ends else CallPath() as path:
        for number, run in runs:
            say(f"{run.title}: {run.duration_s} s")
            yield [measure(("calls", run.title, number), run, program, path)]


def run_failovers(
    program: Path, plan: Sequence[tuple[str, int]], calls: int, seconds: int, say: Callable[[str], object]
) -> Iterator[Sequence[VoipTrial]]:
    """Have the first firewall fail beside calls; each trial with new firewalls. Raises LabError.

    `plan`: "pair fault", and the number of the trial. `seconds`: watched after the fault.
    """
    for name, trial in plan:
        pair, fault = name.split()
        say(f"{PAIRS[pair].title}: {FAULTS[fault]}; trial {trial}")
        run = CallRun(calls=calls, duration_s=seconds + math.ceil(FAULT_S), rtcp=True)
        with FirewallPath(PAIRS[pair]) as path:
            path.start()
            yield [_failover(path, fault, ("failover", name, trial), run, program)]


def _failover(
    path: FirewallPath, fault: str, kind: tuple[str, str, int], run: CallRun, program: Path
) -> VoipTrial:
    flows = 0

    def fail() -> None:
        nonlocal flows
        path.wait_until_calls_flow(run.calls)
        time.sleep(SET_UP_S)
        path.end_set_up()
        time.sleep(FAULT_S - SET_UP_S)
        flows = path.firewalls[1].flows()
        path.fail(fault)

    trial = measure(kind, run, program, path, fail)
    refused = counted_packets(path.firewalls[1].host, "firewall")["refused"]
    return VoipTrial(**{**vars(trial), "flows": flows, "refused": refused})


def run_sweep(
    program: Path, done: Sequence[VoipTrial], most: int, seconds: int, say: Callable[[str], object]
) -> Iterator[Sequence[VoipTrial]]:
    """Make more and more calls, by a cable and through firewalls, until they are saturated.

    A sweep ends with the second load in a row that is not carried. Raises LabError.
    """
    for name in SWEEP_PATHS:
        earlier = {trial.run["calls"]: trial for trial in done if trial.name == name}
        with CallPath() if name == "cable" else FirewallPath(PAIRS["sync"]) as path:
            path.start()
            saturated = 0
            for calls in (each for each in SWEEP if each <= most):
                trial = earlier.get(calls)
                if trial is None:
                    run = CallRun(calls=calls, duration_s=seconds)
                    say(f"{calls:,} calls by {SWEEP_PATHS[name]}: {seconds} s")
                    trial = measure(("sweep", name, calls), run, program, path)
                    yield [trial]
                saturated = 0 if trial.delivered_per_s >= CARRIED * trial.planned_per_s else saturated + 1
                if saturated == 2:
                    break
