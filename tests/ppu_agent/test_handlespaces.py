"""A pool in two handlespaces, for the client's sidecar: servers of each stand in for those of the other."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from daemon_kit.finding import Finding
from pool_user import Member, PoolView, ProbePlan
from ppu_agent import questions

from tests.ppu_agent.making import (
    ANSWERED,
    REFUSED,
    SILENT,
    ask,
    destination,
    let_all_be_heard,
    make_agent,
    member,
    show,
)

CONFIG = """
[[handlespace]]
name = "eu"
registrars = ["10.1.0.1"]
[[handlespace]]
name = "us"
registrars = ["10.2.0.1"]
[[pool]]
handle = "sip"
handlespaces = ["eu", "us"]
accept = ["10.0.0.0/8"]
steer = "10.0.9.9:5060"
"""


async def test_servers_of_one_handlespace_stand_in_for_the_last_of_another(tmp_path: Path) -> None:
    """The servers have the same identifier, each in its own handlespace."""
    path = tmp_path / "ppu-agent.toml"
    path.write_text(CONFIG)
    agent = make_agent(path)
    let_all_be_heard(agent)
    here, there = member(1), replace(member(2), identifier=1)
    us = PoolView("us/sip", (there,), known=True)
    show(agent, {"eu/sip": PoolView("eu/sip", (here,), known=True), "us/sip": us})
    (front,) = agent.plan.fronts
    assert [target.destination for target in front.targets] == [destination(1), destination(2)]
    assert len({target.weight for target in front.targets}) == 1

    show(agent, {"eu/sip": PoolView("eu/sip", known=True), "us/sip": us})
    ask(agent.deaths, REFUSED, time.monotonic())
    agent.conclude(time.monotonic())
    (treatment,) = agent.plan.treatments
    assert (treatment.action, treatment.destination) == ("redirect", destination(1))
    assert [target.destination for target in treatment.targets] == [destination(2)]
    (front,) = agent.plan.fronts
    assert [target.destination for target in front.targets] == [destination(2)]


async def test_nothing_is_done_about_servers_of_a_handlespace_that_nobody_vouches_for(tmp_path: Path) -> None:
    path = tmp_path / "ppu-agent.toml"
    path.write_text(CONFIG)
    agent = make_agent(path)
    let_all_be_heard(agent)
    us = PoolView("us/sip", (member(2),), known=True)
    show(agent, {"eu/sip": PoolView("eu/sip", (member(1), member(3)), known=True), "us/sip": us})
    show(agent, {"eu/sip": PoolView("eu/sip", (member(3),), known=True, stale_since_s=1.0), "us/sip": us})
    ask(agent.deaths, REFUSED, time.monotonic())
    agent.conclude(time.monotonic())
    assert agent.plan.treatments == ()


async def test_silence_counts_when_a_server_of_another_handlespace_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listened(probed: Member, _plan: ProbePlan) -> Finding:
        return SILENT if probed.addresses == member(1).addresses else ANSWERED

    monkeypatch.setattr(questions, "listen_for_life", listened)
    path = tmp_path / "ppu-agent.toml"
    path.write_text(CONFIG)
    agent = make_agent(path)
    let_all_be_heard(agent)
    us = PoolView("us/sip", (member(2),), known=True)
    show(agent, {"eu/sip": PoolView("eu/sip", (member(1),), known=True), "us/sip": us})
    show(agent, {"eu/sip": PoolView("eu/sip", known=True), "us/sip": us})
    for probe in agent.questions.due(time.monotonic()):
        await probe
    assert [str(server) for server in agent.deaths.dead()] == [str(destination(1))]
    await agent.questions.close()
