"""A cause: why a server is out, or why something else happened, as a value. Its words are made here alone.

A registrar removes a pool element when its sidecar deregistered it, when the sidecar's association ended, and
when a keep-alive went unanswered. All three look the same from here: ENRP's Handle Update (RFC 5353 section
3.7) carries no cause, and the deregistration itself reaches the home registrar alone. So a `Cause` names the
registrar that removed the server, and a probe of the server itself tells the three apart (`finding`).

Decisions compare a `Code`. No other code compares or cuts a sentence: `tests/test_house.py` looks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from daemon_kit.durations import duration
from daemon_kit.finding import Finding, Life


class Code(StrEnum):
    """The causes. The values are stable: status, events, metrics and logs carry them."""

    REMOVED = "removed"
    UNLISTED = "unlisted"
    UNCONFIRMED = "unconfirmed"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    REGISTERED_TWICE = "registered_twice"
    UNREACHED = "unreached"
    UNREACHED_STALE = "unreached_stale"
    UNREACHED_ORPHAN = "unreached_orphan"
    NO_PORT = "no_port"
    OTHER_PORT = "other_port"
    NOT_ACCEPTED = "not_accepted"
    FOREIGN = "foreign"
    TOO_MANY = "too_many"
    UNPROVEN = "unproven"
    IDENTIFIER_TAKEN = "identifier_taken"
    GONE = "gone"
    WHILE_STOPPED = "while_stopped"
    NEVER_SEEN = "never_seen"
    OTHER_TRANSPORT = "other_transport"
    REGISTERED = "registered"
    MOVED = "moved"
    EXAMINED = "examined"
    QUESTIONED = "questioned"
    VANISHED = "vanished"
    STANDING = "standing"
    MISPLACED = "misplaced"
    OVERRIDDEN = "overridden"
    DRAINED = "drained"

    @property
    def is_unreached(self) -> bool:
        """Whether the probe of this name server took the server out."""
        return self in (Code.UNREACHED, Code.UNREACHED_STALE, Code.UNREACHED_ORPHAN)

    @property
    def is_planned(self) -> bool:
        """Whether a person took the server out on purpose: it is not missing."""
        return self in (Code.OVERRIDDEN, Code.DRAINED)

    @property
    def is_leave(self) -> bool:
        """Whether the registrars do not list the server any more, or its sidecar said that it leaves."""
        return self in (Code.REMOVED, Code.UNLISTED, Code.WITHDRAWN, Code.GONE)

    @property
    def is_refusal(self) -> bool:
        """Whether the configuration of the pool keeps the server out."""
        return self in (Code.NO_PORT, Code.OTHER_PORT, Code.NOT_ACCEPTED)


_UNREACHED = "not reached by the probe of this name server"
_LATEST = "; {0.count} registrations since this was told last, the latest of {0.detail}"
_WORDS: Mapping[Code, str] = {
    Code.REMOVED: "removed by its home registrar",
    Code.UNLISTED: "its home registrar is lost or unknown, and no settled registrar lists it",
    Code.UNCONFIRMED: "listed by another registrar; its home registrar has not confirmed it",
    Code.WITHDRAWN: "left: its sidecar took it out of the pool",
    Code.EXPIRED: "its home registrar is unknown, and it registered for longer than counts without one",
    Code.REGISTERED_TWICE: "registered twice: the same server is in as {0.identifier:08x}. "
    "Does a second sidecar register it?",
    Code.UNREACHED: f"{_UNREACHED}, although the registrars list it",
    Code.UNREACHED_STALE: f"{_UNREACHED}, and no registrar can vouch for it",
    Code.UNREACHED_ORPHAN: f"{_UNREACHED}, and its home registrar is lost or others speak for it",
    Code.NO_PORT: "refused: its port is 0",
    Code.OTHER_PORT: "refused: port {0.count} is not one of the pool's ports",
    Code.NOT_ACCEPTED: "refused: not in the pool's accept networks: {0.detail}",
    Code.FOREIGN: "refused: not in the pool's accept networks or ports, and {0.most} such PEs are known"
    + _LATEST,
    Code.TOO_MANY: "refused: the pool has {0.most} members already (max_members)" + _LATEST,
    Code.UNPROVEN: "refused: the identifier {0.identifier:08x} is not made with the pool's key" + _LATEST,
    Code.IDENTIFIER_TAKEN: "refused: {0.detail} under the identifier of {0.former}, which still answers this "
    "name server. Does a host take identifiers, or was a state directory copied?",
    Code.GONE: "left",
    Code.WHILE_STOPPED: "it was in when the backend stopped, and no registrar lists it since",
    Code.NEVER_SEEN: "expected, and never seen by this name server",
    Code.OTHER_TRANSPORT: "registered for {0.detail}; this pool's service is {0.service}",
    Code.REGISTERED: "registered at registrar {0.registrar}",
    Code.MOVED: "from registrar {0.former} to {0.registrar}",
    Code.EXAMINED: "",
    Code.QUESTIONED: "{0.count} of {0.most} would be gone within 500 ms: all registrars are asked",
    Code.VANISHED: "no registrar lists it, its sidecar did not take it out, and it answers this name server: "
    "shown for {0.count} s. Look at its sidecar, and for a host that takes its identifier",
    Code.STANDING: "registrar {0.registrar} is {0.detail}",
    Code.MISPLACED: "registrar {0.registrar}: {0.detail}",
    Code.OVERRIDDEN: "taken out by override {0.count}: {0.detail}",
    Code.DRAINED: "drained by an operator of its host, {0.planned}",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """A code with the facts that its words in `_WORDS` use.

    `registrar` is the registrar that acted: its identifier, 8 hexadecimal digits, or its number and address.
    `former` is the registrar, or the place, of before. `finding` is of a probe of the server. `planned_s` is
    for how long a person takes the server out, in seconds from when it left; None: without an end.
    """

    code: Code
    registrar: str = ""
    former: str = ""
    identifier: int = 0
    detail: str = ""
    service: str = ""
    count: int = 0
    most: int = 0
    finding: Finding | None = None
    planned_s: float | None = None

    @property
    def planned(self) -> str:
        """For how long a person takes the server out, in words."""
        return "until it is undrained" if self.planned_s is None else f"for {duration(self.planned_s)}"

    @property
    def words(self) -> str:
        """The cause for people: first the state of the server itself, as far as a probe found it."""
        words = _WORDS[self.code].format(self)
        if self.code is Code.REMOVED and self.registrar:
            words = f"{words}, registrar {self.registrar}"
        if self.finding is None:
            return words
        if self.code.is_unreached:
            return f"{words}; it said: {self.finding.words}"
        return "; ".join(filter(None, (_examined(self.finding), words)))

    def explained(self, home_registrar: int | None, registrars: Mapping[str, str]) -> Cause:
        """The cause with its registrars named: `registrars` are number and address by identifier.

        `home_registrar` is that of the member; None if the cause concerns no member.
        """
        by = self.registrar
        if self.code is Code.REMOVED and home_registrar is not None:
            by = f"{home_registrar:08x}"
        if not by:
            return self
        return replace(
            self, registrar=registrars.get(by, by), former=registrars.get(self.former, self.former)
        )

    def look_at(self, address: str) -> str:
        """The place that an administrator looks at next, of a server at `address`."""
        sidecar = f"ppe-agent status on {address}"
        if self.code.is_unreached:
            return f"the way from here to {address}: ping, packet filters; the server's load"
        if self.finding is not None and self.finding.life is Life.REFUSED:
            return f"the server's process and log on {address}"
        if self.finding is not None and self.finding.waited_ms is not None:
            return f"ping {address}, then {sidecar}"
        if self.code.is_refusal:
            return "accept in the zone's file, and the address that the sidecar registers"
        if self.code is Code.WITHDRAWN:
            return f"{sidecar}: drained, or a check failed"
        if self.code is Code.UNCONFIRMED:
            return "the registrars: one of them starts, or is cut off"
        if self.code is Code.OVERRIDDEN:
            return "rspdns override list"
        if self.code is Code.OTHER_TRANSPORT:
            return "service in the zone's file, and transport in the sidecar's"
        return sidecar


def _examined(finding: Finding) -> str:
    """The words for a finding about a server that has just left."""
    if finding.life is Life.ALIVE:
        why = "withdrawn by its sidecar (drained, or a check failed), or the sidecar ended"
        return f"the server itself lives ({finding.words}): {why}"
    if finding.life is Life.UNKNOWN:
        return finding.words
    if finding.life is Life.REFUSED:
        return f"nothing listens at its port any more ({finding.words})"
    if finding.waited_ms is not None:
        return f"the probe of this name server got {finding.words}: host or network down, or the server hangs"
    return f"the probe of this name server says: {finding.words}"
