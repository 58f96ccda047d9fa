"""Addresses, ports and networks as people write them, with errors in their words; addresses to listen at."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

PREFIX_BITS = {4: 32, 6: 128}


def read_address(text: str) -> IPv4Address | IPv6Address:
    """Return the address. Raises ValueError that says what is wrong with `text`."""
    try:
        return ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is no IP address{_why(text)}") from None


def read_network(text: str) -> IPv4Network | IPv6Network:
    """Return the network; an address alone is the network of that one host. Raises ValueError."""
    try:
        return ip_network(text)
    except ValueError:
        pass
    address_text = text.partition("/")[0]
    try:
        address = ip_address(address_text)
    except ValueError:
        problem = f"{address_text!r} is no IP address{_why(address_text)}"
        raise ValueError(problem if address_text == text else f"{text!r} is no network: {problem}") from None
    bits = PREFIX_BITS[address.version]
    try:
        whole = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} is no network: after the slash belongs the length of its prefix, 0 to {bits}"
        ) from None
    raise ValueError(
        f"{text!r} is neither a network nor one host: write {str(whole)!r} for the network, "
        f"or '{address}/{bits}' for this host alone"
    )


def is_on_this_host(address: IPv4Address | IPv6Address) -> bool:
    """Tell whether the kernel delivers `address` to this host. Sends nothing.

    A socket that is bound to the address tells less: with the sysctl `ip_nonlocal_bind`, which hosts with
    keepalived have, the kernel binds to any address.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            if address.version == 4:  # the kernel takes an address of its own alone as an interface (ip(7))
                probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address.packed)
                return True
            probe.connect((str(address), 9))  # to its own address from the same (RFC 6724, section 5, rule 1)
            return ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False


def _why(text: str) -> str:
    if any(letter.isspace() for letter in text):
        return ": there is a space in it"
    address, slash, _ = text.partition("/")
    if slash:
        return f": an address has no slash; {address!r} alone"
    if ":" in text:
        return ""
    numbers = text.split(".")
    if all(number.isascii() and number.isdigit() for number in numbers):
        too_large = next((number for number in numbers if int(number[:6]) > 255), None)
        if len(numbers) != 4:
            return ": it has four numbers, 10.0.0.1 say"
        if too_large is not None:
            return f": {too_large[:20]} is above 255"
        return ": its numbers have no leading zeros"
    return " but a host name" if "." in text and text[:1].isalnum() else ""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An IP address and a port, 1 to 65535."""

    address: IPv4Address | IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Read "127.0.0.1:8054" or "[::1]:8054". Raises ValueError."""
        match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})", text)
        if match is None:
            raise ValueError('must be an IP address and a port: "127.0.0.1:8054" or "[::1]:8054"')
        address = read_address(match[1] or match[2])
        if (address.version == 6) != (match[1] is not None):
            raise ValueError("an IPv6 address stands in brackets, an IPv4 address does not")
        port = int(match[3])
        if not 1 <= port <= 65535:
            raise ValueError(f"a port is 1 to 65535, not {port}")
        return cls(address, port)

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this host reach it."""
        return self.address.is_loopback

    def refusal(self, error: OSError) -> str:
        """Say why nobody could listen here."""
        why = {
            errno.EADDRINUSE: "another program listens there; end it, or configure another port",
            errno.EADDRNOTAVAIL: "this host has no such address",
        }.get(error.errno or 0, error.strerror or str(error))
        return f"can't listen at {self}: {why}"

    def __str__(self) -> str:
        return endpoint(str(self.address), self.port)


def _check(text: str) -> str:
    ListenAddress.parse(text)
    return text


ListenText = Annotated[str, AfterValidator(_check)]
"""An address to listen at, kept as text; `ListenAddress.parse()` reads it."""


def endpoint(address: str, port: int) -> str:
    """Return "10.0.0.1:5060" or "[2001:db8::1]:5060"."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def is_loopback_host(host: str | None) -> bool:
    """Whether the host of a URL is this host, by its name `localhost` or a loopback address."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


_MOST_URL_CHARACTERS = 2000


def web_url(text: str) -> str:
    """Return the URL of a web service as it is. Raises ValueError for anything else, and if it has a user."""
    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not text.isascii() or any(not character.isprintable() for character in text):
        raise ValueError('a URL: "https://noc.example.net/rspdns"')
    if parts.username is not None or parts.fragment or " " in text or len(text) > _MOST_URL_CHARACTERS:
        words = f"a URL of {_MOST_URL_CHARACTERS} characters at most, without user, fragment and blanks"
        raise ValueError(words)
    return text
