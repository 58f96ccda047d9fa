"""An sctpd that every user may use, with tight limits, and how much memory one takes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sctp.test_daemon import SCTPD, daemons, serves, wait_for
from tests.support.namespaces import Namespace

QUEUE_LIMIT_MB = 8


@pytest.fixture(scope="module")
def shared() -> Iterator[Namespace]:
    """Return a namespace with an sctpd for everyone, and tight limits."""
    namespace = Namespace(f"rspdns-limits-{os.getpid()}")
    try:
        limits = ("--queue-limit", str(QUEUE_LIMIT_MB), "--connection-limit", "30")
        namespace.start(str(SCTPD), "--everyone", *limits)
        assert wait_for(lambda: serves(namespace))
        yield namespace
    finally:
        namespace.close()


def resident_mb(namespace: Namespace) -> float:
    status = Path(f"/proc/{daemons(namespace)[0]}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024
