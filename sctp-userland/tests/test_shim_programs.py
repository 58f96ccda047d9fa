"""Unmodified TCP programs under `sctp-run --shim`, each between two hosts with two links; no TCP packet is on the links."""

# ruff: noqa: E501  (commands)
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import start_sctpd
from registrar_config import SCTPD_OPTIONS
from shim import ALL_BY_SCTP, associations, run, shimmed
from two_hosts import make_hosts

from tests.support.namespaces import Namespace, end
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SERVER = "10.1.0.2"
REFUSE_TCP = """add table inet shim
add chain inet shim input { type filter hook input priority 0; }
add rule inet shim input iifname "link*" meta l4proto tcp drop
"""
NGINX = """daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; user root; worker_processes 2;
events {{ }}
http {{
    access_log {folder}/access.log; sendfile on; tcp_nopush on; root {folder};
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 10.1.0.2:80; location /again {{ proxy_pass http://10.1.0.2:80/bytes; }} }}
}}
"""
VSFTPD = """listen=YES
listen_address=10.1.0.2
anonymous_enable=YES
anon_root={folder}
secure_chroot_dir={folder}/empty
ftp_username=nobody
run_as_launching_user=YES
seccomp_sandbox=NO
anon_upload_enable=YES
write_enable=YES
background=NO
"""
KAMAILIO = """children=1
tcp_children=2
listen=tcp:10.1.0.2:5070
loadmodule "tm.so"
loadmodule "sl.so"
request_route {
    t_relay_to_tcp("10.1.0.2", "5060");
}
"""
Hosts = tuple[Namespace, Namespace]


@pytest.fixture(scope="module")
def two() -> Iterator[Hosts]:
    """Return two hosts between which no TCP passes."""
    made: list[Namespace] = []

    def make() -> Namespace:
        made.append(Namespace(f"rspdns-shim-{id(made)}-{len(made)}"))
        return made[-1]

    try:
        hosts = make_hosts(make)
        for host in hosts:
            subprocess.run([*host.command("nft"), "-f", "-"], input=REFUSE_TCP, text=True, check=True)
            start_sctpd(host, "--everyone", *shlex.split(SCTPD_OPTIONS))  # PostgreSQL's user isn't root
        yield hosts
    finally:
        for host in made:
            host.close()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "shim.toml").write_text(ALL_BY_SCTP)
    (tmp_path / "bytes").write_bytes(bytes(range(256)) * 8000)
    tmp_path.chmod(0o755)
    return tmp_path / "shim.toml"


def listens(host: Namespace, port: int) -> bool:
    return f":{port} " in run(host, "ss", "-Hltn")


def serve(host: Namespace, rules: Path, port: int, *command: str) -> subprocess.Popen[str]:
    log = rules.with_name("server.log")
    server = host.start(*shimmed(rules, *command), log=log)
    until(lambda: listens(host, port), told=log)
    return server


