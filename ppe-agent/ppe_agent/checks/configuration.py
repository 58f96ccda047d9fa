"""`[[as.check]]` and `[as.damping]` of agent.toml."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from daemon_kit.addresses import is_on_this_host, read_address
from daemon_kit.config_file import StrictModel
from daemon_kit.files import FilePath
from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, field_validator

from ppe_agent.addresses import Address
from ppe_agent.checks.base import FAST_RECHECK_MS, Timing
from ppe_agent.config_types import CommandLine, Milliseconds, Port, matching, single_line, url_path

SingleLine = Annotated[str, AfterValidator(single_line)]
ValueT = TypeVar("ValueT")
StatusCode = Annotated[int, Field(ge=100, le=599)]


NumberT = TypeVar("NumberT", int, float)


def _in_order(value: tuple[NumberT, NumberT], info: ValidationInfo) -> tuple[NumberT, NumberT]:
    if value[0] > value[1]:
        raise ValueError(f"{info.field_name} is the lowest and the highest that count as good: [200, 399]")
    return value


def _snmp_conf(value: Path) -> Path:
    if value.name != "snmp.conf":
        raise ValueError("net-snmp reads the file only under the name snmp.conf, in whatever directory")
    return value


def _asked_address(value: object) -> Address:
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ValueError('an IP address, as text: "10.20.0.1"')  # noqa: TRY004 - pydantic wants it
    address = read_address(value)
    if address.is_multicast or address.is_unspecified:
        raise ValueError(f"{value} is not the address of a host")
    if is_on_this_host(address):
        raise ValueError(f"{value} is an address of this host, whose kernel always answers itself")
    return address


Days = Annotated[int, Field(ge=0, le=3650)]
HostName = Annotated[
    str,
    matching(
        r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*",
        "a name of a certificate: sip.example.net (international names as xn--...)",
    ),
]
"""A name in DNS, without a dot at its end."""
Oid = Annotated[
    str, matching(r"\.?[0-2](\.[0-9]{1,10}){1,127}", "an object in numbers: 1.3.6.1.4.1.2021.10.1.5.1, say")
]
"""An SNMP object identifier; names of MIBs are not read."""
Credentials = Annotated[FilePath, AfterValidator(_snmp_conf)]
"""A file snmp.conf (snmp.conf(5))."""


class _CheckConfig(StrictModel):
    FAST_MS: ClassVar[int] = FAST_RECHECK_MS
    """How often to try while the state may be about to change; more for what costs more."""

    interval_ms: Milliseconds = 250
    """Between two checks."""
    timeout_ms: Milliseconds = 250
    """How long the server has for an answer."""
    jitter: float = Field(default=0.1, ge=0, le=0.5)
    """Each interval is shorter by a random share of up to this."""
    fall: int = Field(default=2, ge=1, le=100)
    """The number of failures in a row that take the server out. A refused connection or an exit needs one."""
    rise: int = Field(default=2, ge=1, le=100)
    """The number of successes in a row that let it in."""

    @property
    def timing(self) -> Timing:
        """Return how often and how patiently to try."""
        return Timing(self.interval_ms, self.timeout_ms, self.fall, self.rise, self.jitter, self.FAST_MS)


class _PortCheckConfig(_CheckConfig):
    port: Port | None = None
    """Default: the port of the server."""


class ProcessConfig(_CheckConfig):
    """`type = "process"`: a process, by pid file or name; its exit is seen at once."""

    type: Literal["process"]
    pid_file: FilePath | None = None
    """The file with the process identifier; or `process`, or both."""
    process: SingleLine | None = Field(default=None, validate_default=True)
    """The name of the process, cut to 15 bytes as the kernel does. Without a pid file the oldest process of
    that name counts."""

    # Each key is checked by itself, for a check of the whole would wait until no other key is wrong.
    @field_validator("process")
    @classmethod
    def _process_is_named(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("pid_file", "a wrong one") is None:
            raise ValueError('type "process" needs a pid_file, or the name of the process: process = "..."')
        return value

    @property
    def timing(self) -> Timing:
        """Return how often to try; to look through all processes of a host costs more than the rest."""
        fast_ms = self.FAST_MS if self.pid_file else self.interval_ms
        return Timing(self.interval_ms, self.timeout_ms, self.fall, self.rise, self.jitter, fast_ms)


class TcpConfig(_PortCheckConfig):
    """`type = "tcp"`: a TCP connection, closed at once."""

    type: Literal["tcp"]


class TcpHoldConfig(_PortCheckConfig):
    """`type = "tcp-hold"`: a held TCP connection."""

    type: Literal["tcp-hold"]


class SipOptionsConfig(_PortCheckConfig):
    """`type = "sip-options"`: SIP OPTIONS over UDP, TCP or SCTP."""

    type: Literal["sip-options"]
    transport: Literal["udp", "tcp", "sctp"] | None = None
    """Default: that of the server."""


class HttpConfig(_PortCheckConfig):
    """`type = "http"` or `"https"`: GET, a status in the range `status`, `contains` in the body."""

    type: Literal["http", "https"]
    path: Annotated[str, AfterValidator(url_path)] = "/"
    """The path of the request."""
    host: SingleLine | None = None
    """The Host header, and the name in the certificate. Default: the IP address."""
    status: Annotated[tuple[StatusCode, StatusCode], AfterValidator(_in_order)] = (200, 399)
    """The lowest and the highest status that counts as good. Redirections are not followed."""
    contains: SingleLine | None = None
    """A text that must be in the body."""
    verify: bool = True
    """For `https`: whether the certificate is checked."""
    ca_file: FilePath | None = None
    """For `https`: the file with the authorities to trust."""

    @field_validator("verify", "ca_file")
    @classmethod
    def _is_for_https(cls, value: ValueT, info: ValidationInfo) -> ValueT:
        if info.data.get("type") == "http" and value not in (True, None):
            raise ValueError(f'"{info.field_name}" is for type "https"')
        return value


class TlsConfig(_PortCheckConfig):
    """`type = "tls"`: a TLS handshake, and a certificate that is trusted, has the name and lasts."""

    OTHER_NAMES: ClassVar[Mapping[str, str]] = {"server_name": "host", "sni": "host", "days": "warn_days"}
    OTHER_TAGS: ClassVar[Collection[str]] = ("ssl", "certificate")
    FAST_MS: ClassVar[int] = 250

    type: Literal["tls"]
    host: HostName | None = None
    """The server name that is sent (SNI), and the name in the certificate. Default: the IP address."""
    ca_file: FilePath | None = None
    """The file with the authorities to trust. Default: those of this host."""
    warn_days: Days = 14
    """The days before the certificate's expiry from which `status` and the log warn. 0: never."""
    fail_days: Days = 0
    """The days before the certificate's expiry from which the check fails. 0: when it has expired."""
    interval_ms: Milliseconds = 1000
    timeout_ms: Milliseconds = 1000


