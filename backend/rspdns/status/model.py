"""The model of `rspdns status`: the one description of each value, with its meaning, unit and range.

The OpenAPI schemas (`schemas()`), the reading of a status (`read()`), metrics and the terminal view are made
from these classes. Fields have the names of the configuration; within /v1/ fields are only ever added.

They are dataclasses that pydantic describes and validates, not its `BaseModel`: of 10,000 members each is
made anew for every scrape, and a plain dataclass is made in a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from daemon_kit.addresses import endpoint
from pool_user import Code, OverrideAction, Standing
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

Schema = dict[str, Any]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(ge=0)]
Identifier = Annotated[str, Field(pattern="^[0-9a-f]{8}$")]
ServerName = Annotated[str | None, Field(description="what `expect` calls the server; null: no name")]
HandleText = Annotated[
    str,
    Field(
        description="the pool handle it is registered under; `handlespace/handle` if handlespaces have names"
    ),
]
HandlespaceText = Annotated[str | None, Field(description="its handlespace; null: it has no name")]


@dataclass(slots=True)
class MemberStatus:
    """A pool element that is in: clients are sent to it."""

    handle: HandleText
    name: ServerName
    identifier: Annotated[Identifier, Field(description="PE identifier, as in its target name")]
    addresses: list[str]
    port: Count
    protocol: Annotated[str, Field(description="udp, tcp or sctp")]
    home_registrar: Annotated[Identifier, Field(description="identifier of the registrar it registered at")]
    policy: Annotated[str, Field(description="its policy (RFC 5356)")]
    load: Annotated[Number | None, Field(description="0..1; null where its policy has none")]
    priority: Annotated[Count | None, Field(description="of its SRV record; null: not shown in this pool")]
    weight: Annotated[Count | None, Field(description="of its SRV record")]
    since_s: Annotated[Number, Field(description="how long it has been in")]
    stale: Annotated[bool, Field(description="in from memory: no registrar vouches for it at present")]
    site: Annotated[str | None, Field(description="the [[site]] of its address; null: none")]
    share: Annotated[
        Number | None, Field(description="0..1, the part of the calls that an override gives it; null: none")
    ]
    handlespace: HandlespaceText = None

    @property
    def called(self) -> str:
        """The member's name for people: its name, if it has one, and its first address."""
        return _called(self.name, self.addresses[0], self.port)


@dataclass(slots=True)
class OutStatus:
    """A server that is known or expected, and not shown."""

    handle: HandleText
    name: ServerName
    identifier: Identifier | None
    address: str | None
    port: Count
    reason: Annotated[str, Field(description="why it is out")]
    cause: Annotated[Code, Field(description="the same as a code")]
    look_at: Annotated[str, Field(description="what to look at next; empty: nothing helps but waiting")]
    missing: Annotated[bool, Field(description="it should be in")]
    planned: Annotated[bool, Field(description="a person took it out, by an override or a drain")]
    planned_s: Annotated[Number | None, Field(description="for how long from now on; null: without an end")]
    since_s: Annotated[Number | None, Field(description="how long it has been out; null: never seen")]
    handlespace: HandlespaceText = None

    @property
    def called(self) -> str:
        """The server's name for people: its name, if it has one, and its address."""
        return _called(self.name, self.address, self.port)


@dataclass(slots=True)
class RefusedStatus:
    """Registrations refused before anything about them was stored, since the start."""

    foreign: Annotated[Count, Field(description="outside accept, beyond the few that are shown")]
    too_many: Annotated[Count, Field(description="beyond max_members")]
    unproven: Annotated[Count, Field(description="not made with the key of a keyed pool")]


@dataclass(slots=True)
class SiteStatus:
    """A site of a pool with `order`."""

    name: str
    rank: Annotated[Count, Field(description="0 for the site that gets the calls, by SRV priority")]
    members: Annotated[Count, Field(description="members that are in")]
    enough: Annotated[bool, Field(description="it counts as enough: by min_in, min_share and back_after_s")]
    spilling: Annotated[bool, Field(description="it hands a part of the calls on: spill_at")]
    load: Annotated[Number | None, Field(description="0..1, mean of its members; null: they report none")]
    back_s: Annotated[
        Number | None, Field(description="how long until it counts again; null: it does, or lacks members")
    ]


@dataclass(slots=True)
class PoolHandlespaceStatus:
    """A pool's part in one handlespace."""

    name: str
    known: Annotated[bool, Field(description="false: no registrar of it has told of the pool yet")]
    members: Annotated[Count, Field(description="members that are in")]
    stale_s: Annotated[
        Number | None,
        Field(description="how long none of its registrars can be believed; null while at least one can"),
    ]


