"""A web server that answers every request with 200 and its name: `python -m ... ADDRESS PORT NAME`."""

from __future__ import annotations

import asyncio
import contextlib
import sys

_MAX_HEAD_BYTES = 16 * 1024


async def serve(address: str, port: int, name: str) -> None:
    """Answer for ever."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
        with contextlib.suppress(*over):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\n\r\n"
                writer.write(f"{head}{name}".encode())
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, address, port, limit=_MAX_HEAD_BYTES)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
