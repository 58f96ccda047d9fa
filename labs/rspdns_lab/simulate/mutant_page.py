"""The page of results of `rspdns-lab mutants`. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from rspdns_lab.simulate.page import table

_HEAD: Final = """<!-- Made by the command below; not to be edited by hand. -->

# Does the simulator bite?

Rules of belief, registration, publisher and purges are broken, one at a time, and scenarios run until a
[promise](simulated.md) breaks. "By hand" are whole rules, bugs that were mended before among them. All others
are made mechanically: a condition is negated, a comparison or connective swapped, a statement dropped, a
constant changed.

Not every change of a line is a change that a client can see. A line is *not reached* if no scenario comes to
it (keyed pools, sites, overrides, several handlespaces are not simulated). A mutant is *not felt* if every
trace stays the same, byte for byte.
"""


class TrialFigures(Protocol):
    """The figures of one trial."""

    @property
    def group(self) -> str: ...  # noqa: D102 - see `MutantTrial`
    @property
    def function(self) -> str: ...  # noqa: D102
    @property
    def words(self) -> str: ...  # noqa: D102
    @property
    def promise(self) -> str: ...  # noqa: D102
    @property
    def scenarios(self) -> int: ...  # noqa: D102
    @property
    def cpu_s(self) -> float: ...  # noqa: D102
    @property
    def is_reached(self) -> bool: ...  # noqa: D102
    @property
    def is_felt(self) -> bool: ...  # noqa: D102


def markdown(
    trials: Sequence[TrialFigures], seconds: float, where: str, reasons: Mapping[str, str] | None = None
) -> str:
    """The page; `where` says when and on which machine, `reasons` why mutants survive, by their words."""
    groups = list(dict.fromkeys(trial.group for trial in trials))
    promises = Counter(trial.promise.partition(":")[0] for trial in trials if trial.promise)
    felt = [trial for trial in trials if not trial.promise and trial.is_reached and trial.is_felt]
    unfelt = [trial for trial in trials if not trial.promise and trial.is_reached and not trial.is_felt]
    parts = [
        _HEAD,
        f"{where}\n",
        f"    rspdns-lab mutants --count {sum(trial.group != 'by hand' for trial in trials)} "
        f"--seconds {seconds:g} --json build/mutants.json\n",
        table(
            ("rules of", "mutants", "not reached", "not felt", "of the others found"),
            [_row(group, [trial for trial in trials if trial.group == group]) for group in groups]
            + [_row("all", trials)],
        ),
        "## Found by\n",
        table(("promise", "mutants"), [(_words(name), str(count)) for name, count in promises.most_common()]),
        "## Survivors\n",
        table(("where", "change", "why"), [_survivor(trial, reasons or {}) for trial in felt])
        if felt
        else "None.\n",
        "## Not felt\n",
        table(("where", "change"), [_survivor(trial, {})[:2] for trial in unfelt]) if unfelt else "None.\n",
    ]
    return "\n".join(parts)


def _row(name: str, trials: Sequence[TrialFigures]) -> tuple[str, ...]:
    reached = [trial for trial in trials if trial.is_reached]
    unfelt = sum(not trial.promise and not trial.is_felt for trial in reached)
    found, counted = sum(bool(trial.promise) for trial in reached), len(reached) - unfelt
    share = f" ({found / counted:.0%})" if counted else ""
    return (
        name,
        str(len(trials)),
        str(len(trials) - len(reached)),
        str(unfelt),
        f"{found} of {counted}{share}",
    )


def _survivor(trial: TrialFigures, reasons: Mapping[str, str]) -> tuple[str, ...]:
    change = trial.words.replace("|", "\\|")
    return f"`{trial.function or trial.group}`", f"`{change}`", reasons.get(trial.words, "")


def _words(name: str) -> str:
    return name.replace("_", " ")
