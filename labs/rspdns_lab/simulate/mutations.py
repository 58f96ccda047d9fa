"""Mutants made mechanically: a module's source with one small change each. Pure.

A change negates a condition, swaps a comparison or a connective, drops a statement, or changes a constant.
Functions that make words for people are left alone, and so are annotations, loops' conditions, positions in
sequences, and lines of the log.
"""

import ast
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "belief": (
        "pool_user.belief.admission",
        "pool_user.belief.crowd",
        "pool_user.belief.decisions",
        "pool_user.belief.history",
        "pool_user.belief.homes",
        "pool_user.belief.identities",
        "pool_user.belief.listing",
        "pool_user.belief.moves",
        "pool_user.belief.pool",
        "pool_user.belief.reachability",
        "pool_user.belief.reports",
        "pool_user.belief.rules",
        "pool_user.belief.state",
        "pool_user.registrars.polling",
        "pool_user.registrars.session",
        "pool_user.registrars.standing",
    ),
    "registration": (
        "rserpool.element",
        "ppe_agent.health",
        "ppe_agent.lookup",
        "ppe_agent.registration",
    ),
    "publisher": (
        "rspdns.answers.building",
        "rspdns.answers.change",
        "rspdns.answers.pool_state",
        "rspdns.answers.publisher",
        "rspdns.answers.serial_number",
    ),
    "purge": ("rspdns.answers.purges", "rspdns.pdns.purge"),
}
"""The modules whose rules are broken."""

LEFT_OUT: Final[Mapping[str, tuple[str, ...]]] = {
    "read by status, metrics and the log alone": (
        "pool_user.belief.admission.PoolAdmission.refuse",
        "pool_user.belief.history.History.out",
        "pool_user.belief.moves.MovedMembers.events",
        "pool_user.belief.pool._out",
        "pool_user.belief.reports.PoolReports._note_refusal",
        "pool_user.belief.reports.PoolReports.listed_by",
        "pool_user.belief.state.Belief.listed_by",
        "pool_user.belief.state.Belief.refused",
        "pool_user.belief.state.Belief.registrar_states",
        "pool_user.belief.state.Belief.take_events",
        "pool_user.registrars.session.RegistrarSession.view",
        "pool_user.registrars.session.RegistrarSessions._tell_of",
        "ppe_agent.health._ago",
        "ppe_agent.health.Health.describe",
        "ppe_agent.health.Health.new_warning",
        "ppe_agent.lookup.RegistrarWatch._tell_if_unheard",
        "ppe_agent.lookup.RegistrarWatches.listed_by",
        "ppe_agent.registration.Upkeep._log_event",
        "ppe_agent.registration.Upkeep._look_for_twin",
        "ppe_agent.registration.Upkeep._rejected",
        "ppe_agent.registration.Upkeep.is_unconfirmed",
        "rspdns.pdns.purge.ControlSocket._failed",
    ),
    "of what scenarios lack: remote agents, reports of the unreachable, damping, other registrars after a "
    "reload, several handlespaces, sites, aliases, cells, answers by asker, a pool that nobody looks up": (
        "pool_user.belief.admission.spoken_for",
        "pool_user.belief.rules.pool_handle",
        "pool_user.registrars.session.RegistrarSessions.homes_of",
        "ppe_agent.health.Health._hold",
        "ppe_agent.health.Health.go_on_from",
        "ppe_agent.health.Health.held_for_s",
        "ppe_agent.lookup.RegistrarWatch.report_unreachable",
        "ppe_agent.lookup.RegistrarWatches._report_unreachable",
        "rserpool.element.PoolElementMachine.update_registrars",
        "rserpool.element.PoolElementClient.update_registrars",
        "rspdns.answers.building._give_the_orders",
        "rspdns.answers.change.ZoneChange._aliases",
        "rspdns.answers.pool_state._by_cell",
        "rspdns.answers.pool_state.PoolState.gives_the_orders_of",
        "rspdns.answers.publisher.Publisher.looked_up",
        "pool_user.registrars.polling.Round._idle_share",
    ),
    "a bound against floods and large pools, or a build that fails: scenarios have some ten servers": (
        "pool_user.belief.reports.PoolReports._make_room",
        "pool_user.registrars.polling.Round._in_turn",
        "rserpool.element.Silence",
        "rserpool.element.Associations.is_full",
        "ppe_agent.registration.is_cut",
        "rspdns.answers.publisher.Publisher._build_apart",
    ),
    "a short cut: without it the same answers, later by less than a scenario sees": (
        "pool_user.belief.pool.PoolBelief._in_order",
        "rspdns.answers.building._all_nodes",
        "rspdns.answers.building._are_same",
        "rspdns.answers.building._nodes",
        "rspdns.answers.building._Moment.asks_for_no_more_than",
    ),
    "replaced by a model": ("rspdns.pdns.purge._Exchange",),
}
"""Functions whose mutants are not tried, by the reason: chosen by reading, before any was run."""
_BOUND: Final = ("MOST_", "MAX_", "_MOST_", "_MAX_")
"""How the names of bounds against floods begin."""

_SWAPPED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_LONGEST_WORDS: Final = 90


@dataclass(frozen=True, slots=True)
class Mutation:
    """The change `number` of a module: in which line and function (empty: outside of all), and in words."""

    module: str
    number: int
    line: int
    function: str
    words: str

    @property
    def name(self) -> str:
        """The name by which a worker finds it."""
        return f"{self.module}#{self.number}"


def mutations(module: str, source: str) -> list[Mutation]:
    """All changes of a module."""
    mutator = _Mutator(module, None)
    mutator.visit(ast.parse(source))
    return mutator.offered


