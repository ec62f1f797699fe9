"""The built wheel: what is in it, and that it works away from the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOLDERS = (
    "prill", "policies", "captioner", "datasets", "emulators", "evaluators", "papers", "refine",
)  # fmt: skip
FILES = ("pyproject.toml", "README.md", "LICENSE")

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing left over in the checkout gets into it; without
    downloads.
    """
    pytest.importorskip("build", reason="the package `build` is not installed")
    copy = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        shutil.copytree(
            ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, copy, cwd=copy)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel; it borrows the dependencies of this
    one.
    """
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    interpreter = folder / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        interpreter,
        "install",
        "--quiet",
        "--no-deps",
        wheel,
        cwd=folder.parent,
    )
    (site,) = folder.glob("lib/python*/site-packages")
    # Paths from a .pth file come last and their own .pth files are not read: an editable prill
    # stays out of sight.
    (site / "borrowed.pth").write_text(
        sysconfig.get_path("purelib") + "\n" + sysconfig.get_path("platlib") + "\n"
    )
    return interpreter


def tracked_names() -> set[str]:
    """Code, prompts and tables of the tree, under the names that they have in the wheel."""
    names = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            inside = path.relative_to(ROOT)
            if folder == "prill" and len(inside.parts) > 2 and inside.parts[1] in FOLDERS:
                continue
            packed = (
                path.suffix in (".py", ".md", ".toml", ".js", ".css", ".html", ".jsonl")
                or path.name == "NOTICE"
            )
            if packed and "samples" not in inside.parts and path.name != "README.md":
                names.add(str(inside if folder == "prill" else "prill" / inside))
    return names


def test_wheel_holds_all_of_prill_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in packed} == {"prill"}
    assert packed == tracked_names() | {"prill/py.typed"}
    assert "prill/datasets/formats/agentrewardbench_webjudge.py" in packed
    doubles = {name.split("/")[2] for name in packed if name.startswith("prill/testing/")}
    assert doubles == {"__init__.py", "endpoint", "scripted.py"}, (
        "what only tests use is in tests/support"
    )


def test_installed_command_runs_anywhere(python: Path, tmp_path: Path) -> None:
    assert "score" in run(python.with_name("prill"), "--help", cwd=tmp_path)
    where = run(
        python,
        "-I",
        "-c",
        "import prill.evaluators.judge as m, prill.datasets.convert; print(m.__file__)",
        cwd=tmp_path,
    )
    assert Path(where.strip()).is_relative_to(python.parents[1])


def test_installed_package_finds_its_files(python: Path, tmp_path: Path) -> None:
    program = (
        "from prill.emulators.task_source import NAMES, task_list\n"
        "from prill.evaluators.agreement.corrections import load_corrections\n"
        "print([len(task_list(name)) for name in NAMES], "
        "len(load_corrections('webarena').correction))"
    )
    assert run(python, "-I", "-c", program, cwd=tmp_path) == "[120, 80, 52] 14\n"
    runs = ROOT / "datasets" / "samples" / "miniwob" / "trajectories.jsonl"
    prill = python.with_name("prill")
    run(
        prill,
        "score",
        runs,
        "-o",
        "v.jsonl",
        "--judge",
        "vlm",
        "--model",
        "gpt-4o",
        "--dry-run",
        cwd=tmp_path,
    )
    run(prill, "report", runs, "-o", "page.html", "--limit", "2", cwd=tmp_path)
    assert "<script" in (tmp_path / "page.html").read_text(encoding="utf-8")
