"""Mechanisms: what is done about packets and connections to a pool. One file each, all with the same methods.

`ppu_agent.plan` decides which packet goes which way; each mechanism does the work of its ways (`Way`).
"""

from ppu_agent.mechanisms.answer import AnswerMechanism as AnswerMechanism
from ppu_agent.mechanisms.base import Mechanism as Mechanism
from ppu_agent.mechanisms.ending import EndingMechanism as EndingMechanism
from ppu_agent.mechanisms.front import FrontMechanism as FrontMechanism
from ppu_agent.mechanisms.gateway import GatewayMechanism as GatewayMechanism
from ppu_agent.mechanisms.pace import PaceMechanism as PaceMechanism
from ppu_agent.mechanisms.redirect import RedirectMechanism as RedirectMechanism
from ppu_agent.mechanisms.refuse import RefuseMechanism as RefuseMechanism
from ppu_agent.mechanisms.repeat import RepeatMechanism as RepeatMechanism
from ppu_agent.mechanisms.via import ViaMechanism as ViaMechanism
