"""From the bytes of a request to the bytes of its reply, fast: every uncached DNS answer passes here.

`LeftTargets` keeps the addresses of targets that left lately, while an SRV answer may still name them.

PowerDNS makes an SRV answer of several look-ups: the SRV records, then the addresses of each target. A member
may leave in between, and for some milliseconds PowerDNS's query cache may hold SRV records from before (a
look-up under way puts them back after the first purge). So the SRV records cease to name a target at once,
while its own name is answered for `DEPARTED_KEPT_S` longer. Then no answer names a target without an address.

Signed zones need none of this: their look-ups say which moment they are about (`rspdns.pdns.domain_ids`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence

import orjson
from daemon_kit.logs import get_logger

from rspdns.answers.change import Change
from rspdns.answers.purges import DEPARTED_KEPT_S
from rspdns.answers.snapshot import ANY, NXDOMAIN, AnswersByAsker, NodeByAsker, Snapshot
from rspdns.dnssec.store import DnssecStore
from rspdns.pdns import remote, remote_dnssec
from rspdns.pdns.domain_ids import DomainIds
from rspdns.pdns.remote_dnssec import NAMES_AROUND, Chains
from rspdns.rrset import Node
from rspdns.zones.near import asker_of


class LeftTargets:
    """The nodes of the names that left. `now` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str | None, str], tuple[Node, float]] = {}
        """By zone and name: the node, and until when it is answered. The oldest first."""

    def __len__(self) -> int:
        return len(self._nodes)

    def note(self, change: Change, signed: Collection[str], now: float) -> None:
        """Keep the names that left with this change."""
        while self._nodes and self._nodes[first := next(iter(self._nodes))][1] < now:
            del self._nodes[first]
        for zone, of_zone in change.zones.items():
            for before, after in () if zone in signed else of_zone.moved_sites:
                for name in before.nodes.keys() - after.nodes.keys():
                    self._nodes.pop((zone, name), None)
                    self._nodes[zone, name] = before.nodes[name], now + DEPARTED_KEPT_S

    def node(self, zone: str | None, name: str, now: float) -> Node | None:
        """The node of a name that left its zone within `DEPARTED_KEPT_S`."""
        node, until_s = self._nodes.get((zone, name), (None, now))
        return node if now <= until_s else None


FAILURE = b"{}\n"
NOTHING = b'{"result":false}\n'
_SPARE_REPLIES = 1000
MAX_LINES, MAX_LINE_BYTES = 10_000, 1024
"""Requests whose meaning is kept; each names the client, so that there are more of them than names."""
_OTHER_METHODS = "other"
_READS = {**remote_dnssec.METADATA, **remote_dnssec.SECRETS}
KNOWN = frozenset((*remote.METHODS, *remote.UNSUPPORTED, *_READS, *remote_dnssec.WRITES, NAMES_AROUND))
"""Every method of PowerDNS 4.7, and more."""
_Asked = tuple[str | None, str, str]
"""Zone, name and type."""
OF_ANYBODY = NodeByAsker(None, 1)
"""The answer to an asker of whom nothing is known. Its scope: PowerDNS must not keep it, either."""
_OWN_FAULT = "failed inside the backend; its log says why"


