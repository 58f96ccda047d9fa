"""Which lines of the product scenarios reach: a mutant of any other line can't be found."""

import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any


class ReachedLines:
    """Notes the lines of these modules that run, from `begin` to `end`."""

    def __init__(self, modules: Iterable[str]) -> None:
        self.by_module: dict[str, set[int]] = {}
        self._by_file: dict[str, set[int]] = {}
        for module in modules:
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.origin is not None:
                self._by_file[spec.origin] = self.by_module.setdefault(module, set())

    def begin(self) -> None:
        """Note from now on."""
        sys.settrace(self._called)

    def end(self, path: Path) -> None:
        """Write the lines of each module to a file."""
        sys.settrace(None)
        path.write_text(json.dumps({module: sorted(lines) for module, lines in self.by_module.items()}))

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        lines = self._by_file.get(frame.f_code.co_filename)
        if lines is None:
            return None
        note = lines.add

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            note(frame.f_lineno)
            return line

        return line
