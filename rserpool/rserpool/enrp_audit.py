"""When checksums that do not fit call for a handle table (RFC 5353, section 2.1). Pure.

One that does not fit may be of a moment before the last push, two in a row are not. Tables that do not mend
it are asked for ever more seldom.
"""

from rserpool.registrar_choice import backoff_s

MISMATCHES = 2
AUDIT_FIRST_S, AUDIT_CEILING_S = 2.0, 60.0
"""Between two handle tables asked for because of a checksum, while they do not mend it."""


class Audit:
    """The checksums of one registrar's presences, held against what it pushed."""

    def __init__(self) -> None:
        self._mismatches = 0
        self._asked = 0
        self._not_before_s = float("-inf")

    def begin_anew(self) -> None:
        """Forget what did not fit: the registrar is joined, or a checksum fits."""
        self._mismatches = self._asked = 0

    def table_came(self) -> None:
        """A whole handle table is here: what did not fit before does not count any more."""
        self._mismatches = 0

    def asks(self, fits: bool, now: float) -> bool:
        """Take a checksum; return whether a handle table is to be asked for now."""
        if fits:
            self.begin_anew()
            return False
        self._mismatches += 1
        if self._mismatches < MISMATCHES or now < self._not_before_s:
            return False
        self._asked += 1
        self._not_before_s = now + backoff_s(self._asked, AUDIT_FIRST_S, AUDIT_CEILING_S)
        return True