class GrpcConfig(_PortCheckConfig):
    """`type = "grpc"`: a gRPC server whose health service (grpc.health.v1) says SERVING."""

    OTHER_NAMES: ClassVar[Mapping[str, str]] = {
        "authority": "host",
        "server_name": "host",
        "sni": "host",
        "service_name": "service",
    }

    type: Literal["grpc"]
    service: Annotated[
        str, matching(r"[\x21-\x7e]{0,255}", "the name of a service, without spaces: sip.Proxy, say")
    ] = ""
    """The service whose health is asked for. Default: the server as a whole."""
    tls: bool = False
    """Whether the server is asked over TLS."""
    host: HostName | None = None
    """The name of the server in the request, and in its certificate. Default: the IP address."""
    ca_file: FilePath | None = None
    """With `tls`: the file with the authorities to trust. Default: those of this host."""

    @field_validator("ca_file")
    @classmethod
    def _is_for_tls(cls, value: ValueT, info: ValidationInfo) -> ValueT:
        if value is not None and not info.data.get("tls", True):
            raise ValueError('"ca_file" is for tls = true')
        return value


class IcmpConfig(_CheckConfig):
    """`type = "icmp"`: an echo ("ping") of the remote server's host, or of another address."""

    OTHER_TAGS: ClassVar[Collection[str]] = ("ping", "echo")

    type: Literal["icmp"]
    address: Annotated[Address, PlainValidator(_asked_address)] | None = None
    """The address that is asked: the gateway's, say. Default: that of the server, which must be `remote`."""


class ExecConfig(_CheckConfig):
    """`type = "exec"`: a command that exits with 0."""

    OTHER_TAGS: ClassVar[Collection[str]] = ("command", "script", "shell")
    FAST_MS: ClassVar[int] = 250

    type: Literal["exec"]
    command: CommandLine
    """The program and its arguments, as a list; it runs without a shell."""
    interval_ms: Milliseconds = 1000
    timeout_ms: Milliseconds = 1000


class SystemdConfig(_CheckConfig):
    """`type = "systemd"`: a unit that is active."""

    OTHER_TAGS: ClassVar[Collection[str]] = ("unit", "service")
    FAST_MS: ClassVar[int] = 250

    type: Literal["systemd"]
    unit: Annotated[
        SingleLine,
        matching(r"[^\s/-][^\s/]*\.[a-z]+", "a unit is named with its kind: kamailio.service, say"),
    ]
    """The unit, with its kind: `kamailio.service`, say."""
    scope: Literal["system", "user"] = "system"
    """The systemd that is asked: the system's, or that of the user as whom the sidecar runs."""
    interval_ms: Milliseconds = 1000
    timeout_ms: Milliseconds = 1000


class SnmpConfig(_CheckConfig):
    """`type = "snmp"`: a number of the server's SNMP agent that is in a range; `snmpget` asks."""

    OTHER_TAGS: ClassVar[Collection[str]] = ("oid",)
    FAST_MS: ClassVar[int] = 250

    type: Literal["snmp"]
    oid: Oid
    """The object, in numbers and dots."""
    range: Annotated[tuple[float, float], AfterValidator(_in_order)]
    """The lowest and the highest number that counts as good."""
    credentials: Credentials
    """The file `snmp.conf` of net-snmp with version, user and passphrases, or community; for the sidecar's
    user only."""
    port: Port = 161
    """The port of the SNMP agent, at the server's address."""
    interval_ms: Milliseconds = 1000
    timeout_ms: Milliseconds = 1000


CheckConfig = Annotated[
    ProcessConfig
    | TcpConfig
    | TcpHoldConfig
    | SipOptionsConfig
    | HttpConfig
    | TlsConfig
    | GrpcConfig
    | IcmpConfig
    | ExecConfig
    | SystemdConfig
    | SnmpConfig,
    Field(discriminator="type"),
]


class DampingConfig(StrictModel):
    """`[as.damping]`: an AS that fell `falls` times within `window_s` must stay well for `well_for_s` first.

    Each further fall within the window doubles that, up to eight times. `falls = 0` turns it off.
    """

    falls: int = Field(default=3, ge=0, le=1000)
    """A server that fell so often within `window_s` is held back. 0: never."""
    window_s: float = Field(default=60, gt=0, le=86_400)
    """The time in which falls are counted."""
    well_for_s: float = Field(default=10, gt=0, le=3600)
    """The time for which a server that is held back must stay well; each further fall doubles it, up to
    eight times."""
