"""The results of `rspdns-lab bench`: figures for programs, tables, and one HTML page with plots."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rspdns_lab.bench import convergence, scale
from rspdns_lab.bench.convergence import Followed
from rspdns_lab.bench.flood import (
    BESIDE_AIM_MS,
    FAST_BESIDE_AIM_MS,
    FLOODS_PER_S,
    RATIO_AIM,
    SERVERS,
    Denied,
    flood_figures,
)
from rspdns_lab.bench.gate import KINDS as KINDS_AT_GATE
from rspdns_lab.bench.gate import RULES, Guarded
from rspdns_lab.bench.questions import LATENCY_QUESTIONS_PER_S, Rate, base, figures_of
from rspdns_lab.bench.registrars import SIMULATION_LATE_MS, Borne
from rspdns_lab.bench.run import Result
from rspdns_lab.bench.scale import Size, exponent
from rspdns_lab.bench.strangers import BOUND_MS, Strangers
from rspdns_lab.bench.variants import BY_KEY
from rspdns_lab.report.page import (
    Page,
    Section,
    Table,
    legend_above,
    markdown_table,
    new_plot,
    plain_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Plot

_INTRO: Final = (
    "The same names are served by name servers that know nothing of life, by some that "
    "check, and by rspdns; dnsperf asks each in turn, round after round in one run. It shares the processor "
    "with them: what counts is the processor time for one answer, and ratios; queries a second come second."
)
_GATE: Final = (
    "Three real registrars in one run, asked in turn, 32 messages under way: one without the gate, two "
    "behind it. CPU is the processor time of rspregistrar, which the gate is a part of. The program that "
    "asks shares the processor, so messages a second say less. The rule of the host that asks is the last "
    "of its file, which costs the most."
)
_TITLES: Final[Mapping[str, str]] = {
    "Questions": "What liveness costs",
    "Changes": "How soon a change is answered",
    "Floods of names that do not exist": "Floods and strangers",
    "Size": "Many pools, many servers",
    "Registrars": "How many servers three registrars serve",
    "Strangers": "What strangers can do",
    "Gate": "What the gate costs",
}
"""The page's title, by the first of its sections."""
_LATENCIES: Final = (
    "CPU is what the name server's programs use while dnsperf asks. It holds nothing "
    "of the kernel's answers: their time is by batches, less what asking costs. "
    f"Latencies are at {LATENCY_QUESTIONS_PER_S} questions a second."
)
_SCALE: Final = (
    "Real registrars, backend and PowerDNS; simulated pool elements, over one association for each "
    "registrar. Idle: nobody asks, no load changes; keep-alives are rare, since three registrars that ask "
    "10,000 elements every 300 ms would use the whole machine. Exponents are of what a size takes more "
    "than the smallest: 1 grows as the number of elements, 0 does not grow."
)
_FLOOD: Final = "Random names that do not exist, asked as fast as they are denied; ratios to the zone file."
_BESIDE: Final = (
    "Names of pool elements that are in no cache, 50 a second, beside a flood of names of 100 labels."
)
_REGISTRARS: Final = (
    "Three registrars; simulated elements, ten to an association, each registering again every 2 s. "
    "Intervals are the shipped one and, where it differs, the one that `rspdns-registrar render` computes. "
    f"If the simulation was late by more than {SIMULATION_LATE_MS} ms, its row measures the machine."
)
_STRANGERS: Final = (
    "Look-ups of a quiet pool while somebody fills another pool of the same backend: 4,000 pool elements at "
    "500 registrations a second inside the networks that the pool accepts, or outside them; or a registrar "
    "that lies: a handle table of 30,000 elements, 5,000 updates a second."
)
_SHORTEST_MS: Final = 0.1
"""Shorter times are plotted as this: the client asks every millisecond."""
_CHANGES_CAPTION: Final = (
    "How many of the changes were over after this time. Dots: median, 95th percentile, the longest of all. "
    "Dashed: what is aimed at for the 95th percentile. "
    f"{_SHORTEST_MS:g} ms stands for less, and for no wrong answer."
)
AIMS: Final[Mapping[str, float]] = MappingProxyType({"live_qps": 0.9, "live_qps_100_changes": 0.9})
"""The aims: queries a second against `static_qps`."""
LEAST_UNCACHED_QPS: Final = 3000
GROWING: Final[Mapping[str, tuple[str, Callable[[Size], float]]]] = MappingProxyType(
    {
        "rss_exponent": ("memory, MiB", lambda size: size.rss_mib),
        "idle_cpu_exponent": ("idle, % of a core", lambda size: size.idle_cpu_percent),
        "startup_exponent": ("start-up, s", lambda size: size.startup_s),
        "gone_exponent": ("out of DNS after, ms (median)", lambda size: size.gone_p50_ms),
        "updated_cpu_exponent": ("processor time for a load, us", lambda size: size.updated_cpu_us),
    }
)
"""The figures that are measured against size: the exponent's name, a title, the value."""

