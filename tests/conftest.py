"""Fixtures for every test: a network namespace of its own, and programs that are ended whatever happens."""

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.namespaces import Namespace
from tests.support.repeats import Repeats, RepeatsTold
from tests.support.second_try import SecondTry

# Without deadlines: the machine may be busy with something else.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

LONG_S = 600.0
"""A test that may take so long begins before the others, lest one worker waits for it at the end."""


@pytest.fixture
def namespaces() -> Iterator[Callable[[], Namespace]]:
    """Return a maker of network namespaces that are removed, with all that runs in them, after the test."""
    made: list[Namespace] = []

    def make() -> Namespace:
        made.append(Namespace(f"rspdns-test-{os.getpid()}-{uuid.uuid4().hex[:6]}"))
        return made[-1]

    try:
        yield make
    finally:
        for namespace in reversed(made):
            namespace.close()


@pytest.fixture
def namespace(namespaces: Callable[[], Namespace]) -> Namespace:
    """Return one network namespace."""
    return namespaces()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs real programs, so that `-m "not integration"` needs no root; the longest go first."""
    tests_of = Counter(item.path for item in items)
    long = {item.path for item in items for mark in item.iter_markers("timeout") if mark.args[0] >= LONG_S}
    items.sort(key=lambda item: (item.path not in long, -tests_of[item.path]))
    for item in items:
        if "integration" in item.path.parts or "namespaces" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)


def pytest_configure(config: pytest.Config) -> None:
    """Judge failures where they are reported, not in the workers; repeat where the tests run."""
    config.pluginmanager.register(Repeats())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTry())
        config.pluginmanager.register(RepeatsTold())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say plainly when the machine can't run a test, instead of failing inside it."""
    if item.get_closest_marker("integration") and os.geteuid() != 0:
        pytest.fail("needs root for network namespaces (without: pytest -m 'not integration')")
