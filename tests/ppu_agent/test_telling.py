"""The answers of explain, status and metrics."""

import asyncio
import time
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.metrics import exposition, registry
from pool_user import PoolView
from ppu_agent import rehearsal
from ppu_agent.configuration import load_configuration
from ppu_agent.deaths import Departed, DepartedServers
from ppu_agent.explanation import explain
from ppu_agent.metrics import PpuCollector
from ppu_agent.plan import Plan, PoolPolicy, plan
from ppu_agent.status import describe, problems, render
from ppu_agent.status_model import BelievedStatus, PpuStatus

from rserpool import Protocol
from tests.ppu_agent.making import (
    ANSWERED,
    POOL,
    REFUSED,
    all_heard,
    ask,
    destination,
    ending_of,
    let_all_be_heard,
    make_agent,
    member,
    policy,
    show,
    view,
)


def explanation_of(
    deaths: DepartedServers, last: PoolView, *, suspended: bool = False
) -> tuple[dict[str, Any], Plan]:
    """The explanation of member 3, and the plan."""
    now = plan([policy()], {POOL: last}, {}, deaths.dead(), is_suspended=suspended)
    return explain(ip_address("10.0.0.3"), 5060, {POOL: last}, deaths, now), now


def test_explain_tells_why_a_packet_passes_or_does_not() -> None:
    deaths = DepartedServers(all_heard)
    for last, heard, words in (
        (view(1, 2), None, "passes: no pool of this configuration has or had a member there"),
        (view(1, 2, 3), None, "udp: passes: a member of sip-udp, alive"),
        (view(1, 2), None, "udp: passes: left its pool; the agent's own probe is asking whether it is dead"),
        (view(1, 2), ANSWERED, "udp: passes: left its pool and answers the agent's own probe: drained, or"),
        (
            view(1, 2),
            REFUSED,
            "udp: redirected to 10.0.0.1:5060 (weight 1), 10.0.0.2:5060 (weight 1): out",
        ),
        (
            view(),
            REFUSED,
            "udp: passes: left its pool, and does not answer the agent's own probe; but sip-udp has",
        ),
    ):
        show(deaths, {POOL: last}, 1.0)
        if heard is not None:
            for server in deaths.due(1e9):
                deaths.take_finding(server.destination, heard, 2.0)
        (said,) = explanation_of(deaths, last)[0]["words"]
        assert said.startswith(words), said
    show(deaths, {POOL: view(1, 2)}, 3.0)
    assert "the agent is suspended" in explanation_of(deaths, view(1, 2), suspended=True)[0]["words"][0]


def test_explain_tells_of_every_transport_of_an_address() -> None:
    """A server whose UDP died and whose TCP is drained: both are told, and what `also` says as well."""
    over_tcp = [replace(member(number), protocol=Protocol.TCP) for number in (1, 2, 3)]
    all_of_them = {POOL: view(1, 2, 3), "sip-tcp": PoolView("sip-tcp", tuple(over_tcp), known=True)}
    left = {POOL: view(1, 2), "sip-tcp": PoolView("sip-tcp", tuple(over_tcp[:2]), known=True)}
    policies = [policy(), replace(policy(), handle="sip-tcp")]
    deaths = DepartedServers(all_heard)
    show(deaths, all_of_them, 0.0)
    show(deaths, left, 1.0)
    for server in deaths.due(1.0):
        heard = REFUSED if server.destination.protocol is Protocol.UDP else ANSWERED
        deaths.take_finding(server.destination, heard, 1.0)
    steering = plan(policies, left, {}, deaths.dead())
    address = ip_address("10.0.0.3")

    def said(policies: list[PoolPolicy]) -> list[str]:
        told = explain(address, 5060, left, deaths, steering, policies)
        return list(told["words"])

    of_tcp, of_udp = said(policies)
    assert of_tcp.startswith("tcp: passes: left its pool and answers")
    assert of_udp.startswith("udp: redirected to 10.0.0.1:5060")
    of_sctp, *_ = said([replace(pool, also=(Protocol.SCTP,)) for pool in policies])
    assert of_sctp.startswith("sctp: passes: left its pool")
    alive = explain(address, 5060, all_of_them, DepartedServers(all_heard), Plan())
    assert alive["words"] == [
        "tcp: passes: a member of sip-tcp, alive",
        "udp: passes: a member of sip-udp, alive",
    ]
    assert alive["listed_by"] == [POOL, "sip-tcp"] or alive["listed_by"] == ["sip-tcp", POOL]


