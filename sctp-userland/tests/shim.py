"""Programs under `sctp-run --shim`, as its tests start them."""

import os
import subprocess
from pathlib import Path

from daemon import SCTP_USERLAND
from registrar_config import SCTPD_OPTIONS

from tests.support.namespaces import Namespace

ALL_BY_SCTP = 'rto_min_ms = 50\n[default]\nlocal = "sctp"\nremote = "sctp"\n'
SHIM = SCTP_USERLAND / "build" / "sctp-shim"


def shimmed(rules: Path, *arguments: str) -> list[str]:
    """Return the command that runs a program by these rules."""
    return [str(SCTP_USERLAND / "sctp-run"), "--shim", str(rules), *arguments]


def run(host: Namespace, *arguments: str, timeout_s: float = 60, given: str = "") -> str:
    """Return the output of a program that must succeed."""
    done = subprocess.run(
        host.command(*arguments),
        input=given,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "SCTPD_OPTIONS": SCTPD_OPTIONS},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def associations(host: Namespace) -> int:
    """Return the number of associations that stand for TCP connections of this host's programs just now."""
    status = run(host, str(SCTP_USERLAND / "build" / "sctpd"), "--status")
    return sum(line.startswith("shim connected") for line in status.splitlines())
