"""An operator installs one role: each extra brings all that its programs import."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

SETUP = Path(__file__).resolve().parents[1] / "setup"
ROLES = {
    "agent": "ppe_agent",
    "grpc": "ppe_agent",
    "client": "ppu_agent",
    "backend": "rspdns",
    "registrar": "registrar_config",
    "labs": "rspdns_lab",
}

OPTIONAL = {"agent": ["ppe_agent.grpc_call"]}
"""Modules that another extra brings the libraries for; they are imported when they are needed."""

IMPORT_ALL = """
import importlib, json, pkgutil, sys
refused, package, optional = set(json.loads(sys.argv[1])), sys.argv[2], json.loads(sys.argv[3])
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"{name} is not installed with this extra")
sys.meta_path.insert(0, Refuse())
root = importlib.import_module(package)
for module in pkgutil.walk_packages(root.__path__, package + "."):
    if not module.name.endswith("__main__") and module.name not in optional:
        importlib.import_module(module.name)
"""


def brought_by(*requirements: str) -> set[str]:
    """The distributions that `pip install` with these requirements installs."""
    found: set[str] = set()
    wanted = [Requirement(text) for text in requirements]
    while wanted:
        requirement = wanted.pop()
        key = f"{requirement.name}[{','.join(sorted(requirement.extras))}]"
        if key in found:
            continue
        found |= {key, requirement.name.lower().replace("_", "-")}
        for text in metadata.requires(requirement.name) or ():
            inner = Requirement(text)
            extras = requirement.extras or {""}
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                wanted.append(inner)
    return found


@pytest.mark.parametrize(("extra", "package"), ROLES.items())
def test_an_extra_alone_is_enough(extra: str, package: str) -> None:
    brought = brought_by(f"rspdns[{extra}]")
    refused = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not any(owner.lower().replace("_", "-") in brought for owner in owners)
    ]
    assert "pytest" in refused
    optional = json.dumps(OPTIONAL.get(extra, []))
    command = [sys.executable, "-c", IMPORT_ALL, json.dumps(refused), package, optional]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_an_installation_has_all_it_needs_and_no_more() -> None:
    """`make install` takes these lines of the lock file."""
    rows = [line.split() for line in (SETUP / "python-packages").read_text().splitlines() if line[0] != "#"]
    listed = {
        role: {name for name, *roles in rows if role in roles} for role in ("production", "labs", "build")
    }
    production = needed_by("rspdns[agent,client,backend,registrar,grpc]")
    assert listed["production"] == production
    assert listed["labs"] == needed_by("rspdns[labs]") - production
    assert listed["build"] == needed_by("hatchling") - production
    pinned = re.findall(r"^([a-z0-9-]+)==", (SETUP / "requirements.lock").read_text(), re.M)
    assert {name for name, *_ in rows} <= set(pinned)


def needed_by(requirement: str) -> set[str]:
    return {name for name in brought_by(requirement) if "[" not in name} - {"rspdns"}
