"""The resolvers that are measured: names, packages, configurations; as shipped, but for where they listen.

Each is told to ask the lab's name servers about the lab's zone, and nothing else. None validates: the zone is
unsigned and the lab has no root.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rspdns_lab.chain.plan import ZONE


@dataclass(frozen=True)
class Resolver:
    """A resolver: what it is called, its Debian package, its configuration and command line.

    `configured(address, name_servers, folder)` returns the text of its configuration file;
    `command(file, folder)` starts it in the foreground.
    """

    title: str
    program: str
    package: str
    configured: Callable[[str, Sequence[str], Path], str]
    command: Callable[[Path, Path], Sequence[str]]


def _unbound(address: str, name_servers: Sequence[str], folder: Path) -> str:
    stubs = "".join(f"  stub-addr: {server}\n" for server in name_servers)
    return (
        f'server:\n  interface: {address}\n  access-control: 0.0.0.0/0 allow\n  directory: "{folder}"\n'
        '  chroot: ""\n  username: ""\n  pidfile: ""\n  use-syslog: no\n  do-daemonize: no\n  do-ip6: no\n'
        '  module-config: "iterator"\nremote-control:\n  control-enable: no\n'
        f'stub-zone:\n  name: "{ZONE}"\n{stubs}'
    )


def _named(address: str, name_servers: Sequence[str], folder: Path) -> str:
    servers = "".join(f"{server}; " for server in name_servers)
    return (
        f'options {{ directory "{folder}"; listen-on {{ {address}; }}; listen-on-v6 {{ none; }};\n'
        f'  pid-file none; session-keyfile "{folder}/session.key"; dnssec-validation no; recursion yes;\n'
        "  allow-query { any; }; allow-recursion { any; }; };\n"
        f'controls {{ }};\nzone "{ZONE}" {{ type static-stub; server-addresses {{ {servers}}}; }};\n'
    )


def _dnsmasq(address: str, name_servers: Sequence[str], _folder: Path) -> str:
    servers = "".join(f"server=/{ZONE}/{server}\n" for server in name_servers)
    return f"listen-address={address}\nbind-interfaces\nno-resolv\nno-hosts\npid-file=\n{servers}"


def _kresd(address: str, name_servers: Sequence[str], folder: Path) -> str:
    servers = ", ".join(f"'{server}'" for server in name_servers)
    return (
        f"net.listen('{address}', 53, {{ kind = 'dns' }})\nnet.ipv6 = false\ntrust_anchors.remove('.')\n"
        f"cache.open(10 * MB, 'lmdb://{folder}/cache')\n"
        f"policy.add(policy.suffix(policy.STUB({{ {servers} }}), policy.todnames({{ '{ZONE}.' }})))\n"
    )


def _kresd_lowered(address: str, name_servers: Sequence[str], folder: Path) -> str:
    return _kresd(address, name_servers, folder) + "cache.min_ttl(0)\n"


def _kresd_command(file: Path, folder: Path) -> Sequence[str]:
    return ["kresd", "--noninteractive", "--config", str(file), str(folder)]


RESOLVERS: Final[Mapping[str, Resolver]] = MappingProxyType(
    {
        "unbound": Resolver(
            "Unbound", "unbound", "unbound", _unbound, lambda file, _: ["unbound", "-d", "-c", str(file)]
        ),
        "named": Resolver("BIND", "named", "bind9", _named, lambda file, _: ["named", "-g", "-c", str(file)]),
        "dnsmasq": Resolver(
            "dnsmasq",
            "dnsmasq",
            "dnsmasq-base",
            _dnsmasq,
            lambda file, _: ["dnsmasq", "--no-daemon", "--log-facility=-", f"--conf-file={file}"],
        ),
        "kresd": Resolver("Knot Resolver", "kresd", "knot-resolver", _kresd, _kresd_command),
        "kresd-0": Resolver(
            "Knot Resolver, `cache.min_ttl(0)`", "kresd", "knot-resolver", _kresd_lowered, _kresd_command
        ),
    }
)
