"""The configuration files of a lab's hosts. Pure but for `write_name_server_files`."""

import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from daemon_kit.files import replace_file
from pdns_config import PdnsSettings, render_pdns_conf, write_script

from rserpool import Protocol, new_pool_key, pool_key_line, server_key_line
from rspdns_lab.chain import fast_path
from rspdns_lab.chain.plan import (
    HANDLE,
    NETWORK,
    REREGISTRATION_MS,
    SIP_PORT,
    SITE_BACK_S,
    TCP_HANDLE,
    ZONE,
    FollowMethod,
    LabSetting,
)

_BACKEND_TIMEOUT_MS: Final = 2000
_CHECK_TIMEOUT_MS: Final = 250
_POLL_HOT_MS: Final = 50
_RESOLVE_TIMEOUT_MS: Final = 300
_MOST_RESOLVE_TIMEOUT_MS: Final = 10_000


def kamailio_cfg(address: str, name: str) -> str:
    """Return the configuration of a SIP server that answers OPTIONS over UDP and TCP."""
    return f"""#!KAMAILIO
debug=0
log_stderror=yes
children=1
tcp_children=1
auto_aliases=no
dns=no
rev_dns=no
server_header="Server: {name}"
listen=udp:{address}:{SIP_PORT}
listen=tcp:{address}:{SIP_PORT}
loadmodule "sl.so"
request_route {{
    if (method == "OPTIONS") {{
        sl_send_reply("200", "OK");
        exit;
    }}
    sl_send_reply("405", "Method Not Allowed");
}}
"""


def agent_toml(
    name: str,
    address: str,
    registrars: Sequence[str],
    folder: Path,
    slow: float = 1.0,
    *,
    tcp: bool = False,
    key: Path | None = None,
) -> str:
    """Return the sidecar's configuration: both checks, load from the file `load` in its folder.

    On a machine that is `slow` times slower the checks have more patience. `key`: the server's key file, in a
    keyed pool. `tcp`: it is in the pool for
    TCP, too, and takes what ppu-agents embed in SCTP.
    """
    timeout_ms = round(_CHECK_TIMEOUT_MS * slow)
    handles = {"udp": HANDLE, **({"tcp": TCP_HANDLE} if tcp else {})}
    servers = "".join(
        _server(name if transport == "udp" else f"{name}-tcp", transport, handle, address, folder, timeout_ms)
        for transport, handle in handles.items()
    )
    if key is not None:
        servers = servers.replace("\nport = ", f"\nkey = {_text(key)}\nport = ")
    relay = ""
    if tcp:
        servers = servers.replace("\nport = ", "\nrelay = true\nport = ")
        relay = f"\n[relay]\naccept = {_array([NETWORK])}\n"
    return f"""registrars = {_array(registrars)}
reregistration_ms = {REREGISTRATION_MS}

[state]
path = {_text(folder / "state")}

[control]
path = {_text(folder / "agent.sock")}
{relay}{servers}"""


def _server(name: str, transport: str, handle: str, address: str, folder: Path, timeout_ms: int) -> str:
    return f"""
[[as]]
name = {_text(name)}
handle = {_text(handle)}
transport = {_text(transport)}
address = {_text(address)}
port = {SIP_PORT}
policy = "least-used"

[[as.check]]
type = "tcp-hold"
timeout_ms = {timeout_ms}

[[as.check]]
type = "sip-options"
timeout_ms = {timeout_ms}

[as.damping]
falls = 0    # a lab kills its servers as often as it likes

[as.load]
source = "file"
path = {_text(folder / "load")}
max_age_ms = 3600000
"""


def backend_toml(
    registrars: Sequence[str], folder: Path, follow: FollowMethod = "enrp", slow: float = 1.0
) -> str:
    """Return the backend's configuration; its zones stand in `zones.d` beside it.

    On a machine that is `slow` times slower it asks registrars less often and waits longer for an answer.
    """
    return f"""registrars = {_array(registrars)}
follow = {_text(follow)}
poll_hot_ms = {round(_POLL_HOT_MS * slow)}
resolve_timeout_ms = {min(round(_RESOLVE_TIMEOUT_MS * slow), _MOST_RESOLVE_TIMEOUT_MS)}

[pdns]
connector = {_text(f"unix:{folder}/remote.sock")}
control = [{_text(folder / "pdns.controlsocket")}]

[admin]
socket = {_text(folder / "admin.sock")}

[state]
path = {_text(folder / "state")}
"""


def handlespace_tables(setting: LabSetting) -> str:
    """Return the tables that stand in place of `registrars` where there are several handlespaces."""
    return "".join(
        f"\n[[handlespace]]\nname = {_text(name)}\nregistrars = {_array(list(cell.values()))}\n"
        for name, cell in setting.handlespaces.items()
    )


