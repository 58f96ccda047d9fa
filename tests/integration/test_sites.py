"""A pool at two sites, on real registrars and PowerDNS: the other site takes over, by itself and by hand."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL
from tests.support.chain import Chain
from tests.support.members import Members
from tests.support.namespaces import REPOSITORY, own_namespace
from tests.support.pages import blocks
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "sites.md").read_text()
OTHER = "10.99.0.2"
NAME = OWNER.removeprefix("_sip._udp.")
BACK_S = 3
EU, US = range(1, 5), range(5, 9)
"""The PE identifiers of the servers at each site; port 5000 and the identifier."""


def example(language: str, table: str) -> str:
    """The lines of the page, with the networks of this test."""
    (text,) = (block for block in blocks(PAGE, language) if block.startswith(table))
    return text.replace("10.1.0.0/16", f"{ADDRESS}/32").replace("10.2.0.0/16", f"{OTHER}/32")


class TwoSites:
    """The chain with four servers at each site."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        chain.namespace.ip("address", "add", f"{OTHER}/24", "dev", "eth0")
        keys = re.findall(r"^(?:order|min_in|back_after_s) .*$", example("toml", "[[pool]]"), re.MULTILINE)
        text = "\n".join(keys).replace("back_after_s = 60", f"back_after_s = {BACK_S}")
        assert len(keys) == 3
        pool = POOL.replace(f'"{ADDRESS}/32"', '"10.99.0.0/24"')
        config = chain.backend.config.read_text()
        chain.backend.config.write_text(config + example("toml", "[[site]]"))
        chain.backend.write_zone(f'{pool}answers = "all"\n{text}\n')
        registrars = chain.registrars.addresses
        self.members = {
            "eu": Members(chain.namespace, chain.folder, ADDRESS, registrars, "eu"),
            "us": Members(chain.namespace, chain.folder, OTHER, registrars, "us"),
        }
        for site, identifiers in (("eu", EU), ("us", US)):
            for identifier in identifiers:
                self.members[site].add(identifier, HANDLE, 5000 + identifier)
        chain.start()

    def rewrite(self, before: str, after: str) -> None:
        """Change the zone's file, and have it read."""
        zone = next((self.chain.folder / "zones.d").glob("*.toml"))
        text = zone.read_text()
        assert before in text
        zone.write_text(text.replace(before, after))
        done = self.chain.backend.command("reload")
        assert done.returncode == 0, done.stderr

    def priorities(self, *options: str) -> dict[int, int]:
        """The SRV priority of each server in the answer, by identifier."""
        lines = (line.split() for line in self.chain.pdns.short(OWNER, "SRV", *options))
        return {int(words[2]) - 5000: int(words[0]) for words in lines}

    def first(self, *options: str) -> set[int]:
        """The servers of the best priority in the answer."""
        found = self.priorities(*options)
        return {identifier for identifier, priority in found.items() if priority == min(found.values())}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoSites]:
    with own_namespace() as namespace:
        yield TwoSites(Chain(namespace, tmp_path_factory.mktemp("sites"), near=True))


def test_the_other_site_takes_over_when_too_few_are_left_and_hands_back_after_a_while(
    sites: TwoSites,
) -> None:
    chain, eu = sites.chain, sites.members["eu"]
    until(lambda: sites.priorities().keys() == {*EU, *US}, 40, chain.backend.log)
    assert sites.first() == set(EU)
    assert chain.pdns.short(NAME, "A") == [ADDRESS]
    eu.remove(1)
    until(lambda: sites.priorities().keys() == {2, 3, 4, *US})
    eu.remove(2)
    until(lambda: sites.priorities().keys() == {3, 4, *US})
    assert sites.first() == {3, 4}, "two are enough"
    began_s = time.monotonic()
    eu.remove(3)
    until(lambda: sites.priorities().keys() == {4, *US}, every_s=0.002)
    assert sites.first() == set(US), "in the very answer that lacks the third"
    print(f"the other site was first after {1000 * (time.monotonic() - began_s):.0f} ms")
    until(lambda: chain.pdns.short(NAME, "A") == [OTHER])
    (site, _) = chain.backend.pool()["sites"]
    assert (site["name"], site["rank"], site["members"], site["enough"]) == ("eu", 1, 1, False)
    assert "site eu: rank 1, 1 in" in chain.backend.command("status").stdout
    metrics = chain.namespace.run("curl", "-sS", "http://127.0.0.1:8054/metrics").stdout
    assert f'rspdns_site_rank{{owner="{OWNER}",site="us"}} 0.0' in metrics
    for identifier in (1, 2, 3):
        eu.add(identifier, HANDLE, 5000 + identifier)
    until(lambda: sites.priorities().keys() == {*EU, *US})
    back_s = time.monotonic()
    assert sites.first() == set(US)
    until(lambda: sites.first() == set(EU), 20, chain.backend.log)
    assert time.monotonic() - back_s > BACK_S / 2


