"""`refuse` of `on_dead`: set-ups fail at once, and what is sent in a connection ends it.

This also takes what the other mechanisms leave: the rest of a connection that is redirected or relayed, and
datagrams that are no SIP requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ppu_agent.mechanisms.base import Mechanism, ZoneOfFlows
from ppu_agent.plan import Plan, Treatment, Way
from ppu_agent.rules import (
    IS_SCTP_SET_UP,
    IS_SET_UP,
    MAIN,
    Expressions,
    NftCommand,
    TableCommands,
    is_in,
    is_transport,
    sending_on,
)
from rserpool import Protocol

CLOSED_SCTP_PORT: Final = 1
"""tcpmux: nobody has an SCTP server there."""


class RefuseMechanism(Mechanism):
    """Refuses."""

    def __init__(self) -> None:
        self._zone = ZoneOfFlows()

    def commands(self, plan: Plan) -> TableCommands:
        """Refuse, and have SCTP aborted."""
        return TableCommands(refuse_rules(plan, self._zone.of(plan)))


def refuse_rules(plan: Plan, zone: int) -> list[NftCommand]:
    """The chains and sets of what is refused."""
    refused = plan.treated(Way.REFUSE)
    aborting = sending_on("abort", plan.treated(Way.ABORT), zone, _to_closed_port)
    return [*aborting, *(_refusing(refused) if refused else [])]


def _to_closed_port(treatment: Treatment) -> Expressions:
    which = [IS_SCTP_SET_UP] if treatment.spares_connections else []
    return [is_transport(Protocol.SCTP), *which, {"redirect": {"port": CLOSED_SCTP_PORT}}]


def _refusing(refused: Sequence[Treatment]) -> list[NftCommand]:
    commands = [
        MAIN.chain("refuse"),
        MAIN.rule("refuse", is_transport(Protocol.TCP), {"reject": {"type": "tcp reset"}}),
        MAIN.rule("refuse", {"reject": {"type": "icmpx", "expr": "port-unreachable"}}),
    ]
    versions = sorted({treatment.destination.address.version for treatment in refused})
    for version in versions:
        of_version = [treatment for treatment in refused if treatment.destination.address.version == version]
        for name, is_spared in (("refused", False), ("unready", True)):
            own = [
                treatment.destination for treatment in of_version if treatment.spares_connections is is_spared
            ]
            commands.append(MAIN.set(f"{name}{version}", version, own))
    refusal = {"goto": {"target": "refuse"}}
    for hook in ("output", "forward"):
        commands += MAIN.base_for_others(f"refuse_{hook}", "filter", hook, 0)
        for v in versions:
            commands.append(MAIN.rule(f"refuse_{hook}", is_in(v, f"refused{v}"), refusal))
            commands.append(MAIN.rule(f"refuse_{hook}", is_in(v, f"unready{v}"), IS_SET_UP, refusal))
    return commands
