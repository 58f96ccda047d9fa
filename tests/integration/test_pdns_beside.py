"""The pool zone beside another backend that holds the parent, in one PowerDNS."""

from pathlib import Path

from pdns_config.render import Beside

from tests.backend.making import UDP, ZONE, member, view, views, zone
from tests.support.served import served, status
from tests.support.waiting import until

PARENT = ZONE.partition(".")[2]
OWNER = f"_sip._udp.as.{ZONE}"
TEXT = f"""$ORIGIN {PARENT}.
$TTL 3600
@ SOA ns1 h 1 2 3 4 5
@ NS ns1
ns1 A 127.0.0.1
www A 10.0.1.80
ims NS ns1.ims
ns1.ims A 10.0.1.1
"""


def test_each_backend_answers_for_its_own_zone(tmp_path: Path) -> None:
    (tmp_path / "parent.zone").write_text(TEXT)
    named = tmp_path / "named.conf"
    named.write_text(f'zone "{PARENT}" {{ type master; file "{tmp_path}/parent.zone"; }};\n')
    beside = Beside("bind", [("bind-config", str(named))])
    with served([zone(UDP)], views(view(member(1))), tmp_path, beside=beside) as made:
        pdns = made.pdns
        until(lambda: pdns.short(f"www.{PARENT}", "A") == ["10.0.1.80"])
        assert len(pdns.short(OWNER, "SRV")) == 1
        assert status(pdns.dig(f"nobody.{ZONE}", "A")) == "NXDOMAIN"
        assert status(pdns.dig(f"nobody.{PARENT}", "A")) == "NXDOMAIN"
        made.backend.publish(views(view(member(1), member(2))))
        until(lambda: len(pdns.short(OWNER, "SRV")) == 2)
