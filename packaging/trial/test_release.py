"""The release that `make release` made, used as a host would: by an apt line, in fresh roots of Debian.

`make test-release` makes it and runs this; it needs root, debootstrap and Debian's archive, and is no part of
`make test`.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

pytestmark = pytest.mark.timeout(1800)
RELEASE = REPOSITORY / "build" / "release"
SUITES = tuple(os.environ.get("SUITES", "").split()) or ("bookworm", "trixie")
PAGE = (REPOSITORY / "docs" / "how-to" / "install.md").read_text()
PACKAGES = ("rspdns", "ppe-agent", "ppu-agent", "rspdns-registrar")
"""Each has a program of its name."""


def in_root(suite: str, layer: Path, script: str) -> str:
    """Run a script in a fresh root of this release of Debian; return what it prints."""
    scripts = REPOSITORY / "packaging"
    root = subprocess.run([scripts / "roots.sh", suite, "FRESH"], capture_output=True, text=True, check=True)
    command = [scripts / "in_root.sh", root.stdout.strip(), layer, "sh", "-euc", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("suite", SUITES)
def test_every_package_is_installed_by_the_line_of_the_page(tmp_path: Path, suite: str) -> None:
    shutil.copytree(RELEASE, tmp_path / "upper" / "srv" / "release")
    (block,) = [block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "signed-by" in block]
    lines = block.replace("https://packages.example.net", "file:/srv/release").replace("bookworm", suite)
    lines = re.sub(r"^curl .* -o (\S+) file:(\S+)$", r"install -D \2 \1", lines, flags=re.MULTILINE)
    quiet = "apt-get -qq install --yes --no-install-recommends"
    packages = " ".join(PACKAGES)
    asked = "; ".join(f"{program} --version" for program in PACKAGES)
    lines = re.sub(r"^apt-get install .*$", f"{quiet} {packages}", lines, flags=re.MULTILINE)
    said = in_root(suite, tmp_path, f"{lines}\n{asked}\ndpkg-query -W -f '${{Version}}\\n' rspdns")
    assert re.search(r"^0\.1\.0\S*\+deb1[23]u1$", said, re.MULTILINE), said
    assert said.count("0.1.0") >= len(PACKAGES)


def test_release_has_all_that_a_host_would_serve_and_its_checksums_are_right() -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"],
        cwd=RELEASE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = {line.split("  ", 1)[1] for line in (RELEASE / "SHA256SUMS").read_text().splitlines()}
    for name in ("site/index.html", "apt/rspdns.asc", "images/images.tar", "NOTES.md"):
        assert name in listed
    assert {Path(name).suffix for name in listed} >= {".whl", ".gz", ".json", ".deb"}
    (parts,) = RELEASE.glob("*.cdx.json")
    assert json.loads(parts.read_text())["bomFormat"] == "CycloneDX"
    assert (RELEASE / "NOTES.md").read_text().startswith("# rspdns 0.1.0\n")
