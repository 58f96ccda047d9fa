"""Asks each load source of a configuration once, for `ppe-agent check`."""

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import NamedTuple

from ppe_agent.addresses import Address, NoLocalAddress
from ppe_agent.config_types import has_load
from ppe_agent.configuration import AgentConfig, ServerConfig, addresses_of
from ppe_agent.load_config import LoadConfig
from ppe_agent.load_sources import LoadUnknown, make_source, read_within


class LoadNow(NamedTuple):
    """The load of the AS `name`, 0..1, or why there is none."""

    name: str
    source: str
    load: float | None
    problem: str = ""


async def loads_now(config: AgentConfig) -> Sequence[LoadNow]:
    """Ask the source of each server that names one and whose policy reports a load, all at once."""
    asked = [
        (server, server.load)
        for server in config.servers
        if server.load is not None and has_load(server.policy)
    ]
    return await asyncio.gather(*(_ask(server, load, config) for server, load in asked))


def _address(server: ServerConfig, load: LoadConfig, config: AgentConfig) -> Address:
    """Return where a source asks. Before a registrar has announced itself an "auto" address is unknown;
    sources that ask no address are tried all the same. Raises NoLocalAddress."""
    try:
        return addresses_of(server, next(iter(config.registrars_of(server)), None))[0]
    except NoLocalAddress:
        if load.asks_the_server:
            raise
        return IPv4Address(0)


async def _ask(server: ServerConfig, load: LoadConfig, config: AgentConfig) -> LoadNow:
    source = None
    try:
        source = make_source(load, _address(server, load, config), server.port, server.transport)
        if source is None:
            return LoadNow(server.name, load.source, 0.0)
        value = await read_within(source, load.timeout_ms if load.is_asked else None)
        return LoadNow(server.name, load.source, value)
    except (LoadUnknown, NoLocalAddress) as problem:
        return LoadNow(server.name, load.source, None, str(problem))
    finally:
        if source is not None:
            await source.close()
