"""The kernel's side: thin adapters to nftables and the sockets of this host. No decisions."""

from ppu_agent.kernel.nftables import Command as Command
from ppu_agent.kernel.nftables import Nftables as Nftables
from ppu_agent.kernel.nftables import NftablesError as NftablesError
from ppu_agent.kernel.sockets import LocalSockets as LocalSockets
