"""The cost of an answer: every variant asked in turn, round after round.

Only the ratios mean something on a machine whose cores dnsperf shares. Steadier still is the processor time
that a name server and its backend spend on one answered question, whoever else uses the machine.
"""

import contextlib
import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rspdns_lab.bench import fast_path, zone
from rspdns_lab.bench.part import HOST, Part, Run
from rspdns_lab.bench.programs import DNSPERF, ask, cpu_s
from rspdns_lab.bench.variants import BY_KEY, Variant, members_that_answer
from rspdns_lab.ending import uninterrupted
from rspdns_lab.net.network import Host, LabNetwork, kill_all_in
from rspdns_lab.net.processes import Program, end_programs
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Rows, Section
from rspdns_lab.report.plots import Bars, Dots

LATENCY_QUESTIONS_PER_S = 500
"""Latencies are measured at a load that every variant bears: at full load they only tell how many questions
dnsperf has under way."""
METERED = frozenset(
    (
        *("static_qps", "gdnsd_qps", "knot_qps", "live_qps"),
        *("fastpath_qps", "fastpath_qps_no_limit", "fastpath_qps_100_changes", "near_fastpath_qps"),
    )
)
"""Variants whose server time is measured by batches, too."""
QUESTIONS_PER_S = 40_000
"""Asked in batches, for each second that dnsperf asks ..."""
_MOST_METERED_S = 3
"""... but of no more than this number."""
_FIRST_PORT = 5301
_STARTED_AT_ONCE = 4
_LOOK_EVERY_S = 0.02
_DNSPERF_PATIENCE_S = 5
"""The time that dnsperf waits for lost answers by default, also when all else is answered."""
_PER_RUN = zone.POOLS
"""Questions that dnsperf asks when it goes through its list once."""


Running = Mapping[Variant, tuple[int, Sequence[Program]]]
"""The port of each variant, and what runs for it."""


@dataclass(frozen=True)
class Rate:
    """One measurement. Processor time is for each answered question; times are in microseconds."""

    round: int
    variant: str
    per_s: float
    cpu_us: float
    latency_p50_us: float = 0.0
    latency_p95_us: float = 0.0
    latency_p99_us: float = 0.0
    server_us: float = 0.0
    """The server's time for an answer by the meter of batches; 0: not measured."""


def run_questions(run: Run, found: Sequence[Rate]) -> Iterator[Sequence[Rate]]:
    """Ask each variant in each round. Raises LabError."""
    done = {(rate.round, rate.variant) for rate in found}
    rounds = {
        number: [key for key in run.variants if (number, key) not in done]
        for number in range(1, run.rounds + 1)
    }
    if not any(rounds.values()):
        return
    with LabNetwork(run.prefix) as network:
        host = network.add_host(*HOST)
        run.say(f"starting {len(run.variants)} name servers")
        with variants_running(host, run.folder, run.variants) as programs:
            for number, keys in rounds.items():
                for rate in run_round(host, run, number, programs, keys) if keys else ():
                    yield [rate]


