"""A server on a host of its own, on which nothing of rspdns runs: the sidecar judges it from elsewhere."""

import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from tests.ppe_agent.servers import TCP_SERVER
from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL
from tests.support.chain import Chain
from tests.support.namespaces import Namespace, kill, own_namespace
from tests.support.waiting import until

FAR = "10.99.0.50"
FAR_POOL = POOL.replace(f"{ADDRESS}/32", f"{FAR}/32") + 'when_empty = "nodata"\n'
AGENTS = f'remote_agents = ["{ADDRESS}"]\n'
SERVER = f"""\
[[as]]
name = "far"
handle = "{HANDLE}"
transport = "udp"
remote = true
address = "{FAR}"
port = 5060
[[as.check]]
type = "tcp-hold"
[[as.check]]
type = "tcp"
[as.damping]
falls = 0
[as.load]
source = "none"
"""


class FarChain(Chain):
    """Its server is at FAR, in the namespace `far`, whose cable leads to this one's."""

    far: Namespace

    def start_far(self) -> subprocess.Popen[str]:
        return self.far.start(sys.executable, "-c", TCP_SERVER, "5060", "-1", FAR)

    def serve(self, pool: str) -> None:
        self.backend.write_zone(pool)
        assert self.backend.command("reload").returncode == 0


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarChain]:
    with own_namespace() as here, own_namespace() as far:
        chain = FarChain(here, tmp_path_factory.mktemp("remote"))
        chain.far = far
        here.ip("link", "set", "eth0-peer", "netns", far.name)
        far.ip("link", "set", "eth0-peer", "up")
        far.ip("address", "add", f"{FAR}/24", "dev", "eth0-peer")
        chain.backend.write_zone(FAR_POOL)
        chain.start()
        chain.sidecar.configure(SERVER)
        chain.sidecar.start()
        yield chain


def test_a_remote_server_comes_and_goes_at_its_own_address(chain: FarChain) -> None:
    identifier = int(ip_address(FAR))
    assert not chain.far.pids(), "nothing runs on the server's host but the server"
    server = chain.start_far()
    # A registrar has it at the sidecar's address: no member before the zone names the sidecar's host.
    out = chain.backend.pool
    until(lambda: [member["address"] for member in out()["out"]] == [ADDRESS], told=chain.backend.log)
    assert chain.targets() == "NOERROR"
    chain.serve(FAR_POOL + AGENTS)
    until(lambda: chain.targets() == {identifier}, told=chain.backend.log)
    (record,) = chain.pdns.short(OWNER, "SRV")
    assert record.split()[2] == "5060"
    assert chain.pdns.short(record.split()[3], "A") == [FAR]

    status = chain.sidecar.until_state("in")
    assert (status["remote"], status["address"], status["registered_as"]) == (True, [FAR], [ADDRESS])
    assert f"remote: judged and registered from {ADDRESS}" in chain.sidecar.command("status")
    check = (sys.executable, "-m", "ppe_agent.cli", "check", "-c", str(chain.sidecar.config))
    assert f'needs remote_agents = ["{ADDRESS}"]' in chain.namespace.run(*check).stdout

    kill(server)
    until(lambda: chain.targets() == "NOERROR", told=chain.sidecar.log)
    assert chain.sidecar.until_state("down")["reason"].endswith("nothing listens on port 5060")
    chain.start_far()
    until(lambda: chain.targets() == {identifier}, told=chain.sidecar.log)
    # No registrar reports a host that is silent: a check has to ask.
    chain.far.ip("link", "set", "eth0-peer", "down")
    until(lambda: chain.targets() == "NOERROR", told=chain.sidecar.log)
    chain.far.ip("link", "set", "eth0-peer", "up")
    until(lambda: chain.targets() == {identifier}, told=chain.sidecar.log)
