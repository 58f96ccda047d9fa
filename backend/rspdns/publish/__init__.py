"""Pools published at other name servers by DNS UPDATE (RFC 2136)."""

from rspdns.publish.configuration import PublishConfig
from rspdns.publish.keeper import Publications

__all__ = ["Publications", "PublishConfig"]
