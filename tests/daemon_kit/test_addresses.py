"""Which addresses are this host's, in network namespaces."""

import sys

import pytest

from tests.support.namespaces import Namespace, own_namespace

ASK = """
import sys
from ipaddress import ip_address
from daemon_kit.addresses import is_on_this_host
print(*(text for text in sys.argv[1:] if is_on_this_host(ip_address(text))))
"""
OWN = ("10.53.0.1", "10.53.0.2", "10.54.0.1", "127.0.0.1", "127.3.4.5", "::1", "fd53::1", "fd53::2")
OTHERS = ("10.53.0.3", "10.53.0.255", "192.0.2.1", "fd53::3", "2001:db8::1")


@pytest.mark.parametrize("nonlocal_bind", [0, 1])
def test_address_of_another_host_is_not_own_even_if_sockets_can_be_bound_to_it(nonlocal_bind: int) -> None:
    """keepalived's hosts set ip_nonlocal_bind. A second address of a network has the first as its source."""
    with own_namespace() as host:
        host.give_address("10.53.0.1")
        for address in ("10.53.0.2/24", "10.54.0.1/32", "fd53::1/64", "fd53::2/64"):
            host.ip("address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
        for version in ("ipv4", "ipv6"):
            allow(host, version, nonlocal_bind)
        asked = host.run(sys.executable, "-c", ASK, *OWN, *OTHERS)
    assert tuple(asked.stdout.split()) == OWN, asked.stderr


def allow(host: Namespace, version: str, nonlocal_bind: int) -> None:
    done = host.run("sysctl", "-qw", f"net.{version}.ip_nonlocal_bind={nonlocal_bind}")
    assert done.returncode == 0, done.stderr
