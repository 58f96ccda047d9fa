"""Fixtures for every test: a network namespace of its own, and programs that are ended whatever happens."""

import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.longest import LONGEST
from tests.support.namespaces import Namespace, own_namespace
from tests.support.second_try import mark_reruns

# Without deadlines: the machine may be busy with something else.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Give back the handlers that a command run in this process left: a later test may signal itself."""
    before = [signal.getsignal(number) for number in HANDLED]
    told = sys.unraisablehook
    yield
    sys.unraisablehook = told
    for number, handler in zip(HANDLED, before, strict=True):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture
def namespaces() -> Iterator[Callable[[], Namespace]]:
    """Return a maker of network namespaces that are removed, with all that runs in them, after the test."""
    with contextlib.ExitStack() as made:
        yield lambda: made.enter_context(own_namespace())


@pytest.fixture
def namespace(namespaces: Callable[[], Namespace]) -> Namespace:
    """Return one network namespace."""
    return namespaces()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs real programs, so that `-m "not integration"` needs no root; the longest go first."""
    tests_of = Counter(item.path for item in items)
    rank_of = {name: index for index, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (rank_of.get(item.path.stem, len(LONGEST)), -tests_of[item.path]))
    for item in items:
        if "integration" in item.path.parts or "namespaces" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)
        mark_reruns(item)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say plainly when the machine can't run a test, instead of failing inside it."""
    if item.get_closest_marker("integration") and os.geteuid() != 0:
        pytest.fail("needs root for network namespaces (without: pytest -m 'not integration')")
