"""`rspdns support`: what a bug report needs, in one archive: configuration, status, logs, versions.

No secrets: it never opens the files of tokens, of the certificate's key, and of the state directory (DNSSEC
keys). In what it reads it leaves out the values of keys whose name says that they are secret.
"""

from __future__ import annotations

import io
import json
import platform
import re
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from daemon_kit.control import ControlError, request

from rspdns.configuration import zones_directory

MAX_FILES: Final = 200
MAX_FILE_BYTES: Final = 1 << 20
MAX_OUTPUT_BYTES: Final = 8 << 20
COMMAND_TIMEOUT_S: Final = 15.0
PDNS_DIRECTORY: Final = Path("/etc/powerdns")
_SECRET_VALUE: Final = re.compile(
    r"^(?P<key>[^\S\n]*[#;]?[^\S\n]*[\w.+-]*?(?:token|secret|passw|passphrase|api-?key|private-?key)[\w.+-]*[^\S\n]*[=:])"
    r"(?!=).*$",
    re.IGNORECASE | re.MULTILINE,
)
_SECRET_WORD: Final = re.compile(
    r"(?P<key>\bBearer\s+|[?&](?:token|api-?key|password)=|//[^/\s:@]*:)[^\s&@\"']+", re.IGNORECASE
)
_SECRET_BLOCK: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL
)
LEFT_OUT: Final = "(left out)"
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "journal": (
            *("journalctl", "--no-pager", "-n", "5000", "-o", "short-iso"),
            *("-u", "rspdns", "-u", "pdns", "-u", "sctpd"),
        ),
        "units": ("systemctl", "--no-pager", "--full", "status", "rspdns", "rspdns.socket", "pdns", "sctpd"),
        "unit-files": ("systemctl", "--no-pager", "cat", "rspdns", "rspdns.socket"),
        "packages": (
            *("dpkg-query", "-W", "rspdns*", "ppe-agent", "ppu-agent", "sctp-userland"),
            *("pdns-*", "rsplib-*", "libusrsctp*", "python3"),
        ),
        "powerdns": ("pdns_server", "--version"),
        "addresses": ("ip", "-brief", "address"),
        "sockets": ("ss", "--no-header", "-xltun"),
    }
)


def redacted(text: str) -> str:
    """Return the text without values of keys that are secret by name, bearer tokens and private keys."""
    text = _SECRET_BLOCK.sub(LEFT_OUT, text)
    text = _SECRET_VALUE.sub(rf"\g<key> {LEFT_OUT}", text)
    return _SECRET_WORD.sub(rf"\g<key>{LEFT_OUT}", text)


def write_archive(config: Path, control: str, target: Path) -> list[str]:
    """Write the archive, readable for its owner alone; return the names of what is in it.

    Raises OSError when it can't be written; a file that is there already is not overwritten.
    """
    now_s = int(time.time())
    names = []
    folder = target.name.removesuffix(".tar.gz")
    with target.open("xb") as raw:
        target.chmod(0o600)
        with tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for name, text in _contents(config, control):
                content = redacted(text).encode(errors="replace")
                info = tarfile.TarInfo(f"{folder}/{name}")
                info.size, info.mtime, info.mode = len(content), now_s, 0o600
                archive.addfile(info, io.BytesIO(content))
                names.append(name)
    return names


def default_target() -> Path:
    """The archive's name, in the working directory."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return Path(f"rspdns-support-{socket.gethostname()}-{now}.tar.gz")


def _contents(config: Path, control: str) -> Iterator[tuple[str, str]]:
    yield "versions.txt", _versions()
    for path in _files(config):
        yield f"configuration{path.absolute()}", _read(path)
    yield "status.json", _status(control)
    checked = [sys.executable, "-m", "rspdns.cli", "check", "-c", str(config)]
    yield "check.txt", _output(checked)
    for name, command in COMMANDS.items():
        yield f"{name}.txt", _output(command)


def _versions() -> str:
    lines = [f"rspdns {metadata.version('rspdns')}", f"Python {sys.version}", platform.platform()]
    lines += sorted(f"{one.name} {one.version}" for one in metadata.distributions())
    try:
        lines.append(Path("/etc/os-release").read_text())
    except OSError as error:
        lines.append(f"/etc/os-release: {error.strerror}")
    return "\n".join(lines) + "\n"


def _files(config: Path) -> Iterator[Path]:
    """The configuration of backend and PowerDNS: what may be shown, never what it names."""
    zones = zones_directory(config)
    found = [config, *sorted(zones.glob("*.toml")), *sorted(zones.glob("*.zone"))]
    found += [PDNS_DIRECTORY / "pdns.conf", *sorted((PDNS_DIRECTORY / "pdns.d").glob("*.conf"))]
    yield from found[:MAX_FILES]


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode(errors="replace")
        if path.stat().st_size > MAX_FILE_BYTES:
            text += f"\n(the rest of {path.stat().st_size} bytes was left out)\n"
    except OSError as error:
        return f"{path}: {error.strerror}\n"
    return text


def _status(control: str) -> str:
    try:
        said: dict[str, Any] = request(control, "status")
    except ControlError as error:
        said = {"error": str(error)}
    return json.dumps(said, indent=1) + "\n"


def _output(command: list[str] | tuple[str, ...]) -> str:
    """What a command says, and how it ended; why it could not be run, else."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(command)}: {error}\n"
    said = (done.stdout + done.stderr)[-MAX_OUTPUT_BYTES:].decode(errors="replace")
    return f"$ {' '.join(command)}\n{said}(exit status {done.returncode})\n"
