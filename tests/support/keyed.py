"""A keyed pool of SIP servers in a chain: its keys, and the sidecar that holds them."""

from pathlib import Path

from click.testing import CliRunner
from rspdns.cli import main as rspdns

from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import SIP_PORTS, Chain
from tests.support.sidecar import server_text


def configure_keyed_sidecar(chain: Chain) -> Path:
    """Configure the sidecar of the servers at SIP_PORTS with their keys; return the pool's key file."""
    pool, server = chain.folder / "pool.key", chain.folder / "server.key"
    _command("new", pool)
    for port in SIP_PORTS:
        _command("derive", pool, "udp", ADDRESS, port, "-o", server)
    texts = [server_text(f"udp-{port}", HANDLE, "udp", port, "sip-options") for port in SIP_PORTS]
    chain.sidecar.configure(
        *(text.replace("[[as.check]]", f'key = "{server}"\n[[as.check]]') for text in texts)
    )
    return pool


def _command(*arguments: object) -> None:
    done = CliRunner().invoke(rspdns, ["key", *map(str, arguments)])
    assert done.exit_code == 0, done.output
