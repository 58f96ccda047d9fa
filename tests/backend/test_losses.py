"""Members that other zone files would take out, and how long an address that left is answered."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daemon_kit.control import ControlError
from pool_user import Cause, Code, OutMember, PoolView, RememberedPool
from rspdns.answers.purges import DEPARTED_KEPT_S
from rspdns.answers.snapshot import Snapshot
from rspdns.cli import main
from rspdns.configuration import load_configuration
from rspdns.losses import losses
from rspdns.pdns.responder import PdnsResponder
from rspdns.reading import read_configuration
from rspdns.service import Backend
from rspdns.status import build
from rspdns.status.model import ZoneStatus

from rserpool import PoolElement, Protocol, Transport
from tests.backend.making import FIXED, NOW, TCP, UDP, ZONE, answered, member, swap, view, views, zone

OWNER = f"_sip._udp.as.{ZONE}"
THREE = view(member(1), member(2), member(3, "10.0.9.3"))


def statuses(pools: str = UDP, *of_pool: PoolView) -> list[ZoneStatus]:
    return build.zones([zone(pools)], Snapshot(), {view.handle: view for view in of_pool or (THREE,)}, NOW)


def test_a_reload_of_the_same_files_takes_nobody_out() -> None:
    assert losses(statuses(), [zone()]) == []


def test_a_narrower_accept_names_who_goes_and_why() -> None:
    (loss,) = losses(statuses(), [zone(UDP.replace("10.0.0.0/8", "10.0.0.0/24"))])
    assert (loss.key, loss.staying, loss.is_refused) == ("accept", 2, False)
    assert loss.words == (
        f"{OWNER}: 1 of the 3 members that are in now would leave: "
        "10.0.9.3:5060: it is not in the accept networks"
    )


@pytest.mark.parametrize(
    ("after", "key", "why"),
    [
        (UDP.replace("10.0.0.0/8", "10.1.0.0/16"), "accept", "it is not in the accept networks"),
        (UDP.replace("sip-udp", "sip-upd"), "handle", "registered under the handle sip-udp, not sip-upd"),
        (UDP.replace('"as"', '"sa"'), "", "its pool is not configured any more"),
    ],
)
def test_a_change_that_takes_the_last_member_out_is_refused(after: str, key: str, why: str) -> None:
    (loss,) = losses(statuses(), [zone(after)])
    assert (loss.key, loss.staying, loss.is_refused) == (key, 0, True)
    assert f"{OWNER}: all 3 members that are in now would leave: 10.0.0.1:5060: " in loss.words
    assert why in loss.words


def test_a_zone_whose_file_is_gone_is_told_and_not_refused() -> None:
    (loss,) = losses(statuses(), [])
    assert not loss.is_refused
    assert loss.zone_is_gone


def test_a_pool_that_nobody_is_in_loses_nobody() -> None:
    assert losses(statuses(UDP, view()), []) == []


def test_a_member_that_the_same_change_lets_in_keeps_the_pool_from_being_empty() -> None:
    refused = OutMember(
        9, member(9, "192.0.2.9").addresses[0], 5060, Cause(Code.NOT_ACCEPTED, detail="192.0.2.9"), NOW
    )
    before = statuses(UDP, view(member(1), out=(refused,)))
    (loss,) = losses(before, [zone(UDP.replace("10.0.0.0/8", "192.0.2.0/24"))])
    assert (loss.staying, loss.is_refused) == (1, False)


def test_a_member_listed_under_the_new_handle_keeps_the_pool_from_being_empty() -> None:
    after = zone(UDP.replace("sip-udp", "sip-new"))
    new, wrong = (
        PoolElement(5, 1, 0, Transport(protocol, 5060, member(5).addresses), member(5).policy)
        for protocol in (Protocol.UDP, Protocol.TCP)
    )
    assert losses(statuses(), [after], {"sip-new": [new]})[0].staying == 1
    assert losses(statuses(), [after], {"sip-new": [wrong]})[0].is_refused


def test_many_members_are_not_all_named() -> None:
    crowd = view(*(member(number, f"10.0.1.{number}") for number in range(1, 51)))
    (loss,) = losses(statuses(UDP, crowd), [zone(UDP.replace("10.0.0.0/8", "10.9.0.0/16"))])
    assert loss.words.endswith("10.0.1.8:5060: it is not in the accept networks; 42 more")


@pytest.fixture
async def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Backend]:
    """A running backend with files, without registrars, that remembers two members."""
    (tmp_path / "zones.d").mkdir()
    write(tmp_path, UDP + TCP)
    (tmp_path / "rspdns.toml").write_text(
        f"""registrars = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
