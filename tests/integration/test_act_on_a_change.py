"""`rspdns watch --exec` and hooks on the real chain: the page's scripts, a real HAProxy, a real Kamailio."""

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, ZONE
from tests.support.certificates import authority, certificate_of
from tests.support.chain import Chain
from tests.support.members import Members
from tests.support.namespaces import REPOSITORY, end, own_namespace
from tests.support.pages import blocks
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "act-on-a-change.md").read_text()
PORTS = {1: 5001, 2: 5002, 3: 5003}
NEWS = f"{ADDRESS}:8056"
EXPECT = ", ".join(f'"{ADDRESS}:{port}" = "sip-{number}"' for number, port in PORTS.items())


def write_news(chain: Chain) -> None:
    """Offer the zone's news at `NEWS`, and by DNS Push Notifications as the page says."""
    key = chain.folder / "news.key"
    key.write_text(f"whsec_{base64.b64encode(os.urandom(32)).decode()}\n")
    key.chmod(0o600)
    with chain.backend.config.open("a") as file:
        file.write(f'\n[news]\nlisten = "{NEWS}"\n[news.keys]\n"{ZONE}" = "{key}"\n')
        (push,) = (block for block in blocks(PAGE, "toml") if "[news.push]" in block)
        files = certificate_of(chain.folder, authority(chain.folder, "ca"), 30)
        lines = push.replace("192.0.2.1", ADDRESS)
        for name, path in files.items():
            lines = lines.replace(f"/etc/rspdns/ns1.{name}", str(path))
        file.write(lines + "\n")
    (record,) = re.findall(r"^ *(_dns-push-tls.*)", PAGE, re.MULTILINE)
    with (chain.folder / "zones.d" / f"{ZONE}.zone").open("a") as file:
        file.write(f"{record}\n")


