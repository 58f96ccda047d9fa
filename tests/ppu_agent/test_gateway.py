"""The agent's side of a gateway: which set-ups are guarded, ppu-guard kept running, the dead redirected."""

import asyncio
import contextlib
import errno
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from ppu_agent.configuration import load_configuration
from ppu_agent.destinations import Destination
from ppu_agent.drawing import Target
from ppu_agent.gateway import PROGRAM, Gateway, guarded, links_here, problems_of, rendered
from ppu_agent.mechanisms.base import ZONES
from ppu_agent.mechanisms.redirect import redirect_rules
from ppu_agent.mechanisms.refuse import refuse_rules
from ppu_agent.metrics import gateway_metrics
from ppu_agent.plan import Front, Plan, Treatment, plan
from ppu_agent.rules import replacing
from ppu_agent.writer import Nftables

from rserpool import Protocol
from tests.ppu_agent.making import POOL, departed, destination, policy, view
from tests.support.gateway import PORT, SERVER, SILENT, GatewayNetwork, gateway_network, inside
from tests.support.namespaces import REPOSITORY
from tests.support.waiting import until, until_async


@pytest.fixture(scope="module", params=["routed", "bridged"])
def network(request: pytest.FixtureRequest) -> Iterator[GatewayNetwork]:
    with gateway_network(request.param) as made:
        yield made


@pytest.mark.integration
@pytest.mark.parametrize("version", [4, 6])
def test_dead_are_refused_and_redirected_through_it(network: GatewayNetwork, version: int) -> None:
    if network.is_bridge:
        settings = [f"net.bridge.bridge-nf-call-{tables}=1" for tables in ("iptables", "ip6tables")]
        settings.append("net.ipv4.conf.br0.forwarding=1")
        network.gate.run("sysctl", "-qw", *settings)
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    dead, server = (
        [
            Destination(ip_address(addresses[version]), protocol, PORT)
            for protocol in (Protocol.TCP, Protocol.UDP)
        ]
        for addresses in (SILENT, SERVER)
    )
    treatments = (
        Treatment(dead[0], "refuse", POOL, "dead"),
        Treatment(dead[1], "redirect", POOL, "dead", (Target(server[1], 1),)),
    )

    def steer(now: Plan) -> None:
        nftables = Nftables()
        nftables.commit(replacing([*redirect_rules(now, ZONES[0]), *refuse_rules(now, ZONES[0])]))
        nftables.close()

    def bound() -> socket.socket:
        server = socket.socket(family, socket.SOCK_DGRAM)
        server.bind((SERVER[version], PORT))
        return server

    def is_answered() -> bool:
        inside(network.gate, lambda: steer(Plan(treatments)))
        with inside(network.client, lambda: socket.socket(family, socket.SOCK_DGRAM)) as client:
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                client.connect((SILENT[version], PORT))
                client.send(b"who is there?")
                return bool(client.recv(100))
        return False

    def echo() -> None:
        while not is_over.is_set():
            with contextlib.suppress(TimeoutError):
                serving.sendto(*serving.recvfrom(100))

    try:
        inside(network.gate, lambda: steer(Plan(treatments)))
        error, took_s = network.connect(SILENT[version])
        assert error == errno.ECONNREFUSED
        assert took_s < 1.5
        with inside(network.server, bound) as serving:
            serving.settimeout(0.1)
            is_over = threading.Event()
            echoing = threading.Thread(target=echo)
            echoing.start()
            try:
                until(is_answered)
            finally:
                is_over.set()
                echoing.join()
    finally:
        inside(network.gate, lambda: steer(Plan()))


