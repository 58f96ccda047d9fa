"""The house: who imports past a door, how large a class may be, which files begin first."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.support.longest import LONGEST
from tests.support.namespaces import REPOSITORY

HOUSES = ("tests", "sctp-userland/tests", "ppu-agent/guard/tests")
MODULES = sorted(path for house in HOUSES for path in (REPOSITORY / house).rglob("*.py"))
PUBLIC = {
    "rserpool": ("asap", "enrp", "policies"),
    "pool_user": ("weights",),
    "registrar_config": (),
    "pdns_config": (),
}
"""Packages with a door, and the modules that it exports as they are. For the packages themselves
import-linter holds the same (pyproject.toml)."""
INSIDE = {
    "tests/integration/test_probe_icmp.py": "pool_user",
    "tests/integration/test_probe_sctp.py": "pool_user",
    "tests/labs/test_simulated_caller.py": "pool_user",
    "tests/ppe_agent/test_collision.py": "rserpool",
}
"""Tests of a package's inside that stand elsewhere: they need namespaces, an automaton's actions, or the
tables that a lab counts."""


@cache
def imports_of(path: Path) -> list[ast.Import | ast.ImportFrom]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def test_no_module_imports_from_a_test_module() -> None:
    """Code that tests share stands in a module of its own, whose name says what it is."""
    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}: from {node.module}"
        for path in MODULES
        for node in imports_of(path)
        if isinstance(node, ast.ImportFrom) and ".test_" in f".{node.module}"
    ]
    assert not found


@pytest.mark.parametrize("package", PUBLIC)
def test_only_a_packages_own_tests_import_past_its_door(package: str) -> None:
    paths = [*MODULES, *(REPOSITORY / "setup").rglob("*.py"), *(REPOSITORY / "packaging").rglob("*.py")]
    found = [
        f"{name}:{node.lineno}: {module}"
        for path in paths
        if not (name := str(path.relative_to(REPOSITORY))).startswith(f"tests/{package}/")
        and INSIDE.get(name) != package
        for node in imports_of(path)
        for module in imported_by(node)
        if module.startswith(f"{package}.") and module.split(".")[1] not in PUBLIC[package]
    ]
    assert not found


def imported_by(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]


SENTENCES = {"words", "reason", "said"}
"""Attributes that hold the words of a `Cause` or a `Finding`, and variables outside the backend."""
CUTS = {"startswith", "endswith", "split", "partition", "rpartition", "replace", "find", "removeprefix"}


@pytest.mark.parametrize("folder", ["pool-user", "backend", "ppe-agent/ppe_agent", "ppu-agent/ppu_agent"])
def test_no_code_compares_or_cuts_a_sentence(folder: str) -> None:
    """Decisions read the code of a cause and the life of a finding; the sentences may change at any time."""
    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in (REPOSITORY / folder).rglob("*.py")
        if path.parent.name != "importing"  # `words` are those of a record there
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.expr) and any(is_sentence(part, folder) for part in compared(node))
    ]
    assert not found


def is_sentence(node: ast.expr, folder: str) -> bool:
    if isinstance(node, ast.Name):
        return folder != "backend" and node.id in SENTENCES
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def compared(node: ast.expr) -> list[ast.expr]:
    """The expressions that a node compares, or cuts. A message that is news, since it is not the last one, is
    allowed."""
    match node:
        case ast.Compare(left, [ast.In() | ast.NotIn() | ast.Eq()], others):
            return [left, *others]
        case ast.Call(ast.Attribute(value, attr)) if attr in CUTS:
            return [value]
        case ast.Subscript(value):
            return [value]
    return []


MOST_ATTRIBUTES = 20
PACKAGES = (
    "rserpool",
    "daemon-kit",
    "pool-user",
    "backend",
    "ppe-agent",
    "ppu-agent",
    "registrar-config",
    "pdns-config",
    "labs",
)
TABLES = {
    "BackendConfig": "the keys of rspdns.toml",
    "PoolConfig": "the keys of a pool in a zone's file",
    "LoadConfig": "the keys of a load source in ppe-agent's file",
    "ServerStatus": "the values of a server in ppe-agent's status",
}
"""Larger classes, and the page of the reference that each is. They have no behaviour."""


def test_no_class_with_behaviour_has_more_attributes_than_a_reader_can_hold() -> None:
    classes = [
        node
        for package in PACKAGES
        for path in (REPOSITORY / package).rglob("*.py")
        if "tests" not in path.relative_to(REPOSITORY).parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    large = [node for node in classes if len(stored(node) | declared(node)) > MOST_ATTRIBUTES]
    assert {node.name for node in large} == TABLES.keys()
    assert not any(stored(node) for node in large)


def declared(node: ast.ClassDef) -> set[str]:
    return {
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def stored(node: ast.ClassDef) -> set[str]:
    """The attributes of itself that a class sets."""
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }


def test_files_that_begin_first_are_there() -> None:
    assert set(LONGEST) <= {path.stem for path in MODULES}
