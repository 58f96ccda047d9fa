"""The sidecar finds its registrars by their announcements, with real ones."""

import subprocess
import sys
from pathlib import Path

from tests.support.agent_host import ADDRESS, Host, give_address
from tests.support.namespaces import Namespace
from tests.support.registrars import PoolWatch

GROUP = "239.0.0.50:3863"
STRANGER = """
import socket
sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sending.bind(("10.98.0.1", 0))
sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.99.0.1"))
sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
for number in range(2000):
    data = bytes.fromhex("0a00000822222222") if number % 2 else bytes(number % 1500)
    sending.sendto(data, ("239.0.0.50", 3863))
"""


def test_registrars_that_announce_themselves_are_found_and_strangers_are_not(
    namespace: Namespace, tmp_path: Path
) -> None:
    host = Host(namespace, tmp_path, with_registrars=False)
    give_address(namespace, ADDRESS)
    for command in ("address add 10.98.0.1/24 dev eth0", "route add 224.0.0.0/4 dev eth0"):
        assert namespace.run("ip", *command.split()).returncode == 0
    host.configure("tcp-hold", "tcp")
    written = host.config.read_text().splitlines()
    written[0] = f'registrars = "multicast"\nmulticast = {{ accept = ["{ADDRESS}/32"], group = "{GROUP}" }}'
    host.config.write_text("\n".join(written))
    host.start_tcp_server()
    host.start_agent()
    host.until(lambda status: status["multicast"] == {"group": GROUP, "heard": 0, "ignored": 0})
    namespace.run(sys.executable, "-c", STRANGER)
    host.until(lambda status: status["multicast"]["ignored"] > 0 and not status["multicast"]["heard"])
    assert "No registrar has announced itself" in host.command("status")

    registrars = [start_registrar(host, number) for number in (1, 2, 3)]
    host.watch = PoolWatch(namespace, "agent-test", host.addresses, tmp_path / "watch.log")
    identifier = host.until_in()
    host.until(lambda status: len(status["registrars"]) == 3)
    assert host.command("check").endswith("no errors\n")

    home = host.addresses.index(host.until_state("in")["registrar"])
    registrars[home].kill()
    registrars[home].wait()
    host.until(lambda status: len(status["registrars"]) == 2, log="forgotten when it is silent for long")
    others = [address for address in host.addresses if address != host.addresses[home]]
    view = host.watch.until(lambda view: all(view.get(each) for each in others))
    assert all(list(view[each] or ()) == [identifier] for each in others)
    namespace.run(sys.executable, "-c", STRANGER)
    assert len(host.status()["registrars"]) == 2


def start_registrar(host: Host, number: int) -> subprocess.Popen[str]:
    """One of three at the same address, as `rspdns-registrar` starts it."""
    arguments = [f"--number={number}", f"--address={ADDRESS}:{3862 + number}", f"--enrp-port={9900 + number}"]
    arguments += [f"--peer={ADDRESS}:{port}" for port in (9901, 9902, 9903)]
    return host.namespace.start(
        *(sys.executable, "-m", "registrar_config", "run", "--no-sentinel", f"--announce={GROUP}"),
        *arguments,
        sctp=True,
        log=host.directory / f"registrar-{number}.log",
    )
