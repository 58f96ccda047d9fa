"""The clients of `rspdns-lab discover`, with the lines of the how-to page, and the list that each keeps."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, call_in
from rspdns_lab.net.processes import Program

PORT: Final = 8080
_REQUESTS_PER_S: Final = 100
_TIMEOUT_S: Final = 5.0


def haproxy_lines(name_server: str, owner: str) -> str:
    """The lines of the page: resolvers, and servers out of SRV records."""
    return f"""resolvers rspdns
    nameserver ns1 tcp@{name_server}:53
    accepted_payload_size 65535
    timeout resolve 1s
    timeout retry   1s
    hold valid    1s
    hold timeout  1h
    hold refused  1h
    hold other    1h

backend web
    balance roundrobin
    option redispatch
    server-template web 40 {owner} resolvers rspdns
"""


def nginx_lines(name_server: str, name: str) -> str:
    """The lines of the page: the resolver, and a server that passes requests on by name."""
    return f"""resolver {name_server} valid=1s;
resolver_timeout 2s;

server {{
    listen 80;
    location / {{
        set $web {name};
        proxy_pass http://$web:{PORT};
    }}
}}
"""


def prometheus_lines(owner: str) -> str:
    """The lines of the page: targets out of SRV records."""
    return f"""scrape_configs:
  - job_name: web
    dns_sd_configs:
      - names: [{owner}]
        refresh_interval: 5s
"""


class Client:
    """A client of DNS that keeps a list. `poll_s`: a change is in its list after this time by its own doing.

    `listed()` is the list, as addresses, with their weights where it has some; it may raise OSError or
    LookupError while the client is not ready.
    """

    poll_s: float = 1.0
    tells_version: Sequence[str]
    """The command that tells its version."""
    used_within_s: float | None = None
    """`listed()` has the servers that it used within this time, since it keeps no list that could be read;
    None: it is a list."""

    def __init__(self, name: str, programs: Sequence[Program]) -> None:
        self.name = name
        self.programs = list(programs)

    def start(self) -> None:
        """Start it."""
        for program in self.programs:
            program.start()

    def close(self) -> None:
        """End what runs here beside its programs."""

    def version(self) -> str:
        """Its version, as it tells it."""
        done = subprocess.run(self.tells_version, capture_output=True, text=True, check=False)
        return version_in(done.stdout + done.stderr)

    def listed(self) -> Mapping[str, int | None]:
        """The addresses on its list, with weights."""
        raise NotImplementedError


class Haproxy(Client):
    """HAProxy with a `server-template`."""

    tells_version = ("haproxy", "-v")

    def __init__(self, name: str, host: Host, folder: Path, name_server: str, owner: str) -> None:
        self._control = folder / "control"
        (folder / "haproxy.cfg").write_text(
            f"global\n    stats socket {self._control}\ndefaults\n    mode http\n"
            "    timeout connect 5s\n    timeout client 50s\n    timeout server 50s\n"
            + haproxy_lines(name_server, owner)
        )
        command = ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]
        super().__init__(name, [Program(name, host, command, folder / "log")])

    def listed(self) -> Mapping[str, int | None]:
        """The servers in use, with their weights."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(_TIMEOUT_S)
            control.connect(str(self._control))
            control.sendall(b"show servers state web\n")
            with control.makefile() as lines:
                rows = [line.split() for line in lines]
        header = rows[1][1:]
        servers = [dict(zip(header, row, strict=False)) for row in rows[2:] if row]
        return {row["srv_addr"]: int(row["srv_uweight"]) for row in servers if row["srv_op_state"] == "2"}


class Prometheus(Client):
    """Prometheus with `dns_sd_configs`."""

    tells_version = ("prometheus", "--version")
    poll_s = 15.0
    """It asks every 5 s, hands on what it discovered every 5 s, and scrapes by that after up to 5 s more."""

    def __init__(
        self, host: Host, folder: Path, name_server: str, owner: str, names: Mapping[str, str]
    ) -> None:
        self._host, self._names = host, names
        (folder / "prometheus.yml").write_text("global: { scrape_interval: 1s }\n" + prometheus_lines(owner))
        (folder / "resolv.conf").write_text(f"nameserver {name_server}\n")
        command = [sys.executable, "-m", "rspdns_lab.net.private_file", str(folder / "resolv.conf")]
        command += ["/etc/resolv.conf", "prometheus", f"--config.file={folder}/prometheus.yml"]
        command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address={host.address}:9090"]
        super().__init__("prometheus", [Program("prometheus", host, command, folder / "log")])

    def listed(self) -> Mapping[str, int | None]:
        """The targets; their names in DNS stand for addresses."""
        said = json.loads(_get(self._host, self._host.address, 9090, "/api/v1/targets?state=active"))
        urls = [target["scrapeUrl"] for target in said["data"]["activeTargets"]]
        return {self._names[url.split("/")[2].split(".")[0]]: None for url in urls}


