"""Every conformance case, on this host's stack: the kernel's, or sctpd where it has none."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_case import all_cases

from tests.support.namespaces import Namespace

HERE = Path(__file__).parent
RUNNER = HERE / "run_case.py"


class Runs:
    """One process for each file of cases, started when its first case is asked for."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._done: dict[str, subprocess.CompletedProcess[str]] = {}

    def result(self, case: str) -> dict[str, object]:
        """Return the line of one case; a process that died before it has none."""
        module = case.split(":")[0]
        if module not in self._done:
            names = [name for name in all_cases() if name.startswith(f"{module}:")]
            self._done[module] = self._namespace.run(
                sys.executable, str(RUNNER), *names, sctp=True, timeout_s=110
            )
        lines = [json.loads(line) for line in self._done[module].stdout.splitlines()]
        found = [line for line in lines if line["case"] == case]
        return found[0] if found else {"ok": False, "error": f"not run: {self._done[module].stderr}"}


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """Return one namespace for all cases: they use ports of their own."""
    namespace = Namespace(f"rspdns-sctp-{os.getpid()}")
    try:
        yield Runs(namespace)
    finally:
        namespace.close()


@pytest.mark.integration
@pytest.mark.parametrize("case", all_cases())
def test_case(case: str, runs: Runs) -> None:
    """Each case has a line of its own in the report."""
    result = runs.result(case)
    assert result["ok"], result["error"]
