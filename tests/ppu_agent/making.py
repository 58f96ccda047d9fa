"""Members, views and policies for the tests of the client's sidecar."""

import errno
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from daemon_kit.finding import Finding, Life
from daemon_kit.run import Parts
from pool_user import BeliefChange, Member, PoolView
from ppu_agent.agent import PpuAgent
from ppu_agent.configuration import load_configuration
from ppu_agent.deaths import Departed, DepartedServers
from ppu_agent.destinations import Destination
from ppu_agent.mechanisms import EndingMechanism
from ppu_agent.plan import OnDead, PoolPolicy

from rserpool import Protocol, RoundRobin

POOL = "sip-udp"
REFUSED = Finding(Life.REFUSED, error=errno.ECONNREFUSED)
SILENT = Finding(Life.SILENT, waited_ms=300)
ANSWERED = Finding(Life.ALIVE, "answers OPTIONS with 200 OK")
BUSY = Finding(Life.UNWELL, "answers OPTIONS with 503 Busy")
UNKNOWN = Finding(Life.UNKNOWN, "can't be probed")


def member(number: int, protocol: Protocol = Protocol.UDP, port: int = 5060, version: int = 4) -> Member:
    address = f"10.0.{number // 256}.{number % 256}" if version == 4 else f"fd00::{number}"
    return Member(number, 1, (ip_address(address),), port, protocol, RoundRobin(), 0.0)


def destination(
    number: int, protocol: Protocol = Protocol.UDP, port: int = 5060, version: int = 4
) -> Destination:
    return Destination(member(number, version=version).addresses[0], protocol, port)


def view(*numbers: int, handle: str = POOL, **more: object) -> PoolView:
    fields: dict[str, object] = {"known": True} | more
    return PoolView(handle, tuple(member(number) for number in numbers), **fields)  # type: ignore[arg-type]


def show(shown: DepartedServers | PpuAgent, views: Mapping[str, PoolView], now: float = 0.0) -> bool:
    """The belief changes to these views. Return what `DepartedServers.take` does."""
    before = {handle: view for handle, view in shown._views.items() if handle in views}
    change = BeliefChange.between(before, views)
    if isinstance(shown, DepartedServers):
        return shown.take(change, now)
    shown.take_change(change)
    return True


def departed(number: int) -> Departed:
    """A member that left the pool."""
    return Departed(destination(number), member(number), {POOL: None}, 0.0, was_heard=True, is_certain=True)


def policy(handle: str = POOL, udp: OnDead = "redirect", also: tuple[Protocol, ...] = ()) -> PoolPolicy:
    actions: dict[Protocol, OnDead] = {
        Protocol.UDP: udp,
        Protocol.TCP: "refuse",
        Protocol.SCTP: "refuse",
    }
    return PoolPolicy(handle, actions, also)


def all_heard(departed: Departed) -> bool:
    """Every member had answered before it left."""
    return True


def make_agent(path: Path) -> PpuAgent:
    """An agent with this configuration; nothing of it runs."""
    return PpuAgent(load_configuration(path), Parts())


def ending_of(agent: PpuAgent) -> EndingMechanism:
    """The mechanism that ends what was up with the dead."""
    (found,) = (mechanism for mechanism in agent.mechanisms if isinstance(mechanism, EndingMechanism))
    return found


def let_all_be_heard(agent: PpuAgent) -> None:
    """As if every member of the agent's pools had answered before."""
    agent.questions.answers.was_heard = lambda asked, left_at_s: True  # type: ignore[method-assign]


def ask(deaths: DepartedServers, finding: Finding, now: float) -> None:
    """Every probe that is due has this outcome."""
    for departed in deaths.due(now):
        deaths.take_finding(departed.destination, finding, now)
