"""The backend of the benchmark: answers, their publishing, connector and purges are real, the pools made up.

    python -m rspdns_lab.bench.backend FOLDER CHANGES_PER_S [--log FILE]

Serves the zones configured in FOLDER/rspdns.toml. CHANGES_PER_S times a second one pool, each in turn, loses
its last member or has it back. With --log it is always the first pool, and FILE gets a line "C <monotonic
time> <members>" for each change and "P <time>" when its last purge is through.
"""

import asyncio
import gc
import itertools
import random
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import uvloop
from pool_user import BeliefChange, Member, PoolView
from rspdns.answers.change import Change
from rspdns.answers.publisher import Publisher
from rspdns.answers.serial_number import SerialNumbers
from rspdns.configuration import BackendConfig, load_configuration
from rspdns.dnssec.store import DnssecStore
from rspdns.fastpath import FastPath
from rspdns.pdns import name_table
from rspdns.pdns.connector_unix import UnixConnector, unix_path
from rspdns.pdns.purge import Purger
from rspdns.pdns.responder import PdnsResponder
from rspdns.service import LOOK_FOR_CYCLES_AFTER

from rserpool import LeastUsed, Protocol
from rspdns_lab.bench.zone import MEMBERS, member_address, member_identifier

_LONG_AGO_S = -1000.0


def main() -> None:
    """Serve until killed."""
    folder, changes_per_s = Path(sys.argv[1]), float(sys.argv[2])
    log = Path(sys.argv[4]) if sys.argv[3:4] == ["--log"] else None
    uvloop.run(_serve(load_configuration(folder / "rspdns.toml"), changes_per_s, log))


async def _serve(config: BackendConfig, changes_per_s: float, log: Path | None) -> None:
    gc.set_threshold(LOOK_FOR_CYCLES_AFTER)
    handles = list(config.accept_by_handle)
    full = [_full_view(number, handle) for number, handle in enumerate(handles)]
    fewer = [replace(view, members=view.members[:-1]) for view in full]
    views = dict(zip(handles, full, strict=True))
    purger = Purger(config.pdns.control)

    def signing_changed(zone: str) -> None:
        name_table.write(config.pdns.connector, config.zones, store.signed_zones(), serials.following)
        purger.purge({f"{zone}$"})

    store = DnssecStore(config.state.path, signing_changed)
    responder = PdnsResponder(store=store)
    serials = SerialNumbers(config.state.path, time.time())
    link = None
    fast = config.fastpath
    if fast.socket:
        link = FastPath(
            fast.socket,
            fast.udp_payload,
            limit=fast.limit,
            client_subnet=fast.client_subnet,
        )
        link.set_zones(config.zones)

    def swap(change: Change, purge: Callable[[Collection[str]], None]) -> None:
        if link is not None:
            link.apply(change, store.signed_zones())
        purge(responder.swap(change))

    publisher = Publisher(
        config.zones,
        serials,
        swap,
        purger,
        max_stale_s=config.max_stale_s,
        is_seen_at_once=lambda: link is not None and link.is_answering,
        hot=frozenset,  # nobody asks for A and AAAA, for which chance would draw anew
    )
    name_table.write(config.pdns.connector, config.zones, store.signed_zones(), serials.following)
    publisher.start(BeliefChange.between({}, views))
    purger.start()
    path = unix_path(config.pdns.connector)
    if path is None:
        raise SystemExit("the benchmark serves the unix connector only")
    connector = UnixConnector(path, responder.respond)
    await connector.start()
    if link is not None:
        link.start()
    if not changes_per_s:
        await asyncio.Event().wait()
    next_s = time.monotonic()
    for turn in itertools.count():
        # By chance: a client that asks every millisecond would else ask at the same moment after each.
        gap_s = random.uniform(0.5, 1.5) / changes_per_s  # noqa: S311 - no secret
        next_s = max(next_s + gap_s, time.monotonic() - 1)  # after a pause, no burst
        await asyncio.sleep(next_s - time.monotonic())
        index = turn % len(handles) if log is None else 0
        handle = handles[index]
        changed = fewer[index] if views[handle] is full[index] else full[index]
        changed_s, builds = time.monotonic(), publisher.builds
        before, views = views, {**views, handle: changed}
        publisher.publish(BeliefChange.between(before, views))
        if log is not None:
            await _write(log, changed_s, len(views[handle].members), publisher, builds, purger)


async def _write(
    log: Path, changed_s: float, members: int, publisher: Publisher, builds: int, purger: Purger
) -> None:
    """Write the change down, and when it is purged for the last time: after it was built, of which there were
    `builds` before."""
    with log.open("a") as file:
        file.write(f"C {changed_s:.6f} {members}\n")
    while publisher.builds == builds or any(socket.waiting for socket in purger.sockets):  # noqa: ASYNC110 - none tells
        await asyncio.sleep(0.001)
    with log.open("a") as file:
        file.write(f"P {time.monotonic():.6f}\n")


def _full_view(number: int, handle: str) -> PoolView:
    members = tuple(
        Member(
            identifier=member_identifier(number, index),
            home_registrar=1,
            addresses=(IPv4Address(member_address(number, index)),),
            port=5060,
            protocol=Protocol.UDP,
            policy=LeastUsed(0.0),
            since_s=_LONG_AGO_S,
        )
        for index in range(MEMBERS)
    )
    return PoolView(handle, members, known=True)


if __name__ == "__main__":
    main()
