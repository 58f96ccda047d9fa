"""One question of the benchmark: how it is measured, and its part of the page.

Each question is a module with a `PART`; a new one is added to `PARTS` in `cli.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from rspdns_lab.report.page import Section

T = TypeVar("T")
HOST: Final = ("bench", "10.77.0.254")
"""Name and address of the host of the questions that need only one."""


@dataclass(frozen=True)
class Run:
    """How much is measured: `variants` of name servers by their keys, in `rounds` of `seconds` each; `trials`
    changes, idle and loaded. `quick`: of everything little.

    `folder` takes the files of the run, `prefix` begins the names of its namespaces.
    """

    variants: Sequence[str]
    rounds: int
    seconds: int
    trials: int
    quick: bool
    folder: Path
    prefix: str
    say: Callable[[str], None]

    def rounds_left(self, done: Sequence[int]) -> list[int]:
        """Return the rounds, from 1, that are still to be measured."""
        return [number for number in range(1, self.rounds + 1) if number not in done]


@dataclass(frozen=True)
class Part(Generic[T]):
    """A question. A result T is a dataclass of `kinds`.

    `measure` yields the results that those before lack; it may raise LabError. `read` makes a result of its
    fields; it raises TypeError or LookupError for something else. `programs`: what it needs, and the Debian
    packages. `title`, `intro`: of a page that begins with it. `sections` and `figures` get at least one
    result.
    """

    name: str
    title: str
    kinds: tuple[type[T], ...]
    measure: Callable[[Run, Sequence[T]], Iterator[Sequence[T]]]
    sections: Callable[[Sequence[T]], Sequence[Section]]
    figures: Callable[[Sequence[T]], Mapping[str, float]]
    read: Callable[[Mapping[str, Any]], T]
    programs: Callable[[Run], Mapping[str, str]] = lambda _: {}
    intro: str = ""

    def own(self, found: Sequence[object]) -> list[T]:
        """Return those of the results that answer this question."""
        return [result for result in found if isinstance(result, self.kinds)]
