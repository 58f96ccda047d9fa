"""Secondaries: name servers that transfer the zones, and are told of each change (NOTIFY, RFC 1996)."""

from rspdns.secondaries.configuration import SecondaryConfig
from rspdns.secondaries.keeper import Secondaries

__all__ = ["Secondaries", "SecondaryConfig"]
