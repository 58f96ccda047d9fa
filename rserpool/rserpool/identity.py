"""Keyed pools: a PE identifier that proves who made it. Pure, but for the making of a new key.

RSerPool lets a pool element choose 32 bits that reach every follower unchanged, its identifier. In a keyed
pool they are a proof:

| bits | meaning |
|---|---|
| 31 to 8 | the first 24 bits of HMAC-SHA-256(server key, pool handle, state, counter) |
| 7 | state: 0 in its pool, 1 leaving |
| 6 to 0 | counter, 1 to 127: another one for each stay in the pool |

The server key is HMAC-SHA-256(pool key, protocol, address, port). So a sidecar holds the key of its own
address and port only: a host that is taken over speaks for itself. Name servers and ppu-agents hold the pool
key, and check every identifier with it. A guess hits with a probability of 2^-24, and each guess is a
registration, which `Guesses` counts.

The MAC covers counter and state: an identifier that was seen tells neither the next one nor that of leaving.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from rserpool.parameters import Protocol, Transport

Address = IPv4Address | IPv6Address
MOST_KEYS: Final = 2
"""Pool keys that are valid at a time: the old and the new one while keys roll."""
LAST_COUNTER: Final = 127
_KEY_BYTES: Final = 32
_LEAVING: Final = 0x80
_POOL_KEY, _SERVER_KEY = "pool-key", "server-key"
_PURPOSE: Final = b"rspdns server key 1"


def _mac(key: bytes, *parts: bytes) -> bytes:
    """Return the HMAC of the parts; their lengths go in, so that no two lists of parts are alike."""
    return hmac.digest(key, b"".join(len(part).to_bytes(2, "big") + part for part in parts), hashlib.sha256)


@dataclass(frozen=True, slots=True)
class ServerKey:
    """The key of one address and port: it makes identifiers for a server there, and for no other."""

    protocol: Protocol
    address: Address
    port: int
    secret: bytes = field(repr=False)

    def identifier(self, handle: bytes, counter: int, *, is_leaving: bool = False) -> int:
        """Return the PE identifier in the pool `handle`; `counter` is 1 to 127. It is never 0."""
        low = counter | (_LEAVING if is_leaving else 0)
        return int.from_bytes(_mac(self.secret, handle, bytes([low]))[:3], "big") << 8 | low

    def next_identifier(self, handle: bytes, identifier: int) -> int:
        """Return the identifier of the stay after the one of `identifier` (any 32 bits)."""
        return self.identifier(handle, counter_of(identifier) % LAST_COUNTER + 1)

    def leaving(self, handle: bytes, identifier: int) -> int:
        """Return the identifier that says: the element `identifier` leaves."""
        return self.identifier(handle, counter_of(identifier), is_leaving=True)

    def is_mine(self, handle: bytes, identifier: int) -> bool:
        """Tell whether `identifier` is one of a stay in the pool that this key made."""
        counter = counter_of(identifier)
        return counter > 0 and self.identifier(handle, counter) == identifier


def counter_of(identifier: int) -> int:
    """Return the counter in an identifier of a keyed pool, 0 to 127 (0: none that a key makes)."""
    return identifier & LAST_COUNTER


@dataclass(frozen=True, slots=True)
class PoolKey:
    """The key of a pool, of which those of its servers are derived."""

    secret: bytes = field(repr=False)

    def server_key(self, protocol: Protocol, address: Address, port: int) -> ServerKey:
        """Return the key of one address and port."""
        place = (protocol.name.encode(), address.packed, port.to_bytes(2, "big"))
        return ServerKey(protocol, address, port, _mac(self.secret, _PURPOSE, *place))


class Proven(NamedTuple):
    """The server that an identifier proves.

    `member` is the identifier of the stay: the identifier itself, or that of the element that leaves.
    """

    address: Address
    member: int
    is_leaving: bool


def prove(identifier: int, handle: bytes, transport: Transport, keys: Sequence[PoolKey]) -> Proven | None:
    """Return which server the identifier proves; None when it proves none of the transport's addresses."""
    counter, is_leaving = counter_of(identifier), bool(identifier & _LEAVING)
    if not counter:
        return None
    for key in keys:
        for address in transport.addresses:
            server = key.server_key(transport.protocol, address, transport.port)
            if server.identifier(handle, counter, is_leaving=is_leaving) == identifier:
                member = server.identifier(handle, counter) if is_leaving else identifier
                return Proven(address, member, is_leaving)
    return None


