"""Fixtures of the SCTP tests."""

import socket
from collections.abc import Callable

import pytest
from daemon import sanitized_daemon, shared
from two_hosts import make_hosts

from tests.support.namespaces import Namespace

__all__ = ["hosts", "sanitized_daemon", "shared"]


@pytest.fixture
def hosts(namespaces: Callable[[], Namespace]) -> tuple[Namespace, Namespace]:
    """Return two hosts with two links: 10.1.0.0/24 and 10.2.0.0/24, the first host .1, the second .2."""
    return make_hosts(namespaces)


@pytest.fixture
def without_kernel_sctp() -> None:
    """Skip what is only true of sctpd."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return
    pytest.skip("the kernel has SCTP: sctpd isn't used here")
