"""Why a packet to an address and port is treated as it is, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daemon_kit.addresses import ListenAddress
from pool_user import PoolView

from ppu_agent.deaths import Deaths, Departed, State
from ppu_agent.destinations import Address, destinations_of
from ppu_agent.status_model import TreatedStatus
from ppu_agent.steering import PoolPolicy, Steered, Steering, Treatment
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
    deaths: Deaths,
    steering: Steering,
    *,
    suspended: bool,
    is_own: bool = False,
    policies: Sequence[PoolPolicy] = (),
) -> dict[str, Any]:
    """The treatment of a packet to `address` and `port`: a line for each transport at which a member is or
    was there, its treatment, and the pools that list it. `is_own`: the address is this host's, which no
    rule touches. `policies` say at which transports members are beside the one that they registered."""
    also = {one.handle: one.also for one in policies}
    listed: dict[Protocol, dict[str, None]] = {}
    for handle, view in views.items():
        for member in view.members:
            for one in destinations_of(member, also.get(handle, ())):
                if one.endpoint == (address, port):
                    listed.setdefault(one.protocol, {})[handle] = None
    treatments = {
        one.destination.protocol: one
        for one in steering.treatments
        if one.destination.endpoint == (address, port)
    }
    departed = [one for one in deaths.departed if one.destination.endpoint == (address, port)]
    left: dict[Protocol, Departed] = {}
    for gone in departed:
        for protocol in (
            gone.destination.protocol,
            *(one for pool in gone.pools for one in also.get(pool, ())),
        ):
            left.setdefault(protocol, gone)
    words = [_steered(one) for one in steering.fronts if one.front.endpoint == (address, port)]
    if not words and is_own:
        words = ["passes: an address of this host is never touched; a sidecar here must see its server die"]
    if not words:
        for protocol in sorted({*listed, *treatments, *left}, key=lambda protocol: protocol.name):
            if protocol in treatments:
                words.append(_treated(treatments[protocol]))
            elif protocol in listed:
                words.append(f"{_name(protocol)}: passes: a member of {', '.join(listed[protocol])}, alive")
            else:
                why = _why_spared(left[protocol], deaths, suspended=suspended)
                words.append(f"{_name(protocol)}: passes: {why}")
    return {
        "endpoint": str(ListenAddress(address, port)),
        "listed_by": list(dict.fromkeys(handle for handles in listed.values() for handle in handles)),
        "treated": [] if is_own else [described(one) for one in treatments.values()],
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


def _name(protocol: Protocol) -> str:
    return protocol.name.lower()


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
