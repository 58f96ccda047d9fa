"""Finds the registrars by their announcements (`registrars = "multicast"`)."""

from collections.abc import Callable, Sequence
from typing import Any

from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError

from ppe_agent.configuration import MulticastConfig
from rserpool import AnnounceListener, RegistrarAddress, RegistrarTable


class Discovery:
    """Calls `on_registrars` with all registrars known, at least one, whenever they change."""

    def __init__(
        self, config: MulticastConfig, on_registrars: Callable[[Sequence[RegistrarAddress]], None]
    ) -> None:
        self._config = config
        self._on_registrars = on_registrars
        self._table = RegistrarTable(config.networks)
        group = ListenAddress.parse(config.group)
        self._listener = AnnounceListener(
            self._table, group.address, group.port, self._changed, interface=config.interface
        )

    def start(self) -> None:
        """Listen. Raises FatalError when the group can't be joined."""
        try:
            self._listener.start()
        except OSError as error:
            where = f" at {self._config.interface}" if self._config.interface else ""
            raise FatalError(
                f"can't listen to the multicast group {self._config.group}{where}: "
                f"{error.strerror or error}; without an interface given, this host needs a route to the group"
            ) from None

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def describe(self) -> dict[str, Any]:
        """Return what was heard, for people and programs."""
        return {
            "group": self._config.group,
            "heard": len(self._table.registrars),
            "ignored": self._table.ignored,
        }

    def _changed(self) -> None:
        self._on_registrars(self._table.registrars)
