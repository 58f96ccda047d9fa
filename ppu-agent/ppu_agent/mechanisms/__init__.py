"""Mechanisms: what is done about packets and connections to a pool. One file each, all with the same methods.

`redirect`, `refuse` and `answer` of `on_dead`, and `steer` without `via`, are not here: they are rules of one
table, which `ppu_agent.ruleset` writes and `ppu_agent.writer` holds.
"""

from ppu_agent.mechanisms.base import Mechanism as Mechanism
from ppu_agent.mechanisms.base import Redirections as Redirections
from ppu_agent.mechanisms.base import Situation as Situation
from ppu_agent.mechanisms.gateway import GatewayMechanism as GatewayMechanism
from ppu_agent.mechanisms.pace import PaceMechanism as PaceMechanism
from ppu_agent.mechanisms.repeat import RepeatMechanism as RepeatMechanism
from ppu_agent.mechanisms.via import ViaMechanism as ViaMechanism
