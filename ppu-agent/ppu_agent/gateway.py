"""`[gateway]`: guards connection set-up through a box between clients and servers, by the program ppu-guard.

`guarded()` says which destinations; `Gateway` starts ppu-guard, tells it of them, and keeps what it counts.
ppu-guard and its BPF program do the rest (`guard/`, a product of its own). When the agent is silent for 3 s
they let everything pass; when it ends, ppu-guard takes its program out of the interfaces, and ends, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from pyroute2 import IPRoute

from ppu_agent.destinations import Address, Destination
from ppu_agent.plan import Plan, Way
from rserpool import Protocol

PROGRAM: Final = Path(__file__).parent / "kernel" / "ppu-guard"
LOG_EVERY_S: Final = 10.0
RENEW_EVERY_S: Final = 1.0
_RESTART_AFTER_S: Final = 1.0
_HUNG_AFTER_S: Final = 10.0
_MOST_UNSENT: Final = 1 << 20
_PROBED_FOR_S: Final = 20.0
_NETWORK_SETTINGS: Final = Path("/proc/sys/net")
COUNTERS: Final[Mapping[str, str]] = {
    "guarded": "Set-ups that were noted, to be repeated while nobody answers.",
    "answered": "Set-ups that their server accepted.",
    "refused": "Set-ups that their server, or the network, refused.",
    "repeated": "Repetitions that were sent.",
    "given_up": "Set-ups that nobody answered: the client was sent a refusal.",
    "swallowed": "Repetitions of clients that were not passed on.",
    "replaced": "Set-ups that their client began anew.",
    "full": "Set-ups that passed unguarded: the table had no room.",
    "behind": "Set-ups that passed unguarded: ppu-guard had no processor for too long.",
    "unfit": "Set-ups that passed unguarded: their form is not repeated (data in a SYN, a long INIT).",
    "unlike": "Set-ups that passed unguarded: too many forms of SYN at a time.",
    "unattended": "Set-ups that passed unguarded: ppu-guard did not run.",
    "forged": "Answers that did not fit what was sent; they passed, and ended nothing.",
    "unsent": "Repetitions and refusals that the interface did not take.",
}
"""The counters of ppu-guard; in `status` with `_count` behind."""
_TRANSPORTS: Final = {Protocol.TCP: "tcp", Protocol.SCTP: "sctp"}


def guarded(plan: Plan) -> frozenset[Destination]:
    """Return the destinations whose connection set-up is guarded: members, fronts, and members that left.

    Members that left are guarded while they are remembered: it may not be known yet that they are dead.
    """
    found = {place.destination for place in plan.places_by(Way.GUARD)}
    found.update(front.destination for front in plan.fronts)
    return frozenset(destination for destination in found if destination.protocol in _TRANSPORTS)


def links_here() -> dict[str, str | None]:
    """The interfaces of this network namespace, and the bridge that each is a port of."""
    with IPRoute() as netlink:
        links = list(netlink.get_links())
    names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in links}
    return {
        link.get_attr("IFLA_IFNAME"): names.get(link.get_attr("IFLA_MASTER"))
        if _slave_kind(link) == "bridge"
        else None
        for link in links
    }


def _slave_kind(link: Any) -> str | None:
    info = link.get_attr("IFLA_LINKINFO")
    kind: str | None = info.get_attr("IFLA_INFO_SLAVE_KIND") if info is not None else None
    return kind


def problems_of(
    interfaces: Iterable[str], links: Mapping[str, str | None], settings: Path = _NETWORK_SETTINGS
) -> Iterator[str]:
    """The lacks of this host for a gateway at these interfaces, in words. `links`: see `links_here()`."""
    seen = [f"bridge/bridge-nf-call-{tables}" for tables in ("iptables", "ip6tables")]
    for name in interfaces:
        if name not in links:
            yield f"there is no interface {name} now"
        elif bridge := links[name]:
            if lacking := _off(settings, seen):
                yield (
                    f"{name} is a port of a bridge, and {lacking} is not 1: on_dead does not see "
                    "what is bridged (modprobe br_netfilter)"
                )
            if lacking := _off(settings, [f"ipv4/conf/{bridge}/forwarding"]):
                yield (
                    f"{name} is a port of the bridge {bridge}, and {lacking} is not 1: "
                    "the kernel drops what on_dead redirects there by IPv4"
                )


def _off(settings: Path, names: Iterable[str]) -> str:
    """Those of these settings that are not 1, as sysctl takes them."""
    off = [name for name in names if not _is_on(settings / name)]
    return " and ".join("net." + name.translate(str.maketrans("/.", "./")) for name in off)


def probe() -> str | None:
    """Whether the kernel takes ppu-guard's program and this user may load it: None, or what is wrong."""
    if not PROGRAM.exists():
        return f"{PROGRAM} is missing: `make -C ppu-agent` builds it (clang, libbpf-dev)"
    try:
        done = subprocess.run(
            [str(PROGRAM), "--probe"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBED_FOR_S,
            env=_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{PROGRAM} can't be run: {problem}"
    return None if done.returncode == 0 else done.stderr.strip() or f"ppu-guard ended with {done.returncode}"


class Gateway:
    """Runs ppu-guard, and starts it again when it ended or hangs."""

    def __init__(self, interfaces: Sequence[str], *, learns: bool, max_pending: int) -> None:
        self.interfaces = tuple(interfaces)
        self._learns = learns
        self._max_pending = max_pending
        self._guarded: frozenset[Destination] = frozenset()
        self._process: asyncio.subprocess.Process | None = None
        self._told: dict[str, Any] = {}
        self._told_at_s = 0.0
        self._words = ""
        self._log = get_logger("gateway")
        self.starts = 0

    def set(self, destinations: frozenset[Destination]) -> None:
        """Guard set-up to these destinations, and to no others."""
        if destinations != self._guarded:
            self._guarded = destinations
            self._tell_members()

    async def start(self) -> None:
        """Start ppu-guard. Raises FatalError when this host can't."""
        problem = await asyncio.to_thread(probe)
        if problem is not None:
            raise FatalError(f"gateway: {problem}")
        await self._start()

    async def run(self) -> None:
        """Keep it running and its lease renewed, until cancelled; then end it."""
        log = asyncio.create_task(self._log_counters())
        try:
            while True:
                await self._serve()
                self._log.warning("guard_ended", words=self._words)
                await asyncio.sleep(_RESTART_AFTER_S)
                with contextlib.suppress(OSError):
                    await self._start()
        finally:
            log.cancel()
            await self._end()

    def describe(self) -> dict[str, Any]:
        """Its state, for status: counters since ppu-guard began, and what waits now."""
        counts = {f"{name}_count": int(self._told.get(f"{name}_count", 0)) for name in COUNTERS}
        interfaces = self._told.get("interfaces", {})
        return {
            "interfaces": [
                {"name": name, "problem": interfaces.get(name, self._words or "not attached yet") or None}
                for name in self.interfaces
            ],
            "repeat": "rtt" if self._learns else "fixed",
            "guarded": sorted(str(destination) for destination in self._guarded),
            "pending": int(self._told.get("pending", 0)),
            "max_pending": self._max_pending,
            "memory_bytes": int(self._told.get("bytes", 0)),
            "start_count": self.starts,
            **counts,
        }

    def explained(self, explanation: Mapping[str, Any], address: Address, port: int) -> dict[str, Any]:
        """An explanation, with what happens here to connection set-up to that address and port."""
        names = sorted(
            _TRANSPORTS[destination.protocol]
            for destination in self._guarded
            if destination.endpoint == (address, port)
        )
        when = "repeated after 500, 1000 and 1500 ms, refused after 2000 ms"
        if self._learns:
            when = "repeated every 1.5 round trips, three times, then refused (unknown: every 500 ms)"
        words = [f"{name}: set-up through {', '.join(self.interfaces)} is guarded: {when}" for name in names]
        return {**explanation, "guarded": names, "words": [*explanation["words"], *words]}

    # Within

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            str(PROGRAM),
            "--pending",
            str(self._max_pending),
            *self.interfaces,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
        )
        self.starts += 1
        self._told_at_s = time.monotonic()
        self._told = {}
        self._tell_members()

    async def _serve(self) -> None:
        """Renew the lease and hear what is told, until ppu-guard ends."""
        process = self._process
        if process is None or process.stdout is None:
            return
        renewing = asyncio.create_task(self._renew(process))
        try:
            while line := await process.stdout.readline():
                try:
                    self._told = dict(json.loads(line))
                except ValueError:
                    self._words = line.decode(errors="replace").strip()
                    continue
                self._told_at_s = time.monotonic()
        finally:
            renewing.cancel()
        await process.wait()

    async def _renew(self, process: asyncio.subprocess.Process) -> None:
        while True:
            self._write("renew\n")
            if time.monotonic() - self._told_at_s > _HUNG_AFTER_S:
                self._words = f"ppu-guard hung for {_HUNG_AFTER_S:g} s"
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await asyncio.sleep(RENEW_EVERY_S)

    def _tell_members(self) -> None:
        pace = "rtt" if self._learns else "fixed"
        members = [
            f"member {member.address} {member.port} {_TRANSPORTS[member.protocol]} {pace}\n"
            for member in self._guarded
        ]
        self._write("".join([*members, "commit\n"]))

    def _write(self, text: str) -> None:
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            return
        if process.stdin.transport.get_write_buffer_size() < _MOST_UNSENT:  # else it hangs, and is ended
            process.stdin.write(text.encode())

    async def _log_counters(self) -> None:
        """State counters every ten seconds in which something happened."""
        before: dict[str, Any] = {}
        while True:
            await asyncio.sleep(LOG_EVERY_S)
            state = self.describe()
            now = {name: state[name] for name in ("pending", *(f"{name}_count" for name in COUNTERS))}
            if now != before:
                self._log.info("guard", **now)
            before = now

    async def _end(self) -> None:
        """End ppu-guard, which takes its program out of the interfaces."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(2.0):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def rendered(gateway: Mapping[str, Any]) -> Iterator[str]:
    """Lines of `status`."""
    for interface in gateway["interfaces"]:
        yield f"gateway {interface['name']}: {interface['problem'] or 'guarded'}"
    counts = ", ".join(
        f"{name.replace('_', ' ')} {gateway[f'{name}_count']}"
        for name in COUNTERS
        if gateway[f"{name}_count"]
    )
    yield (
        f"set-ups to {len(gateway['guarded'])} destinations: {gateway['pending']} wait now "
        f"(room for {gateway['max_pending']}){': ' if counts else ''}{counts}"
    )


def _environment() -> dict[str, str]:
    """Without sctp-run's library: ppu-guard speaks no SCTP itself."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def _is_on(setting: Path) -> bool:
    try:
        return setting.read_text().strip() == "1"
    except OSError:
        return False


def lines(interfaces: Sequence[str], destinations: Collection[Destination]) -> Iterator[str]:
    """The gateway's lines of `check`; loads ppu-guard's program for a moment."""
    where = ", ".join(interfaces)
    yield f"gateway: set-up through {where} to {len(destinations)} destinations would be guarded now"
    for problem in (*problems_of(interfaces, links_here()), probe()):
        if problem is not None:
            yield f"gateway: {problem}"
