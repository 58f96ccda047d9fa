"""Zone transfers (AXFR) with TSIG: the present snapshot, whole or not at all."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.backend.making import FIXED, UDP, ZONE, member, view, views, zone
from tests.support.served import Served, served
from tests.support.waiting import until

SECRET = "bm90IHNvIHNlY3JldCBpbiBoZXJlIQ=="  # noqa: S105 - made up
THREE = views(view(*(member(number) for number in (1, 2, 3))))


@dataclass
class Transfer:
    """A PowerDNS for signed zones: only then it asks for TSIG keys. No client may transfer without."""

    served: Served

    def records(self, secret: str = SECRET) -> list[str]:
        """The records that are transferred with this key."""
        key = f"hmac-sha256:transfer:{secret}"
        said = self.served.pdns.dig("+tcp", "+onesoa", "+noall", "+answer", "-y", key, ZONE, "AXFR")
        lines = [" ".join(line.split()) for line in said.splitlines()]
        return [line for line in lines if " IN " in line and line[0] != ";"]


@pytest.fixture(scope="module")
def transfer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transfer]:
    folder = tmp_path_factory.mktemp("transfer")
    with served([zone(UDP, FIXED)], THREE, folder, signed=True, axfr=()) as made:
        made.pdns.util("import-tsig-key", "transfer", "hmac-sha256", SECRET)
        made.pdns.util("activate-tsig-key", ZONE, "transfer", "primary")
        both = Transfer(made)
        until(lambda: any("_sip._udp" in line for line in both.records()))
        yield both


def test_a_transfer_with_tsig_is_the_present_snapshot(transfer: Transfer) -> None:
    assert "Transfer failed" in transfer.served.pdns.dig("+tcp", ZONE, "AXFR")
    assert transfer.records(SECRET.swapcase()) == []
    transfer.served.backend.publish(views(view(member(42))))
    now = transfer.records()
    assert f"_sip._udp.as.{ZONE}. 1 IN SRV 0 1000 5060 0000002a.u.as.{ZONE}." in now
    assert not any("00000003.u.as" in line for line in now), "who left is not in it"


def test_largest_zone_is_transferred(transfer: Transfer) -> None:
    """PowerDNS parses the growing reply again and again within its timeout; `-s` shows where it gives up."""
    whole = 1  # as the test before left it
    for count in (500, 1000, 2000, 4000, 8000):
        everyone = [member(number, f"10.0.{number >> 8}.{number & 255}") for number in range(count)]
        transfer.served.backend.publish(views(view(*everyone)))
        targets = -1
        while targets in (-1, whole):  # so large a snapshot is published after a rest
            began_s = time.monotonic()
            targets = sum(" A " in line and ".u.as." in line for line in transfer.records())
            took_s = time.monotonic() - began_s
        print(f"\n{count} members: {targets} transferred in {took_s:.2f} s")
        assert targets in (0, count), "a part that looks like the whole"
        if not targets:
            break
        whole = count
    assert whole >= 500