def is_tried(mutation: Mutation) -> bool:
    """Whether a mutant is one of those to be tried: none of `LEFT_OUT`, and no bound against floods."""
    if not mutation.function:
        return not mutation.words.startswith(_BOUND)
    where = f"{mutation.module}.{mutation.function}."
    return not any(where.startswith(f"{left}.") for group in LEFT_OUT.values() for left in group)


def spread(by_module: Sequence[Sequence[Mutation]], count: int) -> list[Mutation]:
    """Choose this number of mutants, as many of each module where it has them; the same each time."""
    shuffled = [list(each) for each in by_module]
    for each in shuffled:
        random.Random("mutants").shuffle(each)  # noqa: S311 - a choice, no secret
    turns = zip_longest(*shuffled)
    return [each for turn in turns for each in turn if each is not None][: count or None]


def mutated(source: str, number: int) -> ast.Module:
    """The module with this change."""
    tree: ast.Module = _Mutator("", number).visit(ast.parse(source))
    return ast.fix_missing_locations(tree)


class _Mutator(ast.NodeTransformer):
    """Offers every change, and carries the wanted one out."""

    def __init__(self, module: str, wanted: int | None) -> None:
        self.offered: list[Mutation] = []
        self._module = module
        self._wanted = wanted
        self._functions: list[str] = []
        self._depth = 0
        """How many functions are around."""
        self._constant = ""
        """The name of the constant that is made, with a colon."""

    def _offer(self, before: ast.AST, after: ast.AST, words: str = "") -> ast.AST:
        """The node, or what stands in its place when this change is wanted."""
        number = len(self.offered)
        words = f"{self._constant}{words or f'{_text(before)} -> {_text(after)}'}"
        line: int = getattr(before, "lineno", 0)
        function = ".".join(self._functions) if self._depth else ""
        self.offered.append(Mutation(self._module, number, line, function, words))
        return ast.copy_location(after, before) if number == self._wanted else before

    # Left alone

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """The body of a class."""
        return self._within(node, 0)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """The body of a function, unless it makes words."""
        is_word = isinstance(node.returns, ast.Name) and node.returns.id == "str"
        return node if is_word or node.name in ("__repr__", "__str__") else self._within(node, 1)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """The body of a coroutine."""
        return self._within(node, 1)

    def _within(self, node: Any, depth: int) -> ast.AST:
        self._functions.append(node.name)
        self._depth += depth
        node.body = self._statements(node.body)
        self._depth -= depth
        self._functions.pop()
        whole: ast.AST = node
        return whole

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(statement) for statement in body]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """The value only."""
        if node.value is not None:
            node.value = self._value(node.target, node.value)
        return node

    def _value(self, target: ast.expr, value: ast.expr) -> Any:
        self._constant = "" if self._depth else f"{_text(target)}: "
        changed = self.visit(value)
        self._constant = ""
        return changed

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """A position in a sequence is no constant to change."""
        node.value = self.visit(node.value)
        if not isinstance(node.slice, ast.Constant | ast.UnaryOp):
            node.slice = self.visit(node.slice)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Words."""
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        """The body: a loop that never ends proves nothing."""
        node.body = self._statements(node.body)
        return node

    # Changed

    def visit_If(self, node: ast.If) -> ast.AST:
        """Negate the condition."""
        self._visit_condition(node)
        node.body, node.orelse = self._statements(node.body), self._statements(node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Negate the condition."""
        self._visit_condition(node)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def _visit_condition(self, node: ast.If | ast.IfExp) -> None:
        test = node.test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            negated: ast.expr = test.operand
        else:
            negated = ast.UnaryOp(ast.Not(), test)
        node.test = self.visit(test)
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1):  # its swap is the same
            changed = self._offer(node.test, negated)
            node.test = changed if isinstance(changed, ast.expr) else node.test

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Swap the comparison."""
        self.generic_visit(node)
        if len(node.ops) != 1 or type(node.ops[0]) not in _SWAPPED:
            return node
        return self._offer(node, ast.Compare(node.left, [_SWAPPED[type(node.ops[0])]()], node.comparators))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """`and` for `or`."""
        self.generic_visit(node)
        return self._offer(
            node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        )

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Another truth, a number ten times as large or, where it is 0, 1, and one that is nearly none."""
        value = node.value
        if isinstance(value, bool):
            return self._offer(node, ast.Constant(not value))
        if not isinstance(value, int | float):
            return node
        others = (1.0, -1.0) if value == 0 else (value * 10, value / 10)
        changed: ast.AST = node
        for other in map(type(value), others):
            if other != value:
                offered = self._offer(node, ast.Constant(other))
                changed = offered if offered is not node else changed
        return changed

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Drop a call."""
        call = node.value
        if isinstance(call, ast.Constant):
            return node  # a docstring
        if not isinstance(call, ast.Call) or "log" in _text(call.func).lower() or "super()" in _text(call):
            return node
        self.generic_visit(node)
        return self._offer(node, ast.Pass(), f"without {_text(node)}")

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Drop an assignment to an attribute or an entry."""
        node.value = self._value(node.targets[0], node.value)
        is_first = self._functions[-1:] == ["__init__"]
        if is_first or not isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            return node
        return self._offer(node, ast.Pass(), f"without {_text(node)}")

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Drop it."""
        node.value = self.visit(node.value)
        return self._offer(node, ast.Pass(), f"without {_text(node)}")

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        """Drop it."""
        return self._offer(node, ast.Pass(), f"without {_text(node)}")

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Drop it where it only ends a function early."""
        if node.value is not None:
            node.value = self.visit(node.value)
            return node
        return self._offer(node, ast.Pass(), "without return")

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        """Drop it."""
        return self._offer(node, ast.Pass(), "without continue")


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]}..."
