"""`rspdns news`: tells clients of each change: those without a connection, and those of DNS Push."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from daemon_kit import logs, notify
from daemon_kit.commands import config_option, example, log_options
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors
from daemon_kit.run import end_process, run_service

from rspdns.configuration import DEFAULT_PATH, load_configuration

if TYPE_CHECKING:
    from rspdns.news.push import PushServer
    from rspdns.news.server import NewsServer

STATUS_EVERY_S = 10.0


@click.command(epilog=example("rspdns news --log-level debug"))
@config_option(DEFAULT_PATH)
@log_options(level=None)
def news(config: Path, log_level: str | None, log_json: bool) -> None:
    """Tell news of the pools until SIGTERM, to clients that hold no connection (`rspdns watch --from`).

    It runs beside the backend, by the table [news] of the same file. A client polls a port that is closed
    while there is no news, so that the kernel refuses it and this process sleeps. With [news.push] it tells
    clients of DNS Push Notifications (RFC 8765), too.
    """
    import uvloop

    from rspdns.news.configuration import read_keys
    from rspdns.news.push import PushServer
    from rspdns.news.server import NewsServer

    loaded = load_configuration(config)
    if loaded.news is None:
        missing = "is missing: it says where clients subscribe, and which keys sign"
        raise ConfigurationErrors([ConfigurationError(str(config), 0, "news", missing)])
    logs.configure(log_level or loaded.log_level, json=log_json)
    control, services = loaded.admin.socket, list[NewsServer | PushServer]()
    if loaded.news.listen is not None:
        services.append(NewsServer(loaded.news, read_keys(loaded.news), control, Path(loaded.state.path)))
    if loaded.news.push is not None:
        access, _ = loaded.news.push.access(config.parent)
        services.append(PushServer(loaded.news.push, access, control))

    async def run(stop: asyncio.Event) -> None:
        tasks = [asyncio.create_task(service.run(stop)) for service in services]
        telling = asyncio.create_task(_tell_status(services))
        try:
            await asyncio.gather(*tasks)
        finally:
            telling.cancel()
            stop.set()  # if one failed, the other ends, too
            await asyncio.gather(*tasks, telling, return_exceptions=True)

    # asyncio's own TLS writes 256 KiB of zeros for each connection.
    end_process(run_service(run, loop_factory=uvloop.new_event_loop))


async def _tell_status(services: Sequence[NewsServer | PushServer]) -> None:
    """Tell systemd how the services are."""
    while True:
        await asyncio.sleep(STATUS_EVERY_S)
        notify.sd_notify(f"STATUS={'; '.join(service.status for service in services)}")
