"""The traffic of a trial, a program of its own: web sessions, long flows, and their servers.

    python -m rspdns_lab.favor.traffic CGROUP FLOWS SERVER...     SERVER: address=namespace

It joins the cgroup whose `cgroup.procs` is CGROUP ("-": none), and runs on the clients' host; the servers
listen on their own hosts. Every object is a connection: SYN, the size asked for, that many packets, FIN. For
each that ended FLOWS gets a line: when it began (monotonic, s), its packets, its time (ms; -1: it failed).
"""

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, TextIO

from rspdns_lab.favor.workload import PACKET_BYTES, SESSIONS, session
from rspdns_lab.net.network import call_in

PORT: Final = 80
_ENDLESS: Final = 2**40
_CHUNK: Final = bytes(64 * PACKET_BYTES)
_REST_S: Final = 0.1


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send as many packets as the client asks for."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        left = int.from_bytes(await reader.readexactly(8)) * PACKET_BYTES
        while left > 0:
            writer.write(_CHUNK[:left])
            left -= len(_CHUNK)
            await writer.drain()
    writer.close()


async def fetch(address: str, packets: int, flows: TextIO) -> None:
    """Fetch an object, and write down how long it took."""
    began_s, got = time.monotonic(), 0
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(address, PORT)
        try:
            writer.write(packets.to_bytes(8))
            while data := await reader.read(65536):
                got += len(data)
        finally:
            writer.close()
    took_ms = (time.monotonic() - began_s) * 1000 if got == packets * PACKET_BYTES else -1.0
    flows.write(f"{began_s:.6f} {packets} {took_ms:.3f}\n")


async def browse(seed: int, addresses: Sequence[str], flows: TextIO) -> None:
    """Fetch page after page: the objects at their times, the next page some time after the last object."""
    for page in session(seed):
        async with asyncio.TaskGroup() as objects:
            for packets, gap_s in zip(page.packets, (0.0, *page.gaps_s), strict=True):
                await asyncio.sleep(gap_s)
                objects.create_task(fetch(addresses[page.server], packets, flows))
        await asyncio.sleep(page.think_s)


async def download(address: str, flows: TextIO) -> None:
    """Keep a long flow up."""
    while True:
        await fetch(address, _ENDLESS, flows)
        await asyncio.sleep(_REST_S)


async def run(listeners: Sequence[socket.socket], flows: TextIO) -> None:
    """Serve and fetch until the process ends."""
    addresses = [listener.getsockname()[0] for listener in listeners]
    for listener in listeners:
        await asyncio.start_server(serve, sock=listener, limit=2**20)
    async with asyncio.TaskGroup() as tasks:
        for address in addresses:
            tasks.create_task(download(address, flows))
        for number in range(SESSIONS):
            tasks.create_task(browse(number, addresses, flows))


def main() -> None:
    """Join the cgroup, listen, and run."""
    cgroup, file, *servers = sys.argv[1:]
    if cgroup != "-":
        Path(cgroup).write_text("0")

    listeners = []
    for server in servers:
        address, _, namespace = server.partition("=")
        listen = partial(socket.create_server, (address, PORT), backlog=1024)
        listeners.append(call_in(Path(namespace), listen))
    with open(file, "w", buffering=1) as flows:
        print("ready", flush=True)
        asyncio.run(run(listeners, flows))


if __name__ == "__main__":
    main()
