"""Consul: service definitions (JSON), and what its HTTP API answers about services and their health."""

from __future__ import annotations

import json
import json.scanner
import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from rspdns.importing.model import (
    CheckKeys,
    FileLine,
    Import,
    ImportedPool,
    ImportedServer,
    ImportProblem,
    NotCarried,
    Wishes,
    as_name,
    shown_addresses,
)

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")
_MOST_BYTES: Final = 50_000_000
_PORT_OF: Final = {"http": 80, "https": 443}


class _Object(dict[str, Any]):
    """A JSON object, and the line of its brace."""

    line = 0


class _Decoder(json.JSONDecoder):
    """Reads objects with their lines: json's reader written in Python, with a note of where each begins."""

    def __init__(self) -> None:
        super().__init__()
        self._line, self._upto = 1, 0
        self.parse_object = self._object
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined] # typeshed omits it

    def _object(self, text_and_end: tuple[str, int], *rest: Any) -> tuple[_Object, int]:
        text, start = text_and_end  # objects begin in the order of the text
        self._line += text.count("\n", self._upto, start)
        self._upto = start
        line = self._line
        values, end = json.decoder.JSONObject(text_and_end, *rest)  # type: ignore[attr-defined]
        made = _Object(values)
        made.line = line
        return made, end


_KNOWN: Final = frozenset(
    {"name", "id", "address", "port", "weights", "check", "checks", "tags", "kind", "service", "node"}
    | {"meta", "tagged_addresses", "line"}
)
"""The keys of a service that are read, and those that clients of DNS never see."""
_OF_THE_API: Final = frozenset(
    {"enable_tag_override", "create_index", "modify_index", "content_hash", "datacenter", "namespace"}
    | {"partition", "peer_name", "proxy", "connect", "locality", "peering", "token"}
)
"""The keys that Consul's API adds to each service, or needs itself."""


def read_consul(files: Sequence[Path], zone: str, wishes: Wishes) -> Import:
    """Return the services of all files as pools of one zone, without fixed records. Raises ImportProblem."""
    made = Import(zone)
    servers: dict[str, list[ImportedServer]] = {}
    first_found: dict[str, FileLine] = {}
    for file in files:
        for service in _services(_document(file), FileLine(str(file))):
            found_at = FileLine(str(file), service["line"])
            name = str(service.get("name", "")).lower()
            what = f"service {service.get('id') or name or '(no name)'}"
            try:
                if (kind := service.get("kind")) not in (None, "", "typical"):
                    raise NotCarried(f"a {kind} of the mesh is no server")  # noqa: TRY301 - told as the others
                if not _LABEL.fullmatch(name):
                    raise NotCarried(f"{name!r} is no DNS label")  # noqa: TRY301 - told as the others
                server = _server(service, wishes)
            except NotCarried as problem:
                made.lost(found_at, what, str(problem))
                continue
            servers.setdefault(name, []).append(server)
            first_found.setdefault(name, found_at)
            weights = service["weights"]
            if weights.get("warning", 1) != weights.get("passing", 1):
                made.differs(found_at, what, "a check is up or down: the weight for warnings is left out")
            for key in service.keys() - _KNOWN - _OF_THE_API:
                made.differs(found_at, what, f"{key} has no counterpart: it is left out")
            if service.get("tags"):
                made.differs(found_at, what, "the names of tags (TAG.SERVICE.ZONE) are left out")
    for name, of_name in servers.items():
        alike = list({(server.address, server.port): server for server in of_name}.values())
        pool = ImportedPool(
            first_found[name],
            name,
            f"_{name}._tcp",
            "weighted-random",
            tuple(alike),
            shown_addresses(alike),
            (),
        )
        made.pools.append(pool)
        made.differs(
            first_found[name], f"service {name}", f"its SRV records are at _{name}._tcp.{name}.{zone}"
        )
    return made


def _document(file: Path) -> Any:
    if file.suffix == ".hcl":
        raise ImportProblem(
            f"{file}: HCL is not read: give the definition as JSON, or the answer of the HTTP API"
        )
    try:
        with file.open("rb") as source:
            return json.loads(source.read(_MOST_BYTES), cls=_Decoder)
    except RecursionError:
        raise ImportProblem(f"{file}: too many brackets within each other") from None
    except (OSError, ValueError) as problem:
        raise ImportProblem(f"{file}: {getattr(problem, 'strerror', None) or problem}") from None


def _services(document: Any, found_at: FileLine) -> Iterator[dict[str, Any]]:
    """Yield each service of a file in one form: name, id, address, port, weights, checks, tags."""
    if isinstance(document, dict) and ("service" in document or "services" in document):
        listed = document.get("services", [])
        single = document.get("service")
        for service in [
            *(listed if isinstance(listed, list) else []),
            *([single] if single is not None else []),
        ]:
            yield from _service(service, found_at)
    elif isinstance(document, dict) and all(isinstance(value, dict) for value in document.values()):
        for service in document.values():  # /v1/agent/services
            yield from _service(service, found_at)
    elif isinstance(document, list):
        for service in document:  # /v1/catalog/service/NAME, /v1/health/service/NAME
            yield from _service(service, found_at)
    else:
        raise ImportProblem(
            f"{found_at}: neither a service definition nor an answer of the catalog or health API"
        )


