"""Overrides of the backend: what is refused, what is kept, what ends by itself."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from daemon_kit.control import ControlError
from daemon_kit.durations import seconds_of
from pool_user import OverrideAction, PoolOverride, PoolView
from rspdns import override_command
from rspdns.override_command import override, seconds_until
from rspdns.overrides.book import Override, by_handle
from rspdns.overrides.keeper import FILE, Overrides, Wish

from tests.backend.making import UDP, member, view, zone

OWNER = "_sip._udp.as.ims.example.net"
HANDLE = "sip-udp"
POOLS = [pool for site in zone(UDP).sites for pool in site.pools]


ONE_POOL = Override(
    number=1,
    action=OverrideAction.DOWN,
    servers="10.0.0.1",
    reason="a test",
    by="alice",
    set_at_s=0.0,
    starts_at_s=0.0,
    pool=OWNER,
)


VIEWS: Mapping[str, PoolView] = {HANDLE: view(*(member(number, f"10.0.0.{number}") for number in (1, 2, 3)))}


class PaperBelief:
    """A belief with three members that notes which overrides hold."""

    def __init__(self, views: Mapping[str, PoolView] | None = None) -> None:
        self.views = VIEWS if views is None else views
        self.held: list[tuple[int, OverrideAction]] = []

    def set_overrides(self, overrides: Mapping[str, Sequence[PoolOverride]]) -> None:
        self.held = [(each.number, each.action) for each in overrides.get(HANDLE, ())]


class Kept:
    """Overrides in a folder, with a clock that a test may step."""

    def __init__(self, folder: Path, views: Mapping[str, PoolView] | None = None) -> None:
        self.belief = PaperBelief(views)
        self.step_s = 0.0
        self.overrides = Overrides(
            folder,
            self.belief,
            lambda: POOLS,
            lambda handle, member: f"sip-{member.identifier}",
            lambda: None,
            clock=lambda: time.time() + self.step_s,
        )
        self.overrides.load()

    async def set(self, servers: str, action: OverrideAction = OverrideAction.DOWN, **more: object) -> int:
        wish = Wish(action, servers, "a test", **more)  # type: ignore[arg-type]
        result = await self.overrides.set(wish, "alice")
        return int(result["override"]["number"])


async def until_held(kept: Kept, *held: tuple[int, OverrideAction]) -> None:
    async with asyncio.timeout(10):
        while kept.belief.held != list(held):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("servers", ["sip-2", "10.0.0.2", "10.0.0.2:5060", "00000002", "10.0.0.2/32", "*.2"])
async def test_server_is_called_by_each_of_its_names(tmp_path: Path, servers: str) -> None:
    kept = Kept(tmp_path)
    assert await kept.set(servers) == 1
    assert kept.belief.held == [(1, OverrideAction.DOWN)]
    (override,) = kept.overrides.all
    assert override.meant.has_member(member(2, "10.0.0.2"))
    assert not override.meant.has_member(member(3, "10.0.0.3"))


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(OverrideAction.DOWN, "10.0.0.9", "why"), "no server is known there"),
        (Wish(OverrideAction.DOWN, "sip-9", "why"), "no server has this name"),
        (Wish(OverrideAction.DOWN, "10.0.0.1/8", "why"), "neither a network nor one host"),
        (Wish(OverrideAction.DOWN, "sip-1", " "), "needs a reason"),
        (Wish(OverrideAction.DOWN, "", "why"), "names servers"),
        (Wish(OverrideAction.DOWN, "sip-1", "a\nb"), "one line"),
        (Wish(OverrideAction.DOWN, "sip-1", "x" * 501), "500 characters"),
        (Wish(OverrideAction.DOWN, "sip-1", "why", share=0.5), "belongs to the action share"),
        (Wish(OverrideAction.SHARE, "sip-1", "why"), "belongs to the action share"),
        (Wish(OverrideAction.SHARE, "sip-1", "why", share=1.0), "above 0 % and below 100 %"),
        (Wish(OverrideAction.SHARE, "sip-1", "why", share=float("nan")), "above 0 % and below 100 %"),
        (Wish(OverrideAction.DOWN, "sip-1", "why", for_s=-1), "ten years"),
        (Wish(OverrideAction.DOWN, "sip-1", "why", for_s=0.0), "longer than 0 s"),
        (Wish(OverrideAction.DOWN, "sip-1", "why", for_s=float("inf")), "ten years"),
        (Wish(OverrideAction.DOWN, "sip-1", "why", pool="other"), "no pool has SRV records or a handle"),
        (Wish(OverrideAction.DOWN, "10.0.0.*", "why"), "would lose its last member"),
    ],
)
async def test_wrong_wish_is_refused_and_changes_nothing(tmp_path: Path, wish: Wish, words: str) -> None:
    kept = Kept(tmp_path)
    with pytest.raises(ControlError, match=words):
        await kept.overrides.set(wish, "alice")
    assert kept.overrides.all == ()
    assert not (tmp_path / FILE).exists()


async def test_pool_is_emptied_by_force_only_and_also_by_the_third_step(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1")
    kept.belief.views = {HANDLE: view(*(member(number, f"10.0.0.{number}") for number in (2, 3)))}
    await kept.set("sip-2")
    kept.belief.views = {HANDLE: view(member(3, "10.0.0.3"))}
    with pytest.raises(ControlError, match=f"{OWNER} would lose its last member"):
        await kept.set("sip-3")
    assert await kept.set("sip-3", forced=True) == 3


async def test_two_overrides_of_one_server_at_one_time_are_refused(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-2", for_s=60.0)
    with pytest.raises(ControlError, match=r"override 1 \(down sip-2\) names some of these servers, too"):
        await kept.set("10.0.0.0/8", OverrideAction.UP)
    assert await kept.set("sip-2", OverrideAction.UP, in_s=61.0) == 2, "later it is free"
    assert await kept.set("sip-3", OverrideAction.SHARE, share=0.05) == 3


@pytest.mark.parametrize("option", ["-c", "--config"])
def test_options_may_stand_before_the_servers(tmp_path: Path, option: str) -> None:
    words = [option, str(tmp_path / "none.toml"), "sip-1", "down", "--reason", "a test"]
    done = CliRunner().invoke(override, words)
    assert "none.toml" in done.output
    assert "No such option" not in done.output


@pytest.mark.parametrize(
    "words",
    [
        ["site", "eu", "down", "--reason", "a test", "--dry-run"],
        ["--dry-run", "--reason", "a test", "site", "eu", "down"],
        ["set", "--reason", "site", "site", "eu", "down", "--dry-run"],
        ["site eu", "down", "--reason", "a test", "--dry-run"],
        ["site:eu", "down", "--reason", "a test", "--dry-run"],
    ],
)
def test_a_site_is_named_wherever_options_stand(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "rspdns.toml"
    config.touch()
    asked: list[dict[str, Any]] = []

    def ask(_path: str, _command: str, **keys: Any) -> dict[str, Any]:
        asked.append(keys)
        kept = {"starts_at_s": 0.0, "ends_at_s": None}
        return {"override": kept, "pools": {}, "notes": [], "peers": []}

    monkeypatch.setattr(override_command, "request", ask)
    done = CliRunner().invoke(override, [*words, "-c", str(config)])
    assert done.exit_code == 0, done.output
    assert [(keys["servers"], keys["action"]) for keys in asked] == [("site:eu", "down")]


def test_several_servers_are_a_wrong_use() -> None:
    done = CliRunner().invoke(override, ["sip-1", "sip-2", "down", "--reason", "a test"])
    assert done.exit_code == 2
    assert "write a server, a network, or site NAME" in done.output


async def test_shares_of_more_than_all_calls_are_refused(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    with pytest.raises(ControlError, match=r"would come to 120 %: overrides 1 \(share=40% 10.0.0.\*\)"):
        await kept.set("10.0.0.*", OverrideAction.SHARE, share=0.4)
    assert await kept.set("sip-1", OverrideAction.SHARE, share=0.5, for_s=60.0) == 1
    with pytest.raises(ControlError, match=r"110 %: overrides 1 \(share=50% sip-1\), 2 \(share=60% sip-2\)"):
        await kept.set("sip-2", OverrideAction.SHARE, share=0.6)
    assert await kept.set("sip-2", OverrideAction.SHARE, share=0.6, in_s=61.0) == 2, "later it is free"
    with pytest.raises(ControlError, match="110 %"):
        await kept.set("sip-3", OverrideAction.SHARE, share=0.5)
    assert await kept.set("sip-3", OverrideAction.SHARE, share=0.4) == 3


async def test_dry_run_tells_the_shares_and_changes_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    wish = Wish(OverrideAction.SHARE, "sip-2", "canary", share=0.1)
    told = await kept.overrides.set(wish, "alice", is_dry=True)
    shares = {each["server"]: (each["before"], each["after"]) for each in told["pools"][OWNER]}
    assert shares["10.0.0.2:5060"] == (pytest.approx(1 / 3), pytest.approx(0.1, abs=1e-3))
    assert shares["10.0.0.1:5060"] == (pytest.approx(1 / 3), pytest.approx(0.45, abs=1e-3))
    assert (kept.overrides.all, kept.belief.held) == ((), [])


async def test_override_ends_and_begins_by_itself(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", for_s=0.2)
    await kept.set("sip-2", in_s=0.1, for_s=0.3)
    assert kept.belief.held == [(1, OverrideAction.DOWN)]
    await until_held(kept, (1, OverrideAction.DOWN), (2, OverrideAction.DOWN))
    await until_held(kept, (2, OverrideAction.DOWN))
    await until_held(kept)
    kept.overrides.close()


async def test_overrides_hold_over_a_restart_until_their_time(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("00000002", for_s=3600.0)
    await kept.set("sip-3", for_s=0.05)
    kept.overrides.close()
    await asyncio.sleep(0.06)
    again = Kept(tmp_path)
    assert again.belief.held == [(1, OverrideAction.DOWN)], "before anything is answered"
    assert [each.number for each in await again.overrides.clear(["1"], "bob")] == [1]
    assert (again.belief.held, Kept(tmp_path).belief.held) == ([], [])
    with pytest.raises(ControlError, match="no override has the number 1"):
        await again.overrides.clear(["1"], "bob")


async def test_override_of_later_that_would_empty_the_pool_is_held_back(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", in_s=0.1)
    kept.belief.views = {HANDLE: view(member(1, "10.0.0.1"))}
    async with asyncio.timeout(10):
        while not kept.overrides.held_back:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert kept.belief.held == []
    (status,) = kept.overrides.statuses()
    assert (status.holds, status.problem) == (False, f"{OWNER} would lose its last member")
    kept.overrides.close()


async def test_numbers_are_not_given_twice_not_even_after_a_restart(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert [await kept.set("sip-1"), await kept.set("sip-2")] == [1, 2]
    await kept.overrides.clear([], "bob")
    assert await kept.set("sip-1") == 3
    await kept.overrides.clear(["3"], "bob")
    assert await Kept(tmp_path).set("sip-1") == 4


async def test_last_member_is_kept_at_the_time_of_the_override(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", for_s=3600.0)
    await kept.set("sip-2", for_s=60.0)
    with pytest.raises(ControlError, match=f"{OWNER} would lose its last member; with --force"):
        await kept.set("sip-3")
    with pytest.raises(ControlError, match=f"{OWNER} would lose its last member at "):
        await kept.set("sip-3", in_s=30.0)
    later = await kept.set("sip-3", in_s=120.0)
    with pytest.raises(ControlError, match="would lose its last member at "):
        await kept.set("sip-2", in_s=61.0, for_s=600.0)
    await kept.overrides.clear([str(later)], "bob")
    assert await kept.set("sip-2", in_s=61.0, for_s=600.0) == 4


async def test_shares_are_foretold_for_the_time_of_the_override(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", for_s=60.0)
    wish = Wish(OverrideAction.DOWN, "sip-2", "later", in_s=120.0)
    told = await kept.overrides.set(wish, "alice", is_dry=True)
    shares = {each["name"]: (each["before"], each["after"]) for each in told["pools"][OWNER]}
    assert shares == {
        "sip-1": (pytest.approx(1 / 3), 0.5),
        "sip-2": (pytest.approx(1 / 3), None),
        "sip-3": (pytest.approx(1 / 3), 0.5),
    }


async def test_shares_that_nobody_takes_the_rest_of_are_told(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1")
    wish = Wish(OverrideAction.SHARE, "sip-2", "canary", share=0.1)
    assert (await kept.overrides.set(wish, "alice"))["notes"] == []
    wish = Wish(OverrideAction.SHARE, "sip-3", "canary", share=0.05)
    (note,) = (await kept.overrides.set(wish, "alice"))["notes"]
    assert note.startswith(f"{OWNER}: every server has a share")


async def test_override_that_was_held_back_begins_neither_by_a_restart_nor_before_it_may(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", in_s=0.05)
    kept.belief.views = {HANDLE: view(member(1, "10.0.0.1"))}
    async with asyncio.timeout(10):
        while not kept.overrides.held_back:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    kept.overrides.close()
    again = Kept(tmp_path, {})
    assert (again.belief.held, again.overrides.held_back) == ([], {1: "its pool is not known yet"})
    again.belief.views = dict(kept.belief.views)
    again.overrides.members_changed()
    assert again.belief.held == []
    again.belief.views = {HANDLE: view(member(1, "10.0.0.1"), member(2, "10.0.0.2"))}
    again.overrides.members_changed()
    assert again.belief.held == [(1, OverrideAction.DOWN)]
    await asyncio.sleep(0.2)
    again.overrides.close()
    assert Kept(tmp_path, {}).belief.held == [(1, OverrideAction.DOWN)], "it has begun"


async def test_override_that_holds_goes_on_when_the_clock_is_set_back(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", for_s=3600.0)
    kept.step_s = -1800.0
    kept.overrides.zones_changed()
    assert kept.belief.held == [(1, OverrideAction.DOWN)]
    kept.overrides.close()


async def test_override_that_ended_while_nobody_ran_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", for_s=0.05)
    kept.overrides.close()
    await asyncio.sleep(0.1)
    assert Kept(tmp_path).overrides.all == ()
    assert "override_ended" in capsys.readouterr().out


def test_override_of_a_pool_holds_where_another_pool_has_the_same_handle() -> None:
    other = [pool for site in zone(UDP, name="other.example").sites for pool in site.pools]
    for pools in ([*POOLS, *other], [*other, *POOLS]):
        held = by_handle(pools, [ONE_POOL])
        assert [override.action for override in held[HANDLE]] == [OverrideAction.DOWN]


@pytest.mark.parametrize("text", ["", "{", "[]{}", '[{"number": 1}]', "\0" * 100, "[1]"])
async def test_file_that_cannot_be_read_is_put_aside_and_told(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    kept = Kept(tmp_path)
    assert kept.belief.held == []
    assert "no override of before holds" in kept.overrides.problem
    (aside,) = tmp_path.glob(f"{FILE}.unreadable-*")  # noqa: ASYNC240
    assert aside.read_text() == text
    assert await kept.set("sip-1") == 1
    assert kept.overrides.problem == ""


async def test_disk_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    kept = Kept(folder)
    folder.rmdir()
    with pytest.raises(ControlError, match="can't be written, and nothing was changed"):
        await kept.set("sip-1")
    assert (kept.overrides.all, kept.belief.held) == ((), [])


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1h30m", 5400), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 weeks", "1e9s", "2h!"])
def test_wrong_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: write 90s"):
        seconds_of(text)


def test_time_of_day_is_the_next_of_its_kind() -> None:
    now = datetime(2026, 11, 26, 23, 0).astimezone()
    assert seconds_until("23:30", now) == 1800
    assert seconds_until("02:00", now) == 3 * 3600
    assert seconds_until("2026-11-27 23:00", now) == 24 * 3600
    for wrong in ("25:00", "tomorrow", "2026-11-25 02:00", ""):
        with pytest.raises(ValueError, match=r"is no time|is over"):
            seconds_until(wrong, now)


ID = "0123456789abcdef"


async def test_override_of_another_name_server_is_kept_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    now_s = time.time()
    of_peer: dict[str, Any] = {"id": ID, "behalf": "bob", "starts_at_s": now_s, "ends_at_s": now_s + 3600}
    for _ in range(2):
        assert await kept.set("sip-1", **of_peer) == 1
    (override,) = kept.overrides.all
    assert (override.id, override.by, override.ends_at_s) == (ID, "bob (alice)", now_s + 3600)
    with pytest.raises(ControlError, match="has this identifier already"):
        await kept.set("sip-2", **of_peer)
    with pytest.raises(ControlError, match="names some of these servers, too"):
        await kept.set("sip-1", OverrideAction.UP, **{**of_peer, "id": "f" * 16})
    assert [each.id for each in await kept.overrides.clear([ID], "alice")] == [ID]
    assert await kept.overrides.clear([ID], "alice") == []


async def test_override_set_here_alone_takes_the_identifier_of_the_same_one_elsewhere(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1")
    ends_at_s = time.time() + 60
    assert await kept.set("sip-1", id=ID, ends_at_s=ends_at_s) == 1
    assert [(each.id, each.ends_at_s) for each in kept.overrides.all] == [(ID, None)], "its times stay"
    assert [each.id for each in Kept(tmp_path).overrides.all] == [ID], "in the file, too"


async def test_server_under_maintenance_stays_out_when_another_name_server_plans_the_same(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", for_s=3600.0)
    starts_at_s = time.time() + 86_400
    assert await kept.set("sip-1", id=ID, starts_at_s=starts_at_s, ends_at_s=starts_at_s + 60) == 2
    assert kept.belief.held == [(1, OverrideAction.DOWN)]
    assert await kept.set("sip-1", everywhere=True, in_s=7200.0, for_s=60.0) == 3, "another window"


async def test_repeated_wish_for_everywhere_changes_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    first = await kept.overrides.set(Wish(OverrideAction.DOWN, "sip-1", "a", for_s=60, everywhere=True), "al")
    again = await kept.overrides.set(Wish(OverrideAction.DOWN, "sip-1", "b", for_s=90, everywhere=True), "bo")
    assert first["override"] == again["override"]
    assert (first["is_repeat"], again["is_repeat"]) == (False, True)
    assert first["override"]["id"] is not None
    with pytest.raises(ControlError, match="names some of these servers, too"):
        await kept.set("sip-1")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"id": "xyz"}, "16 hexadecimal digits"),
        ({"id": ID, "ends_at_s": time.time() - 60}, "do the clocks of the name servers differ"),
        ({"id": ID, "starts_at_s": 1e12}, "within ten years"),
        ({"id": ID, "starts_at_s": float("nan")}, "within ten years"),
        ({"id": ID, "ends_at_s": float("inf")}, "within ten years"),
        ({"id": ID, "behalf": "two\nlines"}, "behalf is a line"),
    ],
)
async def test_wrong_wish_of_another_name_server_is_refused(
    tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    kept = Kept(tmp_path)
    with pytest.raises(ControlError, match=words):
        await kept.set("sip-1", **wrong)
    assert kept.overrides.all == ()


async def test_override_of_later_that_has_begun_stays_when_its_pool_shrinks(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.set("sip-1", in_s=0.05)
    await until_held(kept, (1, OverrideAction.DOWN))
    kept.belief.views = {HANDLE: view(member(1, "10.0.0.1"))}
    kept.overrides.zones_changed()
    assert kept.belief.held == [(1, OverrideAction.DOWN)]
    assert kept.overrides.held_back == {}
