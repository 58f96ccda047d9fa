"""The lacks of this host for a configuration that is right: programs, certificates, a directory for the
state.

For `ppe-agent check`. It only looks: nothing is run, written or asked over the network; `load_trial` asks.
"""

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from daemon_kit.errors import FatalError
from daemon_kit.files import trusting
from daemon_kit.toml_lines import Location
from daemon_kit.unix_listener import MAX_PATH_BYTES, is_too_long

from ppe_agent.addresses import Address, NoLocalAddress
from ppe_agent.checks.configuration import (
    ExecConfig,
    GrpcConfig,
    HttpConfig,
    IcmpConfig,
    SnmpConfig,
    SystemdConfig,
    TlsConfig,
)
from ppe_agent.checks.grpc import missing_library
from ppe_agent.checks.icmp import GROUP_RANGE, echo_socket
from ppe_agent.checks.snmp import PROGRAM
from ppe_agent.client_addresses import problem_of
from ppe_agent.configuration import AgentConfig, ServerConfig, addresses_of, registered_addresses
from ppe_agent.state import StateDirectory
from rserpool import Protocol

_PATH_OF_SERVICES: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The path in which systemd has its services look for programs (systemd.exec(5)); an ordinary user's has
less."""
_SYSCTL: Final = Path("/proc/sys")


@dataclass(frozen=True)
class Lack:
    """A lack, and the key that it concerns.

    `is_doubtful`: it is only this user that lacks it, and the sidecar may run as another one.
    """

    location: Location
    problem: str
    is_doubtful: bool = False


def lacks(config: AgentConfig) -> Iterator[Lack]:
    """Yield what the sidecar would lack here, were it run by this user."""
    state = _directory(("state", "path"), "state directory", config.state.path)
    yield from state
    if not state:
        yield from _kept(config)
    control = config.control.path.parent
    yield from _directory(
        ("control", "path"), "control socket's directory", control, made_below=control.parent
    )
    if is_too_long(config.control.path):
        problem = f"a unix socket's path has {MAX_PATH_BYTES} bytes at most: {config.control.path}"
        yield Lack(("control", "path"), problem)
    yield from _addresses(config)
    yield from _clients(config)
    for i, server in enumerate(config.servers):
        yield from _key(("as", i, "key"), server, config)
        for j, check in enumerate(server.check):
            here = ("as", i, "check", j)
            if isinstance(check, GrpcConfig):
                yield from _library((*here, "type"))
            if isinstance(check, ExecConfig):
                yield from _program((*here, "command"), check.command[0])
            elif isinstance(check, SystemdConfig):
                yield from _program((*here, "type"), "systemctl")
            elif isinstance(check, HttpConfig | TlsConfig | GrpcConfig) and check.ca_file is not None:
                yield from _certificates((*here, "ca_file"), check.ca_file)
            elif isinstance(check, IcmpConfig):
                yield from _echo((*here, "type"), check.address.version if check.address else 4)
            elif isinstance(check, SnmpConfig):
                yield from _snmp(here, check.credentials)
        if server.load is not None and server.load.command is not None:
            yield from _program(("as", i, "load", "command"), server.load.command[0])
        if server.load is not None and server.load.source == "orca":
            yield from _library(("as", i, "load", "source"))
        if server.load is not None and server.load.ca_file is not None:
            yield from _certificates(("as", i, "load", "ca_file"), server.load.ca_file)
        if server.load is not None and server.load.credentials is not None:
            yield from _snmp(("as", i, "load"), server.load.credentials)


def _directory(location: Location, what: str, path: Path, made_below: Path | None = None) -> list[Lack]:
    """Look whether files can be made in `path`, which itself is made when it is not there.

    `made_below` has to be there then; None: it is made as well.
    """
    there = path
    try:
        while not there.exists():
            if there.is_symlink() or there == made_below:
                how = "leads nowhere" if there.is_symlink() else "is not there"
                return [Lack(location, f"{what}: {there} {how}")]
            there = there.parent
        if not there.is_dir():
            return [Lack(location, f"{what}: {there} is no directory")]
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            return [Lack(location, f"{what}: {there} is on a read-only file system")]
    except OSError as error:
        return [Lack(location, f"{what}: {path}: {error.strerror}", isinstance(error, PermissionError))]
    if os.access(there, os.W_OK | os.X_OK):
        return []
    lack = (
        "can't be written" if there == path else "is not there (systemd's unit makes it), and can't be made"
    )
    return [Lack(location, f"{what}: {path} {lack} by {_me()}", is_doubtful=True)]


def _key(location: Location, server: ServerConfig, config: AgentConfig) -> Iterator[Lack]:
    """Look whether the key file has the key of the server's address and port."""
    if server.key is None:
        return
    with contextlib.suppress(NoLocalAddress):  # without a registrar the address is not known yet
        addresses = registered_addresses(server, next(iter(config.registrars_of(server)), None))
        try:
            server.key.of(Protocol[server.transport.upper()], addresses, server.port)
        except FatalError as problem:
            yield Lack(location, str(problem))


