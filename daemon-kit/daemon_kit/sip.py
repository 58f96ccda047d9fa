"""The little of SIP (RFC 3261) a health check needs: an OPTIONS request, and reading what answers it.

The checks of the sidecar, the probes of the name server and the labs ask with it. It has neither socket nor
clock. A response may be hostile: `parse_response()` and `ResponseStream` are bounded and never raise.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from daemon_kit.errors import printable

SIP_PORT: Final = 5060
"""The port of SIP over UDP, TCP and SCTP (RFC 3261, section 19.1.2)."""
MAX_RESPONSE_BYTES: Final = 16 * 1024
MAX_HEAD_BYTES: Final = MAX_RESPONSE_BYTES
_MAX_HEADERS: Final = 200
_MAX_REASON_CHARACTERS: Final = 60
_COMPACT_NAMES: Final = {"i": "call-id", "l": "content-length", "v": "via"}
_STATUS_LINE: Final = re.compile(r"SIP/2\.0 ([1-6][0-9]{2})(?: (.*))?", re.IGNORECASE)
_BRANCH: Final = re.compile(r";\s*branch\s*=\s*([^;,\s]+)", re.IGNORECASE)

_CONTENT_LENGTH: Final = re.compile(
    rb"^(?:content-length|l)[ \t]*:[ \t]*([0-9]{1,9})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)

_BUSY_STATUSES: Final = frozenset({408, 503})


@dataclass(frozen=True)
class OptionsRequest:
    """One OPTIONS request and what tells its answer from others.

    `branch`, `call_id` and `tag` are tokens of the sender's choice; `branch` begins with z9hG4bK.
    `transport` is UDP, TCP or SCTP. `sender` is a token that names the program that asks.
    """

    target: IPv4Address | IPv6Address
    port: int
    local: IPv4Address | IPv6Address
    local_port: int
    call_id: str
    sequence: int
    branch: str
    tag: str
    sender: str
    transport: str = "UDP"

    def encode(self) -> bytes:
        """Return the request as it goes on the wire.

        Max-Forwards is 0 (RFC 3261, section 11): a proxy must answer it itself and can't ask another server.
        """
        uri = f"sip:{_host(self.target)}:{self.port}"
        if self.transport != "UDP":
            uri += f";transport={self.transport.lower()}"
        here = f"{_host(self.local)}:{self.local_port}"
        lines = [
            f"OPTIONS {uri} SIP/2.0",
            f"Via: SIP/2.0/{self.transport} {here};branch={self.branch};rport",
            "Max-Forwards: 0",
            f"From: <sip:{self.sender}@{here}>;tag={self.tag}",
            f"To: <{uri}>",
            f"Call-ID: {self.call_id}",
            f"CSeq: {self.sequence} OPTIONS",
            f"Contact: <sip:{self.sender}@{here}>",
            "Accept: application/sdp",
            f"User-Agent: {self.sender}",
            "Content-Length: 0",
        ]
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    def is_answered_by(self, response: "Response") -> bool:
        """Tell whether `response` answers this request and no other one."""
        return (
            response.call_id == self.call_id
            and response.sequence == self.sequence
            and response.method == "OPTIONS"
            and response.branch in (self.branch, "")
        )


def new_request(
    target: tuple[str, int],
    local: tuple[str, int],
    *,
    sender: str,
    transport: str = "UDP",
    sequence: int = 1,
) -> OptionsRequest:
    """Return a request with unguessable tokens from `local` to `target`, each a numeric address and a port.

    Each request is a call of its own (its Call-ID is new): SIPp ignores a second request in one call.
    """
    token = secrets.token_hex(26)
    return OptionsRequest(
        target=ip_address(target[0]),
        port=target[1],
        local=ip_address(local[0]),
        local_port=local[1],
        call_id=f"{token[:24]}@{sender}",
        sequence=sequence,
        branch=f"z9hG4bK{token[24:40]}",
        tag=token[40:],
        transport=transport,
        sender=sender,
    )


@dataclass(frozen=True)
class Response:
    """A SIP response: status 100 to 699, the phrase shown to people (cut), and what it belongs to."""

    status: int
    phrase: str
    call_id: str
    sequence: int
    method: str
    branch: str
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The first header of each name, by the name in lower case."""

    @property
    def is_final(self) -> bool:
        """Tell whether the transaction is over."""
        return self.status >= 200

    @property
    def shows_life(self) -> bool:
        """Tell whether a final response means that the server takes calls; 503 and 408 say it doesn't."""
        return self.status not in _BUSY_STATUSES

    def __str__(self) -> str:
        return f"{self.status} {self.phrase}".strip()


