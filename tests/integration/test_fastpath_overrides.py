"""Overrides in the answers of the kernel, with registrars, sidecar and backend."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.backend import OWNER, ZONE
from tests.support.chain import SIP_PORTS, Chain
from tests.support.fast_path import FAST, built, connect, needs_bpf
from tests.support.namespaces import Namespace, own_namespace
from tests.support.waiting import until

LIVE = set(SIP_PORTS)
LAST = SIP_PORTS[-1]
SOON_S = 2.0


@dataclass
class Kernel:
    """The chain, and a client that asks an address at which PowerDNS does not listen."""

    chain: Chain
    client: Namespace

    def weights(self) -> dict[int, int]:
        """Return the weights in the SRV records of the kernel's answer, by port."""
        done = self.client.run("dig", "+short", "+nocookie", "+tries=1", "+time=1", f"@{FAST}", OWNER, "SRV")
        records = [line.split() for line in done.stdout.splitlines() if line.endswith(f".{ZONE}.")]
        return {int(port): int(weight) for _, weight, port, _ in records}

    def override(self, *words: str) -> None:
        done = self.chain.backend.command("override", *words)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    needs_bpf()
    with own_namespace() as namespace, own_namespace() as client:
        connect(namespace, client)
        folder = tmp_path_factory.mktemp("kernel")
        chain = Chain(namespace, folder)
        for port in SIP_PORTS:
            chain.start_sip(port)
        chain.start_sidecar()
        socket = folder / "fastpath.sock"
        with chain.backend.config.open("a") as config:
            config.write(f'[fastpath]\nsocket = "{socket}"\n')
        options = ("--interface", "server", "--address", FAST, "--socket", str(socket))
        namespace.start(str(built()), "run", *options, log=folder / "fastpath.log")
        chain.start()
        made = Kernel(chain, client)
        until(lambda: made.weights().keys() == LIVE, told=folder / "fastpath.log")
        yield made


def test_kernel_answers_with_the_overrides(kernel: Kernel) -> None:
    server, log = f"{kernel.chain.address}:{LAST}", kernel.chain.backend.log
    kernel.override(server, "down", "--reason", "new kernel", "--for", "3s")
    until(lambda: kernel.weights().keys() == LIVE - {LAST}, SOON_S, log)
    for _ in range(20):
        assert kernel.weights().keys() == LIVE - {LAST}
    until(lambda: kernel.weights().keys() == LIVE, 10, log)

    kernel.override(server, "share=5%", "--reason", "canary")

    def is_shared() -> bool:
        weights = kernel.weights()
        return weights.keys() == LIVE and abs(weights[LAST] / sum(weights.values()) - 0.05) < 0.005

    until(is_shared, SOON_S, log)
    kernel.override("clear", "--all")
    until(lambda: not is_shared(), SOON_S, log)