class Watched:
    """The chain, three servers in its pool, and what they do."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.members = Members(chain.namespace, chain.folder, ADDRESS, chain.registrars.addresses)
        self.inside: set[int] = set()
        for number in PORTS:
            self.join(number)
        until(lambda: chain.targets() == set(PORTS), told=chain.backend.log)

    def join(self, number: int) -> None:
        self.members.add(number, HANDLE, PORTS[number])
        self.inside.add(number)

    def leave(self, number: int) -> None:
        self.members.remove(number)
        self.inside.discard(number)

    def watch(self, log: Path, command: str, *options: str, pool: str = HANDLE) -> subprocess.Popen[str]:
        """Start `rspdns watch`; with the option `--from` it has no configuration file."""
        words = self.command("watch")[: -2 if "--from" in options else None]
        return self.chain.namespace.start(*words, "--log-json", pool, "--exec", command, *options, log=log)

    def command(self, name: str) -> list[str]:
        return [sys.executable, "-m", "rspdns.cli", name, "-c", str(self.chain.backend.config)]

    @contextlib.contextmanager
    def news(self, log: Path) -> Iterator[subprocess.Popen[str]]:
        """Start the service of news, and wait until it is ready; end it afterwards."""
        service = self.chain.namespace.start(*self.command("news"), "--log-json", log=log)
        try:
            until(lambda: '"news_ready"' in log.read_text() or service.poll() is not None, told=log)
            assert service.poll() is None, log.read_text()
            yield service
            assert service.poll() is not None or end(service) == 0
        finally:
            if service.poll() is None:
                end(service, signal.SIGKILL)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with own_namespace() as namespace:
        chain = Chain(namespace, tmp_path_factory.mktemp("watch"), f"expect = {{{EXPECT}}}\n")
        write_news(chain)
        chain.start()
        yield Watched(chain)


@pytest.fixture
def whole(watched: Watched) -> Iterator[Watched]:
    """All three servers are in again after the test."""
    yield watched
    for number in PORTS.keys() - watched.inside:
        watched.join(number)
    until(lambda: watched.chain.targets() == set(PORTS), told=watched.chain.backend.log)


def script(language: str, folder: Path, marker: str) -> str:
    """Write the script of the page that holds `marker`; return its path."""
    (text,) = (text for text in blocks(PAGE, language) if marker in text)
    for path in re.findall(r"/run/haproxy/admin\.sock", text):
        text = text.replace(path, str(folder / "haproxy.sock"))
    text = text.replace("kamcmd ", f"kamcmd -s unix:{folder}/kamailio_ctl ")
    file = folder / f"script-{marker}"
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def documents(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def names(document: dict[str, Any]) -> set[str]:
    return {member["name"] for member in document["pool"]["members"]}


def ended(watch: subprocess.Popen[str]) -> None:
    os.killpg(watch.pid, signal.SIGTERM)
    assert watch.wait(20) == 0


def test_command_reads_each_change_with_its_cause_and_the_members(whole: Watched, tmp_path: Path) -> None:
    told, log = tmp_path / "told", tmp_path / "log"
    watch = whole.watch(log, f"cat >> {told}", "--at-most-every", "0.1s", pool=OWNER)
    until(lambda: len(documents(told)) == 1, told=log)
    (first,) = documents(told)
    assert (first["why"], first["changes"], first["missed"]) == ("start", [], False)
    assert names(first) == {"sip-1", "sip-2", "sip-3"}
    left_s = time.monotonic()
    whole.leave(2)
    until(lambda: len(documents(told)) == 2, told=log, every_s=0.005)
    assert time.monotonic() - left_s < 5
    second = documents(told)[1]
    assert second["why"] == "change"
    assert names(second) == {"sip-1", "sip-3"}
    (change,) = second["changes"]
    assert (change["kind"], change["name"], change["cause"]) == ("left", "sip-2", "removed")
    assert change["words"]
    whole.join(2)
    until(lambda: len(documents(told)) == 3, told=log)
    assert [change["kind"] for change in documents(told)[2]["changes"]] == ["joined"]
    until(lambda: log.read_text().count("watch_ran") == 3, told=log)
    ended(watch)
    ran = [json.loads(line) for line in log.read_text().splitlines() if "watch_ran" in line]
    assert [line["changes"] for line in ran] == [0, 1, 1]


def test_changes_during_a_run_come_together_and_a_failed_run_is_repeated(
    whole: Watched, tmp_path: Path
) -> None:
    """A marker that exists while the command runs would show a second one beside it."""
    told, log, marker = tmp_path / "told", tmp_path / "log", tmp_path / "marker"
    slow = f"mkdir {marker} && sleep 2; cat >> {told}; rmdir {marker} && test $(wc -l < {told}) != 2"
    watch = whole.watch(log, slow, "--at-most-every", "0.1s")
    until(marker.exists, told=log)
    whole.leave(1)
    whole.leave(2)
    whole.join(1)
    until(lambda: len(documents(told)) == 3, told=log)
    _, failed, repeated = documents(told)
    happened = [(change["kind"], change["name"]) for change in failed["changes"]]
    assert sorted(happened) == [("joined", "sip-1"), ("left", "sip-1"), ("left", "sip-2")]
    assert happened.index(("left", "sip-1")) < happened.index(("joined", "sip-1"))
    assert names(failed) == {"sip-1", "sip-3"}
    assert repeated["why"] == "repeat"
    assert repeated["changes"] == failed["changes"]
    until(lambda: log.read_text().count("watch_ran") == 2, told=log)
    ended(watch)
    failed_runs = [json.loads(line) for line in log.read_text().splitlines() if "watch_failed" in line]
    assert [line["exit"] for line in failed_runs] == [1]


def test_it_goes_on_after_a_restart_of_the_backend(whole: Watched, tmp_path: Path) -> None:
    told, log = tmp_path / "told", tmp_path / "log"
    watch = whole.watch(log, f"cat >> {told}", "--at-most-every", "0.1s")
    until(lambda: len(documents(told)) == 1, told=log)
    backend = whole.chain.backend
    until(lambda: backend.remembers(set(PORTS)), told=backend.log)
    end(backend.process, signal.SIGKILL)
    until(lambda: "watch_interrupted" in log.read_text(), told=log)
    backend.start()
    until(lambda: "watch_goes_on" in log.read_text(), told=log)
    until(backend.is_known, 40, backend.log)
    assert len(documents(told)) == 1, "the same servers are in: nothing to act on"
    whole.leave(3)
    until(lambda: len(documents(told)) == 2, told=log)
    assert names(documents(told)[1]) == {"sip-1", "sip-2"}
    ended(watch)


def test_command_that_hangs_is_ended_and_so_is_one_at_sigterm(whole: Watched, tmp_path: Path) -> None:
    log, begun = tmp_path / "log", tmp_path / "begun"
    watch = whole.watch(log, f"echo $$ >> {begun}; sleep 1000", "--timeout", "1s")
    until(lambda: '"exit": "timeout"' in log.read_text(), told=log)
    until(lambda: len(begun.read_text().split()) == 2, told=log)
    ended(watch)
    assert not [pid for pid in begun.read_text().split() if Path(f"/proc/{pid}").exists()]


def test_bad_input_is_told_at_once(whole: Watched) -> None:
    command = whole.chain.backend.command
    unknown = command("watch", "no-such-pool", "--exec", "true")
    assert unknown.returncode == 1
    assert unknown.stderr == "error: no pool has SRV records or a handle of the name 'no-such-pool'\n"
    wrong = command("watch", HANDLE, "--exec", "true", "--at-most-every", "often")
    assert wrong.returncode == 2
    assert "'often' is no duration" in wrong.stderr


def test_haproxy_uses_the_members_alone(whole: Watched, tmp_path: Path) -> None:
    socket, log = tmp_path / "haproxy.sock", tmp_path / "haproxy.log"
    servers = "".join(f"    server sip-{number} {ADDRESS}:{port}\n" for number, port in PORTS.items())
    (tmp_path / "haproxy.cfg").write_text(
        f"global\n    stats socket {socket} level admin\n"
        "defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 50s\n    timeout server 50s\n"
        f"backend web\n{servers}"
    )
    whole.chain.namespace.start("haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg"), log=log)
    until(socket.exists, told=log)

    def used() -> set[str]:
        asked = ["socat", "STDIO", f"UNIX-CONNECT:{socket}"]
        question = "show servers state web\n"
        said = subprocess.run(asked, input=question, capture_output=True, text=True, check=True)
        rows = [line.split() for line in said.stdout.splitlines()[2:] if line]
        return {row[3] for row in rows if row[6] == "0"}

    whole.leave(1)
    watch_log = tmp_path / "log"
    watch = whole.watch(watch_log, script("sh", tmp_path, "haproxy"))
    until(lambda: used() == {"sip-2", "sip-3"}, told=watch_log)
    whole.leave(2)
    until(lambda: used() == {"sip-3"}, told=watch_log)
    whole.join(1)
    until(lambda: used() == {"sip-1", "sip-3"}, told=watch_log)
    ended(watch)
    assert "watch_failed" not in watch_log.read_text()


def test_kamailio_dispatches_to_the_members_alone(whole: Watched, tmp_path: Path) -> None:
    control, log = tmp_path / "kamailio_ctl", tmp_path / "kamailio.log"
    lines = "".join(f"1 sip:{ADDRESS}:{port}\n" for port in PORTS.values())
    (tmp_path / "dispatcher.list").write_text(lines)
    (tmp_path / "kamailio.cfg").write_text(f"""#!KAMAILIO
