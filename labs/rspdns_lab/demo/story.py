"""The demo's story: when each part noticed, by its log and by what the client saw; told in the terminal."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import APPLICATION_SERVERS, NAME_SERVERS, SRV_OWNER, SRV_QUESTION
from rspdns_lab.demo.steps import StepFault, StepResult, Undo
from rspdns_lab.observe.observations import Reading
from rspdns_lab.observe.part_logs import Event, log_events
from rspdns_lab.observe.verdict import Kind, Observation, is_wrong

_SERVER_NAMES: Final = tuple(NAME_SERVERS)
_MOST_CELLS: Final = 60
_BESIDE_A_BAR: Final = 16
_TABLE_COLUMNS: Final = 90
"""A terminal narrower than this gets lines: a table would cut the words."""
_CELL_MS: Final = 2.0
"""The least time of one cell of a bar: shorter ones would often hold no answer."""
_SIGNS: Final = {"": " ", "dim": "·", "green": "█", "red": "░"}
LEGEND: Final = "In the bars: [red]░[/red] wrong, [green]█[/green] right, [dim]·[/dim] no answer."
_NAMES: Final = {address: name for name, address in APPLICATION_SERVERS.items()}


def events_of(lab: Lab, result: StepResult) -> list[Event]:
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


def client_events(observations: Iterable[Observation], fault: StepFault) -> list[Event]:
    """Return when the client was last told wrong, and when right, by each name server."""
    events = []
    for server in fault.servers:
        answers = [
            observation
            for observation in observations
            if observation.server == server
            and observation.asked_at_s >= fault.at_s
            and observation.answered_at_s is not None
        ]
        wrong = [answer for answer in answers if is_wrong(answer, fault.live, fault.dead)]
        if wrong:
            last = max(answer.answered_at_s or 0.0 for answer in wrong)
            events.append(Event(last, "client", f"[red]last wrong answer from {_SERVER_NAMES[server]}[/red]"))
            right = [
                answer.answered_at_s
                for answer in answers
                if answer.answered_at_s and answer.answered_at_s > last
            ]
            if right:
                text = f"[green]{_SERVER_NAMES[server]} answers right from now on[/green]"
                events.append(Event(min(right), "client", text))
    return events


def show_answer(console: Console, lab: Lab) -> None:
    """Show what the name servers answer now."""
    for number, name in enumerate(NAME_SERVERS):
        reading = lab.recorder.latest.get((number, SRV_QUESTION))
        console.print(f"  {name} says: {SRV_OWNER} SRV → ", answer_in_words(reading), sep="")


def answer_in_words(reading: Reading | None) -> str:
    """Return who is in an SRV answer, with the weights."""
    if reading is None or reading.kind is not Kind.ANSWER:
        return "nothing" if reading is None else reading.kind.value
    return ", ".join(
        f"{_NAMES.get(address, address)} (weight {weight})" for address, _, weight in reading.weights
    )


def show_result(console: Console, lab: Lab, result: StepResult, events: Sequence[Event]) -> None:
    """Tell one step: what happened, who noticed when, when the last wrong answer was given."""
    fault, verdict = result.fault, result.verdict
    console.print(f"\n[bold]{result.step.name}[/bold]: {result.step.title}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column(style="magenta", no_wrap=True)
    table.add_column(overflow="fold")
    for event in events:
        table.add_row(f"{(event.at_s - fault.at_s) * 1000:+.1f} ms", event.where, event.what)
    console.print(table)
    for number in fault.servers:
        console.print(_bar(result, number, min(_MOST_CELLS, max(1, console.width - _BESIDE_A_BAR))))
    console.print(_summary(result))
    if verdict.timeouts:
        console.print(f"  ({verdict.timeouts} questions went unanswered)")


def show_undone(console: Console, undo: Undo, back_ms: float) -> None:
    """Tell that a fault was taken back, and when all name servers named everyone again."""
    console.print(f"  {undo.what}; back in DNS after {back_ms} ms")


def show_end(console: Console, results: Sequence[StepResult]) -> None:
    """Sum up all steps, and say whether each kept its bound."""
    console.print()
    console.print(_end_table(results) if console.width >= _TABLE_COLUMNS else _end_lines(results))
    broken = [f"{result.step.name} ({'; '.join(result.problems)})" for result in results if result.problems]
    if broken:
        console.print(Text(f"bounds broken: {', '.join(broken)}", style="bold red"))
    else:
        console.print(Text("all bounds kept", style="bold green"))


def _end_lines(results: Sequence[StepResult]) -> Text:
    text = Text("How long clients were told wrong\n", style="")
    for result in results:
        verdict = result.verdict
        last = (
            f"last wrong answer {verdict.last_wrong_ms} ms after it" if verdict.wrong else "no wrong answer"
        )
        text.append(
            f"{result.step.name}, bound: {result.step.bound}\n"
            f"  {last}\n"
            f"  {verdict.wrong} wrong, {verdict.empty} empty, "
            f"{verdict.servfail} SERVFAIL of {verdict.answers}\n",
            style="red" if result.problems else "",
        )
    text.rstrip()
    return text


def _end_table(results: Sequence[StepResult]) -> Table:
    table = Table(title="How long clients were told wrong", title_justify="left")
    table.add_column("step")
    for heading in ("last wrong answer", "bound", "wrong", "empty", "SERVFAIL", "of answers"):
        table.add_column(heading, justify="right")
    for result in results:
        verdict = result.verdict
        style = "red" if result.problems else ""
        last = f"{verdict.last_wrong_ms} ms" if verdict.wrong else "none"
        table.add_row(
            result.step.name,
            last,
            result.step.bound,
            str(verdict.wrong),
            str(verdict.empty),
            str(verdict.servfail),
            str(verdict.answers),
            style=style,
        )
    return table


def _summary(result: StepResult) -> Text:
    verdict = result.verdict
    if result.problems:
        return Text("  ✗ " + "; ".join(result.problems), style="bold red")
    if not verdict.wrong:
        return Text(
            f"  ✓ no wrong answer among {verdict.answers} (bound: {result.step.bound})", style="bold green"
        )
    return Text(
        f"  ✓ last wrong answer {verdict.last_wrong_ms} ms after it (bound: {result.step.bound}); "
        f"{verdict.wrong} wrong among {verdict.answers}, {verdict.empty} empty",
        style="bold green",
    )


def _style(observation: Observation, fault: StepFault) -> str:
    if observation.answered_at_s is None:
        return "dim"
    return "red" if is_wrong(observation, fault.live, fault.dead) else "green"


def _worse(style: str, other: str) -> str:
    return max(style, other, key=["", "dim", "green", "red"].index)


def _bar(result: StepResult, server: int, most_cells: int) -> Text:
    """Draw what one name server answered over time: red wrong, green right, dim no answer."""
    fault = result.fault
    span_s = max(0.05, result.verdict.last_wrong_ms / 1000 * 1.6)
    cells = [""] * min(most_cells, int(span_s * 1000 / _CELL_MS))
    for observation in result.observations:
        cell = int((observation.asked_at_s - fault.at_s) / span_s * len(cells))
        if observation.server == server and observation.asked_at_s >= fault.at_s and cell < len(cells):
            cells[cell] = _worse(cells[cell], _style(observation, fault))
    bar = Text(f"  {list(NAME_SERVERS)[server]} ")
    style = ""
    for cell_style in cells:
        style = cell_style or style  # when nothing was asked, the machine was busy: what was answered last
        bar.append(_SIGNS[style], style=style)
    bar.append(f" {span_s * 1000:.0f} ms", style="dim")
    return bar
