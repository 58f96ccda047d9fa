"""The apt repository of a release: apt itself trusts it by its key, and refuses what was changed."""

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

CONTROL = """Package: rspdns
Version: {version}
Architecture: amd64
Maintainer: rspdns maintainers <maintainers@rspdns.invalid>
Description: stands for the package
"""


def make_packages(folder: Path, version: str = "0.1.0") -> None:
    """Write a package for each release of Debian."""
    for suite, number in (("bookworm", 12), ("trixie", 13)):
        control = folder / "content" / "DEBIAN" / "control"
        control.parent.mkdir(parents=True, exist_ok=True)
        control.write_text(CONTROL.format(version=f"{version}+deb{number}u1"))
        (folder / "packages" / suite).mkdir(parents=True, exist_ok=True)
        built = folder / "packages" / suite
        build = ["dpkg-deb", "--root-owner-group", "-b", str(control.parents[1]), str(built)]
        subprocess.run(build, check=True, capture_output=True, timeout=60)


def make_repository(folder: Path, key: str = "key", name: str = "apt") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "APT_KEY": str(folder / key), "PACKAGES": str(folder / "packages")}
    command = [REPOSITORY / "packaging" / "apt.sh", folder / name]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


class Host:
    """An apt with lists of its own, that trusts the key it was given first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "host"
        for name in ("lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "status").touch()
        (self.folder / "rspdns.asc").write_text((folder / "apt" / "rspdns.asc").read_text())
        self.repository = folder / "apt"

    def apt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        source = self.folder / "rspdns.list"
        signed_by = f"signed-by={self.folder}/rspdns.asc arch=amd64"
        source.write_text(f"deb [{signed_by}] file:{self.repository} bookworm main\n")
        places = {
            "Dir::State::lists": self.folder / "lists",
            "Dir::State::status": self.folder / "status",
            "Dir::Cache": self.folder / "cache",
            "Dir::Etc::sourcelist": source,
            "Dir::Etc::sourceparts": "-",
            "APT::Sandbox::User": "root",
        }
        options = [word for key, value in places.items() for word in ("-o", f"{key}={value}")]
        command = [arguments[0], *options, *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def update(self) -> bool:
        return self.apt("apt-get", "--error-on=any", "update").returncode == 0


@pytest.fixture
def released(tmp_path: Path) -> Path:
    make_packages(tmp_path)
    done = make_repository(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "made the key" in done.stderr
    return tmp_path


def test_apt_takes_the_package_of_its_own_release_and_the_next_one_by_the_same_key(released: Path) -> None:
    host = Host(released)
    assert host.update()
    assert "Candidate: 0.1.0+deb12u1" in host.apt("apt-cache", "policy", "rspdns").stdout
    assert (released / "key").stat().st_mode & 0o77 == 0
    make_packages(released, "0.2.0")
    again = make_repository(released)
    assert (again.returncode, again.stderr) == (0, ""), "the key of before signs, and none is made"
    assert host.update()
    assert "Candidate: 0.2.0+deb12u1" in host.apt("apt-cache", "policy", "rspdns").stdout


def test_apt_refuses_another_key_and_a_changed_list(released: Path) -> None:
    host = Host(released)
    lists = [released / "apt/dists/bookworm/main/binary-amd64" / name for name in ("Packages", "Packages.gz")]
    before = [file.read_bytes() for file in lists]
    changed = before[0].replace(b"0.1.0", b"9.9.9")
    for file, content in zip(lists, (changed, gzip.compress(changed)), strict=True):
        file.write_bytes(content)
    assert not host.update()
    for file, content in zip(lists, before, strict=True):
        file.write_bytes(content)
    assert host.update()
    assert make_repository(released, key="other").returncode == 0
    assert not host.update()


def test_nothing_is_made_without_packages_or_with_a_file_that_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "words").write_text("not a key\n")
    for key, words in (("words", "holds no OpenPGP secret key"), ("key", "has no packages: make deb")):
        done = make_repository(tmp_path, key)
        assert done.returncode == 1
        assert words in done.stderr
