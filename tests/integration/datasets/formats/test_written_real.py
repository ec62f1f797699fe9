"""What the packages write today reads as the files kept here: each in an environment of its own
(`make test-frameworks`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prill.datasets.formats import (
    agents_sdk,
    browser_use,
    inspect,
    langsmith,
    messages,
    opentelemetry,
    playwright,
)
from prill.io.store import BadLine, iter_trajectories, list_screenshots
from prill.types import Trajectory
from tests.support.datasets.written.reading import WRITTEN, Row, rows
from tests.support.paths import ROOT

ENVIRONMENTS = os.environ.get("PRILL_FRAMEWORKS", "")
CHROMIUM = os.environ.get("PRILL_CHROMIUM") or shutil.which("chromium") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not ENVIRONMENTS, reason="no environments with frameworks: make test-frameworks"
    ),
]
Load = Callable[..., Iterator[Trajectory | BadLine]]
# Of each program: its environment, its further arguments, the folder of the files kept here, which
# of them it writes.
PROGRAMS: dict[str, tuple[str, tuple[str, ...], str, str, Load]] = {
    "make_browser_use": ("browser-use", (CHROMIUM,), "browser_use", "[!o]*.json", browser_use.load),
    "make_browser_use_old": ("browser-use-old", (), "browser_use", "old.json", browser_use.load),
    "make_inspect": ("inspect", (), "inspect", "[!o]*.*", inspect.load),
    "make_otel": ("tracers", (), "otel", "*.json*", opentelemetry.load),
    "make_agents_sdk": ("tracers", (), "agents_sdk", "*.jsonl", agents_sdk.load),
    "make_anthropic": ("tracers", (), "anthropic", "*.json*", messages.load),
    "make_langsmith": ("tracers", (), "langsmith", "*.json*", langsmith.load),
    "make_playwright": ("tracers", (CHROMIUM,), "playwright", "[!o]*.zip", playwright.load),
}


def same(row: Row) -> Row:
    """An action without what differs from run to run: the port of a server, the number of an
    element.
    """
    kind, value, target, point = row
    return (
        kind,
        re.sub(r"127\.0\.0\.1:\d+", "HOST", value or ""),
        re.sub(r"\A\[\d+\] ", "", target or ""),
        point,
    )


def read(
    load: Load, path: Path, with_pictures: bool
) -> list[tuple[str, list[Row], str | None, bool, list[bool]]]:
    """What must be the same in every recording: goals, actions, answers, errors, and where there is
    a picture.
    """
    found = []
    for run in load(path):
        assert isinstance(run, Trajectory), run
        pictures = [step.observation.screenshot is not None for step in run.steps if with_pictures]
        found.append(
            (
                run.task.goal,
                [same(row) for row in rows(run)],
                run.answer,
                run.error is not None,
                pictures,
            )
        )
    return sorted(found, key=repr)


def written(program: str, out: Path, *more: str) -> Path:
    """Runs a program in its environment; returns the folder of what it wrote."""
    environment, arguments, *_ = PROGRAMS[program]
    python = Path(ENVIRONMENTS, environment, "bin/python")
    if not (Path(ENVIRONMENTS, environment) / ".installed").exists():
        pytest.skip(f"{environment} is not installed; see {ENVIRONMENTS}/{environment}/install.log")
    if arguments and not CHROMIUM:
        pytest.skip("no Chromium")
    command = [str(python), str(WRITTEN / f"{program}.py"), str(out), *arguments, *more]
    path = {"PYTHONPATH": str(ROOT)} if more else {}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=out, env={**os.environ, **path}
    )
    assert any(out.iterdir()) and (done.returncode == 0 or not more), done.stderr[-3000:]
    return out


def test_a_live_recording_of_browser_use_is_its_history(tmp_path: Path) -> None:
    """By its own callbacks, as it runs."""
    out = tmp_path / "out"
    out.mkdir()
    written("make_browser_use", out, str(tmp_path / "live"))
    live = {run.id: run for run in iter_trajectories(tmp_path / "live/trajectories.jsonl")}
    assert live.keys() == {"short", "long", "broken"}
    for name, run in live.items():
        (history,) = browser_use.load(out / f"{name}.json")
        assert isinstance(run, Trajectory) and isinstance(history, Trajectory)
        assert rows(run) == rows(history)
        assert (run.answer, run.error) == (history.answer, history.error)
        assert [step.thought for step in run.steps] == [step.thought for step in history.steps]
        assert all(Path(path).is_file() for path, _ in list_screenshots(run))
    assert len(list_screenshots(live["long"])) >= 8


@pytest.mark.parametrize("program", PROGRAMS)
def test_files_written_today_read_as_those_kept(program: str, tmp_path: Path) -> None:
    _, arguments, folder, pattern, load = PROGRAMS[program]
    if program == "make_inspect":
        pytest.importorskip("zstandard")
    written(program, tmp_path)
    kept = sorted((WRITTEN / folder).glob(pattern))
    assert kept and all((tmp_path / path.name).exists() for path in kept)
    for path in kept:  # when a browser has a picture ready is up to it
        assert read(load, tmp_path / path.name, not arguments) == read(load, path, not arguments), (
            path.name
        )
