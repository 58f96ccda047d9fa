"""Fixtures of the tests with real programs; a module that needs more of a chain has a `chain` of its own."""

import subprocess
from pathlib import Path

import pytest

from tests.support.backend import HANDLE
from tests.support.chain import Chain
from tests.support.namespaces import Namespace
from tests.support.signed_zone import signed, two_members

__all__ = ["chain", "in_pool", "signed", "two_members"]
InPool = tuple[Chain, subprocess.Popen[str], subprocess.Popen[str]]
"""A chain, a server in it, and the server's sidecar."""


@pytest.fixture
def chain(namespace: Namespace, tmp_path: Path) -> Chain:
    """Three registrars alone, anew for each test."""
    return Chain(namespace, tmp_path, registrars="alone")


@pytest.fixture
def in_pool(chain: Chain) -> InPool:
    """A TCP server held by its sidecar, in its pool."""
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
    server, sidecar = chain.start_tcp(), chain.sidecar.start()
    chain.until_in()
    return chain, server, sidecar
