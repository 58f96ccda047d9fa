"""The sources of a load: this host, a file, a command, a web server, a gRPC server, the SIP server."""

import asyncio
import json
import math
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from daemon_kit.durations import duration

from ppe_agent import orca
from ppe_agent.addresses import Address
from ppe_agent.checks.exec_check import run_command
from ppe_agent.checks.grpc import GrpcQuestion, NoGrpcAnswer
from ppe_agent.checks.sip import make_asker
from ppe_agent.checks.snmp import PORT, PROGRAM, NoNumber, SnmpQuestion
from ppe_agent.load_config import LoadConfig

# The times of all processors in /proc/stat (proc(5)) are: user, nice, system, idle, iowait, irq, softirq,
# steal, guest, guest_nice. The last two are counted in the first two as well.
_COUNTED_ONCE: Final = slice(8)
_NOT_BUSY: Final = slice(3, 5)
_FIRST_LINE_BYTES: Final = 512


class CpuLoad:
    """The busy share of this host's processors since this was last read; at first, the load average."""

    def __init__(self, statistics: Path = Path("/proc/stat")) -> None:
        self._statistics = statistics
        self._descriptor: int | None = None  # held: to open it costs more than to read it
        self._before: Sequence[int] = ()
        self._load = 0.0

    async def read(self) -> float:
        """Return the busy share, 0..1; the last one again while the processors' times stand still.

        Raises OSError and ValueError: a container's /proc/stat may be a file system's that fails (lxcfs).
        """
        if self._descriptor is None:
            self._descriptor = os.open(self._statistics, os.O_RDONLY | os.O_CLOEXEC)
        try:
            now = processor_times(self._descriptor)
        except (OSError, ValueError):
            await self.close()
            raise
        if not self._before:
            self._load = load_average()
            self._before = now
        elif (share := busy_share(self._before, now)) is not None:
            self._load = share
            self._before = now
        return self._load

    async def close(self) -> None:
        """Let go of /proc/stat."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _StatelessSource:
    async def close(self) -> None:
        """Nothing is held."""


class LoadAverage(_StatelessSource):
    """The load average of the last minute for each processor, 1 at most."""

    async def read(self) -> float:
        """Return it."""
        return load_average()


def processor_times(statistics: int) -> tuple[int, ...]:
    """Return how long the processors did what, in hundredths of a second, in the order of proc(5).

    `statistics` is a descriptor of /proc/stat.
    """
    line = os.pread(statistics, _FIRST_LINE_BYTES, 0).partition(b"\n")[0]
    return tuple(map(int, line.split()[1:]))


def busy_share(before: Sequence[int], now: Sequence[int]) -> float | None:
    """Return the share, 0..1, that was busy between two `processor_times()`; None when no time passed."""
    # A counter may go back a little, as iowait does: that is no time.
    passed = [max(0, later - sooner) for sooner, later in zip(before, now, strict=True)][_COUNTED_ONCE]
    total = sum(passed)
    return (total - sum(passed[_NOT_BUSY])) / total if total > 0 else None


def load_average() -> float:
    """Return the load average of the last minute for each processor, 1 at most."""
    return min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


_MAX_FILE_BYTES: Final = 64
_MAX_METRIC_BYTES: Final = 64 * 1024
_NUMBER: Final = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)")


class LoadUnknown(Exception):  # noqa: N818 - reads as what it is
    """A source has no load to give; the message says why."""


class LoadSource(Protocol):
    """Somewhere a load comes from."""

    async def read(self) -> float:
        """Return the load now, 0..1. Raises LoadUnknown, or TimeoutError from whoever limits it."""

    async def close(self) -> None:
        """Let go of what is held between readings."""


class FileLoad(_StatelessSource):
    """A number in a file that the server, or something beside it, writes again and again."""

    def __init__(self, path: Path, max_age_ms: int, capacity: float | None = None) -> None:
        self._path = path
        self._max_age_ms = max_age_ms
        self._capacity = capacity

    async def read(self) -> float:
        """Return the load. Raises LoadUnknown when the file is missing, old or holds no number that fits.

        A file that is younger than now by more than the age allowed is as good as old: the clock was set
        back since, and the file was not written again.
        """
        try:
            # A pipe or a device must not block the agent.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                data = os.read(descriptor, _MAX_FILE_BYTES) if stat.S_ISREG(status.st_mode) else None
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LoadUnknown(f"{self._path}: {error.strerror}") from None
        if data is None:
            raise LoadUnknown(f"{self._path} is no ordinary file")
        age_ms = (time.time() - status.st_mtime) * 1000
        if age_ms > self._max_age_ms:
            raise LoadUnknown(f"{self._path} was not written for {duration(age_ms / 1000)}")
        if age_ms < -self._max_age_ms:
            raise LoadUnknown(
                f"{self._path} was written {duration(-age_ms / 1000)} from now: the clock was set back"
            )
        return scaled(data, self._capacity, str(self._path))


class ExecLoad(_StatelessSource):
    """The number that a command prints."""

    def __init__(self, command: Sequence[str], timeout_ms: int, capacity: float | None) -> None:
        self._command = tuple(command)
        self._timeout_ms = timeout_ms
        self._capacity = capacity

    async def read(self) -> float:
        """Return the load. Raises LoadUnknown."""
        name = Path(self._command[0]).name
        try:
            finished = await run_command(self._command, self._timeout_ms)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise LoadUnknown(f"{self._command[0]} can't be run: {error.strerror}") from None
        if finished.code != 0:
            said = f": {finished.first_line}" if finished.first_line else ""
            raise LoadUnknown(f"{name} ended with {finished.code}{said}")
        return scaled(finished.first_line, self._capacity, name)


class HttpLoad:
    """The load in a web server's answer to GET `url`; `read_value` finds the number in it."""

    def __init__(self, url: str, capacity: float | None) -> None:
        self._url = url
        self._capacity = capacity
        self._session: Any = None  # aiohttp.ClientSession; aiohttp is large, and loaded when it is needed

    def read_value(self, body: bytes) -> object:
        """Return the number in the answer. Raises LoadUnknown."""
        raise NotImplementedError

    async def read(self) -> float:
        """Return the load. Raises LoadUnknown."""
        import aiohttp

        from ppe_agent.checks.http import connector, read_body

        if self._session is None:
            self._session = aiohttp.ClientSession(connector=connector(), headers={"User-Agent": "ppe-agent"})
        try:
            async with self._session.get(self._url, allow_redirects=False) as response:
                if response.status != 200:
                    raise LoadUnknown(f"{self._url} answered {response.status}")
                body = await read_body(response)
        except TimeoutError:
            raise
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            raise LoadUnknown(f"{self._url}: {os.strerror(number) if number else error.os_error}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise LoadUnknown(f"{self._url}: {str(error)[:120] or type(error).__name__}") from None
        return scaled(self.read_value(body), self._capacity, self._url)

    async def close(self) -> None:
        """End the kept connection."""
        if self._session is not None:
            await self._session.close()


class HttpJsonLoad(HttpLoad):
    """The number that a JSON pointer (RFC 6901) leads to."""

    def __init__(self, url: str, pointer: str, capacity: float | None) -> None:
        super().__init__(url, capacity)
        self._pointer = pointer

    def read_value(self, body: bytes) -> object:
        """Return what the pointer leads to. Raises LoadUnknown."""
        try:
            return follow(json.loads(body), self._pointer)
        except (ValueError, RecursionError):
            raise LoadUnknown(f"{self._url} answers no JSON") from None
        except LookupError:
            raise LoadUnknown(f"{self._url} has nothing at {self._pointer}") from None


class PrometheusLoad(HttpLoad):
    """The sum of a metric's values, of those with `labels`, in the Prometheus text format."""

    def __init__(self, url: str, metric: str, labels: Mapping[str, str], capacity: float | None) -> None:
        super().__init__(url, capacity)
        self._metric = metric
        self._labels = dict(labels)
        self._lines = re.compile(rb"^" + metric.encode() + rb"[{ \t][^\n]*", re.MULTILINE)

    def read_value(self, body: bytes) -> object:
        """Return the sum. Raises LoadUnknown when there is no such metric, or 64 KiB of it."""
        from prometheus_client.parser import text_string_to_metric_families

        # The page may be long, the parser is slow, and all else waits: it gets only the lines that count.
        lines = bytearray()
        for line in self._lines.finditer(body):
            lines += line[0] + b"\n"
            if len(lines) > _MAX_METRIC_BYTES:
                raise LoadUnknown(
                    f"{self._url} has more than {_MAX_METRIC_BYTES >> 10} KiB of {self._metric}"
                )
        try:
            samples = [
                sample
                for family in text_string_to_metric_families(lines.decode("utf-8", "replace"))
                for sample in family.samples
                if sample.name == self._metric and self._labels.items() <= sample.labels.items()
            ]
        except (ValueError, LookupError):
            raise LoadUnknown(f"{self._url} answers no Prometheus metrics") from None
        if not samples:
            raise LoadUnknown(
                f"{self._url} has no metric {self._metric}" + (" with these labels" * bool(self._labels))
            )
        return sum(sample.value for sample in samples)


class SipHeaderLoad:
    """The number in a header of the answer to SIP OPTIONS: the calls a server has, say."""

    def __init__(
        self,
        address: Address,
        port: int,
        transport: str,
        header: str,
        timeout_ms: int,
        capacity: float | None,
    ) -> None:
        self._header = header
        self._timeout_ms = timeout_ms
        self._capacity = capacity
        self._port = port
        self._asker = make_asker(address, port, transport, lambda: None)

    async def read(self) -> float:
        """Return the load. Raises LoadUnknown."""
        try:
            response = await self._asker.ask(self._timeout_ms)
        except TimeoutError:
            raise
        except OSError as error:
            raise LoadUnknown(f"OPTIONS to port {self._port}: {error.strerror or error}") from None
        match = _NUMBER.match(response.headers.get(self._header.lower(), ""))
        if match is None:
            raise LoadUnknown(f"OPTIONS answered {response}, without a number in {self._header}")
        return scaled(match[1], self._capacity, self._header)

    async def close(self) -> None:
        """End the held connection."""
        self._asker.close()


class OrcaLoad(_StatelessSource):
    """A number of a gRPC server's load report.

    Each reading is a new call, whose first report comes at once: in a call that goes on, servers send the
    next one after 30 s unless they are set up otherwise.
    """

    def __init__(
        self, question: GrpcQuestion, field: str | None, timeout_ms: int, capacity: float | None
    ) -> None:
        self._question = question
        self._field = field
        self._timeout_ms = timeout_ms
        self._capacity = capacity

    async def read(self) -> float:
        """Return the load. Raises LoadUnknown."""
        try:
            number = orca.reported(await self._question.ask(self._timeout_ms, is_stream=True), self._field)
        except NoGrpcAnswer as problem:
            if problem.status == "UNIMPLEMENTED":
                raise LoadUnknown(f"it has no load reports ({orca.METHOD.split('/')[1]})") from None
            raise LoadUnknown(f"ORCA: {problem}") from None
        except ValueError as problem:
            raise LoadUnknown(f"ORCA: {problem}") from None
        name = self._field or "application_utilization, nor cpu_utilization"
        if number is None:
            raise LoadUnknown(f"ORCA: the report has no {name}")
        return scaled(number, self._capacity, name)


class SnmpLoad(_StatelessSource):
    """A number of the server's SNMP agent."""

    def __init__(self, question: SnmpQuestion, timeout_ms: int, capacity: float | None) -> None:
        self._question = question
        self._timeout_ms = timeout_ms
        self._capacity = capacity

    async def read(self) -> float:
        """Return the load. Raises LoadUnknown."""
        try:
            number = await self._question.ask(self._timeout_ms)
        except NoNumber as problem:
            raise LoadUnknown(f"SNMP: {problem}") from None
        except TimeoutError:
            raise
        except OSError as error:
            raise LoadUnknown(f"{PROGRAM} can't be run: {error.strerror}") from None
        return scaled(number, self._capacity, self._question.oid)


def scaled(value: object, capacity: float | None, where: str) -> float:
    """Return the load that a number means: its share of `capacity` (1 at most), or, without, itself.

    Raises LoadUnknown when it is no number, below 0, or, without a capacity, above 1.
    """
    try:
        number = float(value) if isinstance(value, int | float | str | bytes) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool):
        number = math.nan
    if capacity is not None:
        if not 0 <= number < math.inf:
            raise LoadUnknown(f"{where} holds no number from 0 on")
        return min(1.0, number / capacity)
    if not 0 <= number <= 1:
        raise LoadUnknown(f"{where} holds no number from 0 to 1")
    return number


