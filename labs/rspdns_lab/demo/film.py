"""The demo's first step as a moving picture: SVG for any browser, light or dark, with nothing loaded."""

import io
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme

COLUMNS: Final = 100
SECONDS: Final = 10.0
"""The time until the last line stands. Then the picture stays as it is."""
_FIRST_LINE_S: Final = 0.5
_INKS: Final = {
    "ink": ("#1f2328", "#d1d7e0"),
    "paper": ("#f6f8fa", "#151b23"),
    "red": ("#cf222e", "#f85149"),
    "green": ("#1a7f37", "#3fb950"),
    "cyan": ("#0b7285", "#56d4dd"),
    "magenta": ("#8250df", "#bc8cff"),
    "dim": ("#59636e", "#9198a1"),
}
"""The colours on a light page and on a dark one."""
_STAND_INS: Final = {name: (1, 1, number) for number, name in enumerate(_INKS, 1)}
"""Rich writes colours as numbers: these stand for the names until the picture is made."""
_ANSI: Final = [_STAND_INS[name] for name in ("dim", "red", "green", "ink", "ink", "magenta", "cyan", "ink")]
_THEME: Final = TerminalTheme(_STAND_INS["paper"], _STAND_INS["ink"], _ANSI, _ANSI)
_FORMAT: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>rspdns-lab demo: a server is killed, and DNS stops naming it</title>
<style>
COLOURS
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, Menlo, Consolas, monospace; }}
.{unique_id}-title {{ display: none; }}
rect {{ stroke: none; }}
@keyframes appear {{ from {{ opacity: 0; }} to {{ opacity: 1; }} }}
text {{ animation: appear 0.15s both; }}
DELAYS
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none; }} }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="var(--paper)"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Film:
    """Takes what is printed on `console`; its lines appear one after the other."""

    def __init__(self) -> None:
        self.console = Console(
            record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False
        )

    def as_svg(self) -> str:
        """Return the picture."""
        count = self.console.export_text(clear=False, styles=False).rstrip("\n").count("\n") + 1
        picture = self.console.export_svg(title="", theme=_THEME, code_format=_FORMAT, unique_id="demo")
        for name, numbers in _STAND_INS.items():
            picture = picture.replace("#{:02x}{:02x}{:02x}".format(*numbers), f"var(--{name})")
        return picture.replace("COLOURS", _colours()).replace("DELAYS", _delays(count))


def _colours() -> str:
    light, dark = (
        " ".join(f"--{name}: {inks[number]};" for name, inks in _INKS.items()) for number in (0, 1)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def _delays(count: int) -> str:
    step_s = (SECONDS - _FIRST_LINE_S) / max(1, count - 1)
    return "\n".join(
        f'text[clip-path="url(#demo-line-{number})"] {{ animation-delay: {delay_s:.2f}s; }}'
        for number, delay_s in ((each, _FIRST_LINE_S + each * step_s) for each in range(count))
    )
