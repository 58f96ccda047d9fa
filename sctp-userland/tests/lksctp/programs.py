"""lksctp-tools' test programs, from the Debian source package: fetched and built outside the repository.

It is never copied into the project. `LKSCTP_SOURCE` names an unpacked source; otherwise it is fetched by
`apt-get source` with the package sources this host has, as deb-src.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.namespaces import REPOSITORY

CACHE = REPOSITORY / ".setup" / "lksctp"
FETCH_S = 180
V6 = ("-DTEST_V6=1", "-DCONFIG_IPV6=1")


class SourceMissingError(Exception):
    """The source can't be had here; the text says why."""


def built() -> Path:
    """Return the folder of the built programs. Raises SourceMissingError."""
    source = _source()
    key = hashlib.sha256(str(source).encode()).hexdigest()[:8]
    folder = CACHE / f"programs-{key}"
    if not folder.exists():
        made = Path(tempfile.mkdtemp(dir=CACHE))
        _build(source, made)
        try:
            made.rename(folder)
        except OSError:  # another worker was first
            shutil.rmtree(made)
    return folder


def _source() -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("LKSCTP_SOURCE")
    folders = [Path(given)] if given else sorted(CACHE.glob("lksctp-tools-*/"))
    if not folders:
        _fetch()
        folders = sorted(CACHE.glob("lksctp-tools-*/"))
    if not folders or not (folders[-1] / "src" / "func_tests").is_dir():
        raise SourceMissingError("no lksctp-tools source with src/func_tests: set LKSCTP_SOURCE to one")
    return folders[-1]


def _fetch() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-source") is None:
        raise SourceMissingError("lksctp-tools' source comes by apt-get and dpkg-source, which are not here")
    with tempfile.TemporaryDirectory() as folder:
        options = _private_lists(Path(folder))
        for command in (["update"], ["source", "lksctp-tools"]):
            try:
                run = subprocess.run(
                    ["apt-get", "-q", *options, *command],
                    cwd=CACHE,
                    capture_output=True,
                    text=True,
                    timeout=FETCH_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise SourceMissingError(f"apt-get {command[0]} took longer than {FETCH_S} s") from None
            if run.returncode != 0:
                raise SourceMissingError(f"apt-get {' '.join(command)} failed: {run.stderr.strip()[-300:]}")


def _private_lists(folder: Path) -> list[str]:
    """Return options for lists of sources beside the host's own, which needn't have deb-src."""
    parts = folder / "parts"
    parts.mkdir()
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        text = path.read_text().replace("Types: deb\n", "Types: deb-src\n")
        (parts / path.name).write_text(text)
    one_line = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")]
    lines = [line for path in one_line if path.exists() for line in path.read_text().splitlines()]
    debian = [f"deb-src{line[3:]}" for line in lines if line.startswith("deb ") and "debian" in line]
    (parts / "host.list").write_text("\n".join([*debian, ""]))
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    return [
        "-o=Dir::Etc::sourcelist=/dev/null",
        f"-o=Dir::Etc::sourceparts={parts}",
        f"-o=Dir::State::lists={folder / 'lists'}",
        f"-o=Dir::Cache={folder / 'cache'}",
        "-o=APT::Sandbox::User=root",
    ]


def _build(source: Path, to: Path) -> None:
    tests, library = source / "src" / "func_tests", source / "src" / "testlib"
    for file in sorted(tests.glob("test_*.c")):
        variants: list[tuple[str, tuple[str, ...]]] = [(file.stem, ())]
        if "TEST_V6" in file.read_text(errors="replace"):
            variants.append((f"{file.stem}_v6", V6))
        for name, options in variants:
            command = ["gcc", "-O1", "-w", "-D_GNU_SOURCE", "-fno-strict-aliasing", *options, f"-I{library}"]
            files = [str(file), str(library / "sctputil.c")]
            subprocess.run([*command, "-o", str(to / name), *files, "-lsctp", "-lpthread"], check=True)
    to.chmod(0o755)
