"""What is found before rspregistrar is started, each in one line."""

import os
import sys

import pytest
from daemon_kit.errors import FatalError
from registrar_config.options import Endpoint, RegistrarSettings
from registrar_config.preflight import check_ports, find_program, local_addresses

from tests.support.namespaces import Namespace


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.4.5", "::1", "169.254.1.1", "fe80::1"])
def test_addresses_that_rspregistrar_passes_over_are_refused_with_a_remedy(address: str) -> None:
    settings = RegistrarSettings(Endpoint.parse(address, 3863), Endpoint.parse(address, 9901))
    with pytest.raises(FatalError, match=r"loopback and link-local .* ip address add") as error:
        check_ports(settings)
    assert "\n" not in str(error.value)


def test_a_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(FatalError, match=r"rspregistrar-x is not installed .*rsplib-registrar"):
        find_program("rspregistrar-x")


OWN_ADDRESS = "from registrar_config.preflight import own_address; print(own_address())"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace")
@pytest.mark.parametrize("address", ["10.255.255.1/32", "192.0.2.200/24"])
def test_an_address_is_found_without_any_route(namespace: Namespace, address: str) -> None:
    done = namespace.run(sys.executable, "-c", OWN_ADDRESS)
    assert "ip address add 10.255.255.1/32 dev lo" in done.stderr
    assert "127.0.0.1" in done.stderr
    namespace.ip("address", "add", address, "dev", "lo")
    assert namespace.run(sys.executable, "-c", OWN_ADDRESS).stdout.strip() == address.partition("/")[0]


def test_nothing_but_local_addresses_is_read_from_the_table() -> None:
    table = """Local:
  +-- 0.0.0.0/0 3 0 5
           |-- 10.255.255.1
              /32 host LOCAL
        +-- 192.0.2.0/24 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.9
              /32 host LOCAL
           |-- 192.0.2.255
              /32 link BROADCAST
"""
    assert local_addresses(table * 2) == ["10.255.255.1", "192.0.2.9"]
    assert local_addresses("") == []
