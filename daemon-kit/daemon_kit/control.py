"""A control socket: one JSON object per line, in and out, over a unix socket.

A request is `{"command": NAME, ...}`; the answer is `{"result": {...}}` or `{"error": "what is wrong"}`.

A request with a key that its command does not know, or with a value of a wrong type, is refused: a mistyped
`name` must not turn "drain this server" into "drain all".
"""

import asyncio
import contextlib
import json
import pwd
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from daemon_kit.unix_listener import SOCKET_STAYS, listen_at

CommandHandler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

MAX_LINE_BYTES = 64 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_CLIENTS = 16
IDLE_TIMEOUT_S = 60.0


NAME_S = 0.5
"""How long the name of a user is waited for: a directory service that hangs must not hold a command up."""
_PEER: ContextVar[int | None] = ContextVar("peer", default=None)
_CREDENTIALS = struct.Struct("=3i")


async def peer_user() -> str:
    """Return the user of the process whose command is handled now; its number where it has no name, or
    where that can't be looked up in time."""
    number = _PEER.get()
    if number is None:
        return "this service"
    loop = asyncio.get_running_loop()
    name: asyncio.Future[str] = loop.create_future()

    def tell(found: str) -> None:
        if not name.done():
            name.set_result(found)

    def look_up() -> None:
        try:
            found = pwd.getpwuid(number).pw_name
        except (KeyError, OSError):
            found = f"user {number}"
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=look_up, name="user", daemon=True).start()
    try:
        async with asyncio.timeout(NAME_S):
            return await name
    except TimeoutError:
        return f"user {number}"


class ControlError(Exception):
    """A command was refused, or the service can't be reached; the message is for the person who asked."""


@dataclass(frozen=True)
class ControlCommand:
    """A command that takes keys, with the type of each key's value. Null is the same as no key."""

    handler: CommandHandler
    keys: Mapping[str, type] = field(default_factory=dict)


