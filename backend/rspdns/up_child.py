"""One program of `rspdns up`: started, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from daemon_kit.child import die_with_parent
from daemon_kit.errors import FatalError

STOP_TIMEOUT_S = 5.0
_LAST_WORDS = 300


class Child:
    """The program `argv`; what it prints goes to the file `log`.

    It is in a session of its own, so that Ctrl-C ends it in our order, and dies with us.
    """

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._argv = argv
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it. Raises FatalError."""
        with self._log.open("ab") as output:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment,
                    start_new_session=True,
                    preexec_fn=die_with_parent(signal.SIGTERM),
                )
            except OSError as error:
                raise FatalError(f"{self._argv[0]} can't be started: {error.strerror or error}") from None

    async def ended(self) -> None:
        """Wait until it ends by itself, and raise FatalError with its last words: it never should."""
        assert self._process is not None  # noqa: S101 - called after start()
        code = await self._process.wait()
        raise FatalError(f"{self.name} ended (exit {code}): {self._last_words() or 'without a word'}")

    async def stop(self) -> None:
        """End it, politely first."""
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip()[:_LAST_WORDS] for line in reversed(lines) if line.strip()), "")