def test_explain_tells_that_this_host_itself_is_not_touched() -> None:
    deaths = DepartedServers(all_heard)
    show(deaths, {POOL: view(1, 2, 3)}, 0.0)
    show(deaths, {POOL: view(1, 2)}, 1.0)
    ask(deaths, REFUSED, 1.0)
    said, steering = explanation_of(deaths, view(1, 2))
    assert said["treated"]
    address = ip_address("10.0.0.3")
    own = explain(address, 5060, {POOL: view(1, 2)}, deaths, steering, is_own=True)
    assert own["treated"] == []
    assert own["words"][0].startswith("passes: an address of this host")


def whole(believed: BelievedStatus, problem: str | None) -> PpuStatus:
    return {
        **believed,
        "uptime_s": 2.0,
        "suspended": False,
        "reload_problem": None,
        "metrics_problem": "can't listen at 127.0.0.1:9122",
        "state_problem": None,
        "via": [{"address": "10.0.0.1", "port": 4630, "up": True}],
        "pace": [],
        "kernel": {"problem": problem, "write_count": 1, "copies_problem": None, "copied_bytes": 0},
        "gateway": None,
        "answered_503_count": 0,
        "relayed_count": 4,
        "repeated_count": 2,
        "died_count": 1,
        "returned_count": 0,
        "connections_ended_count": 0,
        "flows_moved_count": 0,
    }


def test_status_and_metrics_tell_what_is_done() -> None:
    deaths = DepartedServers(all_heard)
    show(deaths, {POOL: view(1, 2, 3)}, 0.0)
    show(deaths, {POOL: view(1, 2)}, 1.0)
    ask(deaths, REFUSED, 1.0)
    _, steering = explanation_of(deaths, view(1, 2))
    status = whole(describe(2.0, (), {POOL: view(1, 2)}, deaths.departed, steering), "it would not")
    text = "\n".join(render(status))
    assert f"redirect udp {destination(3).address}:5060 to 10.0.0.1:5060, 10.0.0.2:5060" in text
    assert "dead udp 10.0.0.3:5060 for 1 s: connection refused" in text
    assert "the kernel refused: it would not" in text
    assert "no metrics: can't listen at 127.0.0.1:9122; see metrics.listen" in text
    assert "association with the ppe-agent at 10.0.0.1 SCTP port 4630: up" in text
    metrics = exposition(registry(PpuCollector(lambda: status))).decode()
    assert 'ppu_agent_treated{handle="sip-udp",on_dead="redirect"} 1.0' in metrics
    assert 'ppu_agent_departed{state="dead"} 1.0' in metrics
    assert "ppu_agent_deaths_total 1.0" in metrics
    assert "ppu_agent_repeated_total 2.0" in metrics


def test_status_tells_nothing_of_packets_to_this_host_and_nothing_of_its_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "ppu-agent.toml"
    path.write_text(
        f'registrars = ["127.0.0.1"]\n[[pool]]\nhandle = "{POOL}"\naccept = ["10.0.0.0/8", "127.0.0.0/8"]\n'
        'also = ["tcp"]\n'
    )

    async def scenario() -> list[str]:
        agent = make_agent(path)
        let_all_be_heard(agent)
        here = replace(member(9), addresses=(ip_address("127.0.0.1"),))
        all_of_them = view(1, 2)
        show(agent, {POOL: replace(all_of_them, members=(*all_of_them.members, here))})
        show(agent, {POOL: view(1)})
        for server in agent.deaths.due(time.monotonic()):
            agent.deaths.take_finding(server.destination, REFUSED, time.monotonic())
        agent.conclude(time.monotonic())
        assert {server.destination.where for server in agent.deaths.dead().values()} == {
            "10.0.0.2:5060",
            "127.0.0.1:5060",
        }
        return [treated["endpoint"] for treated in agent.status()["treated"]]

    assert asyncio.run(scenario()) == ["10.0.0.2:5060"] * 2


