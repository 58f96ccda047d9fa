"""Ready answers to the questions that PowerDNS would answer from the pools of a snapshot. Pure.

What a snapshot shows is ready at once. Where chance chose it, there are sixteen variants, which take sixteen
times as long: these are drawn afterwards, one by one, so that no change waits for them. Where all is shown,
the variants differ in the order of the records: many clients take the first, and PowerDNS shuffles, too.

An answer here is what PowerDNS 4.7 puts behind the question: the records, and with SRV records the addresses
of their targets. The header and an OPT record are the BPF program's. What PowerDNS would truncate or refuse,
and what depends on more than one site, is not made: these questions are passed on to PowerDNS.
"""

from __future__ import annotations

import random
import socket
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import is_not
from typing import NamedTuple

import dns.exception
import dns.name
import dns.rdata

from rspdns.answers.snapshot import LIVE_TYPES, SiteAnswers, Snapshot, ZoneAnswers
from rspdns.answers.withdrawals import Withdrawal
from rspdns.fitting import HEADER, LIMIT, OPT, QUESTION_FIXED, name_size
from rspdns.names import is_below
from rspdns.rrset import Node, Record
from rspdns.zones.zone import Zone, live_names

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


def node_answers(
    nodes: Mapping[str, Node], all_nodes: Mapping[str, Node] | None = None
) -> dict[Question, Answer]:
    """One answer to each question about these nodes; `all_nodes` has those of SRV targets, too."""
    found: dict[Question, Answer] = {}
    targets = nodes if all_nodes is None else all_nodes
    for name, node in nodes.items():
        if node.failure:
            continue
        found.update(_own_answers(name, node.records))
        if services := [record for record in node.records if record.type == "SRV"]:
            found.update(_answer(name, "SRV", services, targets))
    return found


@lru_cache(maxsize=16384)
def _own_answers(name: str, records: Sequence[Record]) -> Mapping[Question, Answer]:
    """The answers to questions about a name that depend on no other name. Most are those of before."""
    by_type: dict[str, list[Record]] = {}
    for record in records:
        if record.type != "SRV" and record.type in LIVE_TYPES:
            by_type.setdefault(record.type, []).append(record)
    found: dict[Question, Answer] = {}
    for qtype, of_type in by_type.items():
        found.update(_answer(name, qtype, of_type, {}))
    return found


def _answer(
    name: str, qtype: str, records: Sequence[Record], nodes: Mapping[str, Node]
) -> Mapping[Question, Answer]:
    """The answer of these records; nothing where PowerDNS must give it."""
    try:
        answer = _written(name, records, nodes)
    except (ValueError, OSError, struct.error, dns.exception.DNSException):
        return {}  # what can't be written here must not keep the others from being published
    return {Question(name, qtype): answer} if answer is not None else {}


def _written(name: str, records: Sequence[Record], nodes: Mapping[str, Node]) -> Answer | None:
    """The records on the wire; None where PowerDNS must give them."""
    if name_size(name) > MOST_NAME_BYTES:
        return None
    wire = bytearray()
    behind_question = HEADER + name_size(name) + QUESTION_FIXED
    targets: dict[str, int] = {}
    for record in records:
        if record.type == "SRV":
            target = record.content.rpartition(" ")[2]
            offset = behind_question + len(wire) + len(_POINTER_TO_QUESTION) + _FIXED.size + _SRV_FIXED.size
            targets.setdefault(target.rstrip(".").lower(), offset)
        wire += _POINTER_TO_QUESTION
        wire += _behind_owner(record.type, record.content, record.ttl)
    additional = 0
    for target, offset in targets.items():
        node = nodes.get(target)
        if node is None or node.failure:
            return None  # of another site, or of no zone of ours
        for record in node.records:
            if record.type in ("A", "AAAA"):
                wire += (_POINTER | offset).to_bytes(2, "big")
                wire += _behind_owner(record.type, record.content, record.ttl)
                additional += 1
    if behind_question + len(wire) + OPT > LIMIT:
        return None  # truncated for some clients
    return Answer(len(records), additional, bytes(wire))