class Nginx(Client):
    """nginx with `resolver` and a name in a variable, and requests that go through it."""

    tells_version = ("nginx", "-v")
    poll_s = 2.0
    """`valid=1s`, and nginx counts whole seconds."""
    used_within_s = 1.5

    def __init__(self, host: Host, folder: Path, name_server: str, name: str) -> None:
        self._host, self._log = host, folder / "access"
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        (folder / "nginx.conf").write_text(
            f"user root;\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\n"
            f"events {{}}\nhttp {{\n{temporary}log_format lab '$msec $upstream_addr $status';\n"
            f"access_log {self._log} lab;\n{nginx_lines(name_server, name)}\n}}\n"
        )
        command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        super().__init__("nginx", [Program("nginx", host, command, folder / "log")])
        self._ended = threading.Event()
        self._asking = threading.Thread(target=self._ask, daemon=True)

    def start(self) -> None:
        """Start it, and the requests."""
        super().start()
        self._asking.start()

    def close(self) -> None:
        """End the requests."""
        self._ended.set()

    def _ask(self) -> None:
        while not self._ended.wait(1 / _REQUESTS_PER_S):
            try:
                _get(self._host, self._host.address, 80, "/")
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)

    def listed(self) -> Mapping[str, int | None]:
        """The servers that it sent a request to, or tried to, lately."""
        since_s = time.time() - self.used_within_s
        tail = self._log.read_bytes()[-64 * 1024 :].decode(errors="replace").splitlines()[1:]
        found: dict[str, int | None] = {}
        for at_s, _, sent_to in (line.partition(" ") for line in tail):
            if float(at_s) >= since_s:
                found |= dict.fromkeys(re.findall(rf"([0-9.]+):{PORT}", sent_to))
        return found


class Envoy(Client):
    """Envoy with a cluster of type STRICT_DNS, which takes address records."""

    tells_version = ("envoy", "--version")

    def __init__(self, host: Host, folder: Path, name_server: str, name: str) -> None:
        self._host = host
        config = {
            "admin": {"address": _socket_address(host.address, 9901)},
            "static_resources": {
                "clusters": [
                    {
                        "name": "web",
                        "type": "STRICT_DNS",
                        "dns_refresh_rate": "1s",
                        "dns_lookup_family": "V4_ONLY",
                        "typed_dns_resolver_config": {
                            "name": "envoy.network.dns_resolver.cares",
                            "typed_config": {
                                "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver."
                                "cares.v3.CaresDnsResolverConfig",
                                "resolvers": [_socket_address(name_server, 53)],
                                "dns_resolver_options": {"use_tcp_for_dns_lookups": True},
                            },
                        },
                        "load_assignment": {
                            "cluster_name": "web",
                            "endpoints": [
                                {"lb_endpoints": [{"endpoint": {"address": _socket_address(name, PORT)}}]}
                            ],
                        },
                    }
                ]
            },
        }
        (folder / "envoy.json").write_text(json.dumps(config))
        command = ["envoy", "-c", str(folder / "envoy.json"), "--disable-hot-restart", "--concurrency", "1"]
        super().__init__("envoy", [Program("envoy", host, command, folder / "log")])

    @staticmethod
    def is_here() -> bool:
        """Whether there is an `envoy` to run: Debian has none."""
        return shutil.which("envoy") is not None

    def listed(self) -> Mapping[str, int | None]:
        """The hosts of the cluster."""
        said = _get(self._host, self._host.address, 9901, "/clusters")
        return dict.fromkeys(re.findall(rf"^web::([0-9.]+):{PORT}::weight::", said, re.MULTILINE))


def version_in(said: str) -> str:
    """The first number with dots in what a program says of its version; "?" for none."""
    found = re.search(r"(?<![\w.])\d+(\.\d+)+", said)
    return found[0] if found else "?"


def _socket_address(address: str, port: int) -> dict[str, object]:
    return {"socket_address": {"address": address, "port_value": port}}


def _get(host: Host, address: str, port: int, path: str) -> str:
    """Return what a page says, asked on its host. Raises OSError, HTTPException."""

    def get() -> str:
        connection = http.client.HTTPConnection(address, port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode(errors="replace")
        finally:
            connection.close()

    try:
        return str(call_in(host.path, get))
    except LabError as error:
        raise OSError(str(error)) from None
