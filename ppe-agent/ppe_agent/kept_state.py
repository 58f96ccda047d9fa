"""The state of one AS in memory, and on the disk as soon as the disk takes it."""

import asyncio
from dataclasses import replace
from typing import Final

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppe_agent.state import ServerState, StateDirectory, fresh_identifier

_RETRY_FIRST_S: Final = 1.0
_RETRY_CEILING_S: Final = 30.0


class KeptState:
    """What of the AS `name` outlasts a restart of the agent; `problem` says when it would not, just now.

    What can't be written is tried again, for ever. However quickly it changes, at most one write of
    `write_soon()` waits for the disk.
    """

    def __init__(self, states: StateDirectory, name: str, state: ServerState) -> None:
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

    def drain(self, drained: bool) -> None:
        """Note that the operator drained it, or (False) that no longer; `write()` is for the caller to do."""
        self.state = replace(self.state, drained=drained)

    def renumber(self) -> int:
        """Take a fresh PE identifier, written as soon as possible; return it."""
        self.state = replace(self.state, identifier=fresh_identifier())
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