def _addresses(config: AgentConfig) -> Iterator[Lack]:
    """Look for addresses that no registrar will take: each must be of the association that registers it."""
    for i, server in enumerate(config.servers):
        versions = {ip_address(registrar.host).version for registrar in config.registrars_of(server)}
        if not versions or server.remote or server.address == "auto":
            continue
        if not any(address.version in versions for address in server.address):
            of_server = f"IPv{server.address[0].version}"
            problem = (
                f"{server.address[0]} never joins: no registrar here has an {of_server} address, and a "
                "registrar takes addresses of the SCTP association only that registers them; "
                f"name the registrars by {of_server} addresses, or take another address"
            )
            yield Lack(("as", i, "address"), problem)


def _clients(config: AgentConfig) -> Iterator[Lack]:
    """Look whether servers can answer the clients of ppu-agents."""
    if config.relay is None:
        return
    servers: list[Address] = []
    for server in config.servers:
        registrars = config.registrars_of(server)
        if server.relay and (registrars or server.address != "auto"):
            with contextlib.suppress(NoLocalAddress):
                servers += addresses_of(server, *registrars[:1])[:1]
    problem = problem_of(config.relay.client_networks, servers)
    if problem is not None:
        yield Lack(("relay", "clients"), problem)


def _kept(config: AgentConfig) -> Iterator[Lack]:
    """Look whether the state files that are there can be read."""
    states = StateDirectory(config.state.path)
    for server in config.servers:
        try:
            states.read(server.name)
        except FatalError as problem:
            yield Lack(("state", "path"), str(problem), not os.access(states.file(server.name), os.R_OK))


def _program(location: Location, name: str) -> Iterator[Lack]:
    if shutil.which(name) is not None:
        return
    if "/" not in name:
        elsewhere = shutil.which(name, path=_PATH_OF_SERVICES)
        where = f"; there is {elsewhere}, for services of systemd" if elsewhere else ""
        problem = f"no program {name} in {os.environ.get('PATH', os.defpath)}{where}"
        yield Lack(location, problem, is_doubtful=elsewhere is not None)
        return
    try:
        mode = Path(name).stat().st_mode
    except OSError as error:
        yield Lack(location, f"{name}: {error.strerror}", isinstance(error, PermissionError))
        return
    if Path(name).is_dir() or not mode & 0o111:
        yield Lack(location, f"{name} is no program, or not executable")
    else:
        yield Lack(location, f"{name} can't be run by {_me()}", is_doubtful=True)


def _library(location: Location) -> Iterator[Lack]:
    if find_spec("h2") is None:
        yield Lack(location, missing_library())


def _snmp(where: Location, credentials: Path) -> Iterator[Lack]:
    """Look for snmpget (Debian: package snmp), and for its file, which only the sidecar shall read."""
    yield from _program((*where, "oid"), PROGRAM)
    try:
        mode = credentials.stat().st_mode
    except OSError as error:
        problem = f"{credentials}: {error.strerror}"
        yield Lack((*where, "credentials"), problem, isinstance(error, PermissionError))
        return
    if mode & 0o007:
        problem = f"{credentials} holds secrets, and any user may open it: chmod o= {credentials}"
        yield Lack((*where, "credentials"), problem)
    elif not os.access(credentials, os.R_OK):
        yield Lack((*where, "credentials"), f"{credentials} can't be read by {_me()}", is_doubtful=True)


def _echo(location: Location, version: int) -> Iterator[Lack]:
    """Look whether a socket for echo requests can be had; nothing is sent."""
    try:
        echo_socket(version).close()
    except PermissionError:
        # Two numbers, the lowest and the highest group; the kernel's default, "1 0", allows none.
        allowed = (_SYSCTL / GROUP_RANGE.replace(".", "/")).read_text().split()
        whom = "no group" if int(allowed[0]) > int(allowed[1]) else f"the groups {' to '.join(allowed)}"
        problem = (
            f"{GROUP_RANGE} allows {whom} to send echo requests, {_me()} can't: "
            f'sysctl -w {GROUP_RANGE}="0 2147483647", and the same line in /etc/sysctl.d'
        )
        yield Lack(location, problem, is_doubtful=whom != "no group")
    except OSError as error:
        yield Lack(location, f"no socket for echo requests over IPv{version}: {error.strerror}")


def _certificates(location: Location, path: Path) -> Iterator[Lack]:
    try:
        trusting(path)
    except OSError as error:
        yield Lack(location, f"{path}: {error.strerror}", isinstance(error, PermissionError))


def _me() -> str:
    try:
        return f"the user {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"the user {os.geteuid()}"
