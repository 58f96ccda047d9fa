"""The finding of a probe: the life that decisions read, and its words."""

import errno
import os

import pytest
from daemon_kit.finding import Finding, Life, of_error


@pytest.mark.parametrize(
    ("number", "life", "words"),
    [
        (errno.ECONNREFUSED, Life.REFUSED, "nothing listens on port 5060"),
        (errno.EHOSTUNREACH, Life.SILENT, "port 5060: No route to host"),
        (errno.EMFILE, Life.UNKNOWN, "port 5060: Too many open files"),
    ],
)
def test_error_of_the_way_is_told_from_one_of_this_host(number: int, life: Life, words: str) -> None:
    finding = of_error(OSError(number, os.strerror(number)), "port 5060")
    assert (finding.life, finding.words) == (life, words)


def test_words_come_from_the_facts() -> None:
    assert Finding(Life.REFUSED, error=errno.ECONNREFUSED).words == "connection refused"
    silent = Finding(Life.SILENT, "no answer to OPTIONS", 300, doubt="no other member answers")
    assert silent.words == "no answer to OPTIONS within 300 ms, but no other member answers"
    assert of_error(OSError("its own words"), "port 1").words == "port 1: its own words"