def test_nginx_with_sendfile_and_curl(two: Hosts, rules: Path) -> None:
    """The second request goes by the server to itself, by nginx's own connect()."""
    folder = rules.parent
    rules.with_name("nginx.conf").write_text(NGINX.format(folder=folder))
    server = serve(two[1], rules, 80, "nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder))
    for path in ("bytes", "again"):
        told = run(
            two[0],
            *shimmed(
                rules,
                "curl",
                "-sS",
                "-o",
                str(folder / "got"),
                "-w",
                "%{remote_ip} %{local_ip}",
                f"http://{SERVER}/{path}",
            ),
        )
        assert told == f"{SERVER} 10.1.0.1"
        assert (folder / "got").read_bytes() == (folder / "bytes").read_bytes()
    assert rules.with_name("access.log").read_text().startswith("10.1.0.1 ")
    end(server)


def test_netcat_half_closes(two: Hosts, rules: Path) -> None:
    """The server answers when it has read the end."""
    code = f"import socket; s = socket.create_server(('{SERVER}', 7000)); c, _ = s.accept(); n = 0\nwhile g := c.recv(65536): n += len(g)\nc.sendall(b'%d' % n)"
    serve(two[1], rules, 7000, sys.executable, "-c", code)
    assert run(two[0], *shimmed(rules, "nc", "-N", SERVER, "7000"), given="x" * 700_000) == "700000"
    serve(two[1], rules, 7001, "sh", "-c", f"nc -l {SERVER} 7001 > {rules.parent}/got")
    run(two[0], *shimmed(rules, "nc", "-N", SERVER, "7001"), given="y" * 700_000)
    until(lambda: (rules.parent / "got").read_text() == "y" * 700_000, told="not all came")


@pytest.mark.parametrize("direction", [(), ("--reverse",)])
def test_iperf3(two: Hosts, rules: Path, direction: tuple[str, ...]) -> None:
    server = serve(two[1], rules, 5201, "iperf3", "-s", "-1", "-B", SERVER)
    told = run(two[0], *shimmed(rules, "iperf3", "-c", SERVER, "-n", "5M", *direction))
    assert "receiver" in told
    assert server.wait(20) == 0


def test_ssh_and_scp(two: Hosts, rules: Path) -> None:
    folder = rules.parent
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    settings = [
        f"HostKey={folder}/host",
        f"AuthorizedKeysFile={folder}/user.pub",
        f"ListenAddress={SERVER}:2222",
    ]
    settings += [
        "StrictModes=no",
        "UsePAM=no",
        "PidFile=none",
        "PermitRootLogin=yes",
        "Subsystem=sftp internal-sftp",
    ]
    options = [word for setting in settings for word in ("-o", setting)]
    server = serve(two[1], rules, 2222, "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", *options)
    client = ["-i", f"{folder}/user", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    told = run(
        two[0],
        *shimmed(rules, "ssh", *client, "-p", "2222", f"root@{SERVER}", "echo $SSH_CONNECTION; wc -c"),
        given="z" * 300_000,
    )
    words = told.split()
    assert (words[0], words[2:]) == ("10.1.0.1", [SERVER, "2222", "300000"])
    run(
        two[0],
        *shimmed(
            rules, "scp", "-q", *client, "-P", "2222", f"{folder}/bytes", f"root@{SERVER}:{folder}/copy"
        ),
    )
    assert (folder / "copy").read_bytes() == (folder / "bytes").read_bytes()
    end(server)


def test_vsftpd_passive_active_and_upload(two: Hosts, rules: Path) -> None:
    """Both sides choose ports, listen, and half-close; FTP broke on that in TCP over SCTP inside a kernel."""
    folder = rules.parent
    (folder / "empty").mkdir()
    (folder / "writable").mkdir()
    (folder / "writable").chmod(0o777)
    rules.with_name("vsftpd.conf").write_text(VSFTPD.format(folder=folder))
    server = serve(two[1], rules, 21, "vsftpd", str(folder / "vsftpd.conf"))
    for more in ([], ["-P", "-"]):
        run(two[0], *shimmed(rules, "curl", "-sS", *more, "-o", str(folder / "got"), f"ftp://{SERVER}/bytes"))
        assert (folder / "got").read_bytes() == (folder / "bytes").read_bytes()
    run(two[0], *shimmed(rules, "curl", "-sS", "-T", str(folder / "bytes"), f"ftp://{SERVER}/writable/sent"))
    assert (folder / "writable" / "sent").read_bytes() == (folder / "bytes").read_bytes()
    end(server)


def test_kamailio_and_sipp(two: Hosts, rules: Path) -> None:
    folder = rules.parent
    rules.with_name("kamailio.cfg").write_text(KAMAILIO)
    agent = serve(
        two[1], rules, 5060, "sipp", "-sn", "uas", "-t", "t1", "-i", SERVER, "-p", "5060", "-nostdin"
    )
    proxy = serve(
        two[1],
        rules,
        5070,
        "kamailio",
        "-f",
        str(folder / "kamailio.cfg"),
        "-DD",
        "-E",
        "-m",
        "32",
        "-Y",
        str(folder),
    )
    for port in (5060, 5070):
        call = (
            "sipp",
            "-sn",
            "uac",
            "-t",
            "t1",
            "-i",
            "10.1.0.1",
            "-m",
            "5",
            "-r",
            "10",
            "-d",
            "50",
            "-timeout",
            "20",
            "-nostdin",
        )
        run(two[0], *shimmed(rules, *call, f"{SERVER}:{port}"))
    assert associations(two[1]) > 0
    end(proxy)
    end(agent)


def test_psql(two: Hosts, rules: Path) -> None:
    folder = rules.parent
    programs = next(Path("/usr/lib/postgresql").glob("*/bin"))
    as_owner = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    (folder / "sql").mkdir()
    subprocess.run(["chown", "postgres:", str(folder / "sql")], check=True)
    for parent in folder.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    data = str(folder / "sql" / "data")
    subprocess.run(
        [*as_owner, str(programs / "initdb"), "-N", "-A", "trust", "-D", data],
        check=True,
        capture_output=True,
    )
    with (folder / "sql" / "data" / "pg_hba.conf").open("a") as access:
        access.write("host all all 10.0.0.0/8 trust\n")
    command = [str(programs / "postgres"), "-D", data, "-h", SERVER, "-k", str(folder / "sql")]
    server = serve(two[1], rules, 5432, *as_owner, *command)
    query = "select inet_client_addr(), length(repeat('x', 3000000))"
    told = run(two[0], *shimmed(rules, "psql", "-h", SERVER, "-U", "postgres", "-Atc", query))
    assert told == "10.1.0.1|3000000\n"
    end(server)
