"""The admin API of a service on paper, over a real connection, with tokens and the files that hold them."""

import json
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from daemon_kit.control import ControlError
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from rspdns.admin.access import read_access
from rspdns.admin.configuration import AdminConfig
from rspdns.admin.server import AdminServer
from rspdns.answers.snapshot import Snapshot
from rspdns.event_log import EventLog
from rspdns.pdns.listening import DnsServer
from rspdns.status import Status

from tests.backend.making import ZONE
from tests.backend.statuses import out_status, pool_status, status

POOL = pool_status(
    handles=["sip-udp"],
    expected=2,
    missing=1,
    out=[
        out_status(
            handle="sip-udp",
            name="sip-1",
            look_at="its log",
            missing=True,
            identifier="0000000a",
            address=None,
            reason="<b>gone</b>",
            since_s=1.0,
        )
    ],
)


class Paper:
    """A service on paper."""

    def __init__(self) -> None:
        self.purged: list[str] = []
        self.overridden: list[tuple[object, str]] = []
        self.problem = ""
        self.asked = 0
        self.pools = [POOL]
        self.snapshot = Snapshot()
        self.causes: dict[str, list[str]] = {ZONE: []}
        """By zone, why it is not ready."""

    def status(self) -> Status:
        self.asked += 1
        return status(*self.pools)

    state_directory = "/nowhere"

    def handles_of(self, pool: str) -> frozenset[str]:
        return frozenset({pool})

    def answering(self) -> Snapshot:
        return self.snapshot

    def not_ready(self, zone: str) -> list[str] | None:
        return self.causes.get(zone)

    def listed_by(self, handle: str, identifier: str) -> list[int]:
        return [1, 3]

    def overriding(self, handle: str, address: str, port: int) -> int | None:
        return 7 if port == 5062 else None

    async def dns_server(self) -> DnsServer:
        return DnsServer("127.0.0.1", 5300)

    async def reload(self, by: str, *, force: bool = False) -> dict[str, Any]:
        if self.problem:
            raise ControlError(self.problem)
        return {"zones": ["ims.example.net"], "going": [], "needs_restart": []}

    async def override(self, keys: Mapping[str, Any], by: str) -> dict[str, Any]:
        if self.problem:
            raise ControlError(self.problem)
        self.overridden.append((keys, by))
        return {
            "override": {"number": 1},
            "pools": {POOL.owner: [{"server": "a", "name": None, "before": 1.0, "after": None}]},
            "notes": [],
            "is_repeat": False,
            "peers": [],
        }

    async def clear(self, named: Sequence[str], by: str, *, everywhere: bool = False) -> dict[str, Any]:
        self.overridden.append((named, by))
        return {"cleared": [int(word) for word in named], "identifiers": [], "peers": []}

    def purge(self, wanted: Collection[str], by: str) -> None:
        self.purged += wanted


class NoMetrics(Collector):
    def collect(self) -> list[Metric]:
        return []


class Admin:
    def __init__(self, folder: Path, **keys: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.host = f"127.0.0.1:{probe.getsockname()[1]}"
        self.service = Paper()
        self.log = EventLog([])
        self.config = AdminConfig(listen=self.host, **keys)
        access, errors = read_access(folder, self.config.read_tokens, self.config.write_tokens, None, None)
        assert not errors
        self.server = AdminServer(self.config, access, self.service, self.log, NoMetrics())
        self.client = ClientSession()

    async def ask(
        self, path: str, method: str = "GET", body: object = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        async with self.client.request(
            method, f"http://{self.host}{path}", data=data, headers=headers
        ) as answer:
            kind = answer.content_type
            told = await (answer.json() if kind == "application/json" else answer.text())
            return answer.status, told, dict(answer.headers)

    async def write(
        self, path: str, body: object = None, method: str = "POST", **headers: str
    ) -> tuple[int, Any]:
        status, told, _ = await self.ask(
            path, method, body, **{"Authorization": f"Bearer {WRITER}", **headers}
        )
        return status, told


READER = "reader-0123456789abcdef"
WRITER = "writer-0123456789abcdef"


def tokens(folder: Path, name: str, *lines: str, mode: int = 0o640) -> str:
    (folder / name).write_text("\n".join(lines) + "\n")
    (folder / name).chmod(mode)
    return name
