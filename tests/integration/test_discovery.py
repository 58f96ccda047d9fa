"""HAProxy, nginx and Prometheus, with the lines of the page on them, take a pool of 20 from a real PowerDNS.

The pool is played: what registrars do is in other tests.
"""

import json
import re
import socket
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from pool_user import PoolView

from rserpool import LeastUsed, Protocol
from tests.backend.making import ZONE, member, view, views, zone
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.served import Served, served, status
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs/how-to/clients/discover-servers.md").read_text()
NAME = f"web.{ZONE}"
OWNER = f"_http._tcp.{NAME}"
SERVERS = range(1, 21)
ADDRESSES = {f"10.20.0.{number}" for number in SERVERS}
LONGEST_S = 3.0
"""A client that asks once a second has found a change by then."""


def example(language: str) -> str:
    """The lines of the page, for a name server at 127.0.0.1."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return re.sub(r"192\.0\.2\.1|198\.51\.100\.1", "127.0.0.1", text)


def pool(loads: Mapping[int, float]) -> dict[str, PoolView]:
    members = (
        member(number, f"10.20.0.{number}", policy=LeastUsed(load), protocol=Protocol.TCP, port=8080)
        for number, load in loads.items()
    )
    return views(view(*members, handle="web"))


def turned(step: int) -> dict[int, float]:
    """The loads of 20 servers, 0 to 95 %: at each step every server has another server's load of before."""
    return {number: (number * 7 + step) % 20 / 20 for number in SERVERS}


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Served]:
    """A PowerDNS that answers for the pool of the page, and its servers: they say which of them answers."""
    pool_of_page = textwrap.dedent(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])
    with served([zone(pool_of_page)], pool(turned(0)), tmp_path) as made:
        for address in sorted(ADDRESSES):
            made.namespace.ip("address", "add", f"{address}/32", "dev", "lo")
        yield made


