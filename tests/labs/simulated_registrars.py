"""The scenarios of rserpool_scenarios.py, which real registrars pass, with models of registrars.

    python -m tests.labs.simulated_registrars SCENARIO ...

Clocks are replaced before anything else is imported, as in a worker of the simulator. Exit status 0: the
scenarios went as they must.
"""

from rspdns_lab.simulate import determinism

determinism.install()

import asyncio  # noqa: E402 - see above
import inspect  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

from rspdns_lab.simulate import seams  # noqa: E402
from rspdns_lab.simulate.kernel import Kernel, SimulatedProcess  # noqa: E402
from rspdns_lab.simulate.network import SimulatedNetwork  # noqa: E402
from rspdns_lab.simulate.registrar import RegistrarModel  # noqa: E402

from rserpool import RegistrarAddress  # noqa: E402
from tests.integration import rserpool_scenarios as scenarios  # noqa: E402

ADDRESS = "10.66.0.1"
NUMBERS = (1, 2, 3)
SETTLED_S = 10.0
LONGEST_S = 120.0


class NoStall:
    """Time passes for nobody else: no stall of the machine is to be left out."""

    @classmethod
    def now(cls) -> "NoStall":
        return cls()

    def lacked_s(self) -> float:
        return 0.0


async def until_soon(condition: Callable[[], Any], timeout_s: float, told: Any = "did not happen") -> None:
    end_s = asyncio.get_running_loop().time() + timeout_s
    while True:
        holds = condition()
        if await holds if inspect.isawaitable(holds) else holds:
            return
        assert asyncio.get_running_loop().time() < end_s, told if isinstance(told, str) else told()
        await asyncio.sleep(0.01)


def play(name: str) -> None:
    kernel = Kernel(1)
    network = SimulatedNetwork(kernel)
    seams.use(network)
    host = network.add_host("h1", ADDRESS)
    addresses = {number: RegistrarAddress(ADDRESS, 3862 + number, 9900 + number) for number in NUMBERS}
    processes: dict[int, SimulatedProcess] = {}

    def start(number: int) -> None:
        process = processes[number] = host.start(f"registrar-{number}")
        peers = [address for other, address in addresses.items() if other != number]
        process.do(lambda: RegistrarModel(addresses[number], peers, process, lambda: None))

    def send_signal(number: int, what: int) -> None:
        match what:
            case signal.SIGKILL:
                processes[number].kill()
            case signal.SIGSTOP:
                processes[number].freeze()
            case signal.SIGCONT:
                processes[number].wake()

    for number in NUMBERS:
        start(number)
    kernel.run(SETTLED_S)
    os.kill = send_signal
    player = host.start("player")
    results: list[asyncio.Task[None]] = []
    player.do(lambda: results.append(player.create_task(scenarios.main(name, ADDRESS, list(NUMBERS)))))
    while not results[0].done() and kernel.now < SETTLED_S + LONGEST_S:
        kernel.run(kernel.now + 0.1)
    kernel.close()
    results[0].result()
    assert not any(process.failures for process in processes.values()), processes[1].failures


def main() -> None:
    seams.install()
    for name, stand_in in (("until_async", until_soon), ("Mark", NoStall)):
        getattr(scenarios, name)
        setattr(scenarios, name, stand_in)
    for name in sys.argv[1:]:
        play(name)
        print(f"{name}: as it must")


if __name__ == "__main__":
    main()
