"""The cost of the gate: three registrars side by side, one without it, two behind it with few and many rules.

Each is asked in turn, round after round in one run. The program that asks shares the processor with them, so
what counts is the registrar's processor time for a message; messages a second come second.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Final

from rspdns_lab.bench.part import Part, Run
from rspdns_lab.bench.site import BenchSite, site
from rspdns_lab.chain.hosts import START_TIMEOUT_S, wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program, children_of, processor_s
from rspdns_lab.report.page import Rows, Section
from rspdns_lab.report.plots import Dots

REGISTRARS: Final = ("10.80.0.11", "10.80.0.12", "10.80.0.13")
RULES: Final = (0, 10, 4000)
"""How many rules each registrar has: 0 is no gate, and 4,096 are the most."""
ASKER: Final = "10.80.0.31"
KINDS: Final = ("questions", "registrations")


@dataclass(frozen=True)
class Guarded:
    """A registrar with `rules` (0: without the gate) in a round: `kind` is one of KINDS.

    `per_s`: answered messages a second. `cpu_us`: processor time of rspregistrar for each.
    """

    round: int
    rules: int
    kind: str
    per_s: float
    cpu_us: float


def rules_text(count: int, own: str) -> str:
    """Return a rules file of `count` rules; the last one lets the asker register."""
    strangers = (f"element 10.{n >> 8}.{n & 255}.0/24 handles pool-{n}" for n in range(count - 2))
    lines = (f"registrar {own}", *strangers, f"element {ASKER} handles gated", "life 86400", "end")
    return "".join(f"{line}\n" for line in lines)


def run_gate(run: Run, found: Sequence[Guarded]) -> Iterator[Sequence[Guarded]]:
    """Start the registrars, ask each in every round, yield a round's measurements. Raises LabError."""
    rounds = run.rounds_left([guarded.round for guarded in found])
    if not rounds:
        return
    with site(run.prefix, run.folder / "gate") as made:
        asker = made.network.add_host("asker", ASKER)
        hosts = made.hosts(REGISTRARS)
        registrars = {rules: _start(made, host, rules) for host, rules in zip(hosts, RULES, strict=True)}
        for registrar in made.programs:
            wait_until(partial(_pids, registrar), "rspregistrar", START_TIMEOUT_S, *made.programs)
        for number in rounds:
            measured = []
            for kind in KINDS:
                for rules, registrar in registrars.items():
                    guarded = _ask(made, asker, registrar, Guarded(number, rules, kind, 0, 0), run.seconds)
                    measured.append(guarded)
                    run.say(
                        f"round {number}, {kind}, {rules} rules: {guarded.per_s:,.0f}/s, "
                        f"{guarded.cpu_us:.1f} us each"
                    )
            yield measured


def _pids(registrar: Program) -> list[int]:
    return children_of(registrar.pid, "rspregistrar")


def _start(made: BenchSite, host: Host, rules: int) -> Program:
    words = ["run", "--no-sentinel", "--number=1", f"--address={host.address}"]
    words.append(f"--control={made.folder / host.name}.sock")
    if rules:
        (file := made.folder / f"{host.name}.rules").write_text(rules_text(rules, host.address))
        words.append(f"--gate={file}")
    return made.python(host.name, host, "registrar_config", *words)


def _ask(made: BenchSite, asker: Host, registrar: Program, asked: Guarded, seconds: float) -> Guarded:
    """Ask a registrar as `asked` says; return that with what was measured."""
    [pid] = _pids(registrar)
    words = [sys.executable, "-m", "rspdns_lab.bench.gate_load", ASKER, registrar.host.address, asked.kind]
    before_s = processor_s(pid)
    done = subprocess.run(
        ["nsenter", f"--net={asker.path}", "--", *made.sctp.command([*words, str(seconds)])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=made.sctp.environment,
        timeout=seconds + START_TIMEOUT_S,
        check=False,
    )
    answers = int(done.stdout) if done.stdout.strip().isdigit() else 0
    if not answers or _pids(registrar) != [pid]:
        why = f"{done.stderr[-500:]}{registrar.log_end()}"
        raise LabError(f"no {asked.kind} answered with {asked.rules} rules: {why}")
    spent_s = processor_s(pid) - before_s
    per_s, cpu_us = round(answers / seconds, 1), round(1e6 * spent_s / answers, 2)
    return replace(asked, per_s=per_s, cpu_us=cpu_us)


_TEXT: Final = (
    "Three real registrars in one run, asked in turn, 32 messages under way: one without the gate, two "
    "behind it. CPU is the processor time of rspregistrar, which the gate is a part of. The program that "
    "asks shares the processor, so messages a second say less. The rule of the host that asks is the last "
    "of its file, which costs the most."
)


def gate_figures(found: Sequence[Guarded]) -> dict[str, float]:
    """Return the medians of all rounds, and ratios to the registrar without the gate in the same round."""
    figures: dict[str, float] = {}
    for kind in KINDS:
        of_kind = [guarded for guarded in found if guarded.kind == kind]
        bare = {guarded.round: guarded for guarded in of_kind if guarded.rules == 0}
        for rules in RULES:
            rows = [guarded for guarded in of_kind if guarded.rules == rules and guarded.round in bare]
            if rows:
                begin = f"gate_{kind}_{rules}_rules"
                figures[f"{begin}_per_s"] = median(row.per_s for row in rows)
                figures[f"{begin}_cpu_us"] = median(row.cpu_us for row in rows)
                figures[f"{begin}_cpu_ratio"] = median(row.cpu_us / bare[row.round].cpu_us for row in rows)
    return figures


def _table(found: Sequence[Guarded]) -> Rows:
    known = gate_figures(found)
    head = ("messages", "rules", "a second", "CPU us each", "against no gate, in the same round")
    rows = [
        (
            *(kind, f"{rules:,}" if rules else "no gate", f"{known[f'{begin}_per_s']:,.0f}"),
            *(f"{known[f'{begin}_cpu_us']:.1f}", f"{known[f'{begin}_cpu_ratio']:.2f}"),
        )
        for kind in KINDS
        for rules in RULES
        if f"{(begin := f'gate_{kind}_{rules}_rules')}_per_s" in known
    ]
    return [head, *rows]


def _plot(found: Sequence[Guarded]) -> Dots:
    bare = {(each.kind, each.round): each.cpu_us for each in found if each.rules == 0}
    return Dots.of(
        "Processor time against no gate in the same round, a dot for each round.",
        "times that without the gate",
        [each for each in found if each.rules and (each.kind, each.round) in bare],
        lambda each: f"{each.kind}, {each.rules:,} rules",
        {"rounds": lambda each: [each.cpu_us / bare[each.kind, each.round]]},
        linear=True,
    )


def _read(fields: Mapping[str, Any]) -> Guarded:
    if fields["kind"] not in KINDS:
        raise LookupError(fields["kind"])
    return Guarded(**fields)


PART: Final = Part(
    "gate",
    "What the gate costs",
    (Guarded,),
    run_gate,
    lambda found: [Section("Gate", _TEXT, _table(found), [_plot(found)])],
    gate_figures,
    _read,
)
