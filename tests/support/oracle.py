"""PowerDNS's own bind backend with the same zones: what it answers is what the live backend must answer."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from tests.support.pdns import Pdns
from tests.support.served import Served

_ASK = """
import json, sys, dns.flags, dns.message, dns.query, dns.rcode
asked = {}
for name, qtype in json.load(open(sys.argv[2])):
    question = dns.message.make_query(
        name, qtype, use_edns=0, payload=4096, flags=0, want_dnssec=sys.argv[3] == "True"
    )
    said, _ = dns.query.udp_with_fallback(question, sys.argv[1], timeout=30)
    sections = {
        title: sorted(line for rrset in getattr(said, title) for line in rrset.to_text().splitlines())
        for title in ("answer", "authority", "additional")
    }
    head = dns.rcode.to_text(said.rcode()) + " " + dns.flags.to_text(said.flags)
    asked[f"{name} {qtype}"] = {"head": head, **sections}
print(json.dumps(asked))
"""


def start_oracle(made: Served, zones: Sequence[str], *, signed: bool = False) -> Pdns:
    """Start a second PowerDNS in the same namespace, at 127.0.0.2, with copies of these zones as of now.

    With `signed` its bind backend can keep keys (`pdnsutil import-zone-key`).
    """
    made.namespace.ip("address", "add", "127.0.0.2/8", "dev", "lo")
    named = []
    for zone in zones:
        transferred = made.pdns.dig("+tcp", "+onesoa", "+noall", "+answer", zone, "AXFR")
        # PowerDNS reads no mnemonics where dig writes them.
        (made.folder / f"{zone}.copy").write_text(re.sub(r"(\sCERT\s+)PKIX\b", r"\g<1>1", transferred))
        named.append(f'zone "{zone}" {{ type master; file "{made.folder}/{zone}.copy"; }};\n')
    (made.folder / "named.conf").write_text("".join(named))
    oracle = Pdns(made.namespace, made.folder, "oracle", "127.0.0.2")
    config = oracle.folder / "pdns.conf"
    settings = re.sub(r"(?m)^(remote-.*|launch=.*)\n", "", config.read_text())
    own = f"launch=bind\nbind-config={made.folder}/named.conf\n"
    if signed:
        own += f"bind-dnssec-db={made.folder}/keys\n"
    config.write_text(settings + own)
    if signed:
        oracle.util("create-bind-db", f"{made.folder}/keys")
    oracle.start(zones[0])
    return oracle


def answers(
    made: Served, pdns: Pdns, questions: Sequence[tuple[str, str]], *, dnssec: bool = False
) -> dict[str, dict[str, Any]]:
    """A server's answers to every question: rcode and flags in `head`, and the three sections as lines."""
    file = made.folder / "questions"
    file.write_text(json.dumps(questions))
    command = [sys.executable, "-c", _ASK, pdns.address, str(file), str(dnssec)]
    done = made.namespace.run(*command, timeout_s=200)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found