_SRV_FIXED = struct.Struct("!HHH")


@lru_cache(maxsize=16384)
def _behind_owner(qtype: str, content: str, ttl_s: int) -> bytes:
    """A record on the wire but for its owner. Most of an answer are the records of before."""
    match qtype:
        case "SRV":
            priority, weight, port, target = content.split()
            data = _SRV_FIXED.pack(int(priority), int(weight), int(port)) + wire_name(target)
        case "A":
            data = socket.inet_pton(socket.AF_INET, content)
        case "AAAA":
            data = socket.inet_pton(socket.AF_INET6, content)
        case _:
            data = _other_data(qtype, content)
    return _FIXED.pack(TYPES[qtype], _IN, ttl_s, len(data)) + data


@lru_cache(maxsize=4096)
def _other_data(qtype: str, content: str) -> bytes:
    """The data of a NAPTR record: slow to write, and no member's coming or going changes it."""
    data: bytes | None = dns.rdata.from_text(
        "IN", qtype, content, origin=dns.name.root, relativize=False
    ).to_wire()
    return data or b""


@lru_cache(maxsize=16384)
def wire_name(name: str) -> bytes:
    """A name on the wire; its final dot may be missing."""
    text = name.removesuffix(".")
    if "\\" not in text and text.isascii():
        labels = [label.encode() for label in text.split(".")] if text else []
        return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return dns.name.from_text(text, dns.name.root).to_wire() or b"\0"


MOST_ZONES = 4096
"""Whose depth the kernel knows."""
MOST_DEPTH = 127
"""Labels of the deepest name there can be."""


def depths(zones: Collection[Zone]) -> dict[str, int]:
    """How many labels the deepest name of each zone has, for the limit; none where there are too many zones.

    A name with more surely does not exist. Where that can't be said, below a wildcard, a DNAME record or
    another server's zone, any number of labels is right.
    """
    if len(zones) > MOST_ZONES:
        return {}
    served = {zone.name for zone in zones}
    untold = [name for name in served if name_size(name) > MOST_NAME_BYTES]
    return {
        zone.name: MOST_DEPTH
        if _has_open_names(zone, served) or any(is_below(name, zone.name) for name in untold)
        else _depth(zone)
        for zone in zones
        if zone.name not in untold
    }


def _depth(zone: Zone) -> int:
    pools = [pool for site in zone.sites for pool in site.pools]
    own = (name for site in zone.sites for name in live_names(site))
    return 1 + max(name.count(".") for name in (*zone.fixed, *own, *(pool.target("") for pool in pools)))


def _has_open_names(zone: Zone, served: Collection[str]) -> bool:
    return any(
        name.startswith("*.")
        or any(
            record.type == "DNAME" or (record.type == "NS" and name != zone.name and name not in served)
            for record in records
        )
        for name, records in zone.static.records.items()
    )


def orders(answer: Answer) -> int:
    """How many variants an answer has that chance did not choose: one for each record, up to `VARIANTS`."""
    return max(1, min(_count_in_order(answer), VARIANTS))


def _count_in_order(answer: Answer) -> int:
    """The records that come first in turn: the answers; of a single one, the addresses of its target."""
    return answer.answers if answer.answers > 1 else answer.additional


def in_another_order(name: str, answer: Answer, first: int, chance: random.Random) -> Answer:
    """The same records: the one at the position `first` before the others, in an order that chance chooses.

    `first` counts the answers, or the additional records where there is one answer; `name` is that of the
    question. PowerDNS shuffles both sections.
    """
    blocks = _blocks(answer.records)
    heads = (first, None) if answer.answers > 1 else (None, first)
    return _of_blocks(
        name,
        _shuffled(blocks[: answer.answers], heads[0], chance),
        _shuffled(blocks[answer.answers :], heads[1], chance),
    )


