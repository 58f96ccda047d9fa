"""An event of a pool, as the belief tells it."""

import time

from pool_user.belief import BeliefEvent


def event(kind: str = "left") -> BeliefEvent:
    return BeliefEvent(time.monotonic(), kind, "sip-udp", 7, "its home says so")
