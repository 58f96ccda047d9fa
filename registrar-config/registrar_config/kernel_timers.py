"""The SCTP timers of the host: rspregistrar sets none of its own, so these must fit.

If the kernel has SCTP they are sysctls; with sctp-run, options of its daemon: SCTPD_OPTIONS.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

from rserpool import IPPROTO_SCTP, Timers, read_timers

SYSCTL_FOLDER: Final = Path("/proc/sys/net/sctp")
# In ms. With the kernel's own (1000, 3000, 60000, 200) a single lost packet outlasts the keep-alive timeout
# and removes a live pool element.
KERNEL_TIMERS_MS: Final[Mapping[str, int]] = MappingProxyType(
    {"rto_min": 50, "rto_initial": 100, "rto_max": 300, "sack_timeout": 20}
)
SCTPD_OPTIONS: Final = "--rto-min 50 --rto-initial 100 --rto-max 300 --sack-delay 20"


def report_kernel_timers(
    log: FilteringBoundLogger, *, change: bool = False, folder: Path = SYSCTL_FOLDER
) -> None:
    """Set the kernel's SCTP timers if `change`; log a warning with the remedy while they don't fit.

    Without SCTP in the kernel, those of sctpd are looked at; they are given at its start only.
    """
    if not folder.is_dir():
        _report_sctpd_timers(log)
        return
    if change:
        for name, value in KERNEL_TIMERS_MS.items():
            try:
                (folder / name).write_text(f"{value}\n")
            except OSError as error:
                log.warning("kernel_timer_not_set", timer=name, problem=error.strerror)
    wrong = {
        name: present
        for name, value in KERNEL_TIMERS_MS.items()
        if (present := _read(folder / name)) != value
    }
    if wrong:
        log.warning(
            "kernel_timers_do_not_fit",
            timers_ms=wrong,
            remedy="sysctl -w " + " ".join(f"net.sctp.{name}={KERNEL_TIMERS_MS[name]}" for name in wrong),
        )


def _report_sctpd_timers(log: FilteringBoundLogger) -> None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, IPPROTO_SCTP) as sock:
            timers = read_timers(sock)
    except OSError:
        return  # no SCTP at all is told where the registrar is started
    if timers is not None and timers != Timers():
        log.warning(
            "sctpd_timers_do_not_fit",
            timers_ms={
                "rto_min": timers.rto_min_ms,
                "rto_initial": timers.rto_initial_ms,
                "rto_max": timers.rto_max_ms,
                "sack_delay": timers.sack_delay_ms,
            },
            remedy=f"SCTPD_OPTIONS='{SCTPD_OPTIONS}' for whoever starts sctpd here first; "
            "end the one that runs, it keeps the options it was started with",
        )


def _read(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
