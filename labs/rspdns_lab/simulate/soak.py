"""The results of scenarios, added up over many runs: a line of JSON for each version of the code.

`make soak` keeps them in docs/results/soak.jsonl, and goes on after the last seed in it. Seeds run with other
code are other scenarios: a line tells by which code, and the page by how much of it the present one has.
"""

import hashlib
import importlib.util
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rspdns_lab.errors import LabError
from rspdns_lab.report.files import write_whole

_SIMULATED: Final = (
    "daemon_kit",
    "pool_user",
    "ppe_agent",
    "registrar_config",
    "rserpool",
    "rspdns",
    "rspdns_lab.simulate",
)
_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class SoakResult:
    """The figures of all scenarios of one version of the code: seeds from `first` on, without a gap."""

    code: str
    """The version: `code_version`."""
    began: str
    """The day of the first scenario, ISO 8601."""
    ended: str
    first: int
    scenarios: int
    minutes: float
    """The length of each."""
    size: str
    """Registrars, servers, name servers."""
    cpu_s: float
    answers: int
    faults: Mapping[str, int]
    """How often each kind of fault came."""
    worst_s: Mapping[str, tuple[float, int]]
    """The worst time of each class, and the seed."""
    broken: Sequence[tuple[int, str]]
    """Seed and promise."""

    @property
    def hours(self) -> float:
        """Simulated hours."""
        return self.scenarios * self.minutes / 60

    @property
    def failed(self) -> int:
        """How many scenarios broke a promise."""
        return len({seed for seed, _ in self.broken})

    @property
    def next_seed(self) -> int:
        """The seed after the last."""
        return self.first + self.scenarios

    def with_next(self, other: "SoakResult") -> "SoakResult | None":
        """Both together, where `other` goes on with the same code, length and size; else None."""
        if (self.code, self.minutes, self.size, self.next_seed) != (
            other.code,
            other.minutes,
            other.size,
            other.first,
        ):
            return None
        return SoakResult(
            self.code,
            self.began,
            other.ended,
            self.first,
            self.scenarios + other.scenarios,
            self.minutes,
            self.size,
            round(self.cpu_s + other.cpu_s, 1),
            self.answers + other.answers,
            dict(sorted((Counter(self.faults) + Counter(other.faults)).items())),
            worst_of((self, other)),
            (*self.broken, *other.broken),
        )


def worst_of(results: Sequence[SoakResult]) -> dict[str, tuple[float, int]]:
    """The worst time of each class, and its seed."""
    worst: dict[str, tuple[float, int]] = {}
    for result in results:
        for kind, (worst_s, seed) in result.worst_s.items():
            worst[kind] = max(worst.get(kind, (0.0, 0)), (worst_s, seed))
    return dict(sorted(worst.items()))


def result_of(outcome: Mapping[str, Any], size: str, day: str) -> SoakResult:
    """The result of one scenario, by the figures of its worker."""
    seed = outcome["seed"]
    return SoakResult(
        outcome["code"],
        day,
        day,
        seed,
        1,
        outcome["minutes"],
        size,
        outcome["cpu_s"],
        outcome["answers"],
        dict(Counter(fault.split()[1] for fault in outcome["faults"])),
        {kind: (worst_s, seed) for kind, worst_s in outcome["worst_s"].items()},
        [(seed, broken["promise"]) for broken in outcome["broken"]],
    )


def added(results: Sequence[SoakResult], new: SoakResult) -> list[SoakResult]:
    """The results with a new one, which lengthens the last where it goes on with it."""
    longer = results[-1].with_next(new) if results else None
    return [*results, new] if longer is None else [*results[:-1], longer]


def read_results(path: Path) -> list[SoakResult]:
    """Read a file of results; none where it is not there. Raises LabError when it is something else."""
    try:
        lines = path.read_text().splitlines() if path.exists() else []
        return [SoakResult(**json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError) as problem:
        raise LabError(f"{path} has no results of this lab ({problem}): name another file") from None


def write_results(path: Path, results: Sequence[SoakResult]) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    write_whole(path, "".join(f"{json.dumps(asdict(result))}\n" for result in results))


def code_version() -> str:
    """The hash of all code that scenarios run, tests and documentation left out."""
    digest = hashlib.sha256()
    for package in _SIMULATED:
        spec = importlib.util.find_spec(package)
        assert spec is not None  # noqa: S101 - they are ours
        for folder in spec.submodule_search_locations or ():
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:_DIGITS]
