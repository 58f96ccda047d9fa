"""`ppe-agent drain --until-idle`: whether the drained servers have nothing left to do. Pure."""

from collections.abc import Sequence

from daemon_kit.control import ControlError
from daemon_kit.durations import duration

from ppe_agent.status_model import ServerStatus


def check_load_sources(servers: Sequence[ServerStatus]) -> None:
    """Raise ControlError unless each server has a load source, which alone tells when it is idle."""
    lacking = [server["name"] for server in servers if server["load"] is None or not server["load_source"]]
    if lacking:
        raise ControlError(
            f"drained, but nothing tells when {', '.join(lacking)} is idle: "
            "that takes a policy with load, and a source in [as.load]"
        )


def busy(servers: Sequence[ServerStatus]) -> list[ServerStatus]:
    """Return those whose load source does not say 0: it says more, or nothing at present."""
    return [server for server in servers if server["load_read"] is None or server["load_read"] > 0]


def progress(servers: Sequence[ServerStatus], left_s: float | None) -> str:
    """Say what is left of each busy server, and for how long it is waited for at most."""
    of_each = [
        f"{server['name']}: load {server['load_read']:.1%}"
        if server["load_read"] is not None
        else f"{server['name']}: load not known ({server['load_problem'] or 'not read yet'})"
        for server in servers
    ]
    at_most = "" if left_s is None else f"; for another {duration(left_s)} at most"
    return ", ".join(of_each) + at_most