_AIMED: Final = {
    "rss_mib": "the backend's memory, MiB",
    "idle_cpu_percent": "idle, % of a core",
    "startup_s": "from its start until all are known, s",
}
OF_LARGEST: Final = (
    "startup_s", "rss_mib", "idle_cpu_percent", "updated_cpu_us", "gone_p50_ms", "back_p50_ms"
)  # fmt: skip
"""Figures of 1,000 pools of 10 elements, or of the largest size that was measured."""

OF_STRANGERS: Final = (
    "lookup_p50_ms", "lookup_p99_ms", "lookup_max_ms", "dns_p99_ms", "dns_max_ms", "gone_p50_ms", "refused"
)  # fmt: skip


def figures(found: Sequence[Result]) -> dict[str, float]:
    """Return every figure by its key; those that were not measured are missing."""
    all_of = figures_of([one for one in found if isinstance(one, Rate)])
    for one in found:
        if isinstance(one, Followed):
            for key in ("changes", "last_wrong_p50_ms", "last_wrong_p95_ms", "last_wrong_max_ms"):
                all_of[f"{key}_{one.kind}"] = getattr(one, key)
            all_of[f"stale_after_purges_{one.kind}"] = one.stale_after_purges
        if isinstance(one, Strangers):
            for key in OF_STRANGERS:
                all_of[f"strangers_{one.stranger}_{key}"] = getattr(one, key)
    all_of |= flood_figures(found)
    sizes = _sizes(found)
    if sizes:
        largest = next((one for one in sizes if (one.pools, one.members) == scale.AIMED_AT), sizes[-1])
        all_of |= {"scale_pools": largest.pools, "scale_elements": largest.elements}
        for key in OF_LARGEST:
            all_of[key] = getattr(largest, key)
    for one in _borne(found):
        all_of[f"registrars_{one.elements}_{one.wanted_ms}_missing"] = one.missing
        all_of[f"registrars_{one.elements}_{one.wanted_ms}_keep_alive_us"] = one.keep_alive_us
    all_of |= _gate_figures(found)
    for key, (_, value) in GROWING.items():
        power = exponent(sizes, value)
        if power is not None:
            all_of[key] = round(power, 2)
    return all_of


def as_markdown(found: Sequence[Result]) -> str:
    """Return the tables."""
    tables = (_questions_table(found), _changes_table(found), _denied_table(found), _beside_table(found),
              _scale_table(found), _aims_table(found), _exponents_table(found),
              _registrars_table(found), _strangers_table(found), _gate_table(found))  # fmt: skip
    return "\n".join(markdown_table(table) for table in tables if len(table) > 1)