class ControlServer:
    """Answers commands on the unix socket `path`; only owner and group may connect (`mode`).

    `commands` maps the command's name to a coroutine function that takes the whole request and returns the
    result, or raises ControlError. A command with keys is given as a `ControlCommand`, which names them.
    """

    def __init__(
        self, path: str | Path, commands: Mapping[str, CommandHandler | ControlCommand], mode: int = 0o660
    ) -> None:
        self._path = Path(path)
        self._commands = {
            name: command if isinstance(command, ControlCommand) else ControlCommand(command)
            for name, command in commands.items()
        }
        self._mode = mode
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._log = get_logger("control")

    async def claim(self) -> None:
        """Listen, and let commands wait until `start()`. The directory of the socket is made if need be.

        Raises FatalError when the socket can't be made or another process answers there.
        """
        listener = _listen(self._path, self._mode)
        self._server = await asyncio.start_unix_server(
            self._accept, sock=listener, limit=MAX_LINE_BYTES, start_serving=False, **SOCKET_STAYS
        )

    async def start(self) -> None:
        """Answer, and listen first where that is not done yet: see `claim()`."""
        if self._server is None:
            await self.claim()
        assert self._server is not None  # noqa: S101 - claimed
        await self._server.start_serving()

    async def close(self) -> None:
        """Stop answering and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        with contextlib.suppress(OSError):
            self._path.unlink()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - start_unix_server makes a task for each client
        self._clients.add(task)
        _PEER.set(_peer_of(writer.get_extra_info("socket")))
        try:
            if len(self._clients) > MAX_CLIENTS:
                await _send(writer, {"error": f"more than {MAX_CLIENTS} clients at once; try again"})
            else:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client is gone or silent, or we are closing: either way the connection ends here
        finally:
            self._clients.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_TIMEOUT_S):
                    line = await reader.readline()
            except ValueError:  # longer than the reader's limit
                await _send(writer, {"error": f"a request is at most {MAX_LINE_BYTES} bytes"})
                return
            if not line.endswith(b"\n"):
                return
            await _send(writer, await self.answer(line))

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to one request line, whatever it holds."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return {"error": "not JSON"}
        name = request.get("command") if isinstance(request, dict) else None
        if not isinstance(name, str):
            return {"error": 'a request is a JSON object with a text "command"'}
        command = self._commands.get(name)
        if command is None:
            return {"error": f"unknown command {name[:80]!r}; known: {', '.join(sorted(self._commands))}"}
        try:
            check_keys(name, command.keys, request)
            return {"result": await command.handler(request)}
        except ControlError as error:
            return {"error": str(error)}
        except Exception:
            self._log.exception("command_failed", command=name)
            return {"error": f"{name} failed inside the service; its log says why"}


_TYPE_WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list"}


def check_keys(command: str, keys: Mapping[str, type], request: Mapping[str, Any]) -> None:
    """Raise ControlError when the request holds a key that the command does not know, or a wrong type."""
    for key, value in request.items():
        if key == "command":
            continue
        if key not in keys:
            known = f"it takes: {', '.join(sorted(keys))}" if keys else "it takes no other keys"
            raise ControlError(f"{command} does not know the key {key[:80]!r}; {known}; nothing was done")
        if value is not None and not _is_a(keys[key], value):
            raise ControlError(f"{key!r} of {command} is {_TYPE_WORDS[keys[key]]}; nothing was done")


def _is_a(kind: type, value: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool  # to Python, true is a whole number
    return isinstance(value, (int, float) if kind is float else kind)


def request(path: str | Path, command: str, /, *, timeout_s: float = 5.0, **arguments: Any) -> dict[str, Any]:
    """Send one command to the service at the unix socket `path`; return its result. Raises ControlError."""
    data = json.dumps({**arguments, "command": command}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            with contextlib.suppress(BrokenPipeError):  # refused before it was asked: the answer says why
                connection.sendall(data)
            with connection.makefile("rb") as answers:
                line = answers.readline(MAX_ANSWER_BYTES)
    except OSError as error:
        raise _unreachable(path, timeout_s, error) from None
    return _result(path, line)


async def ask(
    path: str | Path, command: str, /, *, timeout_s: float = 5.0, **arguments: Any
) -> dict[str, Any]:
    """As `request()`, without blocking the loop, and it can be cancelled. Raises ControlError."""
    data = json.dumps({**arguments, "command": command}).encode() + b"\n"
    writer = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=MAX_ANSWER_BYTES)
            writer.write(data)
            line = await reader.readline()
    except (OSError, TimeoutError) as error:
        raise _unreachable(path, timeout_s, error) from None
    except ValueError:
        line = b"not JSON"  # longer than any answer
    finally:
        if writer is not None:
            writer.close()
    return _result(path, line)


def _unreachable(path: str | Path, timeout_s: float, error: OSError) -> ControlError:
    """Say why there was no answer."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return ControlError(f"nothing answers at {path}; is the service running?")
    if isinstance(error, PermissionError):
        return ControlError(f"not allowed to use {path}; be root or in its group")
    if isinstance(error, TimeoutError):
        return ControlError(f"no answer at {path} within {timeout_s:g} s")
    return ControlError(f"can't ask at {path}: {error.strerror or error}")


def _result(path: str | Path, line: bytes) -> dict[str, Any]:
    """Return what an answer's line brings. Raises ControlError."""
    if not line:
        raise ControlError(f"the service at {path} ended before it answered; its log says why")
    try:
        answer = json.loads(line)
        if "error" in answer:
            raise ControlError(str(answer["error"]))
        result = answer["result"]
    except (ValueError, TypeError, KeyError):
        raise ControlError(f"what answers at {path} is no control socket of ours") from None
    if not isinstance(result, dict):
        raise ControlError(f"what answers at {path} is no control socket of ours")
    return result


def _peer_of(connection: Any) -> int:
    """The number of the user at the other side of a unix socket, as the kernel noted it (unix(7),
    SO_PEERCRED)."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, number, _ = _CREDENTIALS.unpack(given)
    return int(number)


async def _send(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")
    async with asyncio.timeout(IDLE_TIMEOUT_S):
        await writer.drain()


def _listen(path: Path, mode: int) -> socket.socket:
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o750)
            path.parent.chmod(0o750)
    except OSError as error:
        raise FatalError(f"control socket {path} can't be made: {error.strerror or error}") from None
    return listen_at(path, mode, "control socket")
