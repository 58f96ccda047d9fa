"""Proof that the simulator bites: rules of the product are broken, one at a time, and scenarios notice it.

    python -m rspdns_lab.simulate.mutants [NAME ...] [--seconds 60] [--first SEED]

Each mutant replaces a text of a module, in the worker's memory only (`install`). It is found when a promise
breaks within so many seconds of the processor. The survivors are listed at the end; the exit status is 1 if
there are any.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import click

VARIABLE: Final = "RSPDNS_SIMULATE_MUTANT"
"""The environment variable that names a worker's mutant."""
MOST_SCENARIOS: Final = 1000


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule, broken: in `module` the text `old`, which occurs once, becomes `new`.

    `faults` are the kinds under which the rule matters.
    """

    name: str
    module: str
    old: str
    new: str
    faults: str
    size: str = "3,4,2"


_SERVERS = "server-killed,server-frozen,server-power,sidecar-killed"
_REGISTRARS = "registrar-killed,registrar-frozen,registrar-power"
_DECISIONS, _POOL = "pool_user.belief.decisions", "pool_user.belief.pool"
_RULES, _STANDING = "pool_user.belief.rules", "pool_user.registrars.standing"
_ELEMENT, _REGISTRATION = "rserpool.element", "ppe_agent.registration"
_PUBLISHER, _PURGES, _PURGE = "rspdns.answers.publisher", "rspdns.answers.purges", "rspdns.pdns.purge"

MUTANTS: Final = (
    # Belief
    Mutant(
        "listed-is-not-in",
        _DECISIONS,
        "        return VOUCHED\n    last_s",
        "        pass\n    last_s",
        _REGISTRARS,
    ),
    Mutant(
        "nobody-entitled-denies",
        _DECISIONS,
        "if awaited or not registrars.settled:",
        "if awaited:",
        _REGISTRARS,
    ),
    Mutant(
        "home-removes-nobody",
        _DECISIONS,
        "return Judgement(ClaimVerdict.DENIED, Code.REMOVED)",
        "return Judgement(ClaimVerdict.PENDING)",
        _SERVERS,
    ),
    Mutant(
        "contested-leaves",
        _RULES,
        "CONTESTED_S = 2.2",
        "CONTESTED_S = 0.0",
        "registrar-lies,registrars-parted",
    ),
    Mutant(
        "contest-is-skipped",
        _POOL,
        "        self._contest(members, registrars, followed, now)\n",
        "",
        "registrar-lies,registrars-parted",
    ),
    Mutant(
        "orphans-are-not-probed",
        _RULES,
        "ORPHAN_AFTER_S = 0.2",
        "ORPHAN_AFTER_S = 60.0",
        "server-power,registrar-killed,registrar-frozen",
    ),
    Mutant(
        "crowd-waits", _RULES, "CROWD_QUESTIONED_S = 1.0", "CROWD_QUESTIONED_S = 30.0", "server-power,parted"
    ),
    Mutant(
        "forged-sentinel-counts",
        _STANDING,
        "own = [element for element in elements if element.user_transport.addresses == (self._host,)]",
        "own = list(elements)",
        "stranger,registrar-killed,server-killed",
    ),
    Mutant(
        "silent-counts",
        _STANDING,
        "return Standing.SILENT",
        "return Standing.SETTLED",
        "registrar-frozen," + _SERVERS,
    ),
    Mutant(
        "waking-counts",
        _STANDING,
        "return Standing.WAKING",
        "return Standing.SETTLED",
        "registrar-frozen," + _SERVERS,
    ),
    Mutant(
        "starting-counts",
        _STANDING,
        "return Standing.STARTING if self.identifier is None else Standing.SETTLED",
        "return Standing.SETTLED",
        _REGISTRARS,
    ),
    Mutant(
        "stale-is-not-probed",
        _POOL,
        "everybody=self._is_probed(stale_s), stale",
        "everybody=False, stale",
        "server-killed,registrar-killed,registrar-power",
        "2,3,2",
    ),
    Mutant(
        "accept-is-skipped",
        "pool_user.belief.admission",
        "def why_refused(",
        "def why_refused(*_):\n    return None\n\n\ndef _why_refused(",
        "stranger",
    ),
    # Registration
    Mutant(
        "lost-registrar-is-waited-for",
        _ELEMENT,
        "self._wait(now, self._rotation.failed(self._chosen, now))",
        "self._wait(now, 30.0)",
        _REGISTRARS,
    ),
    Mutant(
        "keep-alive-is-not-answered",
        _ELEMENT,
        "        self._send(association, asap.EndpointKeepAliveAck(self.handle, self.element.identifier))\n",
        "",
        "registrar-killed",
    ),
    Mutant(
        "silent-registrar-is-waited-for",
        _ELEMENT,
        "\nRESPONSE_TIMEOUT_S = 0.5",
        "\nRESPONSE_TIMEOUT_S = 60.0",
        "registrar-frozen",
    ),
    Mutant(
        "connecting-takes-ages",
        _ELEMENT,
        "\nCONNECT_TIMEOUT_S = 0.5",
        "\nCONNECT_TIMEOUT_S = 60.0",
        "registrar-power,cable-pulled",
    ),
    Mutant(
        "missing-is-not-renewed",
        _REGISTRATION,
        '            machine.register_again(f"not listed by {registrar}", now)\n',
        "",
        "registrar-frozen,registrar-lies,parted",
    ),
    Mutant(
        "renewals-stop",
        _ELEMENT,
        "            case ElementState.REGISTERED:\n                self._renew(now)\n",
        "            case ElementState.REGISTERED:\n                pass\n",
        "lossy,parted",
    ),
    Mutant(
        "takeover-is-refused",
        _ELEMENT,
        "if self._pinned or registrar is None or is_distrusted:",
        "if True:",
        "registrar-frozen,registrars-parted",
    ),
    Mutant(
        "check-decides-nothing",
        "ppe_agent.server",
        "            self._decide()  # first of all",
        "            pass  # first of all",
        _SERVERS,
    ),
    Mutant(
        "one-check-is-enough",
        "ppe_agent.health",
        "return all(check.machine.state is",
        "return any(check.machine.state is",
        _SERVERS,
    ),
    Mutant(
        "refused-waits",
        "ppe_agent.checks.base",
        "        if life is not Life.REFUSED:\n            self.run =",
        "        if True:\n            self.run =",
        "server-killed",
    ),
    # Publisher
    Mutant(
        "change-is-not-purged",
        _PUBLISHER,
        "self._swap(change, self._purges.of(change, moved, is_first=self.builds == 0))",
        "self._swap(change, lambda first: None)",
        _SERVERS,
    ),
    Mutant(
        "waiting-change-is-forgotten",
        _PUBLISHER,
        "            self._set_timer(self._ready_at_s)\n",
        "            pass\n",
        "drained,server-killed",
    ),
    Mutant(
        "serial-begins-anew",
        "rspdns.answers.serial_number",
        "self._last = max(self._reserved, int(wall_s))",
        "self._last = 0",
        "backend-killed",
    ),
    Mutant(
        "left-target-is-gone",
        "rspdns.pdns.responder",
        "return self._departed_reply(zone, absent, qtype)",
        "return NOTHING",
        "drained,server-killed",
    ),
    Mutant(
        "left-names-are-purged-once",
        _PURGES,
        "        self._purge_later(change.after, names)\n",
        "",
        "drained,server-killed",
    ),
    # Purge schedule
    Mutant("purged-once", _PURGE, "GAPS_S = (0.0, 0.010, 0.040)", "GAPS_S = (0.0,)", "drained,server-killed"),
    Mutant(
        "failed-purge-is-forgotten",
        _PURGE,
        "                self._queues[_RETRY][name] = now + RETRY_S\n",
        "                pass\n",
        "control-stuck,server-killed",
    ),
)
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}


class _Mutated(importlib.machinery.SourceFileLoader):
    """Loads a module with one text replaced; raises ImportError when the text is not there once."""

    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed source, whatever is cached."""
        source = Path(self.path).read_text()
        if source.count(self.mutant.old) != 1:
            raise ImportError(
                f"mutant {self.mutant.name}: {fullname} has its text {source.count(self.mutant.old)} times"
            )
        return compile(source.replace(self.mutant.old, self.mutant.new), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the mutant's module; None for any other."""
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        loader = _Mutated(fullname, spec.origin)
        loader.mutant = self._mutant
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


def install() -> None:
    """Break the rule that the environment names, if it names one; before anything else is imported."""
    name = os.environ.get(VARIABLE)
    if name:
        sys.meta_path.insert(0, _Finder(BY_NAME[name]))


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(BY_NAME)))
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Of the processor, for each.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--minutes", type=float, default=1.0, show_default=True, help="The length of a scenario.")
def main(names: Sequence[str], seconds: float, first: int, minutes: float) -> None:
    """Break these rules (default: all), and list those that no scenario notices."""
    survivors = []
    for mutant in [BY_NAME[name] for name in names] or MUTANTS:
        words = _broken_promise(mutant, seconds, first, minutes)
        click.echo(f"{mutant.name}: {words or 'SURVIVES'}")
        if words is None:
            survivors.append(mutant.name)
    click.echo(f"{len(survivors)} survive: {' '.join(survivors)}" if survivors else "all were found")
    sys.exit(1 if survivors else 0)


def _broken_promise(mutant: Mutant, seconds: float, first: int, minutes: float) -> str | None:
    """Run scenarios until one breaks a promise, and say which; None when none does in time."""
    options = ["--faults", mutant.faults, "--size", mutant.size, "--for-s", str(seconds), "--until-broken"]
    command = [
        sys.executable,
        "-m",
        "rspdns_lab.simulate",
        str(first),
        str(first + MOST_SCENARIOS),
        str(minutes),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0", VARIABLE: mutant.name}
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"does not run: {done.stderr.strip().splitlines()[-1]}"
    for line in done.stdout.splitlines():
        outcome = json.loads(line)
        if outcome["broken"]:
            broken = outcome["broken"][0]
            return f"seed {outcome['seed']}: {broken['promise']}: {broken['words']}"
    return None


if __name__ == "__main__":
    main()
