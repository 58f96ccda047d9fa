"""PowerDNS's LUA records: a zone file, or what `pdnsutil list-zone` prints. One call in each record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from rspdns import names
from rspdns.importing.model import (
    CheckKeys,
    Import,
    ImportedPool,
    ImportedServer,
    ImportProblem,
    NotCarried,
    PolicyName,
    Wishes,
    service_of,
    shown_addresses,
)
from rspdns.importing.records import Special, read_master_file

_SOA: Final = re.compile(r"(?m)^(\S+)\s+(?:\d+\s+)?(?:IN\s+)?SOA\s")
_ORIGIN: Final = re.compile(r"(?m)^\$ORIGIN\s+(\S+)")
_TOKEN: Final = re.compile(
    r"""\s*(?:([A-Za-z_]\w*)|(-?\d+(?:\.\d+)?)|'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([(){}=,;]))"""
)
_MOST_DEPTH: Final = 8
_PORT_OF: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class _Table:
    """A Lua table: its list, and its named values."""

    items: tuple[Any, ...]
    named: dict[str, Any]


@dataclass(frozen=True)
class _Found:
    policy: PolicyName
    service: str
    servers: tuple[ImportedServer, ...]
    most: int | None
    told: tuple[str, ...] = ()


def read_powerdns(file: Path, zone: str | None, wishes: Wishes) -> Import:
    """Return the zone in a file. Raises ImportProblem.

    `zone`: its name, where the file does not say it.
    """
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise ImportProblem(f"{file}: {getattr(problem, 'strerror', None) or problem}") from None
    made = Import(names.normal(zone or _zone_of(text, file)))
    read = read_master_file(text, str(file), made.zone)
    made.fixed, special = read.fixed, read.special
    made.lose_directives(read.directives)
    by_name: dict[str, list[tuple[Special, _Found]]] = {}
    for record in special:
        what = f"{record.name} {record.type} {' '.join(record.words)}"
        try:
            source = _record(record, wishes)
        except NotCarried as problem:
            made.lost(record.found_at, what, str(problem))
            continue
        by_name.setdefault(record.name, []).append((record, source))
    for name, records in by_name.items():
        _add(made, name, records)
    if not special:
        raise ImportProblem(f"{file}: no LUA record is there")
    return made


def _zone_of(text: str, file: Path) -> str:
    soa = _SOA.search(text)
    owner = soa[1] if soa else ""
    origin = _ORIGIN.search(text)
    base = origin[1] if origin and (soa is None or origin.start() < soa.start()) else "."
    if owner == "@" and base != ".":
        return base
    if owner and owner != "@" and (owner.endswith(".") or base == "."):
        return owner
    raise ImportProblem(f"{file}: it does not say which zone it is: give --zone NAME")


def _add(made: Import, name: str, records: Sequence[tuple[Special, _Found]]) -> None:
    """Add the pool of one name, that of its A and AAAA records together."""
    (first, pool), *others = records
    servers = pool.servers
    for other, more in others:
        if (more.policy, more.service, more.most) != (pool.policy, pool.service, pool.most):
            words = "another LUA record of that name was carried over, with another port or choice"
            made.lost(other.found_at, f"{name} {other.type} {' '.join(other.words)}", words)
            continue
        servers += more.servers
    numbered = tuple(replace(server, name=f"{server.name}-{n}") for n, server in enumerate(servers, start=1))
    most = shown_addresses(servers, pool.most)
    everybody = tuple(dict.fromkeys(server.address for server in servers))
    made.pools.append(
        ImportedPool(first.found_at, name, pool.service, pool.policy, numbered, most, everybody)
    )
    for words in pool.told:
        made.differs(first.found_at, f"{name} LUA", words)


def _record(record: Special, wishes: Wishes) -> _Found:
    if record.type != "LUA":
        raise NotCarried(f"{record.type} has no counterpart here")
    if len(record.words) < 2:
        raise NotCarried("a LUA record is the type of the answer and a snippet in quotes")
    kind, *code = record.words
    if kind.upper() not in ("A", "AAAA"):
        raise NotCarried(f"LUA records of type {kind} have no counterpart")
    if "*" in record.name:
        raise NotCarried("a pool has no wildcard name")
    function, arguments = _call("".join(code))
    reader = _READERS.get(function)
    if reader is None:
        raise NotCarried(f"{function}() has no counterpart")
    source = reader(function, arguments, wishes)
    version = 4 if kind.upper() == "A" else 6
    servers = tuple(server for server in source.servers if server.address.version == version)
    if not servers:
        raise NotCarried(f"no address there is one of {kind.upper()} records")
    return replace(source, servers=servers)


