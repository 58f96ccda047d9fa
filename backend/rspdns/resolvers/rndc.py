"""The messages of BIND's control channel, as `rndc` writes them; bytes in, bytes out.

A message is its length, the version 1, and a table. A table is a list of a name, a type, and a value: bytes
or a table again. `_auth` comes first and holds the HMAC of all behind it. named answers the first message
with a nonce, which all that follow repeat (lib/isccc/cc.c of BIND).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MOST_BYTES = 64 * 1024
"""The longest message that is read."""
LIFE_S = 60
"""How long named may take a message, by its own clock."""
_ALGORITHMS: Final = {"sha1": 161, "sha224": 162, "sha256": 163, "sha384": 164, "sha512": 165}
_SIGNATURE_BYTES = 88
_VERSION = struct.pack(">I", 1)
_TABLE, _BYTES = 2, 1
_KEY = re.compile(
    r'key\s+"?(?P<name>[\w.-]+)"?\s*\{\s*algorithm\s+"?(?:hmac-)?(?P<algorithm>\w+)"?\s*;'
    r'\s*secret\s+"(?P<secret>[^"]*)"\s*;\s*\}',
    re.ASCII,
)
CommandTable = Mapping[str, "str | CommandTable"]


class RndcError(Exception):
    """A message from the other side makes no sense; the words are for people."""


@dataclass(frozen=True, slots=True)
class RndcKey:
    """The key of a control channel; `algorithm` is that of hashlib."""

    algorithm: str
    secret: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> RndcKey:
        """Read the first key of a file as rndc-confgen writes it. Raises ValueError, never with the key."""
        match = _KEY.search(text)
        if match is None:
            raise ValueError("holds no key as rndc-confgen -a writes it")
        algorithm = match["algorithm"].lower()
        if algorithm not in _ALGORITHMS:
            raise ValueError(f"hmac-{algorithm}: the algorithms are hmac-{', hmac-'.join(_ALGORITHMS)}")
        try:
            secret = base64.b64decode(match["secret"], validate=True)
        except binascii.Error:
            secret = b""
        if not secret:
            raise ValueError("its secret is no base64")
        return cls(algorithm, secret)

    def signature(self, signed: bytes) -> bytes:
        """Return the value of `hsha`."""
        digest = base64.b64encode(hmac.digest(self.secret, signed, self.algorithm))
        return bytes([_ALGORITHMS[self.algorithm]]) + digest.ljust(_SIGNATURE_BYTES, b"\0")


def command(key: RndcKey, words: str, serial: int, now_s: int, nonce: str | None = None) -> bytes:
    """Return the message for a command; `now_s` is by the wall clock. Without a nonce it asks for one."""
    control = {"_ser": str(serial), "_tim": str(now_s), "_exp": str(now_s + LIFE_S)}
    if nonce is not None:
        control["_nonce"] = nonce
    signed = _written({"_ctrl": control, "_data": {"type": words}})
    auth = _entry("_auth", _TABLE, _entry("hsha", _BYTES, key.signature(signed)))
    message = _VERSION + auth + signed
    return struct.pack(">I", len(message)) + message


def length(head: bytes) -> int:
    """Return the length of what follows these 4 bytes. Raises RndcError."""
    (size,) = struct.unpack(">I", head)
    if not len(_VERSION) < size <= MOST_BYTES:
        raise RndcError("it speaks no control protocol of BIND")
    return int(size)


@dataclass(frozen=True, slots=True)
class RndcReply:
    """The reply to a command. `error` is named's word on why it did not do it."""

    nonce: str | None
    error: str | None


def reply(key: RndcKey, message: bytes) -> RndcReply:
    """Read a message without its length. Raises RndcError, also where it is not signed with the key."""
    if not message.startswith(_VERSION):
        raise RndcError("it speaks another version of BIND's control protocol")
    name, value, signed = _first(message[len(_VERSION) :])
    if name != "_auth" or not isinstance(value, dict):
        raise RndcError("its reply is not signed")
    signature = str(value.get("hsha", "")).encode("latin-1")
    if not hmac.compare_digest(signature, key.signature(signed)):
        raise RndcError("its reply is signed with another key")
    parts = _read(signed)
    control, data = parts.get("_ctrl"), parts.get("_data")
    if not isinstance(control, dict) or not isinstance(data, dict):
        raise RndcError("its reply is not whole")
    nonce, result = control.get("_nonce"), data.get("result")
    error = None if result == "0" else str(data.get("err") or f"result {result}")
    return RndcReply(nonce if isinstance(nonce, str) else None, error)


def _written(table: CommandTable) -> bytes:
    return b"".join(
        _entry(name, _TABLE, _written(value))
        if isinstance(value, Mapping)
        else _entry(name, _BYTES, value.encode())
        for name, value in table.items()
    )


def _entry(name: str, kind: int, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + bytes([kind]) + struct.pack(">I", len(value)) + value


def _read(data: bytes, depth: int = 0) -> dict[str, object]:
    table: dict[str, object] = {}
    while data:
        name, value, data = _first(data, depth)
        table[name] = value
    return table


def _first(data: bytes, depth: int = 0) -> tuple[str, object, bytes]:
    """Return name and value of the first entry, and all that follows it. Raises RndcError."""
    try:
        at = 1 + data[0]
        kind, size = struct.unpack_from(">BI", data, at)
    except (IndexError, struct.error):
        raise RndcError("its reply is cut off") from None
    value, rest = data[at + 5 : at + 5 + size], data[at + 5 + size :]
    if len(value) < size or depth > 1:
        raise RndcError("its reply is cut off")
    name = data[1:at].decode("latin-1")
    return name, _read(value, depth + 1) if kind == _TABLE else value.decode("latin-1"), rest
