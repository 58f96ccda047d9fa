"""The client's sidecar with real registrars, sidecars and SIP servers: what a program on its host gets."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ppu_agent.client_host import FRONT, Client
from tests.ppu_agent.sip_messages import request
from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import SIP_PORTS, Chain
from tests.support.members import Members
from tests.support.namespaces import end, kill, own_namespace, program_of
from tests.support.waiting import until

pytestmark = pytest.mark.integration
FIRST, SECOND, THIRD = SIP_PORTS


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with own_namespace() as there, own_namespace() as host:
        yield Client(Chain(there, tmp_path_factory.mktemp("ppu")), host)


@pytest.fixture
def whole(client: Client) -> Client:
    """All three members live, and nothing is done."""
    until(client.is_whole, told=client.log)
    return client


def test_requests_to_a_killed_server_reach_a_living_one_until_it_is_back(whole: Client) -> None:
    assert not whole.ask("explain", endpoint=f"{ADDRESS}:{FIRST}")["treated"]
    kill(whole.servers[FIRST])
    until(lambda: whole.options(FIRST), told=whole.log)
    assert whole.treated() == {FIRST: "redirect"}
    (words,) = whole.ask("explain", endpoint=f"{ADDRESS}:{FIRST}")["words"]
    assert words.startswith(f"udp: redirected to {ADDRESS}:{SECOND} (weight")
    whole.revive(FIRST)
    assert whole.options(FIRST, 5.0)


def test_hung_server_is_dead_and_left_alone_when_it_goes_on(whole: Client) -> None:
    os.killpg(whole.servers[SECOND].pid, signal.SIGSTOP)
    until(lambda: whole.options(SECOND), told=whole.log)
    os.killpg(whole.servers[SECOND].pid, signal.SIGCONT)
    until(whole.is_whole, told=whole.log)
    assert whole.options(SECOND, 5.0)


def test_drained_server_is_left_alone_and_redirected_when_it_is_stopped(whole: Client) -> None:
    whole.chain.sidecar.command("drain", f"udp-{THIRD}")
    try:
        until(lambda: THIRD not in whole.alive(), told=whole.log)
        until(lambda: whole.departed() == {"spared"}, told=whole.log)
        assert whole.treated() == {}
        assert (
            "answers the agent's own probe" in whole.ask("explain", endpoint=f"{ADDRESS}:{THIRD}")["words"][0]
        )
        kill(whole.servers[THIRD])
        until(lambda: whole.options(THIRD), told=whole.log)
    finally:
        whole.chain.sidecar.command("undrain", f"udp-{THIRD}")
        if whole.servers[THIRD].poll() is not None:
            whole.revive(THIRD)


def test_sidecar_that_ends_cuts_nobody(whole: Client) -> None:
    kill(whole.sidecar)
    until(lambda: not whole.alive(), told=whole.log)
    for _ in range(5):
        assert whole.treated() == {}
        time.sleep(0.1)
    whole.sidecar = whole.chain.start_sidecar()
    until(whole.is_whole, told=whole.log)


def test_killed_or_frozen_agent_leaves_nothing_behind_and_a_new_one_goes_on(whole: Client) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        kill(whole.servers[FIRST])
        until(lambda: whole.options(FIRST), told=whole.log)
        os.killpg(whole.agent.pid, number)
        until(lambda: f"udp . {FIRST} timeout" not in whole.rules(), told=whole.rules)
        whole.servers[FIRST] = whole.chain.start_sip(FIRST)
        until(lambda: whole.options(FIRST), told=whole.rules)
        if number == signal.SIGSTOP:
            os.killpg(whole.agent.pid, signal.SIGCONT)
        else:
            whole.agent.wait()
            whole.agent = whole.start_agent()
        until(whole.is_whole, told=whole.log)


def test_agent_that_is_started_again_knows_who_was_dead(whole: Client) -> None:
    kill(whole.servers[FIRST])
    until(lambda: whole.options(FIRST), told=whole.log)
    end(whole.agent)
    assert not whole.options(FIRST)
    whole.agent = whole.start_agent()
    until(lambda: whole.options(FIRST), told=whole.log)
    whole.revive(FIRST)


def test_live_service_that_never_was_a_server_of_the_pool_is_left_alone(whole: Client) -> None:
    """A host that may register names it, and leaves. The service answers, but no question of the agent.

    It lives until the module's end: an agent that hears a refusal there would treat it as dead.
    """
    echo = 5099
    chain = whole.chain
    stranger = Members(chain.namespace, chain.folder, ADDRESS, chain.registrars.addresses, "stranger")
    stranger.add(99, HANDLE, echo, is_echo=True)
    until(lambda: echo in whole.alive(), told=whole.log)
    assert whole.echoes(echo)
    stranger.remove(99)
    until(lambda: "did not hear it answer" in str(whole.ask("status")["departed"]), told=whole.log)
    assert [whole.echoes(echo, 5.0) for _ in range(20)] == [True] * 20
    assert whole.treated() == {}


def test_rules_that_somebody_removed_are_put_again(whole: Client) -> None:
    kill(whole.servers[FIRST])
    until(lambda: whole.options(FIRST), told=whole.log)
    subprocess.run(whole.host.command("nft", "flush", "ruleset"), check=True)
    until(lambda: whole.options(FIRST), told=whole.log)
    whole.revive(FIRST)


def test_front_of_the_pool_is_answered_as_long_as_one_server_lives(whole: Client) -> None:
    (front,) = whole.ask("status")["steer"]
    assert {int(server["endpoint"].rpartition(":")[2]) for server in front["to"]} == set(SIP_PORTS)
    assert whole.options(5060, 5.0, FRONT)
    (words,) = whole.ask("explain", endpoint=f"{FRONT}:5060")["words"]
    assert words.startswith("udp: stands for sip-udp: new flows go by the client's address to ")
    for port in (FIRST, SECOND):  # the client's own server is one of these, or the third
        kill(whole.servers[port])
        until(lambda: whole.options(5060, address=FRONT), told=whole.log)
    until(lambda: len(whole.ask("status")["steer"][0]["to"]) == 1, told=whole.log)
    whole.servers[FIRST] = whole.chain.start_sip(FIRST)
    whole.revive(SECOND)
    kill(whole.servers[THIRD])
    until(lambda: whole.options(5060, address=FRONT), told=whole.log)
    whole.revive(THIRD)


def test_reload_takes_the_file_over_whole_or_not_at_all(whole: Client) -> None:
    before = whole.config.read_text()
    program = program_of(whole.agent, "ppu_agent.cli run")

    def reload(text: str) -> None:
        whole.config.write_text(text)
        os.kill(program, signal.SIGHUP)

    try:
        reload(before.replace(f'steer = "{FRONT}:5060"', 'steer = "nowhere"'))
        until(lambda: whole.ask("status").get("reload_problem"), told=whole.log)
        problem = whole.ask("status")["reload_problem"]
        assert str(whole.config) in problem
        assert "steer" in problem
        assert whole.options(5060, 5.0, FRONT)
        more = '[[pool]]\nhandle = "other"\naccept = ["10.0.0.0/8"]\n'
        reload(
            before.replace(f'steer = "{FRONT}:5060"\naffinity = "source"\n', 'on_dead = "refuse"\n') + more
        )
        until(lambda: not whole.ask("status").get("steer", ["?"]), told=whole.log)
        status = whole.ask("status")
        assert status["reload_problem"] is None
        assert [pool["handle"] for pool in status["pool"]] == [HANDLE, "other"]
        kill(whole.servers[FIRST])
        until(lambda: whole.treated() == {FIRST: "refuse"}, told=whole.log)
    finally:
        reload(before)
    until(lambda: whole.treated() == {FIRST: "redirect"}, told=whole.log)
    assert whole.ask("status")["steer"]
    whole.revive(FIRST)


def test_request_over_tcp_that_a_hung_server_left_gets_503_before_its_connection_ends(whole: Client) -> None:
    before = whole.config.read_text()
    program = program_of(whole.agent, "ppu_agent.cli run")
    holder = whole.chain.start_tcp(SECOND)
    try:
        whole.config.write_text(before.replace('affinity = "source"', 'also = ["tcp"]\nsip = true'))
        os.kill(program, signal.SIGHUP)
        until(lambda: whole.ask("status").get("steer", [{}])[0].get("affinity", "?") is None, told=whole.log)
        assert whole.ask("status")["kernel"]["copies_problem"] is None
        connections: list[socket.socket] = []

        def is_connected() -> bool:
            connections.extend(whole.connections(SECOND))
            return bool(connections)

        until(is_connected, told=whole.log)
        with connections[0] as connection:
            connection.sendall(request("left"))
            until(lambda: whole.ask("status")["kernel"]["copied_bytes"] > 0, told=whole.log)
            os.killpg(whole.servers[SECOND].pid, signal.SIGSTOP)
            heard = connection.recv(4096)
            assert heard.startswith(b"SIP/2.0 503 Service Unavailable\r\n")
            assert b"branch=z9hG4bKleft" in heard
            with pytest.raises(ConnectionError):
                connection.recv(4096)
        until(lambda: whole.ask("status")["answered_503_count"] == 1, told=whole.log)
    finally:
        os.killpg(whole.servers[SECOND].pid, signal.SIGCONT)
        end(holder)
        whole.config.write_text(before)
        os.kill(program, signal.SIGHUP)
    until(whole.is_whole, told=whole.log)


def test_gateway_runs_beside_it_and_ends_with_it(whole: Client) -> None:
    def gateway() -> Any:
        return whole.ask("status").get("gateway")

    attached = [{"name": "eth0", "problem": None}]
    until(lambda: (gateway() or {}).get("interfaces") == attached, told=whole.log)
    assert gateway()["guarded"] == [], "its members take UDP"
    filters = ("tc", "filter", "show", "dev", "eth0", "ingress")
    assert "guard_in" in whole.host.run(*filters).stdout
    end(whole.agent)
    assert "guard_in" not in whole.host.run(*filters).stdout
    whole.agent = whole.start_agent()
    until(whole.is_whole, told=whole.log)


def test_suspended_agent_does_nothing_until_it_is_resumed(whole: Client) -> None:
    kill(whole.servers[FIRST])
    until(lambda: whole.options(FIRST), told=whole.log)
    command = [sys.executable, "-m", "ppu_agent.cli"]
    subprocess.run([*command, "suspend", "-c", str(whole.config)], check=True, capture_output=True)
    assert whole.treated() == {}
    assert not whole.options(FIRST)
    subprocess.run([*command, "resume", "-c", str(whole.config)], check=True, capture_output=True)
    until(lambda: whole.options(FIRST), told=whole.log)
    said = subprocess.run(
        [*command, "explain", f"{ADDRESS}:{FIRST}", "-c", str(whole.config)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert said.startswith("udp: redirected to")
    whole.revive(FIRST)


def test_check_shows_what_would_be_done_for_each_member(whole: Client) -> None:
    command = (sys.executable, "-m", "ppu_agent.cli", "check", "-c", str(whole.config))
    said = whole.host.run(*command, sctp=True)
    assert said.returncode == 0, said.stderr
    for port in SIP_PORTS:
        assert f"should udp {ADDRESS}:{port} die: redirect udp {ADDRESS}:{port} to " in said.stdout
    assert "gateway: set-up through eth0 to 0 destinations would be guarded now" in said.stdout
    as_json = json.loads(whole.host.run(*command, "--json", sctp=True).stdout)
    assert len(as_json["rehearsals"]) == len(SIP_PORTS)
    assert all(
        {"add": {"table": {"family": "inet", "name": "ppu_agent"}}} in rehearsed["nftables"]
        for rehearsed in as_json["rehearsals"]
    )


def test_without_registrars_nothing_is_done_until_they_are_back(whole: Client) -> None:
    """The last test: it takes the registrars away."""
    kill(whole.servers[FIRST])
    until(lambda: whole.options(FIRST), told=whole.log)
    whole.chain.registrars.kill()
    until(lambda: not whole.treated(), told=whole.log)
    assert not whole.options(FIRST)
    whole.chain.registrars.start()
    whole.revive(FIRST)
