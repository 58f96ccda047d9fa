"""Which backends a PowerDNS has: each is a package of its own."""

from __future__ import annotations

import subprocess

_TIMEOUT_S = 10.0


def lacks_remote_backend(pdns_server: str) -> bool:
    """Tell whether this `pdns_server` has no remote backend; False also when it doesn't say."""
    try:
        said = subprocess.run(
            [pdns_server, "--list-modules"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = said.partition("Modules available:")
    return bool(found[1]) and "remote" not in found[2].split()
