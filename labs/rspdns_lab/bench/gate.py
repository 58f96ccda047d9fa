"""The cost of the gate: three registrars side by side, one without it, two behind it with few and many rules.

Each is asked in turn, round after round in one run. The program that asks shares the processor with them, so
what counts is the registrar's processor time for a message; messages a second come second.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rspdns_lab.chain.hosts import START_TIMEOUT_S, wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, Network
from rspdns_lab.net.preconditions import find_sctp
from rspdns_lab.net.processes import Program, children_of, end_programs, processor_s

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

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        return {"part": "gate", **asdict(self)}


def rules_text(count: int, own: str) -> str:
    """Return a rules file of `count` rules; the last one lets the asker register."""
    strangers = (f"element 10.{n >> 8}.{n & 255}.0/24 handles pool-{n}" for n in range(count - 2))
    lines = (f"registrar {own}", *strangers, f"element {ASKER} handles gated", "life 86400", "end")
    return "".join(f"{line}\n" for line in lines)


def run_gate(
    prefix: str, folder: Path, rounds: Sequence[int], seconds: float, say: Callable[[str], object]
) -> Iterator[Sequence[Guarded]]:
    """Start the registrars, ask each in every round, yield a round's measurements. Raises LabError."""
    folder.mkdir(parents=True, exist_ok=True)
    with Network(prefix) as network, contextlib.ExitStack() as cleanup:
        programs: list[Program] = []
        cleanup.callback(end_programs, programs)
        asker = network.add_host("asker", ASKER)
        registrars: list[Program] = []
        for number, (address, rules) in enumerate(zip(REGISTRARS, RULES, strict=True), 1):
            host = network.add_host(f"r{number}", address)
            registrars.append(_start(host, folder, rules))
            programs.append(registrars[-1])
        for registrar in registrars:
            wait_until(lambda one=registrar: _pids(one), "rspregistrar", START_TIMEOUT_S, *programs)  # type: ignore[misc]
        for number in rounds:
            measured = []
            for kind in KINDS:
                for registrar, rules in zip(registrars, RULES, strict=True):
                    measured.append(_ask(asker, registrar, number, rules, kind, seconds))
                    say(
                        f"round {number}, {kind}, {rules} rules: {measured[-1].per_s:,.0f}/s, "
                        f"{measured[-1].cpu_us:.1f} us each"
                    )
            yield measured


def _pids(registrar: Program) -> list[int]:
    return children_of(registrar.pid, "rspregistrar")


def _start(host: Host, folder: Path, rules: int) -> Program:
    sctp = find_sctp()
    command = [sys.executable, "-m", "registrar_config", "run", "--no-sentinel", "--number=1"]
    command += [f"--address={host.address}", f"--control={folder / host.name}.sock"]
    if rules:
        (file := folder / f"{host.name}.rules").write_text(rules_text(rules, host.address))
        command.append(f"--gate={file}")
    log = folder / f"{host.name}.log"
    program = Program(f"registrar {host.name}", host, sctp.command(command), log, sctp.environment)
    program.start()
    return program


def _ask(asker: Host, registrar: Program, number: int, rules: int, kind: str, seconds: float) -> Guarded:
    sctp = find_sctp()
    [pid] = _pids(registrar)
    words = [sys.executable, "-m", "rspdns_lab.bench.gate_load", ASKER, registrar.host.address, kind]
    before_s = processor_s(pid)
    asked = subprocess.run(
        ["nsenter", f"--net={asker.path}", "--", *sctp.command([*words, str(seconds)])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=sctp.environment,
        timeout=seconds + START_TIMEOUT_S,
        check=False,
    )
    answers = int(asked.stdout) if asked.stdout.strip().isdigit() else 0
    if not answers or _pids(registrar) != [pid]:
        raise LabError(f"no {kind} answered with {rules} rules: {asked.stderr[-500:]}{registrar.log_end()}")
    spent_s = processor_s(pid) - before_s
    return Guarded(number, rules, kind, round(answers / seconds, 1), round(1e6 * spent_s / answers, 2))
