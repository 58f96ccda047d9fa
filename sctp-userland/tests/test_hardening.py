"""The compiler's protections of the two binaries against attacks, read from the binaries themselves; how
their sources include each other."""

import platform
import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from daemon import SCTP_USERLAND

BUILD = SCTP_USERLAND / "build"
DAEMON, LIBRARY = BUILD / "sctpd", BUILD / "libsctp-userland.so"
BRANCHES_BY_MACHINE = {"x86_64": "x86 feature: IBT, SHSTK", "aarch64": "AArch64 feature: BTI, PAC"}
REFUSES = "#!/bin/sh\nfor word; do [ $word = {} ] && exit 1; done\nexit 0\n"

pytestmark = [pytest.mark.integration]  # sctp-userland is built for these


def readelf(option: str, *files: Path) -> str:
    command = ["readelf", "--wide", option, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("binary", [DAEMON, LIBRARY], ids=lambda binary: binary.name)
def test_binary_has_no_fixed_address_and_nothing_writable_that_runs(binary: Path) -> None:
    """Anywhere; no stack that can be run, nothing to overwrite that the linker fills in (RELRO)."""
    segments = readelf("--segments", binary).splitlines()
    assert any("DYN (" in line for line in segments)
    (stack,) = (line.split() for line in segments if line.split()[:1] == ["GNU_STACK"])
    assert stack[-2] == "RW"
    assert any(line.split()[:1] == ["GNU_RELRO"] for line in segments)
    dynamic = readelf("--dynamic", binary)
    assert "BIND_NOW" in dynamic or "Flags: NOW" in dynamic
    assert "TEXTREL" not in dynamic


def test_the_daemon_is_an_executable_that_lies_anywhere() -> None:
    assert " PIE" in next(line for line in readelf("--dynamic", DAEMON).splitlines() if "(FLAGS_1)" in line)


@pytest.mark.parametrize("binary", [DAEMON, LIBRARY], ids=lambda binary: binary.name)
def test_overwritten_stacks_end_it(binary: Path) -> None:
    assert " __stack_chk_fail" in readelf("--dyn-syms", binary)


def test_the_daemons_calls_are_checked() -> None:
    """The library's calls need no check: the compiler knows that they fit."""
    imported = readelf("--dyn-syms", DAEMON)
    assert " __memcpy_chk" in imported
    assert " __vsnprintf_chk" in imported


@pytest.mark.skipif(platform.machine() not in BRANCHES_BY_MACHINE, reason="nothing of the kind here")
@pytest.mark.parametrize("folder", ["sctpd-objects", "preload-objects"])
def test_branches_go_only_where_they_should(folder: str) -> None:
    """The objects compiled here are read: the linker drops the mark when the C library's part has none
    (Debian 12)."""
    for compiled in sorted((BUILD / folder).glob("*.o")):
        assert BRANCHES_BY_MACHINE[platform.machine()] in readelf("--notes", compiled), compiled.name


@pytest.mark.parametrize("refused", ["-fcf-protection", "-mbranch-protection=standard"])
def test_a_compiler_is_asked_only_for_what_it_knows(refused: str, tmp_path: Path) -> None:
    """Each of these is an error to gcc for the other architecture."""
    compiler = tmp_path / "cc"
    compiler.write_text(REFUSES.format(refused))
    compiler.chmod(0o755)
    command = ["make", "-C", str(SCTP_USERLAND), "--dry-run", f"CC={compiler}", f"BUILD={tmp_path}"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    compiling = [line for line in lines if line.startswith(f"{compiler} ")]
    assert len(compiling) > 30
    for line in compiling:
        assert refused not in line
        assert "-fstack-clash-protection" in line
        assert ("-fcf-protection" in line) != ("-mbranch-protection=standard" in line)


@pytest.mark.parametrize("folder", ["sctpd", "preload"])
def test_c_files_include_each_other_in_no_circle(folder: str) -> None:
    """A header and the file that defines what it declares count as one; none knows what stands above it."""
    graph: dict[str, set[str]] = {}
    for path in (SCTP_USERLAND / folder).glob("*.[ch]"):
        included = {name.removesuffix(".h") for name in re.findall(r'#include "([^"/]+)"', path.read_text())}
        graph.setdefault(path.stem, set()).update(included - {path.stem})
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)
