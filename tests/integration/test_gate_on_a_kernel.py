"""The gate on a kernel's own SCTP, in a User-Mode Linux guest: its rules, and who counts as confirmed."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.integration import test_gate
from tests.support.guest import guest_command
from tests.support.namespaces import kill, own_namespace

ATTACK_S = 5.0
PATIENCE_S = 180.0
"""System calls are some 50 times slower in the guest."""
GATED = (
    test_gate.claimed_address,
    test_gate.identifier_of_element_that_left,
    test_gate.handle_of_33_bytes,
)
"""Attacks; the first one as well without a gate."""


@pytest.mark.timeout(900)
def test_the_gate_stops_attacks_on_a_kernels_sctp(tmp_path: Path) -> None:
    results = tmp_path / "gate.json"
    job = Path(__file__).parents[1] / "support" / "guest_python.sh"
    words = {
        "python": sys.executable,
        "module": "tests.integration.test_gate_on_a_kernel",
        "results": results,
    }
    subprocess.run(
        guest_command(job, memory_mb=1024, **words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=880,
        check=False,
    )
    log = results.with_name("gate.json.log")
    told = log.read_text() if log.exists() else "the guest did not run its job"
    assert results.exists(), told
    found = json.loads(results.read_text())
    assert found == {
        "sctp": "the kernel's",
        "harmed without the gate": True,
        "harmed": {attack.__name__: False for attack in GATED},
        "dropped": sorted(attack.__name__ for attack in GATED if test_gate.ATTACKS[attack]),
    }, told


# The program in the guest


def in_the_guest(results: Path) -> None:
    """A registrar without the gate, then another one behind it."""
    test_gate.ATTACK_S, test_gate.SOON_S = ATTACK_S, PATIENCE_S
    found: dict[str, object] = {}
    with (
        own_namespace() as near,
        own_namespace() as far,
        tempfile.TemporaryDirectory(dir="/run") as folder,
    ):
        site = test_gate.Site(near, far, Path(folder))
        bare = site.start_bare()
        found["harmed without the gate"] = GATED[0](site)
        print(found, flush=True)
        kill(bare)
        site.control = Path(folder) / "control.sock"
        site.start_gated()
        [registrar] = site.registrar_pids()
        maps = Path(f"/proc/{registrar}/maps").read_text()
        found["sctp"] = "not the kernel's" if "libsctp-userland" in maps else "the kernel's"
        harmed: dict[str, bool] = {}
        dropped = []
        for attack in GATED:
            harmed[attack.__name__] = attack(site) or site.is_dead()
            if (counted := test_gate.ATTACKS[attack]) is not None:
                site.until_dropped(*counted)
                dropped.append(attack.__name__)
            print(attack.__name__, harmed, site.dropped(), flush=True)
        found |= {"harmed": harmed, "dropped": sorted(dropped)}
        print(site.log.read_text())
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    in_the_guest(Path(sys.argv[1]))
