"""The events of a change: what people read of it in logs, on the live page, in the stream of events."""

from __future__ import annotations

from pool_user.cause import Cause, Code
from pool_user.views import BeliefEvent, PoolChange


def events_of(change: PoolChange, now: float) -> list[BeliefEvent]:
    """The events of one pool's change: members that joined, left, or have another home registrar, and PEs
    that are refused."""
    handle, events = change.after.handle, []
    for member in change.joined:
        cause = Cause(Code.REGISTERED, registrar=f"{member.home_registrar:08x}")
        events.append(BeliefEvent(now, "joined", handle, member.identifier, cause, member))
    for departure in change.left:
        member = departure.member
        events.append(BeliefEvent(now, "left", handle, member.identifier, departure.cause, member))
    for old, new in change.moved:
        if old.home_registrar != new.home_registrar:
            home, former = f"{new.home_registrar:08x}", f"{old.home_registrar:08x}"
            cause = Cause(Code.MOVED, registrar=home, former=former)
            events.append(BeliefEvent(now, "moved", handle, new.identifier, cause, new))
    known = {(member.identifier, member.cause) for member in change.before.out}
    return events + [
        BeliefEvent(now, "refused", handle, out.identifier, out.cause)
        for out in change.after.out
        if out.cause.code.is_refusal and (out.identifier, out.cause) not in known
    ]