def page_of(found: Sequence[Result]) -> Page:
    """Return the page."""
    sections = []
    if any(isinstance(one, Rate) for one in found):
        plots = [
            ("Processor time for one answer. Green is rspdns.", _cpu_plot(found)),
            (f"How long an answer takes. {_LATENCIES}", _latency_plot(found)),
        ]
        sections.append(Section("Questions", _LATENCIES, _questions_table(found), plots))
    if any(isinstance(one, Followed) for one in found):
        text = "From a change in the backend to the last answer without it, asked every millisecond."
        plots = [(_CHANGES_CAPTION, _changes_plot(found))]
        sections.append(Section("Changes", text, _changes_table(found), plots))
    if len(denied := _denied_table(found)) > 1:
        sections.append(Section("Floods of names that do not exist", _FLOOD, denied))
        sections.append(Section("Valid names beside a flood", _BESIDE, _beside_table(found)))
    if _sizes(found):
        caption = "Dots of one colour: pools of the same number of elements. Both axes are logarithmic."
        sections.append(Section("Size", _SCALE, _scale_table(found), [(caption, _scale_plot(found))]))
        if len(aims := _aims_table(found)) > 1:
            sections.append(Section("Aims", "", aims))
        sections.append(Section("How it grows", "", _exponents_table(found)))
    if _borne(found):
        sections.append(Section("Registrars", _REGISTRARS, _registrars_table(found)))
    if any(isinstance(one, Strangers) for one in found):
        sections.append(Section("Strangers", _STRANGERS, _strangers_table(found)))
    if any(isinstance(one, Guarded) for one in found):
        sections.append(Section("Gate", _GATE, _gate_table(found)))
    title = _TITLES[sections[0].title] if sections else "Nothing was measured"
    intro = _INTRO if any(isinstance(one, Rate) for one in found) else ""
    return Page(title, intro, sections)


def _sizes(found: Sequence[Result]) -> list[Size]:
    return sorted((one for one in found if isinstance(one, Size)), key=lambda one: (one.elements, one.pools))


def _borne(found: Sequence[Result]) -> list[Borne]:
    return sorted(
        (one for one in found if isinstance(one, Borne)), key=lambda one: (one.elements, one.wanted_ms)
    )


def _registrars_table(found: Sequence[Result]) -> Table:
    rows: list[Sequence[str]] = [
        ("elements", "to be asked every", "asked every", "us a keep-alive", "us a registration",
         "a registrar, % of a core", "its SCTP, %", "the simulation, %", "late by", "associations lost",
         "live ones missing", "a silent one gone after: median, longest")
    ]  # fmt: skip
    for one in _borne(found):
        cpu = (
            one.keep_alive_us,
            one.registration_us,
            one.busy_percent,
            one.sctp_percent,
            one.simulation_percent,
        )
        gone = f"{one.detected_p50_ms / 1000:.2f}, {one.detected_max_ms / 1000:.2f} s"
        rows.append(
            [f"{one.elements:,}", f"{one.wanted_ms} ms", f"{one.interval_ms:.0f} ms",
             *(f"{value:.0f}" for value in cpu), f"{one.simulation_late_ms:.0f} ms",
             str(one.lost), str(one.missing),
             gone if one.detected_max_ms else "-"]
        )  # fmt: skip
    return rows


def _gate_figures(found: Sequence[Result]) -> dict[str, float]:
    """Return the medians of all rounds, and ratios to the registrar without the gate in the same round."""
    all_of: dict[str, float] = {}
    for kind in KINDS_AT_GATE:
        of_kind = [one for one in found if isinstance(one, Guarded) and one.kind == kind]
        bare = {one.round: one for one in of_kind if one.rules == 0}
        for rules in RULES:
            rows = [one for one in of_kind if one.rules == rules and one.round in bare]
            if not rows:
                continue
            begin = f"gate_{kind}_{rules}_rules"
            all_of[f"{begin}_per_s"] = median(one.per_s for one in rows)
            all_of[f"{begin}_cpu_us"] = median(one.cpu_us for one in rows)
            all_of[f"{begin}_cpu_ratio"] = median(one.cpu_us / bare[one.round].cpu_us for one in rows)
    return all_of


