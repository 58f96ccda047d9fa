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
constant changed. They are chosen by chance, as many of each module.

A mutant survives when no promise breaks. Two kinds of survivors are told apart, and count as such all the
same. A line is *not reached* if no scenario comes to it. A mutant is *not felt* if every trace stays the
same, byte for byte, in as many scenarios as the product ran without a mutant.
"""
_RULE: Final = """## Not tried

This was decided by reading, before any mutant ran. Words for people, lines of the log, annotations and the
conditions of loops are never changed. No mutant is tried of bounds against floods (constants whose names
begin with `MOST` or `MAX`), and none of these functions:
"""


class TrialFigures(Protocol):
    """The figures of one trial."""

    @property
    def group(self) -> str: ...  # noqa: D102 - see `MutantTrial`
    @property
    def module(self) -> str: ...  # noqa: D102
    @property
    def function(self) -> str: ...  # noqa: D102
    @property
    def words(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def promise(self) -> str: ...  # noqa: D102
    @property
    def cpu_s(self) -> float: ...  # noqa: D102
    @property
    def is_reached(self) -> bool: ...  # noqa: D102
    @property
    def is_felt(self) -> bool: ...  # noqa: D102


def markdown(
    trials: Sequence[TrialFigures],
    seconds: float,
    where: str,
    left_out: Mapping[str, Sequence[str]],
    reasons: Mapping[str, str],
) -> str:
    """The page. `where` says when and on which machine, `left_out` which functions are not tried, by reason;
    `reasons` why mutants survive, by their names."""
    groups = list(dict.fromkeys(trial.group for trial in trials))
    modules = list(dict.fromkeys(trial.module for trial in trials if trial.group != "by hand"))
    promises = Counter(trial.promise.partition(":")[0] for trial in trials if trial.promise)
    survivors = [trial for trial in trials if not trial.promise]
    head = ("mutants", "found", "not reached", "not felt", "other survivors", "found of those reached")
    found_s = sorted(trial.cpu_s for trial in trials if trial.promise)
    parts = [
        _HEAD,
        f"{where}\n",
        f"    rspdns-lab mutants --count {sum(trial.group != 'by hand' for trial in trials)} "
        f"--seconds {seconds:g} --json docs/results/mutants.jsonl\n",
        table(
            ("rules of", *head),
            [_row(group, [trial for trial in trials if trial.group == group]) for group in groups]
            + [_row("all", trials)],
        ),
    ]
    if found_s:
        parts.append(
            f"Processor time until one was found: median {found_s[len(found_s) // 2]:.1f} s, "
            f"longest {found_s[-1]:.1f} s.\n"
        )
    parts += [
        "## By module\n",
        table(
            ("module", *head),
            [_row(f"`{name}`", [trial for trial in trials if trial.module == name]) for name in modules],
        ),
        "## Found by\n",
        table(("promise", "mutants"), [(_words(name), str(count)) for name, count in promises.most_common()]),
        "## Survivors\n",
        table(
            ("where", "change", "why, as far as reading tells"),
            [_survivor(trial, reasons.get(trial.name, "")) for trial in survivors],
        )
        if survivors
        else "None.\n",
        _RULE,
        table(
            ("reason", "functions"),
            [(reason, ", ".join(f"`{each}`" for each in names)) for reason, names in left_out.items()],
        ),
    ]
    return "\n".join(parts)


def _row(name: str, trials: Sequence[TrialFigures]) -> tuple[str, ...]:
    found = sum(bool(trial.promise) for trial in trials)
    unreached = sum(not trial.is_reached for trial in trials)
    unfelt = sum(not trial.promise and trial.is_reached and not trial.is_felt for trial in trials)
    reached = len(trials) - unreached
    share = f"{found / reached:.0%}" if reached else ""
    others = reached - found - unfelt
    return (name, *map(str, (len(trials), found, unreached, unfelt, others)), share)


def _survivor(trial: TrialFigures, reason: str) -> tuple[str, ...]:
    change = trial.words.replace("|", "\\|")
    kind = "not reached" if not trial.is_reached else "" if trial.is_felt else "not felt"
    return f"`{trial.function or trial.module}`", f"`{change}`", ": ".join(filter(None, (kind, reason)))


def _words(name: str) -> str:
    return name.replace("_", " ")
