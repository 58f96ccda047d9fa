"""`rspdns news`: tells clients that hold no connection of each change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
from daemon_kit import logs
from daemon_kit.commands import config_option, log_options
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors
from daemon_kit.run import end_process, run_service

from rspdns.configuration import DEFAULT_PATH, load_configuration


@click.command()
@config_option(DEFAULT_PATH)
@log_options(level=None)
def news(config: Path, log_level: str | None, log_json: bool) -> None:
    """Tell news of the pools until SIGTERM, to clients that hold no connection (`rspdns watch --from`).

    It runs beside the backend, by the table [news] of the same file. A client polls a port that is closed
    while there is no news, so that the kernel refuses it and this process sleeps.
    """
    from rspdns.news.configuration import read_keys
    from rspdns.news.server import NewsServer

    loaded = load_configuration(config)
    if loaded.news is None:
        missing = "is missing: it says where clients subscribe, and which keys sign"
        raise ConfigurationErrors([ConfigurationError(str(config), 0, "news", missing)])
    logs.configure(log_level or loaded.log_level, json=log_json)
    server = NewsServer(loaded.news, read_keys(loaded.news), loaded.admin.socket, Path(loaded.state.path))

    async def run(stop: asyncio.Event) -> None:
        await server.run(stop)

    end_process(run_service(run))
