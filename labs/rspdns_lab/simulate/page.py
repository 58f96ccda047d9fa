"""The page of results of `rspdns-lab simulate`. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = """<!-- Made by the command below; not to be edited by hand. -->

# Faults, simulated

The whole chain on a virtual clock: three registrars, ten servers with their sidecars, two name servers.
The seed of a scenario chooses which faults come, when, and for how long.
[The lab](../reference/labs.md#faults-simulated) says what is real and what is a model.
"""


def markdown(outcomes: Sequence[Mapping[str, Any]], minutes: float, where: str) -> str:
    """The page, of at least one outcome; `where` says when and on which machine."""
    hours = sum(outcome["minutes"] for outcome in outcomes) / 60
    cpu_s = sum(outcome["cpu_s"] for outcome in outcomes)
    seeds = [outcome["seed"] for outcome in outcomes]
    kinds = Counter(fault.split()[1] for outcome in outcomes for fault in outcome["faults"])
    worst: dict[str, tuple[float, int]] = {}
    for outcome in outcomes:
        for kind, worst_s in outcome["worst_s"].items():
            worst[kind] = max(worst.get(kind, (0.0, 0)), (worst_s, outcome["seed"]))
    broken = Counter(each["promise"] for outcome in outcomes for each in outcome["broken"])
    first = {each["promise"]: outcome["seed"] for outcome in reversed(outcomes) for each in outcome["broken"]}
    command = f"rspdns-lab simulate --seed {min(seeds)} --scenarios {len(outcomes)} --minutes {minutes:g}"
    figures = [
        ("scenarios", f"{len(outcomes):,}"),
        ("simulated hours", f"{hours:,.1f}"),
        ("times as fast as real time, on one processor", f"{hours * 3600 / max(cpu_s, 1e-9):.1f}"),
        ("faults", f"{kinds.total():,}"),
        ("answers looked at", f"{sum(outcome['answers'] for outcome in outcomes):,}"),
        ("scenarios with a broken promise", str(sum(bool(outcome["broken"]) for outcome in outcomes))),
    ]
    parts = [
        _HEAD,
        f"{where}\n",
        f"    {command}\n",
        table(("", ""), figures),
        "## Worst times\n\nA dead server was named for so long, by how it died; a live one was missing.\n",
        table(
            ("how", "at most", "seed"),
            [(kind, f"{time_s * 1000:.0f} ms", str(seed)) for kind, (time_s, seed) in sorted(worst.items())],
        ),
        "## Broken promises\n",
        table(
            ("promise", "scenarios", "first seed"),
            [
                (name.replace("_", " "), str(count), str(first[name]))
                for name, count in sorted(broken.items())
            ],
        )
        if broken
        else "None.\n",
        "## Faults\n",
        table(("fault", "times"), [(name, f"{count:,}") for name, count in sorted(kinds.items())]),
    ]
    return "\n".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
