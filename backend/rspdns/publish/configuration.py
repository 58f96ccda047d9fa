"""The tables [[publish]] of `rspdns.toml`, and the key files that they name."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from daemon_kit.addresses import ListenAddress
from daemon_kit.config_file import StrictModel, duplicates, find
from daemon_kit.files import PathText, read_secret
from pydantic import AfterValidator, Field

from rspdns import names

MOST_PUBLICATIONS = 16
ALGORITHMS = ("hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha224", "hmac-sha1", "hmac-md5")
"""Those that dnspython and the name servers have in common; the first is what `tsig-keygen` makes."""
_COMMENT = re.compile(r"/\*.*?\*/|(?://|#)[^\n]*", re.DOTALL)
_KEY = re.compile(r'\s*key\s+"?(?P<name>[^\s"{;]+)"?\s*\{(?P<body>[^{}]*)\}\s*;?\s*')
_STATEMENT = re.compile(r'\s*(?P<word>algorithm|secret)\s+"?(?P<value>[^\s";]+)"?\s*;')


def _server(text: str) -> str:
    ListenAddress.parse(text)
    return text


class PublishConfig(StrictModel):
    """A name server that is sent the records of a zone's pools by DNS UPDATE."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")]
    """The name of the publication in status, metrics and log."""
    server: Annotated[str, AfterValidator(_server)]
    """Address and port of the zone's primary name server: `10.0.0.53:53`."""
    zone: Annotated[str, AfterValidator(names.normal), Field(min_length=1)]
    """A zone of `zones_dir`. Only the records of its pools are published: SOA, NS and all others are the
    server's own."""
    key: PathText | None = None
    """Whole path of the file with the TSIG key, as `tsig-keygen` makes it. Without it messages are not
    signed."""
    withdraw: Literal["stay", "expire"] = "stay"
    """The end of the records when nobody publishes any more. stay: there is none. expire: the TXT record
    `_rspdns-expire.ZONE` says until when they are vouched for; who removes them then is up to you."""
    expire_s: Annotated[int, Field(ge=30, le=86_400)] = 300
    """How long `expire` vouches for the records; the TXT record is renewed after a third of it."""

    @property
    def endpoint(self) -> tuple[str, int]:
        """The address and port of the server."""
        server = ListenAddress.parse(self.server)
        return str(server.address), server.port

    @property
    def is_forgeable(self) -> bool:
        """Whether messages go to another host unsigned."""
        return self.key is None and not ListenAddress.parse(self.server).is_loopback


def problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between the keys of all [[publish]] in the unchecked `document`."""
    yield from duplicates(document, ("publish", "*", "name"))
    seen: dict[tuple[object, object], str] = {}
    tables = [(place, table) for place, table in find(document, ("publish", "*")) if isinstance(table, dict)]
    for location, table in tables:
        target = str(table.get("server")), str(table.get("zone")).lower().rstrip(".")
        first = seen.setdefault(target, str(table.get("name")))
        if "server" in table and "zone" in table and first != str(table.get("name")):
            yield location, f"publishes the same zone at the same server as {first!r}"
        if "expire_s" in table and table.get("withdraw", "stay") != "expire":
            yield (*location, "expire_s"), 'needs withdraw = "expire"'
    if len(tables) > MOST_PUBLICATIONS:
        yield ("publish",), f"{len(tables)} publications; {MOST_PUBLICATIONS} at most"


def unknown_zone(config: PublishConfig, zones: Collection[str]) -> str | None:
    """Why the zone can't be published, in words; None: it can."""
    if config.zone in zones:
        return None
    return f"there is no zone {config.zone!r}; there are: {', '.join(sorted(zones)[:10]) or 'none'}"


@dataclass(frozen=True, slots=True)
class UpdateKey:
    """A key of RFC 8945."""

    name: str
    algorithm: str
    secret: bytes = field(repr=False)


def read_key(path: str) -> UpdateKey:
    """Read the one key of a file. Raises ValueError, in words, never with the secret."""
    text = _COMMENT.sub("", read_secret(path))
    match = _KEY.fullmatch(text)
    statements = list(_STATEMENT.finditer(match["body"])) if match is not None else []
    values = {statement["word"]: statement["value"] for statement in statements}
    if match is None or _STATEMENT.sub("", match["body"]).strip() or values.keys() != {"algorithm", "secret"}:
        words = 'key "rspdns" { algorithm hmac-sha256; secret "..."; };'
        raise ValueError(f"{path}: holds other than one TSIG key, {words} (tsig-keygen rspdns)")
    algorithm = values["algorithm"].lower().rstrip(".")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"{path}: the algorithm {algorithm[:40]!r} is none of {', '.join(ALGORITHMS)}")
    try:
        secret = base64.b64decode(values["secret"], validate=True)
    except binascii.Error:
        secret = b""
    if not secret:
        raise ValueError(f"{path}: the secret is no base64")
    try:
        return UpdateKey(names.normal(match["name"].rstrip(".")), algorithm, secret)
    except ValueError as problem:
        raise ValueError(f"{path}: the name of the key: {problem}") from None
