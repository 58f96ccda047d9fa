"""agent.toml: what the sidecar is told. `load_configuration()` reports every error at once."""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from daemon_kit.config_file import StrictModel, TomlDocument, find, load, read_text
from daemon_kit.path_types import FilePath
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from rserpool.policies import Policy
from rserpool.registrar_choice import RegistrarAddress

from ppe_agent import consistency
from ppe_agent.addresses import Address, address_towards, is_on_this_host, is_reachable
from ppe_agent.checks.base import Timing
from ppe_agent.consistency import Problem
from ppe_agent.policy_names import POLICY_KEYS, POLICY_KINDS, make_policy

DEFAULT_PATH = Path("/etc/ppe-agent/agent.toml")
MAX_HANDLE_BYTES = 32

Milliseconds = Annotated[int, Field(ge=10, le=3_600_000)]


def _filled(problem: str) -> BeforeValidator:
    """Refuse an empty array with `problem`."""

    def check(value: object) -> object:
        if value == []:
            raise ValueError(problem)
        return value

    return BeforeValidator(check)


Number = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
Share = Annotated[float, Field(ge=0, le=1)]
Port = Annotated[int, Field(ge=1, le=65535)]


def _registrar(value: object) -> object:
    if not isinstance(value, str):
        return value
    registrar = RegistrarAddress.parse(value)
    if not is_reachable(ip_address(registrar.host)):
        raise ValueError(f"{registrar.host} is not an address that a registrar can use")
    return registrar


def _addresses(value: object) -> object:
    """Read "auto", an address or a list of them; the latter two become a tuple of addresses of this host."""
    if value == "auto":
        return value
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    if not texts or (isinstance(value, list) and len(texts) < len(value)):
        raise ValueError('"auto", an IP address of this host, or (sctp) a list of them')
    addresses = []
    for text in texts:
        try:
            address = ip_address(text)
        except ValueError:
            raise ValueError(
                f'{text!r} is no IP address; "auto" takes the one towards the first registrar'
            ) from None
        if not is_reachable(address):
            raise ValueError(f"{text} is not an address at which others reach this host")
        if not is_on_this_host(address):
            raise ValueError(
                f'{text} is no address of this host; "auto" takes the one towards the first registrar'
            )
        addresses.append(address)
    return tuple(addresses)


def _handle(value: str) -> str:
    length = len(value.encode())
    if not 1 <= length <= MAX_HANDLE_BYTES:
        # A longer one aborts rspregistrar, whoever sends it.
        raise ValueError(f"a pool handle has 1 to {MAX_HANDLE_BYTES} bytes, this one {length}")
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise ValueError("a name has 1 to 64 letters, digits, '.', '_' or '-' (it names a file)")
    return value


def _policy(value: str) -> str:
    if value not in POLICY_KINDS:
        raise ValueError(f"unknown policy; known: {', '.join(POLICY_KINDS)}")
    return value


class _CheckConfig(StrictModel):
    port: Port | None = None  # default: the port of the AS
    interval_ms: Milliseconds = 250
    timeout_ms: Milliseconds = 250
    fall: int = Field(default=2, ge=1, le=100)
    rise: int = Field(default=2, ge=1, le=100)

    @property
    def timing(self) -> Timing:
        """Return how often and how patiently to try."""
        return Timing(self.interval_ms, self.timeout_ms, self.fall, self.rise)


class TcpHoldConfig(_CheckConfig):
    """`type = "tcp-hold"`: a held TCP connection."""

    type: Literal["tcp-hold"]


class SipOptionsConfig(_CheckConfig):
    """`type = "sip-options"`: SIP OPTIONS over UDP."""

    type: Literal["sip-options"]


CheckConfig = Annotated[TcpHoldConfig | SipOptionsConfig, Field(discriminator="type")]


class LoadConfig(StrictModel):
    """`[as.load]`: where the load comes from, and when a change is worth telling the registrar."""

    source: Literal["cpu", "file", "none"] = "cpu"
    path: FilePath | None = None
    interval_ms: Milliseconds = 250
    smoothing_ms: Annotated[int, Field(ge=0, le=600_000)] = 1000
    min_change: float = Field(default=0.05, gt=0, le=1)
    min_update_interval_ms: Milliseconds = 250
    max_age_ms: Milliseconds = 10_000
    when_unknown: Share = 0.9

    @model_validator(mode="after")
    def _path_goes_with_file(self) -> Self:
        if self.source == "file" and self.path is None:
            raise ValueError('source "file" needs a path')
        if self.source != "file" and self.path is not None:
            raise ValueError(f'source "{self.source}" takes no path')
        return self


class ServerConfig(StrictModel):
    """`[[as]]`: one application server."""

    name: Annotated[str, AfterValidator(_name)]
    handle: Annotated[str, AfterValidator(_handle)]
    transport: Literal["udp", "tcp", "sctp"]
    address: Annotated[Literal["auto"] | tuple[Address, ...], PlainValidator(_addresses)] = "auto"
    port: Port
    policy: Annotated[str, AfterValidator(_policy)] = "least-used"
    weight: Number | None = None
    priority: Number | None = None
    degradation: Share | None = None
    penalty_factor: Share | None = None
    distance_ms: Number | None = None
    check: Annotated[tuple[CheckConfig, ...], _filled("at least one [[as.check]] is needed")]
    load: LoadConfig | None = None

    def policy_with(self, load: float) -> Policy:
        """Return the policy to register, with `load` (0..1) where it carries one."""
        return make_policy(self.policy, {key: getattr(self, key) for key in POLICY_KEYS}, load)


class StateConfig(StrictModel):
    """`[state]`: the directory that keeps identifiers and drains across restarts."""

    path: FilePath = Path("/var/lib/ppe-agent")


class ControlConfig(StrictModel):
    """`[control]`: the unix socket of status, drain and undrain."""

    path: FilePath = Path("/run/ppe-agent/control.sock")


class AgentConfig(StrictModel):
    """The whole file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    registrars: Annotated[
        tuple[Annotated[RegistrarAddress, BeforeValidator(_registrar)], ...],
        _filled("at least one registrar is needed; take three"),
    ]
    reregistration_ms: Annotated[int, Field(ge=200, le=600_000)] = 2000
    state: StateConfig = StateConfig()
    control: ControlConfig = ControlConfig()
    servers: Annotated[tuple[ServerConfig, ...], _filled("at least one [[as]] is needed")] = Field(alias="as")

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[Problem]:
        """Yield what is wrong between keys."""
        yield from consistency.problems(document)


def load_configuration(path: str | Path) -> AgentConfig:
    """Read agent.toml. Raises daemon_kit.config_file.ConfigurationErrors with every error."""
    return load(path, AgentConfig)


def control_path(path: str | Path) -> Path:
    """Return only the control socket that agent.toml names, whatever else is wrong in the file.

    The running agent must be reachable while somebody edits the file, or while the network is away.
    Raises ConfigurationErrors when the file can't be read or isn't TOML.
    """
    document = TomlDocument(str(path), read_text(path)).data
    found = [value for _, value in find(document, ("control", "path")) if isinstance(value, str)]
    usable = found and found[0] and "\0" not in found[0]
    return Path(found[0]) if usable else ControlConfig().path


def addresses_of(server: ServerConfig, first_registrar: RegistrarAddress) -> tuple[Address, ...]:
    """Return the addresses the AS is registered with. Raises NoLocalAddress."""
    if server.address == "auto":
        return (address_towards(first_registrar.host, first_registrar.asap_port),)
    return server.address
