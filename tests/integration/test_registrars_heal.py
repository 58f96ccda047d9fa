"""A registrar that was cut off agrees with the others again soon after the network has healed."""

import json
import subprocess
import sys
import time

import pytest
from rspdns_lab.lab import Lab
from rspdns_lab.plan import REGISTRARS
from rspdns_lab.preconditions import find_sctp

from tests.support.namespaces import REPOSITORY

ASK = str(REPOSITORY / "tests/support/ask_registrar.py")


def sentinels_at(lab: Lab, name: str) -> list[int]:
    """Return the numbers of the sentinels that a registrar lists."""
    found = []
    for number in range(1, len(REGISTRARS) + 1):
        command = [sys.executable, ASK, REGISTRARS[name], f"rspdns-sentinel-{number}"]
        result = subprocess.run(
            ["nsenter", f"--net={lab.network.hosts[name].path}", *find_sctp().command(command)],
            capture_output=True,
            text=True,
            check=True,
        )
        found += [number] * bool(json.loads(result.stdout)["pool_elements"])
    return found


def wait_until_they_agree(lab: Lab, timeout_s: float) -> None:
    end_s = time.monotonic() + timeout_s
    while any(sentinels_at(lab, name) != [1, 2, 3] for name in REGISTRARS):
        assert time.monotonic() < end_s, {name: sentinels_at(lab, name) for name in REGISTRARS}
        time.sleep(0.2)


@pytest.mark.timeout(180)
def test_a_healed_network_brings_the_registrars_together_again() -> None:
    with Lab() as lab:
        lab.start_registrars()
        wait_until_they_agree(lab, 30)
        # Several rounds, since it depends on who connects first, and most often both do at once.
        for name in REGISTRARS:
            host = lab.network.hosts[name]
            lab.network.cut(host)
            time.sleep(6)
            lab.network.restore(host)
            wait_until_they_agree(lab, 15)
