"""Zones signed by PowerDNS with keys that the backend keeps: everything validates, whatever happens."""

import stat
from pathlib import Path

import pytest
from rspdns.dnssec.store import FILE_NAME

from tests.backend.making import ZONE, member, view, views
from tests.support.served import Served, served, status
from tests.support.signed_zone import OWNER, TWO, ZONES
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("two_members")

POSITIVE = [
    (OWNER, "SRV"),
    (f"as.{ZONE}", "A"),
    (f"as.{ZONE}", "NAPTR"),
    (f"00000002.u.as.{ZONE}", "AAAA"),
    (f"alias.{ZONE}", "TXT"),
    (f"x.wild.{ZONE}", "MX"),
    (f"safe.{ZONE}", "DS"),
    (ZONE, "SOA"),
]
NO_SUCH_TYPE = [
    (f"as.{ZONE}", "MX"),
    (f"x.wild.{ZONE}", "A"),
    (f"_udp.as.{ZONE}", "A"),
    (f"_sip._tcp.other.{ZONE}", "SRV"),
    (f"u.as.{ZONE}", "A"),
    (f"t.other.{ZONE}", "A"),
    (f"sub.{ZONE}", "DS"),
    (f"b.c.{ZONE}", "TXT"),
    (ZONE, "MX"),
]
NO_SUCH_NAME = [
    (f"nobody.{ZONE}", "A"),
    (f"00000009.u.as.{ZONE}", "A"),
    (f"zzz.{ZONE}", "A"),
    (f"0.{ZONE}", "A"),
    (f"x.y.as.{ZONE}", "A"),
]


def test_keys_are_for_the_service_alone_and_signing_begins_at_once(signed: Served) -> None:
    assert stat.S_IMODE((signed.folder / FILE_NAME).stat().st_mode) == 0o600
    assert "fully validated" in signed.delv(OWNER, "SRV")


@pytest.mark.parametrize("denial", ["nsec", "nsec3", "nsec3 narrow"])
def test_every_answer_validates(signed: Served, denial: str) -> None:
    if denial == "nsec":
        signed.pdns.util("unset-nsec3", ZONE)
    else:
        narrow = ["narrow"] if "narrow" in denial else []
        signed.pdns.util("set-nsec3", ZONE, "1 0 3 ab12", *narrow)
    kind = "NSEC" if denial == "nsec" else "NSEC3"
    until(lambda: kind in signed.pdns.dig("+dnssec", f"nobody.{ZONE}", "A").split())
    for question in POSITIVE:
        assert "; fully validated" in signed.delv(*question), question
    for question in NO_SUCH_TYPE:
        said = signed.delv(*question)
        assert "negative response, fully validated" in said, (question, said)
        assert "NXRRSET" in said, (question, said)
    for question in NO_SUCH_NAME:
        said = signed.delv(*question)
        assert "negative response, fully validated" in said, (question, said)
        assert "NXDOMAIN" in said, (question, said)


def test_a_referral_is_not_signed_as_ours(signed: Served) -> None:
    said = signed.pdns.dig("+dnssec", f"host.sub.{ZONE}", "A")
    assert f"sub.{ZONE}." in said.partition("AUTHORITY SECTION")[2]
    words = said.split()
    signed_types = {words[index + 1] for index, word in enumerate(words) if word == "RRSIG"}
    assert signed_types <= {"NSEC", "NSEC3"}, "neither the delegation nor the glue is ours to sign"


def test_a_pool_nobody_knows_is_neither_answered_nor_denied(signed: Served) -> None:
    signed.pdns.util("unset-nsec3", ZONE)
    signed.backend.set_zones(ZONES, views(view(member(1))))
    try:
        for name in (f"_sip._tcp.other.{ZONE}", f"00000001.t.other.{ZONE}"):
            until(lambda name=name: status(signed.pdns.dig("+dnssec", name, "SRV")) == "SERVFAIL")  # type: ignore[misc]
        assert "fully validated" in signed.delv(f"as.{ZONE}", "MX")
    finally:
        signed.backend.set_zones(ZONES, TWO)


