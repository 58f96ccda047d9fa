"""Man pages out of click commands: what the help says, in roff (man(7)). Pure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence

import click


def man_page(
    program: str, group: click.Group, source: str, more: Mapping[str, Sequence[tuple[str, str]]]
) -> str:
    """Return the page of `program` in section 1: every command of `group` with its arguments and options.

    `source` is what its foot names: the package and its version. `more` are further sections, by title:
    pairs of a term and its explanation.
    """
    context = click.Context(group, info_name=program)
    about = _paragraphs(group.help)
    lines = [
        f'.TH {_quoted(program.upper())} 1 "" {_quoted(source)} "User Commands"',
        ".SH NAME",
        f"{_plain(program)} \\- {_plain(about[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_plain(program)}",
        "[OPTIONS] COMMAND [ARGUMENTS]",
        ".SH DESCRIPTION",
        *_text(about),
        ".SH OPTIONS",
        *_parameters(group, context),
        *_text(_paragraphs(group.epilog)),
        ".SH COMMANDS",
    ]
    for words, command, inner in _commands(group, context):
        lines += [
            f".SS {_quoted(f'{program} {words}')}",
            *_usage(command, inner),
            *_text(_paragraphs(command.help)),
        ]
        lines += _parameters(command, inner)
        lines += _text(_paragraphs(command.epilog))
    for title, terms in more.items():
        lines.append(f".SH {_quoted(title)}")
        for term, explanation in terms:
            lines += [".TP", f".B {_plain(term)}", _plain(explanation)]
    return "\n".join(lines) + "\n"


def _commands(
    group: click.Group, context: click.Context, before: str = ""
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command below `group` that is one, with the words that call it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, inner, f"{before}{name} ")
        else:
            yield f"{before}{name}", command, inner


def _usage(command: click.Command, context: click.Context) -> Iterator[str]:
    arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    if arguments:
        yield f".I {_plain(' '.join(arguments))}"
        yield ".PP"


def _parameters(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {_plain(record[0])}", _plain(record[1] or ""))


def _paragraphs(text: str | None) -> list[str]:
    return [paragraph for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "")) if paragraph]


def _text(paragraphs: Sequence[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield ".PP"
        if paragraph.startswith("\b"):  # click's mark for lines that stay as they are
            yield ".nf"
            yield from (_plain(line) for line in paragraph.lstrip("\b\n").splitlines())
            yield ".fi"
        else:
            yield _plain(" ".join(paragraph.split()))


def _plain(text: str) -> str:
    """Text without meaning to roff."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _quoted(text: str) -> str:
    return '"' + _plain(text).replace('"', '""') + '"'
