"""The configuration files of the IMS lab. Pure: facts in, text out."""

from typing import Final

from rspdns_lab.chain.plan import SIP_PORT
from rspdns_lab.ims.plan import TIMER_B_MS

SENT_MARK: Final = "SENT"
"""How a line in an S-CSCF's log begins that tells of an INVITE on its way: SENT time address."""


def cscf_cfg(address: str, *, tcp: bool = False) -> str:
    """Return the configuration of an S-CSCF stand-in: RFC 3263 location, RFC 3261 timers, no more.

    NAPTR, SRV and address records are looked up, SRV weights are drawn, the next target is tried when one
    does not answer within Timer B. onsend_route runs once for each INVITE sent somewhere, not for its
    retransmissions. `tcp`: it speaks TCP to servers, too.
    """
    transports = f"listen=tcp:{address}:{SIP_PORT}\ntcp_children=2" if tcp else "disable_tcp=yes"
    return f"""#!KAMAILIO
debug=1
log_stderror=yes
children=2
{transports}
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
