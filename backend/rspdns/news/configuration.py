"""The table [news] of `rspdns.toml`, and the keys that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from daemon_kit.addresses import ListenAddress, ListenText
from daemon_kit.config_file import ConfigurationError, StrictModel
from daemon_kit.files import PathText
from pydantic import AfterValidator, Field

from rspdns import names
from rspdns.admin.access import Access, read_access
from rspdns.hooks.configuration import read_key

LEAST_PORTS = 64
"""A pool takes one port, and one more for each change during `time_to_live_s`."""


def _listen(text: str) -> str:
    address = ListenAddress.parse(text).address
    if address.is_unspecified:
        raise ValueError("name one address of this host: the ports of news are reserved there")
    return text


def ports_of(text: str) -> range:
    """Read "20000-20999". Raises ValueError."""
    first, _, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise ValueError('must be two ports: "20000-20999"')
    ports = range(int(first), int(last) + 1)
    if not 1024 <= int(first) <= int(last) <= 65535:
        raise ValueError("must be ports from 1024 to 65535, the lower one first")
    if len(ports) < LEAST_PORTS:
        raise ValueError(f"has {len(ports)} ports; at least {LEAST_PORTS} are needed")
    return ports


def _ports(text: str) -> str:
    ports_of(text)
    return text


class PushConfig(StrictModel):
    """The same news by DNS Push Notifications (RFC 8765), over TLS."""

    listen: ListenText
    """The address at which clients connect: `10.0.0.53:853`. The SRV record `_dns-push-tls._tcp.ZONE` of each
    zone has its port, and a name of the certificate."""
    tls_certificate: PathText
    """PEM file of the certificate and its chain; relative to this file, as the key's. It is read again when
    it changed."""
    tls_key: PathText
    """PEM file of the certificate's key."""
    sessions: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """The most clients at once; others are told to come again after a minute."""
    sessions_per_address: Annotated[int, Field(ge=1, le=10_000)] = 100
    """The most clients of one address; further connections are closed."""
    subscriptions: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """The most subscriptions of a client."""

    @property
    def address(self) -> ListenAddress:
        """`listen`, parsed."""
        return ListenAddress.parse(self.listen)

    @property
    def files(self) -> dict[str, str]:
        """The files of the certificate and its key, by the keys that name them."""
        return {"tls_certificate": self.tls_certificate, "tls_key": self.tls_key}

    def access(self, folder: Path) -> tuple[Access, list[ConfigurationError]]:
        """Return the certificate and its key, named relative to `folder`, and every error in there."""
        return read_access(folder, None, None, self.tls_certificate, self.tls_key)


class NewsConfig(StrictModel):
    """The service `rspdns news`: news of the pools for clients that hold no connection, for clients of DNS
    Push Notifications (`push`), or for both."""

    listen: Annotated[str, AfterValidator(_listen)] | None = None
    """The open port, at which clients subscribe: `10.0.0.53:8056`."""
    ports: Annotated[str, AfterValidator(_ports)] = "20000-20999"
    """The ports that are closed until there is news; outside of the sysctl ip_local_port_range."""
    keys: Annotated[
        dict[Annotated[str, AfterValidator(names.normal)], PathText], Field(default={}, max_length=1000)
    ]
    """For each zone whose pools are told of, the whole path of the file with the key that signs its news."""
    poll_every_ms: Annotated[int, Field(ge=200, le=60_000)] = 1000
    """Time between two polls of a client."""
    time_to_live_s: Annotated[float, Field(ge=2, le=600)] = 10.0
    """How long the port of a piece of news stays open, and how long a client may be silent."""
    push: PushConfig | None = None

    @property
    def address(self) -> ListenAddress:
        """`listen`, parsed; it must be given."""
        return ListenAddress.parse(self.listen or "")


def problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between the keys of [news] in the unchecked `document`."""
    news = document.get("news")
    if not isinstance(news, dict):
        return
    if "push" not in news or "listen" in news or "keys" in news:
        for key, why in (("listen", "where clients subscribe"), ("keys", "which keys sign")):
            if not news.get(key):
                yield ("news", key), f"is missing: it says {why}"
    every_ms, life_s = news.get("poll_every_ms", 1000), news.get("time_to_live_s", 10.0)
    if all(isinstance(number, int | float) for number in (every_ms, life_s)) and every_ms * 2 > life_s * 1000:
        yield ("news", "time_to_live_s"), "must be at least twice poll_every_ms, or a client may miss a port"
    try:
        port = ListenAddress.parse(news["listen"]).port
        is_between = port in ports_of(news.get("ports", "20000-20999"))
    except (KeyError, TypeError, ValueError):
        return  # not given, or reported at its own line
    if is_between:
        yield ("news", "ports"), f"contains {port}, the port of listen"


def read_keys(config: NewsConfig) -> Mapping[str, bytes]:
    """Read the key of each zone. Raises ValueError, in words, never with a key."""
    return {zone: read_key(path) for zone, path in config.keys.items()}


def key_of(owner: str, keys: Mapping[str, bytes]) -> bytes | None:
    """Return the key of the zone with the longest name that `owner` is in; None: no zone has it."""
    zone = owner
    while zone:
        if zone in keys:
            return keys[zone]
        zone = zone.partition(".")[2]
    return None
