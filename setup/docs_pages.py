"""The pages of the documentation that are made from the code: commands, keys, metrics, API, log events.

A hook of MkDocs (`mkdocs.yml`): `on_files` adds the pages to those of docs/. The texts of these pages stand
in the code: click's help, the docstrings of configuration keys, the help of metrics. The pages of the
products beside this one come from their folders.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from ppe_agent import metrics as agent_metrics
from ppe_agent.configuration import AgentConfig
from ppu_agent import metrics as client_metrics
from ppu_agent.configuration import PpuConfig
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from registrar_config import Inventory
from rspdns import entry
from rspdns.admin.openapi import ROUTES
from rspdns.configuration import BackendConfig
from rspdns.gateway.configuration import CellGatewayConfig
from rspdns.zones.configuration import ZoneConfig

TOP = Path(__file__).resolve().parents[1]
Cells = Sequence[str]
WORDS = "reference/words.md"
OUR_METRIC = re.compile(r"(rspdns|ppe_agent|ppu_agent|process)_")

COMMANDS = {
    "rspdns": "The backend and what a DNS administrator needs.",
    "ppe-agent": "The sidecar beside an application server.",
    "ppu-agent": "The sidecar beside a client.",
    "rspdns-registrar": "Runs and checks registrars.",
    "rspdns-lab": "Labs: faults, measurements and comparisons in network namespaces.",
}
CONFIGURATIONS: tuple[tuple[str, str, type[BaseModel], str], ...] = (
    (
        "rspdns.toml",
        "rspdns-toml",
        BackendConfig,
        "The backend of one name server: `/etc/rspdns/rspdns.toml`.",
    ),
    (
        "Zone files",
        "zone-toml",
        ZoneConfig,
        "One zone: `zones.d/<zone>.toml` beside `rspdns.toml`. The file `static` has the fixed records.",
    ),
    ("agent.toml", "agent-toml", AgentConfig, "The sidecar: `/etc/ppe-agent/agent.toml`."),
    (
        "ppu-agent.toml",
        "ppu-agent-toml",
        PpuConfig,
        "The sidecar beside a client: `/etc/ppu-agent/ppu-agent.toml`.",
    ),
    ("gateway.toml", "gateway-toml", CellGatewayConfig, "The gateway of a cell: `/etc/rspdns/gateway.toml`."),
    (
        "inventory.toml",
        "inventory-toml",
        Inventory,
        "The registrars and the hosts that speak to them, for `rspdns-registrar check` and `render`.",
    ),
)
METRICS = (
    ("The backend", TOP / "backend/rspdns/metrics.py"),
    ("The gateway of a cell", TOP / "backend/rspdns/gateway/metrics.py"),
    ("The sidecar", TOP / "ppe-agent/ppe_agent/metrics.py"),
    ("The sidecar beside a client", TOP / "ppu-agent/ppu_agent/metrics.py"),
)
STATUSES = (
    ("The gateway of a cell", "rspdns gateway status --json", TOP / "backend/rspdns/gateway/status_model.py"),
    ("The sidecar", "ppe-agent status --json", TOP / "ppe-agent/ppe_agent/status_model.py"),
    ("The sidecar beside a client", "ppu-agent status --json", TOP / "ppu-agent/ppu_agent/status_model.py"),
)
LOGGING = (
    ("The backend", ("backend/rspdns", "pool-user/pool_user")),
    ("The sidecar", ("ppe-agent/ppe_agent",)),
    ("The sidecar beside a client", ("ppu-agent/ppu_agent",)),
    ("The registrar's supervisor", ("registrar-config/registrar_config",)),
    ("Every service", ("daemon-kit/daemon_kit", "rserpool/rserpool")),
)


MEMBER = "`handle`, `identifier`, `address`, `name`, `why`"
POOL = "`handle`, `identifier`, `why`"
REGISTRATION = "`registrar`, `detail`"
MADE_AT_RUN_TIME: dict[str, dict[str, tuple[str, str]]] = {
    "The backend": {
        "joined": ("info", MEMBER),
        "left": ("info", MEMBER),
        "moved": ("info", POOL),
        "refused": ("info", POOL),
        "questioned": ("info", "`handle`, `why`"),
        "vanished": ("warning", "`handle`, `identifier`, `address`, `name`, `why`"),
        "examined": ("info", MEMBER),
        "registrar": ("info", "`why`"),
        "misplaced": ("info", "`why`"),
    },
    "The sidecar": {
        "check_up": ("info", "`check`, `of`, `saw`"),
        "check_down": ("info", "`check`, `of`, `saw`"),
        "registered": ("info", "`registrar`"),
        "renewing": ("info", REGISTRATION),
        "registrar_lost": ("warning", REGISTRATION),
        "registrar_left": ("warning", REGISTRATION),
        "unreachable": ("warning", REGISTRATION),
        "unanswered": ("warning", REGISTRATION),
        "rejected": ("warning", f"{REGISTRATION}, `problem`"),
        "taken_over": ("info", REGISTRATION),
        "takeover_refused": ("warning", REGISTRATION),
        "deregistered": ("info", REGISTRATION),
    },
    "Every service": {"lines_left_out": ("warning", "`kind`, `lines`, `sources`, `within_s`")},
}
"""Events whose name is put together when they happen: level and fields of each."""


OF_NEIGHBOURS = {
    "reference/sctp-userland.md": "sctp-userland/docs/differences.md",
    "explanation/guard.md": "ppu-agent/guard/docs/how-it-works.md",
}
"""Pages of the products beside this one, which hold their documentation themselves."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made (MkDocs' hook)."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take the copy button from output; let the words of the field explain themselves on other pages."""
    markdown = re.sub(r"^( *)```text$", r"\1``` { .text .no-copy }", markdown, flags=re.MULTILINE)
    return markdown if page.file.src_uri == WORDS else f"{markdown}\n\n{tooltips()}\n"


@cache
def tooltips() -> str:
    """Return what is shown for a word, for the words that have no everyday meaning."""
    text = (TOP / "docs" / WORDS).read_text().partition("## Everyday words")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    words = [(word, meaning) for word, meaning in rows if word != "word" and "--" not in word]
    return "\n".join(f"*[{word}]: {meaning.replace('`', '')}" for word, meaning in words)


def pages() -> dict[str, str]:
    """The text of each page that is made, by its path below docs/."""
    made = {f"reference/commands/{name}.md": command_page(name, about) for name, about in COMMANDS.items()}
    for title, name, model, about in CONFIGURATIONS:
        made[f"reference/configuration/{name}.md"] = keys_page(title, model, about)
    made["reference/metrics.md"] = metrics_page()
    made["reference/agent-status.md"] = status_page()
    made["reference/api.md"] = api_page()
    made["reference/log-events.md"] = events_page()
    made["changes.md"] = changes_page()
    for page, path in OF_NEIGHBOURS.items():
        made[page] = re.sub(r"\]\((\.\./)+docs/", "](../", (TOP / path).read_text(encoding="utf-8"))
    return made


def changes_page() -> str:
    """The changelog; its links are made from the repository's top folder, the page's from docs/."""
    return (TOP / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")


def table(titles: Cells, rows: Iterable[Cells]) -> str:
    """A table of Markdown."""
    lines = [titles, ["---"] * len(titles), *([_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- commands


def command_page(name: str, about: str) -> str:
    """Every command of one program, with its options: what `--help` says."""
    group = import_module(entry.COMMANDS[name][0]).main
    return f"# {name}\n\n{about} Made from `{name} --help`.\n\n" + "\n".join(_commands(group, name, None))


def _commands(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    if parent is not None:
        yield f"## {context.command_path}\n"
    yield f"    {' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield (
            ("```text\n" + paragraph[2:].strip("\n") + "\n```\n")
            if paragraph.startswith("\b")
            else f"{paragraph}\n"
        )
    records = [
        record
        for option in command.params
        if isinstance(option, click.Option) and (record := option.get_help_record(context)) is not None
    ]
    if records:
        yield table(("Option", "Meaning"), [(f"`{option}`", words) for option, words in records])
    if command.epilog and command.epilog.startswith("\b"):
        yield "Example:\n"
        yield "\n".join(f"  {line}" for line in command.epilog.splitlines()[2:]) + "\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            child = command.get_command(context, inner)
            if child is not None and not child.hidden:
                yield from _commands(child, inner, context)


# --- keys of configuration files


def keys_page(title: str, model: type[BaseModel], about: str) -> str:
    """Every key of one file: type, unit, range, default, meaning."""
    words = (
        f"# {title}\n\n{about}\n\nAn unknown key is an error: it is told with file, line and key. "
        "A name that ends in `_ms` or `_s` is a time in milliseconds or seconds.\n\n"
    )
    return words + "\n".join(_tables(model, ""))


def _tables(model: type[BaseModel], parent: str) -> Iterator[str]:
    rows, below = [], []
    meanings = docstrings(model)
    for name, field in model.model_fields.items():
        key = field.alias or name
        inner = list(_models(field.annotation))
        if inner:
            is_list = typing.get_origin(_without_none(field.annotation)) is tuple
            path = f"{parent}.{key}".lstrip(".")
            below += [(nested, f"[[{path}]]" if is_list else f"[{path}]", path) for nested in inner]
            if name not in meanings:
                continue
            needed = "required" if field.is_required() else ""
            rows.append((f"`{key}`", "table" if not is_list else "tables", needed, meanings[name]))
        elif name != "type":  # the headline of the table says it
            rows.append((f"`{key}`", _kind(field), _default(field), meanings.get(name, "")))
    if rows:
        yield table(("Key", "Type", "Default", "Meaning"), rows)
    for nested, header, path in below:
        yield f"## `{header}`" + _variant(nested) + "\n"
        yield f"{_about(nested)}\n"
        yield from _tables(nested, path)


def _about(model: type[BaseModel]) -> str:
    """The meaning of a table: the model's docstring, without the table's name before a colon."""
    words = re.sub(r"^`[^:]*`[^:]*: ", "", inspect.cleandoc(model.__doc__ or ""))
    return words[:1].upper() + words[1:]


def _variant(model: type[BaseModel]) -> str:
    """The value of the key that decides which other keys there are."""
    kind = model.model_fields.get("type")
    values = typing.get_args(kind.annotation) if kind is not None else ()
    quoted = " or ".join(f'"{value}"' for value in values)
    return f" with type = {quoted}" if values else ""


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The texts below the fields of a model and of its bases, by field."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is BaseModel or not issubclass(base, BaseModel):
            continue
        body = getattr(ast.parse(inspect.getsource(base)).body[0], "body", [])
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                words = _text(text)
                if words is not None:
                    texts[field.target.id] = words
    return texts


# --- the agents' status


def status_page() -> str:
    """Every key of what the agents' `status --json` prints."""
    words = (
        "# Status of the agents\n\n"
        "Keys are only ever added. A name that ends in `_s` or `_ms` is a time in seconds or milliseconds; "
        "one that ends in `_count` counts since the agent's start. The backend's status is in "
        "[the admin API](api.md).\n"
    )
    return words + "".join(_status(*status) for status in STATUSES)


