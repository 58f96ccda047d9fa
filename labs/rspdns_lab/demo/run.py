"""`rspdns-lab demo`: the whole chain, one fault after the other."""

from dataclasses import dataclass

from rich.console import Console

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import LabSetting
from rspdns_lab.demo.film import Film
from rspdns_lab.demo.steps import STEPS, StepResult, run_step, undo_step
from rspdns_lab.demo.story import LEGEND, events_of, show_answer, show_end, show_result, show_undone


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo."""

    results: tuple[StepResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every step kept its bounds."""
        return len(self.results) == len(STEPS) and not any(result.problems for result in self.results)

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        return {"ok": self.ok, "steps": [result.as_json() for result in self.results]}


def run_demo(console: Console, slow: float = 1.0, film: Film | None = None) -> DemoResult:
    """Start the lab, go through all steps, end it. Raises LabError.

    `slow`: the factor by which this machine is slower than those that the bounds were made for. `film` takes
    the first step.
    """
    with console.status("making the network") as status, Lab(LabSetting(slow=slow)) as lab:
        beat_ms = lab.setting.beat_ms
        status.update("starting three registrars")
        lab.start_registrars()
        status.update("starting three SIP servers, each with its agent")
        lab.start_application_servers()
        status.update("starting two name servers, each with its backend")
        lab.start_name_servers()
        status.update("waiting until DNS knows all three")
        lab.wait_until_all_are_answered()
        status.update("waiting until the registrars have settled")
        lab.wait_until_settled()
        console.print(
            "Three registrars, three SIP servers with agents, two name servers with backends. "
            f"A client asks both name servers every {beat_ms:g} ms. {LEGEND}"
        )
        show_answer(console, lab)
        if film is not None:
            film.console.print("[bold]$ rspdns-lab demo[/bold]")
            show_answer(film.console, lab)
        results = []
        for step in (step.slowed(slow) for step in STEPS):
            status.update(f"{step.name}: {step.title.lower()}")
            result = run_step(lab, step)
            results.append(result)
            events = events_of(lab, result)
            show_result(console, lab, result, events)
            show_answer(console, lab)
            if film is not None and step.name == STEPS[0].name:
                show_result(film.console, lab, result, events)
                show_answer(film.console, lab)
            if step.undo is not None:
                show_undone(console, step.undo, undo_step(lab, step.undo))
            step.settle(lab)
        show_end(console, results)
        status.update("cleaning up")
    return DemoResult(tuple(results))
