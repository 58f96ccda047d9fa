"""Names and files of the benchmark of size: what pools and elements are called, and the backend's zone."""

import json
from pathlib import Path

from pdns_config import PdnsSettings, render_pdns_conf, write_script

ZONE = "scale.example.net"


def handle_of(pool: int) -> str:
    """Return a pool's handle."""
    return f"pool-{pool}"


def element_identifier(pool: int, index: int) -> int:
    """Return a pool element's identifier."""
    return (pool << 8 | index) + 1


def target(pool: int, index: int) -> str:
    """Return the name whose address a pool element is."""
    return f"{element_identifier(pool, index):08x}.u.as{pool}.{ZONE}"


def owner(pool: int) -> str:
    """Return the owner name of a pool's SRV records."""
    return f"_sip._udp.as{pool}.{ZONE}"


def write_files(folder: Path, address: str, registrars: list[str], pools: int) -> None:
    """Write the configuration of a backend with these pools, and of a PowerDNS at `address` beside it."""
    (folder / "zones.d").mkdir(parents=True)
    (folder / "rspdns.toml").write_text(
        f"registrars = {json.dumps(registrars)}\n"
        f'[pdns]\nconnector = "unix:{folder}/remote.sock"\ncontrol = ["{folder}/pdns.controlsocket"]\n'
        f'[admin]\nsocket = "{folder}/admin.sock"\n[state]\npath = "{folder}/state"\n'
    )
    (folder / "zones.d" / f"{ZONE}.zone").write_text(
        f"$ORIGIN {ZONE}.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 1\n@ NS ns\nns A {address}\n"
    )
    tables = "".join(
        f'[[pool]]\nhandle = "{handle_of(pool)}"\nlabel = "u"\nservice = "_sip._udp"\nname = "as{pool}"\n'
        'accept = ["10.0.0.0/8"]\nwhen_empty = "nodata"\n'
        for pool in range(pools)
    )
    (folder / "zones.d" / f"{ZONE}.toml").write_text(f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\n{tables}')
    settings = PdnsSettings(
        listen_address=address,
        connector=f"unix:{folder}/remote.sock",
        script=write_script(folder, f"unix:{folder}/remote.sock"),
        socket_dir=str(folder),
    )
    (folder / "pdns.conf").write_text(render_pdns_conf(settings))
