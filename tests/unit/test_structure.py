"""The rules of the house: who may import whom, what importing costs, and what keeps the links and
packages working.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from setuptools.discovery import PEP420PackageFinder

from tests.support.paths import ROOT

LINKED = ("policies", "captioner", "datasets", "emulators", "evaluators", "papers", "refine")
ROOMS = set(LINKED) - {"papers"}
# A room may import what stands here. `door` is prill/__init__.py: it names, lazily, what users
# reach from `import prill`.
MAY_IMPORT = {
    "core": {"core"},
    "testing": {"core", "testing"},
    "datasets": {"core", "datasets"},
    "captioner": {"core", "datasets", "captioner"},
    "policies": {"core", "policies"},
    "emulators": {"core", "datasets", "emulators"},
    "episodes": {"core", "emulators", "policies", "episodes"},
    "evaluators": {"core", "captioner", "datasets", "evaluators"},
    "ui": {"core", "captioner", "datasets", "evaluators", "ui"},
    # the pages of a filter and of the service have the look of the report
    "refine": {"core", "episodes", "ui", *ROOMS},
    "papers": {"core", "episodes", "ui", *ROOMS, "papers"},
    "door": {"core", "episodes", "ui", *ROOMS},
    "cli": {"core", "episodes", "cli", "door", "ui", *LINKED},
}
HEAVY = (
    "PIL", "aiohttp", "appium", "easyocr", "grpclib", "gymnasium", "idb", "jinja2", "numpy",
    "onnxruntime", "openai", "accelerate", "peft", "trl", "pandas", "prometheus_client",
    "playwright", "pyarrow", "rapidocr", "ray", "selenium", "scipy", "sklearn", "starlette",
    "torch", "tqdm", "transformers", "uvicorn", "vllm",
)  # fmt: skip

# What `make_service` and `make_server` import once they are called, and nothing else does: it needs
# the extra `serve`.
BEHIND_EXTRAS = {f"prill.refine.rewards.service.{name}" for name in ("app", "guard", "metrics")}


def modules() -> dict[str, Path]:
    """Every module of the package by name. The links are followed one step, never below."""
    found = {}
    for top in (ROOT / "prill", *(ROOT / name for name in LINKED)):
        for path in top.rglob("*.py"):
            inside = path.relative_to(ROOT if top.name == "prill" else ROOT / top.name)
            if top.name == "prill" and inside.parts[1] in LINKED:
                continue
            parts = (
                inside.with_suffix("").parts
                if top.name == "prill"
                else ("prill", top.name, *inside.with_suffix("").parts)
            )
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def layer(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return "door"
    if parts[1] == "__main__":
        return "cli"
    return parts[1] if parts[1] in MAY_IMPORT else "core"


def arrow_allowed(module: str, imported: str) -> bool:
    if imported.startswith("prill.testing"):
        return layer(module) == "testing"  # nothing ships on top of the test doubles
    return layer(imported) in MAY_IMPORT[layer(module)]


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(walk_imports(path))


def walk_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES or node.module == "prill" else str(node.module)


def test_imports_follow_the_table() -> None:
    wrong = [
        f"{module} ({layer(module)}) imports {name}"
        for module, path in MODULES.items()
        for name in imports(path)
        if (name.split(".")[0] == "prill" and not arrow_allowed(module, name))
        or name.split(".")[0] in {"tests", *LINKED} - {"datasets"}
    ]
    assert not wrong


def test_io_imports_core_files_alone() -> None:
    allowed = (
        "prill.types",
        "prill.actions.tool_calls",  # which names the kinds of actions
        "prill.protocols",
        "prill.errors",
        "prill.io.checks",
        "prill.locks",
        "prill.config.",
        "prill.io.",
        "prill.temporary.",
        "prill.text.",
    )
    inner = {name: path for name, path in MODULES.items() if name.startswith("prill.io.")}
    found = {(name, imported) for name, path in inner.items() for imported in imports(path)}
    assert not {
        arrow
        for arrow in found
        if arrow[1].startswith("prill.") and not f"{arrow[1]}.".startswith(allowed)
    }


def package(module: str) -> str:
    """The package below `prill` that a module is in; a module beside them is one by itself."""
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize("unit", [str, package])
def test_imports_have_no_circle(unit: Callable[[str], str]) -> None:
    arrows: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        found = {unit(other) for other in imports(path) if other in MODULES}
        arrows.setdefault(unit(name), set()).update(found - {unit(name)})
    # prill/__init__.py is behind every `import prill.x`, and itself imports lazily.
    leaves = {name for name in arrows if name != "prill"}
    while free := {name for name in leaves if not arrows[name] & leaves}:
        leaves -= free
    assert not leaves, f"these import one another in a circle, or import from one: {sorted(leaves)}"


def test_papers_are_reached_by_name_only() -> None:
    """Outside `papers` and `cli` no module imports one (the table), and only these registries name
    any, as text.
    """
    registries = {
        "prill.datasets.formats", "prill.emulators.registry", "prill.emulators.settings",
        "prill.policies.registry", "prill.refine.training.train", "prill.refine.training.spec",
    }  # fmt: skip
    naming = {
        name
        for name, path in MODULES.items()
        if layer(name) not in ("papers", "cli")
        and "prill.papers" in path.read_text(encoding="utf-8")
    }
    assert naming == registries


def test_a_paper_imports_another_only_where_the_paper_does() -> None:
    """Synapse and the benchmarks play on the recorded pages of Mind2Web, and the benchmarks count
    the planning calls of structured reflection; embedders and replies are shared.
    """
    arrows = set()
    for module, path in MODULES.items():
        paper, *_ = module.removeprefix("prill.papers.").split(".")
        if module.startswith("prill.papers.") and (ROOT / "papers" / paper).is_dir():
            others = {
                name.split(".")[2] for name in imports(path) if name.startswith("prill.papers.")
            }
            arrows |= {
                (paper, other) for other in others - {paper} if (ROOT / "papers" / other).is_dir()
            }
    assert arrows == {
        ("synapse", "mind2web"),
        ("bench", "mind2web"),
        ("bench", "structured_reflection"),
    }


def test_formats_and_meta_stay_in_place() -> None:
    def of(prefix: str) -> list[str]:
        return [name for name in MODULES if name.startswith(prefix)]

    formats = "prill.datasets.formats."
    for module in of(formats):
        assert not [name for name in imports(MODULES[module]) if name.startswith(formats)], (
            f"{module} imports another format"
        )
    # what measures a judge imports judges, never the other way round; these measure what they fit
    measuring = ("agreement", "attacks", "fitted.fitting", "fitted.calibration_fit")
    for module in of("prill.evaluators."):
        if not module.removeprefix("prill.evaluators.").startswith(
            (*measuring, "fitted.stack_card")
        ):
            wrong = [
                name
                for name in imports(MODULES[module])
                if name.startswith("prill.evaluators.agreement")
            ]
            assert not wrong, f"{module} judges, and imports {wrong}"
    browsers = ("browser", "miniwob", "webarena", "browsergym", "requirements")
    for module in of("prill.emulators."):
        if not module.removeprefix("prill.emulators.").startswith(browsers):
            assert not [
                name
                for name in imports(MODULES[module])
                if name.startswith("prill.emulators.browser.")
            ]


def test_only_commands_read_arguments() -> None:
    reading = {name for name, path in MODULES.items() if "argparse" in set(imports(path))}
    # The small sites can be started by hand: `python -m prill.emulators.shop`.
    by_hand = {name for name in reading if name.endswith("__main__")}
    assert {name for name in reading - by_hand if layer(name) not in ("cli", "testing")} == set()


def test_imports_are_light_and_silent() -> None:
    names = [
        name for name in MODULES if not name.endswith("__main__") and name not in BEHIND_EXTRAS
    ]
    program = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\nsys.exit(', "
        "'.join(loaded) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_datasets_is_no_package() -> None:
    assert not (ROOT / "datasets" / "__init__.py").exists(), (
        "it would shadow Hugging Face's datasets"
    )
    assert all((ROOT / name / "__init__.py").exists() for name in LINKED if name != "datasets")


@pytest.mark.parametrize("name", LINKED)
def test_rooms_are_relative_links(name: str) -> None:
    link = ROOT / "prill" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


def test_git_records_links_as_links() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-s", "prill"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    modes = {line.split("\t")[1]: line.split()[0] for line in listed.splitlines()}
    if not modes:
        pytest.skip("nothing is committed yet")
    assert {f"prill/{name}": modes.get(f"prill/{name}") for name in LINKED} == {
        f"prill/{name}": "120000" for name in LINKED
    }


def test_packages_found_are_in_the_tree() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]["packages"]["find"]
    listed = PEP420PackageFinder.find(
        str(ROOT), include=options["include"], exclude=options["exclude"]
    )
    packages = set()
    for name, path in MODULES.items():
        packages.add(name if path.name == "__init__.py" else name.rpartition(".")[0])
    # What else is found are folders of data: prompts, tasks, pages. They have no modules.
    assert packages <= set(listed)
    assert not [
        name
        for name in set(listed) - packages
        if list((ROOT / name.replace(".", "/")).glob("*.py"))
    ]


def test_root_shadows_no_standard_module() -> None:
    names = {path.stem for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert not names & sys.stdlib_module_names
