"""How labs find the application servers' addresses: SRV, then the addresses of each target."""

from collections.abc import Callable

import dns.message
import dns.rdatatype

from rspdns_lab.chain.plan import SRV_OWNER


def look_up(ask: Callable[[dns.message.Message], dns.message.Message]) -> set[str]:
    """Return all addresses that somebody finds who asks by `ask`. Raises what that raises."""
    found: set[str] = set()
    questions = [(SRV_OWNER, "SRV")]
    while questions:
        reply = ask(dns.message.make_query(*questions.pop()))
        for rrset in reply.answer:
            for record in rrset:
                if record.rdtype == dns.rdatatype.SRV:
                    questions.append((record.target.to_text(), "A"))
                elif record.rdtype == dns.rdatatype.A:
                    found.add(record.address)
    return found
