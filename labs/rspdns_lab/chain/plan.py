"""The hosts of the lab: names, addresses, the zone. The addresses exist inside the namespaces only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

ZONE: Final = "demo.example"
NAME: Final = f"as.{ZONE}"
SRV_OWNER: Final = f"_sip._udp.{NAME}"
HANDLE: Final = "sip-as-udp"
TCP_HANDLE: Final = "sip-as-tcp"
SIP_PORT: Final = 5060
NETWORK: Final = "10.53.0.0/24"
REREGISTRATION_MS: Final = 2000

REGISTRARS: Final = {"r1": "10.53.0.11", "r2": "10.53.0.12", "r3": "10.53.0.13"}
CELLS: Final = {"eu": REGISTRARS, "us": {"r4": "10.53.0.14", "r5": "10.53.0.15", "r6": "10.53.0.16"}}
"""The registrars of two handlespaces, by their names."""
NAME_SERVERS: Final = {"ns1": "10.53.0.21", "ns2": "10.53.0.22"}
MOST_MEMBERS: Final = 12


def application_servers(members: int) -> dict[str, str]:
    """Return names and addresses of `members` application servers (1 to 12)."""
    return {f"as{number}": f"10.53.0.{30 + number}" for number in range(1, members + 1)}


APPLICATION_SERVERS: Final = application_servers(3)
LOADS: Final = {"as1": 0.2, "as2": 0.4, "as3": 0.6}
CLIENT: Final = ("client", "10.53.0.61")

FollowMethod = Literal["enrp", "poll"]
FOLLOWS: Final[tuple[FollowMethod, ...]] = get_args(FollowMethod)
"""How a backend may know of changes: registrars followed by ENRP, or only polled."""


@dataclass(frozen=True)
class LabSetting:
    """The differences between labs: the number of application servers, and how the backends follow the
    registrars."""

    members: int = 3
    follow: FollowMethod = "enrp"
    clocks: bool = False
    """Whether each registrar's host has a time of day of its own (needs a C compiler)."""
    verified: bool = False
    """Whether the backends probe every application server themselves."""
    keyed: bool = False
    """Whether the pool has a key."""
    tcp: bool = False
    """Whether the application servers are in a pool for TCP, too, at the same name."""
    cells: bool = False
    """Whether there are two handlespaces, each with half of the application servers."""
    fastpath: bool = False
    """Whether the kernel of each name server answers, by rspdns-fastpath."""
    sites: bool = False
    """Whether the application servers are at two sites, each with one half of them."""
    slow: float = 1.0
    """The factor by which this machine is slower: the lab waits longer, and asks less often."""

    @property
    def beat_ms(self) -> float:
        """How often the client asks: a slow machine has other work than answering it."""
        return 1.0 if self.slow <= 1 else 3 * self.slow

    @property
    def application_servers(self) -> Mapping[str, str]:
        """Their addresses by name."""
        return application_servers(self.members)

    @property
    def at_site(self) -> Mapping[str, tuple[str, ...]]:
        """The addresses of the application servers of each site, the first one first."""
        addresses = tuple(self.application_servers.values())
        half = len(addresses) // 2
        return {"eu": addresses[:half], "us": addresses[half:]} if self.sites else {}

    @property
    def handlespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The registrars of each handlespace, by its name; the only one has none."""
        return CELLS if self.cells else {"": REGISTRARS}

    @property
    def registrars(self) -> Mapping[str, str]:
        """The addresses of all registrars by name."""
        return {name: address for cell in self.handlespaces.values() for name, address in cell.items()}

    def cell_of(self, name: str) -> str:
        """Return the name of the handlespace in which an application server registers."""
        cells, servers = list(self.handlespaces), list(self.application_servers)
        return cells[servers.index(name) * len(cells) // len(servers)]

    def load(self, name: str) -> float:
        """Return the load that an application server reports: 0.2, 0.4, 0.6, 0.2, ..."""
        loads = list(LOADS.values())
        return loads[list(self.application_servers).index(name) % len(loads)]


QUESTIONS: Final = (f"SRV:{SRV_OWNER}", f"A:{NAME}")
SRV_QUESTION: Final = 0
A_QUESTION: Final = 1
SITE_BACK_S: Final = 5.0
"""A site that was lost counts again when it has been enough for so long."""
