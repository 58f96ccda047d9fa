"""News by DNS Push Notifications (RFC 8765) over DNS Stateful Operations (RFC 8490), with TLS."""

from rspdns.news.push.server import PushServer

__all__ = ["PushServer"]
