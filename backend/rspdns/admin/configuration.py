"""The table [admin] of `rspdns.toml`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from daemon_kit.addresses import ListenAddress
from daemon_kit.config_file import StrictModel, find
from daemon_kit.files import PathText
from pydantic import AfterValidator

OFF = "off"
_FILES = ("tls_certificate", "tls_key", "read_tokens")


def _listen(text: str) -> str:
    if text != OFF:
        ListenAddress.parse(text)
    return text


def _name(text: str) -> str:
    if not text or any(character in text for character in " /:@"):
        raise ValueError('a host name without scheme and port: "ns1.example.net"')
    return text


class AdminConfig(StrictModel):
    """The sockets at which `rspdns status` and administrators ask."""

    socket: PathText = "/run/rspdns/admin.sock"
    """The unix socket at which `rspdns status`, `reload` and `forget` ask."""
    listen: Annotated[str, AfterValidator(_listen)] = "127.0.0.1:8054"
    """Live page, API and metrics; "off": none. Elsewhere than on loopback TLS and tokens are needed."""
    names: tuple[Annotated[str, AfterValidator(_name)], ...] = ()
    """Host names by which browsers may call it, besides the address in `listen`."""
    tls_certificate: PathText | None = None
    """PEM file of the certificate and its chain; relative to this file, as the next ones."""
    tls_key: PathText | None = None
    """PEM file of the certificate's key."""
    read_tokens: PathText | None = None
    """File with the bearer tokens that may read, one on a line; without it reading is open on loopback."""
    write_tokens: PathText | None = None
    """File with the bearer tokens that may also write (reload, purge). Without it nobody writes over HTTP."""

    @property
    def address(self) -> ListenAddress | None:
        """Address and port to listen at, None for nowhere."""
        return None if self.listen == OFF else ListenAddress.parse(self.listen)


def problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between the keys of [admin] in the unchecked `document`."""
    for _, admin in find(document, ("admin",)):
        if not isinstance(admin, dict):
            return
        for key, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
            if key in admin and other not in admin:
                yield ("admin", key), f"needs {other} too"
        try:
            address = ListenAddress.parse(str(admin.get("listen", "127.0.0.1:8054")))
        except ValueError:
            return
        missing = [f"admin.{key}" for key in _FILES if key not in admin]
        if not address.is_loopback and missing:
            wanted = f"needs TLS and tokens, as it is not on loopback: {', '.join(missing)}"
            yield ("admin", "listen"), wanted
        if address.address.is_unspecified and not admin.get("names"):
            yield ("admin", "listen"), "needs admin.names: the host names under which browsers ask for it"
