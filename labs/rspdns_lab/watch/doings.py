"""What a viewer can do to the application servers of a running lab, a key each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import LOADS
from rspdns_lab.errors import LabError

OVERLOAD: Final = 0.97


@dataclass(frozen=True)
class Doing:
    """Something a key does to the chosen server. `mark` is how the server is shown from then on."""

    key: str
    word: str
    mark: str
    run: Callable[[Lab, str], None]


def _kill(lab: Lab, name: str) -> None:
    lab.application_servers[name].sip.kill()


def _hang(lab: Lab, name: str) -> None:
    sip = lab.application_servers[name].sip
    if not sip.is_running:
        raise LabError(f"{name} runs no more, so it can't hang; revive it first")
    sip.freeze()


def _cut(lab: Lab, name: str) -> None:
    lab.network.cut(lab.network.hosts[name])


def _drain(lab: Lab, name: str) -> None:
    lab.application_servers[name].drain()


def _overload(lab: Lab, name: str) -> None:
    set_load(lab, name, OVERLOAD)


def _revive(lab: Lab, name: str) -> None:
    """Take everything back, whatever was done."""
    server = lab.application_servers[name]
    lab.network.restore(lab.network.hosts[name])
    set_load(lab, name, LOADS[name])
    server.sip.thaw()
    if not server.sip.is_running:
        server.sip.start()
    server.undrain()


def set_load(lab: Lab, name: str, load: float) -> None:
    """Have the server's agent report this load, 0 to 1."""
    (lab.folder / name / "load").write_text(f"{load}\n")


DOINGS: Final = (
    Doing("k", "kill", "killed", _kill),
    Doing("h", "hang", "hung", _hang),
    Doing("c", "cut", "cable out", _cut),
    Doing("d", "drain", "drained", _drain),
    Doing("o", "overload", "overloaded", _overload),
    Doing("r", "revive", "", _revive),
)
