"""The sidecar on a host of its own whose link is cut: out by keep-alive, back by itself."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.support.agent_host import HANDLE, Host
from tests.support.namespaces import Namespace
from tests.support.registrars import PoolWatch, start_registrars

REGISTRAR = "10.98.0.1"


def set_link(namespace: Namespace, state: str) -> None:
    namespace.ip("link", "set", "eth0", state)


def test_a_silent_host_leaves_and_comes_back(namespaces: Callable[[], Namespace], tmp_path: Path) -> None:
    elsewhere, here = namespaces(), namespaces()
    elsewhere.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", here.name)
    for namespace, address in ((elsewhere, REGISTRAR), (here, "10.98.0.2")):
        namespace.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        set_link(namespace, "up")
    start_registrars(elsewhere, tmp_path, REGISTRAR)
    host = Host(here, tmp_path, "10.98.0.2", with_registrars=False)
    host.addresses = [REGISTRAR, f"{REGISTRAR}:3864", f"{REGISTRAR}:3865"]
    host.watch = PoolWatch(elsewhere, HANDLE, host.addresses, tmp_path / "watch.log")
    host.configure("tcp-hold", "tcp")
    host.start_tcp_server()
    host.start_agent()
    identifier = host.until_in()

    for silent_s in (1.5, 6.0):  # its associations survive the first silence, and don't survive the second
        set_link(elsewhere, "down")
        host.until_out(timeout_s=4)
        assert host.until_state("in" if silent_s < 2 else "joining")["check"][0]["state"] == "up"
        time.sleep(silent_s)
        set_link(elsewhere, "up")
        assert host.until_in() == identifier
