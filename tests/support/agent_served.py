"""A server in its pool by its sidecar, and three registrars, for each test anew."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.agent_host import Host
from tests.support.namespaces import Namespace

Served = tuple[Host, subprocess.Popen[str], subprocess.Popen[str]]


@pytest.fixture(name="host")
def agent_host(namespace: Namespace, tmp_path: Path) -> Host:
    return Host(namespace, tmp_path)


@pytest.fixture(name="served")
def served_by_agent(host: Host) -> Served:
    """A TCP server held by its agent, in its pool."""
    host.configure("tcp-hold", "tcp")
    server, agent = host.start_tcp_server(), host.start_agent()
    host.until_in()
    return host, server, agent


def kill(process: subprocess.Popen[str]) -> None:
    """Kill what was started through a wrapper, with its whole session."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
