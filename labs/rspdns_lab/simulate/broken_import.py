"""Breaks one rule in this process: the module that holds it is compiled from changed source.

`install` is called before anything of the product is imported.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

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
