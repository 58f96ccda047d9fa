"""When each part noticed: events from the parts' own logs and from what the client saw."""

from collections.abc import Iterable
from typing import Final

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import NAME_SERVERS
from rspdns_lab.demo.steps import Fault, Result
from rspdns_lab.observe.part_logs import Event, log_events
from rspdns_lab.observe.verdict import Observation, is_wrong

_SERVER_NAMES: Final = tuple(NAME_SERVERS)


def events_of(lab: Lab, result: Result) -> list[Event]:
    """Return all that is worth telling about a step, in order."""
    fault = result.fault
    events = [Event(fault.at_s, "lab", f"[bold]{fault.what}[/bold]")]
    if fault.started_at_s is not None:
        events.append(Event(fault.started_at_s, "lab", "SIP server started"))
    span = (fault.started_at_s or fault.at_s, result.ended_at_s)
    names = lab.names()
    for program in lab.programs():
        if program.name in ("agent", "backend", "registrar"):
            events += log_events(program.log, program.host.name, program.name, span, names)
    events += client_events(result.observations, fault)
    return sorted(events)


def client_events(observations: Iterable[Observation], fault: Fault) -> list[Event]:
    """Return when the client was last told wrong, and when right, by each name server."""
    events = []
    for server in fault.servers:
        answers = [
            one
            for one in observations
            if one.server == server and one.asked_at_s >= fault.at_s and one.answered_at_s is not None
        ]
        wrong = [one for one in answers if is_wrong(one, fault.live, fault.dead)]
        if wrong:
            last = max(one.answered_at_s or 0.0 for one in wrong)
            events.append(Event(last, "client", f"[red]last wrong answer from {_SERVER_NAMES[server]}[/red]"))
            right = [one.answered_at_s for one in answers if one.answered_at_s and one.answered_at_s > last]
            if right:
                text = f"[green]{_SERVER_NAMES[server]} answers right from now on[/green]"
                events.append(Event(min(right), "client", text))
    return events
