"""The tables [[secondary]] of `rspdns.toml`, and the TSIG keys that they name."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any

import dns.exception
import dns.name
import dns.tsig
from daemon_kit.addresses import ListenAddress, read_address
from daemon_kit.config_file import StrictModel, duplicates, find
from daemon_kit.files import PathText, read_secret
from pydantic import AfterValidator, Field

from rspdns import names

MOST_SECONDARIES = 128
DNS_PORT = 53
_KEY = re.compile(
    r'key\s+"?(?P<name>[^"\s{]+)"?\s*\{\s*'
    r'algorithm\s+"?(?P<algorithm>[a-z0-9.-]+)"?\s*;\s*secret\s+"?(?P<secret>[^"\s;]+)"?\s*;\s*\}\s*;'
)
_ALGORITHMS = ("hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha224", "hmac-sha1")


def endpoint_of(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Read an IP address, with a port or without. Raises ValueError."""
    try:
        return read_address(text), DNS_PORT
    except ValueError:
        parsed = ListenAddress.parse(text)
        return parsed.address, parsed.port


def _endpoint(text: str) -> str:
    endpoint_of(text)
    return text


def _source(text: str) -> str:
    read_address(text)
    return text


class SecondaryConfig(StrictModel):
    """A name server that transfers zones from here, and is told of each change of them."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")]
    """The name of the secondary in status, metrics and log."""
    address: Annotated[str, AfterValidator(_endpoint)]
    """Its IP address: `192.0.2.53`, with another port than 53 `192.0.2.53:5300` or `[2001:db8::53]:5300`."""
    zones: tuple[Annotated[str, AfterValidator(names.normal)], ...] = ()
    """The zones that it transfers; all if not given."""
    source: Annotated[str, AfterValidator(_source)] | None = None
    """The address of this host that NOTIFY comes from; that of the route if not given."""
    signs: bool = False
    """It signs what it transfers, and so counts serials of its own, above those from here."""
    tsig: PathText | None = None
    """Whole path of the file with the key that signs NOTIFY, as `tsig-keygen` writes it."""

    @property
    def endpoint(self) -> tuple[IPv4Address | IPv6Address, int]:
        """Address and port."""
        return endpoint_of(self.address)


def problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between the keys of all [[secondary]] in the unchecked `document`."""
    yield from duplicates(document, ("secondary", "*", "name"))
    yield from duplicates(document, ("secondary", "*", "address"))
    for location, secondary in find(document, ("secondary", "*")):
        if isinstance(secondary, dict):
            yield from _of_addresses(location, secondary)
    secondaries = document.get("secondary")
    if isinstance(secondaries, list) and len(secondaries) > MOST_SECONDARIES:
        yield ("secondary",), f"{len(secondaries)} secondaries; {MOST_SECONDARIES} at most"


def _of_addresses(
    location: tuple[str | int, ...], secondary: dict[str, Any]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    try:
        source = read_address(secondary["source"])
        address, _ = endpoint_of(secondary["address"])
    except (KeyError, TypeError, ValueError):
        return  # not given, or reported at its own line
    if source.version != address.version:
        yield (*location, "source"), f"is IPv{source.version}, and the address IPv{address.version}"


def unknown_zones(
    secondaries: Collection[SecondaryConfig], served: Collection[str]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The zones that a secondary is to be told of and that are not served."""
    for position, secondary in enumerate(secondaries):
        for place, zone in enumerate(secondary.zones):
            if zone not in served:
                yield ("secondary", position, "zones", place), f"{zone!r} is no zone of zones.d"


def read_tsig(path: str) -> dns.tsig.Key:
    """Read a TSIG key (RFC 8945). Raises ValueError, in words, never with the key."""
    match = _KEY.search(read_secret(path))
    if match is None:
        words = f"{path}: holds no TSIG key: tsig-keygen NAME writes one"
        raise ValueError(words)
    if match["algorithm"] not in _ALGORITHMS:
        raise ValueError(f"{path}: the algorithm is none of {', '.join(_ALGORITHMS)}")
    try:
        secret = base64.b64decode(match["secret"], validate=True)
        name = dns.name.from_text(match["name"])
    except (binascii.Error, dns.exception.DNSException):
        raise ValueError(f"{path}: the key's name is no DNS name, or its secret no base64") from None
    return dns.tsig.Key(name, secret, dns.name.from_text(match["algorithm"]))
