"""Many cells and the handlespace above them in one file: an inventory for each, and what joins them.

Each [[cell]] and [upper] have the tables of an inventory. The gateways of a cell follow its registrars, and
register at the upper ones; so they are in both inventories without being written there. Pure but for reading.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final

from daemon_kit.addresses import read_address
from daemon_kit.config_file import StrictModel, TomlDocument, check, duplicates, find, load, read_text
from pydantic import AfterValidator, Field

from registrar_config.inventory import (
    AgentEntry,
    BackendEntry,
    Inventory,
    Name,
    Network,
    PoolKindEntry,
    PoolUserEntry,
)

CELL_AIM: Final = 3000
"""Servers of a cell: three registrars ask them every 300 ms, and one may be down. More is told as full."""
UPPER_POLICY: Final = "least-used-degradation"
"""The policy of `rspdns gateway`."""
UPPER: Final = "upper"
GATEWAYS: Final = "gateways"
NAME_SERVERS: Final = "name-servers"
_MADE_ENTRIES: Final = (GATEWAYS, NAME_SERVERS)
_MADE: Final = "# Made from the file of the cells by `rspdns-registrar render`: change that, not this file.\n"


def _single(text: str) -> str:
    return str(read_address(text))


def _zone(text: str) -> str:
    name = text.lower().rstrip(".")
    if not name or len(name) > 253 or not all(part.replace("-", "").isalnum() for part in name.split(".")):
        raise ValueError("must be the name of a zone: ims.example.net")
    return name


def _not_upper(text: str) -> str:
    if text == UPPER:
        raise ValueError("is the name of the handlespace above the cells")
    return text


Addresses = Annotated[tuple[Annotated[str, AfterValidator(_single)], ...], Field(min_length=1)]


class CellEntry(Inventory):
    """A cell, [[cell]]: the tables of an inventory below it, as [[cell.registrar]]."""

    name: Annotated[Name, AfterValidator(_not_upper)]
    """How the cell is called: its folder, and the label of its zone below `zone`."""
    gateways: Addresses
    """The hosts that run `rspdns gateway`, by their addresses; best two."""
    name_servers: Addresses
    """The hosts that run PowerDNS and rspdns, by their addresses: the cell's zone is delegated to them."""
    last_choice: tuple[str, ...] = ()
    """The upper registrars, by name, that fail together with the cell: `last_choice` of its gateways."""

    @property
    def whole(self) -> Inventory:
        """The cell's inventory, with name servers and gateways."""
        return self.model_copy(
            update={
                "backend": (*self.backend, BackendEntry(name=NAME_SERVERS, addresses=self.name_servers)),
                "client": (
                    *self.client,
                    PoolUserEntry(name=GATEWAYS, addresses=self.gateways, follow="enrp"),
                ),
            }
        )

    @property
    def handles(self) -> tuple[str, ...]:
        """The pools of its servers, as their entries name them."""
        return tuple(dict.fromkeys(handle for agent in self.agent for handle in agent.handles))


