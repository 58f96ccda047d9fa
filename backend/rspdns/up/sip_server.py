"""A small SIP server for `rspdns up`: it answers OPTIONS with 200 over UDP and TCP, all else with 501.

Run as a program: python -m rspdns.up.sip_server ADDRESS PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from typing import cast

COPIED = {"v": "Via", "via": "Via", "f": "From", "from": "From", "t": "To", "to": "To"} | {
    "i": "Call-ID",
    "call-id": "Call-ID",
    "cseq": "CSeq",
}
"""Headers that go back to the client, by their long and compact names (RFC 3261 sections 8.2.6.2, 7.3.3)."""
MAX_REQUEST = 65_535
"""Bytes."""
MAX_CONNECTIONS = 100


def answer(request: bytes) -> bytes | None:
    """Return the response to one SIP request; None for an ACK and for what is no request."""
    head, _, _ = request[:MAX_REQUEST].partition(b"\r\n\r\n")
    first, *lines = head.decode(errors="replace").split("\r\n")
    match = re.fullmatch(r"([A-Za-z]+) \S+ SIP/2\.0", first)
    if match is None or match[1].upper() == "ACK":
        return None
    status = "200 OK" if match[1].upper() == "OPTIONS" else "501 Not Implemented"
    reply = [f"SIP/2.0 {status}"]
    for line in lines:
        name, colon, value = line.partition(":")
        header = COPIED.get(name.strip().lower())
        if colon and header:
            tag = ";tag=up" if header == "To" and ";tag=" not in value else ""
            reply.append(f"{header}: {value.strip()}{tag}")
    return "\r\n".join([*reply, "Content-Length: 0", "", ""]).encode()


class _OverUdp(asyncio.DatagramProtocol):
    _transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # by its class only from Python 3.12 on

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if response := answer(data):
            self._transport.sendto(response, addr)


class _OverTcp:
    """Holds connections: the sidecar's check `tcp-hold` sees by the end of its own that the server died."""

    def __init__(self) -> None:
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it hangs up, or sends what is no SIP."""
        self._open += 1
        try:
            while self._open <= MAX_CONNECTIONS:
                response = answer(await reader.readuntil(b"\r\n\r\n"))
                if response is not None:
                    writer.write(response)
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the client is gone, or we are ending: asyncio's streams would print a traceback
        finally:
            self._open -= 1
            writer.close()


async def serve(address: str, port: int) -> None:
    """Answer at `address` and `port` until cancelled. Raises OSError."""
    await asyncio.get_running_loop().create_datagram_endpoint(_OverUdp, local_addr=(address, port))
    server = await asyncio.start_server(_OverTcp().serve, address, port, limit=MAX_REQUEST)
    await server.serve_forever()


def main(address: str, port: str) -> int:
    """Serve until a signal; say on standard error what is in the way. Return the exit code."""
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(address, int(port)))
    except OSError as error:
        print(f"{address} port {port}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