def _ifportup(function: str, arguments: Sequence[Any], wishes: Wishes) -> _Found:
    port, addresses, options = _arguments(function, arguments, 2)
    if not isinstance(port, int) or not 1 <= port <= 65535:
        raise NotCarried(f"{port!r} is no port")
    check = {"type": "tcp", "port": port}
    return _failover(port, service_of(port), check, addresses, options, wishes)


def _ifurlup(function: str, arguments: Sequence[Any], wishes: Wishes) -> _Found:
    text, addresses, options = _arguments(function, arguments, 2)
    try:
        url = urlsplit(text if isinstance(text, str) else "")
    except ValueError:
        raise NotCarried(f"{text!r} is no URL") from None
    if url.scheme not in _PORT_OF or not url.hostname:
        raise NotCarried(f"{text!r} is no URL of http or https")
    try:
        port = url.port or _PORT_OF[url.scheme]
    except ValueError:
        raise NotCarried(f"{text!r} has no port") from None
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    check: dict[str, object] = {
        "type": url.scheme,
        "port": port,
        "path": path,
        "host": url.hostname,
        "status": [200, 200],
    }
    match = options.named.get("stringmatch")
    if match is not None:
        check["contains"] = str(match)
    code = options.named.get("httpcode", 200)
    if not isinstance(code, int) or not 100 <= code <= 599:
        raise NotCarried(f"httpcode {code!r} is none")
    check["status"] = [code, code]
    known = ("stringmatch", "httpcode")
    options = _Table((), {key: option for key, option in options.named.items() if key not in known})
    return _failover(port, f"_{url.scheme}._tcp", check, addresses, options, wishes)


def _failover(
    port: int, service: str, check: CheckKeys, addresses: Any, options: _Table, wishes: Wishes
) -> _Found:
    """Return what ifportup() and ifurlup() choose from: all living, or the first group that has some."""
    selector = options.named.get("selector", "random")
    if selector not in ("random", "all"):
        raise NotCarried(f"selector '{selector}' has no counterpart: 'random' and 'all' have")
    if not isinstance(addresses, _Table) or addresses.named:
        raise NotCarried("the addresses are no list")
    groups = addresses.items if any(isinstance(item, _Table) for item in addresses.items) else (addresses,)
    servers = []
    for rank, group in enumerate(groups):
        for text in group.items if isinstance(group, _Table) else (group,):
            priority = len(groups) - rank if len(groups) > 1 else None
            servers.append(_server(text, wishes.port or port, (check,), priority=priority))
    notes = [
        f"{key} = {value!r} is left out: the check is made as rspdns makes its own"
        for key, value in options.named.items()
        if key not in ("selector", "backupSelector")
    ]
    if options.named.get("backupSelector", "random") != "all":
        notes.append("while nobody lives all servers are answered, not one by chance")
    policy: PolicyName = "priority" if len(groups) > 1 else "round-robin"
    return _Found(policy, service, tuple(servers), 1 if selector == "random" else None, tuple(notes))


def _pickrandom(function: str, arguments: Sequence[Any], wishes: Wishes) -> _Found:
    (addresses,) = arguments if len(arguments) == 1 else (None,)
    return _picked(function, addresses, wishes, weighted=False)


def _all(function: str, arguments: Sequence[Any], wishes: Wishes) -> _Found:
    return replace(_pickrandom(function, arguments, wishes), most=None)


def _pickweighted(function: str, arguments: Sequence[Any], wishes: Wishes) -> _Found:
    (addresses,) = arguments if len(arguments) == 1 else (None,)
    return _picked(function, addresses, wishes, weighted=True)


