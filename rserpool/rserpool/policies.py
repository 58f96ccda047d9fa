"""Pool policies: how to choose among a pool's elements (RFC 5356, and rsplib's additions).

Loads, degradations and penalty factors are floats 0..1; on the wire they are 0..0xffffffff, and each of those
values survives the way to float and back. Weights, priorities and distances are integers 0..0xffffffff.
"""

import re
import struct
from dataclasses import astuple, dataclass, fields, replace
from typing import ClassVar

from rserpool.errors import DecodeError, EncodeError

_FULL = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each element in turn (RFC 5356, section 4.1)."""

    TYPE: ClassVar[int] = 0x00000001


@dataclass(frozen=True, slots=True)
class WeightedRoundRobin:
    """Each element in turn, as often as its weight says (RFC 5356, section 4.2)."""

    TYPE: ClassVar[int] = 0x00000002
    weight: int


@dataclass(frozen=True, slots=True)
class Random:
    """Any element, all equally likely (RFC 5356, section 4.3)."""

    TYPE: ClassVar[int] = 0x00000003


@dataclass(frozen=True, slots=True)
class WeightedRandom:
    """Any element, in proportion to the weights; weight 0 is never chosen (RFC 5356, section 4.4)."""

    TYPE: ClassVar[int] = 0x00000004
    weight: int


@dataclass(frozen=True, slots=True)
class Priority:
    """The element of the largest priority, which is the opposite of DNS SRV (RFC 5356, section 4.5)."""

    TYPE: ClassVar[int] = 0x00000005
    priority: int


@dataclass(frozen=True, slots=True)
class LeastUsed:
    """The element of the lowest load (RFC 5356, section 5.1)."""

    TYPE: ClassVar[int] = 0x40000001
    load: float


@dataclass(frozen=True, slots=True)
class LeastUsedDegradation:
    """Least used, where each selection adds `degradation` to the load until it is told anew (section 5.2)."""

    TYPE: ClassVar[int] = 0x40000002
    load: float
    degradation: float


@dataclass(frozen=True, slots=True)
class PriorityLeastUsed:
    """The lowest sum of load and `degradation`, what one more request would add (RFC 5356, section 5.3)."""

    TYPE: ClassVar[int] = 0x40000003
    load: float
    degradation: float


@dataclass(frozen=True, slots=True)
class RandomizedLeastUsed:
    """Any element, in proportion to 1 - load (RFC 5356, section 5.4)."""

    TYPE: ClassVar[int] = 0x40000004
    load: float


@dataclass(frozen=True, slots=True)
class RandomizedPriorityLeastUsed:
    """Any element, in proportion to 1 - (load + degradation); rsplib's."""

    TYPE: ClassVar[int] = 0xB0001001
    load: float
    degradation: float


@dataclass(frozen=True, slots=True)
class RandomizedLeastUsedDegradation:
    """Randomized least used, where each selection adds `degradation` to the load; rsplib's."""

    TYPE: ClassVar[int] = 0xB0001002
    load: float
    degradation: float


@dataclass(frozen=True, slots=True)
class PriorityLeastUsedDegradation:
    """Priority least used, where each selection adds `degradation` to the load; rsplib's."""

    TYPE: ClassVar[int] = 0xB0001003
    load: float
    degradation: float


@dataclass(frozen=True, slots=True)
class RandomizedPriorityLeastUsedDegradation:
    """Randomized priority least used, where each selection adds `degradation` to the load; rsplib's."""

    TYPE: ClassVar[int] = 0xB0001004
    load: float
    degradation: float


@dataclass(frozen=True, slots=True)
class WeightedRandomDPF:
    """Weighted random that penalizes distance (draft-dreibholz-rserpool-delay; rsplib's numbers)."""

    TYPE: ClassVar[int] = 0xB0002001
    weight: int
    penalty_factor: float
    distance_ms: int


@dataclass(frozen=True, slots=True)
class LeastUsedDPF:
    """Least used that penalizes distance (draft-dreibholz-rserpool-delay; rsplib's numbers)."""

    TYPE: ClassVar[int] = 0xB0002002
    load: float
    penalty_factor: float
    distance_ms: int


