"""Writes what an installation is made of, as CycloneDX 1.5.

    python packaging/sbom.py VERSION SECONDS_SINCE_1970 [SUITE=FILE.deb...]

The Python packages come from setup/python-packages and requirements.lock, their licences from what is here
installed. Each Debian package has its sum, its dependencies and its programs and libraries in C.
The same arguments give the same bytes.
"""

import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
SETUP = TOP / "setup"
WHEEL = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
OURS = {Path(package).name for package in WHEEL["packages"]}
LICENCE = [{"expression": "Apache-2.0"}]
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


def _run(*command: str) -> bytes:
    return subprocess.run(command, capture_output=True, check=True).stdout


def binaries(file: str) -> Iterator[dict[str, Any]]:
    """The ELF files in a Debian package, but for those of Python packages, which are parts of their own."""
    with tarfile.open(fileobj=io.BytesIO(_run("dpkg-deb", "--fsys-tarfile", file))) as content:
        for member in content:
            folder = member.name.partition("/site-packages/")[2].partition("/")[0]
            stream = content.extractfile(member) if member.isfile() else None
            if not stream or (folder and folder not in OURS and not folder.endswith(".libs")):
                continue
            data = stream.read()
            if data.startswith(b"\x7fELF"):
                yield {"type": "file", "name": member.name.removeprefix("."), "hashes": _sums(data)}


def _sums(data: bytes) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256(data).hexdigest()}]


def debian(packages: Sequence[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Our Debian packages (`SUITE=FILE.deb`) and those of Debian that they need, and who needs which.

    Debian's are without versions: apt chooses them.
    """
    parts: dict[str, dict[str, Any]] = {}
    needs = []
    fields = ("Package", "Version", "Architecture", "Depends")
    said = {}
    for suite, _, file in (package.partition("=") for package in packages):
        values = _run("dpkg-deb", "--showformat", "\t".join(f"${{{key}}}" for key in fields), "--show", file)
        said[suite, file] = values.decode().split("\t")
    ours = {
        (suite, name, architecture): f"pkg:deb/rspdns/{name}@{version}?arch={architecture}&distro={suite}"
        for (suite, _), (name, version, architecture, _) in said.items()
    }
    for (suite, file), (name, version, architecture, depends) in said.items():
        purl = ours[suite, name, architecture]
        parts[purl] = {
            "type": "application",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "scope": "optional" if name == "rspdns-lab" else "required",
            "licenses": LICENCE,
            "hashes": _sums(Path(file).read_bytes()),
            "components": list(binaries(file)),
        }
        needed = set()
        for other in filter(None, (re.split(r"[|(\s]", each.strip())[0] for each in depends.split(","))):
            ref = ours.get((suite, other, architecture), f"pkg:deb/debian/{other}?distro={suite}")
            needed.add(ref)
            if ref not in ours.values():
                parts[ref] = {"type": "library", "bom-ref": ref, "name": other, "purl": ref}
        needs.append({"ref": purl, "dependsOn": sorted(needed)})
    return [parts[ref] for ref in sorted(parts)], needs


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
    parts, needs = debian(packages)
    components += parts
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
                "licenses": LICENCE,
            },
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [part["bom-ref"] for part in components]}, *needs],
    }


if __name__ == "__main__":
    print(json.dumps(bill(sys.argv[1], int(sys.argv[2]), sys.argv[3:]), indent=1))