def run_round(host: Host, run: Run, number: int, programs: Running, keys: Collection[str]) -> Iterator[Rate]:
    """Ask each of these variants."""
    folder, seconds = run.folder, run.seconds
    for variant, (port, own) in programs.items():
        if variant.key not in keys:
            continue
        _let_run_alone(programs, variant)
        if variant.fast:
            fast_path.wait_until_it_answers(folder / variant.key, own)
        options = ["-t", str(min(seconds, _DNSPERF_PATIENCE_S)), *(["-D"] if variant.signed else [])]
        ask(host, folder, port, "-n", "2", *options)  # fills the caches
        calm = (*options, "-v", "-Q", str(LATENCY_QUESTIONS_PER_S))
        runs = str(max(2, min(4, seconds - 1) * LATENCY_QUESTIONS_PER_S // _PER_RUN))
        latencies_us = ask(host, folder, port, "-n", runs, *calm).latencies_us
        before_s = cpu_s(own)
        answered = ask(host, folder, port, "-l", str(seconds), *options)
        spent_s = cpu_s(own) - before_s
        cpu_us = 1e6 * spent_s / answered.count
        p50_us, p95_us, p99_us = (round(percentile(latencies_us, part), 1) for part in (50, 95, 99))
        server_us = 0.0
        if variant.key in METERED and not fast_path.why_not():
            # Once without counting: the asking process and the caches are warm.
            count = QUESTIONS_PER_S * min(seconds, _MOST_METERED_S)
            server_us = fast_path.server_us(host, folder, port, own, count)
        rate = Rate(number, variant.key, answered.per_s, cpu_us, p50_us, p95_us, p99_us, server_us)
        run.say(
            f"round {number}: {variant.title}: {answered.per_s:,.0f} queries/s, {cpu_us:.1f} us of processor "
            f"time each; latency p50 {rate.latency_p50_us:.0f} us, p99 {rate.latency_p99_us:.0f} us"
            + (f"; server, by batches, {server_us:.2f} us" if server_us else "")
        )
        yield rate


@contextlib.contextmanager
def variants_running(host: Host, folder: Path, keys: Collection[str]) -> Iterator[Running]:
    """Start the variants; yield the port and the programs of each; stop them."""
    (folder / "questions").write_text(zone.questions())
    programs: dict[Variant, tuple[int, Sequence[Program]]] = {}
    started: dict[Variant, tuple[int, Future[list[Program]]]] = {}
    # The threads stay as long as the programs, which end with the thread that started them.
    with members_that_answer(host), ThreadPoolExecutor(_STARTED_AT_ONCE) as threads:
        try:
            if not fast_path.why_not():
                fast_path.start_echo(host)
            for port, variant in enumerate(BY_KEY.values(), _FIRST_PORT):
                if variant.key in keys:
                    started[variant] = port, threads.submit(variant.start, host, folder / variant.key, port)
            for variant, (port, own) in started.items():
                programs[variant] = (port, own.result())
            yield programs
        finally:
            with uninterrupted():
                _give_up([own for _, own in started.values()], host)
                end_programs([program for _, own in programs.values() for program in own])


def _give_up(starts: Sequence["Future[list[Program]]"], host: Host) -> None:
    """Begin no start that waits for its turn; break off those under way, which wait for an answer."""
    for start in starts:
        start.cancel()
    while not all(start.done() for start in starts):
        kill_all_in(host.path)
        time.sleep(_LOOK_EVERY_S)


def figures_of(rates: Sequence[Rate]) -> dict[str, float]:
    """The medians over the rounds; ratios are those of each round, since rounds differ more than variants."""
    figures = {}
    for key, variant in BY_KEY.items():
        own = [rate for rate in rates if rate.variant == key]
        if not own:
            continue
        name = base(key)
        figures[key] = statistics.median(rate.per_s for rate in own)
        figures[f"{name}_cpu_us"] = statistics.median(rate.cpu_us for rate in own)
        for part in ("latency_p50_us", "latency_p95_us", "latency_p99_us"):
            figures[f"{name}_{part}"] = statistics.median(getattr(rate, part) for rate in own)
        of_static = {rate.round: rate for rate in rates if rate.variant == variant.compared_with}
        pairs = [(rate, of_static[rate.round]) for rate in own if rate.round in of_static]
        if pairs:
            figures[f"{key}_ratio"] = statistics.median(rate.per_s / static.per_s for rate, static in pairs)
            figures[f"{name}_cpu_ratio"] = statistics.median(
                rate.cpu_us / static.cpu_us for rate, static in pairs
            )
        figures |= _metered(key, variant, own, pairs)
    return figures


def _metered(
    key: str, variant: Variant, own: Sequence[Rate], pairs: Sequence[tuple[Rate, Rate]]
) -> dict[str, float]:
    """The server's time by the meter of batches. Answers from the kernel have no other meter: the programs'
    own time holds nothing of them."""
    name = base(key)
    metered = [rate.server_us for rate in own if rate.server_us]
    ratios = [
        rate.server_us / static.server_us for rate, static in pairs if rate.server_us and static.server_us
    ]
    figures = {}
    if metered:
        figures[f"{name}_server_cpu_us"] = statistics.median(metered)
    if ratios:
        figures[f"{name}_server_cpu_ratio"] = statistics.median(ratios)
    if metered and variant.fast:
        figures[key.replace("_qps", "_cpu_us", 1)] = figures[f"{name}_cpu_us"] = statistics.median(metered)
    if ratios and variant.fast:
        figures[f"{name}_cpu_ratio"] = statistics.median(ratios)
    return figures


def base(key: str) -> str:
    """Return how the other figures of a variant are called: `live_qps_100_changes`, `live_100_changes`."""
    return key.replace("_qps", "", 1)


def _let_run_alone(programs: Running, variant: Variant) -> None:
    """Stop the programs of every other variant, which would take its processor time."""
    for other, (_, own) in programs.items():
        for program in own:
            if program.is_running and other == variant:
                program.thaw()
            elif program.is_running:
                program.freeze()


AIMS: Final[Mapping[str, float]] = MappingProxyType({"live_qps": 0.9, "live_qps_100_changes": 0.9})
"""The aims: queries a second against `static_qps`."""
LEAST_UNCACHED_QPS: Final = 3000
_INTRO: Final = (
    "The same names are served by name servers that know nothing of life, by some that "
    "check, and by rspdns; dnsperf asks each in turn, round after round in one run. It shares the processor "
    "with them: what counts is the processor time for one answer, and ratios; queries a second come second."
)
_COSTS: Final = (
    "CPU is what the name server's programs use while dnsperf asks. It holds nothing "
    "of the kernel's answers: their time is by batches, less what asking costs."
)


def _sections(rates: Sequence[Rate]) -> list[Section]:
    known = figures_of(rates)
    keys = [key for key in BY_KEY if key in known]
    titles = [BY_KEY[key].title for key in keys]
    bars = Bars(
        "Processor time for one answer. Green is rspdns.",
        "microseconds of processor time for one answer",
        {BY_KEY[key].title: known[f"{base(key)}_cpu_us"] for key in keys},
        [BY_KEY[key].title for key in keys if key.startswith(("live", "fastpath", "uncached", "signed"))],
        log=True,
    )
    dots = Dots(
        f"How long an answer takes at {LATENCY_QUESTIONS_PER_S} questions a second; a dot for each round.",
        "microseconds until the answer",
        titles,
        {
            part: [
                [getattr(rate, f"latency_{part}_us") for rate in rates if rate.variant == key] for key in keys
            ]
            for part in ("p50", "p95", "p99")
        },
    )
    costs, answers = _tables(known, keys)
    text = f"At most, and latencies at {LATENCY_QUESTIONS_PER_S} questions a second."
    return [
        Section("Processor time", _COSTS, costs, [bars]),
        Section("Answers a second", text, answers, [dots]),
    ]


def _ratio(known: Mapping[str, float], key: str) -> str:
    return f"{known[key]:.2f}" if key in known else "-"


def _tables(known: Mapping[str, float], keys: Sequence[str]) -> tuple[Rows, Rows]:
    costs: list[Sequence[str]] = [
        ("served by", "CPU us each", "against static", "by batches, us", "against static by batches")
    ]
    answers: list[Sequence[str]] = [
        ("served by", "queries/s", "against static", "p50 us", "p95 us", "p99 us", "aimed at")
    ]
    for key in keys:
        variant, name = BY_KEY[key], base(key)
        own = "-" if variant.fast else f"{known[f'{name}_cpu_us']:,.1f}"
        of_static = "-" if variant.fast else _ratio(known, f"{name}_cpu_ratio")
        metered = known.get(f"{name}_server_cpu_us")
        batches = "-" if metered is None else f"{metered:,.2f}"
        each = (own, of_static, batches, _ratio(known, f"{name}_server_cpu_ratio"))
        qps = (f"{known[key]:,.0f}", _ratio(known, f"{key}_ratio"))
        latencies = [f"{known[f'{name}_latency_{part}_us']:,.0f}" for part in ("p50", "p95", "p99")]
        aim = f"{AIMS[key]:g} of static" if key in AIMS else ""
        aim = f"{LEAST_UNCACHED_QPS:,} queries/s" if key == "uncached_qps" else aim
        costs.append([variant.title, *each])
        answers.append([variant.title, *qps, *latencies, aim])
    return costs, answers


def _read(fields: Mapping[str, object]) -> Rate:
    rate = Rate(**fields)  # type: ignore[arg-type]  # the caller expects a TypeError
    if rate.variant not in BY_KEY:
        raise LookupError(rate.variant)
    return rate


PART: Final = Part(
    "questions",
    "What liveness costs",
    (Rate,),
    run_questions,
    _sections,
    figures_of,
    _read,
    lambda run: DNSPERF | {BY_KEY[key].program: BY_KEY[key].package for key in run.variants},
    _INTRO,
)
