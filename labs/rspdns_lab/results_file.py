"""A lab's results on disk: kept up while it runs, read back to resume. Never half-written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rspdns_lab.errors import LabError


def write_results(file: Path | None, report: Mapping[str, Any]) -> None:
    """Write the report, if there is a file for it. Raises OSError."""
    if file is None:
        return
    temporary = file.with_name(f".{file.name}.new")
    temporary.write_text(json.dumps(report) + "\n")
    temporary.replace(file)


def read_trials(file: Path | None) -> list[dict[str, Any]]:
    """Return the trials of an earlier run, none when there is no file. Raises LabError for another file."""
    if file is None or not file.exists():
        return []
    try:
        trials = json.loads(file.read_text())["trials"]
        return [dict(one) for one in trials]
    except (ValueError, TypeError, LookupError):
        raise LabError(f"{file} is no lab's report; remove it, or name another file") from None
