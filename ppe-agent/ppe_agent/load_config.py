"""`[as.load]` of agent.toml."""

from typing import Annotated, ClassVar, Final, Literal, TypeVar

from daemon_kit.config_file import StrictModel
from daemon_kit.files import FilePath
from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from ppe_agent.checks.configuration import Credentials, HostName, Oid, SingleLine
from ppe_agent.config_types import CommandLine, Milliseconds, Port, Share, matching

ValueT = TypeVar("ValueT")

_URL = matching(
    r"https?://[^\s/?#]+(/[^\s#]*)?",
    "a URL begins with http:// or https://: http://127.0.0.1/load, say",
)
_POINTER = matching(r"(/[^/]*)*", "a JSON pointer (RFC 6901) begins with /: /calls/active, say")
_METRIC = matching(
    r"[A-Za-z_:][A-Za-z0-9_:]*",
    "the name of a metric has letters, digits, _ and : only; labels have a key of their own",
)
_FIELD = matching(
    r"(application|cpu|mem)_utilization|rps_fractional|eps|(utilization|named_metrics)\.[\x21-\x7e]{1,255}",
    "a field of an ORCA load report: cpu_utilization, or named_metrics.NAME, say",
)
_HEADER = matching(r"[A-Za-z0-9.!%*_+`'~-]+", "the name of a SIP header, without spaces and :")

# The keys that each source needs, and those that it may have besides.
_KEYS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "cpu": ((), ()),
    "load-average": ((), ()),
    "file": (("path",), ("capacity",)),
    "exec": (("command",), ("capacity",)),
    "http-json": (("url", "pointer"), ("capacity",)),
    "prometheus": (("url", "metric"), ("capacity", "labels")),
    "orca": ((), ("capacity", "ca_file", "field", "host", "port", "tls")),
    "sip-options": (("header",), ("capacity", "port", "transport")),
    "snmp": (("oid", "credentials"), ("capacity", "port")),
    "none": ((), ()),
}
_ALL_KEYS: Final = tuple(sorted({key for keys in _KEYS.values() for part in keys for key in part}))
_ASKED: Final = frozenset({"exec", "http-json", "orca", "prometheus", "sip-options", "snmp"})


class LoadConfig(StrictModel):
    """`[as.load]`: where the load comes from, and when a change is worth telling the registrar."""

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_default=True)

    source: Literal[
        "cpu",
        "load-average",
        "file",
        "exec",
        "http-json",
        "prometheus",
        "orca",
        "sip-options",
        "snmp",
        "none",
    ] = "cpu"
    """`cpu`: the busy share of this host's processors. `load-average`: that of the last minute, for each
    processor. The others read one number, below."""
    path: FilePath | None = None
    """For `file`: it holds a number that is written again and again. Not below /tmp or /home."""
    command: CommandLine | None = None
    """For `exec`: the command, as a list, that prints the number."""
    url: Annotated[str, _URL] | None = None
    """For `http-json` and `prometheus`: the page to read."""
    pointer: Annotated[str, _POINTER] | None = None
    """For `http-json`: where the number is in the document (RFC 6901), `/calls/active` say."""
    metric: Annotated[str, _METRIC] | None = None
    """For `prometheus`: the metric, whose values are summed."""
    labels: dict[str, str] | None = None
    """For `prometheus`: only values with these labels count."""
    header: Annotated[SingleLine, _HEADER] | None = None
    """For `sip-options`: the header of the answer to SIP OPTIONS that holds the number."""
    port: Port | None = None
    """For `sip-options` and `orca`; default: the port of the server. For `snmp`, at the server's address;
    default: 161."""
    field: Annotated[str, _FIELD] | None = None
    """For `orca`: the number of the load report: `cpu_utilization`, `mem_utilization`,
    `application_utilization`, `rps_fractional`, `eps`, `utilization.NAME` or `named_metrics.NAME`. Default:
    `application_utilization`, or else `cpu_utilization`."""
    tls: bool | None = None
    """For `orca`: whether the server is asked over TLS."""
    host: HostName | None = None
    """For `orca`: the name of the server in the request, and in its certificate. Default: the IP address."""
    ca_file: FilePath | None = None
    """For `orca` with `tls`: the file with the authorities to trust. Default: those of this host."""
    transport: Literal["udp", "tcp", "sctp"] | None = None
    """For `sip-options`. Default: that of the server."""
    oid: Oid | None = None
    """For `snmp`: the object that holds the number, in numbers and dots."""
    credentials: Credentials | None = None
    """For `snmp`: the file `snmp.conf` of net-snmp with version, user and passphrases, or community."""
    capacity: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The number that means full. Without it the number itself is the load, 0 to 1."""
    interval_ms: Milliseconds | None = None
    """How often the load is read. Default: 500, and 1000 where another program is asked."""
    timeout_ms: Milliseconds = 1000
    """How long the program that is asked has."""
    smoothing_ms: Annotated[int, Field(ge=0, le=600_000)] = 1000
    """Time constant of the smoothing; 0: none."""
    min_change: float = Field(default=0.05, gt=0, le=1)
    """Smaller changes are not reported while the load moves."""
    min_update_interval_ms: Milliseconds = 250
    """Changes are reported no more often than this."""
    max_age_ms: Milliseconds = 10_000
    """An older reading is unknown."""
    when_unknown: Share = 0.9
    """An unknown load counts as this, or as the last one if that was more."""

    @field_validator(*_ALL_KEYS)
    @classmethod
    def _goes_with_the_source(cls, value: ValueT, info: ValidationInfo) -> ValueT:
        """Check each key by itself, for a check of the whole would wait until no other key is wrong."""
        source, key = info.data.get("source"), info.field_name
        if source is None:  # reported at its own line
            return value
        needed, allowed = _KEYS[source]
        if key in needed and value is None:
            raise ValueError(f'source "{source}" needs a {key}')
        if value is not None and key not in needed and key not in allowed:
            raise ValueError(f'source "{source}" takes no {key}')
        return value

    @property
    def is_asked(self) -> bool:
        """Tell whether the source is another program that answers, or may not."""
        return self.source in _ASKED

    @property
    def asks_the_server(self) -> bool:
        """Tell whether the source asks at the AS's own address."""
        return self.source in ("orca", "sip-options", "snmp")

    @property
    def every_ms(self) -> int:
        """Return how often to read: what is asked of others by default less often."""
        return self.interval_ms or (1000 if self.is_asked else 500)