def start_nginx(namespace: Namespace, folder: Path, servers: str) -> None:
    """Start nginx with these servers of its `http` block."""
    folder.mkdir()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"user root;\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{servers}\n}}\n"
    )
    namespace.start("nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), log=folder / "log")


def start_servers(made: Served) -> None:
    says = r'default_type text/plain; return 200 "up{server=\"$server_addr\"} 1\n";'
    start_nginx(made.namespace, made.folder / "servers", f"server {{ listen 8080; location / {{ {says} }} }}")


def test_answer_is_whole_over_tcp_and_edns_and_truncated_where_it_does_not_fit(whole: Served) -> None:
    def seen(*options: str) -> tuple[int, bool]:
        said = whole.pdns.dig("+ignore", "+nocookie", *options)
        assert status(said) == "NOERROR", said
        found = re.search(r"flags:([a-z ]*);.* ANSWER: (\d+)", said)
        assert found is not None, said
        return int(found[2]), "tc" in found[1].split()

    assert seen(OWNER, "SRV", "+noedns") == (0, True)
    assert seen(OWNER, "SRV", "+tcp") == seen(OWNER, "SRV", "+tcp", "+noedns") == (20, False)
    assert seen(NAME, "A", "+noedns") == seen(NAME, "A", "+tcp") == (20, False)
    in_order = whole.pdns.dig("+tcp", "+short", OWNER, "SRV").split("\n")[:-1]
    assert [line.split()[3].partition(".")[0] for line in in_order] == [f"{n:08x}" for n in SERVERS]
    many = (
        member(n, f"10.20.{n // 250}.{n % 250 + 1}", protocol=Protocol.TCP, port=8080) for n in range(1, 1001)
    )
    whole.backend.publish(views(view(*many, handle="web")))
    until(lambda: seen(NAME, "A", "+tcp") == (1000, False))
    count, is_truncated = seen(OWNER, "SRV", "+tcp")
    assert (count > 800, is_truncated) == (True, False)
    few = dict.fromkeys(range(1, 15), 0.5)
    whole.backend.publish(pool(few))
    until(lambda: seen(OWNER, "SRV", "+bufsize=1232") == (14, False))
    assert seen(OWNER, "SRV", "+noedns") == (0, True)


class Slot(NamedTuple):
    """A server of HAProxy's `server-template`."""

    address: str
    is_up: bool
    weight: int


def slots(socket_path: Path) -> dict[str, Slot]:
    """HAProxy's servers that are in use, by name."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(socket_path))
        control.sendall(b"show servers state web\n")
        with control.makefile() as lines:
            rows = [line.split() for line in lines]
    header = rows[1][1:]
    servers = [dict(zip(header, row, strict=False)) for row in rows[2:] if row]
    return {
        row["srv_name"]: Slot(row["srv_addr"], row["srv_op_state"] == "2", int(row["srv_uweight"]))
        for row in servers
        if row["srv_op_state"] == "2"
    }


def test_no_server_of_haproxy_flaps_weights_follow_and_a_dead_server_is_out(whole: Served) -> None:
    control, conf, log = (whole.folder / name for name in ("control", "haproxy.cfg", "haproxy.log"))
    conf.write_text(
        f"global\n    stats socket {control}\n"
        "defaults\n    mode http\n    timeout connect 5s\n    timeout client 50s\n    timeout server 50s\n"
        f"{example('haproxy')}"
    )
    whole.namespace.start("haproxy", "-db", "-f", str(conf), log=log)
    until(control.exists, told=log)
    until(lambda: {slot.address for slot in slots(control).values()} == ADDRESSES, told=log)
    told = log.read_text()
    settled = {name: slot.address for name, slot in slots(control).items()}

    def weights() -> dict[str, int]:
        return {slot.address: slot.weight for slot in slots(control).values()}

    def has_weights(expected: Mapping[str, int]) -> bool:
        return weights() == expected

    def of_loads(loads: Mapping[int, float]) -> dict[str, int]:
        """The weights in HAProxy: (weight + 255) / 256."""
        free = {number: round(65535 * (1 - load)) for number, load in loads.items()}
        return {f"10.20.0.{number}": (weight + 255) // 256 for number, weight in free.items()}

    for step in range(1, 5):
        whole.backend.publish(pool(turned(step)))
        expected = of_loads(turned(step))
        assert len(set(expected.values())) == 20
        end_s = time.monotonic() + LONGEST_S
        while time.monotonic() < end_s:
            assert {name: slot.address for name, slot in slots(control).items()} == settled
            time.sleep(0.1)
        until(partial(has_weights, expected), told=lambda: str(weights()))
    assert log.read_text() == told, "HAProxy logs whatever a server's state becomes"

    living = {number: load for number, load in turned(4).items() if number != 7}
    whole.backend.publish(pool(living))
    until(lambda: "10.20.0.7" not in weights(), told=log)
    rest = {name: address for name, address in settled.items() if address != "10.20.0.7"}
    assert {name: slot.address for name, slot in slots(control).items()} == rest
    assert log.read_text().removeprefix(told).count(" is going DOWN ") == 1


def test_nginx_sends_requests_to_each_server_and_to_a_dead_one_no_more(whole: Served) -> None:
    start_servers(whole)
    start_nginx(whole.namespace, whole.folder / "front", example("nginx"))
    log = whole.folder / "front" / "log"
    answer = re.compile(r'up\{server="([^"]+)"\} 1')

    def answering(requests: int) -> set[str]:
        said = whole.namespace.run("curl", "-s", f"http://127.0.0.1/?[1-{requests}]").stdout
        return set(answer.findall(said))

    until(lambda: answering(200) == ADDRESSES, told=log)
    whole.backend.publish(pool({number: load for number, load in turned(1).items() if number != 7}))
    until(lambda: answering(200) == ADDRESSES - {"10.20.0.7"}, told=log)
    assert "[error]" not in log.read_text()


def test_prometheus_scrapes_each_server_and_a_dead_one_no_more(whole: Served) -> None:
    start_servers(whole)
    folder = whole.folder / "prometheus"
    folder.mkdir()
    log = folder / "log"
    (folder / "prometheus.yml").write_text(
        "global: { scrape_interval: 1s }\n"
        + example("yaml").replace("refresh_interval: 5s", "refresh_interval: 1s")
    )
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    private = [
        sys.executable,
        "-m",
        "rspdns_lab.net.private_file",
        str(folder / "resolv.conf"),
        "/etc/resolv.conf",
    ]
    whole.namespace.start(
        *private,
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        "--web.listen-address=127.0.0.1:9090",
        log=log,
    )

    def scraped() -> dict[str, str]:
        said = whole.namespace.run("curl", "-s", "http://127.0.0.1:9090/api/v1/targets?state=active").stdout
        targets = json.loads(said)["data"]["activeTargets"] if said else []
        return {target["scrapeUrl"].split("/")[2].split(".")[0]: target["health"] for target in targets}

    every = {f"{number:08x}": "up" for number in SERVERS}
    until(lambda: scraped() == every, told=lambda: f"{scraped()} {log.read_text()}")
    del every["00000007"]
    whole.backend.publish(pool({number: load for number, load in turned(1).items() if number != 7}))
    until(lambda: scraped() == every, told=lambda: f"{scraped()} {log.read_text()}")
