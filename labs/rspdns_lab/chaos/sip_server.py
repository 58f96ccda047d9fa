"""A SIP server over TCP that answers every request with 200 and its name: `python -m ... ADDRESS PORT NAME`.

SIPp would end with the connections that are reset when an agent is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from daemon_kit.sip import refusal

MAX_HEAD_BYTES = 16 * 1024


async def serve(address: str, port: int, name: str) -> None:
    """Answer for ever."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
        with contextlib.suppress(*over):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                refused = refusal(head, writer.get_extra_info("peername")[:2], "chaos")
                if refused is not None:
                    _, _, rest = refused.partition(b"\r\n")
                    writer.write(f"SIP/2.0 200 OK\r\nServer: {name}\r\n".encode() + rest)
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, address, port, limit=MAX_HEAD_BYTES)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
