"""Overrides of this name server, which are set and cleared at its peers too if somebody wants that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from daemon_kit.control import ControlError

from rspdns.overrides.book import is_identifier
from rspdns.overrides.keeper import Overrides, read_wish
from rspdns.peers.configuration import PeerConfig
from rspdns.peers.peers import Peers


class SharedOverrides:
    """The overrides that are kept `here`, and the peers."""

    def __init__(self, here: Overrides) -> None:
        self.here = here
        self.peers = Peers(here.statuses)
        self._configs: Sequence[PeerConfig] = ()

    async def start(self, configs: Sequence[PeerConfig]) -> None:
        """Begin to compare with these peers."""
        self._configs = configs
        await self.peers.start(configs)

    def set_peers(self, configs: Sequence[PeerConfig]) -> None:
        """Let these be the peers from now on."""
        self._configs = configs
        self.peers.set_peers(configs)

    async def set(self, keys: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Set an override (`read_wish`), or only tell what it would do here.

        Raises ControlError if it can't be here; then no peer is asked.
        """
        wish, is_dry = read_wish(keys), keys.get("dry_run") is True
        self._check(wish.everywhere)
        result = await self.here.set(wish, by, is_dry=is_dry)
        peers = await self.peers.set(result["override"]) if wish.everywhere and not is_dry else []
        return result | {"peers": [asdict(peer) for peer in peers]}

    async def clear(self, named: Sequence[str], by: str, *, everywhere: bool) -> dict[str, Any]:
        """Clear these overrides by number or identifier, all if none is named; return their numbers.

        Raises ControlError if it can't be here; then no peer is asked.
        """
        cleared = await self.here.clear(named, by)
        identifiers = [override.id for override in cleared if override.id is not None]
        shared = dict.fromkeys([*identifiers, *filter(is_identifier, named)])
        peers = await self.peers.clear(list(shared), by) if everywhere and shared else []
        return {
            "cleared": [override.number for override in cleared],
            "identifiers": identifiers,
            "peers": [asdict(peer) for peer in peers],
        }

    def _check(self, everywhere: bool) -> None:
        if everywhere and not self._configs:
            raise ControlError("no other name server is known: write [[peer]] in rspdns.toml, and reload")
