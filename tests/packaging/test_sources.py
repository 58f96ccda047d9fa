"""The sources of the packages: whole, and in step with `make install`. packaging/trial builds them."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

DEBIAN = REPOSITORY / "packaging" / "debian"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
UNITS = [
    *REPOSITORY.glob("*/systemd/*.s[eo]*"),
    *REPOSITORY.glob("registrar-config/examples/systemd/*.service"),
]


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shipped() -> dict[str, str]:
    """Each path of debian/*.install, and the package that it is in."""
    found: dict[str, str] = {}
    for file in DEBIAN.glob("*.install"):
        for line in file.read_text().splitlines():
            path = line.split()[0]
            assert path not in found, f"{path} is in {found[path]} and in {file.stem}"
            found[path] = file.stem
    return found


@pytest.mark.parametrize(
    "command", [command for command in PROJECT["project"]["scripts"] if command != "rspdns-lab"]
)
def test_every_command_is_in_a_package_with_its_manual_and_completion(command: str) -> None:
    for path in (
        f"usr/bin/{command}",
        f"usr/share/man/man1/{command}.1",
        f"usr/share/bash-completion/completions/{command}",
        f"usr/share/fish/vendor_completions.d/{command}.fish",
        f"usr/share/zsh/vendor-completions/_{command}",
    ):
        assert shipped().get(path) == command


def test_every_unit_is_in_a_package() -> None:
    assert len(UNITS) >= 5
    names = {Path(path).name for path in shipped()}
    assert {unit.name for unit in UNITS if unit.suffix in (".service", ".socket")} <= names


def test_every_package_is_described_and_its_scripts_are_shell() -> None:
    control = (DEBIAN / "control").read_text()
    packages = re.findall(r"^Package: (\S+)", control, re.M)
    assert {file.stem for file in DEBIAN.glob("*.install")} | {"rspdns-lab"} == {*packages}
    assert not [line for line in control.splitlines() if len(line) > 80]
    scripts = [path for path in DEBIAN.iterdir() if path.suffix in (".postinst", ".prerm", ".postrm")]
    assert len(scripts) >= 10
    for script in scripts:
        assert "#DEBHELPER#" in script.read_text(), script
        run("sh", "-n", script)


def test_versions_rise_with_every_commit_up_to_the_release() -> None:
    version = run("packaging/version.sh").strip()
    assert version.startswith(PROJECT["project"]["version"])
    for newer in (f"{PROJECT['project']['version']}+deb12u1", "0.1.0~dev1000000.0000000+deb12u1"):
        assert not subprocess.call(["dpkg", "--compare-versions", f"{version}+deb12u1", "le", newer])
    assert not subprocess.call(
        ["dpkg", "--compare-versions", f"{version}+deb12u1", "lt", f"{version}+deb13u1"]
    ), "an upgrade of Debian brings the packages for the new release"


def build_wheel(folder: Path) -> Sequence[Path]:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": run("packaging/version.sh", "--date").strip()}
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-t",
        "sdist",
        "-d",
        folder,
    ]
    subprocess.run(command, env=environment, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    return sorted(folder.iterdir())


def test_wheel_and_sdist_hold_what_they_should_and_are_built_the_same_twice(tmp_path: Path) -> None:
    wheel, sdist = build_wheel(tmp_path / "first")
    for first, second in zip((wheel, sdist), build_wheel(tmp_path / "second"), strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    packages = {
        Path(package).name for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    assert {name.split("/")[0] for name in names} == packages | {
        f"rspdns-{PROJECT['project']['version']}.dist-info"
    }
    assert "pdns_config/name_table.lua" in names
    assert any(name.startswith("rspdns/admin/page/") for name in names)
    with tarfile.open(sdist) as tar:
        folders = {name.split("/")[1] for name in tar.getnames() if name.count("/") > 1}
    assert {"backend", "setup", "packaging", "sctp-userland"} <= folders
    assert "tests" not in folders
    target = tmp_path / "installed"
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        target,
        wheel,
    )
    script = f"import sys; sys.path.insert(0, {str(target)!r}); import rspdns; print(rspdns.__file__)"
    assert run(sys.executable, "-I", "-c", script).startswith(str(target))


def test_the_list_of_parts_names_what_is_installed() -> None:
    said = json.loads(run(sys.executable, "packaging/sbom.py", "0.1.0", "0"))
    assert (said["bomFormat"], said["metadata"]["timestamp"]) == ("CycloneDX", "1970-01-01T00:00:00Z")
    found = {part["name"]: part for part in said["components"]}
    assert found["aiohttp"]["scope"] == "required"
    assert found["matplotlib"]["scope"] == "optional"
    assert not {"pytest", "hatchling"} & {*found}
    assert all(part["licenses"] and part["purl"].startswith("pkg:pypi/") for part in found.values())
    assert not [
        name
        for name, part in found.items()
        if part["licenses"] == [{"license": {"name": "see its METADATA"}}]
    ]


def test_the_list_of_parts_has_the_programs_of_a_debian_package_and_what_it_needs(tmp_path: Path) -> None:
    content = tmp_path / "content"
    modules = content / "usr/lib/rspdns/lib/python3.11/site-packages"
    fields = (
        "Package: sctp-userland",
        "Version: 1",
        "Architecture: amd64",
        "Maintainer: nobody <a@b.invalid>",
    )
    depends = "Depends: libc6 (>= 2.36), libusrsctp2 | other"
    for path, file in (
        (content / "DEBIAN/control", "\n".join((*fields, depends, "Description: a package\n")).encode()),
        (content / "usr/bin/sctpd", b"\x7fELF of sctpd"),
        (content / "usr/bin/sctp-run", b"#!/bin/sh\n"),
        (modules / "ppu_agent/kernel/ppu-guard", b"\x7fELF of ppu-guard"),
        (modules / "orjson/orjson.so", b"\x7fELF of a part of its own"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
    run("dpkg-deb", "--root-owner-group", "-b", content, tmp_path / "one.deb")
    said = json.loads(
        run(sys.executable, "packaging/sbom.py", "0.1.0", "0", f"bookworm={tmp_path / 'one.deb'}")
    )
    package = "pkg:deb/rspdns/sctp-userland@1?arch=amd64&distro=bookworm"
    (part,) = [part for part in said["components"] if part["bom-ref"] == package]
    assert {Path(file["name"]).name for file in part["components"]} == {"sctpd", "ppu-guard"}
    needs = {each["ref"]: each["dependsOn"] for each in said["dependencies"]}
    assert needs[package] == [f"pkg:deb/debian/{name}?distro=bookworm" for name in ("libc6", "libusrsctp2")]


@pytest.mark.parametrize("command", PROJECT["project"]["scripts"])
def test_every_python_command_tells_the_version(command: str) -> None:
    said = run(Path(sys.executable).with_name(command), "--version")
    assert said == f"{command}, version {PROJECT['project']['version']}\n"


@pytest.mark.parametrize(
    "program",
    [
        "sctp-userland/build/sctpd",
        "sctp-userland/sctp-run",
        "fastpath/build/rspdns-fastpath",
        "ppu-agent/guard/build/ppu-guard",
    ],
)
def test_every_other_program_tells_the_same(program: str) -> None:
    assert (
        run(REPOSITORY / program, "--version")
        == f"{Path(program).name}, version {PROJECT['project']['version']}\n"
    )


def test_architecture_without_packages_is_refused_before_anything_is_made() -> None:
    done = subprocess.run(
        [REPOSITORY / "packaging" / "deb.sh"],
        env={**os.environ, "ARCHITECTURE": "riscv64"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "deb: riscv64: the packages are for amd64 and arm64\n")


def test_wheels_of_another_architecture_are_asked_for_by_its_name() -> None:
    options = run("setup/locked_packages.sh", "--wheels", "aarch64", "3.13").split()
    assert {"--only-binary=:all:", "--python-version=3.13", "--abi=cp313", "--platform=any"} <= set(options)
    platforms = [platform for platform in options if "manylinux" in platform]
    assert platforms
    assert all(platform.endswith("_aarch64") for platform in platforms)


def test_command_of_a_reload_is_on_every_host() -> None:
    """Units reload by /bin/kill or nft, which a small Debian lacks: they are in procps and nftables."""
    reloads = {
        line
        for unit in UNITS
        if unit.is_file()
        for line in unit.read_text().splitlines()
        if line.startswith("ExecReload")
    }
    assert {line.split()[0] for line in reloads} == {"ExecReload=/bin/kill", "ExecReload=/usr/sbin/nft"}, (
        reloads
    )
    (common,) = re.findall(
        r"Package: rspdns-common\n(.*?)\nDescription", (DEBIAN / "control").read_text(), re.DOTALL
    )
    assert " procps,\n" in common
    assert "Recommends: nftables,\n" in f"{common}\n", "a host without a packet filter needs none"
