"""The names of the benchmark: the same ones as a live zone for rspdns, and as a static one for PowerDNS."""

from pathlib import Path

from pdns_config.render import PdnsSettings, render

ZONE = "bench.example.net"
POOLS = 100
MEMBERS = 3


def member_identifier(pool: int, place: int) -> int:
    """Return the PE identifier of a member."""
    return (pool << 8 | place) + 1


def member_address(pool: int, place: int) -> str:
    """Return the address of a member."""
    return f"10.77.{pool}.{place + 1}"


def owner(pool: int) -> str:
    """Return where the SRV records of a pool are."""
    return f"_sip._udp.as{pool}.{ZONE}"


def questions() -> str:
    """Return every SRV question, as dnsperf reads them."""
    return "".join(f"{owner(pool)} SRV\n" for pool in range(POOLS))


def write_live(folder: Path, address: str, port: int, *, cached: bool) -> None:
    """Write the files of a name server with rspdns behind it."""
    (folder / "zones.d").mkdir(parents=True)
    (folder / "rspdns.toml").write_text(
        f'registrars = ["{address}"]\n'
        f'[pdns]\nconnector = "unix:{folder}/remote.sock"\ncontrol = ["{folder}/pdns.controlsocket"]\n'
        f'[state]\npath = "{folder}"\n'
    )
    (folder / "zones.d" / f"{ZONE}.zone").write_text(_apex())
    pools = "".join(
        f'[[pool]]\nhandle = "pool-{pool}"\nlabel = "u"\nservice = "_sip._udp"\nname = "as{pool}"\n'
        'accept = ["10.77.0.0/16"]\n'
        for pool in range(POOLS)
    )
    (folder / "zones.d" / f"{ZONE}.toml").write_text(
        f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\nttl = 5\n{pools}'
    )
    settings = PdnsSettings(
        listen_address=address,
        listen_port=port,
        connector=f"unix:{folder}/remote.sock",
        socket_dir=str(folder),
    )
    text = render(settings)
    (folder / "pdns.conf").write_text(text if cached else _without_caches(text))


def write_static(folder: Path, address: str, port: int) -> None:
    """Write the files of a name server that has the same records in a zone file (bind backend)."""
    folder.mkdir(parents=True)
    (folder / f"{ZONE}.zone").write_text(_apex() + _records())
    (folder / "named.conf").write_text(f'zone "{ZONE}" {{ type master; file "{folder}/{ZONE}.zone"; }};\n')
    settings = PdnsSettings(listen_address=address, listen_port=port, socket_dir=str(folder))
    lines = [line for line in render(settings).splitlines() if not line.startswith(("launch", "remote-"))]
    (folder / "pdns.conf").write_text(
        "\n".join([*lines, "launch=bind", f"bind-config={folder}/named.conf", ""])
    )


def _apex() -> str:
    return f"$ORIGIN {ZONE}.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 5\n@ NS ns\nns A 10.77.255.1\n"


def _records() -> str:
    lines = []
    for pool in range(POOLS):
        for place in range(MEMBERS):
            target = f"{member_identifier(pool, place):08x}.u.as{pool}"
            lines.append(f"{owner(pool)}. 5 SRV 0 1000 5060 {target}\n")
            lines.append(f"{target} 5 A {member_address(pool, place)}\n")
        lines.append(f'as{pool} 5 NAPTR 10 10 "s" "SIP+D2U" "" {owner(pool)}.\n')
        lines += [f"as{pool} 5 A {member_address(pool, place)}\n" for place in range(2)]
    return "".join(lines)


def _without_caches(text: str) -> str:
    caches = ("cache-ttl", "query-cache-ttl", "negquery-cache-ttl")
    lines = [line for line in text.splitlines() if line.partition("=")[0] not in caches]
    return "\n".join([*lines, *(f"{cache}=0" for cache in caches), ""])
