"""Why a server is out, and what to look at next, in words for people. Pure.

A registrar removes a pool element when its sidecar deregistered it, when the sidecar's association ended, and
when a keep-alive went unanswered. All three look the same from here: ENRP's Handle Update (RFC 5353 section
3.7) carries no cause, and the deregistration itself reaches the home registrar alone. So the backend says
which registrar removed the server, and looks at the server itself once. What it finds tells the causes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from daemon_kit.finding import Finding, Life

from pool_user.belief.admission import REFUSED
from pool_user.belief.identities import LEFT
from pool_user.belief.listing import Overruled
from pool_user.belief.reachability import UNREACHABLE
from pool_user.views import BeliefEvent

NEVER_SEEN = "expected, and never seen by this name server"


class Reason(NamedTuple):
    """Why a server is out, and what to look at next (empty: nothing helps but waiting)."""

    words: str
    look_at: str


def explained(event: BeliefEvent, registrars: Mapping[int, str], said: str) -> BeliefEvent:
    """The event with its registrars named (`registrars` are number and address by identifier), and with what
    the last failed probe of the member heard (`said`) where the probe took it out."""
    if event.member is None:
        return event
    home = registrars.get(event.member.home_registrar, f"{event.member.home_registrar:08x}")
    words = event.words
    if event.kind == "joined":
        words = f"registered at registrar {home}"
    elif event.kind == "moved":
        for identifier, label in registrars.items():
            words = words.replace(f"{identifier:08x}", label)
    elif words == Overruled.BY_HOME.value:
        words = f"{words}, registrar {home}"
    elif event.kind == "left" and words.startswith(UNREACHABLE) and said:
        words = f"{words}; it said: {said}"
    return replace(event, words=words)


def of_probe(finding: Finding, address: str) -> Reason:
    """What the probe of a server tells that has just left."""
    sidecar, words = f"ppe-agent status on {address}", finding.words
    if finding.life is Life.ALIVE:
        why = "withdrawn by its sidecar (drained, or a check failed), or the sidecar ended"
        return Reason(f"the server itself lives ({words}): {why}", sidecar)
    if finding.life is Life.UNKNOWN:
        return Reason(words, sidecar)
    if finding.life is Life.REFUSED:
        return Reason(
            f"nothing listens at its port any more ({words})", f"the server's process and log on {address}"
        )
    if finding.waited_ms is not None:
        found = f"the probe of this name server got {words}: host or network down, or the server hangs"
        return Reason(found, f"ping {address}, then {sidecar}")
    return Reason(f"the probe of this name server says: {words}", sidecar)


def of_out(reason: str, said: str, address: str) -> Reason:
    """About a server that is known and out: `said` is what the last failed probe of it heard."""
    if reason.startswith(UNREACHABLE):
        words = f"{reason}; it said: {said}" if said else reason
        return Reason(words, f"the way from here to {address}: ping, packet filters; the server's load")
    if reason.startswith(REFUSED):
        return Reason(reason, "accept in the zone's file, and the address that the sidecar registers")
    if reason == LEFT:
        return Reason(reason, f"ppe-agent status on {address}: drained, or a check failed")
    if reason == Overruled.UNCONFIRMED.value:
        return Reason(reason, "the registrars: one of them starts, or is cut off")
    return Reason(reason, f"ppe-agent status on {address}")
