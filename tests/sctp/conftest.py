"""Fixtures of the SCTP tests."""

from collections.abc import Callable

import pytest

from tests.sctp.sanitized_daemon import sanitized_daemon
from tests.sctp.shared_daemon import shared
from tests.sctp.two_hosts import make_hosts
from tests.support.namespaces import Namespace

__all__ = ["hosts", "sanitized_daemon", "shared"]


@pytest.fixture
def hosts(namespaces: Callable[[], Namespace]) -> tuple[Namespace, Namespace]:
    """Return two hosts with two links: 10.1.0.0/24 and 10.2.0.0/24, the first host .1, the second .2."""
    return make_hosts(namespaces)
