"""Asks a name server for one new name after the other, so that no cache answers, and counts what comes back.

python -m tests.support.dns_stream SUFFIX PER_S
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import dns.message
import dns.rcode

from tests.support.namespaces import REPOSITORY, Namespace

AT_ONCE = 32
"""The number of questions that may wait for an answer."""
PATIENCE_S = 60.0
"""After that a question counts as unanswered."""


class DnsStream:
    """Asks 127.0.0.1 of the namespace for A of `q<number>.<suffix>`, until it is told to end."""

    def __init__(self, namespace: Namespace, suffix: str, per_s: int, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] = namespace.start(
            *(sys.executable, "-m", "tests.support.dns_stream", suffix, str(per_s)),
            log=log,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        end_s = time.monotonic() + 20
        while not log.exists() or "asking" not in log.read_text():
            assert time.monotonic() < end_s, log.read_text()
            time.sleep(0.02)

    def end(self) -> dict[str, int]:
        """Wait for the last answers; return how many there were of each rcode, "TIMEOUT" for none."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S + 10)
        found: dict[str, int] = json.loads(self._log.read_text().splitlines()[-1])
        return found


class _Asker(asyncio.DatagramProtocol):
    """One socket, one question at a time: the sockets spread over PowerDNS's receivers."""

    def __init__(self) -> None:
        self.asked = 0
        self.answered: asyncio.Future[str] | None = None

    def datagram_received(self, data: bytes, address: object) -> None:
        answer = dns.message.from_wire(data)
        if self.answered is not None and not self.answered.done() and answer.id == self.asked:
            self.answered.set_result(dns.rcode.to_text(answer.rcode()))


async def _main(suffix: str, per_s: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    counts: Counter[str] = Counter()

    async def ask(first: int) -> None:
        transport, asker = await loop.create_datagram_endpoint(_Asker, remote_addr=("127.0.0.1", 53))
        number, next_s = first, loop.time() + first / per_s
        while not stop.is_set():
            await asyncio.sleep(next_s - loop.time())
            next_s = max(next_s + AT_ONCE / per_s, loop.time())
            question = dns.message.make_query(f"q{number}.{suffix}", "A", flags=0)
            question.id = asker.asked = number % 65536
            asker.answered = loop.create_future()
            transport.sendto(question.to_wire())
            try:
                counts[await asyncio.wait_for(asker.answered, PATIENCE_S)] += 1
            except TimeoutError:
                counts["TIMEOUT"] += 1
            number += AT_ONCE

    print("asking", flush=True)
    await asyncio.gather(*(ask(first) for first in range(AT_ONCE)))
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
