"""gateway.toml, key by key. `load_gateway()` reports every error at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any, Literal

from daemon_kit.addresses import ListenText, read_address
from daemon_kit.config_file import StrictModel, duplicates, find, load, named_control_path
from daemon_kit.files import FilePath
from daemon_kit.toml_lines import Location
from pool_user import (
    MAX_MEMBERS,
    AcceptNetworks,
    Handle,
    KeyFile,
    PoolRules,
    RegistrarTexts,
    RemoteAgents,
    not_empty,
)
from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator

from rserpool import RegistrarAddress

DEFAULT_PATH = Path("/etc/rspdns/gateway.toml")


def _own(value: object) -> IPv4Address | IPv6Address:
    if not isinstance(value, str):
        raise ValueError('an address is written as text: "10.1.0.31"')  # noqa: TRY004 - pydantic wants it
    address = read_address(value)
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        raise ValueError(f"{address}: registrars take no loopback, link-local or multicast address")
    return address


class GatewayControlConfig(StrictModel):
    """`[control]`: the unix socket of `status`."""

    path: FilePath = Path("/run/rspdns-gateway/control.sock")
    """The unix socket."""


class GatewayMetricsConfig(StrictModel):
    """`[metrics]`: where Prometheus finds them."""

    listen: ListenText
    """The address and port of `/metrics`. Without the table there are no metrics.

    While the address is taken, the gateway does its work without them, and tries again."""


class GatewayPoolConfig(StrictModel):
    """`[[pool]]`: one pool of the cell, and the pool above in which the gateway stands for it."""

    handle: Handle | None = None
    """The pool in the cell, 1 to 32 bytes; this or `handles`."""
    handles: Annotated[tuple[Handle, ...], AfterValidator(not_empty)] | None = None
    """Several handles that shard the pool in the cell."""
    upper_handle: Handle | None = None
    """The pool in the upper handlespace, where each cell's gateway is an element; default: the (first) handle
    in the cell."""
    accept: AcceptNetworks
    """The networks of the cell's servers, as in the cell's zone."""
    key: KeyFile | None = None
    """The key file of a keyed pool, by its whole path, as in the cell's zone."""
    remote_agents: RemoteAgents = ()
    """Hosts of sidecars that register servers elsewhere, as in the cell's zone."""
    max_members: Annotated[int, Field(ge=2, le=10_000)] = MAX_MEMBERS
    """The most servers of each handle. Further ones are refused."""

    @property
    def shards(self) -> tuple[str, ...]:
        """The handles in the cell: one, or those of `handles`."""
        return self.handles or (self.handle or "",)

    @property
    def upper(self) -> str:
        """The handle above."""
        return self.upper_handle or self.shards[0]


def _registrars(document: Mapping[str, Any], key: str) -> Iterator[tuple[Location, RegistrarAddress]]:
    """Yield the registrars of a key in the unchecked `document`; a wrong address is told at its own line."""
    for location, text in find(document, (key, "*")):
        if isinstance(text, str):
            with contextlib.suppress(ValueError):
                yield location, RegistrarAddress.parse(text)


def _handlespace_problems(document: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """Yield the registrars that are both below and above, and wrong ones of the last choice."""
    below, above, last = (
        {registrar: location for location, registrar in _registrars(document, key)}
        for key in ("registrars", "upper_registrars", "last_choice")
    )
    for registrar, location in above.items():
        if registrar in below:
            yield location, f"{registrar} is one of the cell's registrars: above are others"
    for registrar, location in last.items():
        if registrar not in above:
            yield location, f"{registrar} is none of upper_registrars"
    if above and above.keys() <= last.keys():
        yield ("last_choice",), "names all upper_registrars: one must be left as the first choice"


class CellGatewayConfig(StrictModel):
    """The whole file."""

    registrars: RegistrarTexts
    """The cell's own registrars, as in the cell's `rspdns.toml`."""
    follow: Literal["enrp", "poll"] = "enrp"
    """How the cell's registrars are followed: as a peer that they push changes to, or by asking alone."""
    upper_registrars: RegistrarTexts
    """The registrars of the upper handlespace, where the gateway registers."""
    last_choice: RegistrarTexts | None = None
    """Those of `upper_registrars` that fail together with the cell: at the same site, behind the same uplink.
    The gateway registers there only while it reaches no other."""
    address: Annotated[IPv4Address | IPv6Address, PlainValidator(_own), PlainSerializer(str)]
    """This host's address towards the upper registrars. The upper zone tells cells apart by it."""
    reregistration_ms: Annotated[int, Field(ge=100, le=600_000)] = 2000
    """How often the gateway registers again while nothing changes; as `agent_reregistration_ms` in the
    inventory of the upper registrars."""
    control: GatewayControlConfig = GatewayControlConfig()
    metrics: GatewayMetricsConfig | None = None
    pools: Annotated[tuple[GatewayPoolConfig, ...], Field(alias="pool", min_length=1)]

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[Location, str]]:
        """Yield what is wrong between keys: something named twice, or both handlespaces the same."""
        yield from duplicates(document, ("registrars", "*"))
        yield from duplicates(document, ("upper_registrars", "*"))
        yield from _handlespace_problems(document)
        seen: dict[str, int] = {}
        above: dict[str, int] = {}
        for location, pool in find(document, ("pool", "*")):
            if not isinstance(pool, dict):
                continue
            if ("handle" in pool) == ("handles" in pool):
                yield location, "needs either handle or handles"
                continue
            if "key" in pool and pool.get("remote_agents"):
                words = "has no use with remote_agents: a remote server's identifier is its address"
                yield (*location, "key"), words
            shards = pool.get("handles", [pool.get("handle")])
            number = int(location[1])
            for handle in shards if isinstance(shards, list) else ():
                if isinstance(handle, str) and seen.setdefault(handle, number) != number:
                    yield location, f"the handle {handle!r} is already used by pool[{seen[handle]}]"
            first = shards[0] if isinstance(shards, list) and shards else None
            upper = pool.get("upper_handle", first)
            if isinstance(upper, str) and above.setdefault(upper, number) != number:
                words = f"pool[{above[upper]}] is in the upper pool {upper!r} already"
                yield (*location, "upper_handle"), words

    @property
    def registrar_addresses(self) -> tuple[RegistrarAddress, ...]:
        """`registrars`, parsed, in their order."""
        return tuple(RegistrarAddress.parse(text) for text in self.registrars)

    @property
    def upper_addresses(self) -> tuple[RegistrarAddress, ...]:
        """`upper_registrars`, parsed, in their order."""
        return tuple(RegistrarAddress.parse(text) for text in self.upper_registrars)

    @property
    def last_addresses(self) -> tuple[RegistrarAddress, ...]:
        """`last_choice`, parsed."""
        return tuple(RegistrarAddress.parse(text) for text in self.last_choice or ())

    @property
    def pool_rules(self) -> Mapping[str, PoolRules]:
        """The rules of the belief for every handle in the cell."""
        return {
            handle: PoolRules(
                pool.accept,
                False,
                pool.max_members,
                frozenset(pool.remote_agents),
                keys=pool.key.keys if pool.key is not None else (),
            )
            for pool in self.pools
            for handle in pool.shards
        }


def gateway_control_path(path: Path) -> Path:
    """The control socket that the file names, whatever else is wrong in it. Raises ConfigurationErrors."""
    return named_control_path(path, GatewayControlConfig().path)


def load_gateway(path: Path) -> CellGatewayConfig:
    """Read gateway.toml. Raises daemon_kit.config_file.ConfigurationErrors with every error."""
    return load(path, CellGatewayConfig)
