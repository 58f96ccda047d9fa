"""Who is in the lab: names, addresses, the zone. The addresses exist inside the namespaces only."""

from typing import Final

ZONE: Final = "demo.example"
NAME: Final = f"as.{ZONE}"
SRV_OWNER: Final = f"_sip._udp.{NAME}"
HANDLE: Final = "sip-as-udp"
SIP_PORT: Final = 5060
NETWORK: Final = "10.53.0.0/24"
REREGISTRATION_MS: Final = 2000

REGISTRARS: Final = {"r1": "10.53.0.11", "r2": "10.53.0.12", "r3": "10.53.0.13"}
NAME_SERVERS: Final = {"ns1": "10.53.0.21", "ns2": "10.53.0.22"}
APPLICATION_SERVERS: Final = {"as1": "10.53.0.31", "as2": "10.53.0.32", "as3": "10.53.0.33"}
LOADS: Final = {"as1": 0.2, "as2": 0.4, "as3": 0.6}
CLIENT: Final = ("client", "10.53.0.41")

QUESTIONS: Final = (f"SRV:{SRV_OWNER}", f"A:{NAME}")
SRV_QUESTION: Final = 0
