"""Ways to serve the application servers' names that labs compare, and where their name servers are."""

from typing import Final

TITLES: Final = {
    "static": "static zone (PowerDNS, bind backend)",
    "lua": "PowerDNS LUA records (ifportup, every second)",
    "lua-default": "PowerDNS LUA records (ifportup, its defaults)",
    "gdnsd": "gdnsd (tcp_connect every 2 s, no damping)",
    "gdnsd-default": "gdnsd (tcp_connect, its defaults)",
    "rspdns": "rspdns",
}
NAME_SERVERS: Final = {approach: f"10.53.0.{61 + place}" for place, approach in enumerate(TITLES)}
