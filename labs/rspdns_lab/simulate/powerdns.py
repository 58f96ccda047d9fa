"""A model of PowerDNS 4.7 with the remote backend: packet cache, query cache, and its control socket.

Kept: lives in whole seconds, a packet that lives as long as its lowest TTL, the query cache that ignores
TTLs, a look-up under way that puts an old answer back after a purge (no generation check), the packet cache
that is purged before the query cache, one look-up after the other for an SRV packet and its targets, SERVFAIL
that is not cached, a backend that is asked no longer than its timeout, and one command at a time at the
control socket. Left out: threads, DNSSEC, TCP, truncation.
"""

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from rspdns_lab.simulate.kernel import SimulatedProcess
from rspdns_lab.simulate.network import SimulatedNetwork

LOOKUP_S: Final = 0.0003
"""One question to the backend and its reply."""
PURGE_S: Final = 0.0006
"""From the packet cache's purge to the query cache's."""
CACHE_TTL_S, QUERY_TTL_S, NEGATIVE_TTL_S = 20, 2, 1
BACKEND_TIMEOUT_S: Final = 2.0

Records = tuple[dict[str, Any], ...]
BackendRespond = Callable[[bytes], Any]


@dataclass(frozen=True)
class Packet:
    """An answer: `rcode` NOERROR or SERVFAIL, the records asked for, and the addresses beside them."""

    rcode: str
    answer: Records = ()
    additional: Records = ()

    @cached_property
    def targets(self) -> list[str]:
        """The targets of SRV records."""
        return [record["content"].split()[-1].rstrip(".").lower() for record in self.answer]

    def addresses(self, name: str) -> list[str]:
        """The addresses of a target in this packet."""
        return self._addresses.get(name, [])

    @cached_property
    def _addresses(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for record in self.additional:
            found.setdefault(record["qname"].lower().rstrip("."), []).append(record["content"])
        return found


class PowerDnsModel:
    """One PowerDNS: made in its process. `respond` is the backend's responder, None while there is none.

    `backend` is the backend's process: a frozen or dead one is not heard.
    """

    def __init__(self, process: SimulatedProcess) -> None:
        self.process = process
        self.kernel = process.kernel
        self.respond: BackendRespond | None = None
        self.backend: SimulatedProcess | None = None
        self.is_control_stuck = False
        self.packets: dict[tuple[str, str], tuple[float, Packet]] = {}
        self._queries: dict[str, tuple[float, Records]] = {}

    # Questions

    def ask(self, name: str, kind: str, answered: Callable[[Packet], None]) -> None:
        """Answer a question; `answered` may be called before this returns. Runs in the process."""
        kept = self.packets.get((name, kind))
        if kept is not None and self._now < kept[0]:
            answered(kept[1])
        else:
            self._look_up(name, lambda records: self._answer(name, kind, records, answered))

    @property
    def _now(self) -> int:
        """The time in whole seconds, as both caches count."""
        return math.floor(self.kernel.now)

    def _look_up(self, name: str, then: Callable[[Records | None], None]) -> None:
        kept = self._queries.get(name)
        if kept is not None and self._now < kept[0]:
            then(kept[1])
            return
        self._ask_backend(name, then, self.kernel.now + BACKEND_TIMEOUT_S)

    def _ask_backend(self, name: str, then: Callable[[Records | None], None], until_s: float) -> None:
        backend, respond = self.backend, self.respond
        if backend is None or respond is None or not backend.is_alive:
            self._later(then, None)
        elif backend.is_frozen:
            if self.kernel.now >= until_s:
                self._later(then, None)
            else:
                self.process.call_later(0.05, self._ask_backend, name, then, until_s)
        else:
            self.kernel.push(self.kernel.now, backend, self._respond, (respond, name, then))

    def _respond(self, respond: BackendRespond, name: str, then: Callable[[Records | None], None]) -> None:
        """Runs in the backend's process."""
        question = {"method": "lookup", "parameters": {"qname": f"{name}.", "qtype": "ANY", "zone-id": -1}}
        reply = json.loads(respond(json.dumps(question).encode() + b"\n"))
        records = tuple(reply["result"] or ()) if "result" in reply else None
        self.kernel.push(self.kernel.now + LOOKUP_S, self.process, self._learn, (name, records, then))

    def _learn(self, name: str, records: Records | None, then: Callable[[Records | None], None]) -> None:
        if records is not None:
            self._queries[name] = self._now + (QUERY_TTL_S if records else NEGATIVE_TTL_S), records
        then(records)

    def _later(self, then: Callable[[Records | None], None], records: Records | None) -> None:
        self.kernel.push(self.kernel.now + LOOKUP_S, self.process, then, (records,))

    def _answer(
        self, name: str, kind: str, records: Records | None, answered: Callable[[Packet], None]
    ) -> None:
        if records is None:
            answered(Packet("SERVFAIL"))
            return
        answer = tuple(record for record in records if record["qtype"] == kind)
        packet = Packet("NOERROR", answer)
        names = iter(packet.targets if kind == "SRV" else ())
        self._add(name, kind, packet, names, answered)

    def _add(
        self, name: str, kind: str, packet: Packet, names: Any, answered: Callable[[Packet], None]
    ) -> None:
        """Look the targets' addresses up, one after the other, then send the packet and keep it."""
        target = next(names, None)
        if target is None:
            lives = [record["ttl"] for record in (*packet.answer, *packet.additional)]
            life_s = min([CACHE_TTL_S, *lives]) if lives else NEGATIVE_TTL_S
            if life_s:
                self.packets[name, kind] = self._now + life_s + (1 if life_s == 1 else 0), packet
            answered(packet)
            return

        def take(records: Records | None) -> None:
            found = tuple(record for record in records or () if record["qtype"] in ("A", "AAAA"))
            whole = Packet("NOERROR", packet.answer, (*packet.additional, *found))
            self._add(name, kind, whole, names, answered)

        self._look_up(target, take)

    # Commands

    def command(self, command: str) -> str:
        """Do what the control socket is told; return the reply. Runs in the process."""
        word, *names = command.split()
        if word != "PURGE":
            return "PONG" if word == "RPING" else "Ok"
        count = len([self.packets.pop(key) for key in tuple(self.packets) if _is_meant(key[0], names)])
        self.kernel.push(self.kernel.now + PURGE_S, self.process, self._purge_queries, (names,))
        return str(count)

    def _purge_queries(self, names: list[str]) -> None:
        for key in [key for key in self._queries if _is_meant(key, names)]:
            del self._queries[key]


def _is_meant(name: str, names: list[str]) -> bool:
    return any(
        name == wanted or (wanted.endswith("$") and (name == wanted[:-1] or name.endswith("." + wanted[:-1])))
        for wanted in names
    )


class ControlExchange:
    """One command to a control socket, in place of the purger's own."""

    network: SimulatedNetwork

    def __init__(self, path: str, command: str) -> None:
        self.command = command
        loop = asyncio.get_running_loop()
        self._reply: asyncio.Future[bytes] = loop.create_future()
        model: PowerDnsModel | None = self.network.here.listeners.get(("control", 0))
        del path
        if model is None or not model.process.is_alive:
            self._reply.set_exception(ConnectionRefusedError())
            self._reply.exception()  # it may be that nobody asks
        elif not model.is_control_stuck:
            kernel = self.network.kernel
            kernel.push(kernel.now + LOOKUP_S, model.process, self._do, (model, kernel.running))

    def _do(self, model: PowerDnsModel, asker: SimulatedProcess) -> None:
        reply = model.command(self.command).encode()
        kernel = self.network.kernel
        kernel.push(kernel.now + PURGE_S + LOOKUP_S, asker, self._done, (reply,))

    def _done(self, reply: bytes) -> None:
        if not self._reply.done():
            self._reply.set_result(reply)

    def close(self) -> None:
        """Drop the reply."""

    async def reply(self) -> bytes:
        """The reply. Raises OSError."""
        return await self._reply
