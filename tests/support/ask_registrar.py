"""Asks one registrar for pools and prints what it lists, a line of JSON each. Run it where SCTP works.

Arguments: registrar's address, pool handles. `--raw-handle-bytes N` sends instead one handle resolution with
a handle of N bytes, unchecked.
"""

import asyncio
import contextlib
import json
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

from rserpool import AssociationUp, RegistrarAddress, RegistrarClient, RSerPoolError, SctpSocket

ASAP_PPID = 11


async def ask(address: RegistrarAddress, handles: Sequence[str]) -> None:
    client = RegistrarClient(address, timeout_ms=1000)
    client.start()
    for handle in handles:
        print(json.dumps(await listed(client, handle.encode())))
    await client.close()


async def listed(client: RegistrarClient, handle: bytes) -> dict[str, Any]:
    deadline_s = time.monotonic() + 15
    while time.monotonic() < deadline_s:
        with contextlib.suppress(RSerPoolError):
            resolution = await client.resolve(handle)
            return {
                "found": resolution.found,
                "pool_elements": [
                    {
                        "identifier": element.identifier,
                        "home": element.home_registrar,
                        "address": str(element.user_transport.addresses[0]),
                    }
                    for element in resolution.pool_elements
                ],
            }
        await asyncio.sleep(0.05)
    return {"found": None, "pool_elements": []}


def send_long_handle(address: RegistrarAddress, length: int) -> None:
    parameter = struct.pack(">HH", 9, 4 + length) + b"x" * length + bytes(-length % 4)
    message = struct.pack(">BBH", 5, 0, 4 + len(parameter)) + parameter
    sender = SctpSocket()
    sender.connect(address.endpoint)
    deadline_s = time.monotonic() + 15
    while time.monotonic() < deadline_s:
        with contextlib.suppress(BlockingIOError):
            if isinstance(up := sender.receive(), AssociationUp):
                sender.send(up.association, ASAP_PPID, message)
                time.sleep(0.3)
                return
        time.sleep(0.01)


if __name__ == "__main__":
    registrar = RegistrarAddress.parse(sys.argv[1])
    if sys.argv[2] == "--raw-handle-bytes":
        send_long_handle(registrar, int(sys.argv[3]))
    else:
        asyncio.run(ask(registrar, sys.argv[2:]))
