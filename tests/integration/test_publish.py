"""Pools published by DNS UPDATE at the real BIND, Knot and PowerDNS."""

import asyncio
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import dns.rdataset
import pytest
import structlog
from rspdns.publish import publication

from rserpool import Protocol
from tests.backend.making import FIXED, UDP, ZONE, member, view, zone
from tests.support.primaries import KEY, KEY_NAME, PRIMARIES, SECRET, Bind, Primary, example, running
from tests.support.publisher import SOON_S, Publisher, config
from tests.support.waiting import until_async

NAME = f"as.{ZONE}"
OWNER = f"_sip._udp.{NAME}"
WEB = """
[[pool]]
handle = "web"
label = "w"
service = "_https._tcp"
name = "as"
accept = ["10.0.0.0/8"]
svcb = { alpn = ["h3", "h2"] }
"""


@pytest.fixture(params=PRIMARIES, ids=lambda kind: kind.program)
def primary(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Primary]:
    with running(request.param, tmp_path, ZONE, FIXED) as made:
        yield made


async def ask(primary: Primary, name: str, kind: str) -> list[str] | None:
    return await asyncio.to_thread(primary.ask, name, kind)


async def until_targets(primary: Primary, *identifiers: int) -> None:
    async def is_right() -> bool:
        return await asyncio.to_thread(primary.targets, OWNER) == sorted(identifiers)

    await until_async(is_right, SOON_S)


async def test_members_are_there_and_gone_with_their_addresses(primary: Primary) -> None:
    async with Publisher(config(primary)) as publisher:
        publisher.believe(view(member(1), member(2), member(3)))
        await until_targets(primary, 1, 2, 3)
        assert await ask(primary, NAME, "A") == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        assert await ask(primary, NAME, "NAPTR") == [
            f'10 10 "S" "SIP+D2U" "" {OWNER}.'.replace('S" "SIP', 's" "SIP')
        ]
        assert await ask(primary, f"00000002.u.{NAME}", "A") == ["10.0.0.2"]
        before = primary.serial() or 0
        publisher.believe(view(member(1), member(3)))
        await until_targets(primary, 1, 3)
        assert await ask(primary, f"00000002.u.{NAME}", "A") == []
        assert await ask(primary, NAME, "A") == ["10.0.0.1", "10.0.0.3"]
        assert primary.serial() == before + 1, "one message for one moment"
        await publisher.until_right()
        assert await ask(primary, f"ns1.{ZONE}", "A") == ["10.0.1.1"], "all else is the server's own"


