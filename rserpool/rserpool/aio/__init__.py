"""Sockets for asyncio: the driver of every machine, SCTP, the data channel, and registrars' announcements."""
