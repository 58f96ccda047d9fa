"""The tables [[resolver]] of `rspdns.toml`, and the files that they name."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from daemon_kit.addresses import ListenAddress
from daemon_kit.config_file import StrictModel, duplicates, find
from daemon_kit.files import PathText, check_path, read_secret
from pydantic import AfterValidator, Field

from rspdns.resolvers.rndc import RndcKey

MOST_RESOLVERS = 64
UNIX = "unix:"


def _address(text: str) -> str:
    if text.startswith(UNIX):
        path = check_path(text.removeprefix(UNIX))
        if not Path(path).is_absolute():
            raise ValueError('name the socket by its whole path: "unix:/run/unbound.ctl"')
        return text
    try:
        ListenAddress.parse(text)
    except ValueError as problem:
        raise ValueError(f'{problem}; or a socket: "unix:/run/unbound.ctl"') from None
    return text


@dataclass(frozen=True, slots=True)
class ControlKind:
    """A kind of resolver: where its control is, and the keys that it needs."""

    is_remote: bool
    """Whether it is reached by IP."""
    is_local: bool
    """Whether it is reached by a UNIX socket."""
    needs: tuple[str, ...] = ()
    """Keys of the table that it needs by IP."""
    takes: tuple[str, ...] = ()
    """Keys that it may have, too."""
    is_open: bool = False
    """Whether its control asks nobody for a key."""
    is_readable: bool = False
    """Whether its key goes over the network as it is."""


KINDS: Final[Mapping[str, ControlKind]] = MappingProxyType(
    {
        "unbound": ControlKind(True, True, needs=("server_certificate", "certificate", "key")),
        "bind": ControlKind(True, False, needs=("key",)),
        "knot-resolver": ControlKind(True, True, is_open=True),
        "recursor": ControlKind(True, False, needs=("key",), is_readable=True),
        "dnsdist": ControlKind(True, False, needs=("key",), takes=("cache_pool",), is_readable=True),
        "dnsmasq": ControlKind(False, True),
    }
)
_KEYS = ("server_certificate", "certificate", "key", "cache_pool")


class ResolverConfig(StrictModel):
    """A resolver whose cache forgets each name that changed."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")]
    """The name of the resolver in status, metrics and log."""
    type: Literal["unbound", "bind", "knot-resolver", "recursor", "dnsdist", "dnsmasq"]
    """The program: it decides how it is told. `recursor` is the PowerDNS Recursor."""
    address: Annotated[str, AfterValidator(_address)]
    """The address of its control: `10.0.0.53:8953`, or `unix:/run/unbound.ctl`. dnsmasq's is the D-Bus."""
    key: PathText | None = None
    """Whole path of a file: unbound_control.key of unbound, rndc.key of bind, the API key of the others."""
    certificate: PathText | None = None
    """unbound: whole path of unbound_control.pem."""
    server_certificate: PathText | None = None
    """unbound: whole path of unbound_server.pem, with which it shows that it is the right one."""
    cache_pool: str = ""
    """dnsdist: the pool whose cache it is; the default pool if not given."""

    @property
    def endpoint(self) -> ListenAddress | None:
        """Address and port; None: it is a UNIX socket."""
        return None if self.address.startswith(UNIX) else ListenAddress.parse(self.address)

    @property
    def socket(self) -> str:
        """The path of the UNIX socket."""
        return self.address.removeprefix(UNIX)

    @property
    def risk(self) -> str | None:
        """Something that an administrator may not have meant; None: there is nothing."""
        if self.endpoint is None or self.endpoint.is_loopback:
            return None
        kind = KINDS[self.type]
        if kind.is_open:
            return (
                "everybody who reaches this port controls the resolver: let a packet filter keep others out"
            )
        if kind.is_readable:
            return "the API key goes there in clear: let no stranger be on the way"
        return None

    def read_files(self) -> None:
        """Read the files of keys once, to see whether they are right. Raises ValueError, in words."""
        if self.type == "unbound" and self.endpoint is not None:
            tls_context(self)
        elif self.type == "bind":
            read_rndc_key(self)
        elif self.key is not None:
            read_api_key(self)


def problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between the keys of all [[resolver]] in the unchecked `document`."""
    yield from duplicates(document, ("resolver", "*", "name"))
    yield from duplicates(document, ("resolver", "*", "address"))
    tables = [(at, table) for at, table in find(document, ("resolver", "*")) if isinstance(table, dict)]
    for location, table in tables:
        kind, address = KINDS.get(str(table.get("type"))), table.get("address")
        if kind is None or not isinstance(address, str):
            continue  # told at its own line
        is_local = address.startswith(UNIX)
        if is_local and not kind.is_local:
            yield (*location, "address"), f"{table['type']} is told by IP: write its address and port"
        if not is_local and not kind.is_remote:
            yield (
                (*location, "address"),
                f'{table["type"]} is told by the D-Bus of this host: "unix:/run/dbus/system_bus_socket"',
            )
        needs = () if is_local else kind.needs
        missing = [key for key in needs if key not in table]
        if missing:
            yield location, f"needs {', '.join(missing)}"
        for key in _KEYS:
            if key in table and key not in (*needs, *kind.takes):
                yield (*location, key), f"{table['type']} has no such key{' at a socket' * is_local}"
    if len(tables) > MOST_RESOLVERS:
        yield ("resolver",), f"{len(tables)} resolvers; {MOST_RESOLVERS} at most"


def read_api_key(config: ResolverConfig) -> str:
    """Return the API key. Raises ValueError, in words, never with the key."""
    text = read_secret(str(config.key)).strip()
    if not text.isprintable() or not text or " " in text:
        raise ValueError(f"{config.key}: holds no API key: it is one word")
    return text


def read_rndc_key(config: ResolverConfig) -> RndcKey:
    """Return the key of rndc. Raises ValueError, in words, never with the key."""
    try:
        return RndcKey.parse(read_secret(str(config.key)))
    except ValueError as problem:
        words = str(problem)
        raise ValueError(words if words.startswith("/") else f"{config.key}: {words}") from None


def tls_context(config: ResolverConfig) -> ssl.SSLContext:
    """Return how Unbound's control is spoken to. Raises ValueError, in words.

    Its certificate has no address: it is the one in `server_certificate`, or it is refused.
    """
    read_secret(str(config.key))  # not readable for everybody
    try:
        context = ssl.create_default_context(cafile=config.server_certificate)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"{config.server_certificate}: {_why(error)}") from None
    context.check_hostname = False
    try:
        context.load_cert_chain(str(config.certificate), str(config.key))
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"{config.certificate} and {config.key}: {_why(error)}") from None
    return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no certificate and key that fit: {error.reason or error}"
    return f"can't be read: {error.strerror or error}"
