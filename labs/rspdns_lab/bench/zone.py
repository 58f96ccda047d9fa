"""The names of the benchmark: the same ones as a live zone for rspdns, and as a static one for PowerDNS."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pdns_config import PdnsSettings, render_pdns_conf, write_script

ZONE = "bench.example.net"
NETWORK = "10.77.0.0/16"
"""All members are in it, and the name servers too."""
POOLS = 100
MEMBERS = 3
PORT = 5060
_OF_THE_BACKEND = ("launch", "remote-", "lua-prequery-script")


def member_identifier(pool: int, index: int) -> int:
    """Return the PE identifier of a member."""
    return (pool << 8 | index) + 1


def member_address(pool: int, index: int) -> str:
    """Return the address of a member."""
    return f"10.77.{pool}.{index + 1}"


def owner(pool: int) -> str:
    """Return where the SRV records of a pool are."""
    return f"_sip._udp.as{pool}.{ZONE}"


def questions() -> str:
    """Return every SRV question, as dnsperf reads them."""
    return "".join(f"{owner(pool)} SRV\n" for pool in range(POOLS))


UNREACHED_LIMIT: Final = "[fastpath.limit]\nall_per_s = 1_000_000\n"
"""A generator asks more than any client: its questions are counted, as by default, and not limited."""
NO_LIMIT: Final = "[fastpath.limit]\nall_per_s = 0\n"
"""The program does not even count questions."""


NEAR: Final = 'order = ["eu", "us"]\nnear = { "10.77.0.0/16" = ["us"], "192.0.2.0/24" = ["eu"] }\n'
AFFINITY: Final = 'affinity = "asker"\n'
_SITES: Final = (
    '[[site]]\nname = "eu"\nnetworks = ["10.77.0.0/17"]\n'
    '[[site]]\nname = "us"\nnetworks = ["10.77.128.0/17"]\n'
)


def write_live(
    folder: Path,
    address: str,
    port: int,
    *,
    cached: bool = True,
    signed: bool = False,
    denials: bool = True,
    fast: bool = False,
    limit: str = UNREACHED_LIMIT,
    by_asker: str = "",
) -> None:
    """Write the files of a name server with rspdns behind it; `fast`: with answers from the kernel,
    which `limit`, the table [fastpath.limit], bounds. `by_asker`: keys of each pool, NEAR or AFFINITY."""
    (folder / "zones.d").mkdir(parents=True)
    (folder / "rspdns.toml").write_text(
        f'registrars = ["{address}"]\n'
        f'[pdns]\nconnector = "unix:{folder}/remote.sock"\ncontrol = ["{folder}/pdns.controlsocket"]\n'
        f'[state]\npath = "{folder}"\n'
        + (_SITES if by_asker == NEAR else "")
        + (f'[fastpath]\nsocket = "{folder}/fastpath.sock"\nclient_subnet = true\n{limit}' if fast else "")
    )
    (folder / "zones.d" / f"{ZONE}.zone").write_text(_apex())
    pools = "".join(
        f'[[pool]]\nhandle = "pool-{pool}"\nlabel = "u"\nservice = "_sip._udp"\nname = "as{pool}"\n'
        f'accept = ["10.77.0.0/16"]\n{by_asker}'
        for pool in range(POOLS)
    )
    (folder / "zones.d" / f"{ZONE}.toml").write_text(
        f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\nttl = 5\n{pools}'
    )
    settings = PdnsSettings(
        listen_address=address,
        listen_port=port,
        connector=f"unix:{folder}/remote.sock",
        script=write_script(folder, f"unix:{folder}/remote.sock"),
        socket_dir=str(folder),
        signed=signed,
        denials=denials,
        near=bool(by_asker),
    )
    text = render_pdns_conf(settings)
    (folder / "pdns.conf").write_text(text if cached else _without_caches(text))


def write_pdns(folder: Path, address: str, port: int, backend: Sequence[str]) -> None:
    """Write the configuration of a PowerDNS like that of `write_live`, but with another backend."""
    settings = PdnsSettings(listen_address=address, listen_port=port, socket_dir=str(folder))
    lines = [line for line in render_pdns_conf(settings).splitlines() if not line.startswith(_OF_THE_BACKEND)]
    (folder / "pdns.conf").write_text("\n".join([*lines, *backend, ""]))


def static_zone() -> str:
    """Return the same records as a zone file."""
    return _apex() + "".join(_srv(pool) + _others(pool) for pool in range(POOLS))


def lua_zone() -> str:
    """Return a zone file whose SRV records are made, for each question, from the members that are up."""
    return _apex() + "".join(_lua_srv(pool) + _others(pool) for pool in range(POOLS))


def write_bind(folder: Path, text: str) -> list[str]:
    """Write a zone for PowerDNS' bind backend, and return the settings that have it served."""
    (folder / f"{ZONE}.zone").write_text(text)
    (folder / "named.conf").write_text(f'zone "{ZONE}" {{ type master; file "{folder}/{ZONE}.zone"; }};\n')
    return ["launch=bind", f"bind-config={folder}/named.conf"]


def _apex() -> str:
    return f"$ORIGIN {ZONE}.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 5\n@ NS ns\nns A 10.77.255.1\n"


def _target(pool: int, index: int) -> str:
    return f"{member_identifier(pool, index):08x}.u.as{pool}"


def _srv(pool: int) -> str:
    targets = (_target(pool, index) for index in range(MEMBERS))
    return "".join(f"{owner(pool)}. 5 SRV 0 1000 {PORT} {target}\n" for target in targets)


def _lua_srv(pool: int) -> str:
    members = {member_address(pool, index): f"{_target(pool, index)}.{ZONE}." for index in range(MEMBERS)}
    names = ",".join(f"['{address}']='{name}'" for address, name in members.items())
    addresses = ",".join(f"'{address}'" for address in members)
    code = (
        f";local names={{{names}}} local found={{}} "
        f"for _,ip in pairs(ifportup({PORT},{{{addresses}}},{{selector='all'}})) do "
        f"found[#found+1]='0 1000 {PORT} '..names[ip] end return found"
    )
    return f'{owner(pool)}. 5 LUA SRV "{code}"\n'


def _others(pool: int) -> str:
    lines = [f"{_target(pool, index)} 5 A {member_address(pool, index)}\n" for index in range(MEMBERS)]
    lines.append(f'as{pool} 5 NAPTR 10 10 "s" "SIP+D2U" "" {owner(pool)}.\n')
    lines += [f"as{pool} 5 A {member_address(pool, index)}\n" for index in range(2)]
    return "".join(lines)


def _without_caches(text: str) -> str:
    """Switch the caches off, and what is for them alone: to ask for all types of a name at once."""
    off = {"cache-ttl": 0, "query-cache-ttl": 0, "negquery-cache-ttl": 0, "consistent-backends": "no"}
    lines = [line for line in text.splitlines() if line.partition("=")[0] not in off]
    return "\n".join([*lines, *(f"{key}={value}" for key, value in off.items()), ""])
