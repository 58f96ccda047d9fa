"""The whole backend with 1,000 pools, its registrars replaced by a stand-in inside this process.

    python -m rspdns_lab.bench_scale_backend RSPDNS.TOML KNOWN

Real are belief, answers, state files, control and connector, and the decoding of every answer of a registrar
from its bytes. Not real are rspregistrar and SCTP: three registrars that keep up 10,000 PEs by keep-alives
every 300 ms would use the whole machine themselves. When all pools are known, the file KNOWN gets the
monotonic time.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from pathlib import Path

import uvloop
from rserpool.asap import HandleResolutionResponse, decode, encode
from rserpool.client import Resolution
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.policies import LeastUsed
from rserpool.registrar_choice import RegistrarAddress
from rspdns import follower
from rspdns.belief import sentinel_handle
from rspdns.configuration import load_configuration
from rspdns.service import Backend
from rspdns.views import PoolView

from rspdns_lab.bench_scale import MEMBERS, POOLS

ROUND_TRIP_S = 0.002


class StandInRegistrar:
    """A registrar's client that has every answer ready as bytes, with the interface of `RegistrarClient`."""

    _count = 0

    def __init__(
        self, address: RegistrarAddress, *, on_link: Callable[[bool], None], **_settings: object
    ) -> None:
        StandInRegistrar._count += 1
        self.address = address
        self.problem: str | None = None
        self.is_up = False
        self.round_trip_ms = 1000 * ROUND_TRIP_S
        self._number = StandInRegistrar._count
        self._on_link = on_link
        self._answers = {f"pool-{pool}".encode(): _pool(pool) for pool in range(POOLS)}
        own = sentinel_handle(self._number)
        sentinel = _element(0x50 + self._number, self._number, IPv4Address(address.host), Protocol.SCTP)
        self._answers[own.encode()] = _answer(own.encode(), (sentinel,))

    def start(self) -> None:
        """The association comes up."""
        asyncio.get_running_loop().call_later(ROUND_TRIP_S, self._up)

    def _up(self) -> None:
        self.is_up = True
        self._on_link(True)

    async def close(self) -> None:
        """End."""
        self.is_up = False

    async def resolve(self, handle: bytes) -> Resolution:
        """Answer after the round trip."""
        asked_at_s = time.monotonic()
        await asyncio.sleep(ROUND_TRIP_S)
        message = decode(self._answers[handle])
        if not isinstance(message, HandleResolutionResponse):
            raise TypeError(message)
        now = time.monotonic()
        return Resolution(handle, True, message.policy, message.pool_elements, asked_at_s, now)

    def report_unreachable(self, handle: bytes, identifier: int) -> None:
        """Nothing follows from it."""


def _pool(pool: int) -> bytes:
    elements = tuple(
        _element(
            pool << 8 | place,
            1 + place % 3,
            IPv4Address(f"10.{pool >> 8}.{pool & 255}.{place + 1}"),
            Protocol.UDP,
        )
        for place in range(MEMBERS)
    )
    return _answer(f"pool-{pool}".encode(), elements)


def _element(identifier: int, home: int, address: IPv4Address, protocol: Protocol) -> PoolElement:
    return PoolElement(identifier, home, 6000, Transport(protocol, 5060, (address,)), LeastUsed(0.3))


def _answer(handle: bytes, elements: tuple[PoolElement, ...]) -> bytes:
    return encode(HandleResolutionResponse(handle, LeastUsed(0.0), elements))


class _Backend(Backend):
    def watch(self, known: Path) -> None:
        """Write the time when every pool is known."""
        publish = self.publisher.publish

        def published(views: Mapping[str, PoolView]) -> None:
            publish(views)
            if not known.exists() and all(len(view.members) == MEMBERS for view in views.values()):
                known.with_suffix(".new").write_text(str(time.monotonic()))
                known.with_suffix(".new").rename(known)

        self.publisher.publish = published  # type: ignore[method-assign]


async def _serve(configuration: Path, known: Path) -> None:
    backend = _Backend(load_configuration(configuration))
    backend.watch(known)
    await backend.run(asyncio.Event())


if __name__ == "__main__":
    setattr(follower, "RegistrarClient", StandInRegistrar)  # noqa: B010 - the one place that replaces it
    uvloop.run(_serve(Path(sys.argv[1]), Path(sys.argv[2])))
