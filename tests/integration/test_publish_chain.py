"""The whole chain without a PowerDNS of ours: a server dies, and BIND, Knot and PowerDNS are told.

    RSPDNS_KILLS=20 pytest -s tests/integration/test_publish_chain.py

prints how long a killed server stayed in the answers of each, and what 10 changes a second cost.
"""

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rspdns_lab.observe.percentiles import percentile

from tests.backend.making import member, view
from tests.support.backend import FIXED, OWNER, ZONE, other_pool
from tests.support.chain import TCP_OWNER, Chain
from tests.support.dns_watch import DnsWatch
from tests.support.namespaces import kill, own_namespace
from tests.support.primaries import PRIMARIES, Primary, running
from tests.support.publisher import Publisher, config
from tests.support.waiting import until, until_async

KILLS = int(os.environ.get("RSPDNS_KILLS", "3"))
PORTS = (5070, 5071, 5072)
RIGHT_S = 10.0
CHANGES = 10 * KILLS
TOML = """
[[publish]]
name   = "{name}"
server = "{primary.server}"
zone   = "{zone}"
key    = "{primary.key}"
"""


class Published:
    """A chain whose zone is published at all three."""

    def __init__(self, chain: Chain, primaries: list[Primary]) -> None:
        self.chain = chain
        self.primaries = primaries
        text = chain.backend.config.read_text().replace(f'["{chain.pdns.control}"]', "[]")
        tables = (
            TOML.format(name=f"at-{index}", primary=primary, zone=ZONE)
            for index, primary in enumerate(primaries)
        )
        chain.backend.config.write_text(text + "".join(tables))

    def states(self) -> list[str]:
        status = self.chain.backend.status() or {"publications": []}
        return [publication["state"] for publication in status["publications"]]

    def until_right(self) -> None:
        until(lambda: self.states() == ["right"] * len(self.primaries), 60, self.chain.backend.log)


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    with own_namespace() as namespace, contextlib.ExitStack() as stack:
        chain = Chain(namespace, tmp_path, other_pool("tcp", "t"))
        primaries = [
            stack.enter_context(running(kind, tmp_path, ZONE, FIXED, namespace)) for kind in PRIMARIES
        ]
        made = Published(chain, primaries)
        done = chain.backend.command("check")
        assert done.returncode == 0, done.stdout + done.stderr
        chain.backend.start()
        yield made


def test_killed_server_is_out_of_the_answers_of_all_three(published: Published) -> None:
    chain = published.chain
    servers = {port: chain.start_tcp(port) for port in PORTS}
    chain.start_sidecar(udp=(), tcp=PORTS)
    for primary in published.primaries:
        until(lambda primary=primary: len(primary.targets(TCP_OWNER)) == 3, 60, chain.backend.log)  # type: ignore[misc]
    published.until_right()
    watches = {
        primary.program: DnsWatch(
            chain.namespace, TCP_OWNER, chain.folder / f"{primary.program}.watch", primary.port, 2
        )
        for primary in published.primaries
    }
    out_ms: dict[str, list[float]] = {program: [] for program in watches}
    for number in range(KILLS):
        port = PORTS[number % len(PORTS)]
        right = set(PORTS) - {port}
        killed_s = time.monotonic()
        kill(servers[port])
        for primary in published.primaries:
            until(lambda primary=primary: len(primary.targets(TCP_OWNER)) == 2, RIGHT_S, chain.backend.log)  # type: ignore[misc]
        time.sleep(0.3)
        for program, watch in watches.items():
            wrong = watch.wrong(right, killed_s)
            assert wrong, "it was asked before it could know"
            out_ms[program].append(1000 * (wrong[-1].asked_at_s - killed_s))
        servers[port] = chain.start_tcp(port)
        for primary in published.primaries:
            until(lambda primary=primary: len(primary.targets(TCP_OWNER)) == 3, 60, chain.backend.log)  # type: ignore[misc]
    published.until_right()
    for program, found in out_ms.items():
        words = f"p50 {percentile(found, 50):.0f}, p99 {percentile(found, 99):.0f} ms"
        print(f"\n{program}: a killed server was answered for {words} ({len(found)} kills)", end="")
    status = chain.backend.status()
    assert status is not None
    assert [publication["edits"] for publication in status["publications"]] == [0, 0, 0]
    assert [publication["failed"] for publication in status["publications"]] == [0, 0, 0]


@pytest.mark.parametrize("members", [4, 120])
@pytest.mark.parametrize("kind", PRIMARIES, ids=lambda kind: kind.program)
async def test_ten_changes_a_second_are_kept_up_with(
    kind: type[Primary], members: int, tmp_path: Path
) -> None:
    with running(kind, tmp_path, ZONE, FIXED) as primary:
        async with Publisher(config(primary)) as publisher:
            everyone = [member(number, f"10.0.1.{number}") for number in range(1, members + 1)]
            publisher.believe(view(*everyone))
            await publisher.until_right()
            began_s = time.monotonic()
            server_s, own_s = primary.cpu_s(), _own_s()
            for number in range(CHANGES):
                publisher.believe(view(*everyone[number % 2 :]))
                await asyncio.sleep(max(0.0, began_s + 0.1 * (number + 1) - time.monotonic()))
            took_s = time.monotonic() - began_s
            server_s, own_s = primary.cpu_s() - server_s, _own_s() - own_s
            await publisher.until_right()
            sent = publisher.status.sent
            print(
                f"\n{primary.program}, {members} members, {CHANGES / took_s:.0f} changes a second: publisher "
                f"{1000 * own_s / took_s:.0f} ms/s, {primary.program} {1000 * server_s / took_s:.0f} ms/s, "
                f"{sent} messages",
                end="",
            )
            count = len(everyone[(CHANGES - 1) % 2 :])
            await until_async(lambda: len(primary.targets(OWNER)) == count)
            assert sent <= CHANGES + 2


def _own_s() -> float:
    """Seconds of processor of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
