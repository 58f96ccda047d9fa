"""Plots of a page: their values, and how they are drawn. Matplotlib is loaded only when a plot is drawn.

A plot is narrow, with titles above what they are of: its letters can be read on a phone.
"""

import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")
GREEN: Final = "#009e73"
BLUE: Final = "#0072b2"
ORANGE: Final = "#e69f00"
PURPLE: Final = "#cc79a7"
RED: Final = "#d55e00"
GREY: Final = "#9aa0a6"
COLOURS: Final = (GREEN, ORANGE, BLUE, PURPLE, RED, GREY)
BOUND: Final = "#dd0000"
LIGHT: Final = (
    "--ink: #1f2328; --paper: #ffffff; --line: #d1d9e0; --green: #009e73; --blue: #0072b2; "
    "--orange: #e69f00; --purple: #cc79a7; --red: #d55e00; --grey: #9aa0a6; --bound: #dd0000;"
)
DARK: Final = (
    "--ink: #e6edf3; --paper: #16181b; --line: #3d444d; --green: #2fd0a2; --blue: #58a6ff; "
    "--orange: #ffc247; --purple: #f0a8cf; --red: #ff8a4c; --grey: #9aa0a6; --bound: #ff6b6b;"
)
"""The colours by the name that a plot uses: `LIGHT`, and on a dark page."""
_INKS: Final = {
    "#000000": "var(--ink)",
    "#ffffff": "var(--paper)",
    "#cccccc": "var(--line)",
    **{colour: f"var({name})" for name, colour in re.findall(r"(--\w+): (#\w+);", LIGHT)[3:]},
}
"""Matplotlib's own colours and ours, and what they are on a page that may be dark."""
_STYLE: Final = f"""<style>
:root {{ {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
text {{ fill: var(--ink); }}
</style>
"""
"""The colours of a plot that is a file of its own."""
_ID: Final = re.compile(r'(\sid="|href="#|url\(#)')
"""The text before an id in SVG, where the id is given or referred to."""
_LINEAR_BELOW: Final = 10.0
"""An axis that shows 0 and is logarithmic elsewhere is linear up to this value."""
_FEW_DECADES: Final = 100.0
"""A logarithmic axis that spans less has numbers between the powers of ten, too."""
_WIDTH_INCH: Final = 5.4
_TITLE_INCH: Final = 0.22
_KIND_INCH: Final = 0.2
"""The height of one kind of values, or of a bar, below its title."""
_DOT_INCH: Final = 0.022
_MEDIAN_FROM: Final = 5
"""Values: of fewer the median is no news."""
_MOST_STACKED: Final = 7
"""Equal values in a row, above and below each other; more of them are not drawn."""
_MOST_STEPS: Final = 100
"""Points of a curve of shares: more can't be told apart."""


@dataclass(frozen=True)
class Bars:
    """A bar for each title of `values`, with its value behind it. `green`: titles whose bar is green."""

    caption: str
    label: str
    values: Mapping[str, float]
    green: Collection[str]
    log: bool = False

    @property
    def height_inch(self) -> float:
        """The height that suits this number of titles."""
        return _row_inch(1) * len(self.values) + 0.7

    def draw(self, axes: "Axes") -> None:
        """Draw it."""
        values = list(self.values.values())
        colours = [GREEN if title in self.green else GREY for title in self.values]
        rows = [_middle(index, 0, 1) for index in range(len(values))]
        bars = axes.barh(rows, values, color=colours, height=0.36)
        axes.bar_label(bars, [in_digits(value) for value in values], padding=4, fontsize="small")
        axes.set(xlabel=self.label, xscale="log" if self.log else "linear")
        axes.set_xlim(int(self.log), (2.5 if self.log else 1.2) * max([*values, 1e-9]))
        _plain_numbers(axes)
        _titles_above(axes, list(self.values), 1)


