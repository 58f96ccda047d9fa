#!/usr/bin/python3
"""First process of the User-Mode Linux guest: give its kernel SCTP, run the job it is told, power off.

`job=/path/of/a/program` names what runs; it shares the host's files, so results are files.
"""

import ctypes
import os
import subprocess
import time
from pathlib import Path

FINIT_MODULE = 313  # x86_64; the guest is always that
MODULES = (
    "hmac",
    "sha1_generic",
    "md5",
    "sha256_generic",
    "crc32c_generic",
    "crc-ccitt",
    "libcrc32c",
    "ipv6",
    "udp_tunnel",
    "ip6_udp_tunnel",
    "veth",
    "llc",
    "stp",
    "bridge",
    "sctp",
    "sctp_diag",
    "sch_netem",
    "sch_tbf",
    "sch_red",
    "sch_choke",
    "sch_htb",
    "sch_fq_codel",
    "sch_cake",
    "cls_u32",
    "tun",
)


def insert(path: Path) -> None:
    """Insert a kernel module; one that is there already, or isn't needed, is no error."""
    with path.open("rb") as file:
        ctypes.CDLL(None).syscall(FINIT_MODULE, file.fileno(), b"", 0)


def bring_packets_at_once() -> None:
    """Let what a busy kernel does later come before any program: the rest of a packet's way over loopback.

    Without this, lksctp's test_assoc_shutdown finds an association that it has just ended, once in 200 runs.
    """
    for path in Path("/proc").glob("[0-9]*/comm"):
        if path.read_text().startswith("ksoftirqd"):
            os.sched_setscheduler(int(path.parent.name), os.SCHED_FIFO, os.sched_param(50))


def main() -> None:
    """Do it all; never return."""
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    for kind, index in (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")):
        subprocess.run(["mount", "-t", kind, kind, index], check=False)
    directory = Path("/usr/lib/uml/modules") / os.uname().release
    found = {
        path.stem: path for path in directory.rglob("*.ko")
    }  # one walk: each look at a file is slow here
    for name in MODULES:
        if name in found:
            insert(found[name])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
    bring_packets_at_once()
    arguments = dict(word.split("=", 1) for word in Path("/proc/cmdline").read_text().split() if "=" in word)
    try:
        subprocess.run([arguments["job"]], check=False)
    finally:
        os.sync()
        Path("/proc/sysrq-trigger").write_text("o")
        time.sleep(60)  # it takes a moment, and this process must not end before


if __name__ == "__main__":
    main()
