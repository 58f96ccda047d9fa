"""The example of rserpool's README, run as it stands there against paper registrars."""

import asyncio
import re

import pytest

from tests.rserpool.paper_registrars import ELEMENT, REGISTRARS, PaperRegistrar
from tests.rserpool.paper_sockets import PaperNetwork
from tests.rserpool.paper_sockets import network as network  # the fixture
from tests.support.namespaces import REPOSITORY

HANDLE = b"sip-as-udp"


def example() -> str:
    page = (REPOSITORY / "rserpool" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return str(code)


async def test_example_shows_the_members_and_registers_until_it_deregisters(
    network: PaperNetwork, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handlespace = {HANDLE: {ELEMENT.identifier: ELEMENT}}
    for address in REGISTRARS:
        network.registrars[address.endpoint] = PaperRegistrar(0x100, pools=handlespace)
    names: dict[str, object] = {}
    mains: list[object] = []
    monkeypatch.setattr(asyncio, "run", mains.append)  # a loop runs already
    exec(compile(example(), "README.md", "exec"), names)  # noqa: S102 - our own page
    (main,) = mains
    await main  # type: ignore[misc]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("0000a001 10.0.1.1 5060 LeastUsed")
    assert [line.split()[0] for line in shown[1:]] == ["registered", "deregistered"]
    assert handlespace[HANDLE] == {ELEMENT.identifier: ELEMENT}
    assert network.open_sockets == []
