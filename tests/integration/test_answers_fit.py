"""As many SRV records as rspdns.fitting computes are a whole answer at 512 bytes; one more is not."""

import re
import time
from pathlib import Path

import pytest
from rspdns import fitting

from tests.support.namespaces import Namespace

ZONES = ("ims.mnc001.mcc001.3gppnetwork.org", "example.net")
FAMILIES = {"ipv4": (1, 0), "ipv6": (0, 1), "dual": (1, 1), "multihomed": (3, 2)}


def owner(zone: str, family: str, count: int) -> str:
    return f"_sip._udp.{family}{count}.{zone}"


def target(zone: str, family: str, count: int, number: int) -> str:
    return f"{number:08x}.u.{family}{count}.{zone}"


def computed(zone: str, family: str) -> int:
    """How many fit; the names of the test are as long for every count below 10."""
    sizes = [fitting.srv_size(target(zone, family, 1, number), *FAMILIES[family]) for number in range(9)]
    return fitting.how_many(owner(zone, family, 1), sizes)


def zone_text(zone: str) -> str:
    lines = [f"$ORIGIN {zone}.", "$TTL 5", "@ SOA ns h 1 2 3 4 5", "@ NS ns", "ns A 127.0.0.1"]
    for family, (ipv4, ipv6) in FAMILIES.items():
        for count in range(1, 10):
            for number in range(count):
                name = target(zone, family, count, number)
                lines.append(f"{owner(zone, family, count)}. SRV 0 1000 5060 {name}.")
                lines += [f"{name}. A 10.0.{host}.{number}" for host in range(ipv4)]
                lines += [f"{name}. AAAA 2001:db8:{host}::{number}" for host in range(ipv6)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def pdns(namespace: Namespace, tmp_path: Path) -> Namespace:
    """PowerDNS with the zones as fixed ones."""
    for zone in ZONES:
        (tmp_path / zone).write_text(zone_text(zone))
    entries = (f'zone "{zone}" {{ type master; file "{tmp_path / zone}"; }};\n' for zone in ZONES)
    (tmp_path / "named.conf").write_text("".join(entries))
    (tmp_path / "pdns.conf").write_text(
        f"launch=bind\nbind-config={tmp_path}/named.conf\nsocket-dir={tmp_path}\nlocal-address=127.0.0.1\n"
    )
    namespace.start("pdns_server", f"--config-dir={tmp_path}", "--guardian=no", log=tmp_path / "log")
    deadline = time.monotonic() + 20
    while "NOERROR" not in namespace.run("dig", "@127.0.0.1", "+tries=1", "+time=1", ZONES[-1], "SOA").stdout:
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
    return namespace


def answer(namespace: Namespace, name: str, *options: str) -> tuple[int, bool]:
    """The number of answer records, and whether the answer was cut short."""
    said = namespace.run("dig", "@127.0.0.1", "+ignore", "+nocookie", *options, name, "SRV").stdout
    found = re.search(r"flags:([a-z ]*);.* ANSWER: (\d+)", said)
    assert found, said
    return int(found[2]), "tc" in found[1].split()


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("family", list(FAMILIES))
def test_as_many_records_as_are_computed_to_fit_are_answered_whole(
    pdns: Namespace, zone: str, family: str
) -> None:
    most = computed(zone, family)
    assert 1 <= most < 9
    for options in (["+noedns"], ["+edns=0", "+bufsize=512"]):
        assert answer(pdns, owner(zone, family, most), *options) == (most, False)
    assert answer(pdns, owner(zone, family, most + 1), "+edns=0", "+bufsize=512") == (0, True)