def parse_response(data: bytes) -> Response | None:
    """Return the response in the datagram `data`, or None when it is none that can be told apart."""
    if len(data) > MAX_RESPONSE_BYTES:
        return None
    head = data.split(b"\r\n\r\n", 1)[0].decode("utf-8", "replace")
    lines = head.split("\r\n", _MAX_HEADERS)[:_MAX_HEADERS]
    status = _STATUS_LINE.fullmatch(lines[0])
    if status is None:
        return None
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if colon:
            headers.setdefault(_COMPACT_NAMES.get(name, name), value.strip())  # the first Via is ours
    sequence = _SEQUENCE.fullmatch(headers.get("cseq", ""))
    if sequence is None or "call-id" not in headers:
        return None
    branch = _BRANCH.search(headers.get("via", ""))
    return Response(
        status=int(status[1]),
        phrase=printable(status[2] or "", _MAX_REASON_CHARACTERS),
        call_id=headers["call-id"],
        sequence=int(sequence[1]),
        method=sequence[2],
        branch=branch[1] if branch else "",
        headers=headers,
    )


class ResponseStream:
    """Cuts responses out of a stream (TCP, SCTP) by their Content-Length (RFC 3261, section 18.3)."""

    def __init__(self) -> None:
        self._buffer = b""
        self._skip = 0  # bytes of a body that are still to come
        self.is_garbage = False
        """True once the stream can't be understood any more."""

    def feed(self, data: bytes) -> list[Response]:
        """Take in what was received; return the responses that are complete now."""
        responses: list[Response] = []
        self._buffer += data
        while not self.is_garbage:
            skipped = min(self._skip, len(self._buffer))
            self._buffer, self._skip = self._buffer[skipped:], self._skip - skipped
            if self._skip:
                break
            self._buffer = self._buffer.lstrip(b"\r\n")  # a keep-alive between messages
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                self.is_garbage = len(self._buffer) > MAX_HEAD_BYTES
                break
            self._buffer = rest
            length = _CONTENT_LENGTH.search(head)
            self._skip = int(length[1]) if length else 0
            response = parse_response(head + end)
            if response is not None:
                responses.append(response)
        if self.is_garbage:
            self._buffer = b""
        return responses


MAX_REQUEST_BYTES: Final = 64 * 1024
_REQUEST_LINE: Final = re.compile(r"[A-Za-z0-9.!%*_+`'~-]{1,32} \S{1,1024} SIP/2\.0")
_COPIED: Final = {
    "v": "via",
    "via": "via",
    "f": "from",
    "from": "from",
    "t": "to",
    "to": "to",
    "i": "call-id",
    "call-id": "call-id",
    "cseq": "cseq",
}
_SEQUENCE: Final = re.compile(r"([0-9]{1,10})\s+([A-Z]{1,20})")
_RPORT: Final = re.compile(r";\s*rport(?=\s*(?:;|,|$))", re.IGNORECASE)
_TAG: Final = re.compile(r";\s*tag\s*=", re.IGNORECASE)


def refusal(data: bytes, source: tuple[str, int], tag: str) -> bytes | None:
    """Return 503 Service Unavailable for the request in the datagram `data` that came from `source`.

    Via, From, To (with `tag` where it has none), Call-ID and CSeq are those of the request (RFC 3261, section
    8.2.6.2), the uppermost Via with where it came from (section 18.2.1, RFC 3581). None for an ACK, which is
    never answered, and for what is no request.
    """
    if len(data) > MAX_REQUEST_BYTES:
        return None
    head, end, _ = data.partition(b"\r\n\r\n")
    try:
        lines = re.sub(r"\r\n[ \t]+", " ", head.decode()).split("\r\n", _MAX_HEADERS)[:_MAX_HEADERS]
    except UnicodeDecodeError:
        return None
    if not end or _REQUEST_LINE.fullmatch(lines[0]) is None or lines[0].startswith("ACK "):
        return None
    if any(character < " " and character != "\t" for line in lines for character in line):
        return None
    copied: list[tuple[str, str]] = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        known = _COPIED.get(name.strip().lower())
        if colon and known is not None:
            copied.append((known, value.strip()))
    counts = {name: sum(known == name for known, _ in copied) for name in _COPIED.values()}
    if counts["via"] == 0 or any(counts[name] != 1 for name in ("from", "to", "call-id", "cseq")):
        return None
    if _SEQUENCE.fullmatch(next(value for name, value in copied if name == "cseq")) is None:
        return None
    lines = ["SIP/2.0 503 Service Unavailable"]
    is_first_via = True
    for name, value in copied:
        text = value
        if name == "via" and is_first_via:
            text, is_first_via = _with_source(value, source), False
        elif name == "to" and _TAG.search(value.rpartition(">")[2]) is None:
            text = f"{value};tag={tag}"
        lines.append(f"{name.title() if name != 'cseq' else 'CSeq'}: {text}".replace("Call-Id", "Call-ID", 1))
    return "\r\n".join([*lines, "Content-Length: 0", "", ""]).encode()


def _with_source(via: str, source: tuple[str, int]) -> str:
    """The uppermost Via with the address, and the port if asked for, from which the request came."""
    first, comma, rest = via.partition(",")
    if _RPORT.search(first):
        first = _RPORT.sub(f";rport={source[1]}", first, count=1)
    return f"{first};received={source[0]}{comma}{rest}"


def _host(address: IPv4Address | IPv6Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)
