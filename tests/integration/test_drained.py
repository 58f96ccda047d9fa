"""A drained server is planned, not missing: the real chain, polled without a key, followed with one."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.backend import OWNER, POOL
from tests.support.chain import SIP_PORTS, Chain
from tests.support.keyed import configure_keyed_sidecar
from tests.support.namespaces import kill, own_namespace
from tests.support.waiting import until

LIVE = set(SIP_PORTS)
PORT = SIP_PORTS[0]
NAME = f"udp-{PORT}"


DrainChain = tuple[Chain, dict[int, subprocess.Popen[str]]]


@pytest.fixture(scope="module", params=["polled", "keyed"])
def chain_and_servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DrainChain]:
    with own_namespace() as namespace:
        chain = Chain(namespace, tmp_path_factory.mktemp(request.param))
        servers = {port: chain.start_sip(port) for port in SIP_PORTS}
        if request.param == "keyed":
            key = configure_keyed_sidecar(chain)
            chain.sidecar.start()
            chain.backend.write_zone(f'{POOL}key = "{key}"\n')
        else:
            chain.start_sidecar()
        if request.param == "polled":
            text = chain.backend.config.read_text()
            chain.backend.config.write_text(f'follow = "poll"\n{text}')
        chain.start()
        until(lambda: chain.targets_at(OWNER) == LIVE, told=chain.sidecar.log)
        yield chain, servers


def out(chain: Chain, port: int = PORT) -> dict[str, Any]:
    """The server as the status has it while it is not in."""
    servers = [server for server in chain.backend.pool()["out"] if server["port"] == port]
    return dict(servers[0]) if servers else {}


def nagios(chain: Chain) -> str:
    return chain.backend.command("status", "--nagios").stdout


def shown(chain: Chain, condition: Callable[[], bool]) -> None:
    until(condition, told=lambda: json.dumps(chain.backend.pool()) + chain.backend.log.read_text()[-2000:])


def test_a_drained_server_is_planned_for_its_time_and_back_by_itself(chain_and_servers: DrainChain) -> None:
    chain, _ = chain_and_servers
    began_s = time.monotonic()
    chain.sidecar.command("drain", NAME, "--wait", "--for", "10s", "--reason", "new kernel")
    server = chain.sidecar.until_status(lambda server: server["state"] == "drained", NAME)
    assert server["drain"]["by"] == "root"
    assert server["drain"]["reason"] == "new kernel"
    assert "drained by root" in server["reason"]
    shown(chain, lambda: chain.targets_at(OWNER) == LIVE - {PORT})
    shown(chain, lambda: out(chain).get("cause") == "drained")
    pool = chain.backend.pool()
    assert (pool["missing"], pool["planned"]) == (0, 1)
    assert out(chain)["planned"]
    assert 0 < out(chain)["planned_s"] <= 60
    assert "drained" in chain.backend.command("status").stdout
    assert nagios(chain).startswith("RSPDNS OK")
    shown(chain, lambda: chain.targets_at(OWNER) == LIVE)
    assert time.monotonic() - began_s >= 10
    assert chain.backend.pool()["planned"] == 0


def test_a_server_that_stops_is_missing_and_not_planned(chain_and_servers: DrainChain) -> None:
    """The same server, once without a drain: the difference is what the drain says."""
    chain, servers = chain_and_servers
    chain.sidecar.command("drain", NAME, "--wait")
    shown(chain, lambda: out(chain).get("cause") == "drained")
    assert out(chain)["planned_s"] is None
    chain.sidecar.command("undrain", NAME)
    shown(chain, lambda: chain.targets_at(OWNER) == LIVE)
    kill(servers[PORT])
    shown(chain, lambda: chain.targets_at(OWNER) == LIVE - {PORT})
    shown(chain, lambda: chain.backend.pool()["missing"] == 1)
    assert chain.backend.pool()["planned"] == 0
    assert not nagios(chain).startswith("RSPDNS OK")
    chain.start_sip(PORT)
    shown(chain, lambda: chain.targets_at(OWNER) == LIVE)
