"""Real registrars, pool elements, backend and PowerDNS: what joins is in DNS, what leaves is not."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.chain import ADDRESS, HANDLE, OWNER, POOL, ZONE, Chain, end, until
from tests.support.members import Members
from tests.support.namespaces import Namespace
from tests.support.stalls import Mark


@pytest.fixture
def chain(namespace: Namespace, tmp_path: Path) -> Chain:
    return Chain(namespace, tmp_path)


@pytest.fixture
def members(chain: Chain) -> Members:
    return Members(chain.namespace, chain.folder, ADDRESS, chain.registrars)


def join(chain: Chain, members: Members, *identifiers: int) -> None:
    for identifier in identifiers:
        members.add(identifier, HANDLE, 5000 + identifier)
    until(lambda: chain.targets() == set(identifiers), log=chain.log)


def test_joining_and_leaving(chain: Chain, members: Members) -> None:
    chain.start()
    assert chain.targets() == "NOERROR", "known to be empty"
    join(chain, members, 1, 2, 3)
    left = Mark.now()
    members.remove(2)
    until(lambda: chain.targets() == {1, 3})
    assert left.ran_s() < 1
    members.add(2, HANDLE, 5002)
    until(lambda: chain.targets() == {1, 2, 3})


def test_a_killed_server_leaves_at_once(chain: Chain, members: Members) -> None:
    chain.start()
    join(chain, members, 1, 2)
    other = Members(chain.namespace, chain.folder, ADDRESS, chain.registrars, "other")
    other.add(3, HANDLE, 5003)
    until(lambda: chain.targets() == {1, 2, 3})
    killed = Mark.now()
    other.kill()
    until(lambda: chain.targets() == {1, 2})
    assert killed.ran_s() < 1.5


def test_load_moves_the_weight(chain: Chain, members: Members) -> None:
    chain.start()
    join(chain, members, 1, 2)
    members.set_load(1, 0.6)
    until(lambda: sorted(line.split()[1] for line in chain.pdns.short(OWNER, "SRV")) == ["1000", "400"])
    members.set_load(2, 0.99)
    until(lambda: [line.split()[0] for line in chain.pdns.short(OWNER, "SRV")] == ["0", "1"])


def test_status_tells_who_is_in_and_why_somebody_is_not(namespace: Namespace, tmp_path: Path) -> None:
    chain = Chain(namespace, tmp_path)
    namespace.run("ip", "address", "add", "10.99.0.77/24", "dev", "eth0")
    chain.start()
    members = Members(namespace, tmp_path, ADDRESS, chain.registrars)
    stranger = Members(namespace, tmp_path, "10.99.0.77", chain.registrars, "stranger")
    join(chain, members, 1)
    stranger.add(7, HANDLE, 5007)
    until(lambda: chain.pool()["out"], log=chain.log)
    assert chain.targets() == {1}
    status = json.loads(chain.command("status", "--json").stdout)
    (pool,) = status["zones"][0]["pools"]
    assert [one["identifier"] for one in pool["members"]] == ["00000001"]
    assert pool["members"][0]["weight"] == 1000
    (out,) = pool["out"]
    assert (out["identifier"], out["address"]) == ("00000007", "10.99.0.77")
    assert "accept" in out["reason"]
    assert {one["standing"] for one in status["registrars"]} == {"settled"}
    assert status["pdns"][0]["problem"] is None
    shown = chain.command("status").stdout
    for word in ("00000001", "00000007", "refused", "settled", OWNER, "works"):
        assert word in shown


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_of_the_backend_is_no_empty_answer(
    chain: Chain, members: Members, how: signal.Signals
) -> None:
    backend = chain.start()
    join(chain, members, 1, 2)
    time.sleep(1.5)  # the last-known-good file is written once a second
    serial = int(chain.pdns.short(ZONE, "SOA")[0].split()[2])
    code = end(backend, how)
    assert code == (0 if how is signal.SIGTERM else -signal.SIGKILL)
    chain.start_backend()
    seen = []
    end_s = time.monotonic() + 3
    while time.monotonic() < end_s:
        seen.append(chain.targets())
    assert seen[-1] == {1, 2}
    assert all(one in ({1, 2}, "SERVFAIL") for one in seen), seen
    # Each of PowerDNS's connections that the restart broke answers SERVFAIL once.
    until(lambda: chain.pdns.short(ZONE, "SOA"))
    assert int(chain.pdns.short(ZONE, "SOA")[0].split()[2]) >= serial


def test_without_registrars_the_last_answers_go_on_also_after_a_restart(
    chain: Chain, members: Members
) -> None:
    backend = chain.start()
    join(chain, members, 1, 2)
    time.sleep(1.5)
    for program in chain.registrar_programs:
        end(program, signal.SIGKILL)
    until(lambda: chain.pool()["stale_s"] is not None)
    assert chain.targets() == {1, 2}
    end(backend, signal.SIGKILL)
    chain.start_backend()
    until(lambda: chain.targets() == {1, 2}, 5)
    assert all(one["stale"] for one in chain.pool()["members"])
    chain.start_registrars()
    until(chain.is_known, 40, chain.log)
    until(lambda: not any(one["stale"] for one in chain.pool()["members"]), 40)
    assert chain.targets() == {1, 2}


def test_without_any_view_it_is_servfail(namespace: Namespace, tmp_path: Path) -> None:
    chain = Chain(namespace, tmp_path)
    for program in chain.registrar_programs:
        end(program, signal.SIGKILL)
    chain.start_backend()
    chain.pdns.start(ZONE)
    assert chain.targets() == "SERVFAIL"
    assert chain.pdns.short(ZONE, "NS") == [f"ns1.{ZONE}."]


def test_a_backend_that_hangs_takes_powerdns_with_it_only_while_it_hangs(
    chain: Chain, members: Members
) -> None:
    backend = chain.start()
    join(chain, members, 1, 2)
    os.killpg(backend.pid, signal.SIGSTOP)
    try:
        end_s = time.monotonic() + 4
        while time.monotonic() < end_s:
            assert chain.targets() in ({1, 2}, "SERVFAIL", ""), "an empty answer"
    finally:
        os.killpg(backend.pid, signal.SIGCONT)
    until(lambda: chain.targets() == {1, 2}, 10)
    assert chain.pdns.process is not None
    assert chain.pdns.process.poll() is None


def test_a_killed_registrar_takes_nobody_with_it(chain: Chain, members: Members) -> None:
    chain.start()
    join(chain, members, 1, 2, 3)
    end(chain.registrar_programs[0], signal.SIGKILL)
    end_s = time.monotonic() + 5
    while time.monotonic() < end_s:
        assert chain.targets() == {1, 2, 3}


def test_zones_are_read_again(chain: Chain, members: Members) -> None:
    chain.start()
    join(chain, members, 1)
    second = POOL.replace('name = "as"', 'name = "new"').replace(HANDLE, "second")
    chain.write_zone(POOL + second + "nonsense = 1\n")
    refused = chain.command("reload")
    assert refused.returncode == 1
    assert "nonsense" in refused.stderr
    assert chain.targets() == {1}
    chain.write_zone(POOL + second)
    assert chain.command("reload").stdout == f"serving {ZONE}\n"
    members.add(5, "second", 5005)
    until(lambda: len(chain.pdns.short(f"_sip._udp.new.{ZONE}", "SRV")) == 1)
    assert chain.targets() == {1}


def test_a_second_backend_at_the_same_sockets_says_so(chain: Chain) -> None:
    chain.start_backend()
    second = chain.command("serve")
    assert second.returncode == 1
    assert "another process already answers" in second.stderr
    assert "Traceback" not in second.stderr


def test_an_element_of_rsplib_is_in_dns(namespace: Namespace, tmp_path: Path) -> None:
    chain = Chain(namespace, tmp_path)
    chain.write_zone(POOL.replace("_udp", "_sctp").replace('"u"', '"s"'))
    chain.start()
    namespace.start(
        *("rspserver", "-echo", "-policy=LeastUsed", f"-poolhandle={HANDLE}", f"-local={ADDRESS}:0"),
        *(f"-registrar={registrar}" for registrar in chain.registrars),
        "-asapannounce=off",
        sctp=True,
        log=tmp_path / "rspserver.log",
    )
    owner = f"_sip._sctp.as.{ZONE}"
    until(lambda: chain.pdns.short(owner, "SRV"), log=tmp_path / "rspserver.log")
    (record,) = chain.pdns.short(owner, "SRV")
    target = record.split()[3]
    assert target.endswith(f".s.as.{ZONE}.")
    assert chain.pdns.short(target, "A") == [ADDRESS]
