"""The rules of the house: who may import whom, what importing costs, and what keeps the links and packages working."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("agents", "captioner", "datasets", "emulators", "evaluators", "refine")
MAY_IMPORT = {
    "core": {"core"},
    "agents": {"core", "agents"},
    "captioner": {"core", "captioner"},
    "datasets": {"core", "datasets"},
    "emulators": {"core", "emulators"},
    "evaluators": {"core", "datasets", "captioner", "evaluators"},
    "refine": {"core", "datasets", "captioner", "evaluators", "refine"},
    "commands": {"core", "commands", *LINKED},
}
HEAVY = (
    "PIL",
    "aiohttp",
    "appium",
    "easyocr",
    "grpclib",
    "gymnasium",
    "idb",
    "numpy",
    "onnxruntime",
    "openai",
    "playwright",
    "rapidocr",
    "selenium",
    "scipy",
    "sklearn",
    "torch",
    "tqdm",
    "transformers",
    "vllm",
)


def modules() -> dict[str, Path]:
    """Every module of the package by name. The links are followed one step, never below."""
    found = {}
    for top in (ROOT / "prill", *(ROOT / name for name in LINKED)):
        for path in top.rglob("*.py"):
            inside = path.relative_to(ROOT if top.name == "prill" else ROOT / top.name)
            if top.name == "prill" and inside.parts[1] in LINKED:
                continue
            parts = inside.with_suffix("").parts if top.name == "prill" else ("prill", top.name, *inside.with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def layer(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return "core"
    if parts[1] in ("cli", "__main__"):
        return "commands"
    return parts[1] if parts[1] in MAY_IMPORT else "core"


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES or node.module == "prill" else str(node.module)


def test_the_package_has_modules_in_every_layer() -> None:
    assert {layer(name) for name in MODULES} >= {
        "core",
        "datasets",
        "captioner",
        "evaluators",
        "emulators",
        "agents",
        "commands",
    }


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_only_downwards(module: str) -> None:
    own = layer(module)
    wrong = [
        name
        for name in imports(MODULES[module])
        if (name.split(".")[0] == "prill" and layer(name) not in MAY_IMPORT[own])
        or name.split(".")[0] in set(LINKED) - {"datasets"}
    ]
    assert not wrong, f"{module} ({own}) imports {wrong}"


def test_importing_any_module_loads_nothing_heavy_and_prints_nothing() -> None:
    names = [name for name in MODULES if not name.endswith("__main__")]
    program = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\nsys.exit(', '.join(loaded) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_heavy_list_would_catch_a_heavy_import() -> None:
    program = f"import sys, numpy\nsys.exit(', '.join(name for name in {HEAVY!r} if name in sys.modules) or None)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 1


def test_datasets_is_no_regular_package() -> None:
    assert not (ROOT / "datasets" / "__init__.py").exists(), "it would shadow Hugging Face's datasets"
    assert all((ROOT / name / "__init__.py").exists() for name in LINKED if name != "datasets")


@pytest.mark.parametrize("name", LINKED)
def test_the_folders_are_reached_by_relative_links(name: str) -> None:
    link = ROOT / "prill" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


def test_git_records_the_links_as_links() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-s", "prill"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    modes = {line.split("\t")[1]: line.split()[0] for line in listed.splitlines()}
    if not modes:
        pytest.skip("nothing is committed yet")
    assert {f"prill/{name}": modes.get(f"prill/{name}") for name in LINKED} == {f"prill/{name}": "120000" for name in LINKED}


def test_the_listed_packages_are_those_of_the_tree() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    packages = set()
    for name, path in MODULES.items():
        packages.add(name if path.name == "__init__.py" else name.rpartition(".")[0])
    # A linked folder is a package even while it is empty; data below datasets/ is not.
    assert sorted(listed) == sorted(packages | {f"prill.{name}" for name in LINKED})


def test_files_stay_short() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert median(lengths.values()) < 200
    assert not {name: length for name, length in lengths.items() if length > 400}


def test_nothing_at_the_root_shadows_the_standard_library() -> None:
    names = {path.stem for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert not names & sys.stdlib_module_names
