"""RSerPool for Python: ASAP and ENRP messages, sans-IO machines that take `now`, and asyncio clients on them.

This is the package's door: everything that others may import. A pool element registers with
`PoolElementClient`. A pool user asks with `RegistrarClient`, and follows with `HandlespaceFollower`. Messages
and what they carry are values: frozen, equal, hashable. All errors are `RSerPoolError`s.
"""

from rserpool import asap, enrp, policies
from rserpool.aio.announcements import AnnounceListener
from rserpool.aio.data_channel import DataChannels, Passing
from rserpool.aio.driver import ASAP, ENRP, Codec, DeadlineTimer, MessageEndpoint
from rserpool.aio.sctp import (
    IPPROTO_SCTP,
    AssociationFailed,
    AssociationLost,
    AssociationUp,
    Message,
    Notification,
    PathChanged,
    SctpSocket,
    SctpUnavailable,
    Timers,
    check_available,
    read_timers,
    set_timers,
)
from rserpool.asap import (
    AsapMessage,
    Deregistration,
    DeregistrationResponse,
    EndpointKeepAlive,
    EndpointKeepAliveAck,
    HandleResolution,
    HandleResolutionResponse,
    Registration,
    RegistrationResponse,
)
from rserpool.data_channel import DATA_CHANNEL_PORT, MAX_DATAGRAM_BYTES, DataMessage
from rserpool.data_channel import Type as DataMessageType
from rserpool.element import Event as RegistrationEvent
from rserpool.element import EventKind as RegistrationEventKind
from rserpool.element import PoolElementClient
from rserpool.element import State as RegistrationState
from rserpool.enrp import (
    HandleTableRequest,
    HandleTableResponse,
    HandleUpdate,
    PoolEntry,
    Presence,
    UpdateAction,
)
from rserpool.errors import (
    Cause,
    CauseCode,
    RegistrarUnreachable,
    ResolutionTimeout,
    RSerPoolError,
    UnsafeMessageError,
)
from rserpool.follower import MAX_POOL_ELEMENTS, Ended, HandlespaceFollower, Joined, Table, Update
from rserpool.follower import Event as FollowerEvent
from rserpool.identity import (
    Guesses,
    PoolKey,
    Proven,
    ServerKey,
    new_pool_key,
    pool_key_line,
    prove,
    read_pool_keys,
    read_server_keys,
    server_key_line,
)
from rserpool.machine.announced import RegistrarTable, group_problem
from rserpool.machine.registrar_choice import (
    REJECTED_CEILING_S,
    REJECTED_FIRST_S,
    RegistrarAddress,
    backoff_s,
)
from rserpool.parameters import PoolElement, Protocol, ServerInformation, Transport, UnknownParameter
from rserpool.policies import (
    POLICIES,
    POLICY_KINDS,
    KnownPolicy,
    LeastUsed,
    Policy,
    RoundRobin,
    UnknownPolicy,
    decode_policy,
    encode_policy,
    least_wanted,
    policy_name,
)
from rserpool.rspregistrar import (
    MAX_HANDLE,
    MOST_RESOLVED,
    REPORTS_THAT_REMOVE,
    SENTINEL_POOL_PREFIX,
    check_handle,
    check_safe,
    sentinel_handle,
)
from rserpool.user import Answer, RegistrarClient, Resolution

__all__ = [
    "ASAP",
    "DATA_CHANNEL_PORT",
    "ENRP",
    "IPPROTO_SCTP",
    "MAX_DATAGRAM_BYTES",
    "MAX_HANDLE",
    "MAX_POOL_ELEMENTS",
    "MOST_RESOLVED",
    "POLICIES",
    "POLICY_KINDS",
    "REJECTED_CEILING_S",
    "REJECTED_FIRST_S",
    "REPORTS_THAT_REMOVE",
    "SENTINEL_POOL_PREFIX",
    "AnnounceListener",
    "Answer",
    "AsapMessage",
    "AssociationFailed",
    "AssociationLost",
    "AssociationUp",
    "Cause",
    "CauseCode",
    "Codec",
    "DataChannels",
    "DataMessage",
    "DataMessageType",
    "DeadlineTimer",
    "Deregistration",
    "DeregistrationResponse",
    "Ended",
    "EndpointKeepAlive",
    "EndpointKeepAliveAck",
    "FollowerEvent",
    "Guesses",
    "HandleResolution",
    "HandleResolutionResponse",
    "HandleTableRequest",
    "HandleTableResponse",
    "HandleUpdate",
    "HandlespaceFollower",
    "Joined",
    "KnownPolicy",
    "LeastUsed",
    "Message",
    "MessageEndpoint",
    "Notification",
    "Passing",
    "PathChanged",
    "Policy",
    "PoolElement",
    "PoolElementClient",
    "PoolEntry",
    "PoolKey",
    "Presence",
    "Protocol",
    "Proven",
    "RSerPoolError",
    "RegistrarAddress",
    "RegistrarClient",
    "RegistrarTable",
    "RegistrarUnreachable",
    "Registration",
    "RegistrationEvent",
    "RegistrationEventKind",
    "RegistrationResponse",
    "RegistrationState",
    "Resolution",
    "ResolutionTimeout",
    "RoundRobin",
    "SctpSocket",
    "SctpUnavailable",
    "ServerInformation",
    "ServerKey",
    "Table",
    "Timers",
    "Transport",
    "UnknownParameter",
    "UnknownPolicy",
    "UnsafeMessageError",
    "Update",
    "UpdateAction",
    "asap",
    "backoff_s",
    "check_available",
    "check_handle",
    "check_safe",
    "decode_policy",
    "encode_policy",
    "enrp",
    "group_problem",
    "least_wanted",
    "new_pool_key",
    "policies",
    "policy_name",
    "pool_key_line",
    "prove",
    "read_pool_keys",
    "read_server_keys",
    "read_timers",
    "sentinel_handle",
    "server_key_line",
    "set_timers",
]