@dataclass(frozen=True)
class Dots:
    """Many values below each title, a dot each: a row shows how they are spread. A stroke is their median.

    `series` has, for each kind of values, those of each title. `bounds`: a red line for each title, or None.
    The axis shows 0; it is logarithmic, or with `linear` it isn't.
    """

    caption: str
    label: str
    titles: Sequence[str]
    series: Mapping[str, Sequence[Sequence[float]]]
    bounds: Sequence[float | None] = ()
    linear: bool = False

    @classmethod
    def of(
        cls,
        caption: str,
        label: str,
        found: Iterable[T],
        title: Callable[[T], str],
        kinds: Mapping[str, Callable[[T], Iterable[float | None]]],
        *,
        bounds: Mapping[str, float] = MappingProxyType({}),
        never: str = "never",
        linear: bool = False,
    ) -> "Dots":
        """Return a plot of what was found: in the row of its `title` the values of each of `kinds`.

        Rows come in the order in which they are found. `never`: the word for values that are None, which
        are counted behind the title. `bounds`: of titles.
        """
        rows: dict[str, list[T]] = {}
        for each in found:
            rows.setdefault(title(each), []).append(each)
        all_of = {
            kind: [[value for each in row for value in values(each)] for row in rows.values()]
            for kind, values in kinds.items()
        }
        missing = [sum(values.count(None) for values in row) for row in zip(*all_of.values(), strict=True)]
        titles = [
            f"{name}; {count:,} {never}" if count else name for name, count in zip(rows, missing, strict=True)
        ]
        series = {
            kind: [[value for value in row if value is not None] for row in of] for kind, of in all_of.items()
        }
        return cls(caption, label, titles, series, [bounds.get(name) for name in rows], linear)

    @property
    def height_inch(self) -> float:
        """The height that suits this number of titles."""
        rows = _row_inch(len(self.series)) * len(self.titles)
        return rows + (
            0.75 + 0.2 * -(-len(self.series) // _columns(list(self.series))) if len(self.series) > 1 else 0.7
        )

    def draw(self, axes: "Axes") -> None:
        """Draw it; of several kinds, each has a part of the row."""
        count = len(self.series)
        known = [value for rows in self.series.values() for values in rows for value in values]
        most = max([*known, *filter(None, self.bounds), 1e-9])
        is_linear = self.linear or most <= _LINEAR_BELOW
        step = most / 100 if is_linear else 0.0
        for kind, ((name, rows), colour) in enumerate(zip(self.series.items(), COLOURS, strict=False)):
            points: list[tuple[float, float]] = []
            for index, values in enumerate(rows):
                y = _middle(index, kind, count)
                points += [
                    (value, y + _DOT_INCH * place / _row_inch(count))
                    for value, place in _stacked(values, step)
                ]
                if len(values) >= _MEDIAN_FROM:
                    at, half = median(values), _KIND_INCH / 2 / _row_inch(count)
                    axes.plot([at, at], [y - half, y + half], color=colour, linewidth=1.5)
            marks: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 4, "alpha": 0.6}
            xs, ys = [x for x, _ in points], [y for _, y in points]
            axes.plot(xs, ys, label=name, color=colour, markeredgewidth=0, clip_on=False, **marks)
        for index, bound in enumerate(self.bounds):
            if bound is not None:
                ends = [_middle(index, 0, count) - 0.15, index + 0.48]
                axes.plot([bound, bound], ends, color=BOUND, linewidth=1.5)
        if not is_linear:
            axes.set_xscale("symlog", linthresh=_LINEAR_BELOW)
        axes.set_xlim(left=0)
        axes.set(xlabel=self.label)
        _titles_above(axes, self.titles, count)
        _plain_numbers(axes)
        if count > 1:
            _legend_above(axes)


