"""The two messages of news. Pure.

A subscription is one line of JSON from the client. The reply is `rspdns-news 1 `, a signature (the base64 of
HMAC-SHA-256), a line feed, and the body: JSON, compressed (zlib, RFC 1950). The server closes after it. The
signature is over the nonce of the subscription (none for a client that found a port open), a line feed, and
the body. So a body is made once for all clients, and no older reply can be played back to a subscription.
A nonce has hexadecimal digits only: the server signs it for anybody, and it must not look like a body.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import zlib
from dataclasses import asdict, dataclass
from typing import Any, Final

MARK: Final = b"rspdns-news 1 "
MOST_SUBSCRIPTION_BYTES: Final = 1024
MOST_REPLY_BYTES: Final = 4 * 1024 * 1024
MOST_BODY_BYTES: Final = 32 * 1024 * 1024
_MOST_NAME, _MOST_WORD = 255, 64
_NONCE: Final = re.compile(r"[0-9a-f]{16,64}", re.ASCII)
_KEYS = ("pool", "nonce", "life", "number", "port")


class MalformedError(ValueError):
    """A message that is none; the text says why."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A client's question at the open port.

    `life` and `number` are those of the news that it has, `port` is the port that it polls; at its first
    question they are None.
    """

    pool: str
    nonce: str
    life: str | None = None
    number: int | None = None
    port: int | None = None

    def line(self) -> bytes:
        """The subscription on the wire."""
        return (
            json.dumps({key: value for key, value in asdict(self).items() if value is not None}).encode()
            + b"\n"
        )


def read_subscription(line: bytes) -> Subscription:
    """Read a client's line. Raises MalformedError."""
    if len(line) > MOST_SUBSCRIPTION_BYTES or not line.endswith(b"\n"):
        raise MalformedError(f"a subscription is one line of at most {MOST_SUBSCRIPTION_BYTES} bytes")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedError("a subscription is JSON") from None
    if not isinstance(data, dict) or data.keys() not in ({"pool", "nonce"}, set(_KEYS)):
        raise MalformedError(f"a subscription has the keys pool and nonce, or {', '.join(_KEYS)}")
    subscription = Subscription(**data)
    texts = [(subscription.pool, _MOST_NAME), (subscription.nonce, _MOST_WORD)]
    if "life" in data:
        texts.append((data["life"], _MOST_WORD))
        if not all(type(data[key]) is int for key in ("number", "port")):
            raise MalformedError("number and port are whole numbers")
    if not all(isinstance(text, str) and 0 < len(text) <= most for text, most in texts):
        raise MalformedError("pool, nonce and life are texts")
    if not _NONCE.fullmatch(subscription.nonce):
        raise MalformedError("a nonce is 16 to 64 hexadecimal digits")
    return subscription


def packed(document: dict[str, Any]) -> bytes:
    """Return the body that carries this document."""
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())


def reply(key: bytes, body: bytes, nonce: str = "") -> bytes:
    """Return the signed reply with this body, to the subscription with this nonce."""
    return MARK + _signature(key, nonce, body) + b"\n" + body


def read_reply(key: bytes, data: bytes, nonce: str = "") -> dict[str, Any]:
    """Return the document of a reply. Raises MalformedError."""
    head, line_feed, body = data.partition(b"\n")
    if not line_feed or not head.startswith(MARK):
        raise MalformedError("the server there does not speak rspdns-news 1")
    if not hmac.compare_digest(head[len(MARK) :], _signature(key, nonce, body)):
        raise MalformedError("the signature is wrong: another key, another sender, or an older reply")
    inflate = zlib.decompressobj()
    try:
        document = json.loads(inflate.decompress(body, MOST_BODY_BYTES))
    except (ValueError, zlib.error, RecursionError):
        raise MalformedError("the body is no JSON") from None
    if not inflate.eof or inflate.unused_data:
        raise MalformedError("the body ends too early, or does not end")
    if not isinstance(document, dict):
        raise MalformedError("the body is no JSON object")
    return document


def _signature(key: bytes, nonce: str, body: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, nonce.encode() + b"\n" + body, "sha256"))
