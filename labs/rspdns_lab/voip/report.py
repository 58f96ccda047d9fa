"""The results of `rspdns-lab voip`, as a page: ours beside those published in 2008."""

import statistics
from collections.abc import Sequence
from typing import Any, Final

from rspdns_lab.report.page import Columns, Page, Rows, Section, table_of
from rspdns_lab.report.plots import BLUE, GREEN, GREY, ORANGE, RED, Curve, Curves, Dots, Plot
from rspdns_lab.voip.paths import PAIRS
from rspdns_lab.voip.quality import CODECS, frame_bytes
from rspdns_lab.voip.run import CARRIED, FAULTS, SWEEP_PATHS, VoipTrial

AUDIBLE_MS: Final = 150
MOST_LATE_MS: Final = 400
PUBLISHED: Final = {"soft": (0.6, 328.0), "hard": (199.0, 2924.0)}
"""The least and the longest of seven runs, ms, at 81,600 packets a second."""
_PUBLISHED_FRAMES: Final = {"g711": (214, 206), "g726": (134, 126), "gsm-25": (120, 112), "gsm": (87, 79)}
_INTRO: Final = (
    "Synthetic calls, each with an address and a port of its own, both directions at once. Gaps and glitches "
    "are lost packets / packet rate. Delays are without the time that it takes to send a packet. The opinion "
    "(MOS) is that of the E-model, ITU-T G.107, with a jitter buffer of 40 ms, over all of the run."
)
_CALLS_TEXT: Final = (
    "ITU-T G.113 gives no robustness against lost packets (Bpl) for G.726 and GSM: that of GSM EFR stands in."
)
_SWEEP_TEXT: Final = (
    "Firewalls of 2008 were saturated when receive livelock took the processor. Here generator, firewalls "
    "and receiver share the processors, and a virtual cable has the sender's processor forward its packets: "
    "saturation shows as packets that were planned and not sent, without livelock."
)
_FAILOVER_TEXT: Final = (
    "Firewalls admit new flows only while calls are set up, as by a pinhole that signalling opens, unless "
    f"callers may open flows. From {AUDIBLE_MS} ms a gap is audible. If the generator was late, it sent "
    "less meanwhile, and a gap may be longer by as much. Published: seven runs, least and most."
)


def figures(_trials: Sequence[VoipTrial]) -> dict[str, Any]:
    """Return what programs want to know beside the trials: the figures of 2008."""
    return {"published": {"failover_ms": PUBLISHED, "forwarded_per_s": 125_000, "frames": _PUBLISHED_FRAMES}}


def problems(trials: Sequence[VoipTrial]) -> list[str]:
    """Return what spoils a trial: two counts that differ, calls intact through a cut, packets not sent."""
    found = []
    for trial in trials:
        name = f"{trial.part}, {trial.name}, trial {trial.trial}"
        if trial.unseen_loss:
            found.append(f"{name}: calls and packet filters differ by {trial.unseen_loss} lost packets")
        is_short = trial.sent_per_s < CARRIED * trial.planned_per_s or trial.behind_ms > MOST_LATE_MS
        if trial.part == "failover" and is_short:
            found.append(f"{name}: the machine is too busy to send {trial.planned_per_s:,.0f} packets/s")
        if trial.name.endswith(" hard") and trial.quality.intact:
            found.append(f"{name}: {trial.quality.intact} streams are counted as intact through a cut")
    return found


def page_of(trials: Sequence[VoipTrial]) -> Page:
    """Return the page."""
    calls, failovers, sweep = (
        [trial for trial in trials if trial.part == part] for part in ("calls", "failover", "sweep")
    )
    sections = []
    if calls:
        sections += [
            Section("Calls", "", table_of(_CALLS, calls), [_delays(calls)]),
            Section("Calls as they are heard", _CALLS_TEXT, table_of(_HEARD, calls)),
            Section("Frames", "Bytes on Ethernet, RTP/IAX2; the same as published.", _frames()),
        ]
    if failovers:
        rows, plot = _failovers(failovers)
        sections.append(Section("A firewall fails", _FAILOVER_TEXT, table_of(_FAILOVERS, rows), [plot]))
        sections.append(Section("Calls through a firewall that fails", "", table_of(_STREAMS, rows)))
    if sweep:
        plots = [_delivered(sweep), *_processors(sweep)]
        sections.append(Section("Load up to saturation", _SWEEP_TEXT, table_of(_SWEEP, sweep), plots))
        sections.append(Section("Load beside the published figures", "", _beside(sweep)))
    return Page("Voice through firewalls", _INTRO, sections)


def _frames() -> Rows:
    rows = [["codec", "RTP", "IAX2", "published"]]
    for codec, published in _PUBLISHED_FRAMES.items():
        ours = [str(frame_bytes(CODECS[codec], medium)) for medium in ("rtp", "iax2")]
        rows.append([CODECS[codec].title, *ours, "{}/{}".format(*published)])
    return rows


def _beside(sweep: Sequence[VoipTrial]) -> Rows:
    sent = max((trial.sent_per_s for trial in sweep if trial.name == "cable"), default=0.0)
    passed = max((trial.delivered_per_s for trial in sweep if trial.name == "firewalls"), default=0.0)
    return [
        ["most packets a second", "published, 2008", "here"],
        ["generated", "277,448 to 400,360", f"{sent:,.0f}"],
        ["passed on", "125,000 (2,500 calls)", f"{passed:,.0f} ({passed / 100:,.0f} calls)"],
    ]


