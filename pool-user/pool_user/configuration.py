"""The common part of all pool users' configuration files: registrars, pool handles, trusted networks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, Any, TypeVar

from daemon_kit.addresses import read_address, read_network
from daemon_kit.config_file import StrictModel, duplicates, find
from daemon_kit.files import read_secret
from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator

from pool_user.handlespaces import Handlespace
from rserpool import MAX_HANDLE, SENTINEL_POOL_PREFIX, PoolKey, RegistrarAddress, read_pool_keys

Value = TypeVar("Value")
Network = IPv4Network | IPv6Network


def not_empty(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return `values`. Raises ValueError when there are none."""
    if not values:
        raise ValueError("needs at least one")
    return values


def _registrar(text: str) -> str:
    RegistrarAddress.parse(text)
    return text


def _handle(text: str) -> str:
    size = len(text.encode())
    if not 1 <= size <= MAX_HANDLE:
        raise ValueError(f"a pool handle has 1 to {MAX_HANDLE} bytes, this one {size}")
    if text.startswith(SENTINEL_POOL_PREFIX):
        raise ValueError("this handle belongs to the registrars' sentinels")
    return text


def read_trusted_network(value: object) -> Network:
    """Return the network that a text of the configuration names. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError('a network is written as text: "10.20.0.0/16"')  # noqa: TRY004 - pydantic wants it
    return read_network(value)


def _agent(value: object) -> IPv4Address | IPv6Address:
    if not isinstance(value, str):
        raise ValueError('an agent is written as text: "10.0.0.9"')  # noqa: TRY004 - pydantic wants it
    return read_address(value)


@dataclass(frozen=True, slots=True)
class PoolKeyFile:
    """A key file that was read: where it is, and what stands in it."""

    path: str
    keys: tuple[PoolKey, ...] = field(repr=False)


def _pool_key(value: object) -> object:
    if isinstance(value, PoolKeyFile):
        return value
    if not isinstance(value, str):
        raise ValueError("the path of a key file, as text")  # noqa: TRY004 - pydantic wants it
    text = read_secret(value)
    try:
        return PoolKeyFile(value, read_pool_keys(text))
    except ValueError as problem:
        raise ValueError(f"{value}: {problem}") from None


def _dumped(file: PoolKeyFile) -> str:
    """The text that stands for the keys when configurations are compared: other keys, another text."""
    secrets = b"".join(key.secret for key in file.keys)
    return f"{file.path} ({hashlib.sha256(secrets).hexdigest()[:16]})"


KeyFile = Annotated[PoolKeyFile, PlainValidator(_pool_key), PlainSerializer(_dumped)]
"""The key file of a keyed pool, read."""
RegistrarTexts = Annotated[tuple[Annotated[str, AfterValidator(_registrar)], ...], AfterValidator(not_empty)]
"""Addresses of registrars, at least one, as text; `RegistrarAddress.parse()` reads each."""
Handle = Annotated[str, AfterValidator(_handle)]
"""A pool handle: 1 to 32 bytes."""
AcceptNetworks = Annotated[
    tuple[Annotated[Network, PlainValidator(read_trusted_network)], ...], AfterValidator(not_empty)
]
"""The networks that a pool's elements must be in, at least one."""
RemoteAgents = tuple[Annotated[IPv4Address | IPv6Address, PlainValidator(_agent)], ...]
"""The hosts of ppe-agents that register servers elsewhere (`remote = true`)."""

HandlespaceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
"""The name of a handlespace: a DNS label, since members' target names may carry it."""


class HandlespaceConfig(StrictModel):
    """`[[handlespace]]`: the registrars that share one handlespace, in place of `registrars`."""

    name: HandlespaceName
    """The name of the handlespace, for pools, status and metrics; the same on every host."""
    registrars: RegistrarTexts
    """The addresses of its registrars, as in `registrars`."""


def handlespaces_of(
    registrars: Sequence[str] | None, named: Sequence[HandlespaceConfig]
) -> tuple[Handlespace, ...]:
    """The handlespaces of a configuration: those with names, or the only one of `registrars`."""
    if registrars is not None:
        return (Handlespace("", tuple(registrars)),)
    return tuple(Handlespace(config.name, config.registrars) for config in named)


def handlespace_problems(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between `registrars` and all [[handlespace]] in the unchecked `document`."""
    if "registrars" in document and "handlespace" in document:
        yield ("registrars",), "goes without [[handlespace]]: move these registrars into one of them"
    if "registrars" not in document and not document.get("handlespace"):
        yield (), "registrars are missing: the addresses of three, or several [[handlespace]] with theirs"
    yield from duplicates(document, ("registrars", "*"))
    yield from duplicates(document, ("handlespace", "*", "name"))
    first: dict[tuple[str, int], object] = {}
    for location, table in find(document, ("handlespace", "*")):
        name = table.get("name") if isinstance(table, dict) else None
        for inner, text in find(table, ("registrars", "*")):
            try:
                registrar = RegistrarAddress.parse(str(text)).endpoint
            except ValueError:
                continue  # told at its own line
            if registrar in first:
                words = f"is in the handlespace {first[registrar]!r} already: a registrar is in one only"
                yield (*location, *inner), f"{text} {words}"
            first.setdefault(registrar, name)
