"""How many servers registrars bear: the rule, and how `render` and `check` put it to the operator."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from registrar_config import cli
from registrar_config.cli import main
from registrar_config.options import RegistrarSettings, arguments
from registrar_config.sizing import (
    MOST_BUSY,
    most_elements,
    registrars_for,
    registrars_for_bursts,
    size,
)

INVENTORY = """
{keys}
[[registrar]]
name = "r1"
address = "10.0.0.1"
[[registrar]]
name = "r2"
address = "10.0.0.2"
[[registrar]]
name = "r3"
address = "{third}"
"""


def written(folder: Path, keys: str, third: str = "10.0.0.3") -> str:
    path = folder / "inventory.toml"
    path.write_text(INVENTORY.format(keys=keys, third=third))
    return str(path)


def test_the_measured_sizes_are_what_the_rule_gives() -> None:
    """5,000 at 300 ms and 10,000 at 700 ms were measured with three registrars: nothing was lost."""
    assert size(5000, 3, 2000).keep_alive_ms == 300
    assert 700 <= size(10_000, 3, 2000).keep_alive_ms < 1200


def test_servers_whose_burst_outlasts_the_timeout_need_more_registrars() -> None:
    assert size(10_000, 3, 2000).bursts_fit
    rare_ms = 20_000
    crowded = size(30_000, 3, rare_ms)
    assert crowded.fits
    assert not crowded.bursts_fit
    enough = registrars_for_bursts(30_000)
    assert enough > 3
    assert size(30_000, enough, rare_ms).bursts_fit
    assert not size(30_000, enough - 1, rare_ms).bursts_fit


def test_few_servers_are_asked_as_often_as_rspregistrar_can() -> None:
    found = size(1000, 3, 2000)
    assert (found.keep_alive_ms, found.detection_ms, found.fits) == (300, 800, True)
    assert found.busy < 0.2


def test_many_servers_are_asked_less_often() -> None:
    found = size(10_000, 3, 2000)
    assert 300 < found.keep_alive_ms < 2000
    assert found.fits
    assert found.busy == pytest.approx(MOST_BUSY, abs=0.01)


def test_more_servers_never_mean_more_keep_alives() -> None:
    intervals = [size(elements, 3, 2000).keep_alive_ms for elements in range(100, 16_000, 100)]
    assert intervals == sorted(intervals)
    assert all(size(elements, 3, 2000).fits for elements in range(100, 16_000, 100))


@pytest.mark.parametrize("registrars", [3, 4, 5, 9])
def test_most_elements_is_where_the_interval_begins_to_grow(registrars: int) -> None:
    most = most_elements(registrars, 2000)
    assert size(most, registrars, 2000).keep_alive_ms == 300
    assert size(most + 50, registrars, 2000).keep_alive_ms > 300
    assert registrars_for(most, 2000) == registrars


def test_registrations_alone_can_be_too_many() -> None:
    assert not size(25_000, 3, 2000).fits
    assert size(25_000, 3, 6000).fits
    assert registrars_for(25_000, 2000) is None, "every registrar hears of every registration"


def test_render_writes_the_interval_and_says_what_it_means(tmp_path: Path) -> None:
    inventory, output = written(tmp_path, "expected_elements = 10_000"), tmp_path / "out"
    done = CliRunner().invoke(main, ["render", inventory, "--output", str(output)])
    assert done.exit_code == 0, done.output
    text = (output / "r2" / "registrar-r2.env").read_text()
    interval_ms = size(10_000, 3, 2000).keep_alive_ms
    assert f" --keep-alive-ms={interval_ms}\n" in text
    assert f"out after {interval_ms + 500} ms at most" in text
    assert f"can ask 10,000 servers every {interval_ms} ms only" in done.output


def test_check_warns_where_the_registrars_are_too_few_or_registrations_too_many(tmp_path: Path) -> None:
    def checked(keys: str, third: str = "10.0.0.3") -> str:
        done = CliRunner().invoke(main, ["check", written(tmp_path, keys, third)])
        assert done.exit_code == 0, done.output
        return done.output

    assert "each is asked every 300 ms" in checked("expected_elements = 500")
    assert "warning" not in checked("expected_elements = 500")
    assert "expected_elements is not given: these registrars bear" in checked("")
    number = registrars_for(6000, 2000)
    assert f"; {number} registrars can ask every 300 ms" in checked("expected_elements = 6000")
    said = checked("expected_elements = 50_000")
    assert "too many for one thread of rspregistrar; set agent_reregistration_ms here" in said
    assert "is asked every" not in said
    advised = registrars_for_bursts(30_000)
    assert f"run {advised} registrars" in checked(
        "agent_reregistration_ms = 20_000\nexpected_elements = 30_000"
    )
    assert "share a machine" in checked("expected_elements = 3000", "10.0.0.1")


def test_the_interval_that_check_advises_is_enough(tmp_path: Path) -> None:
    advised = "agent_reregistration_ms = 8000\nexpected_elements = 50_000"
    assert "too many" not in CliRunner().invoke(main, ["check", written(tmp_path, advised)]).output


@pytest.mark.parametrize(
    ("options", "expected_ms"), [([], 300), (["--keep-alive-ms=1750", "--patience=10"], 1750)]
)
def test_run_starts_rspregistrar_with_the_interval(
    options: list[str], expected_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def settings(*given: Any, **more: Any) -> RegistrarSettings:
        started.append(arguments(RegistrarSettings(*given, **more)))
        return RegistrarSettings(*given, **more)

    monkeypatch.setattr(cli, "RegistrarSettings", settings)
    monkeypatch.setattr(cli, "run_service", lambda _, **__: 0)
    done = CliRunner().invoke(main, ["run", "--number=1", "--address=10.0.0.1", "--peer=10.0.0.2", *options])
    assert done.exit_code == 0, done.output
    assert f"-endpointkeepalivetransmissioninterval={expected_ms}" in started[0]


def test_an_inventory_that_is_wrong_ends_check_with_its_errors(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["check", written(tmp_path, "expected_elements = 0")])
    assert done.exit_code == 1
    assert "expected_elements" in done.output
