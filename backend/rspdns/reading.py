"""Reads the configuration in a process of its own: `python -P -m rspdns.reading FILE`.

Zone files are read by Python. 100,000 records take it seconds, and a thread would take the time away from the
look-ups, so that PowerDNS waited for its answers.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from daemon_kit.child import die_with_parent
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors

from rspdns.configuration import BackendConfig, load_configuration
from rspdns.zones.loading import Progress
from rspdns.zones.zone import without_lines

TIMEOUT_S = 600.0
_HEAD = struct.Struct("!cQ")
"""The head of each message: its kind, and the number of octets that follow."""
_READ, _CONFIGURATION, _ERRORS = b"r", b"c", b"e"


async def read_configuration(path: Path, on_progress: Callable[[Progress], None]) -> BackendConfig:
    """Do what `load_configuration()` does without the page, in another process; `on_progress` is told how far
    it is.

    Raises ConfigurationErrors, also when the process ends without a result. If this is cancelled, the process
    is killed.
    """
    process = await asyncio.create_subprocess_exec(
        # -P: nothing is imported from the working directory, which others may be able to write to.
        *(sys.executable, "-P", "-m", "rspdns.reading", str(path)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            kind, body = await _result(process, on_progress)
    except TimeoutError:
        raise _failed(path, f"reading took longer than {TIMEOUT_S:g} s") from None
    except asyncio.IncompleteReadError:
        code = await process.wait()
        raise _failed(
            path, f"the process that reads the zones ended with {code} before it was done"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    if kind == _ERRORS:
        raise ConfigurationErrors(pickle.loads(body))  # noqa: S301 - from a process of our own
    with _no_search_for_garbage():
        config: BackendConfig = await asyncio.to_thread(pickle.loads, body)
    return config


def _failed(path: Path, problem: str) -> ConfigurationErrors:
    return ConfigurationErrors([ConfigurationError(str(path), 0, "", problem)])


async def _result(
    process: asyncio.subprocess.Process, on_progress: Callable[[Progress], None]
) -> tuple[bytes, bytes]:
    """The last message of the process, which is its result."""
    assert process.stdout is not None  # noqa: S101 - it was asked for
    while True:
        kind, size = _HEAD.unpack(await process.stdout.readexactly(_HEAD.size))
        body = await process.stdout.readexactly(size)
        if kind != _READ:
            return kind, body
        on_progress(pickle.loads(body))  # noqa: S301 - from a process of our own


@contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """While a thread makes hundreds of thousands of objects, each search among them holds up every thread."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def main(path: Path, out: BinaryIO) -> None:
    """Read `path`, and write progress and result to `out`."""
    gc.disable()

    def write(kind: bytes, what: object) -> None:
        body = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
        out.write(_HEAD.pack(kind, len(body)) + body)
        out.flush()

    try:
        config = load_configuration(path, lambda progress: write(_READ, progress), without_page=True)
    except ConfigurationErrors as errors:
        write(_ERRORS, errors.errors)
    else:
        zones = tuple(map(without_lines, config.zones))
        write(_CONFIGURATION, config.with_files(zones, config.access, config.page_errors))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdout.buffer)
