"""The resolvers that are measured: names, packages, configurations; as shipped, but for where they listen and
for their control.

Each is told to ask the lab's name servers about the lab's zone, and nothing else. None validates: the zone is
unsigned and the lab has no root.
"""

import base64
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rspdns_lab.chain.plan import ZONE

_SECRET_MODE: Final = 0o600
_API_PORT: Final = 8082
_BUS: Final = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/>
<allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>
"""


@dataclass(frozen=True)
class Resolver:
    """A resolver: what it is called, its Debian package, its configuration and command line.

    `configured(address, name_servers, folder)` returns the text of its configuration file, and writes the
    keys of its control into `folder`; `command(file, folder)` starts it in the foreground; `told(address,
    folder)` returns the keys of the [[resolver]] that has its cache forget.
    """

    title: str
    program: str
    package: str
    configured: Callable[[str, Sequence[str], Path], str]
    command: Callable[[Path, Path], Sequence[str]]
    told: Callable[[str, Path], Mapping[str, str]]
    file: str = "configuration"


def _unbound(address: str, name_servers: Sequence[str], folder: Path) -> str:
    subprocess.run(["unbound-control-setup", "-d", str(folder)], check=True, capture_output=True)
    stubs = "".join(f"  stub-addr: {server}\n" for server in name_servers)
    keys = "".join(
        f"  {part}-{kind}-file: {folder}/unbound_{part}.{suffix}\n"
        for part in ("server", "control")
        for kind, suffix in (("key", "key"), ("cert", "pem"))
    )
    return (
        f'server:\n  interface: {address}\n  access-control: 0.0.0.0/0 allow\n  directory: "{folder}"\n'
        '  chroot: ""\n  username: ""\n  pidfile: ""\n  use-syslog: no\n  do-daemonize: no\n  do-ip6: no\n'
        f'  module-config: "iterator"\nremote-control:\n  control-enable: yes\n'
        f'  control-interface: {address}\n{keys}stub-zone:\n  name: "{ZONE}"\n{stubs}'
    )


def _unbound_told(address: str, folder: Path) -> Mapping[str, str]:
    return {
        "type": "unbound",
        "address": f"{address}:8953",
        "server_certificate": f"{folder}/unbound_server.pem",
        "certificate": f"{folder}/unbound_control.pem",
        "key": _secret(folder / "unbound_control.key"),
    }


def _named(address: str, name_servers: Sequence[str], folder: Path) -> str:
    secret = base64.b64encode(secrets.token_bytes(32)).decode()
    key = f'key "rspdns" {{\n\talgorithm hmac-sha256;\n\tsecret "{secret}";\n}};\n'
    (folder / "rndc.key").write_text(key)
    servers = "".join(f"{server}; " for server in name_servers)
    return (
        f'{key}options {{ directory "{folder}"; listen-on {{ {address}; }}; listen-on-v6 {{ none; }};\n'
        f'  pid-file none; session-keyfile "{folder}/session.key"; dnssec-validation no; recursion yes;\n'
        "  allow-query { any; }; allow-recursion { any; }; };\n"
        f'controls {{ inet {address} allow {{ any; }} keys {{ "rspdns"; }}; }};\n'
        f'zone "{ZONE}" {{ type static-stub; server-addresses {{ {servers}}}; }};\n'
    )


def _named_told(address: str, folder: Path) -> Mapping[str, str]:
    return {"type": "bind", "address": f"{address}:953", "key": _secret(folder / "rndc.key")}


def _dnsmasq(address: str, name_servers: Sequence[str], folder: Path) -> str:
    (folder / "bus.conf").write_text(_BUS.format(socket=folder / "bus"))
    servers = "".join(f"server=/{ZONE}/{server}\n" for server in name_servers)
    return (
        f"listen-address={address}\nbind-interfaces\nno-resolv\nno-hosts\npid-file=\nenable-dbus\n{servers}"
    )


def _dnsmasq_command(file: Path, folder: Path) -> Sequence[str]:
    """A D-Bus of its own, whose name dnsmasq takes when it comes."""
    bus = f"dbus-daemon --nofork --config-file={folder}/bus.conf"
    bus = f"{bus} & until [ -S {folder}/bus ]; do sleep 0.05; done"
    dnsmasq = f"exec dnsmasq --no-daemon --log-facility=- --conf-file={file}"
    return ["env", f"DBUS_SYSTEM_BUS_ADDRESS=unix:path={folder}/bus", "sh", "-c", f"{bus}; {dnsmasq}"]


def _dnsmasq_told(_address: str, folder: Path) -> Mapping[str, str]:
    return {"type": "dnsmasq", "address": f"unix:{folder}/bus"}


def _kresd(address: str, name_servers: Sequence[str], folder: Path) -> str:
    servers = ", ".join(f"'{server}'" for server in name_servers)
    return (
        f"net.listen('{address}', 53, {{ kind = 'dns' }})\nnet.listen('{folder}/control', nil, "
        "{ kind = 'control' })\nnet.ipv6 = false\ntrust_anchors.remove('.')\n"
        f"cache.open(10 * MB, 'lmdb://{folder}/cache')\n"
        f"policy.add(policy.suffix(policy.STUB({{ {servers} }}), policy.todnames({{ '{ZONE}.' }})))\n"
    )


def _kresd_lowered(address: str, name_servers: Sequence[str], folder: Path) -> str:
    return _kresd(address, name_servers, folder) + "cache.min_ttl(0)\n"


def _kresd_command(file: Path, folder: Path) -> Sequence[str]:
    return ["kresd", "--noninteractive", "--config", str(file), str(folder)]


def _kresd_told(_address: str, folder: Path) -> Mapping[str, str]:
    return {"type": "knot-resolver", "address": f"unix:{folder}/control"}


def _recursor(address: str, name_servers: Sequence[str], folder: Path) -> str:
    (folder / "api-key").write_text(secrets.token_hex())
    return (
        f"local-address={address}\nallow-from=0.0.0.0/0\ndont-query=\nforward-zones={ZONE}="
        f"{';'.join(name_servers)}\nsocket-dir={folder}\nsecurity-poll-suffix=\ndnssec=off\ndaemon=no\nthreads=1\n"
        f"webserver=yes\nwebserver-address={address}\nwebserver-allow-from=0.0.0.0/0\n"
        f"webserver-port={_API_PORT}\napi-key={(folder / 'api-key').read_text()}\n"
    )


def _recursor_command(_file: Path, folder: Path) -> Sequence[str]:
    return ["pdns_recursor", f"--config-dir={folder}"]


def _recursor_told(address: str, folder: Path) -> Mapping[str, str]:
    return {"type": "recursor", "address": f"{address}:{_API_PORT}", "key": _secret(folder / "api-key")}


def _secret(file: Path) -> str:
    file.chmod(_SECRET_MODE)
    return str(file)


RESOLVERS: Final[Mapping[str, Resolver]] = MappingProxyType(
    {
        "unbound": Resolver(
            "Unbound",
            "unbound",
            "unbound",
            _unbound,
            lambda file, _: ["unbound", "-d", "-c", str(file)],
            _unbound_told,
        ),
        "named": Resolver(
            "BIND", "named", "bind9", _named, lambda file, _: ["named", "-g", "-c", str(file)], _named_told
        ),
        "dnsmasq": Resolver("dnsmasq", "dnsmasq", "dnsmasq-base", _dnsmasq, _dnsmasq_command, _dnsmasq_told),
        "kresd": Resolver("Knot Resolver", "kresd", "knot-resolver", _kresd, _kresd_command, _kresd_told),
        "kresd-0": Resolver(
            "Knot Resolver, `cache.min_ttl(0)`",
            "kresd",
            "knot-resolver",
            _kresd_lowered,
            _kresd_command,
            _kresd_told,
        ),
        "recursor": Resolver(
            "PowerDNS Recursor",
            "pdns_recursor",
            "pdns-recursor",
            _recursor,
            _recursor_command,
            _recursor_told,
            file="recursor.conf",
        ),
    }
)