def fastpath_toml(socket: Path) -> str:
    """Return what the backend's configuration has more where the kernel answers."""
    return f"\n[fastpath]\nsocket = {_text(socket)}\n"


def site_tables(at_site: Mapping[str, Sequence[str]]) -> str:
    """Return the sites of the application servers; `at_site` are their addresses by site."""
    return "".join(
        f"\n[[site]]\nname = {_text(name)}\nnetworks = {_array(addresses)}\n"
        for name, addresses in at_site.items()
    )


def zone_toml(
    verified: bool = False, *, tcp: bool = False, key: Path | None = None, order: Sequence[str] = ()
) -> str:
    """Return the live zone: one pool of SIP servers; `verified`: the backend probes each of them itself.

    `key`: the key file of a keyed pool. `tcp`: and one of the same servers over TCP. `order`: its sites.
    """
    of_sites = f"""order = {_array(order)}
min_in = 2
spill_at = 0.8
spill_back = 0.6
back_after_s = {SITE_BACK_S:g}
"""
    more = f"""
[[pool]]
handle = {_text(TCP_HANDLE)}
label = "t"
service = "_sip._tcp"
name = "as"
accept = [{_text(NETWORK)}]
"""
    return f"""zone = {_text(ZONE)}
static = {_text(f"{ZONE}.zone")}
ttl = 1

[[pool]]
handle = {_text(HANDLE)}
label = "u"
service = "_sip._udp"
name = "as"
accept = [{_text(NETWORK)}]
{'verify = "sip-options"' if verified else ""}
{f"key = {_text(key)}" if key is not None else ""}
{of_sites if order else ""}
{more if tcp else ""}"""


def static_zone(name_servers: Sequence[str]) -> str:
    """Return the zone's fixed records."""
    lines = [
        f"$ORIGIN {ZONE}.",
        "$TTL 3600",
        "@ IN SOA ns1 hostmaster 1 3600 600 604800 1",
    ]
    for number, address in enumerate(name_servers, start=1):
        lines += [f"@ IN NS ns{number}", f"ns{number} IN A {address}"]
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    """Return a TOML string; JSON's escapes are TOML's too."""
    return json.dumps(str(value))


def _array(values: Sequence[str]) -> str:
    return "[" + ", ".join(_text(value) for value in values) + "]"


def pool_key_file(folder: Path) -> Path:
    """Return where the key of the pool is, in a lab whose files are in `folder`."""
    return folder / "pool.key"


def write_keys(folder: Path, servers: Mapping[str, str]) -> None:
    """Write the key of the pool into `folder`, and that of each server into the folder of its name.

    `servers` are their addresses by name.
    """
    pool = new_pool_key()
    replace_file(pool_key_file(folder), f"{pool_key_line(pool)}\n".encode())
    for name, address in servers.items():
        server = pool.server_key(Protocol.UDP, ip_address(address), SIP_PORT)
        replace_file(folder / name / "server.key", f"{server_key_line(server)}\n".encode())


def write_name_server_files(
    address: str,
    registrars: Sequence[str],
    name_servers: Sequence[str],
    folder: Path,
    setting: LabSetting,
) -> None:
    """Write `rspdns.toml`, `zones.d/` and `pdns.conf` into `folder`.

    On a machine that is slower the backend, and PowerDNS with it, have more patience.
    """
    zones = folder / "zones.d"
    zones.mkdir()
    (folder / "state").mkdir()
    text = backend_toml(registrars, folder, setting.follow, setting.slow)
    if setting.cells:
        text = text.partition("\n")[2] + handlespace_tables(setting)
    if setting.fastpath:
        text += fastpath_toml(folder / fast_path.SOCKET)
    (folder / "rspdns.toml").write_text(text + site_tables(setting.at_site))
    key = pool_key_file(folder.parent) if setting.keyed else None
    zone = zone_toml(verified=setting.verified, tcp=setting.tcp, key=key, order=tuple(setting.at_site))
    if setting.cells:
        zone += f"handlespaces = {_array(list(setting.handlespaces))}\n"
    (zones / f"{ZONE}.toml").write_text(zone)
    (zones / f"{ZONE}.zone").write_text(static_zone(name_servers))
    settings = PdnsSettings(
        listen_address=address,
        listen_port=53,
        connector=f"unix:{folder}/remote.sock",
        script=write_script(folder, f"unix:{folder}/remote.sock"),
        socket_dir=str(folder),
        backend_timeout_ms=round(_BACKEND_TIMEOUT_MS * setting.slow),
    )
    (folder / "pdns.conf").write_text(render_pdns_conf(settings))