def _picked(function: str, addresses: Any, wishes: Wishes, *, weighted: bool) -> _Found:
    if wishes.port is None or not wishes.checks:
        raise NotCarried(f"{function}() checks nothing and names no port: say --port and --check tcp")
    if not isinstance(addresses, _Table) or addresses.named:
        raise NotCarried("the addresses are no list")
    servers = []
    for item in addresses.items:
        weight, text = None, item
        if weighted:
            if not isinstance(item, _Table) or len(item.items) != 2 or not isinstance(item.items[0], int):
                raise NotCarried("each item is {weight, 'address'}")
            weight, text = item.items
        servers.append(_server(text, wishes.port, wishes.checks, weight=weight))
    notes = ("a client is not kept at one server: here each answer draws anew",) if "hash" in function else ()
    policy: PolicyName = "weighted-random" if weighted else "round-robin"
    return _Found(policy, service_of(wishes.port), tuple(servers), 1, notes)


_READERS: Final[dict[str, Callable[[str, Sequence[Any], Wishes], _Found]]] = {
    "ifportup": _ifportup,
    "ifurlup": _ifurlup,
    "all": _all,
    "pickrandom": _pickrandom,
    "pickhashed": _pickrandom,
    "pickwrandom": _pickweighted,
    "pickwhashed": _pickweighted,
}


def _server(text: Any, port: int, checks: Iterable[CheckKeys], **more: Any) -> ImportedServer:
    try:
        address = ip_address(text if isinstance(text, str) else "")
    except ValueError:
        raise NotCarried(f"{text!r} is no address") from None
    return ImportedServer("server", address, port, tuple(checks), **more)


def _arguments(function: str, arguments: Sequence[Any], least: int) -> tuple[Any, Any, _Table]:
    if not least <= len(arguments) <= least + 1:
        raise NotCarried(f"{function}() has {least} arguments and options")
    options = arguments[least] if len(arguments) > least else _Table((), {})
    if not isinstance(options, _Table) or options.items:
        raise NotCarried(f"the options of {function}() are no table of names")
    return arguments[0], arguments[1], options


def _call(code: str) -> tuple[str, list[Any]]:
    """Read one call of literals. Raises NotCarried for whatever else Lua can do."""
    reader = _Lua(code.removeprefix(";").strip().removeprefix("return "))
    function = reader.name()
    reader.sign("(")
    arguments = []
    while not reader.has(")"):
        arguments.append(reader.value())
        if not reader.has(")"):
            reader.sign(",")
    reader.sign(")")
    while reader.has(";"):
        reader.sign(";")
    reader.end()
    return function, arguments


class _Lua:
    """Reads Lua's literals."""

    def __init__(self, code: str) -> None:
        self._tokens: list[tuple[str, Any]] = []
        position = 0
        while position < len(code.rstrip()):
            match = _TOKEN.match(code, position)
            if match is None:
                raise NotCarried("the snippet is more than one call with literals")
            position = match.end()
            name, number, single, double, sign = match.groups()
            if name is not None:
                self._tokens.append(("name", name))
            elif number is not None:
                self._tokens.append(("value", float(number) if "." in number else int(number)))
            elif sign is not None:
                self._tokens.append(("sign", sign))
            else:
                self._tokens.append(
                    ("value", re.sub(r"\\(.)", r"\1", single if single is not None else double))
                )

    def has(self, sign: str) -> bool:
        return self._tokens[:1] == [("sign", sign)]

    def sign(self, sign: str) -> None:
        if not self.has(sign):
            raise NotCarried("the snippet is more than one call with literals")
        self._tokens.pop(0)

    def name(self) -> str:
        if not self._tokens or self._tokens[0][0] != "name":
            raise NotCarried("the snippet is more than one call with literals")
        return str(self._tokens.pop(0)[1])

    def end(self) -> None:
        if self._tokens:
            raise NotCarried("the snippet is more than one call with literals")

    def value(self, depth: int = 0) -> Any:
        if depth > _MOST_DEPTH or not self._tokens:
            raise NotCarried("the snippet is more than one call with literals")
        kind, value = self._tokens[0]
        if kind == "value":
            self._tokens.pop(0)
            return value
        if kind == "name" and value in ("true", "false"):
            self._tokens.pop(0)
            return value == "true"
        self.sign("{")
        items, named = [], {}
        while not self.has("}"):
            if self._tokens[:1] and self._tokens[0][0] == "name" and self._tokens[1:2] == [("sign", "=")]:
                key = self.name()
                self.sign("=")
                named[key] = self.value(depth + 1)
            else:
                items.append(self.value(depth + 1))
            if not self.has("}"):
                self.sign(",")
        self.sign("}")
        return _Table(tuple(items), named)