def test_what_died_while_the_agent_was_suspended_is_ended_when_it_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "ppu-agent.toml"
    path.write_text(f'registrars = ["127.0.0.1"]\n[[pool]]\nhandle = "{POOL}"\naccept = ["10.0.0.0/8"]\n')

    async def scenario() -> list[str]:
        agent = make_agent(path)
        show(agent, {POOL: view(1, 2)})
        agent.set_suspended(True)
        show(agent, {POOL: view(1)})
        for server in agent.deaths.due(time.monotonic()):
            agent.deaths.take_finding(server.destination, REFUSED, time.monotonic())
        agent.conclude(time.monotonic())
        ended: list[Departed] = []
        ending_of(agent).died = ended.append  # type: ignore[assignment, method-assign]
        agent.set_suspended(False)
        return [server.destination.where for server in ended]

    assert asyncio.run(scenario()) == ["10.0.0.2:5060"]


def test_check_tells_that_an_address_of_this_host_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "ppu-agent.toml"
    path.write_text(
        f'registrars = ["127.0.0.1"]\n[[pool]]\nhandle = "{POOL}"\naccept = ["10.0.0.0/8", "127.0.0.0/8"]\n'
    )
    here = replace(member(9), addresses=(ip_address("127.0.0.1"),))
    views = {POOL: replace(view(1), members=(*view(1).members, here))}
    assert list(rehearsal.lines(load_configuration(path), views)) == [
        "should udp 10.0.0.1:5060 die: redirect udp 10.0.0.1:5060 to 127.0.0.1:5060 (weight 1000)",
        "should udp 127.0.0.1:5060 die: nothing is done: an address of this host is never touched",
    ]


def test_check_tells_that_repeat_is_for_sip_where_servers_may_not_speak_it(tmp_path: Path) -> None:
    path = tmp_path / "ppu-agent.toml"

    def said(more: str, port: int) -> list[str]:
        path.write_text(
            f'registrars = ["127.0.0.1"]\n[[pool]]\nhandle = "{POOL}"\naccept = ["10.0.0.0/8"]\n'
            f'on_dead = "repeat"\n{more}'
        )
        servers = [replace(server, protocol=Protocol.TCP, port=port) for server in view(1, 2).members]
        views = {POOL: replace(view(1, 2), members=tuple(servers))}
        return [line for line in rehearsal.lines(load_configuration(path), views) if "should" not in line]

    (words,) = said("", 6379)
    assert words.startswith(
        f'{POOL}: on_dead tcp = "repeat" is for SIP, and 10.0.0.1:6379 is not at port 5060'
    )
    assert said("", 5060) == said("sip = true\n", 6379) == []
    with pytest.raises(ConfigurationErrors, match="repeat is for SIP"):
        said("sip = false\n", 6379)


def test_check_names_a_few_of_many_servers_that_would_take_over(tmp_path: Path) -> None:
    """All of them, for each of 1,000 servers, would be 30 MB of text."""
    path = tmp_path / "ppu-agent.toml"
    path.write_text(f'registrars = ["127.0.0.1"]\n[[pool]]\nhandle = "{POOL}"\naccept = ["10.0.0.0/8"]\n')
    config = load_configuration(path)
    of_nine, *_ = rehearsal.lines(config, {POOL: view(*range(1, 10))})
    assert of_nine.endswith("10.0.0.9:5060 (weight 1000)")
    of_fifty, *_ = rehearsal.lines(config, {POOL: view(*range(1, 51))})
    assert of_fifty.count("weight") == rehearsal.NAMED
    assert of_fifty.endswith(" and 41 more")


def test_check_of_status_tells_what_keeps_the_agent_from_its_work() -> None:
    def problems_of(view_of_pool: PoolView, problem: str | None) -> list[str]:
        believed = describe(9.0, [], {POOL: view_of_pool}, [], Plan())
        return list(problems(whole(believed, problem)))

    assert problems_of(view(1), None) == []
    assert problems_of(view(1), "nftables refused the rules: no") == [
        "the kernel refused: nftables refused the rules: no"
    ]
    told_so = "pool sip-udp: no registrar vouches for it: nothing is done"
    assert problems_of(view(known=False), None) == problems_of(view(1, stale_since_s=1.0), None) == [told_so]
