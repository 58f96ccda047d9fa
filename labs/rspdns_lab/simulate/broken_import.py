"""Breaks one rule in this process: the module that holds it is compiled from changed source.

`install` is called before anything of the product is imported, `break_function` after that.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from rspdns_lab.simulate.mutants import BY_NAME, Mutant
from rspdns_lab.simulate.mutations import mutated

VARIABLE: Final = "RSPDNS_SIMULATE_MUTANT"
"""The environment variable that names the mutant: one of `mutants`, or MODULE#NUMBER of `mutations`."""

SourceChange = Callable[[str], str | ast.Module]


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from changed source."""

    change: SourceChange

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed source, whatever is cached."""
        changed = self.change(Path(self.path).read_text())
        code: CodeType = compile(changed, self.path, "exec")
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, change: SourceChange) -> None:
        self._module = module
        self._change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the mutant's module; None for any other."""
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        loader = _Loader(fullname, spec.origin)
        loader.change = self._change
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


def _replace(mutant: Mutant, source: str) -> str:
    """Put the new text in place of the old one. Raises ImportError when this is not there once."""
    if source.count(mutant.old) != 1:
        raise ImportError(
            f"mutant {mutant.name}: {mutant.module} has its text {source.count(mutant.old)} times"
        )
    return source.replace(mutant.old, mutant.new)


def install() -> None:
    """Break the rule that the environment names, if it names one."""
    name = os.environ.get(VARIABLE)
    if not name:
        return
    module, is_generated, number = name.partition("#")
    if is_generated:
        finder = _Finder(module, lambda source: mutated(source, int(number)))
    else:
        mutant = BY_NAME[name]
        finder = _Finder(mutant.module, lambda source: _replace(mutant, source))
    sys.meta_path.insert(0, finder)


def break_function(module: ModuleType, tree: ast.Module, function: str) -> None:
    """Put the code of `tree` in place of the module's. Raises LookupError if `function` is not reached so."""
    assert module.__file__ is not None  # noqa: S101 - modules of the product have files
    codes = {code.co_qualname: code for code in _codes(compile(tree, module.__file__, "exec"))}
    changed = set()
    for each in _functions(vars(module), module.__name__):
        name = each.__code__.co_qualname
        if name in codes:
            each.__code__ = codes[name]
            changed.add(name)
    if not any(function == name or function.startswith(f"{name}.") for name in changed):
        raise LookupError(function)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and "<" not in constant.co_qualname:
            yield constant
            yield from _codes(constant)


def _functions(names: Any, module: str) -> Iterator[FunctionType]:
    for value in list(names.values()):
        if isinstance(value, type) and value.__module__ == module:
            yield from _functions(vars(value), module)
        else:
            parts = (value, *(getattr(value, name, None) for name in ("fget", "__func__", "__wrapped__")))
            yield from (
                part for part in parts if isinstance(part, FunctionType) and part.__module__ == module
            )
