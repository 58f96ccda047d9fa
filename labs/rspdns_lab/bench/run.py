"""`rspdns-lab bench`: what is to be measured, in which order; what was measured already is not again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rspdns_lab.bench import fast_path, flood, scale
from rspdns_lab.bench.convergence import PORTS, Followed, run_convergence
from rspdns_lab.bench.flood import Beside, Flood, read_flood, run_flood
from rspdns_lab.bench.gate import KINDS as KINDS_AT_GATE
from rspdns_lab.bench.gate import Guarded, run_gate
from rspdns_lab.bench.questions import Rate, run_round, variants_running
from rspdns_lab.bench.registrars import Borne, run_registrars
from rspdns_lab.bench.scale import Extent, Size, run_size
from rspdns_lab.bench.strangers import KINDS, Strangers, run_strangers
from rspdns_lab.bench.variants import BY_KEY
from rspdns_lab.net.network import Network
from rspdns_lab.net.preconditions import check_programs

PARTS: Final = ("questions", "changes", "flood", "scale", "registrars", "strangers", "gate")
HOST: Final = ("bench", "10.77.0.254")
Result = Rate | Followed | Size | Borne | Flood | Strangers | Guarded
Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """The parts to be measured: `parts` of PARTS; `variants`, by their keys, in `rounds` of `seconds` each.

    `trials`: how many changes are watched, idle and loaded. `sizes`: pools, and elements in each.
    `registrars`: elements, and the interval in ms at which three registrars ask each.
    `strangers`: which of KINDS are let loose.
    """

    parts: Sequence[str] = PARTS
    variants: Sequence[str] = tuple(BY_KEY)
    rounds: int = 5
    seconds: int = 5
    trials: int = 1000
    sizes: Sequence[tuple[int, int]] = scale.SIZES
    extent: Extent = scale.FULL
    registrars: Sequence[tuple[int, int]] = ()
    labels: Sequence[int] = flood.LABELS
    floods_per_s: Sequence[int] = flood.FLOODS_PER_S
    strangers: Sequence[str] = KINDS


def check(order: Order) -> None:
    """Raise LabError when a program is missing."""
    needed: dict[str, str] = {}
    if "questions" in order.parts:
        needed |= {BY_KEY[key].program: BY_KEY[key].package for key in order.variants}
    if "flood" in order.parts:
        needed["pdns_server"] = "pdns-backend-bind"
    if {"questions", "changes", "flood"} & set(order.parts):
        needed["dnsperf"] = "dnsperf"
    check_programs(needed)


def run_bench(
    order: Order, found: Sequence[Result], folder: Path, prefix: str, say: Say
) -> Iterator[Sequence[Result]]:
    """Measure what `found` does not hold yet; yield results as they come. Raises LabError.

    `folder` takes the files of the run, `prefix` begins the names of its namespaces.
    """
    if "changes" in order.parts and order.trials:
        kinds = {one.kind for one in found if isinstance(one, Followed)}
        for kind in PORTS:
            if kind not in kinds and not (kind == "fastpath" and fast_path.why_not()):
                with Network(prefix) as network:
                    host = network.add_host(*HOST)
                    yield [run_convergence(host, folder, kind, order.trials, say)]
    if "questions" in order.parts:
        yield from _rounds(order, found, folder, prefix, say)
    if "flood" in order.parts:
        done = {one.round for one in found if isinstance(one, Beside)}
        rounds = [number for number in range(1, order.rounds + 1) if number not in done]
        if rounds:
            with Network(prefix) as network:
                host = network.add_host(*HOST)
                run = run_flood(host, folder, rounds, order.seconds, order.labels, order.floods_per_s, say)
                for one in run:
                    yield [one]
    if "scale" in order.parts:
        sizes = {(one.pools, one.members) for one in found if isinstance(one, Size)}
        for pools, members in order.sizes:
            if (pools, members) not in sizes:
                own = folder / f"scale-{pools}-{members}"
                yield [run_size(prefix, own, pools, members, order.extent, say)]
    if "registrars" in order.parts:
        asked = {(one.elements, one.wanted_ms) for one in found if isinstance(one, Borne)}
        for elements, interval_ms in order.registrars:
            if (elements, interval_ms) not in asked:
                own = folder / f"registrars-{elements}-{interval_ms}"
                seconds, trials = order.extent.look_s, min(5, order.extent.trials)
                yield [
                    run_registrars(prefix, own, elements, interval_ms, say, seconds=seconds, trials=trials)
                ]
    if "strangers" in order.parts:
        let_loose = {one.stranger for one in found if isinstance(one, Strangers)}
        for stranger in order.strangers:
            if stranger not in let_loose:
                own = folder / f"strangers-{stranger}"
                yield [run_strangers(prefix, own, stranger, 3.0 * order.seconds, say)]
    if "gate" in order.parts:
        measured = {one.round for one in found if isinstance(one, Guarded)}
        if rounds := [number for number in range(1, order.rounds + 1) if number not in measured]:
            yield from run_gate(prefix, folder / "gate", rounds, order.seconds, say)


def _rounds(
    order: Order, found: Sequence[Result], folder: Path, prefix: str, say: Say
) -> Iterator[Sequence[Result]]:
    done = {(one.round, one.variant) for one in found if isinstance(one, Rate)}
    rounds = {
        number: [key for key in order.variants if (number, key) not in done]
        for number in range(1, order.rounds + 1)
    }
    if not any(rounds.values()):
        return
    with Network(prefix) as network:
        host = network.add_host(*HOST)
        say(f"starting {len(order.variants)} name servers")
        with variants_running(host, folder, order.variants) as programs:
            for number, keys in rounds.items():
                if keys:
                    for rate in run_round(host, folder, number, programs, keys, order.seconds, say):
                        yield [rate]


def read_result(fields: Mapping[str, Any]) -> Result:
    """Return a result as it was written to JSON. Raises TypeError or LookupError for something else."""
    kinds_of_part = KINDS_AT_GATE if fields.get("part") == "gate" else PORTS
    kind = fields.get("kind")
    if fields.get("variant", "live_qps") not in BY_KEY or not (kind is None or kind in kinds_of_part):
        raise LookupError("a measurement that there isn't")
    if fields.get("part") == "flood":
        return read_flood(fields)
    kinds: dict[str, type[Rate | Followed | Size | Borne | Strangers | Guarded]] = {
        "questions": Rate,
        "changes": Followed,
        "scale": Size,
        "registrars": Borne,
        "strangers": Strangers,
        "gate": Guarded,
    }
    rest = {key: value for key, value in fields.items() if key != "part"}
    if "times_ms" in rest:
        rest["times_ms"] = tuple(rest["times_ms"])
    return kinds[fields["part"]](**rest)
