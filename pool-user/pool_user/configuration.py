"""The common part of all pool users' configuration files: registrars, pool handles, trusted networks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Annotated, TypeVar

from daemon_kit.addresses import read_address, read_network
from daemon_kit.files import read_secret
from pydantic import AfterValidator, PlainSerializer, PlainValidator

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
