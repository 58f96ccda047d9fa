"""Trials side by side, each in a process of its own, which a lab needs: it has signals and namespaces."""

import multiprocessing
import signal
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, TypeVar, cast

from daemon_kit.child import die_with_parent

from rspdns_lab.ending import end_on_signals, uninterrupted
from rspdns_lab.errors import LabError

S = TypeVar("S")
T = TypeVar("T")
_FORK: Final = multiprocessing.get_context("fork")


def side_by_side(do: Callable[[S], T], plan: Sequence[S], jobs: int) -> Generator[T | LabError, None, None]:
    """Do each of `plan`, at most `jobs` at a time, begun in this order; yield what they return as they end.

    A trial that raises LabError yields it; the others go on. Closing the iterator ends all that run.
    """
    left = iter(plan)
    running: dict[Connection, BaseProcess] = {}
    try:
        while True:
            while len(running) < jobs and (task := next(left, None)) is not None:
                reader, process = _begin(do, task)
                running[reader] = process
            if not running:
                return
            for ready in wait(list(running)):
                reader = cast("Connection", ready)
                yield _outcome(reader, running.pop(reader))
    finally:
        with uninterrupted():
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.join()


def _begin(do: Callable[[S], T], task: S) -> tuple[Connection, BaseProcess]:
    reader, writer = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_work, args=(do, task, writer))
    process.start()
    writer.close()
    return reader, process


def _work(do: Callable[[Any], Any], task: object, writer: Connection) -> None:
    die_with_parent(signal.SIGTERM)()
    end_on_signals()
    try:
        writer.send(do(task))
    except LabError as error:
        writer.send(error)
    except KeyboardInterrupt:
        return


def _outcome(reader: Connection, process: BaseProcess) -> Any:
    with reader:
        try:
            outcome = reader.recv()
        except EOFError:
            outcome = LabError("a trial ended without a result")
    process.join()
    return outcome
