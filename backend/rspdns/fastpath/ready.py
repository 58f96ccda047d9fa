"""Ready answers to the questions that PowerDNS would answer from the pools of a snapshot. Pure.

The answers that a snapshot shows are ready at once. If they were chosen at random, there are sixteen
variants, which take sixteen times as long: these are drawn afterwards, one by one, so that no change waits
for them. If all records are shown, the variants differ in their order: many clients take the first, and
PowerDNS shuffles, too.

An answer here is what PowerDNS 4.7 puts behind the question: the records, and with SRV, HTTPS and SVCB
records the addresses of their targets. The header and an OPT record are the BPF program's. Answers that
PowerDNS would truncate or refuse, or that depend on more than one site or on the asker's address itself
(`affinity`), are not made: these questions are passed on to PowerDNS. Names with `near` have answers for each
class of askers, when the kernel knows which networks these are (`learn`).
"""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import dns.exception

from rspdns.answers.change import Change
from rspdns.answers.snapshot import LIVE_TYPES, SiteAnswers, Snapshot
from rspdns.fitting import HEADER, LIMIT, OPT, QUESTION_FIXED, SRV_FIXED, SVCB_FIXED, name_size
from rspdns.names import is_below
from rspdns.rrset import Data, Node, Record, SrvData, SvcbData
from rspdns.zones.asker_classes import AskerClasses
from rspdns.zones.zone import Zone, live_names

VARIANTS = 16
"""Ready answers to a question that shows some of many: each question gets one of them, all equally often."""
MOST_NAME_BYTES = 128
"""Longer names are left to PowerDNS."""
TYPES = {"A": 1, "AAAA": 28, "SRV": 33, "NAPTR": 35, "SVCB": 64, "HTTPS": 65}
_WITH_TARGETS = ("SRV", "SVCB", "HTTPS")
_IN = 1
_POINTER_TO_QUESTION = b"\xc0\x0c"
_POINTER = 0xC000
_FIXED = struct.Struct("!HHIH")
"""Type, class, TTL, size of the data."""


class Question(NamedTuple):
    """`name` in lower case without the final dot; `type` one of `TYPES`; `asker_class` that of the askers
    (`AskerClasses`), 0 where it does not matter, and for those in no network of `near`."""

    name: str
    type: str
    asker_class: int = 0


class Answer(NamedTuple):
    """The part behind a question: `answers` records and `additional` ones, as `records` on the wire."""

    answers: int
    additional: int
    records: bytes


Answers = Mapping[Question, tuple[Answer, ...]]
"""The variants of each answer."""
_Draw = tuple[dict[Question, Answer], bool]


def node_answers(
    nodes: Mapping[str, Node], all_nodes: Mapping[str, Node] | None = None
) -> dict[Question, Answer]:
    """One answer to each question about these nodes; `all_nodes` has those of the targets, too."""
    answers: dict[Question, Answer] = {}
    targets = nodes if all_nodes is None else all_nodes
    for name, node in nodes.items():
        if node.failure:
            continue
        answers.update(_own_answers(name, node.records))
        for qtype in _WITH_TARGETS:
            if services := [record for record in node.records if record.type == qtype]:
                answers.update(_answer(name, qtype, services, targets))
    return answers


@lru_cache(maxsize=16384)
def _own_answers(name: str, records: Sequence[Record]) -> Mapping[Question, Answer]:
    """The answers to questions about a name that depend on no other name. Most are those of before."""
    by_type: dict[str, list[Record]] = {}
    for record in records:
        if record.type not in _WITH_TARGETS and record.type in LIVE_TYPES:
            by_type.setdefault(record.type, []).append(record)
    answers: dict[Question, Answer] = {}
    for qtype, of_type in by_type.items():
        answers.update(_answer(name, qtype, of_type, {}))
    return answers


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
        data = record.data
        if isinstance(data, SvcbData) and data.target == ".":
            targets.setdefault(name, HEADER)
        elif isinstance(data, SrvData | SvcbData):
            if isinstance(data, SvcbData) and not data.priority:
                return None  # PowerDNS adds the records that an alias stands for
            fixed = SRV_FIXED if isinstance(data, SrvData) else SVCB_FIXED
            offset = behind_question + len(wire) + len(_POINTER_TO_QUESTION) + _FIXED.size + fixed
            targets.setdefault(data.target.rstrip(".").lower(), offset)
        elif record.type in _WITH_TARGETS:
            return None  # of the zone file: its target is not read here
        wire += _POINTER_TO_QUESTION
        wire += _behind_owner(record.type, record.data, record.ttl)
    additional = 0
    for target, offset in targets.items():
        node = nodes.get(target)
        if node is None or node.failure:
            return None  # of another site, or of no zone of ours
        for record in node.records:
            if record.type in ("A", "AAAA"):
                wire += (_POINTER | offset).to_bytes(2, "big")
                wire += _behind_owner(record.type, record.data, record.ttl)
                additional += 1
    if behind_question + len(wire) + OPT > LIMIT:
        return None  # truncated for some clients
    return Answer(len(records), additional, bytes(wire))


