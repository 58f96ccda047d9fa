"""Ready answers to the questions that PowerDNS would answer from the pools of a snapshot. Pure.

An answer here is what PowerDNS 4.7 puts behind the question: the records, and with SRV records the addresses
of their targets. The header and an OPT record are the BPF program's. What PowerDNS would truncate or refuse,
and what depends on more than one site, is not made: these questions are passed on to PowerDNS.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import dns.name
import dns.rdata

from rspdns.answers.snapshot import LIVE_TYPES, SiteAnswers, Snapshot, ZoneAnswers, moved_sites
from rspdns.fitting import HEADER, LIMIT, OPT, QUESTION_FIXED, name_size
from rspdns.rrset import Node, Record

VARIANTS = 16
"""Ready answers to a question that shows some of many: each question gets one of them, all equally often."""
MOST_NAME_BYTES = 128
"""Longer names are left to PowerDNS."""
TYPES = {"A": 1, "AAAA": 28, "SRV": 33, "NAPTR": 35}
_IN = 1
_POINTER_TO_QUESTION = b"\xc0\x0c"
_POINTER = 0xC000
_FIXED = struct.Struct("!HHIH")
"""Type, class, TTL, size of the data."""


class Question(NamedTuple):
    """`name` in lower case without the final dot; `type` one of `TYPES`."""

    name: str
    type: str


class Answer(NamedTuple):
    """What stands behind a question: `answers` records and `additional` ones, as `records` on the wire."""

    answers: int
    additional: int
    records: bytes


Answers = Mapping[Question, tuple[Answer, ...]]
"""The variants of each answer."""


def site_answers(site: SiteAnswers, draw: random.Random) -> dict[Question, tuple[Answer, ...]]:
    """The answers to every question about a site that the kernel can answer.

    Where chance chose what is shown, it chooses again for each variant.
    """
    first = node_answers(site.nodes)
    if site.redraw is None:
        return {question: (answer,) for question, answer in first.items()}
    drawn = [first]
    for _ in range(VARIANTS - 1):
        nodes = site.redraw(draw)
        differing = {name: node for name, node in nodes.items() if node != site.nodes.get(name)}
        same = {question: answer for question, answer in first.items() if question.name not in differing}
        drawn.append(same | node_answers(differing, nodes))
    return {
        question: variants if len(set(variants)) > 1 else variants[:1]
        for question in first
        if len(variants := tuple(one[question] for one in drawn if question in one)) == VARIANTS
    }


def node_answers(
    nodes: Mapping[str, Node], all_nodes: Mapping[str, Node] | None = None
) -> dict[Question, Answer]:
    """One answer to each question about these nodes; `all_nodes` has those of SRV targets, too."""
    found = {}
    targets = nodes if all_nodes is None else all_nodes
    for name, node in nodes.items():
        if node.failure or name_size(name) > MOST_NAME_BYTES:
            continue
        for qtype in {record.type for record in node.records} & LIVE_TYPES:
            answer = _answer(name, [one for one in node.records if one.type == qtype], targets)
            if answer is not None:
                found[Question(name, qtype)] = answer
    return found


def _answer(name: str, records: Sequence[Record], nodes: Mapping[str, Node]) -> Answer | None:
    """The answer of these records; None where PowerDNS must give it."""
    wire = bytearray()
    behind_question = HEADER + name_size(name) + QUESTION_FIXED
    targets: dict[str, int] = {}
    for record in records:
        data = _data(record)
        if record.type == "SRV":
            target = record.content.rpartition(" ")[2].rstrip(".").lower()
            offset = behind_question + len(wire) + len(_POINTER_TO_QUESTION) + _FIXED.size + _SRV_FIXED.size
            targets.setdefault(target, offset)
        wire += _POINTER_TO_QUESTION + _FIXED.pack(TYPES[record.type], _IN, record.ttl, len(data)) + data
    additional = 0
    for target, offset in targets.items():
        node = nodes.get(target)
        if node is None or node.failure:
            return None  # of another site, or of no zone of ours
        for record in node.records:
            if record.type in ("A", "AAAA"):
                data = _data(record)
                fixed = _FIXED.pack(TYPES[record.type], _IN, record.ttl, len(data))
                wire += (_POINTER | offset).to_bytes(2, "big") + fixed + data
                additional += 1
    if behind_question + len(wire) + OPT > LIMIT:
        return None  # truncated for some clients
    return Answer(len(records), additional, bytes(wire))


_SRV_FIXED = struct.Struct("!HHH")


def _data(record: Record) -> bytes:
    """The data of a record on the wire."""
    match record.type:
        case "A":
            return IPv4Address(record.content).packed
        case "AAAA":
            return IPv6Address(record.content).packed
        case "SRV":
            priority, weight, port, target = record.content.split()
            return _SRV_FIXED.pack(int(priority), int(weight), int(port)) + wire_name(target)
        case _:
            data: bytes | None = dns.rdata.from_text(
                "IN", record.type, record.content, origin=dns.name.root, relativize=False
            ).to_wire()
            return data or b""


def wire_name(name: str) -> bytes:
    """A name on the wire; its final dot may be missing."""
    text = name.removesuffix(".")
    if "\\" not in text and text.isascii():
        labels = [label.encode() for label in text.split(".")] if text else []
        return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return dns.name.from_text(text, dns.name.root).to_wire() or b"\0"


class ReadyAnswers:
    """All answers of the latest snapshot, and what changed since the one before."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._zones: Mapping[str, ZoneAnswers] = {}
        """Those that the answers were made of: unsigned ones."""
        self._answers: dict[tuple[str, str], Answers] = {}
        """By zone and site."""

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    @property
    def all(self) -> Answers:
        """Every answer there is."""
        return {
            question: answer for answers in self._answers.values() for question, answer in answers.items()
        }

    def take(self, snapshot: Snapshot, signed: Collection[str], anew: Collection[str] = ()) -> Answers:
        """The answers of this snapshot that differ from those of the one before; empty: none any more.

        `signed` zones have none: PowerDNS signs. The sites in `anew` are drawn again in any case.
        """
        zones = {name: zone for name, zone in snapshot.zone_answers.items() if name not in signed}
        same_zones = zones.keys() == self._zones.keys()
        left: dict[Question, tuple[Answer, ...]] = {}
        changed: dict[Question, tuple[Answer, ...]] = {}
        for name, zone in zones.items():
            before = self._zones[name] if same_zones else None
            for site in _sites_to_make(before, zone, anew):
                # A name of a zone inside this one is that zone's to answer.
                is_ours = snapshot.zone_of(site.name) == name
                answers = site_answers(site, self._draw) if is_ours else {}
                old = self._answers.get((name, site.name), {})
                left |= dict.fromkeys(old.keys() - answers.keys(), ())
                changed |= {one: answer for one, answer in answers.items() if old.get(one) != answer}
                self._answers[name, site.name] = answers
        if not _have_the_same_sites(self._zones, zones):
            known = {(name, site.name) for name, zone in zones.items() for site in zone.sites}
            for key in self._answers.keys() - known:
                left |= dict.fromkeys(self._answers.pop(key), ())
        self._zones = zones
        return left | changed

    def drawn_sites(self, names: Collection[str]) -> set[str]:
        """The sites with answers that chance chose, to questions about one of these names."""
        return {
            site
            for (_, site), answers in self._answers.items()
            if any(question.name in names and len(variants) > 1 for question, variants in answers.items())
        }


def _sites_to_make(
    before: ZoneAnswers | None, after: ZoneAnswers, anew: Collection[str]
) -> Iterable[SiteAnswers]:
    """The sites whose answers are to be made: where nothing says that they are the same."""
    if before is None or before.fixed is not after.fixed or len(before.sites) != len(after.sites):
        return after.sites
    moved = [] if before is after else [site for _, site in moved_sites(before.sites, after.sites)]
    return [*moved, *(site for site in after.sites if site.name in anew)] if anew else moved


def _have_the_same_sites(before: Mapping[str, ZoneAnswers], after: Mapping[str, ZoneAnswers]) -> bool:
    return before.keys() == after.keys() and all(
        before[name].fixed is zone.fixed and len(before[name].sites) == len(zone.sites)
        for name, zone in after.items()
    )
