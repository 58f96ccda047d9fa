"""A server over TCP that answers every request with 200 and its name.

    python -m rspdns_lab.chain.named_server PROTOCOL ADDRESS PORT NAME

PROTOCOL is `sip` or `http`. SIPp would end with the connections that are reset when an agent is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from daemon_kit.sip import refusal

_MAX_HEAD_BYTES = 16 * 1024


def _answer(protocol: str, head: bytes, peer: tuple[str, int], name: str) -> bytes:
    """Return the answer to a request; nothing for one that gets none."""
    if protocol == "http":
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\n\r\n{name}".encode()
    _, _, headers = (refusal(head, peer, "chaos") or b"").partition(b"\r\n")
    return f"SIP/2.0 200 OK\r\nServer: {name}\r\n".encode() + headers if headers else b""


async def _serve(protocol: str, address: str, port: str, name: str) -> None:
    """Answer for ever."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
        with contextlib.suppress(*over):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(protocol, head, writer.get_extra_info("peername")[:2], name))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, address, int(port), limit=_MAX_HEAD_BYTES)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
