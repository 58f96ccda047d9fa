"""The cost of strangers: look-ups of a quiet pool while somebody fills another pool of the same backend.

Real are two or three registrars, the backend, PowerDNS; simulated are the members of the quiet pool and the
strangers: thousands of elements inside `accept` of the other pool, or outside it, at 500 registrations a
second; or in the quiet pool itself, beside its members; or one of the registrars lies (a handle table of
30,000 elements, thousands of updates a second).
"""

import contextlib
import functools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import dns.message
from daemon_kit.control import ControlError, request

from rspdns_lab.bench.part import Part, Run
from rspdns_lab.bench.scale_files import ZONE, handle_of, target, write_files
from rspdns_lab.bench.site import PATIENCE_S, RARELY, BenchSite, site
from rspdns_lab.chain.asking import Asker
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import call_in, processes_in
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Columns, Section, table_of
from rspdns_lab.report.plots import COLOURS, RED, Curves, Dots, share_below

REGISTRARS: Final = ("10.78.0.11", "10.78.0.12", "10.78.0.13")
BACKEND: Final = "10.78.0.21"
MEMBERS_AT: Final = "10.78.0.32"
INSIDE: Final = "10.78.0.33"
OUTSIDE: Final = "10.78.0.41"
LIES: Final = "10.128.0.1"
ACCEPT: Final = ("10.78.0.32/31", "10.128.0.0/9")
KINDS: Final = ("quiet", "inside", "beside", "outside", "lying")
QUICK_KINDS: Final = ("inside",)
ELEMENTS: Final = 4000
PER_S: Final = 500
TABLE: Final = 30_000
LIES_PER_S: Final = 5000
BOUND_MS: Final = 5.0
"""The aim for the 99th percentile over the connector."""
SIP, CROWD = 0, 1
"""The quiet pool, and the other one."""
_MEMBERS: Final = 3
_LOWEST_PRIORITY: Final = 19
_OWNER: Final = f"_sip._udp.as{SIP}.{ZONE}"


@dataclass(frozen=True)
class Strangers:
    """Times in ms: of look-ups of the quiet pool over the connector's socket, of questions about it to
    PowerDNS, and from the moment one of its members leaves until DNS shows it.

    `refused`: registrations that the backend refused before it stored anything.
    """

    stranger: str
    lookups: int
    lookup_p50_ms: float
    lookup_p99_ms: float
    lookup_max_ms: float
    unanswered: int
    dns_p50_ms: float
    dns_p99_ms: float
    dns_max_ms: float
    dns_unanswered: int
    gone_p50_ms: float | None
    gone_max_ms: float | None
    refused: int
    lookups_ms: Sequence[float] = field(default_factory=list, repr=False)
    """The percentiles 1 to 100 of the look-ups."""
    gone_ms: Sequence[float] = field(default_factory=list, repr=False)
    """The times of all members that left; both are empty in older reports."""


def run_strangers(run: Run, found: Sequence[Strangers]) -> Iterator[Sequence[Strangers]]:
    """Start everything, ask beside each of KINDS, end it. Raises LabError."""
    done = {strangers.stranger for strangers in found}
    for kind in QUICK_KINDS if run.quick else KINDS:
        if kind not in done:
            with site(run.prefix, run.folder / f"strangers-{kind}") as made:
                run.say(f"strangers, {kind}: starting")
                measured = _StrangersSite(made, kind).measure(3.0 * run.seconds)
            run.say(
                f"strangers, {kind}: a look-up of another pool p50 {measured.lookup_p50_ms:.2f} ms, "
                f"p99 {measured.lookup_p99_ms:.2f}, max {measured.lookup_max_ms:.2f}; through PowerDNS p99 "
                f"{measured.dns_p99_ms:.2f}, max {measured.dns_max_ms:.2f}; gone from DNS p50 "
                f"{measured.gone_p50_ms} ms"
            )
            yield [measured]


