"""An admitted host that reports all others of a pool as unreachable. Run it where SCTP works.

    python -m rspdns_lab.chaos.unreachable_reporter OWN HANDLE REGISTRAR...

Twenty times a second it sends three reports for each pool element that is not at its own address, to every
registrar: as many as make a registrar with its own defaults remove an element. It writes "sent N" each time.
"""

import asyncio
import sys
from ipaddress import ip_address

from rserpool import REPORTS_THAT_REMOVE, RegistrarAddress, RegistrarClient, RSerPoolError

EVERY_S = 0.05


async def main(own: str, handle: str, *addresses: str) -> None:
    """Report until killed."""
    clients = [
        RegistrarClient(RegistrarAddress.parse(address), local_addresses=[own]) for address in addresses
    ]
    for client in clients:
        client.start()
    sent = 0
    while True:
        for client in clients:
            try:
                listed = (await client.resolve(handle.encode())).pool_elements
            except RSerPoolError:
                continue
            others = [
                element for element in listed if ip_address(own) not in element.user_transport.addresses
            ]
            for element in others * REPORTS_THAT_REMOVE:
                client.report_unreachable(handle.encode(), element.identifier)
                sent += 1
        print(f"sent {sent}", flush=True)
        await asyncio.sleep(EVERY_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
