"""The sidecar finds its registrars by their announcements, with real ones."""

import subprocess
import sys
from pathlib import Path

from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import Chain
from tests.support.namespaces import Namespace

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
    chain = Chain(namespace, tmp_path, registrars="later")
    for command in ("address add 10.98.0.1/24 dev eth0", "route add 224.0.0.0/4 dev eth0"):
        assert namespace.run("ip", *command.split()).returncode == 0
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
    written = chain.sidecar.config.read_text().splitlines()
    written[0] = f'registrars = "multicast"\nmulticast = {{ accept = ["{ADDRESS}/32"], group = "{GROUP}" }}'
    chain.sidecar.config.write_text("\n".join(written))
    chain.start_tcp()
    chain.sidecar.start()
    chain.sidecar.until(lambda status: status["multicast"] == {"group": GROUP, "heard": 0, "ignored": 0})
    namespace.run(sys.executable, "-c", STRANGER)
    chain.sidecar.until(
        lambda status: status["multicast"]["ignored"] > 0 and not status["multicast"]["heard"]
    )
    assert "No registrar has announced itself" in chain.sidecar.command("status")

    registrars = [start_registrar(chain, number) for number in (1, 2, 3)]
    identifier = chain.until_in()
    chain.sidecar.until(lambda status: len(status["registrars"]) == 3)
    assert chain.sidecar.command("check").endswith("no errors\n")

    home = chain.registrars.addresses.index(chain.sidecar.until_state("in")["registrar"])
    registrars[home].kill()
    registrars[home].wait()
    chain.sidecar.until(lambda status: len(status["registrars"]) == 2)  # forgotten when it is silent for long
    others = [
        address for address in chain.registrars.addresses if address != chain.registrars.addresses[home]
    ]
    view = chain.watch.until(lambda view: all(view.get(each) for each in others))
    assert all(list(view[each] or ()) == [identifier] for each in others)
    namespace.run(sys.executable, "-c", STRANGER)
    assert len(chain.sidecar.status()["registrars"]) == 2


def start_registrar(chain: Chain, number: int) -> subprocess.Popen[str]:
    """One of three at the same address, as `rspdns-registrar` starts it."""
    arguments = [f"--number={number}", f"--address={ADDRESS}:{3862 + number}", f"--enrp-port={9900 + number}"]
    arguments += [f"--peer={ADDRESS}:{port}" for port in (9901, 9902, 9903)]
    return chain.namespace.start(
        *(sys.executable, "-m", "registrar_config", "run", "--no-sentinel", f"--announce={GROUP}"),
        *arguments,
        sctp=True,
        log=chain.folder / f"registrar-{number}.log",
    )