def test_a_key_is_rolled_over(signed: Served) -> None:
    """Pre-publication: the new key is known everywhere before the old one goes; then the parent is told."""
    pdns = signed.pdns
    (old,) = pdns.short(ZONE, "DNSKEY")
    pdns.util("add-zone-key", ZONE, "ksk", "inactive", "published", "ecdsa256")
    until(lambda: len(pdns.short(ZONE, "DNSKEY")) == 2)
    signed.trust(ZONE)
    assert "fully validated" in signed.delv(OWNER, "SRV")
    identifiers = [
        line.split()[2] for line in pdns.util("show-zone", ZONE).splitlines() if line.startswith("ID = ")
    ]
    first, second = sorted(identifiers, key=int)
    pdns.util("activate-zone-key", ZONE, second)
    pdns.util("set-publish-cds", ZONE)
    pdns.util("set-publish-cdnskey", ZONE)
    until(lambda: len(pdns.short(ZONE, "CDS")) == 2)
    assert len(pdns.short(ZONE, "CDNSKEY")) == 2
    for question in ((OWNER, "SRV"), (ZONE, "CDS"), (ZONE, "CDNSKEY"), (f"nobody.{ZONE}", "A")):
        assert "fully validated" in signed.delv(*question), question
    pdns.util("deactivate-zone-key", ZONE, first)
    pdns.util("unpublish-zone-key", ZONE, first)
    until(lambda: old not in pdns.short(ZONE, "DNSKEY"))
    pdns.util("remove-zone-key", ZONE, first)
    signed.trust(ZONE)
    assert "fully validated" in signed.delv(OWNER, "SRV")
    pdns.util("unset-publish-cds", ZONE)
    pdns.util("unset-publish-cdnskey", ZONE)
    until(lambda: not pdns.short(ZONE, "CDS"))
    assert "negative response, fully validated" in signed.delv(ZONE, "CDS")


def test_a_second_name_server_signs_with_an_imported_key(signed: Served, tmp_path: Path) -> None:
    identifier = next(
        line.split()[2]
        for line in signed.pdns.util("show-zone", ZONE).splitlines()
        if line.startswith("ID = ")
    )
    (tmp_path / "key").write_text(signed.pdns.util("export-zone-key", ZONE, identifier))
    with served(ZONES, TWO, tmp_path, signed=True) as other:
        other.pdns.util("import-zone-key", ZONE, str(tmp_path / "key"), "active", "ksk")
        until(lambda: other.pdns.short(ZONE, "DNSKEY"))
        assert other.pdns.short(ZONE, "DNSKEY") == signed.pdns.short(ZONE, "DNSKEY")
        assert "fully validated" in other.delv(OWNER, "SRV")


def test_pdnsutil_finds_nothing_wrong(signed: Served) -> None:
    assert "0 errors" in signed.pdns.util("check-zone", ZONE)
    assert signed.pdns.util("list-all-zones").split() == [ZONE]
    signed.pdns.util("rectify-zone", ZONE)


@pytest.mark.parametrize("first", [[], ["1 0 1 ab"], ["1 0 0 -"]])
@pytest.mark.parametrize("then", [[], ["1 0 1 ab"]])
def test_proofs_hold_while_powerdns_has_not_heard_of_a_change_yet(
    signed: Served, monkeypatch: pytest.MonkeyPatch, first: list[str], then: list[str]
) -> None:
    """Between `set-nsec3` and the purge that tells PowerDNS of it."""

    def set_to(parameters: list[str]) -> None:
        signed.pdns.util(*(["set-nsec3", ZONE, *parameters] if parameters else ["unset-nsec3", ZONE]))

    set_to(first)
    kind = "NSEC3" if first else "NSEC"
    until(lambda: kind in signed.pdns.dig("+dnssec", f"nobody.{ZONE}", "A").split())
    assert "fully validated" in signed.delv(f"nobody.{ZONE}", "A")
    with monkeypatch.context() as patched:
        patched.setattr(signed.backend.store, "changed", lambda zone: None)
        set_to(then)
        for number in range(10):
            for question in ((f"nobody{number}.{ZONE}", "A"), (f"as.{ZONE}", f"TYPE{1000 + number}")):
                assert "negative response, fully validated" in signed.delv(*question), question
    signed.backend.purger.purge({f"{ZONE}$"})


def test_signing_ends(signed: Served) -> None:
    signed.pdns.util("disable-dnssec", ZONE)
    until(lambda: not signed.pdns.short(ZONE, "DNSKEY"))
    assert "RRSIG" not in signed.pdns.dig("+dnssec", OWNER, "SRV")
    signed.pdns.sign(ZONE)
    (signed.folder / "anchor").unlink(missing_ok=True)
    assert "fully validated" in signed.delv(OWNER, "SRV")
