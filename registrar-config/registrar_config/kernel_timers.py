"""The SCTP timers of a kernel that has SCTP. rspregistrar sets none of its own, so the host's must fit.

With sctp-run they are options of its daemon instead: SCTPD_OPTIONS.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

SYSCTL_FOLDER: Final = Path("/proc/sys/net/sctp")
# In ms. With the kernel's own (1000, 3000, 60000, 200) a single lost packet outlasts the keep-alive timeout
# and removes a live pool element.
KERNEL_TIMERS_MS: Final[Mapping[str, int]] = MappingProxyType(
    {"rto_min": 50, "rto_initial": 100, "rto_max": 300, "sack_timeout": 20}
)
# The heartbeat: when two registrars connect to each other in the same moment (a network that heals),
# libusrsctp sends no data on the association before the first heartbeat was answered; its default is 30 s.
SCTPD_OPTIONS: Final = "--rto-min 50 --rto-initial 100 --rto-max 300 --sack-delay 20 --heartbeat 1000"


def report_kernel_timers(
    log: FilteringBoundLogger, *, change: bool = False, folder: Path = SYSCTL_FOLDER
) -> None:
    """Set the kernel's SCTP timers if `change`; log a warning with the remedy while they don't fit."""
    if not folder.is_dir():
        return
    if change:
        for name, value in KERNEL_TIMERS_MS.items():
            try:
                (folder / name).write_text(f"{value}\n")
            except OSError as error:
                log.warning("kernel_timer_not_set", timer=name, problem=error.strerror)
    wrong = {
        name: found for name, value in KERNEL_TIMERS_MS.items() if (found := _read(folder / name)) != value
    }
    if wrong:
        log.warning(
            "kernel_timers_do_not_fit",
            timers_ms=wrong,
            remedy="sysctl -w " + " ".join(f"net.sctp.{name}={KERNEL_TIMERS_MS[name]}" for name in wrong),
        )


def _read(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
