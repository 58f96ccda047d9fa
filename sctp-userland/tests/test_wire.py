"""sctpd and a kernel's SCTP (a User-Mode Linux guest) talk to each other over two links; each begins once."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_sides import Side, Wire

from tests.support.second_try import BrokenError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

MESSAGES = 30_000
LOSS = """add table inet loss
add chain inet loss input { type filter hook input priority 0; }
add chain inet loss output { type filter hook output priority 0; }
add rule inet loss input meta l4proto 132 numgen random mod 100 < 1 counter drop
add rule inet loss output meta l4proto 132 numgen random mod 100 < 1 counter drop
"""


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory, sanitized_daemon: Path) -> Iterator[Wire]:
    """Return both sides for all tests: a guest takes seconds to boot. sctpd has the sanitizers."""
    wire = Wire(tmp_path_factory.mktemp("wire"))
    try:
        yield wire
    finally:
        wire.close()


@pytest.fixture
def wire(links: Wire) -> Wire:
    """Return both sides, running whatever the test before did."""
    links.make_ready()
    return links


@pytest.fixture(params=["sctpd begins", "kernel begins"])
def pair(wire: Wire, request: pytest.FixtureRequest) -> tuple[Side, Side]:
    """Return the side that begins, and the other one."""
    return (wire.sctpd, wire.kernel) if request.param == "sctpd begins" else (wire.kernel, wire.sctpd)


@pytest.fixture
def loss(wire: Wire) -> Iterator[None]:
    """Lose 1 % of the packets in each direction; afterwards some must have been lost in each."""
    nft = wire.namespace.command("nft")
    subprocess.run([*nft, "-f", "-"], input=LOSS, text=True, check=True)
    yield
    rules = subprocess.run(
        [*nft, "list", "table", "inet", "loss"], capture_output=True, text=True, check=True
    )
    subprocess.run([*nft, "delete", "table", "inet", "loss"], check=True)
    lost = [int(packets) for packets in re.findall(r"counter packets (\d+)", rules.stdout)]
    assert len(lost) == 2
    assert min(lost) > 0, f"nothing was lost in one direction: {lost}"


def connect(first: Side, second: Side, *, ipv6: bool = False) -> None:
    """Have `first` open a one-to-one association to `second`; both call it `sock`."""
    family, address = (10, second.address_ipv6) if ipv6 else (2, second.addresses[0])
    name = second.run(
        f"waiting = one_to_one({family}); waiting.bind(({address!r}, 0)); waiting.listen(1)\n"
        "result = waiting.getsockname()[:2]"
    )
    first.run(f"sock = one_to_one({family}); sock.connect({tuple(name)!r})")
    second.run("sock, _ = waiting.accept(); waiting.close()")


def associate(first: Side, second: Side, port: int = 0) -> None:
    """Have `first` open a one-to-many association to `second`: `sock` and `association` on both sides."""
    name = second.run(
        f"sock = one_to_many(); sock.bind(({second.addresses[0]!r}, 0)); sock.listen(4)\n"
        "result = sock.getsockname()"
    )
    first.run(
        f"sock = one_to_many(); sock.bind(({first.addresses[0]!r}, {port}))\n"
        f"send(sock, b'open', to={tuple(name)!r})"
    )
    second.run("association = receive_data(sock).association\nsend(sock, b'opened', association=association)")
    first.run("association = receive_data(sock).association")


@pytest.mark.exact
def test_messages_under_loss(pair: tuple[Side, Side], loss: None, request: pytest.FixtureRequest) -> None:
    """Each side sends numbered messages, both at once: none is lost, none comes twice."""
    first, second = pair
    connect(first, second)
    for side in pair:
        side.start(f"result = exchange(sock, {MESSAGES})")
    assert [side.result(500) for side in pair] == ["all", "all"]


@pytest.mark.exact
@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
def test_large_messages_and_the_end(pair: tuple[Side, Side], ipv6: bool) -> None:
    """Fragments are put together again; an orderly end is one, data before it arrives."""
    connect(*pair, ipv6=ipv6)
    for writer, reader in (pair, pair[::-1]):
        writer.run("for size in (1400, 1500, 9000, 65000): sock.send(b'%d' % size + bytes(size))")
        got = reader.run("result = [len(sock.recv(100000)) for _ in range(4)]")
        assert got == [1404, 1504, 9004, 65005]
    pair[0].run("sock.send(b'last words'); sock.close()")
    assert pair[1].run("result = [sock.recv(100).decode() for _ in range(2)]; sock.close()") == [
        "last words",
        "",
    ]


def test_closed_port_refuses_at_once(pair: tuple[Side, Side]) -> None:
    """By ABORT: without one, connect() would say ETIMEDOUT after some seconds."""
    code = f"""
