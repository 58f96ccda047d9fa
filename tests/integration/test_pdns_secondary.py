"""A secondary that is told of a change (NOTIFY) transfers the zone, since the SOA is new at once."""

import sys
from pathlib import Path

import pytest

from tests.backend.making import FIXED, UDP, ZONE, member, view, views, zone
from tests.support.served import Served, served
from tests.support.waiting import until

PRIMARY, SECONDARY = "127.0.0.1", "127.0.0.2"
OWNER = f"_sip._udp.as.{ZONE}"
CHANGES = 5
SOON_S = 10.0
"""Without a NOTIFY that it heeds, a secondary is as old as the refresh of the SOA: 7,200 s."""

KNOT = """
server:
  listen: {secondary}@53
  rundir: {folder}
database:
  storage: {folder}
remote:
  - id: primary
    address: {primary}@53
acl:
  - id: told
    address: 127.0.0.0/8
    action: notify
zone:
  - domain: {zone}
    storage: {folder}
    master: primary
    acl: told
"""
BIND = """
options {{ directory "{folder}"; pid-file "{folder}/pid"; session-keyfile "{folder}/session";
  listen-on {{ {secondary}; }}; listen-on-v6 {{ none; }}; recursion no;
  dnssec-validation no; allow-notify {{ 127.0.0.0/8; }}; }};
controls {{ }};
zone "{zone}" {{ type secondary; primaries {{ {primary}; }}; file "{folder}/zone"; }};
"""
CONFIGURATIONS = {"knotd": (KNOT, ["-c"]), "named": (BIND, ["-g", "-c"])}

NOTIFY = """
import sys
import dns.flags, dns.message, dns.opcode, dns.query
told = dns.message.make_query(sys.argv[1], "SOA")
told.set_opcode(dns.opcode.NOTIFY)
told.flags |= dns.flags.AA
dns.query.udp(told, sys.argv[2], timeout=5)
"""


def said(now: Served, address: str) -> list[str]:
    """The targets that the name server at this address answers."""
    done = now.namespace.run("dig", f"@{address}", "+norec", "+short", "+tries=1", "+time=1", OWNER, "SRV")
    return sorted(line.split()[3] for line in done.stdout.splitlines() if not line.startswith(";"))


@pytest.mark.parametrize("program", CONFIGURATIONS)
def test_secondary_that_is_told_of_a_change_is_right_soon(tmp_path: Path, program: str) -> None:
    folder = tmp_path / program
    folder.mkdir()
    text, options = CONFIGURATIONS[program]
    values = {"folder": folder, "zone": ZONE, "primary": PRIMARY, "secondary": SECONDARY}
    (folder / "conf").write_text(text.format(**values))
    with served([zone(UDP, FIXED)], views(view(member(1), member(100))), tmp_path) as now:
        now.namespace.ip("address", "add", f"{SECONDARY}/8", "dev", "lo")  # BIND listens at no others
        now.namespace.start(program, *options, str(folder / "conf"), log=folder / "log")
        until(lambda: len(said(now, SECONDARY)) == 2, SOON_S, lambda: (folder / "log").read_text())
        for number in range(2, 2 + CHANGES):
            said(now, PRIMARY)
            now.pdns.short(ZONE, "SOA")  # PowerDNS has the old one in its caches
            now.backend.publish(views(view(member(number), member(100))))
            right = sorted(f"{identifier:08x}.u.as.{ZONE}." for identifier in (number, 100))
            until(lambda right=right: said(now, PRIMARY) == right, SOON_S)  # type: ignore[misc]
            now.namespace.run(sys.executable, "-c", NOTIFY, ZONE, SECONDARY)
            until(lambda right=right: said(now, SECONDARY) == right, SOON_S)  # type: ignore[misc]
