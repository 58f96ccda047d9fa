"""The connector that the configuration names: where PowerDNS asks."""

from __future__ import annotations

from typing import Protocol as Interface

from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError

from rspdns.dnssec.store import DnssecStore
from rspdns.pdns.connector_unix import UnixConnector, unix_path
from rspdns.pdns.responder import Responder

HTTP = "http:"


class Connector(Interface):
    """What the service needs of a connector."""

    async def start(self) -> None: ...  # noqa: D102
    async def close(self) -> None: ...  # noqa: D102
    @property
    def open_connections(self) -> int: ...  # noqa: D102


def make_connector(connector: str, responder: Responder, store: DnssecStore) -> Connector:
    """Return the connector "unix:/path" or "http:HOST:PORT".

    Raises FatalError for signed zones over HTTP: anybody on the host could have the keys.
    """
    path = unix_path(connector)
    if path is not None:
        return UnixConnector(path, responder.respond)
    if signed := store.signed_zones():
        raise FatalError(
            f"pdns.connector {connector!r}: the zone {signed[0]} is signed, and keys are handed out over the "
            f"unix connector only; use it, or end the signing there (pdnsutil disable-dnssec {signed[0]})"
        )
    from rspdns.pdns.connector_http import HttpConnector

    return HttpConnector(ListenAddress.parse(connector.removeprefix(HTTP)), responder)
