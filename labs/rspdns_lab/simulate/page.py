"""The page of results of `rspdns-lab simulate`. Pure."""

from collections import Counter
from collections.abc import Sequence

from rspdns_lab.report.plots import Bars
from rspdns_lab.simulate.soak import SoakResult, worst_of

_HEAD = """<!-- Made by the command below; not to be edited by hand. -->

# Faults, simulated

The whole chain on a virtual clock: registrars, servers with their sidecars, name servers. The seed of a
scenario chooses which faults come, when, and for how long.
[The lab](../reference/labs.md#faults-simulated) says what is real and what is a model.
"""
_VERSIONS = """## Versions of the code

A seed is another scenario once the code is another. Figures above are those of all versions, found promises
too; the last row is the newest version.
"""


def plots(results: Sequence[SoakResult]) -> list[Bars]:
    """The plots of the page: worst times, and how often each fault came."""
    worst = {kind: time_s * 1000 for kind, (time_s, _) in worst_of(results).items()}
    faults = {kind: float(count) for kind, count in sorted(_faults(results).items())}
    return [
        Bars("The worst time of each kind, in all scenarios.", "ms", worst, ()),
        Bars("How often each fault came.", "times", faults, ()),
    ]


def markdown(results: Sequence[SoakResult], where: str, command: str, pictures: Sequence[str]) -> str:
    """The page, of at least one result; `where` says when and on which machine the last ones came about.

    `pictures`: the files of its plots.
    """
    worst, faults = (
        f"![{plot.caption}]({file})\n" for plot, file in zip(plots(results), pictures, strict=True)
    )
    parts = [
        _HEAD,
        f"{where}\n",
        f"    {command}\n",
        table(("", "all versions", "the newest"), _figures(results)),
        "## Worst times\n\nA dead server was named for so long, by how it died; a live one was missing.\n",
        table(
            ("how", "at most", "seed"),
            [
                (kind, f"{time_s * 1000:.0f} ms", str(seed))
                for kind, (time_s, seed) in worst_of(results).items()
            ],
        ),
        worst,
        "## Broken promises\n",
        _broken(results),
        "## Faults\n",
        faults,
        _VERSIONS,
        table(
            ("code", "days", "seeds", "scenarios", "minutes each", "size", "broke a promise"),
            [_version(result) for result in results],
        ),
    ]
    return "\n".join(parts)


def _figures(results: Sequence[SoakResult]) -> list[tuple[str, str, str]]:
    newest = [result for result in results if result.code == results[-1].code]
    words = (
        "scenarios",
        "simulated hours",
        "times as fast as real time, on one processor",
        "faults",
        "answers looked at",
        "scenarios with a broken promise",
    )
    return list(zip(words, _totals(results), _totals(newest), strict=True))


def _totals(results: Sequence[SoakResult]) -> tuple[str, ...]:
    hours = sum(result.hours for result in results)
    return (
        f"{sum(result.scenarios for result in results):,}",
        f"{hours:,.1f}",
        f"{hours * 3600 / max(sum(result.cpu_s for result in results), 1e-9):.1f}",
        f"{_faults(results).total():,}",
        f"{sum(result.answers for result in results):,}",
        str(sum(result.failed for result in results)),
    )


def _faults(results: Sequence[SoakResult]) -> Counter[str]:
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
    return faults


def _broken(results: Sequence[SoakResult]) -> str:
    rows = [
        (promise.replace("_", " "), str(seed), result.code)
        for result in results
        for seed, promise in result.broken
    ]
    return table(("promise", "seed", "code"), rows) if rows else "None.\n"


def _version(result: SoakResult) -> tuple[str, ...]:
    days = result.began if result.began == result.ended else f"{result.began} to {result.ended}"
    return (
        f"`{result.code}`",
        days,
        f"{result.first} to {result.next_seed - 1}",
        f"{result.scenarios:,}",
        f"{result.minutes:g}",
        result.size,
        str(result.failed),
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
