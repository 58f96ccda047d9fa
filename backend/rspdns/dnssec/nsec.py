"""The names of a zone in the order that proofs of "there is nothing" need: NSEC and NSEC3. Pure.

PowerDNS signs by itself, but asks for the names before and after one (RFC 4034 section 6.1, RFC 5155 section
7.1).
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import dns.name

from rspdns import names
from rspdns.answers.snapshot import ZoneAnswers
from rspdns.rrset import Node

MAX_ITERATIONS = 100
"""PowerDNS's `max-nsec3-iterations`: it lowers a larger number to this."""
_OPT_OUT = 1

NameKey = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nsec3Parameters:
    """How a zone's names are hashed."""

    iterations: int
    salt: bytes
    opt_out: bool

    @classmethod
    def parse(cls, text: str) -> Nsec3Parameters | None:
        """Read the metadata NSEC3PARAM, "1 0 0 -"; None for what is none."""
        fields = text.split()
        try:
            _, flags, iterations = map(int, fields[:3])
            salt = b"" if fields[3:4] in ([], ["-"]) else bytes.fromhex(fields[3])
        except ValueError:
            return None
        return cls(max(0, min(iterations, MAX_ITERATIONS)), salt, bool(flags & _OPT_OUT))

    def hash(self, name: str) -> str:
        """The owner name's first label in the hashed zone: base32hex in lower case."""
        digest = hashlib.sha1(_wire(name) + self.salt, usedforsecurity=False).digest()
        for _ in range(self.iterations):
            digest = hashlib.sha1(digest + self.salt, usedforsecurity=False).digest()
        return base64.b32hexencode(digest).decode().lower()


@dataclass(frozen=True, slots=True)
class Around:
    """The name at or before one, and the one after it, both relative to the zone or hashed.

    `name` is the whole name of `before`; `known` is False when names may lie between them that nobody knows.
    """

    name: str
    before: str
    after: str
    known: bool


class Chain:
    """The names of a zone in order. Made once for a zone's answers; `hashes` are handed to the next one."""

    def __init__(
        self,
        zone: ZoneAnswers,
        parameters: Nsec3Parameters | None = None,
        hashes: Mapping[str, str] | None = None,
    ) -> None:
        self.zone = zone
        self.parameters = parameters
        nodes = _visible(zone)
        unknown = {name for name, node in nodes.items() if node.failure}
        self.hashes: dict[str, str] = {}
        if parameters is None:
            listed = [(_order(name, zone.name), name) for name in _with_nsec(nodes, zone.name)]
        else:
            known = hashes or {}
            everyone = _with_nsec3(nodes, zone.name, parameters.opt_out)
            self.hashes = {name: known.get(name) or parameters.hash(name) for name in everyone}
            listed = [((digest,), name) for name, digest in self.hashes.items()]
        listed.sort()
        self._keys: Sequence[NameKey] = [key for key, _ in listed]
        self._names: Sequence[str] = [name for _, name in listed]
        # A hash tells nothing of where a name lies: one unknown name makes every gap doubtful.
        self._all_doubtful = bool(unknown) and parameters is not None
        self._unknown = unknown

    def __contains__(self, digest: str) -> bool:
        """Whether a hash is that of a name."""
        index = bisect_left(self._keys, (digest,))
        return index < len(self._keys) and self._keys[index] == (digest,)

    def around(self, relative: str) -> Around:
        """The names around one, which is relative to the zone ("" for the apex), or a hash."""
        key = (relative,) if self.parameters is not None else _labels(relative)
        index = bisect_right(self._keys, key)
        before, after = index - 1, index % len(self._keys)
        name = self._names[before]
        known = self._keys[before] == key if self._all_doubtful else name not in self._unknown
        return Around(name, self._text(before), self._text(after), known)

    def _text(self, index: int) -> str:
        if self.parameters is not None:
            return self._keys[index][0]
        name = self._names[index]
        return name[: -len(self.zone.name) - 1] if name != self.zone.name else ""


def _visible(zone: ZoneAnswers) -> dict[str, Node]:
    """The nodes, without those below a delegation: they are another zone's."""
    nodes = dict(zone.nodes())
    cuts = {name for name, node in nodes.items() if _is_cut(name, node, zone.name)}
    if not cuts:
        return nodes
    return {name: node for name, node in nodes.items() if cuts.isdisjoint(names.ancestors(name, zone.name))}


def _is_cut(name: str, node: Node, zone: str) -> bool:
    return name != zone and any(record.type == "NS" for record in node.records)


def _with_nsec(nodes: Mapping[str, Node], zone: str) -> Iterator[str]:
    """Names with records, and those that exist with nothing at and below them; not empty non-terminals."""
    inner = {ancestor for name in nodes for ancestor in names.ancestors(name, zone)}
    return (name for name, node in nodes.items() if node.records or node.failure or name not in inner)


def _with_nsec3(nodes: Mapping[str, Node], zone: str, opt_out: bool) -> set[str]:
    """Every name; with opt-out less the delegations to unsigned zones, and what exists for these alone."""
    if not opt_out:
        return set(nodes)
    own = {
        name
        for name in _with_nsec(nodes, zone)
        if not _is_cut(name, nodes[name], zone) or any(r.type == "DS" for r in nodes[name].records)
    }
    return own | {ancestor for name in own for ancestor in names.ancestors(name, zone)}


def _order(name: str, zone: str) -> NameKey:
    """The key to sort by: the labels below the zone, the last one first (RFC 4034 section 6.1)."""
    return _labels(name[: -len(zone) - 1]) if name != zone else ()


def _labels(relative: str) -> NameKey:
    if "\\" in relative:
        absolute = dns.name.from_text(relative).labels[-2::-1]
        return tuple(label.decode("latin-1") for label in absolute)
    return tuple(reversed(relative.split("."))) if relative else ()


def _wire(name: str) -> bytes:
    return dns.name.from_text(name).canonicalize().to_wire() or b""
