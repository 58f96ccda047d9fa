"""An admitted host that registers every PE identifier of a pool at its own address. Run it where SCTP works.

    python -m rspdns_lab.chaos.identifier_thief OWN PORT HANDLE REGISTRAR...

It asks every registrar for the pool again and again, and writes a line for each identifier that it took.
Each element that it registers lives: it answers keep-alives.
"""

import asyncio
import sys
from ipaddress import ip_address

from rserpool import (
    LeastUsed,
    PoolElement,
    PoolElementClient,
    Protocol,
    RegistrarAddress,
    RegistrarClient,
    RSerPoolError,
    Transport,
)

EVERY_S = 0.02


async def main(own: str, port: str, handle: str, *addresses: str) -> None:
    """Take identifiers until killed."""
    registrars = [RegistrarAddress.parse(text) for text in addresses]
    asked = [RegistrarClient(each) for each in registrars]
    for client in asked:
        client.start()
    transport = Transport(Protocol.UDP, int(port), (ip_address(own),))
    taken: dict[int, PoolElementClient] = {}
    while True:
        for client in asked:
            try:
                found = await client.resolve(handle.encode())
            except RSerPoolError:
                continue
            for element in found.pool_elements:
                if element.user_transport.addresses == transport.addresses:
                    continue
                if element.identifier in taken:
                    taken[element.identifier].register_again("it is listed elsewhere again")
                    continue
                mine = PoolElement(element.identifier, 0, 6000, transport, LeastUsed(0.0))
                taker = PoolElementClient(
                    registrars, handle.encode(), mine, local_addresses=[own], reregistration_ms=200
                )
                taken[element.identifier] = taker
                taker.start()
                print(f"{element.identifier:08x}", flush=True)
        await asyncio.sleep(EVERY_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
