"""What happened in a pool between two views, for people: logs, the live page, the stream of events."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pool_user.belief.accept import REFUSED
from pool_user.belief.rules import BeliefEvent
from pool_user.views import Member, OutMember, PoolView


def happened(
    handle: str,
    view: PoolView,
    before: Mapping[int, Member],
    members: Mapping[int, Member],
    changed: Set[int],
    out: Mapping[int, OutMember],
    reasons: Mapping[int, str],
    now: float,
) -> list[BeliefEvent]:
    """What happened between `view`, of whose members `before` holds the same by identifier, and the members
    of now; those that are in both moments are the same but for the `changed`."""
    events = []
    for identifier in sorted(members.keys() - before.keys()):
        words = f"{members[identifier].addresses[0]} port {members[identifier].port}"
        events.append(BeliefEvent(now, "joined", handle, identifier, words, members[identifier]))
    events += [
        BeliefEvent(now, "left", handle, identifier, reasons.get(identifier, "left"), before[identifier])
        for identifier in sorted(before.keys() - members.keys())
    ]
    for identifier in sorted(changed & (members.keys() & before.keys())):
        old, new = before[identifier].home_registrar, members[identifier].home_registrar
        if old != new:
            words = f"from registrar {old:08x} to {new:08x}"
            events.append(BeliefEvent(now, "moved", handle, identifier, words, members[identifier]))
    known = {(member.identifier, member.reason) for member in view.out}
    for identifier, member in sorted(out.items()):
        if member.reason.startswith(REFUSED) and (identifier, member.reason) not in known:
            events.append(BeliefEvent(now, "refused", handle, identifier, member.reason))
    return events