log_stderror=yes
children=1
disable_tcp=yes
auto_aliases=no
listen=udp:{ADDRESS}:5080
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "ctl.so"
loadmodule "dispatcher.so"
modparam("ctl", "binrpc", "unix:{control}")
modparam("dispatcher", "list_file", "{tmp_path}/dispatcher.list")
request_route {{ exit; }}
""")
    whole.chain.namespace.start(
        *("kamailio", "-f", str(tmp_path / "kamailio.cfg"), "-DD", "-E", "-Y", str(tmp_path)), log=log
    )

    def used() -> set[int]:
        said = subprocess.run(
            ["kamcmd", "-s", f"unix:{control}", "dispatcher.list"],
            capture_output=True,
            text=True,
            check=False,
        )
        found = re.findall(r"URI: sip:[\d.]+:(\d+).*?FLAGS: (\w)", said.stdout, re.DOTALL)
        return {int(port) for port, flag in found if flag == "A"}

    until(lambda: used() == set(PORTS.values()), told=log)
    whole.leave(1)
    watch_log = tmp_path / "log"
    watch = whole.watch(watch_log, script("bash", tmp_path, "kamcmd"))
    until(lambda: used() == {5002, 5003}, told=watch_log)
    whole.join(1)
    whole.leave(3)
    until(lambda: used() == {5001, 5002}, told=watch_log)
    ended(watch)


CHAT = """
import json
from http.server import BaseHTTPRequestHandler, HTTPServer

class Chat(BaseHTTPRequestHandler):
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_right = self.path == "/hooks/xxx" and message.keys() == {"text"}
        if is_right:
            print(message["text"], flush=True)
        self.send_response(200 if is_right else 404)
        self.end_headers()
        self.wfile.write(b"ok")

