"""Addresses of this host, as the kernel knows them."""

from ipaddress import ip_address

import pytest
from ppe_agent.addresses import NoLocalAddress, address_towards, is_on_this_host


def test_addresses_of_this_host() -> None:
    assert is_on_this_host(ip_address("127.0.0.1"))
    assert not is_on_this_host(ip_address("198.51.100.77"))
    assert not is_on_this_host(ip_address("2001:db8::77"))


def test_the_address_towards_another() -> None:
    assert address_towards("127.0.0.1", 3863) == ip_address("127.0.0.1")
    with pytest.raises(NoLocalAddress, match=r"no way to 255\.255\.255\.255: "):
        address_towards("255.255.255.255", 3863)
