"""The house: which test imports from which, which files begin first, which C file includes which."""

import ast
import re
from graphlib import TopologicalSorter

import pytest

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


@pytest.mark.parametrize("folder", ["sctpd", "preload"])
def test_c_files_include_each_other_in_no_circle(folder: str) -> None:
    """A header and the file that defines what it declares count as one; none knows what stands above it."""
    graph: dict[str, set[str]] = {}
    for path in (REPOSITORY / "sctp-userland" / folder).glob("*.[ch]"):
        included = {name.removesuffix(".h") for name in re.findall(r'#include "([^"/]+)"', path.read_text())}
        graph.setdefault(path.stem, set()).update(included - {path.stem})
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


def test_files_that_begin_first_are_there() -> None:
    assert set(LONGEST) <= {path.stem for path in MODULES}
