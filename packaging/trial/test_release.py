"""The release that `make release` made, used as a host would: by an apt line, in fresh roots of Debian.

`make test-release` makes it and runs this; it needs root, debootstrap and Debian's archive, and is no part of
`make test`. test_packages.py installs from the same repository under systemd, and upgrades.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

pytestmark = pytest.mark.timeout(1800)
RELEASE = REPOSITORY / "build" / "release"
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
SUITES = tuple(os.environ.get("SUITES", "").split()) or ("bookworm", "trixie")
PAGE = (REPOSITORY / "docs" / "how-to" / "install.md").read_text()
README = (REPOSITORY / "packaging" / "README.md").read_text()
PACKAGES = ("rspdns", "ppe-agent", "ppu-agent", "rspdns-registrar")
"""Each has a program of its name."""


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The release as a web server serves it: its address, and the folder. A test may change the lists."""
    folder = tmp_path / "served"
    (folder / "apt").mkdir(parents=True)
    shutil.copytree(RELEASE / "apt" / "dists", folder / "apt" / "dists")
    shutil.copy(RELEASE / "apt" / "rspdns.asc", folder / "apt")
    (folder / "apt" / "pool").symlink_to(RELEASE / "apt" / "pool")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


def block(text: str, having: str) -> str:
    """The block of commands of a page that has these words."""
    (found,) = [each for each in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if having in each]
    return str(found)


def in_root(suite: str, layer: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh root of this release of Debian; what it writes stays in `layer`."""
    scripts = REPOSITORY / "packaging"
    root = subprocess.run(
        [scripts / "roots.sh", suite, "FRESH"], stdout=subprocess.PIPE, text=True, check=True
    )
    command = [scripts / "in_root.sh", root.stdout.strip(), layer, "sh", "-euc", script]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


@pytest.mark.parametrize("suite", SUITES)
def test_every_package_is_installed_by_the_lines_of_the_page_and_a_changed_repository_is_refused(
    suite: str, site: tuple[str, Path], tmp_path: Path
) -> None:
    address, served = site
    lines = block(PAGE, "signed-by").replace("https://packages.example.net", address)
    lines = lines.replace("apt-get ", "apt-get -qq --yes ")
    others = f"apt-get -qq --yes install --no-install-recommends {' '.join(PACKAGES)}"
    asked = "\n".join(f"{program} --version" for program in PACKAGES)
    done = in_root(suite, tmp_path, f"{lines}\n{others}\n{asked}\ndpkg-query -W rspdns")
    assert done.returncode == 0, done.stdout[-5000:]
    for program in PACKAGES:
        assert f"{program}, version {VERSION}" in done.stdout
    number = {"bookworm": 12, "trixie": 13}[suite]
    assert re.search(rf"^rspdns\t{re.escape(VERSION)}\S*\+deb{number}u1$", done.stdout, re.MULTILINE)

    lists = served / "apt" / "dists" / suite
    signed = (lists / "InRelease").read_text()

    def update() -> str:
        """Forget the lists and fetch them again; return what apt says, which must be a refusal."""
        ours = "-o Dir::Etc::sourcelist=/etc/apt/sources.list.d/rspdns.list -o Dir::Etc::sourceparts=-"
        command = f"rm -rf /var/lib/apt/lists/127*; apt-get {ours} update"
        done = in_root(suite, tmp_path, command)
        assert done.returncode != 0, done.stdout
        return done.stdout

    for path in lists.glob("Release*"):
        path.unlink()
    (lists / "InRelease").write_text(signed.replace("Origin: rspdns", "Origin: others"))
    assert "is not signed" in update()
    (lists / "InRelease").unlink()
    assert "does not have a Release file" in update()
    (lists / "InRelease").write_text(signed)
    for path in lists.rglob("Packages*"):
        path.write_bytes(path.read_bytes()[:-1] + b"\n\n")
    said = update()
    assert "unexpected size" in said or "Hash Sum mismatch" in said, said


def test_release_has_all_that_a_host_would_serve_and_its_checksums_are_verified_as_the_page_says() -> None:
    def verify() -> subprocess.CompletedProcess[str]:
        command = ["sh", "-euc", block(README, "ssh-keygen -Y verify")]
        return subprocess.run(command, cwd=RELEASE, capture_output=True, text=True, check=False)

    done = verify()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert 'Good "rspdns" signature for release' in done.stdout
    listed = {line.split("  ", 1)[1] for line in (RELEASE / "SHA256SUMS").read_text().splitlines()}
    for name in ("site/index.html", "apt/rspdns.asc", "images/images.tar", "NOTES.md"):
        assert name in listed
    assert {Path(name).suffix for name in listed} >= {".whl", ".gz", ".json", ".deb"}
    assert (RELEASE / "NOTES.md").read_text().startswith(f"# rspdns {VERSION}\n")


def test_list_of_parts_has_the_packages_their_programs_in_c_and_what_those_need() -> None:
    (file,) = RELEASE.glob("*.cdx.json")
    parts = {part["bom-ref"]: part for part in json.loads(file.read_text())["components"]}
    for suite in SUITES:
        (ref,) = [
            ref for ref in parts if "/sctp-userland@" in ref and f"distro={suite}" in ref and "amd64" in ref
        ]
        (package,) = (RELEASE / "apt" / "pool" / suite).glob("sctp-userland_*_amd64.deb")
        sums = (RELEASE / "SHA256SUMS").read_text()
        assert f"{parts[ref]['hashes'][0]['content']}  apt/pool/{suite}/{package.name}" in sums
        assert any(program["name"].endswith("/sctpd") for program in parts[ref]["components"])
        assert f"pkg:deb/debian/libusrsctp2?distro={suite}" in parts
    assert any(ref.startswith("pkg:pypi/aiohttp@") for ref in parts)
