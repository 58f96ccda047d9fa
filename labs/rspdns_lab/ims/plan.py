"""Who is in the IMS lab, beside the demo's registrars, application servers and zone."""

from typing import Final

APPROACHES: Final = ("static", "lua", "gdnsd", "rspdns")
"""How DNS is served; each has a name server, an S-CSCF that asks it, and a caller."""

TITLES: Final = {
    "static": "static zone (PowerDNS, bind backend)",
    "lua": "PowerDNS LUA records (ifportup, every second)",
    "gdnsd": "gdnsd (tcp_connect every 2 s, no damping)",
    "rspdns": "rspdns",
}
NAME_SERVERS: Final = {approach: f"10.53.0.{61 + place}" for place, approach in enumerate(APPROACHES)}
CSCFS: Final = {approach: f"10.53.0.{71 + place}" for place, approach in enumerate(APPROACHES)}
CALLER: Final = ("caller", "10.53.0.81")
CALLER_PORTS: Final = {approach: 5071 + place for place, approach in enumerate(APPROACHES)}

TIMER_B_MS: Final = 32_000
"""64 x T1: how long RFC 3261 has a client wait for an answer to INVITE over UDP."""
