"""Fixtures of the tests with real programs; a module that needs more of a chain has a `chain` of its own."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.backend import HANDLE
from tests.support.chain import Chain
from tests.support.live_systemd import make_install
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


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that `make install` writes, below a folder; made once for all processes of a run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, is_whole = shared / "installed", shared / "is-installed"
    with (shared / "installing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_whole.exists():
            done = make_install(folder, "SCTP_USERLAND=yes", "FASTPATH=yes")
            assert done.returncode == 0, done.stderr
            is_whole.touch()
    return folder
