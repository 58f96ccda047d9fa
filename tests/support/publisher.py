"""A backend whose belief a test plays, publishing at primary name servers."""

from collections.abc import Mapping
from pathlib import Path

from daemon_kit.config_file import parse
from pool_user import PoolView
from rspdns.answers.snapshot import Snapshot
from rspdns.publish import Publications, PublishConfig
from rspdns.status.model import PublicationStatus
from rspdns.zones.zone import Zone

from tests.backend.making import ZONE, answered, views, zone
from tests.support.primaries import Primary
from tests.support.waiting import until_async

SOON_S = 15.0


class Publisher:
    """A backend whose belief a test plays, and its publications."""

    def __init__(self, *configs: PublishConfig, zone_of_all: Zone | None = None) -> None:
        self.zone = zone_of_all or zone()
        self._views: Mapping[str, PoolView] = {}
        self._snapshot: Snapshot | None = None
        self.configs = configs
        self.publications = Publications(lambda: self._views)

    def believe(self, *of_pools: PoolView) -> None:
        self._views = views(*of_pools)
        self._snapshot = answered(self.zone, self._views, self._snapshot)
        self.publications.changed(self._snapshot)

    async def __aenter__(self) -> "Publisher":
        self.publications.start(self.configs)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.publications.close()

    @property
    def status(self) -> PublicationStatus:
        (status,) = self.publications.statuses()
        return status

    async def until_failing(self, words: str) -> None:
        await until_async(lambda: words in (self.status.problem or ""), SOON_S, lambda: str(self.status))

    async def until_right(self) -> None:
        await until_async(lambda: self.status.state == "right", SOON_S, lambda: str(self.status))


def config(primary: Primary, more: str = "", name: str = "lab") -> PublishConfig:
    """The table for this primary, with `more` keys."""
    return config_of(primary.server, primary.key, more, name)


def config_of(server: str, key: Path, more: str = "", name: str = "lab") -> PublishConfig:
    """The table for a server at this address."""
    text = f'name = "{name}"\nserver = "{server}"\nzone = "{ZONE}"\nkey = "{key}"\n{more}'
    return parse(text, "publish.toml", PublishConfig)
