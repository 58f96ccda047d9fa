"""`rspdns-lab watch`: the running lab in the terminal, and keys that break it."""

import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from daemon_kit.control import ControlError, request
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import APPLICATION_SERVERS, NAME_SERVERS, SRV_QUESTION
from rspdns_lab.errors import LabError
from rspdns_lab.observe.part_logs import Event, LogTail
from rspdns_lab.observe.verdict import Kind
from rspdns_lab.watch.keys import DOINGS, Keyboard
from rspdns_lab.watch.relay import Relay
from rspdns_lab.watch.view import MOST_EVENTS, Screen, draw

ADMIN_PORT: Final = 8054
_FRAME_S: Final = 0.25
_TOLD: Final = ("agent", "backend", "registrar")


def run_watch(console: Console, listener: socket.socket) -> None:
    """Start the lab, show it until `q`, end it. Raises LabError.

    `listener`: where the first backend's live page is to be found.
    """
    with Keyboard() as keyboard, Lab() as lab:
        with console.status("starting registrars, application servers and name servers"):
            lab.start_registrars()
            lab.start_application_servers()
            lab.start_name_servers()
            lab.wait_until_all_are_answered()
        first = next(iter(NAME_SERVERS))
        relay = Relay(lab.network.hosts[first], ADMIN_PORT, listener)
        relay.start()
        screen = Screen(chosen=next(iter(APPLICATION_SERVERS)), note=f"live page: {relay.url}")
        tail = LogTail(MOST_EVENTS)
        try:
            with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
                while (key := keyboard.key(_FRAME_S)) != "q":
                    _act(lab, screen, key, tail)
                    _look(lab, screen, tail)
                    live.update(draw(screen, console.width, console.height), refresh=True)
        finally:
            relay.close()


def _act(lab: Lab, screen: Screen, key: str, tail: LogTail) -> None:
    """Do what a key stands for; any other key does nothing."""
    names = list(APPLICATION_SERVERS)
    if key.isdecimal() and 1 <= int(key) <= len(names):
        screen.chosen = names[int(key) - 1]
    for doing in DOINGS:
        if doing.key == key:
            try:
                doing.run(lab, screen.chosen)
            except LabError as error:
                tail.events.append(Event(time.monotonic(), "lab", escape(str(error))))
                return
            tail.events.append(Event(time.monotonic(), "lab", f"[bold]{screen.chosen}: {doing.word}[/bold]"))
            screen.marks[screen.chosen] = doing.mark


def _look(lab: Lab, screen: Screen, tail: LogTail) -> None:
    screen.now_s = time.monotonic()
    screen.statuses = {name: _status(lab, name) for name in lab.name_servers}
    screen.answers = {name: _answer(lab, number) for number, name in enumerate(NAME_SERVERS)}
    tail.look([program for program in lab.programs() if program.name in _TOLD], lab.names())
    screen.events = list(tail.events)


def _answer(lab: Lab, number: int) -> tuple[tuple[str, int, int], ...] | None:
    reading = lab.recorder.latest.get((number, SRV_QUESTION))
    return reading.weights if reading is not None and reading.kind is Kind.ANSWER else None


def _status(lab: Lab, name: str) -> Mapping[str, Any]:
    try:
        return request(lab.folder / name / "admin.sock", "status")
    except ControlError:
        return {}
