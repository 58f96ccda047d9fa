"""From the bytes of a request to the bytes of its reply, fast: every uncached DNS answer passes here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import orjson
from daemon_kit.logs import get_logger

from rspdns import remote
from rspdns.snapshot import Node, Snapshot

FAILURE = b"{}\n"
NOTHING = b'{"result":false}\n'
_SPARE_REPLIES = 1000
_OTHER_METHODS = "other"
_OWN_FAULT = "failed inside the backend; its log says why"


class Responder:
    """Answers request lines from the current snapshot.

    Replies to lookups that found something are kept as bytes for as long as the name's node stays the same.
    `on_lookup` is called with every name that is looked up, in lower case without the final dot.
    `queries` counts requests by method, `failures` those answered with a failure.
    """

    def __init__(self, on_lookup: Callable[[str], None] = lambda name: None) -> None:
        self.snapshot = Snapshot()
        self.queries: Counter[str] = Counter()
        self.failures = 0
        self._on_lookup = on_lookup
        self._kept: dict[tuple[str, str], tuple[Node, bytes]] = {}
        self._log = get_logger("remote")

    def swap(self, snapshot: Snapshot) -> None:
        """Answer from this snapshot from now on."""
        self.snapshot = snapshot

    def respond(self, line: bytes) -> bytes:
        """Return the reply to one line, its newline included. Never raises, whatever the line holds."""
        try:
            request = orjson.loads(line)
        except ValueError:
            return self._failed("not JSON")
        try:
            method, parameters = remote.split(request)
            if method == "lookup":
                self.queries["lookup"] += 1
                return self._lookup(parameters)
            known = method in remote.METHODS
            self.queries[method if known else _OTHER_METHODS] += 1
        except (remote.RequestError, remote.NoAnswer) as problem:
            return self._failed(str(problem))
        except Exception:
            self._log.exception("lookup_failed")
            return self._failed(_OWN_FAULT)
        return self._other(request)

    def _lookup(self, parameters: remote.Parameters) -> bytes:
        qname, qtype = parameters.get("qname"), parameters.get("qtype")
        if not isinstance(qname, str) or not isinstance(qtype, str):
            raise remote.RequestError("a lookup has a qname and a qtype")
        name = qname.lower().removesuffix(".")
        self._on_lookup(name)
        kept = self._kept.get((name, qtype))
        if kept is not None and kept[0] is self.snapshot.nodes.get(name):
            return kept[1]
        records = remote.lookup(parameters, self.snapshot)
        if not records:
            return NOTHING
        reply = orjson.dumps({"result": records}) + b"\n"
        node = self.snapshot.nodes.get(name)
        if node is not None:
            self._keep((name, qtype), node, reply)
        return reply

    def _keep(self, key: tuple[str, str], node: Node, reply: bytes) -> None:
        if len(self._kept) > 2 * len(self.snapshot.nodes) + _SPARE_REPLIES:
            self._kept.clear()  # names that are no more
        self._kept[key] = node, reply

    def _other(self, request: object) -> bytes:
        try:
            reply = remote.handle(request, self.snapshot)
        except Exception:
            self._log.exception("request_failed")
            reply = {"error": _OWN_FAULT}
        if "result" not in reply:
            self.failures += 1
        return orjson.dumps(reply) + b"\n"

    def _failed(self, reason: str) -> bytes:
        self.failures += 1
        return orjson.dumps({"error": reason}) + b"\n"