def without(name: str, answer: Answer, is_gone: Callable[[bytes], bool]) -> Answer | None:
    """The answer without the records of its first section that are gone, and without the addresses of their
    targets; None if nothing is left. `name` is that of the question."""
    blocks = _blocks(answer.records)
    kept = [block for block in blocks[: answer.answers] if not is_gone(block[1])]
    if not kept:
        return None
    ranges = [(offset, offset + len(block)) for offset, block in kept]
    additional = [
        block
        for block in blocks[answer.answers :]
        if any(start <= _points_to(name, block[1]) < end for start, end in ranges)
    ]
    return _of_blocks(name, kept, additional)


def _of_blocks(
    name: str, answers: Sequence[tuple[int, bytes]], additional: Sequence[tuple[int, bytes]]
) -> Answer:
    """These records of an answer, in this order. They have the offsets that they had in it: the owner of an
    additional record is a pointer to a target in the answers, and goes along with it."""
    offsets = {}
    wire = bytearray()
    for offset, block in answers:
        offsets[offset] = len(wire)
        wire += block
    starts = sorted(offsets)
    for _, block in additional:
        target = _points_to(name, block)
        holds_it = starts[bisect_right(starts, target) - 1]
        moved = target - holds_it + offsets[holds_it] + _begin(name)
        wire += (_POINTER | moved).to_bytes(2, "big") + block[2:]
    return Answer(len(answers), len(additional), bytes(wire))


def _begin(name: str) -> int:
    """Where the records begin in an answer about this name."""
    return HEADER + name_size(name) + QUESTION_FIXED


def _points_to(name: str, block: bytes) -> int:
    """The offset in the records to which the owner of a record points."""
    return (int.from_bytes(block[:2], "big") ^ _POINTER) - _begin(name)


def _blocks(records: bytes) -> list[tuple[int, bytes]]:
    """Each record with its offset. Its owner is a pointer of two bytes."""
    found, at = [], 0
    while at < len(records):
        size = _FIXED.unpack_from(records, at + len(_POINTER_TO_QUESTION))[3]
        end = at + len(_POINTER_TO_QUESTION) + _FIXED.size + size
        found.append((at, records[at:end]))
        at = end
    return found


def _shuffled(
    blocks: list[tuple[int, bytes]], first: int | None, chance: random.Random
) -> list[tuple[int, bytes]]:
    head = [] if first is None else [blocks.pop(first)]
    chance.shuffle(blocks)
    return head + blocks


_Key = tuple[str, str]
"""A zone, and a site of it."""


