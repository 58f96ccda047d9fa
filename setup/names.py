#!/usr/bin/env python3
"""Lists names that are riddles: `setup/names.py [FILE...]`; default: all of Git's.

They are `one` in place of a noun, functions called told, found or heard instead of by what they return, and
classes and types with the name of another (CONTRIBUTING.md).
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

OF_TESTS = re.compile(r"(?:.*/)?tests/|packaging/trial/")
"""Folders whose classes may share a name: each is a test's own."""
STAND_IN = re.compile(r"(?!.*to_one)(?:\w*_)?ones?")
PARTICIPLE = re.compile(r"_*(?:told|found|heard)")

SourceLine = tuple[Path, int]
"""A file, and the number of a line in it."""


def stand_ins(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of what stands in for a noun: variables, parameters, attributes and functions."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if STAND_IN.fullmatch(name) or PARTICIPLE.fullmatch(name):
                    yield node.lineno, name
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.ExceptHandler(name=str() as name)
                | ast.MatchAs(name=str() as name)
                | ast.MatchStar(name=str() as name)
                | ast.MatchMapping(rest=str() as name)
                | ast.alias(asname=str() as name)
            ):
                if STAND_IN.fullmatch(name):
                    yield node.lineno, name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
                if PARTICIPLE.fullmatch(name):
                    yield node.lineno, name


def types(tree: ast.Module, path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, name and meaning of classes and types: the meaning of an alias is its definition."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield node.lineno, name, str(path)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.isupper():
                if name[0].isupper():
                    yield node.lineno, name, ast.dump(value)
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias"), value=ast.expr() as value
            ):
                yield node.lineno, name, ast.dump(value)


def main(names: list[str]) -> int:
    """Print them with file and line; return 1 when there are any."""
    files = names
    if not names:
        listed = subprocess.run(["git", "ls-files", "*.py"], check=True, capture_output=True, text=True)
        files = listed.stdout.splitlines()
    problems: list[tuple[Path, int, str]] = []
    meanings: dict[str, dict[str, SourceLine]] = defaultdict(dict)
    for path in map(Path, files):
        tree = ast.parse(path.read_text("utf-8"))
        problems += [(path, line, f"{name}: name the noun") for line, name in stand_ins(tree)]
        if not OF_TESTS.match(str(path)):
            for line, name, meaning in types(tree, path):
                meanings[name].setdefault(meaning, (path, line))
    for name, places in meanings.items():
        (first, first_line), *others = places.values()
        problems += [
            (path, line, f"{name} is another thing at {first}:{first_line}") for path, line in others
        ]
    for path, line, words in sorted(problems):
        print(f"{path}:{line}: {words}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
