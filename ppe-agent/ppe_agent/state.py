"""The state that survives a restart: the PE identifier of each AS, and how it is drained. One file for each.

A disk may take seconds. So while the agent runs, one thread reads and writes these files, in the order in
which it was asked; the event loop goes on.

`KeptState` holds the state of one AS in memory, and brings it to the disk as soon as the disk takes it.
"""

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from daemon_kit.errors import FatalError
from daemon_kit.files import open_regular, remove_unfinished, replace_file
from daemon_kit.logs import get_logger
from pydantic import TypeAdapter, ValidationError

from ppe_agent.daemon_threads import DaemonThreads
from rserpool import fresh_identifier

_VERSION = 1
_FINISH_S = 1.0
_MAX_BYTES = 64 * 1024
_AFTER_REMOVAL = "{} then has a new identifier, and is not drained"
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Drain:
    """An operator's decision to take an AS out: by whom, why, since when and until when (wall clock, seconds
    since 1970). Without `until_s` it has no end. A state of an earlier version only has that it is drained.
    """

    by: str = ""
    reason: str = ""
    since_s: float | None = None
    until_s: float | None = None

    def left_s(self, wall_s: float) -> float | None:
        """How long it lasts from `wall_s` on, in seconds, 0 when it is over; None: without an end."""
        return None if self.until_s is None else max(0.0, self.until_s - wall_s)

    def renewed(self, before: Self | None) -> Self:
        """Return this drain with the reason, the end and the beginning of one that lasts, where it has none
        of its own: a command that is given again, to wait say, changes nothing."""
        if before is None:
            return self
        if not self.reason and self.until_s is None:
            return before
        until_s = before.until_s if self.until_s is None else self.until_s
        return replace(self, reason=self.reason or before.reason, since_s=before.since_s, until_s=until_s)


@dataclass(frozen=True)
class KeptServer:
    """The kept state of one AS: its PE identifier (1..0xffffffff), and how the operator drained it."""

    identifier: int
    drain: Drain | None = None
    is_fresh: bool = field(default=False, compare=False)
    """The identifier can't be known anywhere else: this run of the agent made it. Not written."""

    @property
    def drained(self) -> bool:
        """Whether the operator drained it."""
        return self.drain is not None


class StateDirectory:
    """The directory that holds the state of every AS of this agent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = DaemonThreads(1, "state")
        self._pending: set[asyncio.Future[Any]] = set()

    def prepare(self) -> None:
        """Make the directory. Raises FatalError when it can't be written."""
        try:
            self._path.mkdir(mode=0o750, parents=True, exist_ok=True)
            probe = self._path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise FatalError(
                f"state directory {self._path} can't be written ({error.strerror}); "
                "make it writable for this user, or set path in [state]"
            ) from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other agents from using the directory; the end of this process ends that.

        Raises FatalError when one does: two with the same PE identifiers would undo each other's work.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            words = f"state directory {self._path} can't be opened ({error.strerror}): make it readable"
            raise FatalError(words) from None
        try:
            # Over a network there may be no locks, or none of directories (NFS): then nothing keeps it.
            with contextlib.suppress(OSError):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise FatalError(
                        f"state directory {self._path} is used by another ppe-agent that runs; "
                        "give each a directory of its own (path in [state])"
                    ) from None
            yield
        finally:
            os.close(descriptor)

    def reading(self, name: str) -> asyncio.Future[KeptServer]:
        """Do `load()` in the thread, whoever waits for it."""
        return self._in_thread(self.load, name)

    def writing(self, name: str, state: KeptServer) -> asyncio.Future[None]:
        """Do `save()` in the thread, whoever waits for it."""
        return self._in_thread(self.save, name, state)

    def _in_thread(self, do: Callable[..., ResultT], *arguments: Any) -> asyncio.Future[ResultT]:
        done = asyncio.get_running_loop().run_in_executor(self._thread, do, *arguments)
        self._pending.add(done)
        done.add_done_callback(self._pending.discard)
        return asyncio.shield(done)

    async def finish(self) -> None:
        """Wait for what is being written, but not for long: whoever was told that it is written is right."""
        if not self._pending:
            return
        _, late = await asyncio.wait(self._pending, timeout=_FINISH_S)
        if late:
            get_logger("state").warning("ended_before_the_disk", path=str(self._path), pending=len(late))

    def load(self, name: str) -> KeptServer:
        """Return the state of the AS `name`; a new one, saved at once, when there is none.

        Raises FatalError as `read()` does, and when it can't be written.
        """
        state = self.read(name)
        if state is None:
            state = KeptServer(fresh_identifier(), is_fresh=True)
            self.save(name, state)
        return state

    def read(self, name: str) -> KeptServer | None:
        """Return the state of the AS `name`, None when there is none.

        Raises FatalError for a file that can't be read or is damaged: it may say that the AS is drained.
        """
        file = self.file(name)
        remove_unfinished(file)
        try:
            with open_regular(file) as kept:
                return _decode(kept.read(_MAX_BYTES))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FatalError(
                f"state file {file} can't be read ({error.strerror or error}), and may say that {name} is "
                f"drained: make it readable for this user, or remove it: {_AFTER_REMOVAL.format(name)}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise FatalError(
                f"state file {file} is damaged ({error}), and may have said that {name} is drained: "
                f"remove it: {_AFTER_REMOVAL.format(name)}"
            ) from None

    def save(self, name: str, state: KeptServer) -> None:
        """Write the state of the AS `name`, whole or not at all. Raises FatalError."""
        file = self.file(name)
        kept: dict[str, Any] = {"version": _VERSION, "identifier": state.identifier, "drained": state.drained}
        if state.drain is not None:
            kept["drain"] = asdict(state.drain)
        try:
            replace_file(file, json.dumps(kept).encode() + b"\n")
        except OSError as error:
            raise FatalError(f"state file {file} can't be written: {error.strerror}") from None

    def file(self, name: str) -> Path:
        """Return where the state of the AS `name` is."""
        return self._path / f"{name}.json"


