"""Asks an SNMP agent for one number, by net-snmp's program snmpget: for a check, and for a load.

snmpget has every version and cipher of SNMP (v2c, v3 with authPriv), and needs no Python package. Secrets
stay in net-snmp's own file, snmp.conf: on no command line, where `ps` would show them, and in no log.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daemon_kit.finding import Finding, Life, of_error

from ppe_agent.addresses import Address
from ppe_agent.checks.base import PeriodicCheck, Timing
from ppe_agent.checks.exec_check import run_command

PROGRAM: Final = "snmpget"
PORT: Final = 161
_NUMBER: Final = re.compile(r'"?(-?[0-9]{1,20}(?:\.[0-9]{1,20})?)"?')
_SHARE_OF_A_TRY: Final = 0.45
"""The share of the timeout for one try: a question or answer that was lost is asked for once more."""


class NoNumber(Exception):  # noqa: N818 - reads as what it is
    """The SNMP agent gave no number; the message says why."""


@dataclass(frozen=True)
class SnmpQuestion:
    """The question to an SNMP agent: the object `oid` (numbers and dots) of the agent at `address`, `port`.

    `credentials`: a file snmp.conf (snmp.conf(5)) with version, user and passphrases, or community.
    """

    address: Address
    port: int
    oid: str
    credentials: Path

    def command(self, timeout_ms: int) -> Sequence[str]:
        """Return the command that asks, for at most `timeout_ms`."""
        kind, host = ("udp", self.address) if self.address.version == 4 else ("udp6", f"[{self.address}]")
        try_s = f"{timeout_ms * _SHARE_OF_A_TRY / 1000:.3f}"
        return (PROGRAM, "-Oqvt", "-r", "1", "-t", try_s, f"{kind}:{host}:{self.port}", self.oid)

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what snmpget finds its file by; it reads no MIBs, and writes nothing."""
        return {"SNMPCONFPATH": str(self.credentials.parent), "SNMP_PERSISTENT_DIR": "/dev/null", "MIBS": ""}

    async def ask(self, timeout_ms: int) -> float:
        """Return the number. Raises NoNumber, and TimeoutError or OSError as `run_command()` does."""
        finished = await run_command(self.command(timeout_ms), timeout_ms, self.environment)
        said = finished.last_line  # warnings about snmp.conf come before it
        if finished.code != 0:
            raise NoNumber(said or f"{PROGRAM} exited with {finished.code}")
        match = _NUMBER.fullmatch(said)
        if match is None:
            raise NoNumber(f"{self.oid} is no number: {said or 'nothing'}")
        return float(match[1])


class SnmpCheck(PeriodicCheck):
    """A number of the SNMP agent is within `limits`, its lowest and highest value that are life."""

    kind = "snmp"

    def __init__(self, question: SnmpQuestion, limits: tuple[float, float], timing: Timing) -> None:
        super().__init__(question.oid, timing)
        self._question = question
        self._limits = limits

    async def attempt(self) -> Finding:
        """Ask once."""
        try:
            number = await self._question.ask(self._timing.timeout_ms)
        except TimeoutError:
            return Finding(Life.SILENT, "no answer of the SNMP agent", self._timing.timeout_ms)
        except NoNumber as problem:
            return Finding(Life.UNKNOWN, str(problem))
        except OSError as error:
            return of_error(error, f"{PROGRAM} can't be run")
        lowest, highest = self._limits
        if lowest <= number <= highest:
            return Finding(Life.ALIVE, f"it is {number:g}")
        return Finding(Life.UNWELL, f"it is {number:g}, not from {lowest:g} to {highest:g}")
