"""Writes what an installation is made of, as CycloneDX 1.5.

    python packaging/sbom.py VERSION SECONDS_SINCE_1970 [SUITE=FILE.deb...]

The Python packages come from setup/python-packages and requirements.lock, their licences from what is here
installed, the C libraries from what the Debian packages depend on. The same arguments give the same bytes.
"""

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

SETUP = Path(__file__).resolve().parents[1] / "setup"
ROLES = {"production": "required", "labs": "optional"}
"""Scope of a package in CycloneDX's words: rspdns-lab is not needed to answer."""


def locked() -> Iterator[tuple[str, str, str]]:
    """Name, version and scope of every Python package that an installation may have."""
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (SETUP / "requirements.lock").read_text(), re.M))
    for line in (SETUP / "python-packages").read_text().splitlines():
        name, *roles = line.split()
        if name != "#" and roles[0] in ROLES:
            yield name, versions[name], ROLES[roles[0]]


def licences(name: str) -> list[dict[str, Any]]:
    """The licence that the package states itself: an SPDX expression, or names."""
    said = metadata.metadata(name)
    if said.get("License-Expression"):
        return [{"expression": said["License-Expression"]}]
    names = [
        classifier.rpartition(" :: ")[2]
        for classifier in said.get_all("Classifier", [])
        if classifier.startswith("License :: ")
    ]
    return [
        {"license": {"name": licence}} for licence in names or [said.get("License") or "see its METADATA"]
    ]


def debian(packages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The dependencies of our Debian packages (`SUITE=FILE.deb`), without versions: apt chooses them."""
    dependencies = set()
    for suite, _, file in (package.partition("=") for package in packages):
        done = subprocess.run(["dpkg-deb", "-f", file, "Depends"], capture_output=True, text=True, check=True)
        for each in done.stdout.split(","):
            dependencies.add((suite, each.split("|")[0].split("(")[0].strip()))
    ours = {Path(package.partition("=")[2]).name.partition("_")[0] for package in packages}
    for suite, name in sorted(dependencies):
        if name and name not in ours:
            purl = f"pkg:deb/debian/{name}?distro={suite}"
            yield {"type": "library", "bom-ref": purl, "name": name, "purl": purl, "scope": "required"}


def bill(version: str, at_s: int, packages: Sequence[str]) -> dict[str, Any]:
    """The whole list."""
    root = f"pkg:generic/rspdns@{version}"
    components = []
    for name, number, scope in locked():
        purl = f"pkg:pypi/{name}@{number}"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": number,
                "purl": purl,
                "scope": scope,
                "licenses": licences(name),
            }
        )
    components += debian(packages)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "rspdns",
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [component["bom-ref"] for component in components]}],
    }


if __name__ == "__main__":
    print(json.dumps(bill(sys.argv[1], int(sys.argv[2]), sys.argv[3:]), indent=1))
