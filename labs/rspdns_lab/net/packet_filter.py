"""Packet filters of a lab's hosts: what loses packets, what keeps hosts apart."""

import subprocess
from collections.abc import Sequence

from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host


def lose_packets(host: Host, percent: float) -> None:
    """Have a host lose a share of the packets that reach it from others. Raises LabError."""
    below = round(percent * 100)
    _nft(
        host,
        f"""table inet loss {{
  counter lost {{ }}
  chain input {{
    type filter hook input priority -300; policy accept;
    iif != lo numgen random mod 10000 < {below} counter name lost drop
  }}
}}
""",
    )


def lost_packets(host: Host) -> int:
    """Return how many packets it has lost so."""
    said = _nft(host, "list counter inet loss lost\n")
    return int(said.split("packets ")[1].split()[0])


def keep_apart(host: Host, others: Sequence[Host]) -> None:
    """Have a host lose all packets that come from `others`. Raises LabError."""
    addresses = ", ".join(other.address for other in others)
    _nft(
        host,
        f"""table inet apart {{
  chain input {{
    type filter hook input priority -300; policy accept;
    ip saddr {{ {addresses} }} drop
  }}
}}
""",
    )


def join_again(host: Host) -> None:
    """Take `keep_apart` back; without one nothing happens."""
    _nft(host, "table inet apart\ndelete table inet apart\n")


def _nft(host: Host, text: str) -> str:
    command = ["nsenter", f"--net={host.path}", "--", "nft", "-f", "-"]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise LabError("nsenter is missing; install it: apt-get install util-linux") from None
    except subprocess.CalledProcessError as error:
        raise LabError(f"nft on {host.name}: {error.stderr.strip()} (Debian package: nftables)") from None
    return done.stdout
