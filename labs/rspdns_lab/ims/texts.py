"""The configuration files of the IMS lab. Pure: facts in, text out."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from rspdns_lab.ims.plan import TIMER_B_MS
from rspdns_lab.plan import APPLICATION_SERVERS, SIP_PORT, ZONE

SENT_MARK: Final = "SENT"
"""How a line in an S-CSCF's log begins that tells of an INVITE on its way: SENT time address."""


def cscf_cfg(address: str) -> str:
    """Return the configuration of an S-CSCF stand-in: RFC 3263 location, RFC 3261 timers, no more.

    NAPTR, SRV and address records are looked up, SRV weights are drawn, the next target is tried when one
    does not answer within Timer B. onsend_route runs once for each INVITE sent somewhere, not for its
    retransmissions.
    """
    return f"""#!KAMAILIO
debug=1
log_stderror=yes
children=2
disable_tcp=yes
auto_aliases=no
dns=no
rev_dns=no
listen=udp:{address}:{SIP_PORT}
use_dns_cache=on
dns_try_naptr=on
dns_srv_lb=on
use_dns_failover=on
dns_cache_negative_ttl=1
dns_retr_time=1
dns_retr_no=2
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "maxfwd.so"
loadmodule "siputils.so"
loadmodule "textops.so"
loadmodule "xlog.so"
modparam("tm", "fr_timer", {TIMER_B_MS})
modparam("tm", "fr_inv_timer", {2 * TIMER_B_MS})
request_route {{
    if (!mf_process_maxfwd_header("10")) {{ exit; }}
    if (has_totag()) {{
        loose_route();
        t_relay();
        exit;
    }}
    if (is_method("INVITE")) {{ record_route(); }}
    t_relay();
}}
onsend_route {{
    if (is_method("INVITE")) {{ xlog("L_NOTICE", "{SENT_MARK} $TV(Sn) $snd(ip)\\n"); }}
}}
"""


def static_zone(name_server: str, serial: int = 1, without: Collection[str] = ()) -> str:
    """Return the zone as somebody writes it by hand, less the servers he takes out by hand."""
    shown = [name for name in APPLICATION_SERVERS if name not in without]
    srv = [f"_sip._udp.as SRV 0 100 {SIP_PORT} {name}" for name in shown]
    return "\n".join([*_head(name_server, serial), *srv, *_addresses()]) + "\n"


def lua_zone(name_server: str, serial: int = 1, without: Collection[str] = ()) -> str:
    """Return the zone with SRV made by a LUA record from the addresses whose SIP port accepts connections."""
    shown = [address for name, address in APPLICATION_SERVERS.items() if name not in without]
    names = "".join(f"['{address}']='{name}'," for name, address in APPLICATION_SERVERS.items())
    addresses = ",".join(f"'{address}'" for address in shown)
    code = (
        f";local names={{{names}}} local found={{}} "
        f"for _,ip in pairs(ifportup({SIP_PORT},{{{addresses}}},{{selector='all',timeout=1}})) do "
        f"found[#found+1]='0 100 {SIP_PORT} '..names[ip]..'.{ZONE}.' end return found"
    )
    return "\n".join([*_head(name_server, serial), f'_sip._udp.as LUA SRV "{code}"', *_addresses()]) + "\n"


def gdnsd_zone(name_server: str) -> str:
    """Return the zone for gdnsd: it can't change SRV records, only the addresses of their one target."""
    lines = [*_head(name_server, 1), f"_sip._udp.as SRV 0 100 {SIP_PORT} live", "live DYNA multifo!sip"]
    return "\n".join([*lines, *_addresses()]) + "\n"


def gdnsd_config(address: str, folder: Path) -> str:
    """Return gdnsd's configuration, its checks as fast and as little damped as it allows."""
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
        interval => 2
        timeout => 1
        up_thresh => 1
        ok_thresh => 1
        down_thresh => 1
    }}
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


def pdns_conf(address: str, folder: Path, *, lua: bool) -> str:
    """Return the configuration of a PowerDNS with a zone file, its checks as fast as it allows."""
    text = f"""launch=bind
bind-config={folder}/named.conf
local-address={address}
socket-dir={folder}
zone-cache-refresh-interval=0
"""
    return text + ("enable-lua-records=yes\nlua-health-checks-interval=1\n" if lua else "")


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
