"""Configuration and zone files of the name servers that labs compare. Pure: facts in, text out."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from rspdns_lab.chain.plan import APPLICATION_SERVERS, SIP_PORT, ZONE

_GDNSD_TUNED: Final = """        interval => 2
        timeout => 1
        up_thresh => 1
        ok_thresh => 1
        down_thresh => 1
"""


def static_zone(name_server: str, serial: int = 1, without: Collection[str] = ()) -> str:
    """Return the zone as somebody writes it by hand, less the servers he takes out by hand."""
    shown = [name for name in APPLICATION_SERVERS if name not in without]
    srv = [f"_sip._udp.as SRV 0 100 {SIP_PORT} {name}" for name in shown]
    return "\n".join([*_head(name_server, serial), *srv, *_addresses()]) + "\n"


def lua_zone(name_server: str, serial: int = 1, without: Collection[str] = (), *, tuned: bool = True) -> str:
    """Return the zone with SRV made by a LUA record from the addresses whose SIP port accepts connections."""
    shown = [address for name, address in APPLICATION_SERVERS.items() if name not in without]
    names = "".join(f"['{address}']='{name}'," for name, address in APPLICATION_SERVERS.items())
    addresses = ",".join(f"'{address}'" for address in shown)
    timeout = ",timeout=1" if tuned else ""
    code = (
        f";local names={{{names}}} local found={{}} "
        f"for _,ip in pairs(ifportup({SIP_PORT},{{{addresses}}},{{selector='all'{timeout}}})) do "
        f"found[#found+1]='0 100 {SIP_PORT} '..names[ip]..'.{ZONE}.' end return found"
    )
    return "\n".join([*_head(name_server, serial), f'_sip._udp.as LUA SRV "{code}"', *_addresses()]) + "\n"


def gdnsd_zone(name_server: str) -> str:
    """Return the zone for gdnsd: it can't change SRV records, only the addresses of their one target."""
    lines = [*_head(name_server, 1), f"_sip._udp.as SRV 0 100 {SIP_PORT} live", "live DYNA multifo!sip"]
    return "\n".join([*lines, *_addresses()]) + "\n"


def gdnsd_config(address: str, folder: Path, *, tuned: bool) -> str:
    """Return gdnsd's configuration; tuned: its checks as fast and as little damped as it allows."""
    checks = _GDNSD_TUNED if tuned else ""
    members = "".join(f"        {name} => {ip}\n" for name, ip in APPLICATION_SERVERS.items())
    return f"""options => {{
    listen => {address}
    run_dir => {folder}/run
    state_dir => {folder}/state
    zones_default_ttl => 1
    min_ttl => 1
}}
service_types => {{
    sip_port => {{
        plugin => tcp_connect
        port => {SIP_PORT}
{checks}    }}
}}
plugins => {{
    multifo => {{
      sip => {{
        service_types => sip_port
        up_thresh => 0.01
{members}      }}
    }}
}}
"""


def gdnsd_admin_state(drained: Collection[str]) -> str:
    """Return the file by which an operator takes servers out of gdnsd's answers."""
    return "".join(f"{APPLICATION_SERVERS[name]}/sip_port => DOWN\n" for name in sorted(drained))


def pdns_conf(address: str, folder: Path, *, lua: bool, tuned: bool) -> str:
    """Return the configuration of a PowerDNS with a zone file; tuned: its checks as fast as it allows."""
    text = f"""launch=bind
bind-config={folder}/named.conf
local-address={address}
socket-dir={folder}
zone-cache-refresh-interval=0
"""
    text += "enable-lua-records=yes\n" if lua else ""
    return text + ("lua-health-checks-interval=1\n" if lua and tuned else "")


def _head(name_server: str, serial: int) -> list[str]:
    return [
        f"$ORIGIN {ZONE}.",
        "$TTL 1",
        f"@ SOA ns hostmaster {serial} 3600 600 604800 1",
        "@ NS ns",
        f"ns A {name_server}",
        'as NAPTR 10 10 "s" "SIP+D2U" "" _sip._udp.as',
    ]


def _addresses() -> list[str]:
    return [f"{name} A {address}" for name, address in APPLICATION_SERVERS.items()]