try:
    one_to_one().connect(({pair[1].addresses[0]!r}, 9))
except OSError as error:
    result = type(error).__name__
"""
    assert pair[0].run(code) == "ConnectionRefusedError"


def test_abort(pair: tuple[Side, Side]) -> None:
    """The other side is told, with the reason."""
    associate(*pair)
    pair[0].run("send(sock, b'my reason', flags=ABORT, association=association)")
    assert pair[1].run("result = b'my reason' in receive_change(sock, COMM_LOST).data") is True


def test_a_side_that_forgets_everything(pair: tuple[Side, Side]) -> None:
    """One stack dies without a word and starts again.

    An association from the same address and port replaces the one that the other side still has (a restart,
    RFC 9260 section 5.2); data of one that nobody renews is answered by an ABORT (out of the blue, 8.4).
    """
    dies, stays = pair
    host, port = stays.run(
        f"sock = one_to_many(); sock.bind(({stays.addresses[0]!r}, 0)); sock.listen(4)\n"
        "result = sock.getsockname()"
    )
    renew = f"renewed = one_to_many(); renewed.bind(({dies.addresses[0]!r}, 7001))\n"
    to = f"to=({host!r}, {port})"
    dies.run(f"{renew}send(renewed, b'first', {to})")
    # Without heartbeats: those would tell the other side before the test does.
    stays.run("first = receive_data(sock).association; heartbeats(sock, first, 0)")
    dies.run(f"lost = one_to_many(); send(lost, b'second', {to})")
    stays.run("second = receive_data(sock).association; heartbeats(sock, second, 0)")
    dies.kill()
    dies.make_ready()
    stays.run("send(sock, b'anyone?', association=second)")
    assert stays.run("result = receive_change(sock, COMM_LOST).changed_association == second") is True
    dies.run(f"{renew}send(renewed, b'again', {to})")
    assert stays.run("result = receive_change(sock, RESTART).changed_association == first") is True
    assert stays.run("got = receive_data(sock); result = got.data.decode()") == "again"
    stays.run("send(sock, b'welcome back', association=got.association)")
    assert dies.run("result = receive_data(renewed).data.decode()") == "welcome back"


def ask_and_answer(first: Side, second: Side) -> None:
    """Twenty messages, each answered before the next."""
    second.start("paths.answer(20)")
    first.start("result = paths.ask(20)")
    if (right := first.result()) != 20:
        raise BrokenError(f"{right} of 20 answers were right")
    second.result()


def test_failover(wire: Wire, pair: tuple[Side, Side]) -> None:
    """One of two paths is cut: messages go on both ways, both sides are told; and told when it is back."""
    open_socket = """
sock = one_to_many(); sock.bind(({0!r}, 0)); port = sock.getsockname()[1]
bindx(sock, [({1!r}, port)]); sock.listen(4); result = port
"""
    ports = [side.run(open_socket.format(*side.addresses)) for side in pair]
    (first, second), both = pair, list(zip(pair, pair[::-1], ports[::-1], strict=True))
    first.run(f"send(sock, b'open', to=({second.addresses[0]!r}, {ports[1]}))")
    second.run("association = receive_data(sock).association; send(sock, b'opened', association=association)")
    first.run("association = receive_data(sock).association")
    for side, other, port in both:
        assert side.run("result = len(addresses_of(sock, association, peer=True))") == 2
        side.run("subscribe(sock, data_io=True, association=True, address=True)")
        side.run("heartbeats(sock, association, 300, most_timeouts=2); paths = Paths(sock, association)")
        side.run(f"paths.wait_until_active(({other.addresses[1]!r}, {port}))")
    wire.cut(0)
    try:
        ask_and_answer(first, second)
        for side, other, _ in both:
            side.run(f"paths.wait_for_change(ADDR_UNREACHABLE, {other.addresses[0]!r})")
    finally:
        wire.restore(0)
    for side, other, _ in both:
        side.run(f"paths.wait_for_change(ADDR_AVAILABLE, {other.addresses[0]!r})")
    ask_and_answer(first, second)