class ReadyAnswers:
    """All answers of the latest snapshot, and what changed since the one before."""

    def __init__(self, draw: random.Random) -> None:
        self._chance = draw
        self._zones: Mapping[str, ZoneAnswers] = {}
        """Those that the answers were made of: unsigned ones."""
        self._sites: dict[_Key, SiteAnswers] = {}
        """What the answers were made of."""
        self._answers: dict[_Key, Answers] = {}
        self._undrawn: dict[_Key, list[dict[Question, Answer]]] = {}
        """The sites whose variants are being drawn, in turn, and what was drawn of each so far."""
        self._chosen: dict[_Key, frozenset[Question]] = {}
        """The questions of each site whose variants show different records; the others' differ in order."""
        self._withdrawn: dict[_Key, Withdrawal] = {}
        """What the answers of a site no longer show although the latest snapshot has it."""

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    @property
    def all(self) -> Answers:
        """Every answer there is."""
        return {
            question: answer for answers in self._answers.values() for question, answer in answers.items()
        }

    @property
    def is_drawn(self) -> bool:
        """Whether all variants are there."""
        return not self._undrawn

    def take(
        self, snapshot: Snapshot, signed: Collection[str], withdrawn: Collection[Withdrawal] = ()
    ) -> Answers:
        """The answers of this snapshot that differ from those of the one before; empty: none any more.

        `signed` zones have none: PowerDNS signs. What changed, or is shown by chance, has one variant at
        first, that of the snapshot; `draw()` makes the others. `withdrawn` is not shown.
        """
        wanted = {(one.zone, one.site): one for one in withdrawn}
        zones = {name: zone for name, zone in snapshot.zone_answers.items() if name not in signed}
        same_zones = zones.keys() == self._zones.keys()
        parts: list[Answers] = []
        for name, zone in zones.items():
            for site in _sites_to_look_at(self._zones[name] if same_zones else None, zone):
                # A name of a zone inside this one is that zone's to answer.
                is_ours = snapshot.zone_of(site.name) == name
                key = name, site.name
                parts.append(self._take_site(key, site, wanted.get(key)) if is_ours else self._drop(key))
        if not _have_the_same_sites(self._zones, zones):
            known = {(name, site.name) for name, zone in zones.items() for site in zone.sites}
            parts += [self._drop(key) for key in self._answers.keys() - known]
        self._zones = zones
        return _together((*parts, self.withdraw(withdrawn)))

    def take_sites(
        self, sites: Iterable[tuple[str, SiteAnswers]], withdrawn: Collection[Withdrawal] = ()
    ) -> Answers:
        """The answers of these sites, each with its zone, that differ from before. Only for sites that are
        known, when all else is the same in the next snapshot. `withdrawn` is not shown."""
        wanted = {(one.zone, one.site): one for one in withdrawn}
        keys = (((zone, site.name), site) for zone, site in sites)
        return _together(
            [self._take_site(key, site, wanted.get(key)) for key, site in keys if key in self._sites]
        )

    def _take_site(self, key: _Key, site: SiteAnswers, withdrawn: Withdrawal | None) -> Answers:
        """Of one site, see `take()`."""
        made_of = self._sites.get(key)
        if made_of is not None and _are_the_same(made_of, site):
            return {}
        answers = self._first_answers(key, site)
        if withdrawn is not None:
            without = _without_targets(site, answers, withdrawn)
            if without is not None:
                self._note_withdrawn(key, withdrawn)
                answers = without
        return self._replace(key, answers)

    def _replace(self, key: _Key, answers: Answers) -> Answers:
        """What differs from before when these are the answers of the site."""
        old = self._answers.get(key, {})
        self._answers[key] = answers
        changed = {one: answer for one, answer in answers.items() if old.get(one) != answer}
        return {**dict.fromkeys(old.keys() - answers.keys(), ()), **changed}

    def _drop(self, key: _Key) -> Answers:
        """The site has no answers here any more."""
        self._forget(key)
        return dict.fromkeys(self._answers.pop(key, ()), ())

    def withdraw(self, withdrawn: Collection[Withdrawal]) -> Answers:
        """Show these targets no more, and again those that were withdrawn before and are not now; return the
        answers that changed.

        Nothing more is withdrawn if an answer would become empty: what comes instead is not known yet, and
        all answers are to change at one moment.
        """
        wanted = {key: one for one in withdrawn if (key := (one.zone, one.site)) in self._sites}
        shown: dict[_Key, Answers] = {}
        as_before: dict[_Key, Withdrawal] = {}
        for key, before in tuple(self._withdrawn.items()):
            now = wanted[key].targets if key in wanted else frozenset[tuple[str, str]]()
            if not before.targets <= now:
                shown[key] = self._first_answers(key, self._sites[key])
                as_before[key] = before._replace(targets=before.targets & now)
        back = dict(shown)
        for key, one in wanted.items():
            if self._withdrawn.get(key) == one:
                continue
            answers = _without_targets(self._sites[key], shown.get(key, self._answers[key]), one)
            if answers is None:
                shown = back | self._without(back, as_before)
                break
            shown[key] = answers
        else:
            for key, one in wanted.items():
                self._note_withdrawn(key, one)
        return _together([self._replace(key, answers) for key, answers in shown.items()])

    def _without(
        self, shown: Mapping[_Key, Answers], withdrawn: Mapping[_Key, Withdrawal]
    ) -> dict[_Key, Answers]:
        """These answers without what is withdrawn, of those in which something is left."""
        found = {}
        for key, one in withdrawn.items():
            answers = _without_targets(self._sites[key], shown[key], one) if one.targets else None
            if answers is not None:
                found[key] = answers
                self._note_withdrawn(key, one)
        return found

    def _note_withdrawn(self, key: _Key, withdrawn: Withdrawal) -> None:
        """Chance chooses no more among members of the site until it is made anew."""
        self._withdrawn[key] = withdrawn
        self._undrawn.pop(key, None)

    def _first_answers(self, key: _Key, site: SiteAnswers) -> Answers:
        """What a site shows now. Variants of it that were drawn before count no more; other orders do."""
        old, chosen = self._answers.get(key, {}), self._chosen.get(key, frozenset())
        self._forget(key)
        self._sites[key] = site
        first = {
            question: _same_records(old.get(question, ()), answer) if question not in chosen else (answer,)
            for question, answer in node_answers(site.nodes).items()
        }
        if site.redraw is not None or any(len(told) < orders(told[0]) for told in first.values()):
            self._undrawn[key] = []
        return first

    def _forget(self, key: _Key) -> None:
        self._sites.pop(key, None)
        self._undrawn.pop(key, None)
        self._chosen.pop(key, None)
        self._withdrawn.pop(key, None)

    def draw(self) -> Answers:
        """Draw one more variant of a site; at the end, return those of its answers that changed."""
        if not self._undrawn:
            return {}
        key, drawn = next(iter(self._undrawn.items()))
        site = self._sites[key]
        if not drawn:
            drawn.append(node_answers(site.nodes))
        if site.redraw is not None and len(drawn) < VARIANTS:
            drawn.append(_drawn_again(site, drawn[0], self._chance))
            return {}
        del self._undrawn[key]
        old = self._answers[key]
        variants, chosen = _variants(drawn), self._chosen.get(key, frozenset())
        self._chosen[key] = frozenset(question for question, those in variants.items() if len(those) > 1)
        new = {
            question: self._in_orders(
                question, those, old.get(question, ()) if question not in chosen else ()
            )
            for question, those in variants.items()
        }
        self._answers[key] = new
        left: Answers = dict.fromkeys(old.keys() - new.keys(), ())
        return {**left, **{one: answer for one, answer in new.items() if old.get(one) != answer}}

    def _in_orders(
        self, question: Question, drawn: tuple[Answer, ...], old: tuple[Answer, ...]
    ) -> tuple[Answer, ...]:
        """What chance chose, in an order that it chooses, too; what it did not choose in several orders."""
        name, first = question.name, drawn[0]
        if len(drawn) > 1:
            return tuple(
                in_another_order(name, one, self._chance.randrange(_count_in_order(one)), self._chance)
                if _count_in_order(one) > 1
                else one
                for one in drawn
            )
        known = _same_records(old, first)
        if len(known) == orders(first):
            return known
        positions = self._chance.sample(range(1, _count_in_order(first)), orders(first) - 1)
        return (first, *(in_another_order(name, first, position, self._chance) for position in positions))

    def draw_again(self, names: Collection[str]) -> None:
        """Have `draw()` choose anew where chance chose the answers about one of these names."""
        for key, chosen in self._chosen.items():
            if key not in self._withdrawn and any(question.name in names for question in chosen):
                self._undrawn.setdefault(key, [])


