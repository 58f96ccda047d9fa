"""Programs that may open no further descriptor."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from sctp_api import (
    associated,
    connected,
    expect,
    listener,
    one_to_many,
    one_to_one,
    peeloff,
    readable,
)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Those that are open go on working; no other can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def case_no_descriptor_for_a_connection() -> None:
    """It goes on waiting, with what was sent, until there is one."""
    with listener() as waiting, one_to_one() as first, one_to_one() as second:
        first.connect(waiting.getsockname())
        second.connect(waiting.getsockname())
        first.send(b"first")
        second.send(b"second")
        with no_descriptor_left():
            for _ in range(3):
                expect(errno.EMFILE, waiting.accept)
            assert readable(waiting, 5)
        for client, expected in ((first, b"first"), (second, b"second")):
            server, name = waiting.accept()
            with server:
                assert name == client.getsockname()
                assert server.recv(100) == expected
                server.send(b"answer")
                assert client.recv(100) == b"answer"


def case_no_descriptor_while_nobody_connects() -> None:
    with listener() as waiting, no_descriptor_left():
        waiting.setblocking(False)
        expect(errno.EMFILE, waiting.accept)


def case_no_descriptor_for_a_socket() -> None:
    with connected() as (client, server), no_descriptor_left():
        for style in (one_to_one, one_to_many):
            expect(errno.EMFILE, style)
        client.send(b"the others go on")
        assert server.recv(100) == b"the others go on"


def case_no_descriptor_to_peel_off_to() -> None:
    with associated() as (_, _, server, association), no_descriptor_left():
        expect(errno.EMFILE, peeloff, server, association)