[pdns]
connector = "unix:{tmp_path}/remote.sock"
control = []
[admin]
socket = "{tmp_path}/admin.sock"
listen = "off"
[state]
path = "{tmp_path}/state"
"""
    )
    path = tmp_path / "rspdns.toml"
    served = Backend(load_configuration(path), partial(read_configuration, path))
    monkeypatch.setattr(served.pool_user, "start", served.pool_user.look)
    now = time.monotonic()
    served.belief.remember(RememberedPool("sip-udp", (member(1), member(2, "10.0.9.2")), (), now), now)
    stop = asyncio.Event()
    running = asyncio.create_task(served.run(stop))
    async with asyncio.timeout(10):
        while not (tmp_path / "admin.sock").exists():  # noqa: ASYNC110 - made by the backend itself
            await asyncio.sleep(0.01)
    yield served
    stop.set()
    await running


def write(folder: Path, pools: str) -> None:
    (folder / "zones.d" / f"{ZONE}.toml").write_text(f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\n{pools}')
    (folder / "zones.d" / f"{ZONE}.zone").write_text(FIXED)


async def run(*arguments: object) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, [str(argument) for argument in arguments])


def members(served: Backend) -> int:
    return len(served.status().zones[0].pools[0].members)


async def test_reload_refuses_to_empty_a_pool_unless_forced(backend: Backend, tmp_path: Path) -> None:
    write(tmp_path, UDP.replace("10.0.0.0/8", "10.5.0.0/16") + TCP)
    refused = await run("reload", "-c", tmp_path / "rspdns.toml")
    assert refused.exit_code == 1
    assert "nothing was changed, since a pool would lose its last member; --force does it" in refused.output
    assert f"{OWNER}: all 2 members that are in now would leave: 10.0.0.1:5060: " in refused.output
    assert members(backend) == 2
    with pytest.raises(ControlError, match="would lose its last member"):
        await backend.reload("alice")
    done = await run("reload", "--force", "-c", tmp_path / "rspdns.toml")
    assert done.exit_code == 0, done.output
    assert f"note: {OWNER}: all 2 members that are in now would leave" in done.output
    assert members(backend) == 0


async def test_reload_tells_who_goes_when_others_stay(backend: Backend, tmp_path: Path) -> None:
    write(tmp_path, UDP.replace("10.0.0.0/8", "10.0.0.0/24") + TCP)
    done = await run("reload", "-c", tmp_path / "rspdns.toml")
    assert done.exit_code == 0, done.output
    assert f"note: {OWNER}: 1 of the 2 members that are in now would leave: 10.0.9.2:5060" in done.output
    assert members(backend) == 1


async def test_check_asks_the_running_backend_who_would_go(backend: Backend, tmp_path: Path) -> None:
    path, file = tmp_path / "rspdns.toml", tmp_path / "zones.d" / f"{ZONE}.toml"
    write(tmp_path, UDP.replace("10.0.0.0/8", "10.5.0.0/16") + TCP)
    said = (await run("check", "-c", path)).output
    assert f"warning: {file}:9: pool[0].accept: {OWNER}: all 2 members that are in now would leave" in said
    assert "; reload --force is needed" in said
    assert "would leave" not in (await run("check", "--offline", "-c", path)).output
    write(tmp_path, TCP)
    said = (await run("check", "-c", path)).output
    assert f"warning: {file}" in said
    assert f"{OWNER}: all 2 members that are in now would leave: " in said
    assert "its pool is not configured any more" in said
    shutil.rmtree(tmp_path / "zones.d")
    (tmp_path / "zones.d").mkdir()
    said = (await run("check", "-c", path)).output
    assert f"warning: {tmp_path}/zones.d: {OWNER}: all 2 members that are in now would leave" in said


async def test_check_names_the_handles_of_which_nobody_could_be_asked(
    backend: Backend, tmp_path: Path
) -> None:
    """The backend runs and knows the others, so it would be wrong that nothing is known."""
    write(tmp_path, UDP.replace('"sip-udp"', '"sip-upd"'))
    assert members(backend) == 2
    said = (await run("check", "-c", tmp_path / "rspdns.toml")).output
    assert "it is registered under the handle sip-udp, not sip-upd" in said
    (note,) = (line for line in said.splitlines() if line.startswith("note: "))
    assert note.startswith("note: not known who registers 'sip-upd': the running backend knows no such pool")
    assert "no server registers" not in said


OWN = zone()
TARGET = f"00000002.u.as.{ZONE}"


def swapped(made: PdnsResponder, seen: Mapping[str, PoolView], before: Snapshot | None = None) -> Snapshot:
    snapshot = answered(OWN, seen, before)
    swap(made, snapshot)
    return snapshot


def addresses(made: PdnsResponder, name: str = TARGET, qtype: str = "ANY") -> list[str]:
    line = json.dumps({"method": "lookup", "parameters": {"qname": f"{name}.", "qtype": qtype}}).encode()
    reply = made.respond(line)
    assert isinstance(reply, bytes)
    return [record["content"] for record in json.loads(reply)["result"] or []]


def test_the_address_of_a_departed_target_is_answered_for_a_second_more() -> None:
    made = PdnsResponder()
    made.clock = lambda: now
    now = 100.0
    before = swapped(made, views(view(member(1), member(2))))
    expected = addresses(made)
    assert expected
    swapped(made, views(view(member(1))), before)
    assert addresses(made) == addresses(made, qtype="A") == expected
    assert addresses(made, qtype="AAAA") == []
    assert addresses(made, f"x.{TARGET}") == []
    assert len(addresses(made, f"_sip._udp.as.{ZONE}", "SRV")) == 1
    now += DEPARTED_KEPT_S + 0.1
    assert addresses(made) == []


def test_a_target_that_comes_back_is_answered_as_it_is_now() -> None:
    made = PdnsResponder()
    now = 100.0
    made.clock = lambda: now
    with_two = swapped(made, views(view(member(1), member(2, "10.0.0.2"))))
    without = swapped(made, views(view(member(1))), with_two)
    swapped(made, views(view(member(1), member(2, "10.0.0.99"))), without)
    assert addresses(made) == ["10.0.0.99"]


def test_targets_that_left_long_ago_take_no_memory() -> None:
    made = PdnsResponder()
    now = 100.0
    made.clock = lambda: now
    snapshot = swapped(made, views(view(member(1))))
    for number in range(2, 300):
        now += DEPARTED_KEPT_S / 5
        snapshot = swapped(made, views(view(member(1), member(number, "10.0.0.9"))), snapshot)
    assert len(made._departed) < 20
