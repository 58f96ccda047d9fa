"""The output of `ppu-agent status`: as JSON, and as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from daemon_kit.addresses import ListenAddress
from daemon_kit.durations import duration
from pool_user import PoolView, RegistrarView, Standing

from ppu_agent.deaths import Departed
from ppu_agent.explanation import described
from ppu_agent.gateway import rendered
from ppu_agent.plan import Front, Plan
from ppu_agent.status_model import (
    BelievedStatus,
    DepartedStatus,
    FrontStatus,
    PpuPoolStatus,
    PpuRegistrarStatus,
    PpuStatus,
)


def describe(
    now: float,
    registrars: Iterable[RegistrarView],
    views: Mapping[str, PoolView],
    departed: Iterable[Departed],
    plan: Plan,
) -> BelievedStatus:
    """The belief and the treatments of the agent, with the names of the configuration; `now` is monotonic
    seconds."""
    return {
        "registrars": [
            {
                "address": state.address,
                "handlespace": state.handlespace,
                "standing": state.standing.value,
                "follow": state.follow,
            }
            for state in registrars
        ],
        "pool": [_pool(handle, view, now) for handle, view in views.items()],
        "departed": [_departed(server, now) for server in departed],
        "treated": [described(treatment) for treatment in plan.treatments],
        "steer": [_front(front) for front in plan.fronts],
    }


def _pool(handle: str, view: PoolView, now: float) -> PpuPoolStatus:
    return {
        "handle": handle,
        "known": view.known,
        "stale_s": None if view.stale_since_s is None else round(now - view.stale_since_s, 3),
        "members": [
            {
                "identifier": f"{member.identifier:08x}",
                "transport": member.protocol.name.lower(),
                "endpoints": [str(ListenAddress(address, member.port)) for address in member.addresses],
            }
            for member in view.members
        ],
    }


def _front(front: Front) -> FrontStatus:
    policy = front.policy
    return {
        "transport": front.destination.protocol.name.lower(),
        "endpoint": front.destination.where,
        "handle": policy.handle,
        "affinity": "source" if policy.by_source else None,
        "clients": None if policy.clients is None else [str(network) for network in policy.clients],
        "to": [{"endpoint": target.destination.where, "weight": target.weight} for target in front.targets],
    }


def _departed(departed: Departed, now: float) -> DepartedStatus:
    return {
        "transport": departed.destination.protocol.name.lower(),
        "endpoint": departed.destination.where,
        "pools": list(departed.pools),
        "state": departed.state.value,
        "for_s": round(now - departed.state_since_s, 3),
        "said": departed.words,
        "found": departed.finding.life,
    }


def problems(status: PpuStatus) -> Iterator[str]:
    """The problems that keep the agent from its work."""
    if status["kernel"]["problem"] is not None:
        yield f"the kernel refused: {status['kernel']['problem']}"
    for pool in status["pool"]:
        if not pool["known"] or pool["stale_s"] is not None:
            yield f"pool {pool['handle']}: no registrar vouches for it: nothing is done"


def _registrars(registrars: Sequence[PpuRegistrarStatus]) -> Iterator[str]:
    """A line when all are settled and followed alike, else a line for each."""
    called = [" ".join(filter(None, (each["handlespace"], each["address"]))) for each in registrars]
    lines = [f"{each['standing']}, followed by {each['follow']}" for each in registrars]
    if len(set(lines)) == 1 and registrars[0]["standing"] == Standing.SETTLED.value:
        yield f"registrars {', '.join(called)}: {lines[0]}"
    else:
        yield from (f"registrar {name}: {line}" for name, line in zip(called, lines, strict=True))


def render(status: PpuStatus) -> Iterator[str]:
    """The same as lines."""
    if status["reload_problem"] is not None:
        yield f"the last reload was refused, the former configuration goes on: {status['reload_problem']}"
    if status["metrics_problem"] is not None:
        yield f"no metrics: {status['metrics_problem']}; see metrics.listen"
    if status["state_problem"] is not None:
        yield status["state_problem"]
    if status["suspended"]:
        yield "suspended: packets to dead servers are left alone until `ppu-agent resume`"
    yield from _registrars(status["registrars"])
    for pool in status["pool"]:
        trust = "not known yet: no registrar has answered"
        if pool["known"]:
            trust = f"{len(pool['members'])} alive"
            if pool["stale_s"] is not None:
                trust += f", no registrar vouches for it since {duration(pool['stale_s'])}: nothing is done"
        yield f"pool {pool['handle']}: {trust}"
        for member in pool["members"]:
            yield f"  {member['identifier']} {member['transport']} {', '.join(member['endpoints'])}"
    for gone in status["departed"]:
        where = f"{gone['transport']} {gone['endpoint']}"
        yield f"{gone['state']} {where} for {duration(gone['for_s'])}: {gone['said']}"
    for treated in status["treated"]:
        to = ", ".join(target["endpoint"] for target in treated["to"])
        what = f"{treated['on_dead']} {treated['transport']} {treated['endpoint']}"
        yield f"{what}{f' to {to}' if to else ''}: {treated['why']}"
    for front in status["steer"]:
        to = ", ".join(f"{target['endpoint']} (weight {target['weight']})" for target in front["to"])
        yield f"steer {front['transport']} {front['endpoint']} to {to}"
    if status["gateway"] is not None:
        yield from rendered(status["gateway"])
    for channel in status["via"]:
        where = f"{channel['address']} SCTP port {channel['port']}"
        yield f"association with the ppe-agent at {where}: {'up' if channel['up'] else 'not up'}"
    if status["kernel"]["problem"] is not None:
        yield f"the kernel refused: {status['kernel']['problem']}"
    if status["kernel"]["copies_problem"] is not None:
        yield (
            "requests over TCP that a dead server leaves unanswered get no 503: "
            f"{status['kernel']['copies_problem']}"
        )
    if not status["treated"]:
        yield "nothing is redirected or refused"
