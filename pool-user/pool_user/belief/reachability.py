"""Whom the backend's own probe does not reach, in one pool, and whom that takes out."""

from __future__ import annotations

from collections.abc import Collection

from pool_user.views import Endpoint, Member, OutMember

UNREACHABLE = "not reached by the probe of this name server"
AND_STALE = f"{UNREACHABLE}, and no registrar can vouch for it"
AND_VOUCHED = f"{UNREACHABLE}, although the registrars list it"
AND_ORPHANED = f"{UNREACHABLE}, and its home registrar is lost"


class Reachability:
    """What the probe concluded about members, by identifier: it holds for a member at that endpoint."""

    def __init__(self) -> None:
        self._unreachable: dict[int, Endpoint] = {}

    @property
    def unreachable(self) -> Collection[int]:
        """The identifiers of those it did not reach."""
        return self._unreachable.keys()

    def probed(self, member: Member, reachable: bool) -> bool:
        """The probe came to a conclusion. Return whether it is another one than before."""
        endpoint = member.endpoint
        known = self._unreachable.get(member.identifier)
        if not reachable and known != endpoint:
            self._unreachable[member.identifier] = endpoint
            return True
        if reachable and known == endpoint:
            del self._unreachable[member.identifier]
            return True
        return False

    def forget(self) -> None:
        """The probe has no say any more."""
        self._unreachable.clear()

    def drop(
        self,
        members: dict[int, Member],
        out: dict[int, OutMember],
        suspected: Collection[int],
        *,
        everybody: bool,
        stale: bool,
    ) -> tuple[Member, ...]:
        """Move whom the probe does not reach from `members` to `out`, and return them.

        It has a say about the `suspected`, whose home registrar is lost, or about `everybody`. `stale`: no
        registrar can vouch for anybody.
        """
        dropped = []
        for identifier, endpoint in sorted(self._unreachable.items()):
            member = members.get(identifier) if everybody or identifier in suspected else None
            if member is not None and member.endpoint == endpoint:
                vouched = AND_ORPHANED if identifier in suspected else AND_VOUCHED
                dropped.append(members.pop(identifier))
                reason = AND_STALE if stale else vouched
                out[identifier] = OutMember(identifier, member.addresses[0], member.port, reason, 0.0)
        return tuple(dropped)
