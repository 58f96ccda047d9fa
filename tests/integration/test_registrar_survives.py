"""rspregistrar outlives whatever passes check_safe, and check_safe refuses what is known to end it."""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from registrar_config import RegistrarSettings, SctpEndpoint, arguments

from rserpool import (
    PoolElement,
    Protocol,
    RoundRobin,
    ServerInformation,
    Transport,
    UnknownParameter,
    UnsafeMessageError,
    asap,
    check_safe,
    enrp,
)
from tests.integration import send_messages
from tests.rserpool import strategies as s
from tests.support import attacks
from tests.support.namespaces import REPOSITORY, SCTP_RUN, Namespace

pytestmark = [
    pytest.mark.skipif(shutil.which("rspregistrar") is None, reason="rspregistrar is not installed"),
    pytest.mark.skipif(not SCTP_RUN.exists(), reason=f"not built: {SCTP_RUN}"),
]

ADDRESS = "10.78.0.1"
ASK = str(REPOSITORY / "tests/support/ask_registrar.py")
HERE = IPv4Address("10.78.0.2")
Message = asap.AsapMessage | enrp.EnrpMessage


@dataclass
class Registrar:
    """One registrar, told to expect a peer that never comes."""

    namespace: Namespace
    process: subprocess.Popen[str]
    log: Path

    def tell(self, codec: ModuleType, messages: list[Message]) -> None:
        lines = "".join(codec.encode(message).hex() + "\n" for message in messages)
        command = [sys.executable, "-m", send_messages.__name__, ADDRESS, str(codec.PORT), str(codec.PPID)]
        sent = subprocess.run(
            self.namespace.command(*command, sctp=True),
            input=lines,
            text=True,
            capture_output=True,
            timeout=150,
            check=False,
            cwd=REPOSITORY,
        )
        assert sent.returncode == 0 or self.ends(), sent.stderr

    def ends(self) -> bool:
        """Whether it ends soon."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(90)
        return self.process.poll() is not None

    def answers(self) -> bool:
        """Whether it still takes associations and reads what comes there."""
        asked = self.namespace.run(sys.executable, ASK, ADDRESS, "a-pool", sctp=True)
        return asked.returncode == 0 and json.loads(asked.stdout)["found"] is not None


@pytest.fixture
def registrar(namespace: Namespace, tmp_path: Path) -> Registrar:
    for setup in (
        "link add there type veth peer name here",
        "link set there up",
        "link set here up",
        f"address add {ADDRESS}/24 dev there",
        f"address add {HERE}/24 dev there",
    ):
        namespace.ip(*setup.split())
    peers = (SctpEndpoint.parse(str(HERE), 9999),)
    options = RegistrarSettings(SctpEndpoint.parse(ADDRESS, 3863), SctpEndpoint.parse(ADDRESS, 9901), peers)
    log = tmp_path / "registrar.log"
    process = namespace.start(*arguments(options), sctp=True, log=log)
    deadline = time.monotonic() + 20
    while "ready" not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < deadline, log.read_text()
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    return Registrar(namespace, process, log)


def made_safe(value: Any) -> Any:
    """Change what check_safe would refuse, and nothing else."""
    if isinstance(value, tuple):
        return tuple(made_safe(item) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {field.name: made_safe(getattr(value, field.name)) for field in fields(value)}
    if "unknown" in changed:
        changed["unknown"] = ()
    for name in ("sender", "target"):
        if name in changed:
            changed[name] = changed[name] or 1
    if isinstance(value, ServerInformation):
        changed["identifier"] = changed["identifier"] or 1
    if "handle" in changed:
        changed["handle"] = (changed["handle"] or b"x")[:32]
    if isinstance(value, Transport) and value.protocol is not Protocol.SCTP:
        changed["addresses"] = (*value.addresses, HERE)[:1]
    return replace(value, **changed)


def examples(strategy: st.SearchStrategy[Message], count: int) -> list[Message]:
    found: list[Message] = []

    @seed(1)
    @settings(
        max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(strategy.map(made_safe))
    def collect(message: Message) -> None:
        check_safe(message)
        found.append(message)

    collect()
    return found


@pytest.mark.parametrize(("codec", "strategies"), [(asap, s.asap_messages), (enrp, s.enrp_messages)])
def test_rspregistrar_survives_messages_that_pass_the_check(
    registrar: Registrar, codec: ModuleType, strategies: dict[type, st.SearchStrategy[Message]]
) -> None:
    messages = [message for strategy in strategies.values() for message in examples(strategy, 40)]
    registrar.tell(codec, messages)
    assert registrar.answers(), registrar.log.read_text()[-2000:]


SCTP = Transport(Protocol.SCTP, 7000, (HERE,))
ODD = Transport(Protocol.SCTP, 7000, (HERE,), unknown=(UnknownParameter(0x8123),))


def element(transport: Transport) -> PoolElement:
    return PoolElement(1, 0, 30_000, transport, RoundRobin())


FATAL: dict[str, Callable[[], Message]] = {
    "a handle of 33 bytes": lambda: asap.HandleResolution(b"x" * 33),
    "an unknown parameter in a transport": lambda: asap.Registration(b"P", element(ODD)),
    "an unknown parameter in an announcement": lambda: asap.ServerAnnounce(1, unknown=ODD.unknown),
}


def test_rspregistrar_ends_by_a_presence_of_registrar_0(registrar: Registrar) -> None:
    zero = attacks.presence(0, str(HERE))
    with pytest.raises(UnsafeMessageError):
        check_safe(enrp.decode(zero))
    attacks.attack(registrar.namespace, str(HERE), (ADDRESS, enrp.PORT), [zero])
    assert registrar.ends()


@pytest.mark.parametrize("make", FATAL.values(), ids=FATAL)
def test_rspregistrar_ends_by_messages_that_the_check_refuses(
    registrar: Registrar, make: Callable[[], Message]
) -> None:
    """Should one of these fail, rspregistrar has been mended, and check_safe may become more lenient."""
    with pytest.raises(UnsafeMessageError):
        check_safe(make())
    registrar.tell(asap, [make()])
    assert registrar.ends()
