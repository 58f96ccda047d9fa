"""What survives a restart: the PE identifier of each AS, and whether it is drained. One file for each."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from daemon_kit.regular_file import open_regular

_VERSION = 1
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class ServerState:
    """What is kept of one AS: its PE identifier (1..0xffffffff), and whether the operator drained it."""

    identifier: int
    drained: bool = False


def fresh_identifier() -> int:
    """Return a PE identifier nobody else is likely to have (RFC 5352 section 3.1: random 32 bits)."""
    return secrets.randbelow(0xFFFFFFFF) + 1


class StateDirectory:
    """The directory that holds the state of every AS of this agent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = get_logger("state")

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

    def load(self, name: str) -> ServerState:
        """Return the state of the AS `name`; a new one, saved at once, for none or a damaged one."""
        file = self._file(name)
        try:
            with open_regular(file) as kept:
                return _decode(kept.read(_MAX_BYTES))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self._log.warning("state_unreadable", file=str(file), problem=str(error))
        state = ServerState(fresh_identifier())
        self.save(name, state)
        return state

    def save(self, name: str, state: ServerState) -> None:
        """Write the state of the AS `name`, whole or not at all. Raises FatalError."""
        file = self._file(name)
        new = file.with_suffix(".new")
        try:
            with new.open("w") as output:
                json.dump({"version": _VERSION, **asdict(state)}, output)
                output.write("\n")
                output.flush()
                os.fsync(output.fileno())
            new.replace(file)
            self._sync_directory()  # or a power cut may bring the old name back
        except OSError as error:
            raise FatalError(f"state file {file} can't be written: {error.strerror}") from None

    def _sync_directory(self) -> None:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _file(self, name: str) -> Path:
        return self._path / f"{name}.json"


def _decode(data: bytes) -> ServerState:
    """Return the state in a file. Raises ValueError."""
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError("not a state file of this version")
    identifier, drained = document.get("identifier"), document.get("drained")
    if type(identifier) is not int or not 0 < identifier <= 0xFFFFFFFF or type(drained) is not bool:
        raise ValueError("identifier or drained is wrong")
    return ServerState(identifier, drained)