def _service(listed: Any, found_at: FileLine) -> Iterator[dict[str, Any]]:
    if not isinstance(listed, dict):
        raise ImportProblem(f"{found_at}: a service is an object")
    node: Any = listed.get("Node")
    service = listed.get("Service")
    if isinstance(node, dict) and isinstance(service, dict):  # health
        whole = _lower(service)
        whole["address"] = whole.get("address") or _lower(node).get("address")
        whole["name"] = whole.pop("service", "")
        whole["checks"] = [
            {**_lower(check.get("Definition") or {}), "name": check.get("Name")}
            for check in listed.get("Checks") or []
            if isinstance(check, dict) and check.get("ServiceID")
        ]
    elif "ServiceName" in listed:  # catalog
        whole = {
            "name": listed["ServiceName"],
            "id": listed.get("ServiceID"),
            "address": listed.get("ServiceAddress") or listed.get("Address"),
            "port": listed.get("ServicePort"),
            "weights": listed.get("ServiceWeights"),
            "tags": listed.get("ServiceTags"),
        }
    else:
        whole = _lower(listed)
        if "service" in whole and "name" not in whole:
            whole["name"] = whole["service"]
    whole["line"] = getattr(listed, "line", 0)
    weights = whole.get("weights")
    whole["weights"] = _lower(weights) if isinstance(weights, dict) else {}
    check = whole.get("check")
    checks = whole.get("checks")
    whole["checks"] = [
        _lower(entry)
        for entry in [*(checks if isinstance(checks, list) else []), *([check] if check is not None else [])]
        if isinstance(entry, dict)
    ]
    yield whole


def _lower(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the keys of definitions: the API writes TLSSkipVerify, files tls_skip_verify."""
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower(): value for key, value in document.items()}


def _server(service: Mapping[str, Any], wishes: Wishes) -> ImportedServer:
    try:
        address = ip_address(str(service.get("address") or ""))
    except ValueError:
        given = service.get("address")
        why = (
            f"{given!r} is no IP address"
            if given
            else "it has no address of its own: give the catalog's answer"
        )
        raise NotCarried(why) from None
    port = service.get("port") or wishes.port
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        raise NotCarried("it has no port: say --port")
    checks = tuple(_check(check, port, str(address)) for check in service["checks"])
    if not checks:
        checks = wishes.checks
    if not checks:
        raise NotCarried("it has no check that is known here: say --check tcp")
    weight = service["weights"].get("passing", 1)
    if not isinstance(weight, int) or isinstance(weight, bool) or not 0 <= weight <= 65535:
        raise NotCarried(f"its weight {weight!r} is none")
    name = as_name(str(service.get("id") or service.get("name")))
    return ImportedServer(name, address, port, checks, weight=weight)


def _check(check: Mapping[str, Any], port: int, address: str) -> CheckKeys:
    """Return the [[as.check]] of a check. Raises NotCarried."""
    called = f"the check {check.get('name') or check.get('id') or ''}".rstrip()
    if text := check.get("tcp"):
        host, _, at = str(text).rpartition(":")
        _here(called, host, address)
        return {"type": "tcp", "port": _port(called, at, port)}
    if text := check.get("http"):
        try:
            url = urlsplit(str(text))
        except ValueError:
            raise NotCarried(f"{called}: {text!r} is no URL") from None
        method = str(check.get("method") or "GET").upper()
        if url.scheme not in _PORT_OF or method != "GET" or check.get("header") or check.get("body"):
            raise NotCarried(f"{called}: only GET without headers of its own has a counterpart")
        _here(called, url.hostname or "", address)
        try:
            asked = url.port or _PORT_OF[url.scheme]
        except ValueError:
            raise NotCarried(f"{called}: {text!r} has no port") from None
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        keys: dict[str, object] = {"type": url.scheme, "port": asked, "path": path, "status": [200, 299]}
        if check.get("tls_skip_verify") is True and url.scheme == "https":
            keys["verify"] = False
        return keys
    arguments = check.get("args")
    if isinstance(arguments, list) and arguments and all(isinstance(argument, str) for argument in arguments):
        return {"type": "exec", "command": arguments}
    kinds = sorted(
        key
        for key in ("grpc", "udp", "ttl", "alias_service", "alias_node", "script", "h2ping")
        if check.get(key)
    )
    raise NotCarried(f"{called}: {', '.join(kinds) or 'its kind'} has no counterpart")


def _here(called: str, host: str, address: str) -> None:
    """A sidecar's checks go to its server's own address."""
    if host.strip("[]") not in (address, "localhost", "127.0.0.1", "::1", "0.0.0.0", ""):  # noqa: S104 - read, not bound
        raise NotCarried(f"{called} goes to {host}, not to the server's address {address}")


def _port(called: str, text: str, port: int) -> int:
    if not text:
        return port
    if not text.isdigit() or not 1 <= int(text[:6]) <= 65535:
        raise NotCarried(f"{called}: {text!r} is no port")
    return int(text)
