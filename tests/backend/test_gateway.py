"""The gateway of a cell: what it offers above, when that is news, and its configuration."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from pool_user import BeliefChange, Member, weights
from rserpool.policies import LeastUsed, LeastUsedDegradation, Policy, WeightedRandom
from rspdns.gateway import service
from rspdns.gateway.configuration import load_gateway
from rspdns.gateway.offer import Offer, offer_of

from rserpool import ElementEvent, ElementEventKind, PoolElementClient, Protocol, RegistrarAddress
from tests.backend.making import NOW, member, view
from tests.support.namespaces import REPOSITORY

EXAMPLE = REPOSITORY / "backend/examples/gateway.toml"


def servers(*policies: Policy, port: int = 5060) -> list[Member]:
    return [member(number, policy=policy, port=port) for number, policy in enumerate(policies, 1)]


def offered(*members: Member) -> Offer:
    found = offer_of([view(*members)])
    assert isinstance(found, Offer), found
    return found


def test_load_is_the_mean_and_capacity_the_number_of_servers() -> None:
    found = offered(*servers(LeastUsed(0.2), LeastUsed(0.4), LeastUsed(0.9)))
    assert (found.members, found.capacity) == (3, 3.0)
    assert found.load == pytest.approx(0.5)
    assert found.policy == LeastUsedDegradation(found.load, 1 / 3)


def test_registered_weights_are_the_capacity() -> None:
    assert offered(*servers(WeightedRandom(300), WeightedRandom(100))).capacity == 400


def test_port_is_that_of_most_servers() -> None:
    found = offered(*servers(LeastUsed(0), LeastUsed(0)), replace(member(9), port=5070))
    assert (found.protocol, found.port, found.members) == (Protocol.UDP, 5060, 3)


def test_standing_port_stays_while_no_other_has_more_servers() -> None:
    at = [replace(member(number), port=port) for number, port in enumerate((5060, 5070, 5070, 5060), 1)]
    assert offered(*at).port == 5060
    before = replace(offered(*at), port=5070)
    for members, port in ((at, 5070), (at[:2], 5070), (at[2:], 5070), ([at[0], *at[2:]], 5060)):
        found = offer_of([view(*members)], before)
        assert isinstance(found, Offer)
        assert found.port == port


def test_shards_are_one_offer() -> None:
    both = [view(*servers(LeastUsed(0.0))), view(*servers(LeastUsed(1.0)), handle="sip-udp-2")]
    found = offer_of(both)
    assert isinstance(found, Offer)
    assert (found.capacity, found.load) == (2, 0.5)


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (view(), "no server of the cell is in"),
        (view(*servers(LeastUsed(0.0)), stale_since_s=NOW), "no registrar of the cell vouches"),
        (replace(view(), known=False), "no registrar of the cell has told"),
    ],
)
def test_nothing_is_offered_by_an_empty_stale_or_unknown_pool(pool, why: str) -> None:  # type: ignore[no-untyped-def]
    assert why in str(offer_of([pool]))


@pytest.mark.parametrize(
    ("load", "capacity", "is_news"),
    [(0.54, 100.0, False), (0.55, 100.0, True), (0.5, 96.0, False), (0.5, 95.0, True), (0.5, 105.0, True)],
)
def test_five_percent_are_news(load: float, capacity: float, is_news: bool) -> None:
    before = Offer(Protocol.UDP, 5060, 100, 100.0, 0.5)
    assert replace(before, load=load, capacity=capacity).is_news(before) is is_news


def test_weights_above_follow_what_each_cell_has_free() -> None:
    large, small = (
        Offer(Protocol.UDP, 5060, 300, 300.0, 0.5).policy,
        Offer(Protocol.UDP, 5060, 100, 100.0, 0.25).policy,
    )
    weighed = weights.weigh({"a": member(1, policy=large), "b": member(2, policy=small)}, {}, NOW)
    assert weighed["a"].weight / weighed["b"].weight == pytest.approx(150 / 75)


def test_loads_of_thousands_of_servers_are_added_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    def look(views: object, _before: object) -> str:
        looks.append(views)
        return "nothing yet"

    monkeypatch.setattr(service, "offer_of", look)

    async def play() -> None:
        gateway = service.CellGateway(load_gateway(EXAMPLE))
        for _ in range(1000):
            gateway._changed(BeliefChange({}, {}))
        assert len(looks) == 1, "the first change waits for nothing"
        await asyncio.sleep(3 * service.LOOK_EVERY_S)

    asyncio.run(play())
    assert len(looks) == 2


def test_example_is_right() -> None:
    command = [sys.executable, "-m", "rspdns.cli", "gateway", "check", "-c", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sip-as-udp -> sip-as-udp above, as 10.1.0.31" in done.stdout


def test_every_error_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    text = EXAMPLE.read_text()
    text = text.replace('"10.0.0.11"', '"10.1.0.11"').replace('"10.1.0.31"', '"127.0.0.1"')
    text = text.replace("\naddress", '\nlast_choice = ["10.0.0.99", "10.0.0.12"]\naddress')
    more = '\n[[pool]]\nhandle = "other"\nupper_handle = "sip-as-udp"\naccept = ["10.1.0.0/16"]\n'
    file.write_text(text + more + '[[pool]]\naccept = ["10.1.0.0/16"]\n')
    with pytest.raises(ConfigurationErrors) as refused:
        load_gateway(file)
    told = str(refused.value)
    for words in (
        "10.1.0.11 is one of the cell's registrars",
        "registrars take no loopback",
        "10.0.0.99 is none of upper_registrars",
        "pool[0] is in the upper pool 'sip-as-udp' already",
        "needs either handle or handles",
    ):
        assert words in told, told


def test_last_choice_must_leave_a_first_choice(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    all_of_them = 'last_choice = ["10.0.0.11", "10.0.0.12", "10.0.0.13"]\n'
    file.write_text(all_of_them + EXAMPLE.read_text())
    with pytest.raises(ConfigurationErrors, match="names all upper_registrars"):
        load_gateway(file)


def test_registrars_are_the_same_with_their_port_and_without(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    text = 'last_choice = ["10.0.0.11:3863"]\n' + EXAMPLE.read_text()
    file.write_text(text)
    assert load_gateway(file).last_addresses == (RegistrarAddress("10.0.0.11"),)
    file.write_text(text.replace('"10.1.0.12"', '"10.0.0.12:3863"'))
    with pytest.raises(ConfigurationErrors, match=r"10\.0\.0\.12 is one of the cell's registrars"):
        load_gateway(file)


@pytest.mark.parametrize(
    ("upper", "last_choice", "words"),
    [
        ('"10.0.0.11"', '[["10.0.0.11"]]', "last_choice[0]: must be text"),
        ('{ host = "10.0.0.11" }', '["10.0.0.12"]', "upper_registrars[0]: must be text"),
    ],
)
def test_registrar_that_is_no_text_is_told_with_its_line(
    tmp_path: Path, upper: str, last_choice: str, words: str
) -> None:
    file = tmp_path / "gateway.toml"
    text = EXAMPLE.read_text().replace('# last_choice = ["10.0.0.11"]', f"last_choice = {last_choice}")
    file.write_text(text.replace('"10.0.0.11", ', f"{upper}, "))
    with pytest.raises(ConfigurationErrors) as refused:
        load_gateway(file)
    assert words in str(refused.value)
    assert "gateway.toml:" in str(refused.value)


async def test_last_choice_is_left_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RETURN_AFTER_S", 0.0)
    file = tmp_path / "gateway.toml"
    file.write_text('last_choice = ["10.0.0.11"]\n' + EXAMPLE.read_text())
    config = load_gateway(file)
    left: list[RegistrarAddress | None] = []
    last, other = RegistrarAddress("10.0.0.11"), RegistrarAddress("10.0.0.12")

    class Client(PoolElementClient):
        registrar: RegistrarAddress | None = None

        def leave_registrar(self, reason: str) -> None:
            left.append(self.registrar)

        def want(self, wanted: bool) -> None: ...

    monkeypatch.setattr(service, "PoolElementClient", Client)
    element = service.UpperElement(config, config.pools[0])
    element.take(Offer(Protocol.UDP, 5060, 3, 3.0, 0.5), NOW)
    for registrars, expected in (
        ([other], []),
        ([last], [last]),
        ([last, last], [last]),
        ([last, other], []),
        ([other, last], [last]),
    ):
        left.clear()
        for registrar in registrars:
            Client.registrar = registrar
            element._happened(ElementEvent(ElementEventKind.REGISTERED, 0.0, registrar))
        await asyncio.sleep(0.01)
        assert left == expected, registrars
