"""Why a packet to an address and port is treated as it is, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daemon_kit.addresses import ListenAddress
from pool_user import PoolView

from ppu_agent.deaths import Departed, DepartedServers, State
from ppu_agent.destinations import Address, destinations_of
from ppu_agent.plan import Front, Plan, PoolPolicy, Treatment
from ppu_agent.status_model import TreatedStatus
from rserpool import Protocol

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
    deaths: DepartedServers,
    plan: Plan,
    policies: Sequence[PoolPolicy] = (),
    *,
    is_own: bool = False,
) -> dict[str, Any]:
    """The treatment of a packet to `address` and `port`: a line for each transport at which a member is or
    was there, its treatment, and the pools that list it. `is_own`: the address is this host's, which no
    rule touches. `policies` say at which transports members are beside the one that they registered."""
    also = {policy.handle: policy.also for policy in policies}
    listed: dict[Protocol, dict[str, None]] = {}
    for handle, view in views.items():
        for member in view.members:
            for destination in destinations_of(member, also.get(handle, ())):
                if destination.endpoint == (address, port):
                    listed.setdefault(destination.protocol, {})[handle] = None
    treatments = {
        treatment.destination.protocol: treatment
        for treatment in plan.treatments
        if treatment.destination.endpoint == (address, port)
    }
    departed = [server for server in deaths.departed if server.destination.endpoint == (address, port)]
    left: dict[Protocol, Departed] = {}
    for gone in departed:
        for protocol in (
            gone.destination.protocol,
            *(protocol for pool in gone.pools for protocol in also.get(pool, ())),
        ):
            left.setdefault(protocol, gone)
    words = [_steered(front) for front in plan.fronts if front.destination.endpoint == (address, port)]
    if not words and is_own:
        words = ["passes: an address of this host is never touched; a sidecar here must see its server die"]
    if not words:
        for protocol in sorted({*listed, *treatments, *left}, key=lambda protocol: protocol.name):
            if protocol in treatments:
                words.append(_treated(treatments[protocol]))
            elif protocol in listed:
                words.append(f"{_name(protocol)}: passes: a member of {', '.join(listed[protocol])}, alive")
            else:
                why = _why_spared(left[protocol], deaths, is_suspended=plan.is_suspended)
                words.append(f"{_name(protocol)}: passes: {why}")
    return {
        "endpoint": str(ListenAddress(address, port)),
        "listed_by": list(dict.fromkeys(handle for handles in listed.values() for handle in handles)),
        "treated": [] if is_own else [described(treatment) for treatment in treatments.values()],
        "words": words or ["passes: no pool of this configuration has or had a member there"],
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
                "endpoint": target.destination.where,
                "weight": target.weight,
            }
            for target in treatment.targets
        ],
    }


def _steered(front: Front) -> str:
    targets = ", ".join(f"{target.destination.where} (weight {target.weight})" for target in front.targets)
    policy, name = front.policy, _name(front.destination.protocol)
    how = "by the client's address" if policy.by_source else "by weight"
    whose = "" if policy.clients is None else f" of this host and {', '.join(map(str, policy.clients))}"
    return f"{name}: stands for {policy.handle}: new flows{whose} go {how} to {targets}"


def _name(protocol: Protocol) -> str:
    return protocol.name.lower()


def _treated(treatment: Treatment) -> str:
    name = treatment.destination.protocol.name.lower()
    match treatment.action:
        case "redirect":
            targets = ", ".join(
                f"{target.destination.where} (weight {target.weight})" for target in treatment.targets
            )
            return f"{name}: redirected to {targets}: {treatment.why}"
        case "repeat":
            targets = ", ".join(target.destination.where for target in treatment.targets)
            return f"{name}: relayed to {targets}, requests without an answer are repeated: {treatment.why}"
        case "refuse":
            how = "refused (SIP requests: answered with 503)" if name == "udp" else "refused"
            return f"{name}: {how}: {treatment.why}"


def _why_spared(departed: Departed, deaths: DepartedServers, *, is_suspended: bool) -> str:
    if departed.state is State.OUT and departed.words:
        return f"left its pool; the agent's own probe tells nothing: {departed.words}"
    if departed.state is not State.DEAD:
        return _STATE_WORDS[departed.state]
    if is_suspended:
        return f"{_STATE_WORDS[departed.state]}; but the agent is suspended (ppu-agent resume)"
    if deaths.is_listed(departed.destination):
        return f"{_STATE_WORDS[departed.state]}; but another pool lists its address and port as alive"
    if not any(deaths.can_lose(handle) for handle in departed.pools):
        pools = ", ".join(departed.pools)
        return f"{_STATE_WORDS[departed.state]}; but {pools} has no living member, or no settled registrar"
    return _STATE_WORDS[departed.state]
