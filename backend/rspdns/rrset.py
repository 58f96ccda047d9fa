"""DNS records as the backend holds them: one record, and all that is known of a name.

Both are tuples, of which a zone has hundreds of thousands: made and compared several times as fast as others.
"""

from __future__ import annotations

from typing import NamedTuple

from rspdns.rdata import Data

MOST_LABELS = 127
"""The most labels of a name of 255 bytes (RFC 1035 section 2.3.4)."""


class Record(NamedTuple):
    """One resource record; `ttl` in seconds.

    `auth` is False at and below a delegation, where the zone is not the authority and must not sign.
    """

    name: str
    type: str
    data: Data
    ttl: int
    auth: bool = True

    @property
    def content(self) -> str:
        """The data in PowerDNS's text form, SRV priority included."""
        return self.data.text


class Node(NamedTuple):
    """The records of one name (none: an empty non-terminal).

    `failure` says why records that belong here cannot be given (empty: they can); `below` extends it to every
    name under this one that has no node of its own.
    """

    records: tuple[Record, ...] = ()
    failure: str = ""
    below: bool = False
