"""A zone below another one of the same backend: what the outer one may say of it."""

from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from rspdns.configuration import load_configuration
from rspdns.warnings import warnings
from rspdns.zones.loading import load_zones

from tests.backend.configuration_files import GOOD, head, write
from tests.backend.making import FIXED, UDP

OUTER, INNER = "example.net", "ims.example.net"
CUT = "ims NS ns1.ims\nims DS 1 13 2 " + "00" * 32 + "\nns1.ims A 10.7.7.7\nns1.ims AAAA 2001:db8::7\n"
NO_CUT = "lies inside the zone example.net"


def files(folder: Path, outer: str, pools: str = "") -> Path:
    (folder / "zones.d").mkdir()
    (folder / "zones.d" / "outer.zone").write_text(FIXED + outer)
    own = head("inner", INNER) + UDP
    return write(folder, GOOD, outer=head("outer", OUTER) + pools, inner=own)


def problems(folder: Path, outer: str, pools: str = "") -> list[str]:
    files(folder, outer, pools)
    with pytest.raises(ConfigurationErrors) as caught:
        load_zones(folder / "zones.d")
    return str(caught.value).replace(f"{folder}/zones.d/", "").splitlines()


def test_delegation_and_glue_are_right(tmp_path: Path) -> None:
    path = files(tmp_path, CUT)
    assert not any(NO_CUT in str(one) for one in warnings(path, load_configuration(path), None))


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ("ims TXT text", f"{INNER} TXT"),
        ("ims A 10.0.0.1", f"{INNER} A"),
        ("www.ims A 10.0.0.1", f"www.{INNER} A"),
        ("ns1.ims TXT text", f"ns1.{INNER} TXT"),
        ("b.ims NS ns1", f"b.{INNER} NS"),
        ("*.ims TXT text", f"*.{INNER} TXT"),
    ],
)
def test_what_belongs_into_the_inner_zone(tmp_path: Path, record: str, key: str) -> None:
    (told,) = problems(tmp_path, CUT + record + "\n")
    line = len((FIXED + CUT).splitlines()) + 1
    assert told.startswith(f"outer.zone:{line}: {key}: belongs into the zone {INNER}, which is served here")


def test_a_pool_at_a_name_of_the_inner_zone(tmp_path: Path) -> None:
    pool = UDP.replace('"as"', '"x.ims"').replace("sip-udp", "other")
    (told,) = problems(tmp_path, "", pool)
    assert told.startswith("outer.toml:8: pool[0].name: the pool's names lie in the zone ims.example.net")


def test_a_zone_that_the_outer_one_does_not_delegate_is_warned_of(tmp_path: Path) -> None:
    path = files(tmp_path, "")
    (told,) = [str(one) for one in warnings(path, load_configuration(path), None) if NO_CUT in str(one)]
    assert told.startswith(f"{tmp_path}/zones.d/inner.toml:1: zone: {NO_CUT}")
