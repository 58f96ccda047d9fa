"""Thousands of sessions of DNS Push at one `rspdns news`: each costs little, and is told of a change."""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path

import psutil
from rspdns_lab.observe.percentiles import percentile

from tests.backend.making import member
from tests.backend.push_client import keepalive, subscribe
from tests.backend.push_served import OWNER, Client, Served
from tests.support.waiting import until_async

SESSIONS = 3000
AT_ONCE = 50


async def test_each_of_thousands_of_sessions_is_told_and_costs_little(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.backend.members(member(1), member(2))
    await served.backend.start()
    file = tmp_path / "rspdns.toml"
    (tmp_path / "state").mkdir()
    file.write_text(
        f'registrars = ["127.0.0.1"]\nzones_dir = "{tmp_path}/state"\n[admin]\nlisten = "off"\n'
        f'socket = "{served.backend.path}"\n[state]\npath = "{tmp_path}/state"\n'
        f'[news.push]\nlisten = "127.0.0.1:{served.port}"\n'
        f'tls_certificate = "{served.config.tls_certificate}"\ntls_key = "{served.config.tls_key}"\n'
        f"sessions = {SESSIONS}\nsessions_per_address = {SESSIONS + 10}\n"
    )
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rspdns.cli", "news", "--log-json", "-c", str(file), stderr=output
        )
    try:
        await until_async(lambda: process.returncode is not None or "push_ready" in log.read_text())
        assert process.returncode is None, log.read_text()
        watched = psutil.Process(process.pid)
        empty_bytes, began_s = watched.memory_info().rss, sum(watched.cpu_times()[:2])
        clients = await sessions(served, SESSIONS)
        memory = (watched.memory_info().rss - empty_bytes) / SESSIONS
        used_s = sum(watched.cpu_times()[:2])
        delays = asyncio.gather(*(told_after(client) for client in clients))
        await asyncio.sleep(0.1)
        changed_s = time.monotonic()
        served.backend.members(member(1))
        delays_ms = [1000 * (at_s - changed_s) for at_s in await delays]
        pushed_s = sum(watched.cpu_times()[:2])
        await asyncio.sleep(10)
        idle_s = sum(watched.cpu_times()[:2]) - pushed_s
        print(
            f"{SESSIONS} sessions, each: {memory / 1000:.0f} kB; of a processor "
            f"{1000 * (used_s - began_s) / SESSIONS:.2f} ms to begin it, "
            f"{1e6 * (pushed_s - used_s) / SESSIONS:.0f} us to tell it a change; without changes all "
            f"{idle_s / 10:.1%}; told after {percentile(delays_ms, 50):.0f} ms (median), "
            f"{max(delays_ms):.0f} ms (last)"
        )
        assert memory < 50_000, "the unit has 512 MiB, for up to 10,000 sessions"
        surplus = await served.connect()
        await surplus.say(keepalive(1))
        assert [(await surplus.hear()).rcode for _ in range(2)] == [0, 2], "it is told to come again"
        refused = [json.loads(line) for line in log.read_text().splitlines() if "push_refused" in line]
        assert [line["limit"] for line in refused] == ["news.push.sessions"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await served.backend.stop()


async def sessions(served: Served, count: int) -> list[Client]:
    """Return clients that have subscribed and were told the records of now."""
    places = asyncio.Semaphore(AT_ONCE)

    async def begin() -> Client:
        async with places:
            client = await served.connect()
            await client.say(keepalive(1, 0, 3_600_000), subscribe(2, OWNER, "SRV"))
            assert [(await client.hear()).identifier for _ in range(3)] == [1, 2, 0]
            return client

    return await asyncio.gather(*(begin() for _ in range(count)))


async def told_after(client: Client) -> float:
    """When this client was told that a server left."""
    async with asyncio.timeout(60):
        while not any(ttl > 2**31 for _, _, ttl, _ in (await client.hear()).changes):
            pass
    return time.monotonic()
