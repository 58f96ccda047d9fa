"""How programs get SCTP on this machine: from the kernel, or through sctp-run."""

import os
import shutil
import socket
from pathlib import Path
from typing import Final

from daemon_kit.errors import FatalError

from registrar_config.preflight import IPPROTO_SCTP

_SEARCH_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
_BESIDE_US: Final = Path(__file__).resolve().parents[2] / "sctp-userland" / "sctp-run"


def sctp_wrapper() -> list[str]:
    """Return what to put before a command so that SCTP works for it: nothing where the kernel has it.

    Else sctp-run: the one named in RSPDNS_SCTP_RUN, that of this source tree, or the installed one. Raises
    FatalError when there is none.
    """
    try:
        socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, IPPROTO_SCTP).close()
    except OSError:
        pass
    else:
        return []
    named = os.environ.get("RSPDNS_SCTP_RUN")
    for candidate in [named] if named else [str(_BESIDE_US), shutil.which("sctp-run", path=_SEARCH_PATH)]:
        if candidate and os.access(candidate, os.X_OK):
            return [candidate]
    if named:
        raise FatalError(f"RSPDNS_SCTP_RUN names {named}, which is no program that can be run")
    raise FatalError(
        "this kernel has no SCTP and sctp-run is missing; build it (make -C sctp-userland) or name it in "
        "RSPDNS_SCTP_RUN"
    )