@lru_cache(maxsize=16384)
def _behind_owner(qtype: str, data: Data, ttl_s: int) -> bytes:
    """A record on the wire but for its owner. Most of an answer are the records of before."""
    wire = data.wire
    return _FIXED.pack(TYPES[qtype], _IN, ttl_s, len(wire)) + wire


MOST_ZONES = 4096
"""The most zones whose depth the kernel knows."""
MOST_DEPTH = 127
"""Labels of the deepest name there can be."""


def depths(zones: Collection[Zone]) -> dict[str, int]:
    """How many labels the deepest name of each zone has, for the limit; none where there are too many zones.

    A name with more surely does not exist. If that can't be said, below a wildcard, a DNAME record or
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


def _of_blocks(
    name: str, answers: Sequence[tuple[int, bytes]], additional: Sequence[tuple[int, bytes]]
) -> Answer:
    """These records of an answer, in this order. They have the offsets that they had in it: the owner of an
    additional record is a pointer to a target in the answers, and goes along with it, or to the question."""
    offsets = {}
    wire = bytearray()
    for offset, block in answers:
        offsets[offset] = len(wire)
        wire += block
    starts = sorted(offsets)
    for _, block in additional:
        target = _points_to(name, block)
        if target < 0:
            wire += block
            continue
        holds_it = starts[bisect_right(starts, target) - 1]
        moved = target - holds_it + offsets[holds_it] + _begin(name)
        wire += (_POINTER | moved).to_bytes(2, "big") + block[2:]
    return Answer(len(answers), len(additional), bytes(wire))


def _begin(name: str) -> int:
    """The offset at which the records begin in an answer about this name."""
    return HEADER + name_size(name) + QUESTION_FIXED


def _points_to(name: str, block: bytes) -> int:
    """The offset in the records to which the owner of a record points; negative: to the question."""
    return (int.from_bytes(block[:2], "big") ^ _POINTER) - _begin(name)


def _blocks(records: bytes) -> list[tuple[int, bytes]]:
    """Each record with its offset. Its owner is a pointer of two bytes."""
    blocks, at = [], 0
    while at < len(records):
        size = _FIXED.unpack_from(records, at + len(_POINTER_TO_QUESTION))[3]
        end = at + len(_POINTER_TO_QUESTION) + _FIXED.size + size
        blocks.append((at, records[at:end]))
        at = end
    return blocks


def _shuffled(
    blocks: list[tuple[int, bytes]], first: int | None, chance: random.Random
) -> list[tuple[int, bytes]]:
    head = [] if first is None else [blocks.pop(first)]
    chance.shuffle(blocks)
    return head + blocks


_Key = tuple[str, str]
"""A zone, and a site of it."""
KnownClasses = Mapping[AskerClasses, int]
"""The classes of askers whose blocks the kernel knows, by this number."""


class ReadyAnswers:
    """All answers of the latest snapshot, and what changed since the one before."""

    def __init__(self, draw: random.Random) -> None:
        self._chance = draw
        self._sites: dict[_Key, SiteAnswers] = {}
        """The sites that the answers were made of."""
        self._answers: dict[_Key, Answers] = {}
        self._undrawn: dict[_Key, list[dict[Question, Answer]]] = {}
        """The sites whose variants are being drawn, in turn, and what was drawn of each so far."""
        self._chosen: dict[_Key, frozenset[Question]] = {}
        """The questions of each site whose variants show different records; the others' differ in order."""
        self._by_chance: set[_Key] = set()
        """The sites in whose answers chance has a part."""
        self._known: KnownClasses = {}
        self._told: dict[_Key, int] = {}
        """The number of the classes that the answers of a site are for."""
        self._numbers: dict[str, int] = {}
        """The same by name of a question."""

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    @property
    def all(self) -> Answers:
        """Every answer there is."""
        return {
            question: answer for answers in self._answers.values() for question, answer in answers.items()
        }

    def learn(self, known: KnownClasses) -> Answers:
        """The kernel knows these classes of askers, and no others: return the answers that differ by that."""
        self._known = known
        changed = (key for key, site in self._sites.items() if self._number(site) != self._told.get(key, 0))
        return _together([self._take_anew(key, self._sites[key]) for key in list(changed)])

    def number_of(self, question: Question) -> int:
        """The number of the classes among which the kernel must look for the asker's; 0: it need not."""
        return 0 if question.asker_class else self._numbers.get(question.name, 0)

    @property
    def numbers(self) -> Collection[int]:
        """The numbers of all classes in use."""
        return self._told.values()

    def _number(self, site: SiteAnswers) -> int:
        return self._known.get(site.site.classes, 0) if site.site.classes is not None else 0

    @property
    def is_drawn(self) -> bool:
        """Whether all variants are there."""
        return not self._undrawn

    def take(self, snapshot: Snapshot, signed: Collection[str]) -> Answers:
        """Return the answers of this snapshot that differ from those of before; empty: none any more.

        `signed` zones have none: PowerDNS signs. A site that changed, or is shown by chance, has one variant
        at first, that of the snapshot; `draw_next()` makes the others.
        """
        sites = {
            (name, site.name): site
            for name, zone in snapshot.zone_answers.items()
            if name not in signed
            for site in zone.sites
            if _is_answered_by(name, site, snapshot)
        }
        gone = self._answers.keys() - sites.keys()
        return _together(
            [*(self._take_site(key, site) for key, site in sites.items()), *(self._drop(key) for key in gone)]
        )

    def apply(self, change: Change, signed: Collection[str]) -> Answers:
        """Return the answers that this change makes different (`take`): `change.before` was taken before."""
        if any(zone.sites is None for zone in change.zones.values()):
            return self.take(change.after, signed)
        return _together(
            [
                self._take_site((name, site.name), site)
                for name, zone in change.zones.items()
                if name not in signed
                for _, site in zone.sites or ()
                if _is_answered_by(name, site, change.after)
            ]
        )

    def _take_site(self, key: _Key, site: SiteAnswers) -> Answers:
        """The changed answers of one site, see `take()`."""
        made_of = self._sites.get(key)
        if made_of is not None and _are_the_same(made_of, site):
            return {}
        if self._number(site) == self._told.get(key, 0):
            return self._replace(key, self._first_answers(key, site))
        return self._take_anew(key, site)

    def _take_anew(self, key: _Key, site: SiteAnswers) -> Answers:
        """All answers of a site, whose classes of askers are others than before."""
        gone = self._drop(key)
        if number := self._number(site):
            self._told[key] = number
            self._numbers.update(dict.fromkeys(site.services, number))
        return {**gone, **self._replace(key, self._first_answers(key, site))}

    def _replace(self, key: _Key, answers: Answers) -> Answers:
        """The difference from before when these are the answers of the site."""
        old = self._answers.get(key, {})
        self._answers[key] = answers
        changed = {
            question: variants for question, variants in answers.items() if old.get(question) != variants
        }
        return {**dict.fromkeys(old.keys() - answers.keys(), ()), **changed}

    def _drop(self, key: _Key) -> Answers:
        """The site has no answers here any more."""
        if self._told.pop(key, 0):
            for name in self._sites[key].services:
                self._numbers.pop(name, None)
        self._forget(key)
        return dict.fromkeys(self._answers.pop(key, ()), ())

    def _first_answers(self, key: _Key, site: SiteAnswers) -> Answers:
        """The answers that a site shows now. Variants of it that were drawn before count no more; other
        orders do."""
        old, chosen = self._answers.get(key, {}), self._chosen.get(key, frozenset())
        self._forget(key)
        self._sites[key] = site
        answers, drawn = self._shown(site)
        first = {
            question: _same_records(old.get(question, ()), answer) if question not in chosen else (answer,)
            for question, answer in answers.items()
        }
        if drawn:
            self._by_chance.add(key)
        if drawn or any(len(variants) < orders(variants[0]) for variants in first.values()):
            self._undrawn[key] = []
        return first

    def _forget(self, key: _Key) -> None:
        self._sites.pop(key, None)
        self._undrawn.pop(key, None)
        self._chosen.pop(key, None)
        self._by_chance.discard(key)

    def _shown(self, site: SiteAnswers, first: Mapping[Question, Answer] | None = None) -> _Draw:
        """The answers of a site, and whether chance has a part in them: those that the snapshot shows; if
        these are given as `first`, those that chance chooses now."""
        if first is None:
            answers = node_answers(site.nodes)
        else:
            of_all = {asked: answer for asked, answer in first.items() if not asked.asker_class}
            answers = _drawn_again(site, of_all, self._chance)
        classes, is_drawn = site.site.classes, site.redraw is not None
        if site.by_asker is None:
            return answers, is_drawn
        if classes is None or not self._number(site):
            return {
                asked: shown for asked, shown in answers.items() if asked.name not in site.services
            }, False
        for number, orders in enumerate(classes.orders[1:], 1):
            nodes, by_chance = site.by_asker.of_class(orders, self._chance)
            is_drawn = is_drawn or by_chance
            of_class = node_answers(nodes, {**site.nodes, **nodes})
            answers |= {asked._replace(asker_class=number): answer for asked, answer in of_class.items()}
        return answers, is_drawn

    def draw_next(self) -> Answers:
        """Draw one more variant of a site; at the end, return those of its answers that changed."""
        if not self._undrawn:
            return {}
        key, drawn = next(iter(self._undrawn.items()))
        site = self._sites[key]
        if not drawn:
            drawn.append(self._shown(site)[0])
        if key in self._by_chance and len(drawn) < VARIANTS:
            drawn.append(self._shown(site, drawn[0])[0])
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
        return self._replace(key, new)

    def _in_orders(
        self, question: Question, drawn: tuple[Answer, ...], old: tuple[Answer, ...]
    ) -> tuple[Answer, ...]:
        """Variants of a random choice, each in a random order; without a choice, several orders of the same
        records."""
        name, first = question.name, drawn[0]
        if len(drawn) > 1:
            return tuple(
                in_another_order(name, answer, self._chance.randrange(_count_in_order(answer)), self._chance)
                if _count_in_order(answer) > 1
                else answer
                for answer in drawn
            )
        known = _same_records(old, first)
        if len(known) == orders(first):
            return known
        positions = self._chance.sample(range(1, _count_in_order(first)), orders(first) - 1)
        return (first, *(in_another_order(name, first, position, self._chance) for position in positions))

    def draw_again(self, names: Collection[str]) -> None:
        """Have `draw_next()` choose anew where chance chose the answers about one of these names."""
        for key, chosen in self._chosen.items():
            if any(question.name in names for question in chosen):
                self._undrawn.setdefault(key, [])


def _together(parts: Sequence[Answers]) -> Answers:
    """All that changed. An answer that left one site may have come to another."""
    if len(parts) == 1:
        return parts[0]
    left = {question: variants for part in parts for question, variants in part.items() if not variants}
    return left | {question: variants for part in parts for question, variants in part.items() if variants}


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
    """Those of the answers that each draw gave. If all draws gave the same, there is one variant."""
    return {
        question: variants if len(set(variants)) > 1 else variants[:1]
        for question in drawn[0]
        if len(variants := tuple(answers[question] for answers in drawn if question in answers)) == len(drawn)
    }


def _is_answered_by(zone: str, site: SiteAnswers, snapshot: Snapshot) -> bool:
    """Whether the site's names are the zone's: those of a zone inside it are that zone's to answer."""
    return snapshot.zone_of(site.name) == zone


def _are_the_same(site: SiteAnswers, other: SiteAnswers) -> bool:
    """Whether both show the same now, to each asker, and when chance chooses again. A member that was not
    shown changes the latter alone."""
    is_same = site.nodes is other.nodes and site.redraw is other.redraw
    return is_same and site.by_asker is other.by_asker
