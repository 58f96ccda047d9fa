"""The finding of a probe: the life that decisions read, and its words."""

import errno
import os
import socket
import ssl

import pytest
from daemon_kit.finding import Finding, Life, of_error


@pytest.mark.parametrize(
    ("number", "life", "words"),
    [
        (errno.ECONNREFUSED, Life.REFUSED, "nothing listens on port 5060"),
        (errno.EHOSTUNREACH, Life.SILENT, "port 5060: No route to host"),
        (errno.ENOPROTOOPT, Life.SILENT, "port 5060: Protocol not available"),
        (errno.ENONET, Life.SILENT, "port 5060: Machine is not on the network"),
        (errno.EPROTO, Life.SILENT, "port 5060: Protocol error"),
        (errno.EMFILE, Life.UNKNOWN, "port 5060: Too many open files"),
        (errno.EADDRNOTAVAIL, Life.UNKNOWN, "port 5060: Cannot assign requested address"),
        (errno.EPERM, Life.UNKNOWN, "port 5060: Operation not permitted"),
    ],
)
def test_error_of_the_way_is_told_from_an_error_of_this_host(number: int, life: Life, words: str) -> None:
    finding = of_error(OSError(number, os.strerror(number)), "port 5060")
    assert (finding.life, finding.words) == (life, words)


def test_errors_that_the_system_does_not_number_keep_their_words() -> None:
    name = of_error(socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name")
    file = of_error(OSError(errno.EINVAL, "it holds no certificates", "/ca.pem"), "ca_file")
    words = [name.words, file.words, of_error(ssl.SSLError(1, "no TLS there")).words]
    assert words == ["name: Name or service not known", "ca_file: it holds no certificates", "no TLS there"]
    assert {name.life, file.life} == {Life.UNKNOWN}


def test_words_come_from_the_facts() -> None:
    assert Finding(Life.REFUSED, error=errno.ECONNREFUSED).words == "connection refused"
    silent = Finding(Life.SILENT, "no answer to OPTIONS", 300, doubt="no other member answers")
    assert silent.words == "no answer to OPTIONS within 300 ms, but no other member answers"
    assert of_error(OSError("its own words"), "port 1").words == "port 1: its own words"
