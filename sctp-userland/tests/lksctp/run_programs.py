#!/usr/bin/python3
"""Run lksctp-tools' built test programs, one after the other; print one JSON line for each.

    run_programs.py FOLDER [PROGRAM...]

Plain Python without packages: it also runs in the User-Mode Linux guest, on the kernel's SCTP.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

TIMEOUT_S = 20
SUBTEST = re.compile(r"^\S+\s+(\d+) (PASS|BROK|FAIL) : ?(.*)", re.MULTILINE)


def run(program: Path) -> dict[str, object]:
    """Run one program; `passed` are the texts of the subtests that passed, in order."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            ["stdbuf", "-oL", str(program)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = error.stdout or b"", -999
    text = output.decode(errors="replace")
    found = SUBTEST.findall(text)
    return {
        "program": program.name,
        "status": "timeout" if status == -999 else status,
        "passed": [what.strip() for _, word, what in found if word == "PASS"],
        "passed_count": sum(word == "PASS" for _, word, _ in found),
        "broken": [what.strip() for _, word, what in found if word != "PASS"],
        "took_ms": round((time.monotonic() - started) * 1000),
        "output_end": text[-600:],
    }


def main() -> None:
    """Run those that are named, or all."""
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or sorted(path.name for path in folder.iterdir()):
        print(json.dumps(run(folder / name)), flush=True)


if __name__ == "__main__":
    main()
