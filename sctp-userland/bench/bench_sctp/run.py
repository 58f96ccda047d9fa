"""The SCTP benchmark: what this host's SCTP costs beside kernel UDP and TCP, in one run.

Everything runs in a network namespace of its own, on loopback. `round_trips.c` measures
round trips, `peers.py` the rest.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from registrar_config import SCTPD_OPTIONS
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, LabNetwork, processes_in
from rspdns_lab.net.preconditions import compile_c, find_sctp

from bench_sctp.report import MEASUREMENTS, TITLES, Measured

_PEERS: Final = Path(__file__).with_name("peers.py")
_ROUND_TRIPS_SOURCE: Final = Path(__file__).parents[1] / "round_trips.c"
_IN_PROCESS: Final = Path(__file__).parents[2] / "build" / "in-process"
_MEASUREMENT_TIMEOUT_S: Final = 900.0
_SOAK_SLOWEST_PER_S: Final = 50.0
_PERCENT: Final = 100.0


@dataclass(frozen=True)
class Repetitions:
    """How much is measured."""

    round_trips: int = 2000
    messages: int = 50_000
    associations: int = 1000
    idle_associations: int = 100
    idle_s: float = 30.0
    kills: int = 100
    soak: int = 100_000


QUICK: Final = Repetitions(200, 2000, 100, 100, 3.0, 20, 10_000)


def run_sctp_bench(
    prefix: str,
    extent: Repetitions,
    measurements: Collection[str],
    say: Callable[[str], None],
) -> Iterator[Sequence[Measured]]:
    """Do these of the MEASUREMENTS; yield each when it is done. Raises LabError."""
    with LabNetwork(prefix) as network:
        shipped, beating = network.add_host("shipped", "10.78.0.1"), network.add_host("beating", "10.78.0.2")
        yield from _Bench(shipped, beating, extent, say).run(measurements)


class _Bench:
    """Two hosts: sctpd has the options it is shipped with, and on the second heartbeats each second."""

    def __init__(self, shipped: Host, beating: Host, extent: Repetitions, say: Callable[[str], None]) -> None:
        self._shipped, self._beating = shipped, beating
        self._extent = extent
        self._say = say
        self._sctp = find_sctp()

    def run(self, measurements: Collection[str]) -> Iterator[Sequence[Measured]]:
        steps = (self._round_trips, self._streams, self._hold, self._idle, self._killed, self._soak)
        for name, step in zip(MEASUREMENTS, steps, strict=True):
            if name in measurements:
                self._say(f"measuring {name}")
                figures = step()
                for key, value in figures.items():
                    self._say(f"{TITLES[key]}: {value:,.2f}")
                yield [Measured(name, figures)]

    def _round_trips(self) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            program = compile_c(_ROUND_TRIPS_SOURCE, Path(folder) / "round_trips")
            command = [str(program), str(self._extent.round_trips)]
            got = self._measure(command, before=_on_one_processor())
        alone = self._usrsctp(before=_on_one_processor())
        return {
            "udp_round_trip_us": got["udp"],
            "sctp_round_trip_us": got["sctp"],
            "round_trip_ratio": got["sctp"] / got["udp"],
            "round_trip_ratio_best": got["best_ratio"],
            **({"usrsctp_round_trip_us": alone["round_trip_us"]} if alone else {}),
        }

    def _streams(self) -> dict[str, float]:
        rates = self._measure(_peers("streams", self._extent.messages))
        figures = {f"{style}_messages_per_s": rate for style, rate in rates.items()}
        if alone := self._usrsctp():
            figures["usrsctp_messages_per_s"] = alone["messages_per_s"]
            figures["usrsctp_ratio"] = rates["sctp"] / alone["messages_per_s"]
        return figures

    def _usrsctp(self, before: Sequence[str] = ()) -> dict[str, float]:
        """Return what libusrsctp reaches without sctpd; nothing where a kernel has SCTP or it isn't built.

        `before` is the beginning of the command.
        """
        if not (self._sctp.wrapper and _IN_PROCESS.exists()):
            return {}
        numbers = (str(self._extent.messages), str(self._extent.round_trips))
        alone = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"')
        try:
            done = subprocess.run(
                [*before, *alone, str(_IN_PROCESS), *numbers],
                capture_output=True,
                text=True,
                timeout=_MEASUREMENT_TIMEOUT_S,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise LabError(f"libusrsctp by itself could not be measured: {error}") from None
        result: dict[str, float] = json.loads(done.stdout)
        return result

    def _hold(self) -> dict[str, float]:
        with self._started(_peers("hold", self._extent.associations)) as held:
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
                command = _peers("hold", self._extent.idle_associations)
                _result(stack.enter_context(self._started(command, host)))
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
            got = self._measure(_peers(measurement, self._extent.kills))
            key = measurement.replace("-", "_")
            figures[f"{key}_quarter_ms"] = got["quarter_ms"]
            figures[f"{key}_median_ms"] = got["median_ms"]
            figures[f"{key}_p99_ms"] = got["p99_ms"]
            figures[f"{key}_tcp_median_ms"] = got["tcp_median_ms"]
        return figures

    def _soak(self) -> dict[str, float]:
        timeout_s = _MEASUREMENT_TIMEOUT_S + self._extent.soak / _SOAK_SLOWEST_PER_S
        got = self._measure(_peers("soak", self._extent.soak), timeout_s)
        return {
            "soak_requests": got["asked"],
            "soak_lost": got["lost"],
            "soak_wrong": got["wrong"],
            "soak_per_s": got["per_s"],
        }

    def _measure(
        self,
        command: Sequence[str],
        timeout_s: float = _MEASUREMENT_TIMEOUT_S,
        before: Sequence[str] = (),
    ) -> dict[str, Any]:
        with self._started(command, before=before) as process:
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise LabError(f"{shlex.join(command)} did not end within {timeout_s:.0f} s") from None
        if process.returncode != 0 or not output:
            raise LabError(f"{shlex.join(command)} failed:\n{errors.strip()}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    @contextlib.contextmanager
    def _started(
        self, command: Sequence[str], host: Host | None = None, before: Sequence[str] = ()
    ) -> Iterator[subprocess.Popen[str]]:
        inside = ["nsenter", f"--net={(host or self._shipped).path}", "--", *self._sctp.command(command)]
        options = SCTPD_OPTIONS + (" --heartbeat 1000" if host is self._beating else "")
        process = subprocess.Popen(
            [*before, *inside],
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


def _peers(measurement: str, number: int) -> list[str]:
    """Return the command for one of the measurements in `peers.py`."""
    return [sys.executable, str(_PEERS), measurement, str(number)]


def _on_one_processor() -> Sequence[str]:
    """Return how a command begins whose processes share one processor.

    Otherwise the scheduler decides whether the two ends of UDP share one, which makes their round trip three
    times as short as that of ends that wake up each other's processor. Those of SCTP never share one with
    sctpd as well.
    """
    return ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))


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
