"""The apt repository of a release: apt itself trusts it by its key, and refuses what was changed."""

import gzip
import os
import re
import subprocess
import tempfile
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


def make_repository(
    folder: Path, key: str = "key", name: str = "apt", **variables: str
) -> subprocess.CompletedProcess[str]:
    paths = {"APT_KEY": str(folder / key), "PACKAGES": str(folder / "packages")}
    environment = {**os.environ, **paths, **variables}
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
            "Acquire::Check-Valid-Until": "true",
            "Acquire::Check-Date": "true",
        }
        options = [word for key, value in places.items() for word in ("-o", f"{key}={value}")]
        command = [arguments[0], *options, *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def update(self) -> bool:
        return self.apt("apt-get", "--error-on=any", "update").returncode == 0

    def refusal(self) -> str:
        """Return the words with which apt refuses the lists."""
        done = self.apt("apt-get", "--error-on=any", "update")
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr


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


def test_apt_refuses_another_key_a_changed_list_and_no_list_in_words(released: Path) -> None:
    host = Host(released)
    dists = released / "apt/dists/bookworm"
    lists = [dists / "main/binary-amd64" / name for name in ("Packages", "Packages.gz")]
    before = [file.read_bytes() for file in lists]
    changed = before[0].replace(b"0.1.0", b"9.9.99")
    for file, content in zip(lists, (changed, gzip.compress(changed)), strict=True):
        file.write_bytes(content)
    assert "Hash Sum mismatch" in host.refusal()
    for file, content in zip(lists, before, strict=True):
        file.write_bytes(content)
    assert host.update()
    assert make_repository(released, key="other").returncode == 0
    assert "NO_PUBKEY" in host.refusal()
    for file in (*dists.glob("Release*"), dists / "InRelease"):
        file.unlink()
    assert "no longer has a Release file" in host.refusal()


def test_apt_refuses_a_changed_package(released: Path) -> None:
    host = Host(released)
    assert host.update()
    (package,) = (released / "apt/pool/bookworm").glob("*.deb")
    package.write_bytes(package.read_bytes()[:-1] + b"!")
    done = host.apt("apt-get", "download", "rspdns")
    assert done.returncode != 0
    assert "Hash Sum mismatch" in done.stderr


def test_lists_that_expire_are_refused_after_that(released: Path) -> None:
    assert make_repository(released, VALID_DAYS="1").returncode == 0
    host = Host(released)
    says_when = re.compile(r"^(Valid-Until: ).*$", re.MULTILINE)
    release = released / "apt/dists/bookworm/Release"
    assert says_when.search(release.read_text())
    release.write_text(says_when.sub(r"\1Thu, 26 Nov 2026 12:00:00 UTC", release.read_text()))
    with tempfile.TemporaryDirectory() as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--yes"]
        signed = release.with_name("InRelease")
        for words in (["--import", f"{released}/key"], ["-o", f"{signed}", "--clearsign", f"{release}"]):
            subprocess.run([*gpg, *words], check=True, capture_output=True, timeout=60)
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, timeout=60)
    assert "is expired" in host.refusal()
    assert make_repository(released, VALID_DAYS="1").returncode == 0
    assert host.update()


def test_release_tries_both_keys_before_it_builds(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("not a key\n")
    for keys, words in (
        ({"APT_KEY": "words", "SIGN_KEY": "none"}, "words holds no OpenPGP secret key"),
        ({"APT_KEY": "key", "SIGN_KEY": "missing"}, "there is no file"),
    ):
        paths = {name: key if key == "none" else str(tmp_path / key) for name, key in keys.items()}
        done = subprocess.run(
            [REPOSITORY / "packaging" / "release.sh"],
            env={**os.environ, **paths},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert words in done.stderr


def test_nothing_is_made_without_packages_or_with_a_file_that_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "words").write_text("not a key\n")
    for key, words in (("words", "holds no OpenPGP secret key"), ("key", "has no packages: make deb")):
        done = make_repository(tmp_path, key)
        assert done.returncode == 1
        assert words in done.stderr
