"""The tables [[peer]] of `rspdns.toml`, and the tokens that they name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import urlsplit

from daemon_kit.addresses import is_loopback_host, web_url
from daemon_kit.config_file import StrictModel, duplicates
from daemon_kit.files import PathText, read_secret
from pydantic import AfterValidator, Field

MOST_PEERS = 32


def _url(text: str) -> str:
    parts = urlsplit(web_url(text))
    if parts.path not in ("", "/") or parts.query:
        raise ValueError('scheme, host and port of the other name server: "https://ns2.example.net:8054"')
    if parts.scheme == "http" and not is_loopback_host(parts.hostname):
        raise ValueError("https: by http anybody on the way could read the token")
    return text.rstrip("/")


class PeerConfig(StrictModel):
    """Another name server with the same pools: `rspdns override --everywhere` sets an override there, too."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")]
    """The name of the peer in commands, status, metrics and log."""
    url: Annotated[str, AfterValidator(_url)]
    """The address of its API: `https://ns2.example.net:8054`."""
    token: PathText
    """Whole path of the file with a token of that name server's `write_tokens`."""
    tls_ca: PathText | None = None
    """Whole path of the PEM file with the authority of its certificate; those of this host if not given."""


def problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between the keys of all [[peer]] in the unchecked `document`."""
    yield from duplicates(document, ("peer", "*", "name"))
    yield from duplicates(document, ("peer", "*", "url"))
    peers = document.get("peer")
    if isinstance(peers, list) and len(peers) > MOST_PEERS:
        yield ("peer",), f"{len(peers)} peers; {MOST_PEERS} at most"


def read_token(path: str) -> str:
    """Read the first token of a file; what stands behind a # is its name. Raises ValueError, in words, never
    with the token."""
    for line in read_secret(path).splitlines():
        token = line.partition("#")[0].strip()
        if token.isprintable() and token and " " not in token:
            return token
    raise ValueError(f"{path}: holds no token")
