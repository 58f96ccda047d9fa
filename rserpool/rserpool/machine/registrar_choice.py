"""Which registrar to turn to, and which one next when it fails: pure decisions over `RegistrarAddress`."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from rserpool import asap, enrp
from rserpool.machine.base import SctpAddress

RETRY_FIRST_S = 0.1
RETRY_CEILING_S = 1.0
REJECTED_FIRST_S = 1.0
REJECTED_CEILING_S = 30.0
DISTRUST_FIRST_S = 10.0
DISTRUST_CEILING_S = 60.0
FORGIVE_AFTER_S = 10.0
"""A registrar that failed longer ago than this is as good as one that never failed."""


@dataclass(frozen=True, slots=True, order=True)
class RegistrarAddress:
    """The address of a registrar: an IP address (not a name: DNS may depend on us), two SCTP ports."""

    host: str
    asap_port: int = asap.PORT
    enrp_port: int = enrp.PORT

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "host", str(ip_address(self.host)))
        except ValueError:
            raise ValueError(f"registrar {self.host!r}: not an IP address") from None
        for port in (self.asap_port, self.enrp_port):
            if not 0 < port <= 0xFFFF:
                raise ValueError(f"registrar {self.host}: port {port} is not in 1..65535")

    @classmethod
    def parse(cls, text: str) -> "RegistrarAddress":
        """Read "10.0.0.1", "10.0.0.1:3863", "2001:db8::1" or "[2001:db8::1]:3863"; the port is the ASAP port.

        After a slash the ENRP port may follow: "10.0.0.1:3864/9902". Raise ValueError, in words for the
        person who wrote it, for anything else.
        """
        text = text.strip()
        before, slash, enrp_port = text.partition("/")
        if slash:
            if not (enrp_port.isascii() and enrp_port.isdigit() and 0 < int(enrp_port[:6]) <= 0xFFFF):
                raise ValueError(f"registrar {text!r}: after the slash belongs the ENRP port, 1..65535")
            first = cls.parse(before)
            return cls(first.host, first.asap_port, int(enrp_port))
        host, port = text, ""
        if text.startswith("["):
            host, bracket, port = text[1:].partition("]")
            if not bracket or (port and not port.startswith(":")):
                raise ValueError(f"registrar {text!r}: write an IPv6 address with a port as [address]:port")
            port = port[1:] if port else ""
        elif text.count(":") == 1:
            host, _, port = text.partition(":")
        faults = []
        if not _is_ip_address(host):
            faults.append("not an IP address" if host == text else f"{host!r} is not an IP address")
        if not port and text.endswith(":") and _is_ip_address(host) and host != text:
            faults.append("the port is missing after the colon")
        elif port and not (port.isascii() and port.isdigit()):
            faults.append(f"{port!r} is not a port number")
        elif port and not 0 < int(port[:6]) <= 0xFFFF:
            faults.append(f"port {port[:20]} is not in 1..65535")
        if faults:
            raise ValueError(f"registrar {text!r}: {' and '.join(faults)}")
        return cls(host, int(port)) if port else cls(host)

    @property
    def endpoint(self) -> SctpAddress:
        """The IP address and port that speak ASAP."""
        return self.host, self.asap_port

    @property
    def enrp_endpoint(self) -> SctpAddress:
        """The IP address and port that speak ENRP."""
        return self.host, self.enrp_port

    def __str__(self) -> str:
        text = f"[{self.host}]" if ":" in self.host else self.host
        if self.asap_port != asap.PORT:
            text += f":{self.asap_port}"
        return text if self.enrp_port == enrp.PORT else f"{text}/{self.enrp_port}"


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def preference(
    registrars: Sequence[RegistrarAddress],
    handle: bytes,
    identifier: int,
    last_choice: Collection[RegistrarAddress] = (),
) -> tuple[RegistrarAddress, ...]:
    """Return `registrars` in the order in which this pool element should try them, those of `last_choice`
    last.

    Each element has an order of its own (rendezvous hashing), so that many elements spread over the
    registrars and a failed registrar's elements spread over the others; the same element always has the same
    order.
    """

    def rank(registrar: RegistrarAddress) -> tuple[bool, bytes]:
        seed = b"%s|%d|%s" % (str(registrar).encode(), identifier, handle)
        return registrar in last_choice, hashlib.blake2b(seed, digest_size=8).digest()

    return tuple(sorted(dict.fromkeys(registrars), key=rank))


def choose(
    preferred: Sequence[RegistrarAddress], failed_at_s: Mapping[RegistrarAddress, float], now: float
) -> RegistrarAddress:
    """Return the registrar to try now.

    The first that did not fail within FORGIVE_AFTER_S; when all did, the one whose failure is longest ago.
    `failed_at_s` holds each registrar's last failure; `preferred` must not be empty.
    """
    for registrar in preferred:
        if now - failed_at_s.get(registrar, float("-inf")) > FORGIVE_AFTER_S:
            return registrar
    return min(preferred, key=lambda registrar: failed_at_s[registrar])


def backoff_s(failures: int, first_s: float, ceiling_s: float) -> float:
    """Return how long to wait after `failures` (1..) in a row: `first_s`, doubling up to `ceiling_s`."""
    return float(min(ceiling_s, first_s * 2.0 ** min(failures - 1, 32)))


class Rotation:
    """Remembers how the registrars fared: which to try next, and how long to wait before."""

    def __init__(self, preferred: Sequence[RegistrarAddress]) -> None:
        self._preferred = tuple(preferred)
        self._failed_at_s: dict[RegistrarAddress, float] = {}
        self._failures = 0
        self._rejections = 0
        self._distrusted: dict[RegistrarAddress, tuple[int, float]] = {}
        """How often, and until when."""

    def next(self, now: float) -> RegistrarAddress:
        """Return the registrar to try now: a distrusted one only when all others failed lately."""
        distrusted = {registrar: self.is_distrusted(registrar, now) for registrar in self._preferred}
        return choose(sorted(self._preferred, key=distrusted.__getitem__), self._failed_at_s, now)

    def distrust(self, registrar: RegistrarAddress, now: float) -> None:
        """Note that a registrar says what no other one does: it is avoided for a while, each time longer."""
        times = self._distrusted.get(registrar, (0, 0.0))[0] + 1
        until_s = now + backoff_s(times, DISTRUST_FIRST_S, DISTRUST_CEILING_S)
        self._distrusted[registrar] = (times, until_s)

    def is_distrusted(self, registrar: RegistrarAddress, now: float) -> bool:
        """Whether a registrar is to be avoided now."""
        return now < self._distrusted.get(registrar, (0, float("-inf")))[1]

    def replace(self, preferred: Sequence[RegistrarAddress]) -> None:
        """Choose among these from now on; what is known of those that stay is kept."""
        self._preferred = tuple(preferred)
        self._failed_at_s = {
            registrar: at_s for registrar, at_s in self._failed_at_s.items() if registrar in self._preferred
        }
        self._distrusted = {
            registrar: what for registrar, what in self._distrusted.items() if registrar in self._preferred
        }
        self._failures = 0

    def at(self, endpoint: SctpAddress | None) -> RegistrarAddress | None:
        """Return the registrar with this IP address and ASAP port, None if it is none of ours."""
        return next((registrar for registrar in self._preferred if registrar.endpoint == endpoint), None)

    def failed(self, registrar: RegistrarAddress, now: float) -> float:
        """Note a failure; return the seconds to wait: none, unless as many as there are failed in a row."""
        self._failed_at_s[registrar] = now
        self._failures += 1
        rounds, within_round = divmod(self._failures, len(self._preferred))
        return 0.0 if within_round else backoff_s(rounds, RETRY_FIRST_S, RETRY_CEILING_S)

    def rejected(self, registrar: RegistrarAddress, now: float) -> float:
        """Note a rejection; return the seconds to wait, which grow: another registrar will hardly differ."""
        self._failed_at_s[registrar] = now
        self._rejections += 1
        return backoff_s(self._rejections, REJECTED_FIRST_S, REJECTED_CEILING_S)

    def succeeded(self) -> None:
        """Note that a registrar accepted."""
        self._failures = self._rejections = 0
