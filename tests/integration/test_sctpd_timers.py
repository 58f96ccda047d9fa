"""Untuned timers of sctpd are told: with its own, one lost packet removes a live pool element."""

import sys

import pytest

from tests.support.namespaces import Namespace

LOOK = (
    "import structlog; from registrar_config.kernel_timers import report_kernel_timers; "
    "structlog.configure(processors=[structlog.processors.JSONRenderer()]); "
    "report_kernel_timers(structlog.get_logger())"
)


@pytest.mark.parametrize("tuned", [True, False])
def test_untuned_timers_of_sctpd_are_told(namespace: Namespace, tuned: bool) -> None:
    environment = {} if tuned else {"SCTPD_OPTIONS": ""}
    look = namespace.start(sys.executable, "-c", LOOK, sctp=True, environment=environment)
    said, problems = look.communicate(timeout=60)
    assert look.returncode == 0, problems
    if tuned:
        assert said == ""
    else:
        assert "sctpd_timers_do_not_fit" in said
        assert "SCTPD_OPTIONS='--rto-min 50" in said