def _gate_table(found: Sequence[Result]) -> Table:
    known = _gate_figures(found)
    rows: list[Sequence[str]] = [
        ("messages", "rules", "a second", "CPU us each", "against no gate, in the same round")
    ]
    for kind in KINDS_AT_GATE:
        for rules in RULES:
            begin = f"gate_{kind}_{rules}_rules"
            if f"{begin}_per_s" in known:
                each = (f"{known[f'{begin}_per_s']:,.0f}", f"{known[f'{begin}_cpu_us']:.1f}")
                named = f"{rules:,}" if rules else "no gate"
                rows.append([kind, named, *each, f"{known[f'{begin}_cpu_ratio']:.2f}"])
    return rows


def _ratio(known: Mapping[str, float], key: str) -> str:
    return f"{known[key]:.2f}" if key in known else "-"


def _questions_table(found: Sequence[Result]) -> Table:
    known = figures_of([one for one in found if isinstance(one, Rate)])
    rows: list[Sequence[str]] = [
        ("served by", "CPU us each", "against static", "by batches, us", "against static", "queries/s",
         "against static", "p50 us", "p95 us", "p99 us", "aimed at")
    ]  # fmt: skip
    for key, variant in BY_KEY.items():
        if key in known:
            name = base(key)
            own = "-" if variant.fast else f"{known[f'{name}_cpu_us']:,.1f}"
            of_static = "-" if variant.fast else _ratio(known, f"{name}_cpu_ratio")
            metered = known.get(f"{name}_server_cpu_us")
            batches = "-" if metered is None else f"{metered:,.2f}"
            each = (own, of_static, batches, _ratio(known, f"{name}_server_cpu_ratio"))
            qps = (f"{known[key]:,.0f}", _ratio(known, f"{key}_ratio"))
            latencies = [f"{known[f'{name}_latency_{part}_us']:,.0f}" for part in ("p50", "p95", "p99")]
            aim = f"{AIMS[key]:g} of static" if key in AIMS else ""
            aim = f"{LEAST_UNCACHED_QPS:,} queries/s" if key == "uncached_qps" else aim
            rows.append([variant.title, *each, *qps, *latencies, aim])
    return rows


def _changes_table(found: Sequence[Result]) -> Table:
    rows: list[Sequence[str]] = [
        ("machine", "changes", "p50 ms", "p95 ms", "max ms", "wrong after the last purge", "aimed at, p95")
    ]
    for one in found:
        if isinstance(one, Followed):
            times = (one.last_wrong_p50_ms, one.last_wrong_p95_ms, one.last_wrong_max_ms)
            rows.append(
                [one.kind, str(one.changes), *(f"{ms:.1f}" for ms in times), str(one.stale_after_purges),
                 f"{convergence.BOUNDS_MS[one.kind]:g} ms"]
            )  # fmt: skip
    return rows


def _denied_table(found: Sequence[Result]) -> Table:
    known = flood_figures(found)
    labels = sorted({one.labels for one in found if isinstance(one, Denied)})
    rows: list[Sequence[str]] = [
        ("names denied a second", *(f"{one} labels" for one in labels), *(f"ratio, {one}" for one in labels))
    ]
    for server, title in SERVERS.items() if labels else ():
        qps = [known.get(f"flood_{server}_qps_{one}_labels") for one in labels]
        if not any(qps):
            continue
        ratios = (known.get(f"flood_{server}_ratio_{one}_labels") for one in labels)
        cells = ["-" if value is None else f"{value:,.0f}" for value in qps]
        rows.append([title, *cells, *("-" if value is None else f"{value:.2f}" for value in ratios)])
    if labels:
        rows.append(["aimed at, rspdns", *("" for _ in labels), *(f"{RATIO_AIM:g}" for _ in labels)])
    return rows


