"""Plots of a page: their values, and how they are drawn. Matplotlib is loaded only when a plot is drawn."""

import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREEN: Final = "#009e73"
BLUE: Final = "#0072b2"
ORANGE: Final = "#e69f00"
PURPLE: Final = "#cc79a7"
RED: Final = "#d55e00"
GREY: Final = "#9aa0a6"
_SERIES: Final = (GREEN, ORANGE, BLUE)
_INKS: Final = {"#000000": "var(--ink)", "#ffffff": "var(--paper)", "#cccccc": "var(--line)"}
"""Matplotlib's own colours, and what they are on a page that may be dark."""
_ID: Final = re.compile(r'(\sid="|href="#|url\(#)')
"""The text before an id in SVG, where the id is given or referred to."""
_LINEAR_BELOW: Final = 10.0
"""An axis that shows 0 and is logarithmic elsewhere is linear up to this value."""


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
        return 0.32 * len(self.values) + 1.2

    def draw(self, axes: "Axes") -> None:
        """Draw it."""
        values = list(self.values.values())
        colours = [GREEN if title in self.green else GREY for title in self.values]
        bars = axes.barh(list(self.values), values, color=colours)
        axes.bar_label(bars, [in_digits(value) for value in values], padding=4, fontsize="small")
        axes.set(xlabel=self.label, xscale="log" if self.log else "linear")
        axes.set_xlim(int(self.log), (2.5 if self.log else 1.2) * max([*values, 1e-9]))
        _plain_numbers(axes)
        axes.invert_yaxis()


@dataclass(frozen=True)
class Dots:
    """Several values beside each title: `series` has a row of them for each kind; None is left out.

    `bounds`: a red line for each title, or None. The axis is logarithmic, and shows 0.
    """

    caption: str
    label: str
    titles: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    bounds: Sequence[float | None] = ()

    @property
    def height_inch(self) -> float:
        """The height that suits this number of titles."""
        return 0.32 * len(self.titles) + 1.2

    def draw(self, axes: "Axes") -> None:
        """Draw it: the last kind as rings, since its values are often those of another kind, too."""
        *_, last = self.series
        for (name, values), colour in zip(self.series.items(), _SERIES, strict=False):
            known = [(value, index) for index, value in enumerate(values) if value is not None]
            ring = {"markersize": 10, "markerfacecolor": "none"} if name == last else {}
            marks: dict[str, Any] = {
                "linestyle": "",
                "marker": "o",
                "color": colour,
                "clip_on": False,
                **ring,
            }
            axes.plot([value for value, _ in known], [index for _, index in known], label=name, **marks)
        for index, bound in enumerate(self.bounds):
            if bound is not None:
                axes.plot([bound, bound], [index - 0.3, index + 0.3], color="#d00", linewidth=1.5)
        axes.set_yticks(range(len(self.titles)), self.titles)
        axes.set_xscale("symlog", linthresh=_LINEAR_BELOW)
        axes.set_xlim(left=0)
        axes.set(xlabel=self.label)
        axes.grid(axis="y", color="#8888", linewidth=0.4)
        axes.invert_yaxis()
        _plain_numbers(axes)
        _legend_above(axes)


@dataclass(frozen=True)
class Curve:
    """Points of a plot. `style`: Matplotlib's format of line and marks; "step": a line of steps."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    style: str = "o-"


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
    height_inch: float = field(default=4.0)

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
    """Return the plot as SVG: a file's, or with a `number` a page's, which has the page's colours.

    In a page its ids are no other plot's: Matplotlib's are alike in each.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=(9.0, plot.height_inch), layout="constrained")
    plot.draw(figure.subplots())
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "rspdns", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    if number is None:
        return drawn
    for colour, ours in _INKS.items():
        drawn = drawn.replace(colour, ours)
    return _ID.sub(rf"\1plot{number}-", drawn[drawn.index("<svg") :])


def _plain_numbers(axes: "Axes") -> None:
    """Have axes say 1,000 instead of 10 to the third."""
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
        if scale != "linear":
            axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axis.set_minor_formatter(NullFormatter())


def _legend_above(axes: "Axes") -> None:
    """Put the legend where it hides nothing."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize="small", frameon=False)
