"""Writes the files of a name-server host: backend, zone and PowerDNS."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pdns_config.render import PdnsSettings, render

from rspdns_lab import texts
from rspdns_lab.plan import ZONE, Follow

_BACKEND_TIMEOUT_MS: Final = 2000


def write_name_server_files(
    address: str,
    registrars: Sequence[str],
    name_servers: Sequence[str],
    folder: Path,
    follow: Follow = "enrp",
    slow: float = 1.0,
) -> None:
    """Write `rspdns.toml`, `zones.d/` and `pdns.conf` into `folder`.

    On a machine that is `slow` times slower the backend, and PowerDNS with it, have more patience.
    """
    zones = folder / "zones.d"
    zones.mkdir()
    (folder / "state").mkdir()
    (folder / "rspdns.toml").write_text(texts.backend_toml(registrars, folder, follow, slow))
    (zones / f"{ZONE}.toml").write_text(texts.zone_toml())
    (zones / f"{ZONE}.zone").write_text(texts.static_zone(name_servers))
    settings = PdnsSettings(
        listen_address=address,
        listen_port=53,
        connector=f"unix:{folder}/remote.sock",
        socket_dir=str(folder),
        backend_timeout_ms=round(_BACKEND_TIMEOUT_MS * slow),
    )
    (folder / "pdns.conf").write_text(render(settings))
