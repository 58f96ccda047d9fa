"""Writes the files of a name-server host: backend, zone and PowerDNS."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pdns_config.render import PdnsSettings, render

from rspdns_lab.chain import texts
from rspdns_lab.chain.plan import ZONE, Setting

_BACKEND_TIMEOUT_MS: Final = 2000


def write_name_server_files(
    address: str,
    registrars: Sequence[str],
    name_servers: Sequence[str],
    folder: Path,
    setting: Setting,
) -> None:
    """Write `rspdns.toml`, `zones.d/` and `pdns.conf` into `folder`.

    On a machine that is slower the backend, and PowerDNS with it, have more patience.
    """
    zones = folder / "zones.d"
    zones.mkdir()
    (folder / "state").mkdir()
    (folder / "rspdns.toml").write_text(texts.backend_toml(registrars, folder, setting.follow, setting.slow))
    (zones / f"{ZONE}.toml").write_text(texts.zone_toml(verified=setting.verified, tcp=setting.tcp))
    (zones / f"{ZONE}.zone").write_text(texts.static_zone(name_servers))
    settings = PdnsSettings(
        listen_address=address,
        listen_port=53,
        connector=f"unix:{folder}/remote.sock",
        socket_dir=str(folder),
        backend_timeout_ms=round(_BACKEND_TIMEOUT_MS * setting.slow),
    )
    (folder / "pdns.conf").write_text(render(settings))