_DRAIN = TypeAdapter(Drain)


def _decode(data: bytes) -> KeptServer:
    """Return the state in a file. Raises ValueError."""
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError("not a state file of this version")
    identifier, drained = document.get("identifier"), document.get("drained")
    if type(identifier) is not int or not 0 < identifier <= 0xFFFFFFFF or type(drained) is not bool:
        raise ValueError("identifier or drained is wrong")
    if not drained:
        return KeptServer(identifier)
    try:
        return KeptServer(identifier, _DRAIN.validate_python(document.get("drain", {})))
    except ValidationError as error:
        raise ValueError(f"drain is wrong: {error.errors()[0]['msg']}") from None


_RETRY_FIRST_S: Final = 1.0
_RETRY_CEILING_S: Final = 30.0


class KeptState:
    """The state of the AS `name` that outlasts a restart of the agent; `problem` says when it would not,
    just now.

    A state that can't be written is tried again, for ever. However quickly it changes, at most one write of
    `write_soon()` waits for the disk.
    """

    def __init__(self, states: StateDirectory, name: str, state: KeptServer) -> None:
        self.state = state
        self.problem: str | None = None
        self._states = states
        self._name = name
        self._writing = 0
        self._is_old = False  # it changed since the last write was asked for
        self._is_closed = False
        self._wait_s = _RETRY_FIRST_S
        self._retry: asyncio.TimerHandle | None = None
        self._log = get_logger("state").bind(name=name)

    def set_drain(self, drain: Drain | None) -> None:
        """Note that the operator drained it, or (None) that no longer; `write()` is for the caller to do."""
        self.state = replace(self.state, drain=drain)

    def renumber(self, identifier: int | None = None) -> int:
        """Take another PE identifier, a fresh one unless given, written as soon as possible; return it."""
        self.state = replace(self.state, identifier=fresh_identifier() if identifier is None else identifier)
        self.write_soon()
        return self.state.identifier

    def write(self) -> asyncio.Future[None]:
        """Write it, now. Done when the disk has it; FatalError if it can't be written (it is tried again)."""
        return asyncio.shield(self._begin())

    def write_soon(self) -> None:
        """Write it when what is being written now is done."""
        self._is_old = True
        if not self._writing and self._retry is None:
            self._begin()

    def close(self) -> None:
        """Try no more."""
        self._is_closed = True
        self._cancel_retry()

    def _begin(self) -> asyncio.Future[None]:
        self._is_old = False
        self._writing += 1
        written = self._states.writing(self._name, self.state)
        written.add_done_callback(self._written)
        return written

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _written(self, written: asyncio.Future[None]) -> None:
        self._writing -= 1
        problem = None if written.cancelled() else written.exception()
        if isinstance(problem, FatalError):
            self._is_old = True
            if self.problem is None:
                self._log.error("state_not_written", problem=str(problem), hint="it is tried again")
            self.problem = str(problem)
            self._cancel_retry()
            if not self._is_closed:
                self._retry = asyncio.get_running_loop().call_later(self._wait_s, self._try_again)
                self._wait_s = min(2 * self._wait_s, _RETRY_CEILING_S)
            return
        if self.problem is not None:
            self._log.info("state_written")
        self.problem = None
        self._wait_s = _RETRY_FIRST_S
        self._cancel_retry()
        if self._is_old and not self._writing:
            self._begin()

    def _try_again(self) -> None:
        self._retry = None
        if not self._writing:
            self._begin()