@pytest.mark.integration
@pytest.mark.parametrize("network", ["routed"], indirect=True)
def test_agents_side_starts_it_again_and_ends_it(network: GatewayNetwork) -> None:
    silent = frozenset({Destination(ip_address(SILENT[4]), Protocol.TCP, PORT)})

    async def run() -> None:
        gateway = Gateway(["inner", "none"], learns=False, max_pending=1000)
        await gateway.start()
        running = asyncio.create_task(gateway.run())
        gateway.set(silent)

        async def settled(starts: int) -> None:
            await until_async(
                lambda: gateway.starts == starts and not gateway.describe()["interfaces"][0]["problem"]
            )

        try:
            await settled(1)
            state = gateway.describe()
            assert state["interfaces"] == [
                {"name": "inner", "problem": None},
                {"name": "none", "problem": "there is no such interface"},
            ]
            assert gateway._process is not None
            gateway._process.kill()
            await settled(2)
            error, _ = await asyncio.to_thread(network.connect, SILENT[4])
            assert error == errno.ECONNREFUSED
            await until_async(lambda: gateway.describe()["given_up_count"] == 1)
            explained = gateway.explained({"words": ["passes"]}, ip_address(SILENT[4]), PORT)
            assert explained["guarded"] == ["tcp"]
            assert "refused after 2000 ms" in explained["words"][1]
            lines = list(rendered(gateway.describe()))
            assert lines[0] == "gateway inner: guarded"
            assert "given up 1" in lines[-1]
            names = {
                sample.name for metric in gateway_metrics(gateway.describe()) for sample in metric.samples
            }
            assert "ppu_agent_gateway_setups_total" in names
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    inside(network.gate, lambda: asyncio.run(run()))
    assert "guard_in" not in network.filters()


@pytest.mark.integration
def test_kernel_takes_the_program_with_the_rights_of_the_unit() -> None:
    unit = (REPOSITORY / "ppu-agent/systemd/ppu-agent-gateway.conf").read_text()
    (rights,) = [line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet=")]
    numbers = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_BPF": 39}
    bounds = ",".join(f"+cap_{numbers[name]}" for name in rights.partition("=")[2].split())
    command = ["setpriv", f"--bounding-set=-all,{bounds}", str(PROGRAM), "--probe"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_members_fronts_and_those_that_left_are_guarded_by_tcp_and_sctp() -> None:
    tcp = policy(also=(Protocol.TCP,))
    front = Front(destination(99, Protocol.SCTP), tcp, ())
    found = guarded(replace(plan([tcp], {POOL: view(1, 2)}, {}, {}, [departed(3)]), fronts=(front,)))
    assert found == {destination(number, Protocol.TCP) for number in (1, 2, 3)} | {front.destination}
    assert guarded(plan([policy()], {}, {}, {}, [departed(3)])) == frozenset()


def test_member_that_left_is_guarded_by_the_transports_of_its_own_pools_only() -> None:
    others = policy("other", also=(Protocol.TCP, Protocol.SCTP))
    assert guarded(plan([policy(), others], {}, {}, {}, [departed(3)])) == frozenset()
    found = guarded(plan([policy(also=(Protocol.SCTP,)), others], {}, {}, {}, [departed(3)]))
    assert found == {destination(3, Protocol.SCTP)}


def test_check_tells_the_settings_that_a_gateway_lacks(tmp_path: Path) -> None:
    links = {"eth0": None, "eth1": "br0"}
    assert list(problems_of(["eth0"], links, tmp_path)) == []
    unseen, dropped = problems_of(["eth1"], links, tmp_path)
    assert "br_netfilter" in unseen
    assert "net.ipv4.conf.br0.forwarding is not 1" in dropped
    for setting in ("bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"):
        (tmp_path / setting).parent.mkdir(exist_ok=True)
        (tmp_path / setting).write_text("1\n")
    assert list(problems_of(["eth1"], links, tmp_path)) == [dropped]
    (tmp_path / "ipv4/conf/br0").mkdir(parents=True)
    (tmp_path / "ipv4/conf/br0/forwarding").write_text("1\n")
    assert list(problems_of(["eth1"], links, tmp_path)) == []
    assert list(problems_of(["eth2"], links, tmp_path)) == ["there is no interface eth2 now"]


@pytest.mark.integration
def test_ports_are_known_by_their_bridge(network: GatewayNetwork) -> None:
    found = inside(network.gate, links_here)
    assert found["lo"] is None
    assert found["inner"] == ("br0" if network.is_bridge else None)


def test_gateway_in_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "ppu-agent.toml"
    pool = 'registrars = ["10.0.0.1"]\n[[pool]]\nhandle = "sip"\naccept = ["10.0.0.0/8"]\n'
    file.write_text(f'{pool}[gateway]\ninterfaces = ["eth1", "eth2"]\nrepeat = "rtt"\n')
    config = load_configuration(file)
    assert config.gateway is not None
    assert config.gateway.make().interfaces == ("eth1", "eth2")
    for wrong in ('interfaces = ["eth1", "eth1"]', "interfaces = []", 'interfaces = ["a b"]', ""):
        file.write_text(f"{pool}[gateway]\n{wrong}\n")
        with pytest.raises(Exception, match="gateway"):
            load_configuration(file)