def _failovers(trials: Sequence[VoipTrial]) -> tuple[Sequence[dict[str, Any]], Plot]:
    rows: list[dict[str, Any]] = []
    for fault in FAULTS:
        for pair in PAIRS:
            of = [trial for trial in trials if trial.name == f"{pair} {fault}"]
            if of:
                rows.append({"who": f"{fault}: {PAIRS[pair].title}", "title": f"{fault}: {pair}", **_sum(of)})
        ends = PUBLISHED[fault]
        published: dict[str, Any] = {"trials": 7, "least": ends[0], "longest": ends[1], "gaps": ends}
        unknown = dict.fromkeys(("median", "glitch", "intact", "cut", "directions", "mos", "late"), "-")
        who = f"{fault}: published, 2008"
        rows.append({"who": who, "title": who, "rate": "81,600", **published, **unknown})
    caption = f"Longest gaps, a dot for each trial. Red: {AUDIBLE_MS} ms, audible. Published: the ends."
    titles = [row["title"] for row in rows]
    return rows, Dots(caption, "ms", titles, {"": [row["gaps"] for row in rows]}, [AUDIBLE_MS] * len(rows))


def _sum(of: Sequence[VoipTrial]) -> dict[str, Any]:
    longest = [trial.quality.longest_gap_ms for trial in of]
    return {
        "trials": len(of),
        "rate": f"{min(trial.sent_per_s for trial in of):,.0f}",
        "least": min(longest),
        "gaps": longest,
        "median": f"{statistics.median(longest):,g}",
        "longest": max(longest),
        "glitch": f"{max(trial.quality.glitch_ms for trial in of):,.0f}",
        "intact": f"{sum(trial.quality.intact for trial in of):,}",
        "cut": f"{sum(trial.quality.cut_off for trial in of):,}",
        "directions": f"{sum(trial.quality.directions for trial in of):,}",
        "mos": f"{statistics.mean(trial.quality.mos for trial in of):.2f}",
        "late": f"{max(trial.behind_ms for trial in of):,.0f}",
    }


def _delays(calls: Sequence[VoipTrial]) -> Dots:
    series = {part: [[getattr(trial, f"delay_{part}_ms")] for trial in calls] for part in ("p50", "p99")}
    return Dots("Delay of a packet.", "ms", [trial.name for trial in calls], series)


def _delivered(trials: Sequence[VoipTrial]) -> Curves:
    curves = [
        _curve(title, [trial for trial in trials if trial.name == name], "{0.delivered_per_s}", colour)
        for (name, title), colour in zip(SWEEP_PATHS.items(), (GREEN, BLUE), strict=True)
    ]
    caption = "Packets delivered; dashed: where firewalls of 2008 were saturated"
    return Curves(caption, _PLANNED, "delivered packets/s", curves, "xy", at_y=[(125_000, RED)])


def _processors(trials: Sequence[VoipTrial]) -> list[Curves]:
    plots = []
    for name, title in SWEEP_PATHS.items():
        of = [trial for trial in trials if trial.name == name]
        states = {"user": ORANGE, "system": BLUE, "softirq": RED, "idle": GREY}
        curves = [_curve(state, of, f"{{0.processor[{state}]}}", ink) for state, ink in states.items()]
        plots += [Curves(f"Processor states, by {title}", _PLANNED, "%", curves, "x")] if of else []
    return plots


def _curve(label: str, trials: Sequence[VoipTrial], value: str, colour: str) -> Curve:
    values = [float(value.format(trial)) for trial in trials]
    return Curve(label, [trial.planned_per_s for trial in trials], values, colour)


_PLANNED: Final = "planned packets/s"
_FAILOVERS: Final[Columns[dict[str, Any]]] = (
    *(("fault and firewalls", "{who}"), ("trials", "{trials}"), ("packets/s sent", "{rate}")),
    *(("longest gap ms: least", "{least:,g}"), ("median", "{median}"), ("most", "{longest:,g}")),
    ("late ms", "{late}"),
)
_STREAMS: Final[Columns[dict[str, Any]]] = (
    *(("fault and firewalls", "{who}"), ("glitch ms, the longest", "{glitch}"), ("streams", "{directions}")),
    *(("intact", "{intact}"), ("cut off", "{cut}"), ("MOS", "{mos}")),
)
_CALLS: Final[Columns[VoipTrial]] = (
    *(("run", "{name}"), (_PLANNED, "{planned_per_s:,.0f}"), ("sent", "{sent_per_s:,.0f}")),
    *(("lost packets", "{quality.lost:,}"), ("µs to send", "{packet_us:.1f}")),
    *(("delay p50 ms", "{delay_p50_ms:.3f}"), ("delay p99 ms", "{delay_p99_ms:.2f}")),
)
_HEARD: Final[Columns[VoipTrial]] = (
    *(("run", "{name}"), ("longest gap ms", "{quality.longest_gap_ms:,.0f}")),
    *(("longest glitch ms", "{quality.glitch_ms:,.0f}"), ("jitter ms", "{quality.jitter_ms:.3f}")),
    *(("MOS", "{quality.mos:.2f}"), ("worst", "{quality.worst_mos:.2f}")),
    ("RTCP", "{rtcp_received}/{rtcp_sent}"),
)
_SWEEP: Final[Columns[VoipTrial]] = (
    *(("path", lambda trial: SWEEP_PATHS[trial.name]), ("calls", "{run[calls]:,}")),
    *((_PLANNED, "{planned_per_s:,.0f}"), ("sent", "{sent_per_s:,.0f}")),
    *(("delivered", "{delivered_per_s:,.0f}"), ("µs to send", "{packet_us:.1f}")),
    ("delay p99 ms", "{delay_p99_ms:.2f}"),
)