TRIES: Final = 64
TRIES_WITHIN_S: Final = 60.0
IGNORED_S: Final = 600.0
_MOST_SOURCES: Final = 1024


@dataclass(slots=True)
class _Guesser:
    tried: set[int]
    since_s: float
    ignored_until_s: float = float("-inf")


class Guesses:
    """Counts identifiers that prove nothing, by their source; times in s, monotonic.

    After 64 different ones within a minute nothing new from the source counts for 10 minutes. A sidecar
    with a wrong key repeats one identifier, which is one guess.
    """

    def __init__(self) -> None:
        self._sources: OrderedDict[Hashable, _Guesser] = OrderedDict()

    def is_ignored(self, source: Hashable, now: float) -> bool:
        """Tell whether nothing new from the source counts."""
        known = self._sources.get(source)
        return known is not None and now < known.ignored_until_s

    def failed(self, source: Hashable, identifier: int, now: float) -> None:
        """Take in an identifier that proves nothing."""
        known = self._sources.get(source)
        if known is None or (now >= known.since_s + TRIES_WITHIN_S and now >= known.ignored_until_s):
            known = self._sources[source] = _Guesser(set(), now)
            self._sources.move_to_end(source)
        known.tried.add(identifier)
        if len(known.tried) >= TRIES:
            known.tried.clear()
            known.ignored_until_s = now + IGNORED_S
        while len(self._sources) > _MOST_SOURCES:
            self._sources.popitem(last=False)


# Keys as text: one a line; a line that begins with # is a comment


def new_pool_key() -> PoolKey:
    """Return a key that nobody can guess."""
    return PoolKey(secrets.token_bytes(_KEY_BYTES))


def pool_key_line(key: PoolKey) -> str:
    """Return the line of a pool's key file."""
    return f"{_POOL_KEY} {key.secret.hex()}"


def server_key_line(key: ServerKey) -> str:
    """Return the line of a sidecar's key file."""
    return f"{_SERVER_KEY} {key.protocol.name.lower()} {key.address} {key.port} {key.secret.hex()}"


def read_pool_keys(text: str) -> tuple[PoolKey, ...]:
    """Return the keys of a pool's key file, one or two. Raises ValueError, with the line; never with a
    key."""
    keys = []
    for number, words in _lines(text):
        if words[0] == _SERVER_KEY:
            raise ValueError(
                f"line {number}: a server-key belongs to a sidecar; here stands the pool's key "
                "(rspdns key new)"
            )
        if words[0] != _POOL_KEY or len(words) != 2:
            raise ValueError(
                f'line {number}: must be "pool-key" and 64 hex digits, as rspdns key new writes it'
            )
        keys.append(PoolKey(_secret(words[1], number)))
    if not 1 <= len(keys) <= MOST_KEYS:
        raise ValueError(f"holds {len(keys)} keys: needs one, or two while keys roll")
    return tuple(keys)


def read_server_keys(text: str) -> tuple[ServerKey, ...]:
    """Return the keys of a sidecar's key file. Raises ValueError, with the line; never with a key."""
    keys = []
    for number, words in _lines(text):
        if words[0] == _POOL_KEY:
            raise ValueError(
                f"line {number}: is the key of the whole pool, which no sidecar may hold; "
                "derive the key of this server: rspdns key derive"
            )
        if words[0] != _SERVER_KEY or len(words) != 5:
            raise ValueError(
                f'line {number}: must be "server-key", transport, address, port and 64 hex digits, '
                "as rspdns key derive writes it"
            )
        keys.append(_server_key(words, number))
    if not keys:
        raise ValueError("holds no key: rspdns key derive makes one")
    return tuple(keys)


def _server_key(words: Sequence[str], number: int) -> ServerKey:
    _, protocol, address, port, secret = words
    if protocol not in ("udp", "tcp", "sctp"):
        raise ValueError(f"line {number}: the transport is udp, tcp or sctp")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"line {number}: the port is 1 to 65535")
    try:
        where = ip_address(address)
    except ValueError:
        raise ValueError(f"line {number}: {address[:60]!r} is no IP address") from None
    return ServerKey(Protocol[protocol.upper()], where, int(port), _secret(secret, number))


def _lines(text: str) -> list[tuple[int, list[str]]]:
    numbered = enumerate(text.splitlines(), 1)
    return [(number, line.split()) for number, line in numbered if line.strip() and line.strip()[0] != "#"]


def _secret(text: str, number: int) -> bytes:
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise ValueError(f"line {number}: the key itself must be {2 * _KEY_BYTES} hex digits")
    return secret
