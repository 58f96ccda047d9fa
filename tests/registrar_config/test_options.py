"""The options that rspregistrar is started with."""

from ipaddress import ip_address

import pytest
from registrar_config.embedded import embedded_commands, embedded_registrars, embedded_settings
from registrar_config.options import (
    TIMERS_MS,
    RegistrarSettings,
    SctpEndpoint,
    arguments,
    patient_timers_ms,
    without_own,
)


def settings(address: str = "10.0.0.1") -> RegistrarSettings:
    return RegistrarSettings(
        SctpEndpoint.parse(address, 3863),
        SctpEndpoint.parse(address, 9901),
        (SctpEndpoint.parse("10.0.0.2", 9901), SctpEndpoint.parse("10.0.0.3:9911", 9901)),
    )


def test_peers_are_given_and_multicast_is_off() -> None:
    line = arguments(settings())
    assert "-peer=10.0.0.2:9901" in line
    assert "-peer=10.0.0.3:9911" in line
    assert {"-asapannounce=off", "-enrpannounce=off"} <= set(line)


def test_patience_is_for_the_silent_and_asks_as_often() -> None:
    timers_ms = patient_timers_ms(10)
    assert timers_ms["endpointkeepalivetimeoutinterval"] == 5000
    assert timers_ms["peermaxtimelastheard"] == 10_000
    for name in ("endpointkeepalivetransmissioninterval", "peerheartbeatcycle", "mentordiscoverytimeout"):
        assert timers_ms[name] == TIMERS_MS[name]
    assert patient_timers_ms(1) == TIMERS_MS


def test_a_registrar_never_has_a_fixed_identifier() -> None:
    """With the same identifier as before, its peers purge what it owned."""
    assert not [option for option in arguments(settings()) if option.startswith("-identifier")]


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("10.0.0.1", "10.0.0.1", 3863),
        ("10.0.0.1:5", "10.0.0.1", 5),
        ("fe80::1", "fe80::1", 3863),
        ("[fe80::1]:77", "fe80::1", 77),
        ("[::1]", "::1", 3863),
    ],
)
def test_endpoints_are_read(text: str, address: str, port: int) -> None:
    endpoint = SctpEndpoint.parse(text, 3863)
    assert endpoint == SctpEndpoint(ip_address(address), port)
    assert SctpEndpoint.parse(str(endpoint), 1) == endpoint


@pytest.mark.parametrize(
    "text", ["", "name", "10.0.0.1:x", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0:1", "1:²"]
)
def test_bad_endpoints_are_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"is n"):
        SctpEndpoint.parse(text, 3863)


def test_embedded_registrars_know_each_other_and_not_themselves() -> None:
    three = embedded_settings("10.0.0.9")
    assert [str(registrar.asap) for registrar in three] == ["10.0.0.9:3863", "10.0.0.9:3864", "10.0.0.9:3865"]
    assert embedded_registrars("10.0.0.9") == ["10.0.0.9", "10.0.0.9:3864/9902", "10.0.0.9:3865/9903"]
    for registrar in three:
        assert set(registrar.peers) == {other.enrp for other in three if other is not registrar}
    assert [command.count("run") for command in embedded_commands("10.0.0.9")] == [1, 1, 1]
    assert "--enrp-port=9902" in embedded_commands("10.0.0.9")[1]


def test_the_same_list_of_peers_serves_every_registrar() -> None:
    all_of_them = [SctpEndpoint.parse(f"10.0.0.{number}", 9901) for number in (1, 2, 3)]
    assert without_own(all_of_them, all_of_them[1]) == (all_of_them[0], all_of_them[2])
