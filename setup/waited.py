#!/usr/bin/env python3
"""Draws the chart of the front page: callers who waited for 32 s after a kill and a hang, by who answers DNS.

Its figures are those of two pages of results, `calls.md` and `calls-with-ppu-agent.md`.
"""

import re
from pathlib import Path

from rspdns_lab.report.plots import Bars, svg

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
FAULTS = {"as-killed": "killed", "as-hung": "hung"}
WAYS = {
    "static zone": "a zone file",
    "gdnsd": "gdnsd, asks every 2 s",
    "PowerDNS LUA": "PowerDNS LUA records, ask every second",
    "rspdns": "rspdns",
}
BESIDE = "rspdns, and ppu-agent beside the client"


def waited() -> dict[str, float]:
    """Return the callers of 100 that waited for longer than 1 s (beside ppu-agent: 2 s), by way and fault."""
    calls, beside = ((RESULTS / name).read_text() for name in ("calls.md", "calls-with-ppu-agent.md"))
    found: dict[str, float] = {}
    for fault, word in FAULTS.items():
        section = calls.partition(f"## {fault}:")[2].partition("\n## ")[0]
        for begin, way in WAYS.items():
            found[f"{word}: {way}"] = _share(rf"{begin}[^|]*\| (\d+) \| (\d+) \|", section)
        way = rf"{fault} \| redirect \| udp \| kamailio"
        found[f"{word}: {BESIDE}"] = _share(rf"{way} \| (\d+) \| \d+ \| \d+ \| (\d+) \|", beside)
    return found


def _share(row: str, page: str) -> float:
    """Return the second number of a row of a table in percent of the first, the number of calls."""
    found = re.search(rf"^\| {row}", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"no page of results has the row {row}")
    return 100 * int(found[2]) / int(found[1])


def main() -> None:
    """Write the chart."""
    values = waited()
    ours = {title for title in values if "rspdns" in title}
    chart = Bars("Callers who waited", "callers of 100 who waited, nearly all for 32 s", values, ours)
    (RESULTS / "waited.svg").write_text(svg(chart))


if __name__ == "__main__":
    main()
