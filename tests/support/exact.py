"""What no busy machine explains: a test that says so has no second try.

A test whose whole promise is of that kind ("none lost, none twice, none wrong", no report of a sanitizer) is
marked `exact` instead, and waits for each message long enough (30 s) that only a fault can make it late.
"""


class BrokenError(AssertionError):
    """Something died, was lost, doubled or wrong, whatever the machine was doing."""
