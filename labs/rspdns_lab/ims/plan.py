"""Who is in the IMS lab, beside the registrars, application servers and name servers."""

from typing import Final

APPROACHES: Final = ("static", "lua", "gdnsd", "rspdns")
"""How DNS is served; each has a name server, an S-CSCF that asks it, and a caller."""

CSCFS: Final = {approach: f"10.53.0.{71 + index}" for index, approach in enumerate(APPROACHES)}
CALLER: Final = ("caller", "10.53.0.81")
CALLER_PORTS: Final = {approach: 5071 + index for index, approach in enumerate(APPROACHES)}

TIMER_B_MS: Final = 32_000
"""64 x T1: how long RFC 3261 has a client wait for an answer to INVITE over UDP."""
