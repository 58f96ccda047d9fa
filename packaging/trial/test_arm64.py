"""The packages cross-built for arm64: every program in them is for it, and an emulated Debian takes them.

`make test-arm64` builds them and runs this. It needs root and debootstrap, fetches the emulator, and is no
part of `make test`. The emulator has neither SCTP nor BPF: services are started on real machines only.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

pytestmark = pytest.mark.timeout(3600)
SUITE = os.environ.get("SUITE", "trixie")
PACKAGES = REPOSITORY / "build" / "packages" / f"{SUITE}-arm64"
AARCH64, BPF = 183, 247
COMMANDS = ("rspdns", "ppe-agent", "ppu-agent", "rspdns-registrar", "sctpd", "sctp-run", "rspdns-fastpath")
NOT_STARTED = "#!/bin/sh\nexit 101\n"
GUARD = "/usr/lib/rspdns/lib/python3*/site-packages/ppu_agent/kernel/ppu-guard"


def machine_of(path: Path) -> int | None:
    """The architecture of an ELF file (e_machine), None: it is none."""
    with path.open("rb") as file:
        head = file.read(20)
    return int.from_bytes(head[18:20], "little") if head.startswith(b"\x7fELF") else None


def test_every_program_and_library_in_the_packages_is_for_arm64(tmp_path: Path) -> None:
    packages = sorted(PACKAGES.glob("*.deb"))
    assert len(packages) == (REPOSITORY / "packaging/debian/control").read_text().count("\nPackage: ")
    machines: dict[int, list[str]] = {}
    for package in packages:
        architecture = subprocess.check_output(["dpkg-deb", "-f", package, "Architecture"], text=True)
        assert architecture == "arm64\n", package.name
        subprocess.run(["dpkg-deb", "-x", package, tmp_path / package.name], check=True)
    for path in tmp_path.rglob("*"):
        if path.is_file() and not path.is_symlink() and (machine := machine_of(path)) is not None:
            machines.setdefault(machine, []).append(path.name)
    assert set(machines) == {AARCH64, BPF}
    assert machines[BPF] == ["pace.bpf.o"]
    assert {"sctpd", "libsctp-userland.so", "rspdns-fastpath", "ppu-guard"} <= set(machines[AARCH64])
    assert any(name.startswith("_pydantic_core") for name in machines[AARCH64])


def test_emulated_debian_installs_them_and_starts_every_program(tmp_path: Path) -> None:
    made = subprocess.run(
        [REPOSITORY / "packaging" / "roots.sh", SUITE, "FRESH", "arm64"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    emulator = Path(made.stdout.strip()).parent / "qemu-aarch64-static"
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", made.stdout.strip(), root], check=True)
    (root / "packages").mkdir()
    for package in PACKAGES.glob("*.deb"):
        if not package.name.startswith("rspdns-lab"):
            (root / "packages" / package.name).write_bytes(package.read_bytes())
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text(NOT_STARTED)
    policy.chmod(0o755)

    environment = {**os.environ, "QEMU": str(emulator)}

    def inside(script: str) -> str:
        command = [REPOSITORY / "packaging" / "in_root.sh", root, "-", "sh", "-ec", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    wanted = "systemd-standalone-sysusers systemd-standalone-tmpfiles /packages/*.deb"
    inside(f"apt-get -qq update && apt-get -qq install --yes --no-install-recommends {wanted}")
    assert inside("dpkg --print-architecture; dpkg --audit") == "arm64\n"
    said = inside("; ".join(f"{command} --version" for command in COMMANDS) + f"; {GUARD} --version")
    assert [line.split(",")[0] for line in said.splitlines()] == [*COMMANDS, "ppu-guard"]
    # pydantic, orjson and dnspython at work: a zone is made and checked.
    zone = "rspdns zone add example.net --ns ns1=192.0.2.1 --handle web-tcp --accept 192.0.2.0/24"
    assert "no errors" in inside(f"{zone} && rspdns check --offline")