class _Questions(threading.Thread):
    """Asks `ask` again and again, `every_s`; `times_ms` are those of the answers."""

    def __init__(self, ask: Callable[[], bool], every_s: float) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self._every_s = every_s
        self._is_over = False
        self.times_ms: list[float] = []
        self.unanswered = 0

    def run(self) -> None:
        while not self._is_over:
            began_s = time.monotonic()
            if self._ask():
                self.times_ms.append(1000 * (time.monotonic() - began_s))
            else:
                self.unanswered += 1
            time.sleep(self._every_s)

    def end(self) -> None:
        self._is_over = True
        self.join()


class _StrangersSite:
    def __init__(self, made: BenchSite, kind: str) -> None:
        self._site, self._kind = made, kind
        hosts = made.hosts(REGISTRARS)
        self._backend_host = made.network.add_host("ns", BACKEND)
        self._members_host = made.network.add_host("pes", MEMBERS_AT)
        self._strangers_host = made.network.add_host("them", OUTSIDE if kind == "outside" else INSIDE)
        self._others = (*hosts, self._strangers_host)
        self._liar = hosts.pop() if kind == "lying" else None
        self._honest = [host.address for host in hosts]
        for number, host in enumerate(hosts, 1):
            made.registrar(number, host, REGISTRARS, RARELY)
            made.sentinel(number, host)
        write_files(made.folder / "ns", BACKEND, list(REGISTRARS), 2)
        zone = made.folder / "ns/zones.d" / f"{ZONE}.toml"
        zone.write_text(zone.read_text().replace('["10.0.0.0/8"]', json.dumps(ACCEPT)))

    def measure(self, seconds: float) -> Strangers:
        words: tuple[object, ...] = (MEMBERS_AT, 1, _MEMBERS, self._site.control, *self._honest)
        members = self._site.python("elements", self._members_host, "rspdns_lab.bench.pool_elements", *words)
        wait_until(self._site.control.exists, "registration of every member", PATIENCE_S, members)
        if self._liar is not None:
            words = ("flood", self._liar.address, len(REGISTRARS), handle_of(CROWD), TABLE, LIES_PER_S, LIES)
            self._site.python("liar", self._liar, "rspdns_lab.chain.lying_registrar", *words)
        files = self._site.folder / "ns"
        words = ("serve", f"--config={files}/rspdns.toml")
        backend = self._site.python("backend", self._backend_host, "rspdns.cli", *words)
        wait_until((files / "remote.sock").exists, "the backend's socket", PATIENCE_S, backend)
        pdns = self._site.start("pdns", self._backend_host, ["pdns_server", f"--config-dir={files}"])
        self._asker: Asker = call_in(self._members_host.path, functools.partial(Asker, BACKEND))
        self._site.cleanup.callback(self._asker.close)
        wait_until(self._all_shown, "every member in DNS", PATIENCE_S, backend, pdns)
        wait_until(self._is_followed, "registrars that push changes", PATIENCE_S, backend, pdns)
        if self._kind in ("inside", "beside", "outside"):
            pool = handle_of(SIP if self._kind == "beside" else CROWD)
            words = (self._strangers_host.address, pool, ELEMENTS, PER_S, *self._honest)
            module = "rspdns_lab.bench.stranger_elements"
            strangers = self._site.python("strangers", self._strangers_host, module, *words)
            wait_until(lambda: "registered" in strangers.log.read_text(), "strangers", PATIENCE_S, strangers)
        self._yield_processors()
        lookups = _Questions(self._connector(), 0.002)
        over_dns = _Questions(self._dns(), 0.005)
        for questions in (lookups, over_dns):
            questions.start()
        if self._kind == "beside":  # an answer shows some of a thousand members
            gone_ms = []
            time.sleep(seconds)
        else:
            gone_ms = sorted(self._changes(time.monotonic() + seconds))
        for questions in (lookups, over_dns):
            questions.end()
        return Strangers(
            stranger=self._kind,
            lookups=len(lookups.times_ms),
            **{f"lookup_{key}": value for key, value in _times(lookups.times_ms).items()},
            unanswered=lookups.unanswered,
            **{f"dns_{key}": value for key, value in _times(over_dns.times_ms).items()},
            dns_unanswered=over_dns.unanswered,
            gone_p50_ms=percentile(gone_ms, 50) if gone_ms else None,
            gone_max_ms=max(gone_ms, default=None),
            refused=self._refused(),
            lookups_ms=[round(percentile(lookups.times_ms, part), 3) for part in range(1, 101)],
            gone_ms=gone_ms,
        )

    def _yield_processors(self) -> None:
        """Give the programs on the hosts of others the lowest priority.

        They have processors of their own outside the lab. Here they keep two processors busy, and a look-up
        would wait for them, not for the backend: each session has an equal share (`sched_autogroup`).
        """
        for host in self._others:
            for process in processes_in(host.path):
                with contextlib.suppress(OSError):
                    Path(f"/proc/{process}/autogroup").write_text(str(_LOWEST_PRIORITY))
                for thread in Path(f"/proc/{process}/task").iterdir():
                    with contextlib.suppress(ProcessLookupError):
                        os.setpriority(os.PRIO_PROCESS, int(thread.name), _LOWEST_PRIORITY)

    def _changes(self, end_s: float) -> Iterator[float]:
        """Have members of the quiet pool leave and come back until then; yield how long DNS showed them, in
        ms."""
        index = 0
        while True:
            at_s = float(self._site.tell("leave", pool=SIP, index=index)["at_s"])
            self._wait_shown(index, at_s, is_shown=False)
            yield round(1000 * (time.monotonic() - at_s), 1)
            self._wait_shown(
                index, float(self._site.tell("join", pool=SIP, index=index)["at_s"]), is_shown=True
            )
            index = (index + 1) % _MEMBERS
            if time.monotonic() > end_s:
                return
            time.sleep(0.3)

    def _wait_shown(self, index: int, since_s: float, *, is_shown: bool) -> None:
        while (target(SIP, index) in self._asker.targets(_OWNER)) != is_shown:
            if time.monotonic() > since_s + PATIENCE_S:
                raise LabError("DNS does not follow a member of the quiet pool")
            time.sleep(0.001)

    def _all_shown(self) -> bool:
        return len(self._asker.targets(_OWNER)) == _MEMBERS

    def _connector(self) -> Callable[[], bool]:
        """A question over the connector's socket, as PowerDNS asks it."""
        connection = socket.socket(socket.AF_UNIX)
        self._site.cleanup.callback(connection.close)
        connection.settimeout(30)
        connection.connect(f"{self._site.folder}/ns/remote.sock")
        reader = connection.makefile("rb")
        self._site.cleanup.callback(reader.close)
        asked = {"qname": f"{_OWNER}.", "qtype": "SRV", "zone-id": -1}
        line = json.dumps({"method": "lookup", "parameters": asked}).encode() + b"\n"

        def ask() -> bool:
            connection.sendall(line)
            return b"SRV" in reader.readline()

        return ask

    def _dns(self) -> Callable[[], bool]:
        """A question to PowerDNS."""
        sock = call_in(self._members_host.path, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._site.cleanup.callback(sock.close)
        sock.settimeout(2)
        sock.connect((BACKEND, 53))
        numbers = iter(range(1, 1 << 62))

        def ask() -> bool:
            query = dns.message.make_query(_OWNER, "SRV", id=next(numbers) % 65536).to_wire()
            sock.send(query)
            with contextlib.suppress(TimeoutError):
                while True:
                    reply = sock.recv(65535)
                    if reply[:2] == query[:2]:
                        return int.from_bytes(reply[6:8], "big") > 0
            return False

        return ask

    def _status(self) -> dict[str, Any]:
        try:
            return request(self._site.folder / "ns/admin.sock", "status", timeout_s=PATIENCE_S)
        except ControlError as error:
            raise LabError(f"the backend's status: {error}") from None

    def _is_followed(self) -> bool:
        registrars = self._status()["registrars"]
        return all(
            registrar["follow"] == "enrp" for registrar in registrars if registrar["address"] in self._honest
        )

    def _refused(self) -> int:
        pools = (pool for zone in self._status()["zones"] for pool in zone["pools"])
        return sum(sum(pool.get("refused", {}).values()) for pool in pools)


def _times(times_ms: Sequence[float]) -> dict[str, float]:
    if not times_ms:
        raise LabError("no question was answered")
    ordered = sorted(times_ms)
    return {
        "p50_ms": round(percentile(ordered, 50), 3),
        "p99_ms": round(percentile(ordered, 99), 3),
        "max_ms": round(ordered[-1], 3),
    }


_TEXT: Final = (
    "Look-ups of a quiet pool while somebody fills another pool of the same backend: 4,000 pool elements at "
    "500 registrations a second inside the networks that the pool accepts, or outside them; or a registrar "
    "that lies: a handle table of 30,000 elements, 5,000 updates a second. Strangers and registrars yield "
    "the processors, as hosts of their own would."
)
OF_STRANGERS: Final = (
    "lookup_p50_ms", "lookup_p99_ms", "lookup_max_ms", "dns_p99_ms", "dns_max_ms", "gone_p50_ms", "refused"
)  # fmt: skip


def _gone(time_ms: float | None) -> str:
    return "" if time_ms is None else f"{time_ms:.1f}"


_COLUMNS: Final[Columns[Strangers]] = (
    *(("strangers", "{stranger}"), ("look-up p50 ms", "{lookup_p50_ms:.2f}")),
    *(("look-up p99 ms", "{lookup_p99_ms:.2f}"), ("look-up max ms", "{lookup_max_ms:.2f}")),
    *(("DNS p99 ms", "{dns_p99_ms:.2f}"), ("DNS max ms", "{dns_max_ms:.2f}")),
    ("aimed at, p99 of look-ups", lambda _: f"{BOUND_MS:g} ms"),
)
_LEFT: Final[Columns[Strangers]] = (
    ("strangers", "{stranger}"),
    ("gone p50 ms", lambda row: _gone(row.gone_p50_ms)),
    ("gone max ms", lambda row: _gone(row.gone_max_ms)),
    ("registrations refused", "{refused:,}"),
)


def _sections(found: Sequence[Strangers]) -> list[Section]:
    shown = [(row, colour) for row, colour in zip(found, COLOURS, strict=False) if row.lookups_ms]
    curves = [share_below(row.stranger, row.lookups_ms, colour) for row, colour in shown]
    caption = (
        "Look-ups of the quiet pool that were answered after this time. Dashed: what is aimed at for 99 %."
    )
    lookups = Curves(caption, "ms", "% of the look-ups", curves, "x", [(BOUND_MS, RED)])
    left = [row for row in found if row.gone_max_ms is not None]
    gone = Dots(
        "From the moment that a member leaves until DNS shows it, a dot for each time.",
        "ms",
        [row.stranger for row in left],
        {"times": [row.gone_ms or (row.gone_p50_ms or 0.0, row.gone_max_ms or 0.0) for row in left]},
    )
    text = "A member of the quiet pool leaves and comes back, again and again."
    return [
        Section("Strangers", _TEXT, table_of(_COLUMNS, found), [lookups] if curves else []),
        Section("A member leaves beside strangers", text, table_of(_LEFT, found), [gone] if left else []),
    ]


PART: Final = Part(
    "strangers",
    "What strangers can do",
    (Strangers,),
    run_strangers,
    _sections,
    lambda found: {
        f"strangers_{row.stranger}_{key}": getattr(row, key) for row in found for key in OF_STRANGERS
    },
    lambda fields: Strangers(**fields),
)
