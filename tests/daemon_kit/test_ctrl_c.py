"""Ctrl-C ends what goes on until then, whatever the interpreter was doing."""

import os
import signal
import sys
import time

import pytest
from daemon_kit.commands import until_ctrl_c


class Finalized:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # the signal is handled here, and what it raises is dropped


def test_a_ctrl_c_that_python_drops_ends_the_loop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: dropped.append(told.exc_type))
    turns = 0
    with until_ctrl_c() as goes_on:
        while goes_on() and turns < 3:
            turns += 1
            Finalized()
    assert not dropped, "a traceback was told"
    assert turns == 1


def test_ctrl_c_ends_a_loop_in_the_middle_of_a_turn_and_is_as_it_was_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with until_ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        pytest.fail("it goes on")
    assert signal.getsignal(signal.SIGINT) is before