@dataclass(frozen=True, slots=True)
class LeastUsedDegradationDPF:
    """Least used with degradation, penalizing distance (draft-dreibholz-rserpool-delay; rsplib's numbers)."""

    TYPE: ClassVar[int] = 0xB0002003
    load: float
    degradation: float
    penalty_factor: float
    distance_ms: int


@dataclass(frozen=True, slots=True)
class UnknownPolicy:
    """A policy this package does not know: its type, and the bytes that follow it."""

    type: int
    data: bytes = b""


KnownPolicy = (
    RoundRobin
    | WeightedRoundRobin
    | Random
    | WeightedRandom
    | Priority
    | LeastUsed
    | LeastUsedDegradation
    | PriorityLeastUsed
    | RandomizedLeastUsed
    | RandomizedPriorityLeastUsed
    | RandomizedLeastUsedDegradation
    | PriorityLeastUsedDegradation
    | RandomizedPriorityLeastUsedDegradation
    | WeightedRandomDPF
    | LeastUsedDPF
    | LeastUsedDegradationDPF
)
Policy = KnownPolicy | UnknownPolicy

POLICIES: dict[int, type[KnownPolicy]] = {policy.TYPE: policy for policy in KnownPolicy.__args__}
"""Every known policy by its type number."""


def policy_name(kind: type[KnownPolicy]) -> str:
    """Return a policy's name as configuration files write it: least-used."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


POLICY_KINDS: dict[str, type[KnownPolicy]] = {policy_name(kind): kind for kind in POLICIES.values()}
"""Every known policy by its name in configuration files."""

# Per type: which of the 32-bit fields are fractions. A field is one exactly when it is a float.
_FRACTIONS = {
    number: tuple(field.type is float for field in fields(policy)) for number, policy in POLICIES.items()
}


LEAST_WANTED_LOAD = 0.999
"""Not 1: a registrar may leave out an element that its policy never chooses."""


def least_wanted(policy: Policy) -> Policy:
    """Return the policy of an element that nobody should choose, and that registrars list all the same.

    It is of the same type: a registrar takes no other one into the pool. Round robin and random know no
    preference.
    """
    match policy:
        case WeightedRoundRobin():
            return WeightedRoundRobin(0)
        case WeightedRandom() | WeightedRandomDPF():
            return replace(policy, weight=1)  # handle resolutions leave weight 0 out
        case Priority():
            return Priority(0)
        case RoundRobin() | Random() | UnknownPolicy():
            return policy
        case _:
            return replace(policy, load=LEAST_WANTED_LOAD)


def encode_policy(policy: Policy) -> bytes:
    """Return the value of a Policy parameter; raise EncodeError when a field is out of range."""
    try:
        if isinstance(policy, UnknownPolicy):
            return struct.pack(">I", policy.type) + policy.data
        numbers = []
        for value, is_fraction in zip(astuple(policy), _FRACTIONS[policy.TYPE], strict=True):
            if is_fraction and not 0.0 <= value <= 1.0:
                raise EncodeError(f"{policy}: {value} is not in 0..1")
            numbers.append(round(value * _FULL) if is_fraction else value)
        return struct.pack(f">I{len(numbers)}I", policy.TYPE, *numbers)
    except struct.error as problem:
        raise EncodeError(f"{policy}: {problem}") from None


def decode_policy(value: bytes) -> Policy:
    """Read the value of a Policy parameter; raise DecodeError when it is too short or of the wrong length."""
    if len(value) < 4:
        raise DecodeError(f"policy of {len(value)} bytes")
    number = int.from_bytes(value[:4], "big")
    known = POLICIES.get(number)
    if known is None:
        return UnknownPolicy(number, value[4:])
    fractions = _FRACTIONS[number]
    if len(value) != 4 + 4 * len(fractions):
        raise DecodeError(f"{known.__name__} of {len(value)} bytes, expected {4 + 4 * len(fractions)}")
    numbers = struct.unpack_from(f">{len(fractions)}I", value, 4)
    return known(
        *(n / _FULL if is_fraction else n for n, is_fraction in zip(numbers, fractions, strict=True))
    )
