"""The kernel's side: thin adapters to BPF, conntrack and the sockets of this host. No decisions."""

from ppu_agent.kernel.copies import COLLECT_EVERY_S as COLLECT_EVERY_S
from ppu_agent.kernel.copies import COPIES_GROUP as COPIES_GROUP
from ppu_agent.kernel.copies import PacketCopies as PacketCopies
from ppu_agent.kernel.dead_man import DeadManTimer as DeadManTimer
from ppu_agent.kernel.flows import Flow as Flow
from ppu_agent.kernel.flows import Flows as Flows
from ppu_agent.kernel.pace import PaceError as PaceError
from ppu_agent.kernel.pace import Pacer as Pacer
from ppu_agent.kernel.pace import Pacing as Pacing
from ppu_agent.kernel.sockets import IsMeant as IsMeant
from ppu_agent.kernel.sockets import LocalSockets as LocalSockets
from ppu_agent.kernel.speaking import speak as speak
