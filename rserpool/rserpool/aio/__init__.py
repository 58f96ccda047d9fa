"""The machines on sockets, for asyncio: one driver, the thin pool element, pool user and follower on it."""