class CellsFile(StrictModel):
    """The file of the cells."""

    zone: Annotated[str, AfterValidator(_zone)]
    """The upper zone, which delegates a zone to each cell."""
    pool_name: str = "as"
    """The `name` of the pools, in the upper zone and in each cell's."""
    upper: Inventory
    """The inventory of the handlespace above the cells: its registrars and name servers, not the gateways."""
    cell: Annotated[tuple[CellEntry, ...], Field(min_length=1, max_length=999)]

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what is wrong between the cells: names and hosts that two of them have; and within each."""
        yield from duplicates(document, ("cell", "*", "name"))
        spaces = [*find(document, ("upper",)), *find(document, ("cell", "*"))]
        for location, table in spaces:
            if isinstance(table, dict):
                yield from (((*location, *at), words) for at, words in Inventory.document_problems(table))
            for kind in ("registrar", "agent", "backend", "client"):
                for at, name in find(table, (kind, "*", "name")):
                    if isinstance(name, str) and (name in _MADE_ENTRIES or name.startswith(GATEWAYS)):
                        yield (*location, *at), f"{name!r} is the name of an entry that is made"
        yield from _shared_hosts(spaces)
        yield from _unnamed_pools(document)
        above = [name for _, name in find(document, ("upper", "registrar", "*", "name"))]
        for location, names in find(document, ("cell", "*", "last_choice")):
            named = names if isinstance(names, list) else []
            for position, name in enumerate(named):
                if name not in above:
                    yield (*location, position), f"{name!r} is no registrar of [upper]"
            if above and all(name in named for name in above):
                yield location, "names all registrars of [upper]: one must be left as the first choice"

    @property
    def inventories(self) -> Mapping[str, Inventory]:
        """The inventory of the upper handlespace and of each cell, by their names."""
        found = {UPPER: self._upper(), **{cell.name: cell.whole for cell in self.cell}}
        return {
            name: each.beside(tuple(other for other in found.values() if other is not each))
            for name, each in found.items()
        }

    def _upper(self) -> Inventory:
        upper = self.upper
        agents = tuple(
            AgentEntry(name=f"{GATEWAYS}-{cell.name}", addresses=cell.gateways, handles=cell.handles)
            for cell in self.cell
        )
        kinds = {(pool.handles, pool.transport) for cell in self.cell for pool in cell.pool}
        pools = tuple(
            PoolKindEntry(handles=handles, policy=UPPER_POLICY, transport=transport)
            for handles, transport in sorted(kinds, key=str)
        )
        elements = sum(len(cell.gateways) * max(1, len(cell.handles)) for cell in self.cell)
        return upper.model_copy(
            update={
                "agent": (*upper.agent, *agents),
                "pool": (*upper.pool, *pools),
                "expected_elements": upper.expected_elements or elements,
            }
        )

    def full(self) -> Iterator[str]:
        """Yield the cells that have more servers than a cell is meant for, in words."""
        for cell in self.cell:
            if (expected := cell.expected_elements) is not None and expected > CELL_AIM:
                cells = -(-expected // CELL_AIM)
                yield (
                    f"cell {cell.name!r} is full: {expected:,} servers, and a cell is meant for "
                    f"{CELL_AIM:,}; make {cells} cells of it"
                )

    def joining_files(self) -> Mapping[str, str]:
        """Return the files that join the cells, by their paths: delegations, the table of cells, gateways."""
        files = {f"{UPPER}/delegations.zone": self._delegations(), f"{UPPER}/cells.toml": self._table()}
        for cell in self.cell:
            for gateway in cell.gateways:
                files[f"{cell.name}/{GATEWAYS}/{gateway}/gateway.toml"] = self._gateway(cell, gateway)
        return files

    def _delegations(self) -> str:
        lines = [f"; Made by `rspdns-registrar render`; goes into the master file of {self.zone}."]
        for cell in self.cell:
            for number, server in enumerate(cell.name_servers, 1):
                own, kind = f"ns{number}.{cell.name}.{self.zone}.", "AAAA" if ":" in server else "A"
                lines += [f"{cell.name}.{self.zone}. NS {own}", f"{own} {kind} {server}"]
        return "\n".join(lines) + "\n"

    def _table(self) -> str:
        table = {
            gateway: f"{self.pool_name}.{cell.name}.{self.zone}"
            for cell in self.cell
            for gateway in cell.gateways
        }
        cells = ", ".join(f"{json.dumps(gateway)} = {json.dumps(name)}" for gateway, name in table.items())
        lines = [f"accept = {json.dumps(list(table))}", f"cells = {{ {cells} }}"]
        return "\n".join([f"{_MADE}# Goes into each [[pool]] of the upper zone.", *lines]) + "\n"

    def _gateway(self, cell: CellEntry, gateway: str) -> str:
        last = _endpoints(self.upper, cell.last_choice)
        lines = [
            f"registrars = {json.dumps(_endpoints(cell))}",
            f"upper_registrars = {json.dumps(_endpoints(self.upper))}",
            *([f"last_choice = {json.dumps(last)}"] if last else []),
            f'address = "{gateway}"',
            f"reregistration_ms = {self.upper.agent_reregistration_ms}",
        ]
        for handle in cell.handles:
            agents = (agent for agent in cell.agent if handle in agent.handles)
            networks = list(dict.fromkeys(text for agent in agents for text in agent.addresses))
            lines += [
                "",
                "[[pool]]",
                f"handle = {json.dumps(handle)}",
                f"accept = {json.dumps(networks)}",
            ]
        return _MADE + "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Inventories:
    """The inventories of a file, by name; of a single one without cells the name is empty."""

    by_name: Mapping[str, Inventory]
    cells: CellsFile | None = None


def load_inventories(path: Path) -> Inventories:
    """Read an inventory, or a file of cells. Raises ConfigurationErrors with every error in it."""
    document = TomlDocument(str(path), read_text(path))
    if "cell" not in document.data:
        return Inventories({"": load(path, Inventory)})
    cells = check(document, CellsFile)
    return Inventories(cells.inventories, cells)


def _endpoints(inventory: Inventory, names: Collection[str] | None = None) -> list[str]:
    """The registrars, all or those with these names, as agents and gateways name them."""
    return [
        f"{'[' if ':' in str(own.asap.address) else ''}{own.asap.address}"
        f"{']' if ':' in str(own.asap.address) else ''}:{own.asap.port}/{own.enrp.port}"
        for name, own in inventory.registrars.items()
        if names is None or name in names
    ]


def _unnamed_pools(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the agents whose pools have no names: a gateway stands for each pool by its handle."""
    why = "the gateways of the cell stand for its pools by their handles"
    for location, cell in find(document, ("cell", "*")):
        agents = [(at, agent) for at, agent in find(cell, ("agent", "*")) if isinstance(agent, dict)]
        if isinstance(cell, dict) and not agents:
            yield location, f"needs [[cell.agent]] with handles: {why}"
        for at, agent in agents:
            if "handles" not in agent:
                yield (*location, *at), f"needs handles: {why}"
            for behind, handle in find(agent, ("handles", "*")):
                if isinstance(handle, str) and handle.endswith("*"):
                    yield (*location, *at, *behind), f"{handle!r} names no pool: {why}; name each pool"


_HOSTS: Final = (
    ("registrar", "*", "address"),
    ("agent", "*", "addresses", "*"),
    ("gateways", "*"),
    ("name_servers", "*"),
)


def _shared_hosts(
    spaces: Sequence[tuple[tuple[str | int, ...], Any]],
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the hosts and networks that two cells have: each host belongs to one."""
    seen: list[tuple[Network, int, str]] = []
    for number, (location, table) in enumerate(spaces):
        name = str(table.get("name", UPPER)) if isinstance(table, dict) else UPPER
        for pattern in _HOSTS:
            for at, text in find(table, pattern):
                try:
                    network = ip_network(text)
                except (TypeError, ValueError):
                    continue  # told at its own key
                other = next(
                    (of for known, place, of in seen if place != number and _meet(known, network)), None
                )
                if other is not None:
                    yield (*location, *at), f"{text} is in {other!r} already: a host belongs to one cell"
                seen.append((network, number, name))


def _meet(network: Network, other: Network) -> bool:
    return network.version == other.version and network.overlaps(other)
