#!/usr/bin/env python3
"""Lists sentences that open with a stand-in for a noun: `setup/prose.py [FILE...]`; default: all of Git's.

It reads the text of Markdown without headings, tables and code, docstrings, comments of all other files, and
strings of Python and TOML that hold a sentence: help of options, messages, the meanings of log events.
A sentence begins with the noun that acts, a condition with "if" or "when" (CONTRIBUTING.md).
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

OPENERS = "What|Whatever|Who|Whoever|Whom|Whose|Where|Wherever|Nobody|Of|One that|So many|So long"
STAND_IN = re.compile(rf"[*_`]*(?:{OPENERS})\b")
SENTENCE = re.compile(r"(?:^\s*|(?<=[.!?:])[\"”)]?\s+)(?=[*_`]*[A-Z])")

PlacedText = tuple[int, str]
"""The number of the first line, and the text."""


def joined(comments: Iterator[tuple[int, int, str]]) -> Iterator[PlacedText]:
    """Comments up to the end of a line, as line, column and words; those below each other are one text."""
    first, last, text = 0, (0, 0), ""
    for line, column, words in comments:
        if (line - 1, column) == last:
            text += "\n" + words
        else:
            yield first, text
            first, text = line, words
        last = line, column
    yield first, text


def line_comments(source: str, mark: str = "#") -> Iterator[PlacedText]:
    """Comments behind a mark."""
    lines = enumerate(source.splitlines(), 1)
    comments = (
        (number, match) for number, line in lines if (match := re.search(rf"(?<!\S){mark}+ (.*)", line))
    )
    yield from joined((number, match.start(), match[1]) for number, match in comments)


def python_texts(source: str) -> Iterator[PlacedText]:
    """Docstrings, those of attributes too, and comments."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(ast.Constant(str() as text)):
                yield node.lineno, text
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from joined(
        (*each.start, each.string.lstrip("# ")) for each in tokens if each.type == tokenize.COMMENT
    )


def python_sentences(source: str) -> Iterator[PlacedText]:
    """Strings with a sentence, but for docstrings: help of options, messages."""
    nodes = list(ast.walk(ast.parse(source)))
    seen = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in (node for node in nodes if node not in seen):
        match node:
            case ast.JoinedStr(values=parts):
                seen.update(parts)
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
            case ast.Constant(str() as text):
                pass
            case _:
                continue
        if re.search(r"\.(\s|$)", text):
            yield node.lineno, text


def toml_texts(source: str) -> Iterator[PlacedText]:
    """Comments, and strings with sentences."""
    yield from line_comments(source)
    for number, line in enumerate(source.splitlines(), 1):
        yield from ((number, text) for text in re.findall(r'"([^"]*\.)"', line))


def c_texts(source: str) -> Iterator[PlacedText]:
    """Comments of both kinds."""
    for match in re.finditer(r"/\*+(.*?)\*/", source, re.DOTALL):
        yield source.count("\n", 0, match.start()) + 1, re.sub(r"\n\s*\*", "\n", match[1])
    yield from line_comments(source, "//")


def markdown_texts(source: str) -> Iterator[PlacedText]:
    """Paragraphs and list items, those of tabs too; also those of man pages."""
    in_code, in_tab, first, text = False, False, 0, ""
    for number, line in enumerate([*source.splitlines(), ""], 1):
        in_tab = line.startswith("=== ") or (in_tab and line[:4].strip() == "")
        line = line[4:] if in_tab and not line.startswith("=== ") else line
        in_code ^= line.lstrip().startswith("```")
        has_words = not in_code and re.match(r"\s*$|===|\s*[|#>]|\s*```|    |\.", line) is None
        item = re.match(r"\s*(?:[-*+]|\d+\.)\s+", line)
        if item or not has_words:
            yield first, text
            first, text = number, ""
        if has_words:
            first, text = first if text else number, text + line[item.end() if item else 0 :] + "\n"
    yield first, text


READERS: dict[str, Callable[[str], Iterator[PlacedText]]] = {
    ".py": python_texts,
    ".toml": toml_texts,
    **dict.fromkeys((".c", ".h", ".js", ".css"), c_texts),
    **dict.fromkeys((".md", ".1", ".8"), markdown_texts),
}


def stand_ins(path: Path) -> Iterator[PlacedText]:
    """Line and sentence of each stand-in in this file."""
    try:
        source = path.read_text("utf-8")
    except UnicodeDecodeError:
        return  # no text
    if not re.search(rf"\b(?:{OPENERS})\b", source):
        return  # most files: they need not be parsed
    texts = READERS.get(path.suffix, line_comments)(source)
    if path.suffix == ".py" and "tests" not in path.parts:  # tests compare with parts of sentences
        texts = chain(texts, python_sentences(source))
    for first, text in texts:
        for start in SENTENCE.finditer(text):
            sentence = re.split(r"(?<=[.!?])\s", text[start.end() :].rstrip(), maxsplit=1)[0]
            if STAND_IN.match(sentence) and not sentence.endswith("?"):
                yield first + text.count("\n", 0, start.end()), " ".join(sentence.split())


def main(names: list[str]) -> int:
    """Print them with file and line; return 1 when there are any."""
    if not names:
        listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
        names = listed.stdout.splitlines()
    places = [(path, *each) for path in map(Path, names) if path.is_file() for each in stand_ins(path)]
    for path, line, sentence in places:
        print(f"{path}:{line}: {sentence[:100]}")
    if places:
        print("These open with a stand-in for a noun: begin with the noun, or a condition (if, when)")
    return int(bool(places))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
