"""Prints what registrars tell of a pool, whenever it changes: one JSON line for each change.

    python pool_watch.py HANDLE REGISTRAR...

Each line: {"at_s": monotonic, "registrar": "10.0.0.1", "elements": {"0000002a": "LeastUsed(load=0.5)"}}; the
elements are null while the registrar gives no answer.
"""

import asyncio
import json
import sys
import time

from rserpool import RegistrarAddress, RegistrarClient, RSerPoolError

INTERVAL_S = 0.005


async def watch(handle: bytes, registrar: RegistrarAddress) -> None:
    client = RegistrarClient(registrar)
    client.start()
    last: object = ""
    while True:
        elements: dict[str, str] | None
        try:
            found = (await client.resolve(handle)).pool_elements
            elements = {f"{element.identifier:08x}": str(element.policy) for element in found}
        except RSerPoolError:
            elements = None
        if elements != last:
            last = elements
            line = {"at_s": time.monotonic(), "registrar": str(registrar), "elements": elements}
            print(json.dumps(line), flush=True)
        await asyncio.sleep(INTERVAL_S)


async def main(handle: str, *registrars: str) -> None:
    await asyncio.gather(
        *(watch(handle.encode(), RegistrarAddress.parse(registrar)) for registrar in registrars)
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
