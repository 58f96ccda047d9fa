"""Registrars that announce themselves: known while they are heard, few, and only where registrars may be."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rserpool.asap import ServerAnnounce
from rserpool.machine.announced import EXPIRY_S, MOST_OF_A_HOST, MOST_REGISTRARS, RegistrarTable
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import Protocol, Transport

from rserpool import asap

ACCEPT = (ip_network("10.9.0.0/24"), ip_network("2001:db8::/64"))
ANNOUNCE = bytes.fromhex("0a00000822222222")  # captured from rspregistrar


def table(*hosts: str, now: float = 100.0) -> RegistrarTable:
    registrars = RegistrarTable(ACCEPT)
    for host in hosts:
        assert registrars.received(ANNOUNCE, (host, 3863), now)
    return registrars


def known(of: RegistrarTable) -> list[str]:
    return [str(registrar) for registrar in of.registrars]


def test_an_announcement_makes_its_source_known_once() -> None:
    registrars = table("10.9.0.2", "10.9.0.1", "2001:db8::1")
    assert not registrars.received(ANNOUNCE, ("10.9.0.1", 3863), 101.0), "nothing new"
    assert registrars.received(ANNOUNCE, ("10.9.0.1", 3864), 101.0), "another registrar at the same address"
    assert known(registrars) == ["10.9.0.1", "10.9.0.1:3864", "10.9.0.2", "[2001:db8::1]"]


def test_an_announced_sctp_transport_tells_the_port() -> None:
    transport = Transport(Protocol.SCTP, 4000, (ip_address("192.0.2.1"), ip_address("10.9.0.7")))
    data = asap.encode(ServerAnnounce(1, (transport,)))
    registrars = RegistrarTable(ACCEPT)
    assert registrars.received(data, ("10.9.0.7", 9), 0.0)
    assert registrars.registrars == (RegistrarAddress("10.9.0.7", 4000),)
    assert not registrars.received(data, ("192.0.2.1", 9), 0.0), "not where registrars are"
    assert not registrars.received(data, ("10.9.0.8", 9), 0.0), "nobody announces others"
    assert registrars.registrars == (RegistrarAddress("10.9.0.7", 4000),)


def test_a_silent_registrar_is_forgotten_but_the_last_registrar_stays() -> None:
    registrars = table("10.9.0.1", "10.9.0.2")
    registrars.received(ANNOUNCE, ("10.9.0.2", 3863), 105.0)
    assert registrars.next_deadline_s == 100.0 + EXPIRY_S
    assert not registrars.expire(109.9)
    assert registrars.expire(110.0)
    assert known(registrars) == ["10.9.0.2"]
    assert registrars.next_deadline_s is None
    assert not registrars.expire(1000.0)
    assert known(registrars) == ["10.9.0.2"], "there is nobody better to turn to"
    assert registrars.received(ANNOUNCE, ("10.9.0.3", 3863), 1000.0)
    assert registrars.expire(1000.1)
    assert known(registrars) == ["10.9.0.3"]


def test_when_all_are_silent_the_registrar_heard_last_stays() -> None:
    registrars = table("10.9.0.1", "10.9.0.2")
    registrars.received(ANNOUNCE, ("10.9.0.1", 3863), 101.0)
    assert registrars.expire(1000.0)
    assert known(registrars) == ["10.9.0.1"]


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (ANNOUNCE, ("192.0.2.1", 3863)),
        (ANNOUNCE, ("fe80::1%eth0", 3863)),
        (ANNOUNCE, ("10.9.0.1", 0)),
        (ANNOUNCE[:7], ("10.9.0.1", 3863)),
        (b"", ("10.9.0.1", 3863)),
        (ANNOUNCE + bytes(2000), ("10.9.0.1", 3863)),
        (asap.encode(asap.HandleResolution(b"pool", 1)), ("10.9.0.1", 3863)),
    ],
)
def test_strangers_and_garbage_are_counted_and_ignored(data: bytes, source: tuple[str, int]) -> None:
    registrars = RegistrarTable(ACCEPT)
    assert not registrars.received(data, source, 0.0)
    assert (registrars.registrars, registrars.ignored) == ((), 1)


def test_a_crowd_drives_nobody_out() -> None:
    registrars = table("10.9.0.1")
    for host in range(2, 200):
        registrars.received(ANNOUNCE, (f"10.9.0.{host}", 3863), 100.0)
    assert len(registrars.registrars) == MOST_REGISTRARS
    assert RegistrarAddress("10.9.0.1") in registrars.registrars
    assert registrars.ignored == 199 - MOST_REGISTRARS


def test_a_host_that_announces_thousands_keeps_no_other_registrar_out() -> None:
    registrars = table("10.9.0.1")
    for port in range(1, 1000):
        transport = Transport(Protocol.SCTP, port, (ip_address("10.9.0.66"), ip_address("10.9.0.67")))
        registrars.received(ANNOUNCE, ("10.9.0.66", port), 100.0)
        registrars.received(asap.encode(ServerAnnounce(1, (transport,))), ("10.9.0.66", 9), 100.0)
    assert len(registrars.registrars) == 1 + MOST_OF_A_HOST
    assert registrars.received(ANNOUNCE, ("10.9.0.2", 3863), 100.0)


@given(st.lists(st.tuples(st.binary(max_size=64), st.integers(0, 65535)), max_size=30))
def test_table_of_announcements_is_bounded_under_garbage(datagrams: list[tuple[bytes, int]]) -> None:
    registrars = table("10.9.0.1")
    for data, port in datagrams:
        registrars.received(data, ("10.9.0.2", port), 100.0)
        registrars.received(ANNOUNCE[:8] + data, ("10.9.0.2", port), 100.0)
    assert RegistrarAddress("10.9.0.1") in registrars.registrars
    assert len(registrars.registrars) <= MOST_REGISTRARS