@dataclass(frozen=True)
class Curve:
    """Points of a plot. `style`: Matplotlib's format of line and marks; "step": a line of steps."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    style: str = "o-"


def share_below(label: str, values: Sequence[float], colour: str) -> Curve:
    """Return the percentage of the values (at least one) that are not above each of them: a distribution."""
    ordered = sorted(values)
    points = list(enumerate(ordered, 1))
    shown = [*points[:: max(1, len(points) // _MOST_STEPS)], points[-1]]
    return Curve(
        label, [x for _, x in shown], [100 * rank / len(points) for rank, _ in shown], colour, "step"
    )


@dataclass(frozen=True)
class Curves:
    """Points over an axis. `log`: the axes that are logarithmic, "x", "y", "xy" or none.

    `at_x`, `at_y`: values at which a dashed line is drawn, with its colour.
    """

    caption: str
    label: str
    y_label: str
    curves: Sequence[Curve]
    log: str = ""
    at_x: Sequence[tuple[float, str]] = ()
    at_y: Sequence[tuple[float, str]] = ()

    @property
    def height_inch(self) -> float:
        """The height with the lines of the legend."""
        return 3.2 + 0.2 * len(self.curves) / _columns([curve.label for curve in self.curves])

    def draw(self, axes: "Axes") -> None:
        """Draw it."""
        for curve in self.curves:
            how: dict[str, Any] = {"color": curve.colour, "label": curve.label}
            if curve.style == "step":
                axes.step(curve.xs, curve.ys, where="post", **how)
            else:
                axes.plot(curve.xs, curve.ys, curve.style, markersize=4, alpha=0.8, **how)
        for x, colour in self.at_x:
            axes.axvline(x, color=colour, linewidth=0.8, linestyle="--")
        for y, colour in self.at_y:
            axes.axhline(y, color=colour, linewidth=0.8, linestyle="--")
        scales = {f"{axis}scale": "log" for axis in self.log}
        axes.set(xlabel=self.label, ylabel=self.y_label, **scales)
        _plain_numbers(axes)
        _legend_above(axes)


Plot = Bars | Dots | Curves


def in_digits(value: float) -> str:
    """Return a figure with as many digits as are worth reading."""
    return f"{value:,.{0 if value >= 1000 or value == int(value) else 2}f}"


def svg(plot: Plot, number: int | None = None) -> str:
    """Return the plot as SVG, which is light or dark as the reader's system is: a file's, or with a `number`
    a page's, which has the page's colours.

    In a page its ids are no other plot's: Matplotlib's are alike in each.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=(_WIDTH_INCH, plot.height_inch), layout="constrained")
    plot.draw(figure.subplots())
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "rspdns", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    for colour, ours in _INKS.items():
        drawn = drawn.replace(colour, ours)
    begin = drawn.index("<svg")
    if number is None:
        head = drawn.index(">", begin) + 1
        return f"{drawn[:head]}\n{_STYLE}{drawn[head:].lstrip()}"
    return _ID.sub(rf"\1plot{number}-", drawn[begin:])


def _row_inch(kinds: int) -> float:
    """Return the height of a title with its kinds of values."""
    return _TITLE_INCH + _KIND_INCH * kinds + 0.04


def _middle(index: int, kind: int, kinds: int) -> float:
    """Return where the values of a kind are drawn in a row, in rows."""
    return index - 0.5 + (_TITLE_INCH + _KIND_INCH * (kind + 0.5)) / _row_inch(kinds)


def _stacked(values: Sequence[float], step: float) -> Iterator[tuple[float, int]]:
    """Yield each value, and how many dots aside it is drawn, since others are alike.

    Alike are values that have the same two digits, or with a `step` the same number of steps.
    """
    seen: Counter[float] = Counter()
    for value in values:
        place = round(value / step) if step else float(f"{max(value, 0.1):.2g}")
        seen[place] += 1
        if seen[place] <= _MOST_STACKED:
            yield value, seen[place] // 2 * (-1) ** seen[place]


def _titles_above(axes: "Axes", titles: Sequence[str], kinds: int) -> None:
    """Write the title of each row above its values, and show the first row at the top."""
    middle = _TITLE_INCH / 2 / _row_inch(kinds) - 0.5
    for index, title in enumerate(titles):
        place = axes.get_yaxis_transform()
        axes.text(0.01, index + middle, title, transform=place, fontsize="small", va="center")
    axes.hlines([index + 0.5 for index in range(len(titles) - 1)], 0, 1, "#cccccc", linewidth=0.4,
                transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_yticks([])
    axes.set_ylim(len(titles) - 0.5, -0.5)


def _plain_numbers(axes: "Axes") -> None:
    """Have axes say 1,000 instead of 10 to the third."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    numbers = StrMethodFormatter("{x:,g}")
    for axis, scale, (least, most) in (
        (axes.xaxis, axes.get_xscale(), axes.get_xlim()),
        (axes.yaxis, axes.get_yscale(), axes.get_ylim()),
    ):
        if scale == "log" and most < _FEW_DECADES * least:
            axis.set_minor_locator(LogLocator(subs=(2, 5)))
        if scale != "linear":
            axis.set_major_formatter(numbers)
            axis.set_minor_formatter(
                numbers if scale == "log" and most < _FEW_DECADES * least else NullFormatter()
            )


def _columns(labels: Sequence[str]) -> int:
    """Return how many labels fit beside each other."""
    return max(1, min(4, 56 // (6 + max(map(len, labels), default=0))))


def _legend_above(axes: "Axes") -> None:
    """Put the legend where it hides nothing."""
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        columns = _columns(labels)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, fontsize="small", frameon=False)
