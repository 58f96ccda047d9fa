"""What pool elements do when their registrar is killed, frozen or woken (see rserpool_scenarios.py)."""

import asyncio
import os
import signal
import time

from rserpool.aio.element import EventKind
from rserpool.aio.user import Resolution
from rserpool.errors import ResolutionTimeout, RSerPoolError

from tests.integration.rserpool_host import IDENTIFIER, Host
from tests.support.stalls import Mark
from tests.support.waiting import until_async


async def killed_registrar(here: Host) -> None:
    """The element's registrar is killed: it is at another at once, and never missing meanwhile."""
    element = here.element(b"survives")
    await here.until_listed(b"survives", {IDENTIFIER})
    first = element.registrar
    os.kill(here.pid(first), signal.SIGKILL)
    killed, killed_at_s = Mark.now(), time.monotonic()
    answers = 0
    while time.monotonic() < killed_at_s + 6:
        for registrar, members in (await here.view(b"survives")).items():
            if registrar != first:
                assert members, f"{registrar} does not list the element"
                answers += 1
        await asyncio.sleep(0.01)
    assert answers > 50
    registered = [event for event in here.events if event.kind is EventKind.REGISTERED]
    assert len(registered) == 2
    assert registered[1].at_s - killed_at_s < 1 + killed.lacked_s()
    assert element.is_registered
    assert element.registrar not in (None, first)


async def frozen_registrar(here: Host) -> None:
    """A frozen registrar is left at the next renewal; a question it answers late never looks recent."""
    element = here.element(b"thaws", reregistration_ms=1000)
    await here.until_listed(b"thaws", {IDENTIFIER})
    first = element.registrar
    assert first is not None
    os.kill(here.pid(first), signal.SIGSTOP)
    try:
        try:
            await here.clients[first].resolve(b"thaws")
            raise AssertionError("a frozen registrar answered")
        except ResolutionTimeout:
            pass
        await until_async(lambda: element.is_registered and element.registrar != first, 5)
    finally:
        os.kill(here.pid(first), signal.SIGCONT)

    async def answers() -> bool:
        asked_at_s = time.monotonic()
        try:
            resolution: Resolution = await here.clients[first].resolve(b"thaws")
        except RSerPoolError:
            return False
        assert resolution.asked_at_s >= asked_at_s
        return True

    await until_async(answers, 10)


async def woken_registrar(here: Host) -> None:
    """A frozen registrar wakes after the element has moved, and may remove it everywhere: not for long."""
    element = here.element(b"stays", reregistration_ms=1000)
    await here.until_listed(b"stays", {IDENTIFIER})
    first = element.registrar
    os.kill(here.pid(first), signal.SIGSTOP)
    try:
        await until_async(lambda: element.is_registered and element.registrar != first, 5)
        await asyncio.sleep(4)
    finally:
        os.kill(here.pid(first), signal.SIGCONT)
    missing_at_s: list[float] = []
    woken, woken_at_s = Mark.now(), time.monotonic()
    while time.monotonic() < woken_at_s + 6:
        for registrar, members in (await here.view(b"stays")).items():
            if members == [] and registrar != first:
                missing_at_s.append(time.monotonic() - woken_at_s)
        await asyncio.sleep(0.002)
    print(f"missing in {len(missing_at_s)} answers: {missing_at_s}", flush=True)
    assert not missing_at_s or missing_at_s[-1] < 1 + woken.lacked_s()


async def taken_over(here: Host) -> None:
    """Its registrar falls silent, another takes over: the element follows, acknowledges, and stays listed."""
    element = here.element(b"follows", reregistration_ms=60_000)
    await here.until_listed(b"follows", {IDENTIFIER})
    first = element.registrar
    os.kill(here.pid(first), signal.SIGSTOP)
    try:
        await until_async(lambda: EventKind.TAKEN_OVER in here.kinds(), 20)
        assert element.registrar not in (None, first)
        deadline_s = time.monotonic() + 3
        while time.monotonic() < deadline_s:
            for registrar, members in (await here.view(b"follows")).items():
                assert registrar == first or members, f"{registrar} does not list the element"
        assert element.is_registered
        assert element.home_registrar is not None
    finally:
        os.kill(here.pid(first), signal.SIGCONT)


async def pinned(here: Host) -> None:
    """A pinned element refuses the takeover, so the others drop it."""
    here.element(b"pinned", registrars=here.registrars[:1], reregistration_ms=60_000, pinned=True)
    await here.until_listed(b"pinned", {IDENTIFIER})
    os.kill(here.pids[0], signal.SIGSTOP)
    try:
        await until_async(lambda: EventKind.TAKEOVER_REFUSED in here.kinds(), 20)
        await here.until_listed(b"pinned", set(), by=2, within_s=10)
    finally:
        os.kill(here.pids[0], signal.SIGCONT)