def _beside_table(found: Sequence[Result]) -> Table:
    rows: list[Sequence[str]] = [
        ("valid names beside a flood", "flood/s", "p50 ms", "p99 ms", "max ms", "lost", "aimed at")
    ]
    known = flood_figures(found)
    for server, title in SERVERS.items():
        for per_s in FLOODS_PER_S:
            begin = f"flood_{server}_beside_{per_s}"
            if f"{begin}_lost" in known:
                times = [f"{known[f'{begin}_{part}']:.1f}" for part in ("p50_ms", "p99_ms", "max_ms")]
                aim = {
                    "live": f"p99 {BESIDE_AIM_MS} ms, none lost",
                    "limited": f"p99 {FAST_BESIDE_AIM_MS} ms",
                }.get(server, "")
                rows.append([title, f"{per_s:,}", *times, f"{known[f'{begin}_lost']:.0f}", aim])
    return rows


def _scale_table(found: Sequence[Result]) -> Table:
    rows: list[Sequence[str]] = [
        ("pools", "elements", "start-up s", "memory MiB", "idle CPU %", "CPU us for a load", "gone p50 ms",
         "gone max ms", "back p50 ms", "back max ms", "a registrar, MiB")
    ]  # fmt: skip
    for one in _sizes(found):
        whole = [f"{one.pools:,}", f"{one.elements:,}", f"{one.startup_s:.1f}", f"{one.rss_mib:.0f}"]
        times = [f"{ms:.1f}" for ms in (one.gone_p50_ms, one.gone_max_ms, one.back_p50_ms, one.back_max_ms)]
        cpu = [f"{one.idle_cpu_percent:.1f}", f"{one.updated_cpu_us:.0f}"]
        rows.append([*whole, *cpu, *times, f"{one.registrar_rss_mib:.0f}"])
    return rows


def _aims_table(found: Sequence[Result]) -> Table:
    """Return what is aimed at with the size that has aims, and what it was."""
    rows: list[Sequence[str]] = [("with 1,000 pools of 10 elements", "measured", "aimed at")]
    for one in _sizes(found):
        if (one.pools, one.members) == scale.AIMED_AT:
            measured = ((title, getattr(one, key), scale.BOUNDS[key]) for key, title in _AIMED.items())
            rows += [[title, f"{value:.1f}", f"{aim:g}"] for title, value, aim in measured]
    return rows


def _exponents_table(found: Sequence[Result]) -> Table:
    rows: list[Sequence[str]] = [("what", "exponent of the number of elements")]
    sizes = _sizes(found)
    for title, value in GROWING.values():
        power = exponent(sizes, value)
        if len(sizes) > 2:
            rows.append([title, "does not grow" if power is None else f"{power:.2f}"])
    return rows


def _strangers_table(found: Sequence[Result]) -> Table:
    rows: list[Sequence[str]] = [
        ("strangers", "look-up p50 ms", "p99 ms", "max ms", "DNS p99 ms", "max ms", "gone p50 ms", "max ms",
         "refused", "aimed at, p99")
    ]  # fmt: skip
    for one in found:
        if isinstance(one, Strangers):
            lookups = [f"{ms:.2f}" for ms in (one.lookup_p50_ms, one.lookup_p99_ms, one.lookup_max_ms)]
            over_dns = [f"{ms:.2f}" for ms in (one.dns_p99_ms, one.dns_max_ms)]
            gone = ["" if ms is None else f"{ms:.1f}" for ms in (one.gone_p50_ms, one.gone_max_ms)]
            rows.append([one.stranger, *lookups, *over_dns, *gone, f"{one.refused:,}", f"{BOUND_MS:g} ms"])
    return rows


def _is_live(key: str) -> bool:
    return key.startswith(("live", "uncached", "signed"))


def _known(found: Sequence[Result]) -> tuple[dict[str, float], list[str]]:
    known = figures_of([one for one in found if isinstance(one, Rate)])
    return known, [key for key in BY_KEY if key in known]