def test_an_administrator_switches_a_site_by_a_command(sites: TwoSites) -> None:
    chain = sites.chain
    until(lambda: sites.first() == set(EU), 20)
    done = chain.backend.command("override", "site", "eu", "down", "--reason", "power works", "--for", "1h")
    assert done.returncode == 0, done.stderr
    until(lambda: sites.priorities().keys() == set(US))
    until(lambda: chain.pdns.short(NAME, "A") == [OTHER])
    assert chain.backend.pool()["missing"] == 0
    assert "site:eu down" in chain.backend.command("override", "list").stdout
    assert chain.backend.command("override", "clear", "--all").returncode == 0
    until(lambda: sites.first() == set(EU), 20, chain.backend.log)
    done = chain.backend.command("override", "site", "eu", "drain", "--reason", "power works")
    assert done.returncode == 0, done.stderr
    until(lambda: sites.priorities().keys() == set(US))
    until(lambda: chain.pdns.short(NAME, "A") == [OTHER])
    target = chain.pdns.short("00000001.u." + NAME, "A")
    assert target == [ADDRESS], "calls that are up find their server"
    refused = chain.backend.command("override", "site", "mars", "down", "--reason", "x")
    assert refused.returncode != 0
    assert "no [[site]] has the name 'mars'; there is eu, us" in refused.stderr
    assert chain.backend.command("override", "clear", "--all").returncode == 0
    until(lambda: sites.first() == set(EU), 20, chain.backend.log)


def test_a_site_with_high_load_hands_a_part_of_the_calls_on(sites: TwoSites) -> None:
    chain, eu = sites.chain, sites.members["eu"]
    until(lambda: sites.first() == set(EU), 20)
    sites.rewrite("min_in", "spill_at = 0.8\nspill_back = 0.6\nmin_in")
    for identifier in EU:
        eu.set_load(identifier, 0.9)
    until(lambda: sites.first() == {*EU, *US}, 20, chain.backend.log)
    assert chain.backend.pool()["sites"][0]["spilling"]
    for identifier in EU:
        eu.set_load(identifier, 0.7)
    time.sleep(2)
    assert sites.first() == {*EU, *US}, "it does not swing"
    for identifier in EU:
        eu.set_load(identifier, 0.2)
    until(lambda: sites.first() == set(EU), 20, chain.backend.log)


def test_bad_sites_are_refused_at_a_reload_and_nothing_changes(sites: TwoSites) -> None:
    chain = sites.chain
    good = chain.backend.config.read_text()
    chain.backend.config.write_text(good.replace(f"{OTHER}/32", "10.99.0.0/24"))
    try:
        refused = chain.backend.command("reload")
        assert refused.returncode == 1
        assert "rspdns.toml:" in refused.stderr
        assert "overlaps a network of the site 'eu'" in refused.stderr
        assert sites.priorities().keys() == {*EU, *US}
    finally:
        chain.backend.config.write_text(good)


def test_near_site_is_first_for_its_askers_whoever_asked_before(sites: TwoSites) -> None:
    near_us = "+subnet=192.0.2.7/32"
    until(lambda: sites.first() == set(EU), 20, sites.chain.backend.log)
    sites.rewrite("min_in", 'near = { "192.0.2.0/24" = ["us"] }\nmin_in')
    try:
        until(lambda: sites.first(near_us) == set(US), 20)
        for _ in range(2):
            assert sites.first() == set(EU), "nothing is known of dig but its own address"
            assert sites.first("+subnet=192.0.3.7/32") == set(EU)
            assert sites.first(near_us) == set(US)
            assert sites.chain.pdns.short(NAME, "A", near_us) == [OTHER]
            assert sites.chain.pdns.short(NAME, "A") == [ADDRESS]
        for question in ((OWNER, "SRV"), (NAME, "A")):
            assert "CLIENT-SUBNET: 192.0.2.7/32/24" in sites.chain.pdns.dig(*question, near_us)
        sites.rewrite("192.0.2.0/24", "127.0.0.0/8")
        until(lambda: sites.first() == set(US), 20)
        assert sites.first(near_us) == set(EU)
    finally:
        sites.rewrite('near = { "127.0.0.0/8" = ["us"] }\n', "")


def test_affinity_shows_each_asker_its_server_first(sites: TwoSites) -> None:
    until(lambda: sites.first() == set(EU), 20, sites.chain.backend.log)
    sites.rewrite('answers = "all"', 'affinity = "asker"')
    askers = [f"+subnet=192.0.2.{number}/32" for number in range(1, 25)]
    try:
        until(lambda: len(sites.first(askers[0])) == 1, 20)
        before = {asker: sites.first(asker) for asker in askers}
        assert before == {asker: sites.first(asker) for asker in askers}
        assert set.union(*before.values()) == set(EU)
        sites.members["eu"].remove(1)
        until(lambda: 1 not in sites.priorities(askers[0]), 20)
        after = {asker: sites.first(asker) for asker in askers}
        moved = {asker for asker in askers if before[asker] != after[asker]}
        assert moved == {asker for asker in askers if before[asker] == {1}}
    finally:
        sites.members["eu"].add(1, HANDLE, 5001)
        sites.rewrite('affinity = "asker"', 'answers = "all"')