async def test_https_records_are_there_and_a_hint_leaves_with_its_server(primary: Primary) -> None:
    two = member(2, port=8443, protocol=Protocol.TCP)
    async with Publisher(config(primary), zone_of_all=zone(WEB)) as publisher:
        publisher.believe(view(member(1, port=443, protocol=Protocol.TCP), two, handle="web"))
        await publisher.until_right()
        own, *others = await ask(primary, NAME, "HTTPS") or []
        assert own == f'1 00000001.w.{NAME}. alpn="h3,h2" ipv4hint="10.0.0.1"'
        assert others == [f'1 00000002.w.{NAME}. alpn="h3,h2" port="8443" ipv4hint="10.0.0.2"']
        publisher.believe(view(two, handle="web"))

        async def has_left() -> bool:
            return await ask(primary, NAME, "HTTPS") == others

        await until_async(has_left, SOON_S)
        assert publisher.status.edits == publisher.status.failed == 0


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks and tries come soon."""
    monkeypatch.setattr(publication, "CHECK_EVERY_S", 0.5)
    monkeypatch.setattr(publication, "FIRST_PAUSE_S", 0.2)
    monkeypatch.setattr(publication, "MOST_PAUSE_S", 0.4)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[MutableMapping[str, Any]]:
    """The lines of the log."""
    logged: list[MutableMapping[str, Any]] = []

    def take(_: object, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        logged.append({**event, "level": level})
        raise structlog.DropEvent

    structlog.configure(processors=[take])
    return logged


def logged(lines: Sequence[Mapping[str, Any]], event: str) -> list[Mapping[str, Any]]:
    return [line for line in lines if line["event"] == event]


async def test_zone_that_somebody_else_edited_is_told_and_repaired(
    primary: Primary, hurried: None, lines: list[MutableMapping[str, Any]]
) -> None:
    async with Publisher(config(primary)) as publisher:
        publisher.believe(view(member(1), member(2)))
        await until_targets(primary, 1, 2)
        await publisher.until_right()
        update = primary.update()
        update.replace(f"{NAME}.", dns.rdataset.from_text("IN", "A", 60, "192.0.2.1"))
        update.delete(f"{OWNER}.", "SRV")
        await asyncio.to_thread(primary.edit, update)
        await until_targets(primary, 1, 2)
        assert await ask(primary, NAME, "A") == ["10.0.0.1", "10.0.0.2"]
        await publisher.until_right()
        assert publisher.status.edits == 2
        (line,) = logged(lines, "publication_edited")
        assert line["rrsets"] == [f"{OWNER} SRV", f"{NAME} A"]
        serial = primary.serial()
        await asyncio.sleep(1.5)
        assert primary.serial() == serial, "a check changes nothing"


async def test_after_an_outage_the_difference_is_sent_in_one_message(
    primary: Primary, hurried: None, lines: list[MutableMapping[str, Any]]
) -> None:
    async with Publisher(config(primary)) as publisher:
        publisher.believe(view(member(1), member(2), member(3)))
        await until_targets(primary, 1, 2, 3)
        await publisher.until_right()
        serial = primary.serial()
        primary.stop(signal.SIGTERM)
        publisher.believe(view(member(1), member(3)))
        await publisher.until_failing("Connection refused")
        publisher.believe(view(member(1)))
        publisher.believe(view(member(1), member(4)))
        await until_async(lambda: publisher.status.waiting == 5, SOON_S, lambda: str(publisher.status))
        assert f"{OWNER} SRV" in publisher.status.waiting_names
        assert publisher.publications.problems == [
            f"publish lab: {primary.server}: {publisher.status.problem}; 5 RRsets wait"
        ]
        await asyncio.to_thread(primary.start)
        await until_targets(primary, 1, 4)
        await publisher.until_right()
        assert serial is not None
        assert primary.serial() == serial + 1
        assert len(logged(lines, "publication_failed")) == len(logged(lines, "publication_works_again")) == 1
        assert publisher.status.edits == 0


async def test_server_that_hangs_is_told_when_it_wakes(
    primary: Primary, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rspdns.publish.primary.TIMEOUT_S", 0.5)
    async with Publisher(config(primary)) as publisher:
        publisher.believe(view(member(1), member(2)))
        await until_targets(primary, 1, 2)
        primary.freeze()
        publisher.believe(view(member(2)))
        await publisher.until_failing("no answer within")
        primary.thaw()
        await until_targets(primary, 2)
        await publisher.until_right()
        assert publisher.status.edits == 0, "what it did in its sleep was ours"


WRONG = {"named": "(BADSIG)", "knotd": "(BADSIG)", "pdns_server": "not signed"}
UNKNOWN = {"named": "(BADKEY)", "knotd": "(BADKEY)", "pdns_server": "not signed"}
LATE = {"named": "(BADTIME)", "knotd": "(BADTIME)", "pdns_server": "not signed"}


async def test_each_fault_is_one_clear_line_and_mended_without_a_restart(
    primary: Primary, hurried: None, lines: list[MutableMapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Publisher(config(primary)) as publisher:
        primary.key.write_text(KEY.replace(SECRET, SECRET.replace("W", "X")))
        publisher.believe(view(member(1)))
        await publisher.until_failing(WRONG[primary.program])
        primary.key.write_text(KEY.replace(KEY_NAME, "another"))
        await publisher.until_failing(UNKNOWN[primary.program])
        primary.key.write_text("nothing")
        await publisher.until_failing("holds other than one TSIG key")
        primary.key.write_text(KEY)
        with monkeypatch.context() as late:
            clock = time.time
            late.setattr("rspdns.publish.primary.time.time", lambda: clock() - 1000)
            await publisher.until_failing(LATE[primary.program])
        await until_targets(primary, 1)
        await publisher.until_right()
        problems = [line["problem"] for line in logged(lines, "publication_failed")]
        assert all(before != after for before, after in pairwise(problems)), "one line for one fault"
        assert SECRET not in str(lines)


async def test_key_that_may_not_and_zone_that_is_not_there_are_told(
    primary: Primary, hurried: None, lines: list[MutableMapping[str, Any]]
) -> None:
    other = zone(UDP.replace('"as"', '"elsewhere"'))
    async with Publisher(config(primary), zone_of_all=other) as publisher:
        publisher.believe(view(member(1)))
        if primary.program == "pdns_server":  # its keys may change every name of a zone
            await publisher.until_right()
        else:
            await publisher.until_failing("may not change these names")
    foreign = config(primary).model_copy(update={"zone": "example.org"})
    elsewhere = zone(fixed=FIXED, name="example.org")
    async with Publisher(foreign, zone_of_all=elsewhere) as publisher:
        publisher.believe(view(member(1)))
        await publisher.until_failing("it ")
        assert publisher.status.problem is not None
        assert re.search("refuse|not authoritative|does not serve|not signed", publisher.status.problem)


@pytest.mark.parametrize("kind", PRIMARIES, ids=lambda kind: kind.program)
async def test_alias_that_hides_the_records_is_told(kind: type[Primary], tmp_path: Path) -> None:
    """RFC 2136 has a server ignore what is added beside a CNAME record, and answer NOERROR."""
    with running(kind, tmp_path, ZONE, f"{FIXED}as 60 CNAME ns1\n") as primary:
        async with Publisher(config(primary)) as publisher:
            publisher.believe(view(member(1)))
            await publisher.until_failing("is an alias (CNAME) there")
            assert f"{NAME} A" in publisher.status.waiting_names


async def test_two_publishers_do_not_fight_and_a_stale_one_is_silent(
    primary: Primary, hurried: None, lines: list[MutableMapping[str, Any]]
) -> None:
    fresh, stale = Publisher(config(primary, name="fresh")), Publisher(config(primary, name="stale"))
    async with fresh, stale:
        for publisher in (fresh, stale):
            publisher.believe(view(member(1), member(2), member(3)))
        await until_targets(primary, 1, 2, 3)
        for publisher in (fresh, stale):
            await publisher.until_right()
        serial = primary.serial()
        for publisher in (fresh, stale):
            publisher.believe(view(member(1), member(2)))
        await until_targets(primary, 1, 2)
        await asyncio.sleep(1.5)
        for publisher in (fresh, stale):
            await publisher.until_right()
        assert serial is not None
        assert primary.serial() == serial + 1, "the second message was none"
        stale.believe(view(member(1), member(2), stale_since_s=time.monotonic()))
        await until_async(lambda: stale.status.state == "silent", SOON_S)
        fresh.believe(view(member(2), member(9)))
        await until_targets(primary, 2, 9)
        stale.believe(view(member(1), stale_since_s=time.monotonic()))
        await asyncio.sleep(1.5)
        assert primary.targets(OWNER) == [2, 9]
        stale.believe(view(member(2), member(9)))
        await stale.until_right()
        assert primary.targets(OWNER) == [2, 9]
        assert logged(lines, "publication_edited") == []
        assert logged(lines, "publication_silent")[0]["publication"] == "stale"


async def test_expiry_stands_there_and_moves_on(primary: Primary) -> None:
    async with Publisher(config(primary, 'withdraw = "expire"\nexpire_s = 30')) as publisher:
        publisher.believe(view(member(1)))
        name = f"_rspdns-expire.{ZONE}"

        async def is_there() -> bool:
            return bool(await ask(primary, name, "TXT"))

        await until_async(is_there, SOON_S)
        (text,) = await ask(primary, name, "TXT") or []
        ends = datetime.strptime(text.strip('"'), "%Y-%m-%dT%H:%M:%S%z")
        assert 20 < (ends - datetime.now(UTC)).total_seconds() <= 31


async def test_script_of_the_page_withdraws_what_nobody_vouches_for(tmp_path: Path) -> None:
    with running(Bind, tmp_path, ZONE, FIXED) as primary:
        script = example("bash", "nsupdate").replace("127.0.0.1 53", f"127.0.0.1 {primary.port}")
        script = script.replace("/etc/bind/rspdns.key", str(primary.key))

        def withdraw(now: str = "date +%s") -> None:
            text = script.replace("$(date +%s)", f"$({now})")
            done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr

        async with Publisher(config(primary, 'withdraw = "expire"')) as publisher:
            publisher.believe(view(member(1), member(2)))
            await until_targets(primary, 1, 2)
            await until_async(lambda: primary.ask(f"_rspdns-expire.{ZONE}", "TXT") or None, SOON_S)
        await asyncio.to_thread(withdraw)
        assert primary.targets(OWNER) == [1, 2], "they are vouched for"
        await asyncio.to_thread(withdraw, "date -d '+400 seconds' +%s")
        assert await ask(primary, OWNER, "SRV") == [f"0 0 5060 backup.{NAME}."]
        assert await ask(primary, NAME, "A") == ["192.0.2.7"]
        assert await ask(primary, f"_rspdns-expire.{ZONE}", "TXT") == []
        await asyncio.to_thread(withdraw, "date -d '+800 seconds' +%s")
        async with Publisher(config(primary, 'withdraw = "expire"')) as publisher:
            publisher.believe(view(member(2)))
            await until_targets(primary, 2)
            await publisher.until_right()
            assert await ask(primary, NAME, "A") == ["10.0.0.2"]


async def test_signed_zone_stays_signed(tmp_path: Path) -> None:
    class SigningBind(Bind):
        def configure(self) -> None:
            super().configure()
            conf = self.folder / "conf"
            signing = f'dnssec-policy default; inline-signing no; key-directory "{self.folder}";'
            conf.write_text(conf.read_text().replace("type primary;", f"type primary; {signing}"))

    with running(SigningBind, tmp_path, ZONE, FIXED) as primary:
        async with Publisher(config(primary)) as publisher:
            publisher.believe(view(member(1), member(2)))
            await until_targets(primary, 1, 2)
            publisher.believe(view(member(2)))
            await until_targets(primary, 2)
            await publisher.until_right()

            anchor = primary.folder / "anchor"
            keys = [text.split(maxsplit=3) for text in await ask(primary, ZONE, "DNSKEY") or []]
            lines = (f'"{ZONE}" static-key {" ".join(head)} "{key.replace(" ", "")}";' for *head, key in keys)
            anchor.write_text(f"trust-anchors {{ {' '.join(lines)} }};\n")
            for owner, kind in ((OWNER, "SRV"), (NAME, "A"), (f"00000002.u.{NAME}", "A")):
                words = ["delv", "@127.0.0.1", "-p", str(primary.port), "-a", str(anchor), f"+root={ZONE}"]
                done = await asyncio.to_thread(
                    subprocess.run, [*words, owner, kind], capture_output=True, text=True, check=False
                )
                assert "; fully validated" in done.stdout, done.stdout + done.stderr