def _cpu_plot(found: Sequence[Result]) -> "Plot":
    known, keys = _known(found)
    plot = new_plot(height_inch=0.32 * len(keys) + 1.2)
    axes = plot.subplots()
    values = [known[f"{base(key)}_cpu_us"] for key in keys]
    colours = ["#009e73" if _is_live(key) else "#9aa0a6" for key in keys]
    bars = axes.barh([BY_KEY[key].title for key in keys], values, color=colours)
    axes.bar_label(bars, [f"{value:,.1f}" for value in values], padding=4, fontsize="small")
    axes.set(xscale="log", xlabel="microseconds of processor time for one answer")
    axes.set_xlim(1, 2.5 * max(values))
    plain_numbers(axes.xaxis)
    axes.invert_yaxis()
    return plot


def _latency_plot(found: Sequence[Result]) -> "Plot":
    known, keys = _known(found)
    plot = new_plot(height_inch=0.32 * len(keys) + 1.2)
    axes = plot.subplots()
    titles = [BY_KEY[key].title for key in keys]
    for part, colour in (("p50", "#009e73"), ("p95", "#e69f00"), ("p99", "#d55e00")):
        values = [known[f"{base(key)}_latency_{part}_us"] for key in keys]
        axes.plot(values, titles, "o", color=colour, label=part)
    axes.set(xscale="log", xlabel="microseconds until the answer")
    axes.grid(axis="y", color="#8888", linewidth=0.4)
    axes.invert_yaxis()
    plain_numbers(axes.xaxis)
    legend_above(axes)
    return plot


def _changes_plot(found: Sequence[Result]) -> "Plot":
    plot = new_plot()
    axes = plot.subplots()
    for one in found:
        if isinstance(one, Followed):
            colour = {"idle": "#009e73", "loaded": "#0072b2", "fastpath": "#d55e00"}[one.kind]
            times_ms = [max(time_ms, _SHORTEST_MS) for time_ms in one.times_ms]
            parts = [100 * index / len(times_ms) for index in range(1, len(times_ms) + 1)]
            axes.step(times_ms, parts, where="post", color=colour, label=f"{one.kind}: {one.changes} changes")
            known = (one.last_wrong_p50_ms, one.last_wrong_p95_ms, one.last_wrong_max_ms)
            axes.plot([max(time_ms, _SHORTEST_MS) for time_ms in known], [50, 95, 100], "o", color=colour)
            axes.axvline(convergence.BOUNDS_MS[one.kind], color=colour, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", xlabel="from the change to the last wrong answer, ms", ylabel="% of the changes")
    axes.set_ylim(0, 103)
    plain_numbers(axes.xaxis)
    legend_above(axes)
    return plot


def _scale_plot(found: Sequence[Result]) -> "Plot":
    sizes = _sizes(found)
    plot = new_plot(height_inch=8.0)
    panels = plot.subplots(3, 2).flatten()
    for axes, (key, (title, value)) in zip(panels, GROWING.items(), strict=False):
        _grow(axes, sizes, title, value, figures(found).get(key))
    for axes in panels[len(GROWING) :]:
        axes.set_visible(False)
    return plot


def _grow(
    axes: "Axes", sizes: Sequence[Size], title: str, value: Callable[[Size], float], power: float | None
) -> None:
    for members, colour in ((1, "#9aa0a6"), (10, "#009e73"), (100, "#0072b2")):
        own = [one for one in sizes if one.members == members]
        if own:
            line = "o-" if len(own) > 1 else "o"
            values = [max(value(one), 0.01) for one in own]
            axes.plot([one.elements for one in own], values, line, color=colour, label=f"of {members}")
    shown = "does not grow" if power is None else f"exponent {power:.2f}"
    axes.set(xscale="log", yscale="log", xlabel="pool elements")
    axes.set_title(f"{title}: {shown}", fontsize="medium")
    axes.set_ylim(bottom=max(0.01, 0.5 * min(value(one) for one in sizes)), top=2 * max(map(value, sizes)))
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis)
    axes.legend(fontsize="small")