def _together(parts: Sequence[Answers]) -> Answers:
    """All that changed. What left one site may have come to another."""
    if len(parts) == 1:
        return parts[0]
    left = {question: variants for part in parts for question, variants in part.items() if not variants}
    return left | {question: variants for part in parts for question, variants in part.items() if variants}


def _without_targets(site: SiteAnswers, answers: Answers, withdrawn: Withdrawal) -> Answers | None:
    """A site's answers without these targets; None if one of them would then show nothing."""
    found: dict[Question, tuple[Answer, ...]] = {}
    gone: set[bytes] = set()
    for state in site.states:
        labels = [label for owner, label in withdrawn.targets if owner == state.pool.owner]
        if labels:
            question = Question(state.pool.owner, "SRV")
            targets = {wire_name(state.pool.target(label)) for label in labels}
            found[question] = _not_showing(answers, question, targets, _SRV_FIXED.size)
            members = (state.members[label] for label in labels if label in state.members)
            gone.update(address.packed for member in members for address in member.addresses)
    for qtype in ("A", "AAAA"):
        question = Question(site.name, qtype)
        shown = {one for one in gone if any(one in variant.records for variant in answers.get(question, ()))}
        if shown:
            shown -= _staying(site, withdrawn)
            found[question] = _not_showing(answers, question, shown, 0)
    asked = {question: variants for question, variants in found.items() if question in answers}
    return {**answers, **asked} if all(asked.values()) else None


