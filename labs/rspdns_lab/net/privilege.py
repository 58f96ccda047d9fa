"""Gets the privileges a lab needs: those of root, or of root in a user namespace of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rspdns_lab.errors import LabError

# /run belongs to the machine's root; the lab's namespaces get names in a /run of its own.
_WITH_OWN_RUN = 'mount -t tmpfs tmpfs /run && exec "$@"'
_UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount")


def in_user_namespace(command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` as root of a user namespace, with an own /run."""
    return [*_UNSHARE, "sh", "-c", _WITH_OWN_RUN, "sh", *command]


def become_root(arguments: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> None:
    """Return if this is root; otherwise start `rspdns-lab arguments` anew in a user namespace.

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
    command = in_user_namespace([sys.executable, "-m", "rspdns_lab.entry", *arguments])
    os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606 - an argument list, no shell
