"""A lab's needs of the machine: the privileges of root, or of root in a user namespace of its own, and
programs; each lack is one clear line, found before anything is started."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from daemon_kit.errors import FatalError
from pdns_config import lacks_remote_backend
from registrar_config import SCTPD_OPTIONS, sctp_wrapper

from rspdns_lab.errors import LabError

# /run belongs to the machine's root; the lab's namespaces get names in a /run of its own.
_WITH_OWN_RUN = 'mount -t tmpfs tmpfs /run && exec "$@"'
_UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount")
PROGRAMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "rspregistrar": "rsplib-registrar",
        "pdns_server": "pdns-server pdns-backend-remote",
        "kamailio": "kamailio",
        "nsenter": "util-linux",
    }
)
_SEARCH_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def in_user_namespace(command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` as root of a user namespace, with an own /run."""
    return [*_UNSHARE, "sh", "-c", _WITH_OWN_RUN, "sh", *command]


def become_root(environment: Mapping[str, str] = MappingProxyType({})) -> None:
    """Return if this is root; otherwise start this command anew in a user namespace.

    `environment`: what it finds there besides. Inheritable descriptors stay open. Raises LabError when
    neither is possible.
    """
    if os.geteuid() == 0:
        return
    needs = "a lab makes network namespaces: it needs root (try sudo) or unprivileged user namespaces"
    if shutil.which("unshare") is None:
        raise LabError(f"{needs}; unshare (Debian: util-linux) is missing")
    trial = subprocess.run(in_user_namespace(["true"]), capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        raise LabError(f"{needs}; this machine allows neither ({trial.stderr.strip() or 'unshare failed'})")
    command = in_user_namespace([sys.executable, *sys.orig_argv[1:]])
    os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606 - an argument list, no shell


@dataclass(frozen=True)
class SctpRunner:
    """Starts programs where SCTP works: as they are, or through sctp-run."""

    wrapper: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the programs for sctp-run."""
        return {"SCTPD_OPTIONS": SCTPD_OPTIONS}

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` with SCTP."""
        return [*self.wrapper, *command]


def check_programs(more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raise LabError naming every program that is missing, and the Debian packages they are in.

    `more`: programs and their packages, beside those that every lab needs.
    """
    expect_programs({**PROGRAMS, **more})
    if lacks_remote_backend("pdns_server"):
        raise LabError("PowerDNS has no remote backend; install it: apt-get install pdns-backend-remote")


def expect_programs(needed: Mapping[str, str]) -> None:
    """Raise LabError naming every program that is missing, and the Debian packages they are in."""
    missing = {name: package for name, package in needed.items() if not shutil.which(name, path=_SEARCH_PATH)}
    if missing:
        packages = " ".join(dict.fromkeys(missing.values()))
        raise LabError(f"missing: {', '.join(missing)}; install them: apt-get install {packages}")
    os.environ["PATH"] = _SEARCH_PATH


def find_sctp() -> SctpRunner:
    """Return how programs get SCTP here. Raises LabError when there is no way."""
    try:
        return SctpRunner(tuple(sctp_wrapper()))
    except FatalError as error:
        raise LabError(str(error)) from None


def compile_c(source: Path, made: Path, *options: str, libraries: Sequence[str] = ()) -> Path:
    """Compile a small program or library of a lab; return where it is, which is `made`. Raises LabError."""
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", *options, "-o", str(made), str(source), *libraries]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise LabError("a C compiler is missing; install it: apt-get install build-essential") from None
    except subprocess.CalledProcessError as error:
        raise LabError(f"{source.name} can't be compiled: {error.stderr.strip()}") from None
    return made
