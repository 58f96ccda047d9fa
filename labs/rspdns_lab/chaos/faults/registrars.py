"""The faults of registrars and of the network between them, with the bounds they have to keep."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from rspdns_lab.chain.hosts import START_TIMEOUT_S, wait_until
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import CLIENT, HANDLE, REGISTRARS
from rspdns_lab.chaos.scene import ChaosFault, ChaosScene, Strike, all_live
from rspdns_lab.chaos.summary import Bounds
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import join_again, keep_apart
from rspdns_lab.net.processes import Program

HOUR_S: Final = 3600
FATAL_S: Final = 120.0
HUNG_S: Final = 90.0
"""A registrar that hangs is killed after 10 s, and the next one at the same host not within a minute."""
LIED_S: Final = 20.0
INVENTED: Final = "10.53.0.99"
"""The address at which a lying registrar places servers; no host has it."""
PARTED_S: Final = 15.0
"""A minority notices the loss of its peers after 12.7 s at the latest."""


def _kill_registrar(scene: ChaosScene) -> Strike:
    return all_live(scene, scene.registrar.kill_registrar())


def _freeze_and_wake(scene: ChaosScene) -> Strike:
    at_s = scene.registrar.freeze_registrar()
    time.sleep(1)
    scene.pause(7)
    scene.registrar.thaw_registrar()
    return all_live(scene, at_s)


def _hang(scene: ChaosScene) -> Strike:
    """Stop it for good: its supervisor is to kill it and start another."""
    before = scene.registrar.registrar_pids()
    at_s = scene.registrar.freeze_registrar()
    wait_until(
        lambda: scene.registrar.registrar_pids() not in ([], before),
        f"another rspregistrar on {scene.registrar.host.name} in place of the one that hangs",
        HUNG_S,
    )
    return all_live(scene, at_s)


def _kill_all(scene: ChaosScene) -> Strike:
    return all_live(scene, min([registrar.kill_registrar() for registrar in scene.lab.registrars.values()]))


def _kill_in_turn(scene: ChaosScene) -> Strike:
    at_s = time.monotonic()
    for registrar in scene.lab.registrars.values():
        registrar.kill_registrar()
        wait_until(registrar.registrar_pids, "the registrar's restart", START_TIMEOUT_S)
        time.sleep(1)  # so that its end has been noticed
        scene.lab.wait_until_settled()
    return all_live(scene, at_s)


def _fatal(kind: str) -> Callable[[ChaosScene], Strike]:
    """Send from the client's host what ends rspregistrar until it did; `kind`: of `fatal_message`.

    A registrar that has peers survives a presence of the registrar 0 from most ports: it is sent from others.
    """

    def strike(scene: ChaosScene) -> Strike:
        before = scene.registrar.registrar_pids()
        words = [sys.executable, "-m", "rspdns_lab.chaos.fatal_message", kind, scene.registrar.host.address]
        command = scene.lab.sctp.command(words)

        def ends() -> bool:
            subprocess.run(
                ["nsenter", f"--net={scene.lab.network.hosts[CLIENT[0]].path}", "--", *command],
                env=scene.lab.environment,
                timeout=START_TIMEOUT_S,
                check=False,
            )
            return scene.registrar.registrar_pids() != before

        at_s = time.monotonic()
        wait_until(ends, f"the end of rspregistrar on {scene.registrar.host.name} by {kind}", FATAL_S)
        return all_live(scene, at_s)

    return strike


def _cut_off(scene: ChaosScene) -> Strike:
    at_s = time.monotonic()
    scene.lab.network.cut(scene.registrar.host)
    time.sleep(PARTED_S)
    scene.lab.network.restore(scene.registrar.host)
    return all_live(scene, at_s)


def part_registrars(lab: Lab, sides: Sequence[Sequence[str]]) -> None:
    """Keep registrars (by name) of different sides apart, each way. Raises LabError."""
    hosts = lab.network.hosts
    for side in sides:
        for name in side:
            keep_apart(hosts[name], [hosts[other] for other in REGISTRARS if other not in side])


def join_registrars(lab: Lab) -> None:
    """Take `part_registrars` back. Raises LabError."""
    for name in REGISTRARS:
        join_again(lab.network.hosts[name])


def _heal(scene: ChaosScene) -> None:
    join_registrars(scene.lab)


def two_sides(scene: ChaosScene) -> list[list[str]]:
    """Return the names of the registrars in two lots, the struck one alone in one of them."""
    alone = scene.registrar.host.name
    return [[name for name in REGISTRARS if name != alone], [alone]]


def _parted(sides: Callable[[ChaosScene], Sequence[Sequence[str]]]) -> Callable[[ChaosScene], Strike]:
    def strike(scene: ChaosScene) -> Strike:
        at_s = time.monotonic()
        part_registrars(scene.lab, sides(scene))
        time.sleep(PARTED_S)
        _heal(scene)
        return all_live(scene, at_s)

    return strike


def _lying(kind: str) -> Callable[[ChaosScene], Strike]:
    """Have a registrar that lies in the place of a true one; `kind` is a word of `lying_registrar`."""

    def strike(scene: ChaosScene) -> Strike:
        time.sleep(_KNOWN_AFTER_S)
        registrar, lab = scene.registrar, scene.lab
        number = list(lab.registrars.values()).index(registrar) + 1
        honest = [other.host.address for other in lab.registrars.values() if other is not registrar]
        words = [kind, registrar.host.address, str(number), HANDLE, INVENTED, *honest]
        command = lab.sctp.command([sys.executable, "-m", "rspdns_lab.chain.lying_registrar", *words])
        log = lab.folder / f"liar-{scene.trial}.log"
        liar = Program("liar", registrar.host, command, log, lab.sctp.environment)
        at_s = time.monotonic()
        registrar.program.kill()
        try:
            liar.start()
            time.sleep(LIED_S)
            if not liar.is_running or liar.log_end(1).rstrip().endswith("to 0"):
                raise LabError(f"the registrar that lies reached nobody: {liar.log_end(1)}")
        finally:
            liar.kill()
            registrar.program.start()
        return all_live(scene, at_s)

    return strike


def _step_clock(seconds: int) -> Callable[[ChaosScene], Strike]:
    def strike(scene: ChaosScene) -> Strike:
        if scene.registrar.clock is None:
            raise LabError("this lab was started without clocks of its own")
        before = scene.registrar.registrar_pids()
        at_s = time.monotonic()
        scene.registrar.clock.step(seconds)
        wait_until(
            lambda: scene.registrar.registrar_pids() not in ([], before),
            f"the restart of rspregistrar on {scene.registrar.host.name} after its clock was stepped",
            START_TIMEOUT_S,
        )
        return all_live(scene, at_s)

    return strike


_KNOWN_AFTER_S: Final = 11.0
"""A name server that polls is sure of a registrar's identifier when the registrar has been settled for 10 s.
Until then a liar that takes over its sentinel unsettles it, and hides its servers for some seconds."""
_LIED: Final = Bounds(missing_ms=1500)
"""One registrar of three lies: nobody is missing for longer than a live server needs to register again."""
_LIED_POLLED: Final = Bounds(missing_ms=2500)
"""An answer to polling doesn't tell whether the home removed a member or was told to forget it. In a pool
without a key a live server is missing until it registers again, once; after that it is contested."""
_LIVE: Final = Bounds()
"""Never empty, no live server missing for more than a second."""
_NEVER_WRONG: Final = Bounds(max_ms=0)
"""One registrar of three fails: nobody who asks DNS notices."""

REGISTRAR_FAULTS: Final = (
    ChaosFault(
        "registrar-killed",
        "SIGKILL to one rspregistrar, each in turn",
        _kill_registrar,
        _NEVER_WRONG,
        watch_s=8,
    ),
    ChaosFault(
        "registrar-aborted",
        "a handle of 33 bytes sent to one, each in turn",
        _fatal("long-handle"),
        _LIVE,
        watch_s=8,
    ),
    ChaosFault(
        "identifier-zero",
        "a presence of the registrar 0 sent to one, each in turn",
        _fatal("identifier-zero"),
        _LIVE,
        watch_s=8,
    ),
    ChaosFault(
        "registrar-frozen-and-woken",
        "SIGSTOP for 1 to 8 s, then SIGCONT",
        _freeze_and_wake,
        _NEVER_WRONG,
        watch_s=8,
    ),
    ChaosFault("registrar-hung", "SIGSTOP until it is killed and started anew", _hang, _LIVE, watch_s=8),
    ChaosFault("registrar-cut-off", "its cable pulled for 15 s", _cut_off, _LIVE, watch_s=8),
    ChaosFault("registrars-all-restarted", "SIGKILL to all three at once", _kill_all, _LIVE, watch_s=10),
    ChaosFault(
        "registrars-restarted-in-turn",
        "SIGKILL to each when the one before has settled",
        _kill_in_turn,
        _LIVE,
    ),
    ChaosFault("partition", "{1,2} | {3} for 15 s, then healed", _parted(two_sides), _LIVE, _heal, watch_s=8),
    ChaosFault(
        "partition-of-three",
        "{1} | {2} | {3} for 15 s, then healed",
        _parted(lambda _scene: [[name] for name in REGISTRARS]),
        _LIVE,
        _heal,
        watch_s=8,
    ),
    ChaosFault(
        "registrar-lies-takeover",
        "one takes all over that the others own, for 20 s",
        _lying("takeover"),
        _LIED_POLLED,
        watch_s=8,
        enrp=_LIED,
    ),
    ChaosFault(
        "registrar-lies-steal",
        "one adds all that the others own as its own and deletes it, ten times a second for 20 s",
        _lying("steal"),
        _LIED_POLLED,
        watch_s=8,
        enrp=_LIED,
    ),
    ChaosFault(
        "registrar-lies-ghosts",
        "one tells of 50 servers a second that the others do not have, for 20 s",
        _lying("ghosts"),
        _NEVER_WRONG,
        watch_s=8,
    ),
    ChaosFault(
        "clock-stepped-forward", "by an hour, on one registrar's host", _step_clock(HOUR_S), _LIVE, watch_s=8
    ),
    ChaosFault(
        "clock-stepped-back", "by an hour, on one registrar's host", _step_clock(-HOUR_S), _LIVE, watch_s=8
    ),
)
CLOCK_FAULTS: Final = frozenset({"clock-stepped-forward", "clock-stepped-back"})