@dataclass(slots=True)
class PoolStatus:
    """A pool of a zone."""

    handles: Annotated[list[str], Field(description="pool handles: one, or the shards of one pool")]
    name: Annotated[str, Field(description="where its A, AAAA and NAPTR records stand")]
    owner: Annotated[str, Field(description="where its SRV records stand")]
    svcb_owner: Annotated[
        str | None, Field(description="where its HTTPS or SVCB records stand; null: it has none")
    ]
    when_empty: Literal["last-good", "static", "nodata", "servfail"]
    verify: Annotated[
        str | None, Field(description="how the backend itself probes the members; null: it does not")
    ]
    known: Annotated[bool, Field(description="false: no registrar has told of it yet, SERVFAIL")]
    stale_s: Annotated[
        Number | None,
        Field(
            description="how long no registrar can be believed, of one of its handlespaces; "
            "null while at least one can"
        ),
    ]
    answered_instead: Annotated[str | None, Field(description="what is answered since no member lives")]
    expected: Annotated[Count, Field(description="servers that should be in")]
    missing: Annotated[Count, Field(description="of these, those that are not")]
    planned: Annotated[Count, Field(description="servers that a person took out: they are not missing")]
    members: list[MemberStatus]
    out: list[OutStatus]
    refused: RefusedStatus
    sites: Annotated[list[SiteStatus], Field(description="in the pool's order; empty without `order`")]
    handlespaces: Annotated[
        list[PoolHandlespaceStatus], Field(description="its parts; empty where handlespaces have no names")
    ]

    @property
    def lost(self) -> list[PoolHandlespaceStatus]:
        """Its parts that no registrar vouches for, while registrars vouch for others."""
        stale = [part for part in self.handlespaces if part.stale_s is not None]
        return stale if len(stale) < len(self.handlespaces) else []


@dataclass(slots=True)
class ZoneStatus:
    """A zone with its pools."""

    zone: str
    serial: Annotated[Count | None, Field(description="of its SOA record; null: not served yet")]
    pools: list[PoolStatus]


@dataclass(slots=True)
class RegistrarStatus:
    """A registrar."""

    number: Count
    address: str
    standing: Annotated[Standing, Field(description="how far it is believed")]
    why: Annotated[str, Field(description="what that means")]
    identifier: Identifier | None
    since_s: Annotated[Number | None, Field(description="how long it has this standing")]
    follow: Annotated[str, Field(description="enrp: it pushes every change; poll: it is asked")]
    follow_problem: Annotated[str | None, Field(description="why it pushes nothing although it should")]
    round_trip_ms: Annotated[Number | None, Field(description="of the last question")]
    handlespace: HandlespaceText = None

    @property
    def called(self) -> str:
        """Its number, with the name of its handlespace."""
        return f"{self.handlespace} {self.number}" if self.handlespace else str(self.number)


@dataclass(slots=True)
class EventStatus:
    """Something that happened."""

    number: Annotated[Count, Field(description="rises by one with each event since the start")]
    at_s: Annotated[Number, Field(description="wall clock, seconds since 1970")]
    kind: Annotated[
        str,
        Field(
            description="joined, left, moved, examined, refused, questioned, vanished, registrar or misplaced"
        ),
    ]
    handle: Annotated[
        str,
        Field(description="the pool, `handlespace/handle` if handlespaces have names; empty for registrars"),
    ]
    identifier: Identifier | None
    address: Annotated[str | None, Field(description="address and port of the server")]
    name: ServerName
    words: Annotated[str, Field(description="why")]
    cause: Annotated[Code, Field(description="the same as a code")]
    converged_ms: Annotated[
        Number | None,
        Field(
            description="from the event until every PowerDNS had purged the answers it changed; "
            "null: not (yet)"
        ),
    ]
    handlespace: HandlespaceText = None


@dataclass(slots=True)
class OverrideStatus:
    """An administrator's decision about servers."""

    number: Count
    action: OverrideAction
    servers: Annotated[str, Field(description="name, address, address:port, PE identifier, network or glob")]
    pool: Annotated[str | None, Field(description="the name of SRV records or a handle; null: every pool")]
    share: Annotated[Number | None, Field(description="0..1, for the action share")]
    reason: str
    by: Annotated[str, Field(description="who set it: a user of this host, or the name of a token")]
    set_at_s: Annotated[Number, Field(description="wall clock, seconds since 1970")]
    starts_at_s: Number
    ends_at_s: Annotated[Number | None, Field(description="null: when it is cleared")]
    holds: Annotated[bool, Field(description="false: its time has not come, or it has a problem")]
    problem: Annotated[str | None, Field(description="why it does not hold although its time has come")]
    id: Annotated[
        str | None, Field(description="by which all name servers know it; null: it was set here alone")
    ] = None