def _status(title: str, command: str, module: Path) -> str:
    body = ast.parse(module.read_text()).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    shapes = [(shape.name, ast.get_docstring(shape) or "", list(_keys_of(shape))) for shape in classes]
    shapes += [shape for pair in pairwise(body) if (shape := _shape_by_call(*pair)) is not None]
    shapes.sort(key=lambda shape: not shape[0].startswith(("Agent", "Ppu")))
    text = f"\n## {title}\n\n`{command}` prints an `{shapes[0][0]}`.\n"
    for name, about, keys in shapes:
        text += f"\n### {name}\n\n{about}\n\n" + table(("Key", "Type", "Meaning"), keys)
    return text


def _keys_of(shape: ast.ClassDef) -> Iterator[Cells]:
    """The keys of a class, those of its base first told by its name."""
    for base in shape.bases:
        if ast.unparse(base) != "TypedDict":
            yield "", ast.unparse(base), "all its keys, too"
    for field, text in pairwise([*shape.body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign):
            yield f"`{ast.unparse(field.target)}`", _json_type(field.annotation), _text(text) or ""


def _shape_by_call(node: ast.stmt, below: ast.stmt) -> tuple[str, str, list[Cells]] | None:
    """A shape with a key that is a keyword of Python: `Name = TypedDict("Name", {key: type})`."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return None
    name, keys = node.value.args
    if not isinstance(keys, ast.Dict):
        return None
    rows = [
        (f"`{_literal(key)}`", _json_type(kind), "")
        for key, kind in zip(keys.keys, keys.values, strict=True)
        if key is not None
    ]
    return _literal(name), _text(below) or "", rows


def _json_type(annotation: ast.expr) -> str:
    words = re.sub(r"\blist\[([^]]*)\]", r"list of \1", ast.unparse(annotation)).replace(
        " | None", " or null"
    )
    words = re.sub(r"Literal\[(.*?)\]", r"\1", words)
    for kind, name in (("str", "text"), ("int", "number"), ("float", "number"), ("bool", "true or false")):
        words = re.sub(rf"\b{kind}\b", name, words)
    return re.sub(r"dict\[.*?\]", "object", words)


def _text(node: ast.stmt) -> str | None:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split())
    return None


def _without_none(annotation: Any) -> Any:
    kinds = [kind for kind in typing.get_args(annotation) if kind is not types.NoneType]
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return kinds[0] if is_union and len(kinds) == 1 else annotation


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models(part)


BOUNDS = ("ge", "gt", "le", "lt")


def _kind(field: FieldInfo) -> str:
    bounds = {
        name: getattr(limit, name) for limit in field.metadata for name in BOUNDS if hasattr(limit, name)
    }
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    words = _type(field.annotation)
    if low is not None and high is not None:
        return f"{words}, {low} to {high}"
    if low is not None:
        return f"{words}, {'above' if 'gt' in bounds else 'at least'} {low}"
    return words


_NAMES = {str: "text", int: "number", float: "number", bool: "true or false"}


def _type(annotation: Any) -> str:
    annotation = _without_none(annotation)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(inner[0])
    if origin is typing.Literal:
        return " or ".join(f'`"{value}"`' for value in inner)
    if origin is tuple and is_dataclass(inner[0]):
        return "table of texts"
    if origin is tuple:
        return f"list: {_type(inner[0])}" if len(inner) == 2 and inner[1] is Ellipsis else "two values"
    if origin is dict:
        return "table of texts"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(kind) for kind in inner if kind is not types.NoneType))
    return _NAMES.get(annotation, "text")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value is PydanticUndefined or value == ():
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(_written(item) for item in value) + "]`"
    return f"`{_written(value)}`"


def _written(value: object) -> str:
    return (
        f'"{value}"'
        if isinstance(value, str | Path)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


# --- metrics, API, log events


def metrics_page() -> str:
    """Every metric with its help."""
    parts = ["# Metrics\n\nFor Prometheus, at `/metrics`. [Watch it](../how-to/dns/watch.md) says where.\n"]
    for title, path in METRICS:
        rows = [(f"`{name}`", words) for name, words in sorted(metric_texts(path).items())]
        parts.append(f"## {title}\n\n" + table(("Metric", "Meaning"), rows))
    return "\n".join(parts)


def metric_texts(path: Path) -> dict[str, str]:
    """Name and help of every metric that a module makes."""
    texts: dict[str, str] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            texts |= _metrics_of(node)
    if "ppe_agent" in path.parts:
        texts |= {f"ppe_agent_as_{name}_total": words for name, words in agent_metrics._COUNTERS.values()}
    if "ppu_agent" in path.parts:
        texts |= {f"{name}_total": words for name, words in client_metrics._COUNTERS.values()}
    return texts


def _metrics_of(function: ast.FunctionDef) -> dict[str, str]:
    metrics, texts = {}, {}
    for node in _in_order(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts[node.targets[0].id] = _literal(node.value)
        named = node.args[:2] if isinstance(node, ast.Call) else getattr(node, "elts", ())[::2]
        if len(named) == 2:
            name, words = named
            if isinstance(name, ast.Constant) and OUR_METRIC.match(str(name.value)):
                metrics[str(name.value)] = texts.get(getattr(words, "id", ""), _literal(words))
    return metrics


def _literal(node: ast.expr) -> str:
    """The text of a literal; of one that is put together, with the names of what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _literal(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values
        )
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def api_page() -> str:
    """Every route of the admin address."""
    rows = [(f"`{route.method} {route.path}`", route.right.name.lower(), route.summary) for route in ROUTES]
    return (
        "# API of the admin address\n\nThe backend describes it itself at `/v1/openapi.json` (OpenAPI 3.1). "
        "[Watch it](../how-to/dns/watch.md) says who may ask. Fields are only ever added within `/v1/`.\n\n"
        + table(("Route", "Right", "What it does"), rows)
    )


def events_page() -> str:
    """Every event that a service logs, with its level, meaning and fields."""
    parts = [
        "# Log events\n\nEach service logs structured events to standard error: for people, or as JSON with "
        "`--log-json`. Beside the fields below each has `event`, `level`, `timestamp` and `part`.\n"
    ]
    meanings = event_meanings()
    for title, folders in LOGGING:
        events: dict[str, tuple[str, str]] = {}
        for path in (path for folder in folders for path in sorted((TOP / folder).rglob("*.py"))):
            events |= logged(path)
        events |= {name: (level, fields) for name, (level, fields) in MADE_AT_RUN_TIME.get(title, {}).items()}
        rows = [
            (f"`{name}`", level, meanings.get(name, ""), fields)
            for name, (level, fields) in sorted(events.items())
        ]
        parts.append(f"## {title}\n\n" + table(("Event", "Level", "Meaning", "Fields"), rows))
    return "\n".join(parts)


def event_meanings() -> dict[str, str]:
    """The meaning of each event, by name."""
    return tomllib.loads((TOP / "setup" / "log_events.toml").read_text(encoding="utf-8"))


def logged(path: Path) -> dict[str, tuple[str, str]]:
    """Level and fields of each event that a module logs, by name."""
    events = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        level, event = node.func.attr, node.args[0]
        if "log" not in ast.unparse(node.func.value):
            continue
        if level not in ("info", "warning", "error"):
            continue
        names = [part.value for part in ast.walk(event) if isinstance(part, ast.Constant)]
        fields = ", ".join(
            f"`{keyword.arg}`" for keyword in node.keywords if keyword.arg and keyword.arg != "exc_info"
        )
        for name in names:
            if isinstance(name, str) and re.fullmatch(r"[a-z_]*[a-z]", name):
                events[name] = (level, fields)
    return events
