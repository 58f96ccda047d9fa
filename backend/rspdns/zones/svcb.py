"""SVCB and HTTPS records of a pool (RFC 9460): the table `svcb` of a pool, and the names it gives. Pure."""

from __future__ import annotations

import re
from typing import Annotated

from daemon_kit.config_file import StrictModel
from pool_user import not_empty
from pydantic import AfterValidator, Field, model_validator

from rspdns import names

HTTPS_PORT = 443
_HTTPS = "https"
_ALPN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
_MOST_ALPN = 255
"""Bytes of a protocol's identifier (RFC 7301 section 3.1)."""
_SCHEME = re.compile(r"[a-z][a-z0-9-]{0,61}")
_MAPPED = ("http", "ws", "wss")
"""The schemes whose clients ask for HTTPS records (RFC 9460 section 9.5)."""
_TRANSPORTS = ("tcp", "udp", "sctp")
"""No schemes: the names with these labels are those of SRV records."""
_WITH_PATH = ("h2", "h3")


def _protocols(identifiers: tuple[str, ...]) -> tuple[str, ...]:
    for identifier in identifiers:
        if not _ALPN.fullmatch(identifier) or len(identifier) > _MOST_ALPN:
            raise ValueError(f'{identifier[:64]!r} is no identifier of a protocol, as "h2" or "http/1.1"')
    if len(set(identifiers)) < len(identifiers):
        raise ValueError("names a protocol twice")
    return identifiers


def _scheme(text: str) -> str:
    if not _SCHEME.fullmatch(text) or text in _TRANSPORTS:
        raise ValueError('must be the scheme of a URL, as "https" or "dns"')
    if text in _MAPPED:
        raise ValueError(f'clients of {text} read the records of "https" (RFC 9460 section 9.5)')
    return text


class SvcbConfig(StrictModel):
    """The table `svcb` of a pool: one record in ServiceMode for each member."""

    alpn: Annotated[tuple[str, ...], AfterValidator(not_empty), AfterValidator(_protocols)]
    """The protocols that every member speaks, the preferred one first: `["h3", "h2"]`. Clients of https
    assume http/1.1 as well."""
    scheme: Annotated[str, AfterValidator(_scheme)] = _HTTPS
    """The scheme of the URL. `"https"`: HTTPS records at `name`; others: SVCB records at
    `_<scheme>.<name>`."""
    url_port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """The port in the URL: the records then stand at `_<port>._<scheme>.<name>`. Not needed for 443."""
    apex_alias: bool = False
    """A record in AliasMode at the zone's apex, which names these records: for `https://<zone>/`."""

    @model_validator(mode="after")
    def _keys_agree(self) -> SvcbConfig:
        if self.scheme == "dns" and any(protocol in _WITH_PATH for protocol in self.alpn):
            raise ValueError("DNS over HTTPS needs a path (RFC 9461 section 5), which is not supported")
        return self

    @property
    def type(self) -> str:
        """The type of the records."""
        return "HTTPS" if self.scheme == _HTTPS else "SVCB"

    @property
    def assumed_port(self) -> int | None:
        """The port that a client takes if the record has none; None: a record must say it."""
        return (self.url_port or HTTPS_PORT) if self.scheme == _HTTPS else None

    def owner(self, name: str) -> str:
        """The name of the records of a pool at `name` (RFC 9460 sections 2.3 and 9.1)."""
        if self.assumed_port == HTTPS_PORT:
            return name
        port = f"_{self.url_port}" if self.url_port is not None else ""
        return names.join(port, f"_{self.scheme}", name)
