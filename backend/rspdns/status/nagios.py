"""A status as a Nagios-style check: one line, values for graphs, and how bad it is. Pure.

The levels are those of the example alert rules (backend/examples/alerts.yml), without their waiting times: a
monitoring system repeats a check before it believes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from daemon_kit.commands import counted
from pool_user import Standing

from rspdns.status.model import PoolStatus, Status

HALF = 0.5
"""The part of a pool's servers from which on their absence is critical."""


class Level(IntEnum):
    """Exit codes of Nagios's plugins."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


def report(level: Level, said: str, problems: tuple[str, ...] = (), values: str = "") -> str:
    """Return what a plugin prints: level, first words, values for graphs; then one line a problem."""
    first = f"RSPDNS {level.name} - {said}"
    lines = [first, *(problems if len(problems) > 1 else ())]
    plain = [line.replace("|", "/").replace("\n", " ") for line in lines]
    if values:
        plain[0] += f" | {values}"
    return "\n".join(plain)


def check(status: Status) -> tuple[Level, str]:
    """Return how bad it is, and what a plugin prints about it."""
    problems = sorted(_problems(status), key=lambda problem: -problem[0])
    pools = [pool for zone in status.zones for pool in zone.pools]
    members = sum(len(pool.members) for pool in pools)
    missing = sum(pool.missing for pool in pools)
    settled = sum(registrar.standing is Standing.SETTLED for registrar in status.registrars)
    values = (
        f"pools={len(pools)};;;0 members={members};;;0 missing={missing};;;0 "
        f"registrars_settled={settled};;;0;{len(status.registrars)}"
    )
    if not problems:
        registrars = counted(settled, "registrar")
        said = f"{counted(members, 'member')} in {counted(len(pools), 'pool')}, {registrars} settled"
        return Level.OK, report(Level.OK, said, values=values)
    level = problems[0][0]
    words = tuple(f"{state.name}: {text}" for state, text in problems)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return level, report(level, problems[0][1] + more, words, values)


def _problems(status: Status) -> Iterator[tuple[Level, str]]:
    for zone in status.zones:
        for pool in zone.pools:
            yield from _of_pool(pool)
    settled = {
        registrar.handlespace for registrar in status.registrars if registrar.standing is Standing.SETTLED
    }
    for registrar in status.registrars:
        if registrar.standing is not Standing.SETTLED:
            level = Level.WARNING if registrar.handlespace in settled else Level.CRITICAL
            yield level, f"registrar {registrar.called} ({registrar.address}) is {registrar.standing.value}"
    for pdns in status.pdns:
        if pdns.problem is not None:
            yield Level.CRITICAL, f"PowerDNS can't be purged: {pdns.problem}"
    for override in status.overrides:
        if override.problem is not None:
            words = f"override {override.number} of {override.servers} does not hold: {override.problem}"
            yield Level.WARNING, words
    for resolver in status.resolvers:
        if resolver.problem is not None:
            yield Level.WARNING, f"resolver {resolver.name} can't be told of changes: {resolver.problem}"
    for peer in status.peers:
        if peer.problem is not None:
            yield Level.WARNING, f"peer {peer.name} can't be asked for its overrides: {peer.problem}"
        for difference in peer.differences:
            yield Level.WARNING, f"peer {peer.name} has other overrides: {difference}"
    for secondary in status.secondaries:
        if secondary.problem is not None:
            yield Level.WARNING, f"secondary {secondary.name}: {secondary.problem}"
    if status.reload is not None and status.reload.state == "refused":
        yield Level.WARNING, f"the last reload was refused: {status.reload.problem}"
    for problem in status.problems:
        yield Level.WARNING, problem


def _of_pool(pool: PoolStatus) -> Iterator[tuple[Level, str]]:
    if not pool.known:
        yield Level.CRITICAL, f"{pool.owner} is answered with SERVFAIL: no registrar has told of it"
        return
    if not pool.members:
        instead = pool.answered_instead or "nothing"
        yield Level.CRITICAL, f"no server is alive in {pool.owner}; answered instead: {instead}"
    elif pool.missing:
        level = Level.CRITICAL if pool.missing >= HALF * pool.expected else Level.WARNING
        names = ", ".join(server.called for server in pool.out if server.missing)
        yield level, f"{pool.missing} of {pool.expected} servers of {pool.owner} are missing: {names}"
    for part in pool.lost:
        words = f"{pool.owner}: its members of handlespace {part.name} are from memory"
        yield Level.WARNING, f"{words} since {part.stale_s:.0f} s"
    if pool.stale_s is not None and not pool.lost:
        yield Level.WARNING, f"{pool.owner} is answered from memory since {pool.stale_s:.0f} s"
