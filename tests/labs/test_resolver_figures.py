"""The results of `rspdns-lab resolvers` from the answers to a client."""

import shutil

import pytest
from rspdns_lab.errors import LabError
from rspdns_lab.observe.verdict import Kind, Observation
from rspdns_lab.resolvers.run import Delay, ResolverLab, asked_per_s, last_ms, summed_up

MARKS = ("10.53.0.32", "0badcafe")


def answer(at_s: float, *names: str, kind: Kind = Kind.ANSWER) -> Observation:
    return Observation(0, 0, True, at_s - 0.01, at_s, kind, frozenset(names))


def test_the_last_answer_counts_that_names_the_server_by_address_or_target() -> None:
    seen = [
        answer(10.1, "10.53.0.31", "10.53.0.32"),
        answer(10.4, "10.53.0.31", "0badcafe.u.as.demo.example."),
        answer(10.6, "10.53.0.31"),
        answer(10.9, kind=Kind.SERVFAIL),
    ]
    assert last_ms(seen, 10.0, MARKS, named=True) == 400.0
    assert last_ms(seen, 10.0, MARKS, named=False) == 600.0
    assert last_ms(seen[:1], 10.0, MARKS, named=False) == 0.0


def test_figures_of_all_changes() -> None:
    found = [
        Delay("name-server", 1, False, 6.0, 7.0, 40.0),
        Delay("kresd", 1, False, 5000.0, 40.0),
        Delay("kresd", 2, False, 100.0, 4000.0),
        Delay("kresd", 3, False, 900.0, 50.0),
        Delay("kresd", 1, True, 20.0, 30.0),
    ]
    assert asked_per_s(found, is_told=False) == 40.0
    assert asked_per_s(found, is_told=True) is None
    assert summed_up(found, is_told=True)["kresd"]["gone_max_ms"] == 20.0
    assert summed_up(found[1:], is_told=False) == {
        "kresd": {
            "changes": 3.0,
            "gone_p50_ms": 900.0,
            "gone_max_ms": 5000.0,
            "back_p50_ms": 50.0,
            "back_max_ms": 4000.0,
        }
    }


def test_a_resolver_that_is_not_installed_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **more: None if name == "kresd" else found(name, **more)
    )
    with pytest.raises(LabError, match="missing: kresd; install them: apt-get install knot-resolver"):
        ResolverLab(["unbound", "kresd"], is_told=False)
