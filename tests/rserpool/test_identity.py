"""Keyed pools: what an identifier proves, and what it does not."""

from ipaddress import ip_address

import pytest
from rserpool.identity import (
    IGNORED_S,
    TRIES,
    Guesses,
    PoolKey,
    ServerKey,
    counter_of,
    new_pool_key,
    pool_key_line,
    prove,
    read_pool_keys,
    read_server_keys,
    server_key_line,
)

from rserpool import Protocol, Transport

HANDLE = b"sip-as-udp"
KEY, OTHER = PoolKey(bytes(32)), PoolKey(b"\x01" * 32)
ADDRESS = ip_address("10.20.0.5")
SERVER = KEY.server_key(Protocol.UDP, ADDRESS, 5060)
AT = Transport(Protocol.UDP, 5060, (ADDRESS,))


def test_identifier_proves_its_place() -> None:
    identifier = SERVER.identifier(HANDLE, 7)
    proven = prove(identifier, HANDLE, AT, (KEY,))
    assert proven == (ADDRESS, identifier, False)
    assert counter_of(identifier) == 7


@pytest.mark.parametrize(
    "transport",
    [
        Transport(Protocol.UDP, 5061, (ADDRESS,)),
        Transport(Protocol.TCP, 5060, (ADDRESS,)),
        Transport(Protocol.UDP, 5060, (ip_address("10.20.0.6"),)),
        Transport(Protocol.UDP, 5060, ()),
    ],
)
def test_identifier_proves_no_other_place(transport: Transport) -> None:
    assert prove(SERVER.identifier(HANDLE, 7), HANDLE, transport, (KEY,)) is None


def test_identifier_proves_nothing_in_another_pool_or_by_another_key() -> None:
    identifier = SERVER.identifier(HANDLE, 7)
    assert prove(identifier, b"sip-as-tcp", AT, (KEY,)) is None
    assert prove(identifier, HANDLE, AT, (OTHER,)) is None
    assert prove(identifier, HANDLE, AT, (OTHER, KEY)) is not None


def test_other_counters_and_states_of_a_seen_identifier_prove_nothing() -> None:
    identifier = SERVER.identifier(HANDLE, 7)
    low_bytes = set(range(256)) - {identifier & 0xFF}
    assert all(prove(identifier & ~0xFF | low, HANDLE, AT, (KEY,)) is None for low in low_bytes)


def test_leaving_names_the_member_that_leaves() -> None:
    identifier = SERVER.identifier(HANDLE, 7)
    leaving = SERVER.leaving(HANDLE, identifier)
    assert leaving != identifier
    assert prove(leaving, HANDLE, AT, (KEY,)) == (ADDRESS, identifier, True)


def test_each_stay_has_another_identifier_and_none_is_zero() -> None:
    seen, identifier = [], 0
    for _ in range(127):
        identifier = SERVER.next_identifier(HANDLE, identifier)
        seen.append(identifier)
        assert SERVER.is_mine(HANDLE, identifier)
    assert len(set(seen)) == 127
    assert 0 not in seen
    assert SERVER.next_identifier(HANDLE, identifier) == seen[0]
    assert not SERVER.is_mine(HANDLE, SERVER.leaving(HANDLE, identifier))
    assert not SERVER.is_mine(HANDLE, 0)


def test_a_member_of_several_addresses_proves_one_of_them() -> None:
    several = Transport(Protocol.SCTP, 5060, (ip_address("10.30.0.5"), ADDRESS))
    server = KEY.server_key(Protocol.SCTP, ADDRESS, 5060)
    proven = prove(server.identifier(HANDLE, 1), HANDLE, several, (KEY,))
    assert proven is not None
    assert proven.address == ADDRESS


def test_a_source_that_guesses_is_ignored_for_a_while() -> None:
    guesses = Guesses()
    for number in range(TRIES):
        assert not guesses.is_ignored(ADDRESS, 100.0)
        guesses.failed(ADDRESS, number, 100.0 + number / 10)
    assert guesses.is_ignored(ADDRESS, 107.0)
    assert not guesses.is_ignored(ip_address("10.20.0.6"), 107.0)
    assert not guesses.is_ignored(ADDRESS, 107.0 + IGNORED_S)


def test_a_wrong_key_repeats_one_guess_and_slow_guesses_are_forgotten() -> None:
    guesses = Guesses()
    for second in range(10_000):
        guesses.failed(ADDRESS, 4711, float(second))
        assert not guesses.is_ignored(ADDRESS, float(second))
    for number in range(1000):
        guesses.failed(ADDRESS, number, 20_000.0 + 2 * number)
        assert not guesses.is_ignored(ADDRESS, 20_000.0 + 2 * number)


def test_many_sources_fill_no_memory() -> None:
    guesses = Guesses()
    for number in range(5000):
        guesses.failed(ip_address(number), number, 100.0)
    assert len(guesses._sources) <= 1024


def test_key_files_are_read_as_they_are_written() -> None:
    key = new_pool_key()
    assert read_pool_keys(f"# made today\n\n{pool_key_line(key)}\n") == (key,)
    assert read_pool_keys(f"{pool_key_line(key)}\n{pool_key_line(OTHER)}\n") == (key, OTHER)
    server = key.server_key(Protocol.SCTP, ip_address("2001:db8::5"), 5060)
    assert read_server_keys(server_key_line(server)) == (server,)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds 0 keys"),
        ("\n".join([pool_key_line(KEY)] * 3), "holds 3 keys"),
        ("pool-key abc", "line 1: the key itself must be 64 hex digits"),
        (f"# x\n{server_key_line(SERVER)}", "line 2: a server-key belongs to a sidecar"),
        ("key = secret", 'must be "pool-key"'),
    ],
)
def test_wrong_pool_key_files_are_explained(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_pool_keys(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no key"),
        (pool_key_line(KEY), "line 1: is the key of the whole pool"),
        ("server-key udp 10.0.0.1 5060", 'must be "server-key"'),
        (f"server-key dccp 10.0.0.1 5060 {'0' * 64}", "the transport is"),
        (f"server-key udp 10.0.0.300 5060 {'0' * 64}", "is no IP address"),
        (f"server-key udp 10.0.0.1 0 {'0' * 64}", "the port is"),
        ("server-key udp 10.0.0.1 5060 zz", "64 hex digits"),
    ],
)
def test_wrong_server_key_files_are_explained(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_server_keys(text)


def test_no_text_of_a_key_shows_it() -> None:
    key = new_pool_key()
    server: ServerKey = key.server_key(Protocol.UDP, ADDRESS, 5060)
    for shown in (repr(key), str(key), repr(server), str(server)):
        assert key.secret.hex() not in shown
        assert repr(key.secret)[2:-1] not in shown
        assert repr(server.secret)[2:-1] not in shown
