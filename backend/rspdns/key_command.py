"""The commands `rspdns key new|derive|check`: keys of pools, and of the servers in them."""

from __future__ import annotations

import hashlib
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import click
from daemon_kit.commands import CommandGroup, end_with, example
from daemon_kit.files import read_secret, replace_file

from rserpool import (
    PoolKey,
    Protocol,
    ServerKey,
    new_pool_key,
    pool_key_line,
    read_pool_keys,
    read_server_keys,
    server_key_line,
)

_MODE = 0o640
_FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False, resolve_path=True))


def _address(context: click.Context, parameter: click.Parameter, text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


@click.group(cls=CommandGroup, epilog=example("rspdns key new /etc/rspdns/keys/sip.key"))
def key() -> None:
    """Keys of pools: a server is in a keyed pool only when its sidecar has its key."""


@key.command(epilog=example("rspdns key new /etc/rspdns/keys/sip.key"))
@_FILE
@click.option("--roll", is_flag=True, help="Add a second key to FILE; both are valid.")
def new(file: Path, *, roll: bool) -> None:
    """Make the key of a pool and write it to FILE, for the name servers and ppu-agents.

    The owner and the group may read FILE, nobody else.
    """
    try:
        keys = read_pool_keys(read_secret(file)) if roll else ()
    except ValueError as problem:
        end_with(str(problem))
    if not roll and file.exists():
        end_with(f"{file} is there already; --roll adds a second key to it")
    if len(keys) > 1:
        end_with(f"{file} has two keys: first take the old one, its first line, out")
    _write(file, [pool_key_line(each) for each in (*keys, new_pool_key())])


@key.command(epilog=example("rspdns key derive /etc/rspdns/keys/sip.key udp 10.20.0.5 5060 -o sip-1.key"))
@_FILE
@click.argument("transport", metavar="TRANSPORT", type=click.Choice(["udp", "tcp", "sctp"]))
@click.argument("address", callback=_address)
@click.argument("port", type=click.IntRange(1, 65535))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False, resolve_path=True),
    help="Write it to this file, in the place of what it holds for the same server. Default: print it.",
)
def derive(
    file: Path, transport: str, address: IPv4Address | IPv6Address, port: int, output: Path | None
) -> None:
    """Make the key of a server of the pool whose key is in FILE, for its sidecar.

    TRANSPORT is udp, tcp or sctp; ADDRESS and PORT are the server's, as its sidecar registers them. If FILE
    holds two keys, the command takes the last, which is the newer.
    """
    try:
        pool = read_pool_keys(read_secret(file))[-1]
        others = read_server_keys(read_secret(output)) if output is not None and output.exists() else ()
    except ValueError as problem:
        end_with(str(problem))
    made = pool.server_key(Protocol[transport.upper()], address, port)
    if output is None:
        click.echo(server_key_line(made))
        return
    kept = [other for other in others if _place(other) != _place(made)]
    _write(output, [server_key_line(server_key) for server_key in (*kept, made)])


@key.command(epilog=example("rspdns key check /etc/rspdns/keys/sip.key"))
@_FILE
def check(file: Path) -> None:
    """Say what FILE holds, without its secrets: a fingerprint tells two keys apart."""
    try:
        text = read_secret(file)
        is_of_servers = text.lstrip().startswith("server-key")
        keys: tuple[PoolKey | ServerKey, ...] = (
            read_server_keys(text) if is_of_servers else read_pool_keys(text)
        )
    except ValueError as problem:
        end_with(str(problem))
    for listed in keys:
        what = f"key of {_place(listed)}" if isinstance(listed, ServerKey) else "key of a pool"
        click.echo(f"{what}, fingerprint {hashlib.sha256(listed.secret).hexdigest()[:8]}")


def _place(key: ServerKey) -> str:
    return f"{key.protocol.name.lower()} {key.address} port {key.port}"


def _write(file: Path, lines: list[str]) -> None:
    try:
        replace_file(file, "".join(f"{line}\n" for line in lines).encode(), mode=_MODE)
    except OSError as problem:
        end_with(f"{file} can't be written: {problem.strerror}")
