"""The results of `make -C sctp-userland bench`: the figures, their titles and aims; their table, and one HTML
page with plots. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from rspdns_lab.report.page import Page, Rows, Section
from rspdns_lab.report.plots import Bars, in_digits

AIMS: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        "round_trip_ratio": ("<=", 7.0),
        "usrsctp_ratio": (">=", 0.25),
        "associations_held": (">=", 1.0),
        "idle_cpu_percent": ("<", 1.0),
        "killed_median_ms": ("<", 10.0),
        "killed_group_median_ms": ("<", 10.0),
        "soak_lost": ("<=", 0.0),
        "soak_wrong": ("<=", 0.0),
    }
)
"""The aim of each figure. `associations_held` is the part of those asked for.

The ratio of round trips was 4.9 to 6.1 in 13 measurements on a busy machine, and 5.4 to 6.3 on a quiet one:
`sctpd` has two turns in each.
"""
TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "udp_round_trip_us": "round trip over UDP, between two C programs (µs)",
        "sctp_round_trip_us": "round trip over SCTP, the same (µs)",
        "round_trip_ratio": "SCTP round trip against UDP",
        "round_trip_ratio_best": "the same, in the best of seven rounds",
        "usrsctp_round_trip_us": "round trip of libusrsctp itself, both ends in one C program (µs)",
        "sctp_messages_per_s": "messages/s, 100 bytes, one association",
        "udp_messages_per_s": "messages/s received, UDP",
        "tcp_messages_per_s": "messages/s, TCP",
        "usrsctp_messages_per_s": "messages/s of libusrsctp itself, both ends in one C program",
        "usrsctp_ratio": "messages/s of SCTP against libusrsctp itself",
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
_INTRO: Final = (
    "This host's SCTP (sctpd's, or the kernel's) beside kernel UDP and TCP, in one run, on loopback in a "
    "network namespace of its own."
)
_PLOTS: Final = (
    (
        "Round trip, both ends in C. Green is SCTP.",
        "µs",
        ("udp_round_trip_us", "sctp_round_trip_us", "usrsctp_round_trip_us"),
    ),
    (
        "Messages of 100 bytes a second, one association. Green is SCTP.",
        "messages a second",
        ("udp_messages_per_s", "tcp_messages_per_s", "sctp_messages_per_s", "usrsctp_messages_per_s"),
    ),
    (
        "From kill -9 to the peer being told. Green is SCTP.",
        "ms",
        (
            "killed_tcp_median_ms",
            "killed_quarter_ms",
            "killed_median_ms",
            "killed_p99_ms",
            "killed_group_tcp_median_ms",
            "killed_group_quarter_ms",
            "killed_group_median_ms",
            "killed_group_p99_ms",
        ),
    ),
)
_BARS: Final = {
    "killed_tcp_median_ms": "TCP, one process: median",
    "killed_group_tcp_median_ms": "TCP, a group of four: median",
}
"""Titles of bars whose title in the table says \"the same\"."""


@dataclass(frozen=True)
class Measured:
    """The result of one of the MEASUREMENTS: figures by their keys in `TITLES`.

    Those of sctpd itself, and of libusrsctp, are missing where the kernel has SCTP.
    """

    measurement: str
    figures: Mapping[str, float]


def figures_of(found: Iterable[Measured]) -> dict[str, float]:
    """Return all figures, in the order of `TITLES`."""
    known = {key: value for measured in found for key, value in measured.figures.items()}
    return {key: known[key] for key in TITLES if key in known}


def read_measured(fields: Mapping[str, Any]) -> Measured:
    """Return one as `asdict` gave it to JSON. Raises TypeError or LookupError for something else."""
    if fields["measurement"] not in MEASUREMENTS or not TITLES.keys() >= fields["figures"].keys():
        raise LookupError(fields["measurement"])
    return Measured(**fields)


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


def table(figures: Mapping[str, float]) -> Rows:
    """Return a row for each figure, with its aim."""
    rows = [("figure", "measured", "aim")]
    for key, value in figures.items():
        aim = " ".join((AIMS[key][0], f"{AIMS[key][1]:g}")) if key in AIMS else ""
        rows.append((TITLES[key], in_digits(value), aim))
    return rows


def page_of(found: Sequence[Measured]) -> Page:
    """Return the page."""
    figures = figures_of(found)
    late = "; ".join(TITLES[key] for key in missed(figures))
    text = f"Missed its aim: {late}." if late else "Every aim was reached."
    plots = [
        Bars(caption, unit, {_BARS.get(key, TITLES[key]): figures[key] for key in known}, _of_sctp(known))
        for caption, unit, keys in _PLOTS
        if (known := [key for key in keys if key in figures])
    ]
    return Page("What SCTP costs", _INTRO, [Section("Figures", text, table(figures), plots)])


def _of_sctp(keys: Sequence[str]) -> list[str]:
    return [_BARS.get(key, TITLES[key]) for key in keys if "tcp" not in key and "udp" not in key]
