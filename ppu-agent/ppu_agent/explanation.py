"""Why a packet to an address and port is treated as it is, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon_kit.addresses import ListenAddress
from pool_user import PoolView

from ppu_agent.deaths import Deaths, Departed, State
from ppu_agent.destinations import Address
from ppu_agent.status_model import TreatedStatus
from ppu_agent.steering import Steered, Steering, Treatment

_STATE_WORDS: Mapping[State, str] = {
    State.OUT: "left its pool; the agent's own probe is asking whether it is dead",
    State.SPARED: "left its pool and answers the agent's own probe: drained, or its sidecar is away",
    State.DEAD: "left its pool, and does not answer the agent's own probe",
}


def parse_endpoint(text: str) -> tuple[Address, int]:
    """Read "10.20.0.5:5060" or "[2001:db8::5]:5060". Raises ValueError."""
    endpoint = ListenAddress.parse(text)
    return endpoint.address, endpoint.port


def explain(
    address: Address,
    port: int,
    views: Mapping[str, PoolView],
    deaths: Deaths,
    steering: Steering,
    *,
    suspended: bool,
    is_own: bool = False,
) -> dict[str, Any]:
    """What happens to a packet to `address` and `port`: one entry for each transport that is treated, and the
    pools that list it or that it left. `is_own`: the address is this host's, which no rule touches."""
    listed = [
        handle
        for handle, view in views.items()
        if any(address in member.addresses and member.port == port for member in view.members)
    ]
    departed = [one for one in deaths.departed if one.destination.endpoint == (address, port)]
    treatments = [one for one in steering.treatments if one.destination.endpoint == (address, port)]
    fronts = [one for one in steering.fronts if one.front.endpoint == (address, port)]
    words = [_steered(one) for one in fronts]
    if not words and is_own:
        words = ["passes: an address of this host is never touched; a sidecar here must see its server die"]
    words = words or _words(listed, departed, treatments, deaths, suspended=suspended)
    return {
        "endpoint": str(ListenAddress(address, port)),
        "listed_by": listed,
        "treated": [] if is_own else [described(one) for one in treatments],
        "words": words,
    }


def described(treatment: Treatment) -> TreatedStatus:
    """A treatment as JSON, with the names of the configuration."""
    return {
        "transport": treatment.destination.protocol.name.lower(),
        "endpoint": treatment.destination.where,
        "on_dead": treatment.action,
        "handle": treatment.handle,
        "why": treatment.why,
        "to": [
            {
                "endpoint": one.destination.where,
                "weight": one.weight,
            }
            for one in treatment.targets
        ],
    }


def _steered(one: Steered) -> str:
    targets = ", ".join(f"{target.destination.where} (weight {target.weight})" for target in one.targets)
    how = "by the client's address" if one.by_source else "by weight"
    whose = "" if one.clients is None else f" of this host and {', '.join(map(str, one.clients))}"
    return (
        f"{one.front.protocol.name.lower()}: stands for {one.handle}: new flows{whose} go {how} to {targets}"
    )


def _words(
    listed: list[str],
    departed: list[Departed],
    treatments: list[Treatment],
    deaths: Deaths,
    *,
    suspended: bool,
) -> list[str]:
    if treatments:
        return [_treated(one) for one in treatments]
    if listed:
        return [f"passes: a member of {', '.join(listed)}, alive"]
    if not departed:
        return ["passes: no pool of this configuration has or had a member there"]
    return [f"passes: {_why_spared(one, deaths, suspended=suspended)}" for one in departed]


def _treated(one: Treatment) -> str:
    name = one.destination.protocol.name.lower()
    match one.action:
        case "redirect":
            targets = ", ".join(
                f"{target.destination.where} (weight {target.weight})" for target in one.targets
            )
            return f"{name}: redirected to {targets}: {one.why}"
        case "repeat":
            targets = ", ".join(target.destination.where for target in one.targets)
            return f"{name}: relayed to {targets}, requests without an answer are repeated: {one.why}"
        case "answer-503":
            return f"{name}: answered with 503 by this agent: {one.why}"
        case "refuse":
            how = "refused (SIP requests: answered with 503)" if name == "udp" else "refused"
            return f"{name}: {how}: {one.why}"


def _why_spared(one: Departed, deaths: Deaths, *, suspended: bool) -> str:
    if one.state is State.OUT and one.words:
        return f"left its pool; the agent's own probe tells nothing: {one.words}"
    if one.state is not State.DEAD:
        return _STATE_WORDS[one.state]
    if suspended:
        return f"{_STATE_WORDS[one.state]}; but the agent is suspended (ppu-agent resume)"
    if deaths.is_listed(one.destination):
        return f"{_STATE_WORDS[one.state]}; but another pool lists its address and port as alive"
    if not any(deaths.can_lose(handle) for handle in one.pools):
        pools = ", ".join(one.pools)
        return f"{_STATE_WORDS[one.state]}; but {pools} has no living member, or no settled registrar"
    return _STATE_WORDS[one.state]
