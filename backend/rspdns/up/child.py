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
"""Characters of a line."""


class Child:
    """The program `argv`; what it prints goes to the file `log`.

    It is in a session of its own, so that Ctrl-C ends it in our order, and dies with us.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        last_lines: int = 1,
        pid_file: Path | None = None,
    ) -> None:
        """`last_lines`: the number of its last lines that are shown when it ends by itself.

        `pid_file` holds its number while it runs.
        """
        self.name = name
        self._pid_file = pid_file
        self._last_lines = last_lines
        self._said_before = 0
        self._argv = argv
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, also again after its end. Raises FatalError."""
        with self._log.open("ab") as output:
            self._said_before = output.tell()
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
        if self._pid_file is not None:
            self._pid_file.write_text(f"{self._process.pid}\n")

    async def ended(self) -> str:
        """Wait until it ends by itself; return how, with its last words."""
        assert self._process is not None  # noqa: S101 - called after start()
        code = await self._process.wait()
        if self._pid_file is not None:
            self._pid_file.unlink(missing_ok=True)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended (exit {code})"
        if code == -signal.SIGKILL:
            return f"{self.name} {how}"
        return f"{self.name} {how}: {self._last_words() or 'without a word'}"

    async def stop(self) -> None:
        """End it, politely first."""
        if self._process is None:
            return
        if self._pid_file is not None:
            self._pid_file.unlink(missing_ok=True)
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
            said = self._log.read_bytes()[self._said_before :].decode(errors="replace")
        except OSError:
            return ""
        lines = [line.strip()[:_LAST_WORDS] for line in said.split("\n") if line.strip()][-self._last_lines :]
        return lines[0] if len(lines) == 1 else "\n" + "\n".join(lines) if lines else ""
