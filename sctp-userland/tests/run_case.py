"""Run conformance cases by name, `module:function`, or all; print one JSON line for each.

Plain Python without packages: it also runs where only the kernel's SCTP is, and nothing is installed.
"""

import faulthandler
import importlib
import json
import sys
import time
import traceback
from pathlib import Path


def all_cases() -> list[str]:
    """Return all cases, without importing them."""
    return [
        f"{path.stem}:{line[4:].split('(')[0]}"
        for path in sorted(Path(__file__).parent.glob("cases_*.py"))
        for line in path.read_text().splitlines()
        if line.startswith("def case_")
    ]


def run(name: str) -> dict[str, object]:
    """Run one case; `error` is the traceback of a failed one."""
    module, function = name.split(":")
    started = time.monotonic()
    try:
        getattr(importlib.import_module(module), function)()
        error = None
    except Exception:
        error = traceback.format_exc()
    return {
        "case": name,
        "ok": error is None,
        "error": error,
        "took_ms": round((time.monotonic() - started) * 1000),
    }


def main() -> int:
    """Run what the arguments name."""
    wanted = sys.argv[1:] or all_cases()
    faulthandler.dump_traceback_later(60 * len(wanted), exit=True)
    results = []
    for name in wanted:
        results.append(run(name))
        print(json.dumps(results[-1]), flush=True)
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
