"""The address at which PowerDNS answers, by its own word: for commands that a person copies."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import dataclass

_COMMAND = b"CURRENT-CONFIG diff\n"
"""PowerDNS then tells the settings that are not its defaults; that takes it less than a millisecond."""
_MOST_BYTES = 64 * 1024
_TIMEOUT_S = 0.5
_DNS_PORT = 53
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound


@dataclass(frozen=True, slots=True)
class DnsServer:
    """An address and port at which PowerDNS answers questions of this host."""

    address: str = "127.0.0.1"
    port: int = _DNS_PORT

    @property
    def dig(self) -> str:
        """The beginning of a dig command that asks there."""
        port = "" if self.port == _DNS_PORT else f" -p {self.port}"
        return f"dig +noall +answer @{shlex.quote(self.address)}{port}"


def read_settings(text: str) -> DnsServer:
    """Return the first address of the settings that PowerDNS tells; its defaults where it tells none."""
    settings = dict(re.findall(r"^(local-address|local-port)=(.*)$", text, re.MULTILINE))
    addresses = re.split(r"[,\s]+", settings.get("local-address", "0.0.0.0").strip())  # noqa: S104 - as above
    address, port = addresses[0], settings.get("local-port", str(_DNS_PORT)).strip()
    if found := re.fullmatch(r"\[(.*)\]:(\d+)|([\d.]+):(\d+)", address):
        address, port = found[1] or found[3], found[2] or found[4]
    return DnsServer(_ANYWHERE.get(address, address), int(port) if port.isdecimal() else _DNS_PORT)


async def dns_server(control: str) -> DnsServer | None:
    """Ask the PowerDNS with this control socket; None if it does not answer."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(control)
            try:
                writer.write(_COMMAND)
                reply = await reader.read(_MOST_BYTES)
            finally:
                writer.close()
    except OSError:  # TimeoutError is one
        return None
    return read_settings(reply.decode(errors="replace"))
