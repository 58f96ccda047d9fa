"""The associations of a pool element's socket: with whom, and which of them are to be closed when."""

LEAVE_AFTER_S = 1.0
"""After a move the old association stays until its registrar is heard from, and so much longer. A registrar
that was frozen may, when it wakes, remove the element everywhere: because it reads of the association's end
before it reads of the element's new home, or because its keep-alive timed out."""
LEAVE_SILENT_AFTER_S = 60.0
"""An association that nothing is heard on stays so long after a move."""
UNASKED_STAY_S = 5.0
"""An association that others set up stays so long unless a takeover comes on it."""
MAX_ASSOCIATIONS = 64

Endpoint = tuple[str, int]
"""The other side: IP address and port."""


class Associations:
    """Associations by the number that the socket gives them; some have a time at which to close them."""

    def __init__(self) -> None:
        self._endpoints: dict[int, Endpoint] = {}
        self._close_at_s: dict[int, float] = {}
        self._left: set[int] = set()

    def add(self, association: int, endpoint: Endpoint, now: float) -> None:
        """Take a new association, to be closed after UNASKED_STAY_S unless `keep` is called before."""
        self._endpoints[association] = endpoint
        self._close_at_s[association] = now + UNASKED_STAY_S

    def keep(self, association: int) -> None:
        """Do not close the association."""
        self._close_at_s.pop(association, None)
        self._left.discard(association)

    def leave_others(self, association: int, now: float) -> list[int]:
        """Close all but `association` when the time has come; return those left by this call."""
        left = [other for other in self._endpoints if other != association and other not in self._close_at_s]
        for other in left:
            self._close_at_s[other] = now + LEAVE_SILENT_AFTER_S
            self._left.add(other)
        return left

    def heard(self, association: int, now: float) -> bool:
        """Return True for the first sign of life on an association since it was left."""
        if association not in self._left:
            return False
        self._left.discard(association)
        self._close_at_s[association] = now + LEAVE_AFTER_S
        return True

    def remove(self, association: int) -> None:
        """Forget an association that ended."""
        self._endpoints.pop(association, None)
        self._close_at_s.pop(association, None)
        self._left.discard(association)

    def clear(self) -> None:
        """Forget all."""
        self._endpoints.clear()
        self._close_at_s.clear()
        self._left.clear()

    def endpoint(self, association: int) -> Endpoint | None:
        """Return the other side of an association."""
        return self._endpoints.get(association)

    @property
    def is_full(self) -> bool:
        """True when there are as many as strangers may bring."""
        return len(self._endpoints) >= MAX_ASSOCIATIONS

    def to(self, endpoint: Endpoint) -> int | None:
        """Return the newest association with `endpoint`."""
        return next(
            (number for number, other in reversed(self._endpoints.items()) if other == endpoint), None
        )

    @property
    def next_deadline_s(self) -> float | None:
        """When `due` has something to give."""
        return min(self._close_at_s.values(), default=None)

    def due(self, now: float) -> list[int]:
        """Return the associations to close now, and forget them."""
        due = [association for association, at_s in self._close_at_s.items() if now >= at_s]
        for association in due:
            self.remove(association)
        return due
