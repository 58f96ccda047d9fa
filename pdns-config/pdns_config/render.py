"""The text of a `pdns.conf` for a PowerDNS that serves pool zones from an rspdns backend beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from textwrap import wrap

_TIMEOUT_S = 10.0


def lacks_remote_backend(pdns_server: str) -> bool:
    """Tell whether this `pdns_server` has no remote backend; False also when it doesn't say."""
    try:
        said = subprocess.run(
            [pdns_server, "--list-modules"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    parts = said.partition("Modules available:")
    return bool(parts[1]) and "remote" not in parts[2].split()


SCRIPT = "name_table.lua"
_DEFAULT_CONNECTOR = "unix:/run/rspdns/remote.sock"


def installed_script() -> str:
    """Return where this installation has the script that denies names: what PowerDNS loads is root's."""
    installed = Path(sys.prefix) / SCRIPT
    return str(installed if installed.exists() else Path(__file__).with_name(SCRIPT))


def write_script(folder: Path, connector: str) -> str:
    """Write a script into `folder` that runs the installed script for this connector; return its path.

    For a PowerDNS whose user alone can write there. Raises OSError.
    """
    script = folder / SCRIPT
    script.write_text("".join(f"{line}\n" for line in _script_lines(connector, installed_script())))
    return str(script)


def _script_lines(connector: str, script: str) -> tuple[str, str]:
    return (f'RSPDNS_NAMES = "{connector.partition(":")[2]}.names"', f'dofile("{script}")')


_WIDTH = 100
_UNSAFE = re.compile(r'[\s,#"\\]')


def _check(read: Callable[[str], object], value: str, problem: str) -> None:
    """Raise ValueError in words when `read` refuses the value."""
    try:
        read(value)
    except ValueError:
        raise ValueError(f"{value!r} {problem}") from None


BESIDE = {
    "bind": "pdns-backend-bind",
    "gmysql": "pdns-backend-mysql",
    "gpgsql": "pdns-backend-pgsql",
    "gsqlite3": "pdns-backend-sqlite3",
    "lmdb": "pdns-backend-lmdb",
}
"""The other backends that were tried beside the remote backend, each with the Debian package that has it."""


@dataclass(frozen=True, slots=True)
class OtherBackend:
    """Another backend of the same PowerDNS, and its settings. Raises ValueError for what can't be.

    `launch` is a name in `BESIDE`, as PowerDNS writes it: a suffix (`gmysql:second`) names an instance.
    """

    launch: str
    settings: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        if self.name not in BESIDE or not re.fullmatch(r"[a-z0-9]+(:[a-z0-9]+)?", self.launch):
            names = ", ".join(BESIDE)
            raise ValueError(
                f"{self.launch!r} is no backend that is tried beside the remote backend: {names}"
            )
        prefix = f"{self.launch.replace(':', '-')}-"
        for key, value in self.settings:
            if not re.fullmatch(r"[a-z0-9-]+", key) or re.search(r"[\n\r]", value):
                raise ValueError(f"{key!r}={value!r} is no setting of a pdns.conf")
            if not key.startswith(prefix):
                raise ValueError(
                    f"{key!r} is no setting of {self.launch}: its settings begin with {prefix!r}"
                )

    @property
    def name(self) -> str:
        """The backend's name without the instance's."""
        return self.launch.partition(":")[0]


@dataclass(frozen=True, slots=True)
class PdnsSettings:
    """The settings that differ from machine to machine.

    `connector` is written as in the backend's own configuration: "unix:/path/of/socket" or "http:HOST:PORT".
    `socket_dir` is where PowerDNS makes its control socket, at which the backend purges. `user` is the user
    and group to become; None to stay who starts it. `signed` is for zones signed by PowerDNS with keys that
    the backend keeps. `beside` is another backend that holds other zones, the parent among them, with its own
    settings: OtherBackend("bind", (("bind-config", "/etc/powerdns/named.conf"),)). `axfr` are the networks
    that may transfer any zone. `denials`: PowerDNS itself denies the names that a table of the backend proves
    not to exist; never over HTTP, nor beside another backend. `near`: answers may depend on the prefix of a
    resolver's client (EDNS Client Subnet), which PowerDNS then tells the backend. `script` denies names:
    PowerDNS runs it, so nobody but root (or PowerDNS's own user) may write to it. Raises ValueError for what
    can't be in a pdns.conf.
    """

    listen_address: str | Sequence[str] = ("0.0.0.0", "::")  # noqa: S104 - a DNS server is for everyone
    listen_port: int = 53
    connector: str = _DEFAULT_CONNECTOR
    socket_dir: str = "/run/pdns"
    user: str | None = None
    backend_timeout_ms: int = 2000
    receiver_threads: int = 2
    distributor_threads: int = 6
    signed: bool = False
    beside: OtherBackend | None = None
    axfr: Sequence[str] = ("127.0.0.0/8", "::1")
    denials: bool = True
    near: bool = False
    script: str = f"/usr/lib/rspdns/{SCRIPT}"

    def __post_init__(self) -> None:
        for address in self.addresses:
            _check(ip_address, address, "is no IP address to listen at")
        if not 1 <= self.listen_port <= 65535:
            raise ValueError(f"the port {self.listen_port} is not in 1..65535")
        if self.backend_timeout_ms < 2 or self.receiver_threads < 1 or self.distributor_threads < 1:
            raise ValueError("a timeout of at least 2 ms and one thread of each kind are needed")
        if self.signed and self.beside is not None:
            raise ValueError(
                "keys are kept by one backend only: sign the pool zones on a PowerDNS of their own"
            )
        if self.signed and self.connector.startswith("http"):
            raise ValueError("keys are handed out over the unix connector only: signed zones need it")
        for network in self.axfr:
            _check(ip_network, network, "is no network that may transfer zones: write it like 192.0.2.0/24")
        for value in (self.connector, self.socket_dir, self.user or "", self.script):
            if _UNSAFE.search(value):
                raise ValueError(
                    f"{value!r} has a blank, comma, quote, backslash or '#' in it, which pdns.conf can't hold"
                )
        _ = self.connection_string

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to listen on."""
        return (self.listen_address,) if isinstance(self.listen_address, str) else tuple(self.listen_address)

    @property
    def connection_string(self) -> str:
        """The connector as PowerDNS writes it. Raises ValueError for an unknown kind."""
        kind, _, address = self.connector.partition(":")
        if kind == "unix" and address.startswith("/"):
            return f"unix:path={address},timeout={self.backend_timeout_ms}"
        if kind == "http" and address:
            # In whole seconds, and at least one: PowerDNS divides by 1000 and takes 0 for "do not wait".
            return f"http:url=http://{address}/dns,timeout={max(1000, self.backend_timeout_ms)}"
        raise ValueError(f'the connector {self.connector!r} is neither "unix:/path" nor "http:HOST:PORT"')

    @property
    def denies(self) -> bool:
        """Whether PowerDNS denies names by the table of the backend, which is beside the unix socket."""
        return self.denials and self.beside is None and self.connector.startswith("unix:")

    @property
    def control_socket(self) -> str:
        """The path that belongs into `control` of the backend's configuration."""
        return f"{self.socket_dir}/pdns.controlsocket"


def render_pdns_conf(settings: PdnsSettings) -> str:
    """Return the whole text of pdns.conf, each setting with the reason for it."""
    parts = [_HEAD]
    for title, lines in _sections(settings):
        parts.append(f"\n# --- {title}\n")
        for key, value, reason in lines:
            parts += [
                *(
                    f"# {line}\n"
                    for line in wrap(reason, _WIDTH, break_long_words=False, break_on_hyphens=False)
                ),
                f"{key}={value}\n",
            ]
    return "".join(parts)


_HEAD = """\
# PowerDNS Authoritative Server 4.7 or later, for zones that an rspdns backend beside it serves.
# Start the backend first: with its zone cache on, PowerDNS gives up when the backend can't be asked.
"""

Line = tuple[str, object, str]


def _sections(settings: PdnsSettings) -> list[tuple[str, list[Line]]]:
    return [
        ("Addresses", _listening(settings)),
        ("The backend", _backend(settings)),
        ("Caches: they carry the load, and the backend purges what changed", _caches()),
        ("Zone transfers", _transfers(settings)),
        ("Threads and queues", _threads(settings)),
        ("As a service", _service(settings)),
    ]


def _listening(settings: PdnsSettings) -> list[Line]:
    return [
        (
            "local-address",
            ", ".join(settings.addresses),
            "If a resolver on this host has port 53 of 127.0.0.1, name the public addresses alone.",
        ),
        ("local-port", settings.listen_port, "UDP and TCP: large answers come over TCP."),
    ]


def _backend(settings: PdnsSettings) -> list[Line]:
    lines: list[Line] = [
        ("launch", "remote", "The remote backend (Debian: pdns-backend-remote) asks rspdns for everything."),
        (
            "remote-connection-string",
            settings.connection_string,
            "The time (ms) that a thread waits for a backend that hangs or is being restarted. A zone "
            "transfer must fit in it too: it is the limit of AXFR.",
        ),
        ("consistent-backends", "yes", "One question for all types of a name instead of one for each."),
        ("dname-processing", "yes", "Follow DNAME records; PowerDNS else gives them to nobody."),
    ]
    if settings.near:
        lines.append(
            (
                "edns-subnet-processing",
                "yes",
                "Tell the backend the client's prefix that a resolver passes on, and the resolver the prefix "
                "that the answer is for. Without it nearness and affinity go by the resolver's address.",
            )
        )
    if settings.denies:
        lines.append(
            (
                "lua-prequery-script",
                settings.script,
                f"{_whose_table(settings)} PowerDNS runs this file: none but root may write to it. It "
                'says "no such name" without asking the backend twice for each label. Without this line all '
                "answers are the same, but a flood of random names holds up the others. PowerDNS doesn't "
                "promise to keep this setting; 4.7 to 5.1 have it.",
            )
        )
    if settings.beside is not None:
        lines[0] = (
            "launch",
            f"{settings.beside.launch},remote",
            f"Debian has it in {BESIDE[settings.beside.name]}. Each zone is in one of the "
            "two backends, the parent zone in the first one: never lay names of "
            "one over a zone of the other, PowerDNS would deny them.",
        )
        lines += [
            (key, value, f"A setting of {settings.beside.launch}.") for key, value in settings.beside.settings
        ]
    if settings.signed:
        lines += [
            (
                "remote-dnssec",
                "yes",
                "Sign the zones that have keys (pdnsutil secure-zone ZONE); the backend keeps them.",
            ),
            ("default-ksk-algorithm", "ecdsa256", "One key for each zone; small signatures."),
        ]
    return lines


def _whose_table(settings: PdnsSettings) -> str:
    table = f"The backend writes {settings.connector.partition(':')[2]}.names, the names that there are."
    if settings.connector == _DEFAULT_CONNECTOR:
        return table
    first, second = _script_lines(settings.connector, installed_script())
    return f"{table} A script for this socket has two lines: {first} and {second}."


def _transfers(settings: PdnsSettings) -> list[Line]:
    return [
        (
            "allow-axfr-ips",
            ", ".join(settings.axfr),
            "Hosts that may transfer every zone; others need a zone's metadata ALLOW-AXFR-FROM "
            "or TSIG-ALLOW-AXFR. A copy of a live zone follows if the backend tells of changes: "
            "[[secondary]] in rspdns.toml.",
        ),
    ]


def _caches() -> list[Line]:
    return [
        ("cache-ttl", 20, "Whole packets, in seconds; never longer than the lowest TTL in them."),
        (
            "query-cache-ttl",
            2,
            "Answers of the backend, in seconds. It ignores TTLs: this, and then the TTL, is what a lost "
            "purge costs at worst. Do not switch it off: after a purge under load every waiting question "
            "would go to the backend.",
        ),
        (
            "negquery-cache-ttl",
            1,
            '"No such name", in seconds: a server that comes back must not stay hidden.',
        ),
        (
            "zone-cache-refresh-interval",
            300,
            "The list of zones, in seconds; the backend has it read again when its zones change.",
        ),
    ]


def _threads(settings: PdnsSettings) -> list[Line]:
    return [
        (
            "receiver-threads",
            settings.receiver_threads,
            "They read the questions and answer from the packet cache.",
        ),
        ("reuseport", "yes", "Each of them has a socket of its own, so that none waits for another."),
        (
            "distributor-threads",
            settings.distributor_threads,
            "Each holds one connection to the backend. With several, a question that waits does not stop the "
            "others.",
        ),
        (
            "overload-queue-length",
            500,
            "When this number of questions waits for the backend, answer from the packet cache only ...",
        ),
        (
            "max-queue-length",
            1000000,
            "... and never come near this: PowerDNS ends itself when the queue is full (default 5000), which "
            "is what a hung backend would do to it.",
        ),
        (
            "queue-limit",
            settings.backend_timeout_ms + 500,
            "A question that waited for this time (ms) gets no answer at all: more than the timeout above, "
            "so that those that wait for a restarting backend get theirs.",
        ),
    ]


def _service(settings: PdnsSettings) -> list[Line]:
    owner: list[Line] = [
        (
            "setuid",
            settings.user,
            "The user that it becomes once it listens, without rights to anything else.",
        ),
        (
            "setgid",
            settings.user,
            "With it the control socket is this group's (mode 0660). A drop-in of pdns.service then gives it "
            "to the group rspdns-control, which the backend is in: the group pdns can read this file.",
        ),
    ]
    return [
        (
            "socket-dir",
            settings.socket_dir,
            f"The control socket is {settings.control_socket}; the backend purges there.",
        ),
        *(owner if settings.user else []),
        ("guardian", "no", "Nothing inside restarts it: systemd does."),
        ("daemon", "no", "Stay in the foreground: systemd watches this very process."),
        ("disable-syslog", "yes", "Log to standard error, which systemd's journal takes."),
        (
            "loglevel",
            3,
            "Errors only: at 4 and above every purged name writes a line, which costs more than the purge.",
        ),
        ("version-string", "anonymous", "A client that asks for version.bind does not learn what runs here."),
        (
            "security-poll-suffix",
            "",
            "Do not ask the Internet whether this version is known to be vulnerable.",
        ),
    ]
