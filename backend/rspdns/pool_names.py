"""Which pools a look-up is about: by the names that the pools of all zones own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rspdns.zones.zone import Zone


class PoolNames:
    """From a name in a question to the handles of the pools whose records stand there."""

    def __init__(self, zones: Sequence[Zone]) -> None:
        own: dict[str, list[str]] = {}
        targets: dict[str, tuple[str, ...]] = {}
        for zone in zones:
            for site in zone.sites:
                for pool in site.pools:
                    own.setdefault(site.name, []).extend(pool.config.shards)
                    own.setdefault(pool.owner, []).extend(pool.config.shards)
                    targets[pool.targets] = pool.config.shards
        self._own: Mapping[str, tuple[str, ...]] = {name: tuple(handles) for name, handles in own.items()}
        self._targets = targets

    def handles(self, name: str) -> tuple[str, ...]:
        """Return the handles of the pools at `name`, or whose target it is; none for another name."""
        return self._own.get(name) or self._targets.get(name.partition(".")[2], ())