@dataclass(slots=True)
class PeerStatus:
    """Another name server, at which overrides can be set, too."""

    name: str
    url: str
    problem: Annotated[str | None, Field(description="why it could not be asked; null: it could")]
    differences: Annotated[list[str], Field(description="where its overrides differ from those here")]
    compared_s: Annotated[Number | None, Field(description="how long ago they were compared; null: never")]


@dataclass(slots=True)
class PeerResult:
    """Whether another name server did the same."""

    peer: str
    problem: Annotated[str | None, Field(description="why not; null: it did")]


@dataclass(slots=True)
class ResolverStatus:
    """A resolver that is told to forget the names that changed."""

    name: str
    type: str
    address: str
    flushes: Annotated[Count, Field(description="times that it was told, since the start")]
    names: Annotated[Count, Field(description="names that it was told; each is told twice")]
    failed: Annotated[Count, Field(description="times that it could not be told")]
    waiting: Annotated[Count, Field(description="names, or whole zones, that it must be told yet")]
    problem: Annotated[str | None, Field(description="why it could not be told last; null: it could")]


@dataclass(slots=True)
class HookStatus:
    """A web service that is told of changes."""

    name: str
    target: Annotated[str, Field(description="scheme and host of its URL")]
    pending: Annotated[Count, Field(description="changes that wait for it, at most")]
    delivered: Annotated[Count, Field(description="events that it took, since the start")]
    failed: Annotated[Count, Field(description="tries that failed, since the start")]
    lost: Annotated[Count, Field(description="changes that it will never be told of, at most")]
    problem: Annotated[str | None, Field(description="why the last try failed; null: it did not")]


PublicationState = Literal["right", "changing", "comparing", "silent", "failing"]


@dataclass(slots=True)
class PublicationStatus:
    """A name server that is sent the records of a zone's pools by DNS UPDATE."""

    name: str
    server: Annotated[str, Field(description="its address and port")]
    zone: str
    state: Annotated[
        PublicationState,
        Field(
            description="right: the server has what it should; changing: not yet; comparing: not known yet; "
            "silent: nobody vouches for a pool; failing: the last message failed"
        ),
    ]
    rrsets: Annotated[Count, Field(description="RRsets that are there")]
    waiting: Annotated[Count, Field(description="RRsets that are to be changed")]
    waiting_names: Annotated[list[str], Field(description="the first of them: name and type")]
    sent: Annotated[Count, Field(description="messages that changed something, since the start")]
    failed: Annotated[Count, Field(description="messages that failed, since the start")]
    edits: Annotated[Count, Field(description="RRsets that somebody else had changed, since the start")]
    right_s: Annotated[
        Number | None, Field(description="how long ago the server had all of it; null: never since the start")
    ]
    silent: Annotated[str | None, Field(description="why a pool is not spoken for; null: all are")]
    problem: Annotated[str | None, Field(description="why the last message failed; null: it did not")]


@dataclass(slots=True)
class SecondaryZoneStatus:
    """A zone at a secondary."""

    zone: str
    serial: Annotated[Count | None, Field(description="that it had when it was asked last; null: none")]
    behind: Annotated[Count | None, Field(description="changes it lacked then; null: not known")]
    right_s: Annotated[Number | None, Field(description="how long ago it was seen to be right; null: never")]
    problem: Annotated[str | None, Field(description="why it does not follow; null: it does")]


@dataclass(slots=True)
class SecondaryStatus:
    """A name server that transfers zones, and is told of each change."""

    name: str
    address: str
    notifies: Annotated[Count, Field(description="NOTIFYs that were sent")]
    repeats: Annotated[Count, Field(description="of these, those that were for the same serial again")]
    right: Annotated[Count, Field(description="zones that were right when it was asked last")]
    of_zones: Annotated[Count, Field(description="zones that it should have")]
    zones: Annotated[list[SecondaryZoneStatus], Field(description="100 at most, first those that fail")]

    @property
    def problem(self) -> str | None:
        """The problem of the first zone that has one, with the number of others."""
        failing = [zone for zone in self.zones if zone.problem is not None]
        if not failing:
            return None
        more = f" (and {len(failing) - 1} more zones)" if len(failing) > 1 else ""
        return f"{failing[0].zone}: {failing[0].problem}{more}"


@dataclass(slots=True)
class PdnsStatus:
    """A control socket of PowerDNS."""

    control: Annotated[str, Field(description="its path")]
    commands: Count
    names: Annotated[Count, Field(description="names purged")]
    repeats: Annotated[Count, Field(description="of these, those purged again")]
    failures: Count
    waiting: Annotated[Count, Field(description="names that wait for a purge")]
    problem: Annotated[str | None, Field(description="why the last command did not get through")]