HTTPServer(("127.0.0.1", 8081), Chat).serve_forever()
"""


def hook(name: str, folder: Path, port: int) -> str:
    """A hook of the page, for a receiver at this port of loopback."""
    (text,) = (text for text in blocks(PAGE, "toml") if f'"{name}"' in text)
    text = re.sub(r"https://[a-z.]*", f"http://127.0.0.1:{port}", text)
    return text.replace("sip-as-udp", HANDLE).replace("/etc/rspdns", str(folder))


def test_hooks_of_the_page_are_told_also_of_the_time_they_and_the_backend_were_down(
    whole: Watched, tmp_path: Path
) -> None:
    chain, backend = whole.chain, whole.chain.backend
    (make_key,) = re.findall(r"^    (echo \"whsec.*noc.*)", PAGE, re.MULTILINE)
    subprocess.run(["/bin/sh", "-c", make_key.replace("/etc/rspdns", str(tmp_path))], check=True)
    (tmp_path / "noc.secret").chmod(0o640)
    receiver = blocks(PAGE, "python")[0].replace("/etc/rspdns", str(tmp_path))
    before = backend.config.read_text()
    chats, told = tmp_path / "chats", tmp_path / "told"

    started: list[subprocess.Popen[str]] = []

    def receive() -> None:
        started.append(chain.namespace.start(sys.executable, "-c", receiver, log=told))

    def hooks() -> dict[str, Any]:
        status = backend.status()
        assert status is not None
        return {each["name"]: each for each in status["hooks"]}

    def lines() -> list[str]:
        return [line for line in told.read_text().splitlines() if line.split()[0] in ("joined", "left")]

    started.append(chain.namespace.start(sys.executable, "-c", CHAT, log=chats))
    receive()
    try:
        backend.config.write_text(before + hook("noc", tmp_path, 8080) + hook("chat", tmp_path, 8081))
        checked = backend.command("check", "--offline")
        assert checked.returncode == 0, checked.stderr
        reloaded = backend.command("reload")
        assert reloaded.returncode == 0, reloaded.stderr
        assert "restart" not in reloaded.stdout
        until(lambda: hooks().keys() == {"noc", "chat"})
        whole.leave(1)
        until(lambda: len(lines()) == 1, told=backend.log)
        assert lines()[0].startswith("left sip-1 ")
        until(lambda: "sip-1 left sip-udp: " in chats.read_text(), told=backend.log)
        until(lambda: [each["delivered"] for each in hooks().values()] == [1, 1])

        end(started.pop(), signal.SIGKILL)
        whole.join(1)
        until(lambda: hooks()["noc"]["problem"], told=backend.log)
        assert "hook noc: " in backend.command("status").stdout
        until(lambda: chain.targets() == set(PORTS), told=backend.log)
        until(lambda: backend.remembers(set(PORTS)), told=backend.log)
        time.sleep(1)
        end(backend.process, signal.SIGKILL)
        backend.start()
        whole.leave(2)
        receive()
        until(lambda: len(lines()) == 3, told=backend.log)
        assert [line.split()[:2] for line in lines()[1:]] == [["joined", "sip-1"], ["left", "sip-2"]]
        until(lambda: hooks()["noc"]["problem"] is None, told=backend.log)
        assert hooks()["noc"]["lost"] == 0
    finally:
        backend.config.write_text(before)
        assert backend.command("reload").returncode == 0
        for program in started:
            end(program, signal.SIGKILL)
    until(lambda: hooks() == {})


def open_ports(watched: Watched) -> set[int]:
    listening = watched.chain.namespace.run("ss", "-Htln", "src", ADDRESS).stdout
    return {int(line.split()[3].rpartition(":")[2]) for line in listening.splitlines()}


def test_news_reach_a_client_that_holds_no_connection_also_after_a_restart(
    whole: Watched, tmp_path: Path
) -> None:
    """The port that a client polls is closed, opens with the change, and closes again."""
    told, log = tmp_path / "told", tmp_path / "log"
    key = whole.chain.folder / "news.key"
    with whole.news(tmp_path / "news-1") as service:
        before = open_ports(whole)
        command = f"echo {{name}} >> {told}.names; cat >> {told}"
        watch = whole.watch(log, command, "--from", NEWS, "--key", str(key))
        until(lambda: len(documents(told)) == 1, told=log)
        assert names(documents(told)[0]) == {"sip-1", "sip-2", "sip-3"}
        assert open_ports(whole) == before
        whole.leave(2)
        until(lambda: len(documents(told)) == 2, told=log)
        assert len(open_ports(whole) - before) == 1
        second = documents(told)[1]
        assert (second["missed"], names(second)) == (False, {"sip-1", "sip-3"})
        assert [(change["kind"], change["name"]) for change in second["changes"]] == [("left", "sip-2")]
        end(service, signal.SIGKILL)  # and a change while it is away
    whole.leave(3)
    until(lambda: whole.chain.targets() == {1}, told=whole.chain.backend.log)
    with whole.news(tmp_path / "news-2"):
        until(lambda: len(documents(told)) == 3, told=log)
        third = documents(told)[2]
        assert (third["missed"], names(third)) == (False, {"sip-1"})
        assert [(change["kind"], change["name"]) for change in third["changes"]] == [("left", "sip-3")]
        assert (tmp_path / "told.names").read_text().split() == [OWNER] * 3
        until(lambda: open_ports(whole) == before, told=tmp_path / "news-2")
        ended(watch)


def test_dns_push_tells_a_client_the_records_that_dns_answers_and_each_change(
    whole: Watched, tmp_path: Path
) -> None:
    told, host = tmp_path / "push", f"as.{ZONE}"
    with whole.news(tmp_path / "news"):
        until(lambda: '"push_ready"' in (tmp_path / "news").read_text(), told=tmp_path / "news")
        until(lambda: whole.chain.pdns.short(f"_dns-push-tls._tcp.{ZONE}", "SRV"))
        (port,) = [line.split()[2] for line in whole.chain.pdns.short(f"_dns-push-tls._tcp.{ZONE}", "SRV")]
        client = whole.chain.namespace.start(
            *(
                sys.executable,
                "-m",
                "tests.backend.push_client",
                ADDRESS,
                port,
                str(whole.chain.folder / "ca.pem"),
            ),
            *(f"{OWNER}:SRV", f"{host}:A", f"{host}:NAPTR"),
            log=told,
        )

        def pushed() -> dict[str, set[str]]:
            """The records that the client has, by type."""
            known: dict[tuple[str, str], set[str]] = {}
            for name, kind, ttl, text in (change for each in documents(told) for change in each["changes"]):
                of_kind = known.setdefault((name, kind), set())
                if ttl == 0xFFFFFFFE:
                    of_kind.clear()
                else:
                    (of_kind.discard if ttl == 0xFFFFFFFF else of_kind.add)(text.rstrip("."))
            return {kind: texts for (_, kind), texts in known.items()}

        def answered() -> dict[str, set[str]]:
            asked = ((OWNER, "SRV"), (host, "A"), (host, "NAPTR"))
            said = {
                kind: {line.rstrip(".") for line in whole.chain.pdns.short(name, kind)}
                for name, kind in asked
            }
            return {kind: lines for kind, lines in said.items() if lines}

        def ports() -> set[int]:
            return {int(text.split()[2]) for text in pushed().get("SRV", ())}

        for left in ((), (2,)):
            for number in left:
                whole.leave(number)
            until(lambda: ports() == {PORTS[number] for number in whole.inside}, told=told)
            until(lambda: pushed() == answered(), told=told)
        whole.join(2)
        until(lambda: ports() == set(PORTS.values()), told=told)
    assert client.wait(20) == 0
    assert documents(told)[-1]["tlvs"] == [2], "Retry Delay"
    assert "Traceback" not in (tmp_path / "news").read_text()


def test_wrong_key_and_unknown_pool_are_told_to_the_one_who_watches(whole: Watched, tmp_path: Path) -> None:
    key, other = whole.chain.folder / "news.key", tmp_path / "other.key"
    other.write_text(f"whsec_{base64.b64encode(os.urandom(32)).decode()}\n")
    other.chmod(0o600)
    near = Path(os.path.relpath(other))
    with whole.news(tmp_path / "news"):
        for file, pool, words in (
            (near, OWNER, "the signature is wrong: another key, another sender, or an older reply"),
            (key, "no-such-pool", "'no-such-pool' is no pool that news are told of"),
        ):
            log = tmp_path / f"log-{pool}"
            watch = whole.watch(log, "true", "--from", NEWS, "--key", str(file), pool=pool)
            assert watch.wait(60) == 1
            assert words in log.read_text()
