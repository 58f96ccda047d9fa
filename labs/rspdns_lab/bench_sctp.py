"""The SCTP benchmark: what this host's SCTP costs beside kernel UDP and TCP, in one run.

Everything runs in a network namespace of its own, on loopback; see `bench_sctp_peers` for what is done there.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from registrar_config.kernel_timers import SCTPD_OPTIONS

from rspdns_lab.errors import LabError
from rspdns_lab.html_report import Table, markdown_table
from rspdns_lab.network import Host, Network, processes_in
from rspdns_lab.preconditions import find_sctp

_MEASUREMENT_TIMEOUT_S: Final = 900.0
_SOAK_SLOWEST_PER_S: Final = 50.0
_PERCENT: Final = 100.0


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    round_trips: int = 2000
    messages: int = 50_000
    associations: int = 1000
    idle_associations: int = 100
    idle_s: float = 30.0
    kills: int = 100
    soak: int = 100_000


QUICK: Final = Extent(200, 2000, 100, 100, 3.0, 20, 10_000)

AIMS: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        "round_trip_ratio": ("<=", 8.0),
        "associations_held": (">=", 1.0),
        "idle_cpu_percent": ("<", 1.0),
        "killed_median_ms": ("<", 10.0),
        "killed_group_median_ms": ("<", 10.0),
        "soak_lost": ("<=", 0.0),
        "soak_wrong": ("<=", 0.0),
    }
)
"""What each figure should be. `associations_held` is the part of those asked for."""

TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "udp_round_trip_us": "round trip over UDP, Python both ends (µs)",
        "sctp_round_trip_us": "round trip over SCTP, the same (µs)",
        "round_trip_ratio": "SCTP round trip against UDP",
        "round_trip_ratio_best": "the same, in the best of seven rounds",
        "sctp_messages_per_s": "messages/s, 100 bytes, one association",
        "udp_messages_per_s": "messages/s received, UDP",
        "tcp_messages_per_s": "messages/s, TCP",
        "associations": "associations asked for",
        "associations_held": "part of them held, and used twice",
        "associations_opened_per_s": "associations opened and used/s",
        "resident_mb": "memory of sctpd with them (MB)",
        "idle_cpu_percent": "sctpd with idle associations, as it is shipped (% of a core)",
        "idle_cpu_heartbeat_1s_percent": "the same with heartbeats each second, as some programs ask for",
        "killed_quarter_ms": "kill -9 to peer told, 25 % (ms)",
        "killed_median_ms": "kill -9 to peer told, median (ms)",
        "killed_p99_ms": "kill -9 to peer told, 99 % (ms)",
        "killed_tcp_median_ms": "the same over TCP, median (ms)",
        "killed_group_quarter_ms": "kill -9 of a group of four to each peer told, 25 % (ms)",
        "killed_group_median_ms": "kill -9 of a group of four to each peer told, median (ms)",
        "killed_group_p99_ms": "kill -9 of a group of four to each peer told, 99 % (ms)",
        "killed_group_tcp_median_ms": "the same over TCP, median (ms)",
        "soak_requests": "soak: requests, each answered",
        "soak_lost": "soak: lost",
        "soak_wrong": "soak: answered wrongly",
        "soak_per_s": "soak: requests/s, 8 associations",
    }
)


MEASUREMENTS: Final = ("round-trips", "streams", "hold", "idle", "killed", "soak")


@dataclass(frozen=True)
class Measured:
    """What one of the MEASUREMENTS came to: figures by their keys in `TITLES`.

    Those of sctpd itself are missing where the kernel has SCTP.
    """

    measurement: str
    figures: Mapping[str, float]


def figures_of(found: Iterable[Measured]) -> dict[str, float]:
    """Return all figures, in the order of `TITLES`."""
    known = {key: value for one in found for key, value in one.figures.items()}
    return {key: known[key] for key in TITLES if key in known}


def read_measured(fields: Mapping[str, Any]) -> Measured:
    """Return one as `asdict` gave it to JSON. Raises TypeError or LookupError for something else."""
    if fields["measurement"] not in MEASUREMENTS or not TITLES.keys() >= fields["figures"].keys():
        raise LookupError(fields["measurement"])
    return Measured(**fields)


def run_sctp_bench(
    prefix: str,
    extent: Extent,
    measurements: Collection[str],
    say: Callable[[str], None],
    take: Callable[[Measured], None],
) -> None:
    """Do these of the MEASUREMENTS; `take` gets each when it is done. Raises LabError."""
    with Network(prefix) as network:
        shipped, beating = network.add_host("shipped", "10.78.0.1"), network.add_host("beating", "10.78.0.2")
        _Bench(shipped, beating, extent, say).run(measurements, take)


def missed(figures: Mapping[str, float]) -> list[str]:
    """Return the keys of the figures that miss their aim."""
    return [
        key
        for key, (relation, bound) in AIMS.items()
        if key in figures
        and not {
            "<": figures[key] < bound,
            "<=": figures[key] <= bound,
            ">=": figures[key] >= bound,
        }[relation]
    ]


def as_markdown(figures: Mapping[str, float]) -> str:
    """Return the table of the report."""
    return markdown_table(table(figures)).rstrip("\n")


def table(figures: Mapping[str, float]) -> Table:
    """Return a row for each figure, with its aim."""
    rows = [("figure", "measured", "aim")]
    for key, value in figures.items():
        aim = " ".join((AIMS[key][0], f"{AIMS[key][1]:g}")) if key in AIMS else ""
        rows.append((TITLES[key], in_digits(value), aim))
    return rows


def in_digits(value: float) -> str:
    """Return a figure with as many digits as are worth reading."""
    return f"{value:,.{0 if value >= 1000 or value == int(value) else 2}f}"


class _Bench:
    """Two hosts: sctpd has the options it is shipped with, and on the second heartbeats each second."""

    def __init__(self, shipped: Host, beating: Host, extent: Extent, say: Callable[[str], None]) -> None:
        self._shipped, self._beating = shipped, beating
        self._extent = extent
        self._say = say
        self._sctp = find_sctp()

    def run(self, measurements: Collection[str], take: Callable[[Measured], None]) -> None:
        steps = (self._round_trips, self._streams, self._hold, self._idle, self._killed, self._soak)
        for name, step in zip(MEASUREMENTS, steps, strict=True):
            if name in measurements:
                self._say(f"measuring {name}")
                figures = step()
                for key, value in figures.items():
                    self._say(f"{TITLES[key]}: {value:,.2f}")
                take(Measured(name, figures))

    def _round_trips(self) -> dict[str, float]:
        got = self._measure("round-trips", self._extent.round_trips)
        return {
            "udp_round_trip_us": got["udp"],
            "sctp_round_trip_us": got["sctp"],
            "round_trip_ratio": got["sctp"] / got["udp"],
            "round_trip_ratio_best": got["best_ratio"],
        }

    def _streams(self) -> dict[str, float]:
        rates = self._measure("streams", self._extent.messages)
        return {f"{style}_messages_per_s": rate for style, rate in rates.items()}

    def _hold(self) -> dict[str, float]:
        with self._started("hold", self._extent.associations) as held:
            first = _result(held)
            resident_mb = _resident_mb(self._shipped)
            assert held.stdin is not None  # noqa: S101 - it was asked for
            held.stdin.write("again\n")
            held.stdin.flush()
            used_again = min(first["held"], _result(held)["held"])
        return {
            "associations": self._extent.associations,
            "associations_held": used_again / self._extent.associations,
            "associations_opened_per_s": first["opened_per_s"],
            **({} if resident_mb is None else {"resident_mb": resident_mb}),
        }

    def _idle(self) -> dict[str, float]:
        hosts = {"idle_cpu_percent": self._shipped, "idle_cpu_heartbeat_1s_percent": self._beating}
        figures: dict[str, float] = {}
        with contextlib.ExitStack() as stack:
            for host in hosts.values():
                _result(stack.enter_context(self._started("hold", self._extent.idle_associations, host)))
            time.sleep(1)
            before_s, started_s = {key: _cpu_s(host) for key, host in hosts.items()}, time.monotonic()
            time.sleep(self._extent.idle_s)
            for key, host in hosts.items():
                first_s, last_s = before_s[key], _cpu_s(host)
                if first_s is None:
                    return {}
                if last_s is None:
                    raise LabError("sctpd ended while associations were held")
                figures[key] = (last_s - first_s) / (time.monotonic() - started_s) * _PERCENT
        return figures

    def _killed(self) -> dict[str, float]:
        figures = {}
        for measurement in ("killed", "killed-group"):
            got = self._measure(measurement, self._extent.kills)
            key = measurement.replace("-", "_")
            figures[f"{key}_quarter_ms"] = got["quarter_ms"]
            figures[f"{key}_median_ms"] = got["median_ms"]
            figures[f"{key}_p99_ms"] = got["p99_ms"]
            figures[f"{key}_tcp_median_ms"] = got["tcp_median_ms"]
        return figures

    def _soak(self) -> dict[str, float]:
        timeout_s = _MEASUREMENT_TIMEOUT_S + self._extent.soak / _SOAK_SLOWEST_PER_S
        got = self._measure("soak", self._extent.soak, timeout_s)
        return {
            "soak_requests": got["asked"],
            "soak_lost": got["lost"],
            "soak_wrong": got["wrong"],
            "soak_per_s": got["per_s"],
        }

    def _command(self, measurement: str, number: int, host: Host) -> list[str]:
        peers = [sys.executable, "-m", "rspdns_lab.bench_sctp_peers", measurement, str(number)]
        return ["nsenter", f"--net={host.path}", "--", *self._sctp.command(peers)]

    def _measure(
        self, measurement: str, number: int, timeout_s: float = _MEASUREMENT_TIMEOUT_S
    ) -> dict[str, Any]:
        with self._started(measurement, number) as process:
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise LabError(f"{measurement} did not end within {timeout_s:.0f} s") from None
        if process.returncode != 0 or not output:
            raise LabError(f"{measurement} failed:\n{errors.strip()}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    @contextlib.contextmanager
    def _started(
        self, measurement: str, number: int, host: Host | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        options = SCTPD_OPTIONS + (" --heartbeat 1000" if host is self._beating else "")
        process = subprocess.Popen(
            self._command(measurement, number, host or self._shipped),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SCTPD_OPTIONS": options},
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def _daemon(host: Host) -> Path | None:
    for pid in processes_in(host.path):
        folder = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text().strip() == "sctpd":
                return folder
    return None


def _cpu_s(host: Host) -> float | None:
    daemon = _daemon(host)
    return int((daemon / "schedstat").read_text().split()[0]) / 1e9 if daemon else None


def _resident_mb(host: Host) -> float | None:
    daemon = _daemon(host)
    if daemon is None:
        return None
    lines = (daemon / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def _result(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    line = process.stdout.readline()
    if not line:
        raise LabError(f"a measurement failed:\n{process.communicate()[1].strip()}")
    result: dict[str, Any] = json.loads(line)
    return result
