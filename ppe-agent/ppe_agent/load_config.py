"""`[as.load]` of agent.toml."""

from typing import Annotated, ClassVar, Final, Literal, TypeVar

from daemon_kit.config_file import StrictModel
from daemon_kit.files import FilePath
from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from ppe_agent.checks.configuration import Text
from ppe_agent.config_types import Command, Milliseconds, Port, Share, matching

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
_HEADER = matching(r"[A-Za-z0-9.!%*_+`'~-]+", "the name of a SIP header, without spaces and :")

# What each source needs, and what it may have besides.
_KEYS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "cpu": ((), ()),
    "load-average": ((), ()),
    "file": (("path",), ("capacity",)),
    "exec": (("command",), ("capacity",)),
    "http-json": (("url", "pointer"), ("capacity",)),
    "prometheus": (("url", "metric"), ("capacity", "labels")),
    "sip-options": (("header",), ("capacity", "port", "transport")),
    "none": ((), ()),
}
_ALL_KEYS: Final = tuple(sorted({key for keys in _KEYS.values() for part in keys for key in part}))
_ASKED: Final = frozenset({"exec", "http-json", "prometheus", "sip-options"})


class LoadConfig(StrictModel):
    """`[as.load]`: where the load comes from, and when a change is worth telling the registrar."""

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_default=True)

    source: Literal[
        "cpu", "load-average", "file", "exec", "http-json", "prometheus", "sip-options", "none"
    ] = "cpu"
    path: FilePath | None = None
    command: Command | None = None
    url: Annotated[str, _URL] | None = None
    pointer: Annotated[str, _POINTER] | None = None
    metric: Annotated[str, _METRIC] | None = None
    labels: dict[str, str] | None = None
    header: Annotated[Text, _HEADER] | None = None
    port: Port | None = None
    transport: Literal["udp", "tcp", "sctp"] | None = None
    capacity: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    interval_ms: Milliseconds | None = None
    timeout_ms: Milliseconds = 1000
    smoothing_ms: Annotated[int, Field(ge=0, le=600_000)] = 1000
    min_change: float = Field(default=0.05, gt=0, le=1)
    min_update_interval_ms: Milliseconds = 250
    max_age_ms: Milliseconds = 10_000
    when_unknown: Share = 0.9

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
    def every_ms(self) -> int:
        """Return how often to read: what is asked of others by default less often."""
        return self.interval_ms or (1000 if self.is_asked else 500)
