"""Rules of the product that are broken, one at a time, to prove that scenarios notice it: chosen by hand.

`mutations` makes many more mechanically. Each replaces a text of a module, in the worker's memory only.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule, broken: in `module` the text `old`, which occurs once, becomes `new`.

    `faults` are the kinds under which the rule matters.
    """

    name: str
    module: str
    old: str
    new: str
    faults: str
    size: str = "3,4,2"


_SERVERS = "server-killed,server-frozen,server-power,sidecar-killed"
_REGISTRARS = "registrar-killed,registrar-frozen,registrar-power"
_DECISIONS, _POOL = "pool_user.belief.decisions", "pool_user.belief.pool"
_RULES, _STANDING = "pool_user.belief.rules", "pool_user.registrars.standing"
_ELEMENT, _REGISTRATION = "rserpool.element", "ppe_agent.registration"
_PUBLISHER, _PURGES, _PURGE = "rspdns.answers.publisher", "rspdns.answers.purges", "rspdns.pdns.purge"

MUTANTS: Final = (
    # Belief
    Mutant(
        "listed-is-not-in",
        _DECISIONS,
        "        return VOUCHED\n    last_s",
        "        pass\n    last_s",
        _REGISTRARS,
    ),
    Mutant(
        "nobody-entitled-denies",
        _DECISIONS,
        "if awaited or not registrars.settled:",
        "if awaited:",
        _REGISTRARS,
    ),
    Mutant(
        "home-removes-nobody",
        _DECISIONS,
        "return Judgement(ClaimVerdict.DENIED, Code.REMOVED)",
        "return Judgement(ClaimVerdict.PENDING)",
        _SERVERS,
    ),
    Mutant(
        "contested-leaves",
        _RULES,
        "CONTESTED_S = 2.2",
        "CONTESTED_S = 0.0",
        "registrar-lies",
    ),
    Mutant(
        "contest-is-skipped",
        _POOL,
        "        self._contest(members, registrars, followed, now)\n",
        "",
        "registrar-lies,registrars-parted",
    ),
    Mutant(
        "orphans-are-not-probed",
        _RULES,
        "ORPHAN_AFTER_S = 0.2",
        "ORPHAN_AFTER_S = 60.0",
        "server-and-home",
    ),
    Mutant(
        "crowd-waits", _RULES, "CROWD_QUESTIONED_S = 1.0", "CROWD_QUESTIONED_S = 30.0", "server-power,parted"
    ),
    Mutant(
        "forged-sentinel-counts",
        _STANDING,
        "own = [element for element in elements if element.user_transport.addresses == (self._host,)]",
        "own = list(elements)",
        "stranger,registrar-killed,server-killed",
    ),
    Mutant(
        "silent-counts",
        _STANDING,
        "return Standing.SILENT",
        "return Standing.SETTLED",
        "registrar-frozen," + _SERVERS,
    ),
    Mutant(
        "waking-counts",
        _STANDING,
        "return Standing.WAKING",
        "return Standing.SETTLED",
        "registrar-frozen," + _SERVERS,
    ),
    Mutant(
        "starting-counts",
        _STANDING,
        "return Standing.STARTING if self.identifier is None else Standing.SETTLED",
        "return Standing.SETTLED",
        "registrars-lost",
    ),
    Mutant(
        "stale-is-not-probed",
        _POOL,
        "everybody=self._is_probed(stale_s), stale",
        "everybody=False, stale",
        "server-killed,registrar-killed,registrar-power",
        "2,3,2",
    ),
    Mutant(
        "accept-is-skipped",
        "pool_user.belief.admission",
        "def why_refused(",
        "def why_refused(*_):\n    return None\n\n\ndef _why_refused(",
        "stranger",
    ),
    # Registration
    Mutant(
        "lost-registrar-is-waited-for",
        _ELEMENT,
        "self._wait(now, self._rotation.failed(self._chosen, now))",
        "self._wait(now, 30.0)",
        _REGISTRARS,
    ),
    Mutant(
        "keep-alive-is-not-answered",
        _ELEMENT,
        "        self._send(association, asap.EndpointKeepAliveAck(self.handle, self.element.identifier))\n",
        "",
        "registrar-killed",
    ),
    Mutant(
        "silent-registrar-is-waited-for",
        _ELEMENT,
        "\nRESPONSE_TIMEOUT_S = 0.5",
        "\nRESPONSE_TIMEOUT_S = 60.0",
        "registrar-frozen",
    ),
    Mutant(
        "connecting-takes-ages",
        _ELEMENT,
        "\nCONNECT_TIMEOUT_S = 0.5",
        "\nCONNECT_TIMEOUT_S = 60.0",
        "registrar-power,cable-pulled",
    ),
    Mutant(
        "missing-is-not-renewed",
        _REGISTRATION,
        '            machine.register_again(f"not listed by {registrar}", now)\n',
        "",
        "registrar-frozen,registrar-lies,parted",
    ),
    Mutant(
        "renewals-stop",
        _ELEMENT,
        "            case ElementState.REGISTERED:\n                self._renew(now)\n",
        "            case ElementState.REGISTERED:\n                pass\n",
        "lossy,parted",
    ),
    Mutant(
        "takeover-is-refused",
        _ELEMENT,
        "if self._pinned or registrar is None or is_distrusted:",
        "if True:",
        "registrar-frozen,registrars-parted",
    ),
    Mutant(
        "check-decides-nothing",
        "ppe_agent.server",
        "            self._decide()  # first of all",
        "            pass  # first of all",
        _SERVERS,
    ),
    Mutant(
        "one-check-is-enough",
        "ppe_agent.health",
        "return all(check.machine.state is",
        "return any(check.machine.state is",
        _SERVERS,
    ),
    Mutant(
        "refused-waits",
        "ppe_agent.checks.base",
        "        if life is not Life.REFUSED:\n            self.run =",
        "        if True:\n            self.run =",
        "server-killed",
    ),
    # Publisher
    Mutant(
        "change-is-not-purged",
        _PUBLISHER,
        "self._swap(change, self._purges.of(change, moved, is_first=self.builds == 0))",
        "self._swap(change, lambda first: None)",
        _SERVERS,
    ),
    Mutant(
        "waiting-change-is-forgotten",
        _PUBLISHER,
        "            self._set_timer(self._ready_at_s)\n",
        "            pass\n",
        "drained,server-killed",
    ),
    Mutant(
        "serial-begins-anew",
        "rspdns.answers.serial_number",
        "self._last = max(self._reserved, int(wall_s))",
        "self._last = 0",
        "backend-killed",
    ),
    Mutant(
        "serial-stands-in-one-file",
        "rspdns.answers.serial_number",
        'FILE_NAMES = ("serial", "serial.copy")',
        'FILE_NAMES = ("serial",)',
        "state-torn,load-changed",
    ),
    Mutant(
        "left-target-is-gone",
        "rspdns.pdns.responder",
        "return self._departed_reply(zone, absent, qtype)",
        "return NOTHING",
        "drained,server-killed",
    ),
    Mutant(
        "left-names-are-purged-once",
        _PURGES,
        "        self._purge_later(change.after, names)\n",
        "",
        "drained,server-killed",
    ),
    # Purge schedule
    Mutant("purged-once", _PURGE, "GAPS_S = (0.0, 0.010, 0.040)", "GAPS_S = (0.0,)", "drained,server-killed"),
    Mutant(
        "failed-purge-is-forgotten",
        _PURGE,
        "                self._queues[_RETRY][name] = now + RETRY_S\n",
        "                pass\n",
        "control-stuck,server-killed",
    ),
)
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}
