"""`rspdns support`: what a bug report needs, in one archive: configuration, status, logs, versions.

No secrets: it never opens the files of tokens, of the certificate's key, and of the state directory (DNSSEC
keys). In what it reads it leaves out the values of keys whose name says that they are secret. A check's
command is shown as its program alone: any argument may be a password. Such a value, and what follows an
option
of such a command, is left out everywhere else, too.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from itertools import chain
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
AGENTS: Final = (
    "ppe-agent/agent.toml",
    "ppu-agent/ppu-agent.toml",
    "rspdns/fastpath.env",
    "rspdns/registrar-*.env",
)
"""Below /etc: the configuration of what else of rspdns may run on this host."""
ETC: Final = Path("/etc")
_NAME: Final = (
    r"[\w.+-]{0,60}(?:token|secret|passw|passphrase|community|authorization|pwd|credential|(?:api|auth|private)[-_]?key|psk)"
    r"[\w.+-]{0,60}"
)
_SECRET_LINE: Final = re.compile(
    rf"^(?P<key>[^\S\n]*+(?:[#;]++[^\S\n]*+)?(?:[\w.+-]{{1,60}}=)?[\"']?{_NAME}[\"']?[^\S\n]*[=:])(?!=)"
    r"(?P<value>[^\S\n]*(?:\[[^\]]{0,4000}\]|\"{3}.{0,4000}?\"{3}|'{3}.{0,4000}?'{3})[^\n]*|[^\n]*)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
"""A key and all that follows it on its line; a list or a text of several lines is left out whole."""
_QUOTED_OR_WORD: Final = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s,;&"')}\]]+)"""
_SECRET_WITHIN: Final = (
    re.compile(
        rf"(?P<key>(?<![\w.+-]){_NAME}[\"']?[^\S\n]*[=:](?!=)[^\S\n]*){_QUOTED_OR_WORD}", re.IGNORECASE
    ),
    # An option and its value: --password S, and "--password", "S" of a list.
    re.compile(
        rf"(?P<key>(?<![\w.+-])--{_NAME}(?:[^\S\n]+|[\"'][^\S\n]*,\s*)){_QUOTED_OR_WORD}", re.IGNORECASE
    ),
    re.compile(rf"(?P<key>(?<![\w.+-]){_NAME}[^\S\n]+)\"[^\"\n]+\"", re.IGNORECASE),  # key { secret "..."; }
    re.compile(r"(?P<key>\b(?:Bearer|Basic)\s+)[^\s&@\"']+", re.IGNORECASE),
    re.compile(r"(?P<key>[?&][\w.-]{0,60}key=)[^\s&\"']+", re.IGNORECASE),
    re.compile(r"(?P<key>//[^/\s:@]{0,60}:)[^\s\"'/]+(?=@)"),  # http://user:password@host
    re.compile(
        r"(?P<key>\bhmac-[^\n]{0,200}?[\s:\"'])[A-Za-z0-9+/]{16,}={0,2}(?![\w+/])", re.IGNORECASE
    ),  # TSIG
    re.compile(
        r"(?P<key>^[^\S\n]*\[\[hook\]\](?:(?!^[^\S\n]*\[).){0,4000}?\burl[^\S\n]*=[^\S\n]*[\"']https?://[^/\"'\s]{1,255}/)"
        r"[^\"'\s]+",
        re.MULTILINE | re.DOTALL,
    ),  # the path of a hook's URL: many chats know by it who may write
    re.compile(r"(?P<key>\bdef(?:Community|[A-Za-z]*Passphrase)\s+)\S+"),  # snmp.conf
)
_STRING: Final = r"(?:\"(?:[^\"\\\n]|\\[^\n])*+\"|'[^'\n]*+')"
_BETWEEN: Final = r"(?:\s|#[^\n]*+)"
"""White space and comments between the strings of a list."""
_COMMAND: Final = re.compile(
    r"^(?P<key>[^\S\n]*+(?:[#;]++[^\S\n]*+)?[\"']?(?:[\w-]{1,60}\.){0,4}(?:command|exec|argv|args)[\"']?[^\S\n]*+[=:][^\S\n]*+"
    rf"\[{_BETWEEN}*+{_STRING})(?P<arguments>(?:[^\]\"'#]|{_STRING}|#[^\n]*+|[\"'])*+)",
    re.MULTILINE,
)
"""A list of a program and its arguments, which may hold brackets; comments may stand between them."""
_ARGUMENT: Final = re.compile(rf"(?P<text>{_STRING})|#[^\n]*+")
_PLAIN_ARGUMENT: Final = re.compile(r"-.*|/.*|[\d.:,]*|[\w-]+(?:\.[\w-]+)+")
"""Options, paths, numbers and host names: they stand in the rest of the archive for other reasons, too."""
_TOOL: Final = re.compile(
    r"\b(?:curl|wget|redis-cli|valkey-cli|ldap\w+|sshpass|mysql\w*|mariadb\w*|mongo\w*|ipmitool|mosquitto_\w+"
    r"|rabbitmqadmin|smbclient|influx|sqlcmd|tsql|openssl|htpasswd|docker|podman|check_\w+)\b[^\n]*"
)
_OF_TOOL: Final = re.compile(
    r"(?P<key>(?<![\w-])(?:-[aApPuUwy]|--user|--proxy-user|--oauth2-bearer|-pass(?:word|in|out)?|--cookie|-b|--auth)"
    rf"(?:=|[\s\"',]+))(?!-){_QUOTED_OR_WORD}|(?P<attached>(?<![\w-])-[pu])(?![\s\"',])[^\s\"',]+"
)
"""Options by which programs that checks call often are told passwords."""
_NET_SNMP: Final = re.compile(r"\bsnmp(?:bulk)?(?:get|getnext|walk|set|status|table)\b[^\n]*")
_OF_NET_SNMP: Final = re.compile(rf"(?P<key>(?<![\w-])-[cAX][\s\"',]+){_QUOTED_OR_WORD}")
"""Its options for a community and for passphrases."""
_SECRET_BLOCK: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL
)
_PATHS: Final = ("tokens", "_file", "-file")
"""Keys that end so name a file, which is not opened: its name is no secret elsewhere."""
_LEAST_SECRET: Final = 6
"""A shorter value is too likely to stand in other words."""
LEFT_OUT: Final = "(left out)"
UNITS: Final = (
    *("rspdns", "pdns", "sctpd", "ppe-agent", "ppu-agent", "rspdns-fastpath"),
    *("rspdns-registrar@*",),
)
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "journal": (
            *("journalctl", "--no-pager", "-n", "5000", "-o", "short-iso"),
            *(word for unit in UNITS for word in ("-u", unit)),
        ),
        "units": ("systemctl", "--no-pager", "--full", "status", "rspdns.socket", *UNITS),
        "unit-files": ("systemctl", "--no-pager", "cat", "rspdns.socket", *UNITS),
        "sidecar": ("ppe-agent", "status"),
        "sidecar-of-a-client": ("ppu-agent", "status"),
        "packages": (
            *("dpkg-query", "-W", "rspdns*", "ppe-agent", "ppu-agent", "sctp-userland"),
            *("pdns-*", "rsplib-*", "libusrsctp*", "python3"),
        ),
        "powerdns": ("pdns_server", "--version"),
        "addresses": ("ip", "-brief", "address"),
        "sockets": ("ss", "--no-header", "-xltun"),
    }
)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without what is secret: by the name of its key, by its form, or one of `secrets`."""
    text = _SECRET_BLOCK.sub(LEFT_OUT, text)
    text = _COMMAND.sub(
        lambda match: match["key"] + (f', "{LEFT_OUT}"' if match["arguments"].strip(" ,\n") else ""), text
    )
    text = _SECRET_LINE.sub(rf"\g<key> {LEFT_OUT}", text)
    for pattern in _SECRET_WITHIN:
        text = pattern.sub(rf"\g<key>{LEFT_OUT}", text)
    text = _TOOL.sub(lambda match: _OF_TOOL.sub(_without_value, match[0]), text)
    text = _NET_SNMP.sub(lambda match: _OF_NET_SNMP.sub(rf"\g<key>{LEFT_OUT}", match[0]), text)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, LEFT_OUT)
    return text


def _without_value(match: re.Match[str]) -> str:
    return f"{match['key'] or match['attached']}{LEFT_OUT}"


def _secret_arguments(text: str) -> Iterator[str]:
    """Yield what follows an option in the commands of a configuration file, as far as it is nothing plain."""
    for command in _COMMAND.finditer(text):
        is_after_option = False
        for option in filter(lambda match: match["text"], _ARGUMENT.finditer(command["arguments"])):
            argument = (option["text"] or "")[1:-1]
            value = argument[2:] if re.match(r"-\w\S{6,}", argument) else argument
            if (is_after_option or value != argument) and not _PLAIN_ARGUMENT.fullmatch(value):
                yield value
                yield from re.split("[:%=]", value, maxsplit=1)[1:]
            is_after_option = argument.startswith("-")


def secrets_of(text: str) -> Iterator[str]:
    """Yield the values of secret keys in a configuration file, and of options in its commands."""
    yield from (secret for secret in _secret_arguments(text) if len(secret) >= _LEAST_SECRET)
    for match in _SECRET_LINE.finditer(text):
        if not match["key"].rstrip(" \t=:\"'").endswith(_PATHS):
            value = match["value"].strip()
            quoted = re.findall(r"""[^\s"',\[\]]+""", value)
            yield from (secret for secret in {value.strip("\"'"), *quoted} if len(secret) >= _LEAST_SECRET)