def _staying(site: SiteAnswers, withdrawn: Withdrawal) -> set[bytes]:
    """The addresses of the members that did not leave: a server may be in two pools."""
    return {
        address.packed
        for state in site.states
        for label, member in state.members.items()
        if (state.pool.owner, label) not in withdrawn.targets
        for address in member.addresses
    }


def _not_showing(
    answers: Answers, question: Question, gone: Collection[bytes], at: int
) -> tuple[Answer, ...]:
    """The variants of an answer that show none of those gone, which stand in a record's data from `at` on.
    Where all show one, it is the first without it. Empty if nothing is left."""
    variants = answers.get(question, ())
    if not gone:
        return variants
    kept = tuple(one for one in variants if not any(wire in one.records for wire in gone))
    if kept or not variants:
        return kept
    start = len(_POINTER_TO_QUESTION) + _FIXED.size + at
    cut = without(question.name, variants[0], lambda block: block[start:] in gone)
    return () if cut is None else (cut,)


def _same_records(old: tuple[Answer, ...], first: Answer) -> tuple[Answer, ...]:
    """The variants of before if they are other orders of this answer; or this answer alone."""
    return old if old and old[0] == first else (first,)


def _drawn_again(
    site: SiteAnswers, first: Mapping[Question, Answer], chance: random.Random
) -> dict[Question, Answer]:
    """The answers of a site when chance chooses again; `first` are those of its nodes."""
    if site.redraw is None:
        return dict(first)
    nodes = site.redraw(chance)
    differing = {name: node for name, node in nodes.items() if node != site.nodes.get(name)}
    same = {question: answer for question, answer in first.items() if question.name not in differing}
    return same | node_answers(differing, nodes)


def _variants(drawn: Sequence[Mapping[Question, Answer]]) -> Answers:
    """Those of the answers that each draw gave. Where all draws gave the same, there is one variant."""
    return {
        question: variants if len(set(variants)) > 1 else variants[:1]
        for question in drawn[0]
        if len(variants := tuple(one[question] for one in drawn if question in one)) == len(drawn)
    }


def _sites_to_look_at(before: ZoneAnswers | None, after: ZoneAnswers) -> Iterable[SiteAnswers]:
    """The sites that may differ: where nothing says that they are the same."""
    if before is None or before.fixed is not after.fixed or len(before.sites) != len(after.sites):
        return after.sites
    return () if before is after else compress(after.sites, map(is_not, before.sites, after.sites))


def _are_the_same(one: SiteAnswers, other: SiteAnswers) -> bool:
    """Whether both show the same now, and when chance chooses again. A member that was not shown changes the
    latter alone."""
    return one.nodes is other.nodes and one.redraw is other.redraw


def _have_the_same_sites(before: Mapping[str, ZoneAnswers], after: Mapping[str, ZoneAnswers]) -> bool:
    return before.keys() == after.keys() and all(
        before[name].fixed is zone.fixed and len(before[name].sites) == len(zone.sites)
        for name, zone in after.items()
    )
