"""The measurements: one set-up to a silent address, many set-ups with and without the guard, its memory."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from statistics import median
from typing import Any, Final, Literal

from ppu_agent.kernel import PaceError, Pacer, Pacing
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import call_in

from guard_bench.lab import PORT, SILENT, GuardLab, GuardPlace, ProcessorUse, memory_bytes

Mode = Literal["nothing", "host", "gateway"]
WATCHED_S: Final = 3.5
"""The time for which a client without help is watched: its kernel would go on for two minutes."""
GIVEN_UP_WITHIN_MS: Final = 2500
_PACED: Final = Pacing(500, 2000, learns=False)
_ETH_P_ALL: Final = 3
_LAST_REPLY_MS: Final = 3000
_PENDING_PER_S: Final = 60_000
_BURST: Final = 16
_DROPPED: Final = 0.001
"""The share of SYNs that the responder drops on the average, under load."""


@dataclass(frozen=True)
class SetUp:
    """One connect() to a silent address. Times since it was called.

    `syns_ms`: when SYNs came to the server's host; `ended_ms`: when connect() returned, `ended` with what.
    """

    mode: Mode
    way: GuardPlace
    syns_ms: Sequence[float]
    ended_ms: float | None
    ended: str
    kind: str = "set-up"


@dataclass(frozen=True)
class Load:
    """Many set-ups, by turns without and with the guard. Delays in us: without it, medians over the rounds.

    `added_*`: with the guard less without, each round by itself. `open`: set-ups that nobody closed, which
    must be none with the guard. `processor_us`: the guard's processor time for each set-up.
    """

    way: GuardPlace
    rate_per_s: int
    reached_per_s: int
    rounds: int
    sent: int
    accepted: int
    refused: int
    open: int
    unguarded: int
    syn_p50_us: float
    syn_p99_us: float
    answer_p50_us: float
    answer_p99_us: float
    added_syn_p50_us: float
    added_syn_p99_us: float
    added_answer_p50_us: float
    added_answer_p99_us: float
    processor_us: float
    kind: str = "load"


@dataclass(frozen=True)
class Memory:
    """The memory with a number of set-ups that wait at a time. `held`: the most that the guard held;
    `refused`: in the end."""

    pending: int
    held: int
    refused: int
    memory_bytes: int
    kind: str = "memory"


GuardTrial = SetUp | Load | Memory


def read_trial(fields: Mapping[str, Any]) -> GuardTrial:
    """Return one as `asdict` gave it to JSON. Raises TypeError or LookupError for something else."""
    kinds: dict[str, type[GuardTrial]] = {"set-up": SetUp, "load": Load, "memory": Memory}
    return kinds[fields["kind"]](**fields)


def measure_set_ups(way: GuardPlace, modes: Sequence[Mode], say: Callable[[str], None]) -> Iterator[SetUp]:
    """Connect to a silent address in each mode. Raises LabError."""
    with GuardLab(way) as lab:
        for mode in modes:
            say(f"one set-up to a silent address, {way}, guarded by: {mode}")
            yield _set_up(lab, mode)


def _set_up(lab: GuardLab, mode: Mode) -> SetUp:
    with contextlib.ExitStack() as cleanup:
        if mode == "gateway":
            cleanup.callback(lab.guard([SILENT], 1000).stop)
        elif mode == "host":
            try:
                pacer: Pacer = call_in(lab.client.path, Pacer)
                cleanup.callback(pacer.close)
                pacer.set({(ip_address(SILENT), PORT): _PACED})
            except PaceError as problem:
                raise LabError(f"pace: {problem}") from None
        listening: socket.socket = call_in(
            lab.server.path,
            lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)),
        )
        cleanup.enter_context(listening)
        listening.bind(("eth0", _ETH_P_ALL))
        listening.settimeout(0.1)
        times_s: list[float] = []
        is_over = threading.Event()

        def listen() -> None:
            while not is_over.is_set():
                with contextlib.suppress(TimeoutError):
                    frame = listening.recv(2048)
                    if frame[12:14] == b"\x08\x00" and frame[23] == 6 and frame[47] == 2:
                        times_s.append(time.monotonic())

        listener = threading.Thread(target=listen)
        listener.start()
        began_s = time.monotonic()
        error: int = call_in(lab.client.path, _connect)
        ended_s = time.monotonic()
        is_over.set()
        listener.join()
    gave_up = error != errno.EAGAIN
    return SetUp(
        mode,
        lab.way,
        [round((at_s - began_s) * 1000, 1) for at_s in times_s],
        round((ended_s - began_s) * 1000, 1) if gave_up else None,
        errno.errorcode.get(error, str(error)) if gave_up else "waits on",
    )


def _connect() -> int:
    with socket.socket() as client:
        client.settimeout(WATCHED_S)
        return client.connect_ex((SILENT, PORT))


@dataclass(frozen=True)
class _Round:
    """The results of generator and responder in one round."""

    sent: Mapping[str, Any]
    answered: Mapping[str, Any]

    def delay_us(self, which: str, quantile: str) -> float:
        """The delay of SYNs ("syn"), which the responder saw, or of SYN-ACKs ("answer")."""
        return float((self.answered if which == "syn" else self.sent)[which][quantile])


def measure_load(
    way: GuardPlace, rates: Sequence[int], seconds: float, rounds: int, say: Callable[[str], None]
) -> Iterator[Load]:
    """Begin set-ups at each of these rates. Raises LabError."""
    with GuardLab(way) as lab:
        lab.deafen()
        for rate in rates:
            say(f"{rate:,} SYN/s, {way}, {rounds} times {seconds:g} s without and with the guard")
            yield _load(lab, rate, seconds, rounds)


def _load(lab: GuardLab, rate_per_s: int, seconds: float, rounds: int) -> Load:
    without: list[_Round] = []
    guarded: list[_Round] = []
    processor_s = 0.0
    unguarded = 0
    for number in range(rounds):
        without.append(_round(lab, rate_per_s, seconds, number, wait_ms=200))
        guard = lab.guard()
        try:
            use = ProcessorUse(guard)
            guarded.append(_round(lab, rate_per_s, seconds, number, wait_ms=_LAST_REPLY_MS))
            processor_s += use.used_s()
            use.close()
        finally:
            guard.stop()
        unguarded += sum(guard.count(name) for name in ("full", "behind", "unfit", "unlike", "unattended"))
    sent, accepted, refused = (
        sum(int(measured.sent[name]) for measured in guarded) for name in ("sent", "accepted", "refused")
    )

    def delay_us(found: Sequence[_Round], which: str, quantile: str) -> float:
        return round(median(measured.delay_us(which, quantile) for measured in found), 2)

    def added_us(which: str, quantile: str) -> float:
        each = (
            after.delay_us(which, quantile) - before.delay_us(which, quantile)
            for before, after in zip(without, guarded, strict=True)
        )
        return round(median(each), 2)

    return Load(
        way=lab.way,
        rate_per_s=rate_per_s,
        reached_per_s=round(sent / sum(float(measured.sent["seconds"]) for measured in guarded)),
        rounds=rounds,
        sent=sent,
        accepted=accepted,
        refused=refused,
        open=sent - accepted - refused,
        unguarded=unguarded,
        syn_p50_us=delay_us(without, "syn", "p50_us"),
        syn_p99_us=delay_us(without, "syn", "p99_us"),
        answer_p50_us=delay_us(without, "answer", "p50_us"),
        answer_p99_us=delay_us(without, "answer", "p99_us"),
        added_syn_p50_us=added_us("syn", "p50_us"),
        added_syn_p99_us=added_us("syn", "p99_us"),
        added_answer_p50_us=added_us("answer", "p50_us"),
        added_answer_p99_us=added_us("answer", "p99_us"),
        processor_us=round(processor_s / sent * 1e6, 3),
    )


def _round(lab: GuardLab, rate_per_s: int, seconds: float, number: int, wait_ms: int) -> _Round:
    responder = lab.respond(_DROPPED, number + 1)
    try:
        count = max(1, round(rate_per_s * seconds))
        sent = lab.generate(count, rate_per_s, burst=_BURST, seed=number + 1, wait_ms=wait_ms)
        responder.send_signal(signal.SIGTERM)
        said, _ = responder.communicate(timeout=30)
        return _Round(sent, json.loads(said))
    finally:
        responder.kill()
        responder.wait()


def measure_memory(pending: Sequence[int], say: Callable[[str], None]) -> Iterator[Memory]:
    """Have this number of set-ups wait at a time, none of which is answered. Raises LabError."""
    with GuardLab("routed") as lab:
        lab.deafen()
        for count in pending:
            say(f"{count:,} set-ups that nobody answers, at a time")
            yield _memory(lab, count)


def _memory(lab: GuardLab, count: int) -> Memory:
    guard = lab.guard(pending=count)
    most = {"held": 0, "bytes": 0}
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            guard.say("tell")
            most["held"] = max(most["held"], int(guard.counters.get("pending", 0)))
            with contextlib.suppress(OSError, KeyError):
                most["bytes"] = max(most["bytes"], memory_bytes(guard.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        found = lab.generate(count, _PENDING_PER_S, burst=_BURST, seed=1, wait_ms=3 * _LAST_REPLY_MS)
    finally:
        is_over.set()
        watching.join()
        guard.stop()
    return Memory(count, most["held"], found["refused"], most["bytes"])