@dataclass(slots=True)
class ConnectorStatus:
    """PowerDNS's questions."""

    connections: Count
    queries: Annotated[dict[str, Count], Field(description="by method")]
    failures: Count


@dataclass(slots=True)
class SnapshotStatus:
    """The answers."""

    builds: Count
    age_s: Annotated[Number | None, Field(description="since they were built")]


@dataclass(slots=True)
class FastPathInterfaceStatus:
    """An interface where rspdns-fastpath answers."""

    name: str
    attached: bool
    problem: Annotated[str | None, Field(description="why it answers nothing there, or that it was renamed")]


@dataclass(slots=True)
class FastPathNameStatus:
    """A question that the kernel answers."""

    name: str
    type: str
    variants: Annotated[Count, Field(description="ready answers, of which each question draws one")]
    answered: Count
    passed: Annotated[Count, Field(description="passed on to PowerDNS")]
    failed: Annotated[Count, Field(description="answers that could not be written into their packet")]


@dataclass(slots=True)
class FastPathStatus:
    """Answers from the kernel."""

    socket: Annotated[str, Field(description="where rspdns-fastpath listens")]
    problem: Annotated[str | None, Field(description="why nothing is answered from the kernel")]
    names: Annotated[Count, Field(description="questions with ready answers")]
    refused: Annotated[Count, Field(description="names for which rspdns-fastpath has no room")]
    mode: Annotated[str | None, Field(description="tc, xdp or xdp-generic")]
    interfaces: list[FastPathInterfaceStatus]
    decisions: Annotated[dict[str, Count], Field(description="questions by what became of them")]
    asked: Annotated[list[FastPathNameStatus], Field(description="the names asked about most")]


@dataclass(slots=True)
class ReloadStatus:
    """The reload that runs, or the last one."""

    state: Literal["running", "done", "refused"]
    since_s: Annotated[Number, Field(description="since it began, or ended")]
    files: Annotated[Count, Field(description="files read so far")]
    of_files: Annotated[Count, Field(description="files to read")]
    records: Annotated[Count, Field(description="records read so far")]
    problem: Annotated[str | None, Field(description="why it was refused")]


@dataclass(slots=True)
class Status:
    """Everything."""

    host: Annotated[str, Field(description="the name of this name server's host")]
    version: Annotated[str, Field(description="of rspdns")]
    uptime_s: Number
    registrars: list[RegistrarStatus]
    zones: list[ZoneStatus]
    pdns: list[PdnsStatus]
    connector: ConnectorStatus
    snapshot: SnapshotStatus
    reload: ReloadStatus | None
    problems: list[str]
    events: list[EventStatus]
    overrides: list[OverrideStatus]
    hooks: list[HookStatus]
    peers: list[PeerStatus]
    resolvers: list[ResolverStatus]
    secondaries: list[SecondaryStatus]
    publications: list[PublicationStatus]
    fastpath: Annotated[FastPathStatus | None, Field(description="null without [fastpath]")]


class OtherVersionError(ValueError):
    """A status that is not of this version; the words say what differs."""


_adapters: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    """Made once for each class: it takes milliseconds."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def read(document: object) -> Status:
    """Read the result of the control command `status`. Raises OtherVersionError for anything else."""
    try:
        status: Status = _adapter(Status).validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise OtherVersionError(
            f"the running backend tells a status of another version ({key}: {first['msg']}); "
            "restart it, or see rspdns status --json"
        ) from None
    return status


def dumped(value: object) -> Any:
    """Return one of these values as plain dicts, lists, numbers and text."""
    return _adapter(type(value)).dump_python(value, mode="json")


class _Described(GenerateJsonSchema):
    """Schemas without titles, which only say the names again, and without "Status" in their own names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> Schema:
        inner = self.generate_inner(schema["schema"])
        if "type" not in inner:
            return super().nullable_schema(schema)
        return {**inner, "type": [inner["type"], "null"]}

    def normalize_name(self, name: str) -> str:
        return super().normalize_name(name).removesuffix("Status") or "Status"


def schemas(kinds: Iterable[type]) -> dict[str, Schema]:
    """Return the JSON schemas of these classes, and of those they hold, by name for an OpenAPI document.

    `MemberStatus` is called `Member` there.
    """
    _, definitions = TypeAdapter.json_schemas(
        [(kind, "serialization", _adapter(kind)) for kind in kinds],
        ref_template="#/components/schemas/{model}",
        schema_generator=_Described,
    )
    by_name: dict[str, Schema] = definitions["$defs"]
    for schema in by_name.values():
        schema.pop("title", None)
    return by_name


def _called(name: str | None, address: str | None, port: int) -> str:
    where = "an unknown address" if address is None else endpoint(address, port)
    return f"{name} ({where})" if name else where
