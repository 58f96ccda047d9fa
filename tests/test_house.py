"""The house of the tests: who imports from whom, and which files the order of the run names."""

import ast

from tests.conftest import LONGEST
from tests.support.namespaces import REPOSITORY

MODULES = sorted((REPOSITORY / "tests").rglob("*.py"))


def test_no_module_imports_from_a_test_module() -> None:
    """What tests share stands in a module of its own, whose name says what it is."""
    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}: from {node.module}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and ".test_" in f".{node.module}"
    ]
    assert not found


def test_files_that_begin_first_are_there() -> None:
    assert set(LONGEST) <= {path.stem for path in MODULES}