def follow(document: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) leads to. Raises LookupError."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document[key]
        elif isinstance(document, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", key):
            document = document[int(key)]
        else:
            raise LookupError(key)
    return document


def make_source(config: LoadConfig, address: Address, port: int, transport: str) -> LoadSource | None:
    """Return the configured source for the AS with `transport` at `address`, `port`; None for "none"."""
    capacity = config.capacity
    match config.source:
        case "cpu":
            return CpuLoad()
        case "load-average":
            return LoadAverage()
        case "file":
            assert config.path is not None  # noqa: S101 - the configuration was checked
            return FileLoad(config.path, config.max_age_ms, capacity)
        case "exec":
            return ExecLoad(config.command or (), config.timeout_ms, capacity)
        case "http-json":
            return HttpJsonLoad(config.url or "", config.pointer or "", capacity)
        case "prometheus":
            return PrometheusLoad(config.url or "", config.metric or "", config.labels or {}, capacity)
        case "sip-options":
            at, transport = config.port or port, config.transport or transport
            return SipHeaderLoad(address, at, transport, config.header or "", config.timeout_ms, capacity)
        case "orca":
            question = GrpcQuestion(
                address,
                config.port or port,
                orca.METHOD,
                orca.request(),
                host=config.host,
                is_tls=bool(config.tls),
                ca_file=config.ca_file,
            )
            return OrcaLoad(question, config.field, config.timeout_ms, capacity)
        case "snmp":
            assert config.credentials is not None  # noqa: S101 - the configuration was checked
            asked = SnmpQuestion(address, config.port or PORT, config.oid or "", config.credentials)
            return SnmpLoad(asked, config.timeout_ms, capacity)
        case "none":
            return None


async def read_within(source: LoadSource, timeout_ms: int | None) -> float:
    """Read a source for at most `timeout_ms`; None: it is this host's own, and answers at once.

    Raises LoadUnknown.
    """
    if timeout_ms is None:
        try:
            return await source.read()
        except (OSError, ValueError) as error:
            raise LoadUnknown(f"this host doesn't tell its load: {error}") from None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await source.read()
    except TimeoutError:
        raise LoadUnknown(f"no answer within {timeout_ms} ms") from None