class PdnsResponder:
    """Answers request lines from the current snapshot.

    Replies about names that exist are kept as bytes for as long as the name's node stays the same.
    `on_lookup` is called with every name that is looked up, in lower case without the final dot. `store`
    keeps what is about signing; without one no zone is signed.
    `queries` counts requests by method, `failures` those answered with a failure.
    """

    def __init__(
        self, on_lookup: Callable[[str], None] = lambda name: None, store: DnssecStore | None = None
    ) -> None:
        self.snapshot = Snapshot()
        self.store = store
        self.queries: Counter[str] = Counter()
        self.failures = 0
        self.clock = time.monotonic
        self._on_lookup = on_lookup
        self._kept: dict[_Asked, tuple[Node, bytes]] = {}
        self._most_kept = _SPARE_REPLIES
        self._asked: dict[bytes, _Asked] = {}
        """The meaning of a request now, by its bytes: PowerDNS asks the same again and again."""
        self._ids = DomainIds()
        self._chains = Chains(self._ids)
        self._departed = LeftTargets()
        self._log = get_logger("remote")

    def swap(self, change: Change) -> Sequence[str]:
        """Answer from the snapshot after this change. Return the names to purge before what changed."""
        signed = self.store.signed_zones() if self.store is not None else ()
        moved = self._ids.note(change, signed, self.clock())
        self._departed.note(change, signed, self.clock())
        if moved or change.after.made_of is not change.before.made_of:
            self._asked.clear()  # of this moment, which is an earlier one now; of zones that are others now
        self.snapshot = change.after
        return moved

    def respond(self, line: bytes) -> bytes | Awaitable[bytes]:
        """Return the reply to one line, its newline included; later, if it changes what is kept.

        Never raises, whatever the line holds.
        """
        try:
            asked = self._asked.get(line)
            if asked is not None and (reply := self._kept_reply(asked)) is not None:
                self.queries["lookup"] += 1
                self._on_lookup(asked[1])
                return reply
            method, parameters = remote.split(_decoded(line))
            if method == "lookup":
                self.queries["lookup"] += 1
                return self._lookup(line, parameters)
            return self.answer(method, parameters)
        except (remote.RequestError, remote.NoAnswer) as problem:
            return self._failed(str(problem))
        except Exception:
            self._log.exception("lookup_failed")
            return self._failed(_OWN_FAULT)

    def answer(self, method: str, parameters: remote.RequestParameters) -> bytes | Awaitable[bytes]:
        """Do what `respond()` does, for any method. Raises RequestError, NoAnswer."""
        known = method in KNOWN
        self.queries[method if known else _OTHER_METHODS] += 1
        if self.store is not None and method in remote_dnssec.WRITES:
            return self._change(method, parameters, self.store)
        if method == NAMES_AROUND:
            result: object = self._chains.around(parameters, self.snapshot, self.store, self.clock())
        elif method in remote.METHODS:
            result = remote.METHODS[method](parameters, self.snapshot)
        elif self.store is not None and method in _READS:
            result = _READS[method](parameters, self.snapshot, self.store)
        else:
            result = False
        return orjson.dumps({"result": result}) + b"\n"

    def _lookup(self, line: bytes, parameters: remote.RequestParameters) -> bytes:
        qname, qtype = remote.text_of(parameters, "qname"), remote.text_of(parameters, "qtype")
        name, number = qname.lower().removesuffix("."), parameters.get("zone-id")
        self._on_lookup(name)
        zone = self._ids.zone_name(number) or self.snapshot.zone_of(name)
        past = self._ids.past(number, self.clock())
        snapshot = past or self.snapshot
        if (by_asker := snapshot.by_asker(zone, name)) is not None:
            return self._reply_to_asker(zone, name, parameters, by_asker, snapshot)
        asked = zone, name, qtype
        reply = self._kept_reply(asked) if past is None else None
        if reply is None:
            absent = remote.name_of(parameters, "qname")
            if past is None and self.snapshot.lookup(absent, ANY, zone) is NXDOMAIN:
                return self._departed_reply(zone, absent, qtype)
            records = remote.lookup_in(zone, parameters, past or self.snapshot, self._ids.of)
            reply = orjson.dumps({"result": records}) + b"\n" if records else NOTHING
            node = self._node(asked)
            if node is None or past is not None:
                return reply
            self._keep(asked, node, reply)
        if len(line) <= MAX_LINE_BYTES:
            if len(self._asked) >= MAX_LINES:
                self._asked.clear()  # of clients that ask no more
            self._asked[line] = asked
        return reply

    def _reply_to_asker(
        self,
        zone: str | None,
        name: str,
        parameters: remote.RequestParameters,
        by_asker: AnswersByAsker,
        snapshot: Snapshot,
    ) -> bytes:
        """The reply about a name whose answers depend on the asker. PowerDNS keeps no record with a scope."""
        asker = asker_of(parameters.get("real-remote"))
        node, scope = OF_ANYBODY if asker is None else by_asker.answer(name, asker, self.clock())
        key = name, parameters.get("qtype"), id(node), scope
        if snapshot is self.snapshot and key in by_asker.replies:
            return by_asker.replies[key][1]
        records = remote.lookup_in(zone, parameters, snapshot, self._ids.of, node, scope)
        reply = orjson.dumps({"result": records}) + b"\n" if records else NOTHING
        if snapshot is self.snapshot:
            if len(by_asker.replies) >= MAX_LINES:
                by_asker.replies.clear()
            by_asker.replies[key] = node, reply
        return reply

    def _departed_reply(self, zone: str | None, name: str, qtype: str) -> bytes:
        """The reply about a name that does not exist: its records as long as an SRV answer may name it."""
        node = self._departed.node(zone, name, self.clock()) if self._departed else None
        records = node and [remote.as_reply(record) for record in node.records if qtype in (ANY, record.type)]
        return orjson.dumps({"result": records}) + b"\n" if records else NOTHING

    def _node(self, asked: _Asked) -> Node | None:
        zone, name, _ = asked
        nodes = self.snapshot.nodes.get(zone) if zone is not None else None
        return nodes.get(name) if nodes is not None else None

    def _kept_reply(self, asked: _Asked) -> bytes | None:
        kept = self._kept.get(asked)
        return kept[1] if kept is not None and kept[0] is self._node(asked) else None

    def _keep(self, asked: _Asked, node: Node, reply: bytes) -> None:
        if len(self._kept) > self._most_kept:
            self._most_kept = 2 * sum(map(len, self.snapshot.nodes.values())) + _SPARE_REPLIES
            if len(self._kept) > self._most_kept:
                self._kept.clear()  # names that are no more
        self._kept[asked] = node, reply

    async def _change(self, method: str, parameters: remote.RequestParameters, store: DnssecStore) -> bytes:
        try:
            reply = await remote_dnssec.change(method, parameters, self.snapshot, store)
        except Exception:
            self._log.exception("change_failed", method=method)
            reply = {"error": _OWN_FAULT}
        if "result" not in reply:
            self.failures += 1
        return orjson.dumps(reply) + b"\n"

    def _failed(self, reason: str) -> bytes:
        self.failures += 1
        return orjson.dumps({"error": reason}) + b"\n"


def _decoded(line: bytes) -> object:
    try:
        return orjson.loads(line)
    except ValueError:
        raise remote.RequestError("not JSON") from None