def write_archive(config: Path, control: str, target: Path) -> list[str]:
    """Write the archive, readable for its owner alone; return the names of what is in it.

    Raises OSError when it can't be written; a file that is there already is not overwritten.
    """
    now_s = int(time.time())
    names = []
    folder = target.name.removesuffix(".tar.gz")
    with (
        open(target, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as raw,
        tarfile.open(fileobj=raw, mode="w:gz") as archive,
    ):
        configuration = [(f"configuration{path.absolute()}", _read(path)) for path in _files(config)]
        secrets = {secret for _, text in configuration for secret in secrets_of(text)}
        for name, text in chain(configuration, _contents(config, control)):
            content = redacted(text, secrets).encode(errors="replace")
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
    yield "status.json", _status(control)
    checked = [sys.executable, "-m", "rspdns.cli", "check", "-c", str(config)]
    yield "check.txt", _output(checked)
    for name, command in COMMANDS.items():
        yield f"{name}.txt", _output(command)


def _versions() -> str:
    lines = [f"rspdns {metadata.version('rspdns')}", f"Python {sys.version}", platform.platform()]
    lines += sorted(
        f"{distribution.name} {distribution.version}" for distribution in metadata.distributions()
    )
    try:
        lines.append(Path("/etc/os-release").read_text())
    except OSError as error:
        lines.append(f"/etc/os-release: {error.strerror}")
    return "\n".join(lines) + "\n"


def _files(config: Path) -> Iterator[Path]:
    """The configuration of backend, PowerDNS and agents: what may be shown, never what it names."""
    zones = zones_directory(config)
    files = [config, *sorted(zones.glob("*.toml")), *sorted(zones.glob("*.zone"))]
    files += [PDNS_DIRECTORY / "pdns.conf", *sorted((PDNS_DIRECTORY / "pdns.d").glob("*.conf"))]
    files += [path for name in AGENTS for path in sorted(ETC.glob(name))]
    yield from files[:MAX_FILES]


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
    """The output of a command, and how it ended; if it could not be run, the reason."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(command)}: {error}\n"
    said = (done.stdout + done.stderr)[-MAX_OUTPUT_BYTES:].decode(errors="replace")
    return f"$ {' '.join(command)}\n{said}(exit status {done.returncode})\n"
