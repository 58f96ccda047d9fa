"""Documents lead where they say, and what they make of the code is whole."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import click
import pytest
from pool_user import Cause, Code
from ppe_agent import cli as agent_cli
from ppe_agent import configuration, consistency
from ppe_agent.configuration import load_configuration
from registrar_config import load_inventory
from rspdns import cli as rspdns_cli
from rspdns.zones.loading import load_zones
from rspdns_lab.report.plots import in_digits

from tests.support.how_to import blocks
from tests.support.how_to_pages import JOURNEYS, NOT_WALKED

TOP = Path(__file__).resolve().parents[1]
ROOMS = [path for path in TOP.iterdir() if path.is_dir() and not path.name.startswith((".", "build"))]
DOCUMENTS = [
    *sorted(TOP.glob("*.md")),
    *(
        path
        for room in sorted(ROOMS)
        for path in sorted(room.rglob("*.md"))
        if not any(part.startswith((".", "build")) for part in path.relative_to(TOP).parts)
    ),
]


@cache
def docs_pages() -> ModuleType:
    spec = spec_from_file_location("docs_pages", TOP / "setup" / "docs_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def pages() -> dict[str, str]:
    """The pages that are made of the code; when the first test asks, not in each process that collects."""
    made: dict[str, str] = docs_pages().pages()
    return made


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(TOP)))
def test_links_to_files_lead_to_files(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    targets = {link: (document.parent / link).resolve() for link in links if "://" not in link}
    made = {(TOP / "docs" / name).resolve() for name in pages()}
    missing = [link for link, target in targets.items() if not target.exists() and target not in made]
    assert missing == [], "these links lead nowhere"


def test_every_how_to_is_walked_or_says_why_not() -> None:
    folder = TOP / "docs" / "how-to"
    there = {str(path.relative_to(folder)) for path in folder.rglob("*.md")}
    walked = {walk.page for walks in JOURNEYS.values() for walk in walks}
    assert walked & NOT_WALKED.keys() == set()
    assert walked | NOT_WALKED.keys() == there
    assert {
        walk.page: walk.strangers() for walks in JOURNEYS.values() for walk in walks if walk.strangers()
    } == {}


def rows(page: str) -> list[list[str]]:
    """The cells of every row of the page's tables."""
    lines = [line for line in pages()[page].splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_key_has_a_meaning() -> None:
    names = [name for name in pages() if name.startswith("reference/configuration/")]
    assert len(names) > 3
    for page in names:
        assert len(rows(page)) > 5, page
        bare = [cells[0] for cells in rows(page) if not cells[-1]]
        assert bare == [], f"write a docstring below the field of each of these keys: {page}"


def test_every_metric_has_a_meaning() -> None:
    found = rows("reference/metrics.md")
    assert {"`rspdns_pool_members`", "`ppe_agent_as_state`"} <= {cells[0] for cells in found}
    assert [cells[0] for cells in found if not cells[-1]] == [], "give each of these metrics a help text"


def test_every_command_is_described() -> None:
    assert "## rspdns zone add" in pages()["reference/commands/rspdns.md"]
    assert "`--wait`" in pages()["reference/commands/ppe-agent.md"]


def arguments(command: click.Command, path: str) -> Iterator[tuple[str, str, str]]:
    """The arguments of each command below: its path, an argument, and the text of its help."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield path, parameter.make_metavar(click.Context(command)).strip("[]."), command.help or ""
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from arguments(child, f"{path} {name}")


def test_the_words_of_a_command_name_its_arguments() -> None:
    mains = {"rspdns": rspdns_cli.main, "ppe-agent": agent_cli.main}
    found = [argument for program, main in mains.items() for argument in arguments(main, program)]
    assert len(found) > 5
    assert [(path, name) for path, name, words in found if name not in words] == []


def test_every_log_event_has_a_meaning() -> None:
    found = rows("reference/log-events.md")
    names = {cells[0].strip("`") for cells in found}
    assert {"joined", "registrar_died", "lines_left_out"} <= names
    bare = [cells[0] for cells in found if not cells[2]]
    assert bare == [], "write the meaning of each of these events into setup/log_events.toml"
    assert set(docs_pages().event_meanings()) - names == set(), (
        "setup/log_events.toml has what is never logged"
    )


def test_every_cause_is_explained() -> None:
    """Programs read the codes; each also has words, whatever its facts are."""
    page = (TOP / "docs/explanation/belief.md").read_text()
    assert [code for code in Code if f"`{code}`" not in page] == []
    assert all(Cause(code).words for code in Code if code is not Code.EXAMINED)


def examples(page: str) -> list[str]:
    return [block.text for block in blocks(page) if block.language == "toml"]


def test_configurations_of_the_tutorial_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory, agent = examples("tutorial/first-zone.md")
    for module in (configuration, consistency):
        monkeypatch.setattr(module, "address_towards", lambda *_: "10.20.0.5")
    (tmp_path / "inventory.toml").write_text(inventory)
    registrars = load_inventory(tmp_path / "inventory.toml").registrar
    assert [registrar.name for registrar in registrars] == ["r1", "r2", "r3"]
    (tmp_path / "agent.toml").write_text(agent)
    assert [server.name for server in load_configuration(tmp_path / "agent.toml").servers] == ["sip-1"]


def test_configurations_of_the_page_on_servers_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (configuration, consistency):
        monkeypatch.setattr(module, "address_towards", lambda *_: "10.20.0.5")
    *servers, gateway_check = examples("how-to/servers/connect-a-server.md")
    assert len(servers) == 6
    for text in (*servers, f"{servers[0]}\n{gateway_check}"):
        (tmp_path / "agent.toml").write_text(text)
        (server,) = load_configuration(tmp_path / "agent.toml").servers
        assert text.startswith(f"# {server.name}\n")


def test_the_pool_of_the_page_on_probing_is_right(tmp_path: Path) -> None:
    (pool,) = examples("how-to/dns/verify-members.md")
    (tmp_path / "a.toml").write_text(f'zone = "ims.example.net"\nstatic = "a.zone"\n{pool}')
    (tmp_path / "a.zone").write_text("@ 60 SOA ns1 admin 1 60 60 60 60\n@ 60 NS ns1\nns1 60 A 192.0.2.1\n")
    (zone,) = load_zones(tmp_path)
    assert zone.sites[0].pools[0].config.verify == "sip-options"


# Architecture: what the page names is there

ROOTS = {path.parent.name: path.parent for path in TOP.glob("*/*/__init__.py")}
BRACES = re.compile(r"(.*)\{(.*)\}(.*)")


def named_in(page: str) -> list[str]:
    """The names that stand as code on the page, in order; "{a,b}.py" is two."""
    found = []
    for word in re.findall(r"`([^`\n]+)`", page):
        braces = BRACES.fullmatch(word) if " " not in word else None
        found += [f"{braces[1]}{part}{braces[3]}" for part in braces[2].split(",")] if braces else [word]
    return found


def is_path(word: str) -> bool:
    return word != "__init__.py" and bool(re.fullmatch(r"[\w./-]+(/|\.py)", word))


def defined() -> tuple[set[str], dict[str, set[str]]]:
    """Every name that the packages define, and the members of each class and module."""
    names = set(ROOTS)
    members: dict[str, set[str]] = defaultdict(set)
    for path in (path for root in ROOTS.values() for path in root.rglob("*.py")):
        tree = ast.parse(path.read_text())
        inside = names_in(tree)
        names |= {path.stem, path.parent.name, *inside}
        members[path.stem] |= inside
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                members[node.name] |= names_in(node)
    return names, members


def names_in(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case (
                ast.arg(arg=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
            ):
                found.add(name)
    return found


def test_every_file_that_the_architecture_names_is_there() -> None:
    here, missing = TOP, []
    for word in filter(is_path, named_in((TOP / "docs" / "architecture.md").read_text())):
        package, _, rest = word.partition("/")
        if package in ROOTS and rest:
            found = [ROOTS[package] / rest]
        else:  # beside the file that was named before, or in a folder above it
            found = [folder / word for folder in (here, *here.parents) if folder.is_relative_to(TOP)]
        there = next((candidate for candidate in found if candidate.exists()), None)
        if there is None:
            missing.append(word)
        else:
            here = there if there.is_dir() else there.parent
    assert not missing


def test_every_name_in_the_architecture_is_defined_in_the_code() -> None:
    names, members = defined()
    missing = []
    for word in named_in((TOP / "docs" / "architecture.md").read_text()):
        name = re.fullmatch(r"([A-Za-z_]\w*)(?:\.(\w+))?(?:\(.*\))?", word)
        if (
            name is None
            or is_path(word)
            or word in ("is", "fastpath", "__init__.py")
            or (TOP / word).exists()
        ):
            continue
        if name[1] not in names or (name[2] and name[2] not in members[name[1]]):
            missing.append(word)
    assert not missing


def test_chart_of_the_front_page_has_the_figures_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOP / "setup"))
    waited = import_module("waited").waited()
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", (TOP / "docs/results/waited.svg").read_text())
    assert len(waited) == 10
    assert [title for title in waited if title not in drawn] == [], "run setup/waited.py"
    assert [value for value in waited.values() if in_digits(value) not in drawn] == [], "run setup/waited.py"


def security_rows() -> list[tuple[str, list[str]]]:
    """The lines of the tables about security, each with the tests that its last cell names."""
    lines = (TOP / "docs" / "explanation" / "security.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| ---", "|---"))]
    rows = [row for row in rows if not row.endswith("| test |")]
    return [(row, re.findall(r"`(test_[^`]+)`", row.rsplit(" | ", 1)[-1])) for row in rows]


def test_each_line_about_security_names_its_tests() -> None:
    files: dict[str, str] = {}
    for path in (path for room in ROOMS for path in room.rglob("test_*.py")):  # two may have the same name
        files[path.name] = files.get(path.name, "") + path.read_text()
    rows = security_rows()
    assert len(rows) > 30
    for row, named in rows:
        assert named, f"no test: {row}"
        for word in named:
            file, _, name = word.partition("::")
            assert file in files, f"{word}: {row}"
            assert not name or re.search(rf'(def {re.escape(name)}\(|"{re.escape(name)}")', files[file]), word


def test_each_attack_that_is_tried_has_a_line_about_security() -> None:
    named = {word for _, words in security_rows() for word in words}
    tried = {f"test_gate.py::{attack}" for attack in tried_in("test_gate.py", "ATTACKS")}
    tried |= {f"test_registrar_lies.py::{kind}" for kind in tried_in("test_registrar_lies.py", "KINDS")}
    assert len(tried) > 15
    assert tried <= named


def tried_in(file: str, constant: str) -> list[str]:
    """The names of what a test of the chain is repeated for."""
    tree = ast.parse((TOP / "tests" / "integration" / file).read_text())
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == constant for target in targets):
            value = node.value  # type: ignore[attr-defined]
            return [ast.unparse(key).strip("'") for key in getattr(value, "keys", getattr(value, "elts", ()))]
    raise AssertionError(f"{file} has no {constant}")
