"""WebArena-Infinity's tasks in Chromium: on a small application of ours, or with
PRILL_WEBARENA_INFINITY=CHECKOUT on the real ones.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from prill.cli import main
from prill.emulators.settings import Playing
from prill.emulators.webarena_infinity.config import WebArenaInfinityConfig
from prill.errors import EnvironmentFailedError
from prill.io.store import iter_trajectories, read_labels
from prill.types import Action, LabelRecord, Observation
from tests.support.chromium import need_chromium
from tests.support.emulators.infinity_checkout import ROOT, SMALL, copy
from tests.support.killing import Family
from tests.support.paths import SUPPORT
from tests.support.policies.infinity import SOLUTIONS, another

need_chromium("requests")
REAL = ROOT != SMALL
POLICIES = SUPPORT / "policies/infinity.py"
NAMES = [name for name in SOLUTIONS if (ROOT / "apps" / name.split("/")[0]).is_dir()]
MANY = [name for name in NAMES if name.endswith("/real")]
MISLED = [name for name in MANY if another(name) != name]


def words(out: Path, policy: str, names: list[str], root: Path = ROOT) -> list[str]:
    return [
        *("webarena-infinity", "--root", str(root), "--tasks", ",".join(names)),
        *("--policy", f"{POLICIES}:{policy}", "--whole-page", "--webarena-text"),
        *("--workers", "2", "-o", str(out)),
    ]


def played(
    out: Path, policy: str, names: list[str], *more: str, code: int = 0
) -> list[LabelRecord]:
    assert main(["rollout", *words(out, policy, names), *more]) == code
    return list(read_labels(out / "labels.jsonl"))


def test_scripted_policy_solves_tasks(tmp_path: Path) -> None:
    labels = played(tmp_path / "out", "Scripted", MANY)
    assert len(labels) == len(MANY)
    assert {label.id for label in labels if not label.success} == set()
    assert all(label.note for label in labels), "the verifier's message"
    runs = list(iter_trajectories(tmp_path / "out/trajectories.jsonl"))
    assert {run.task.id for run in runs} == set(MANY)
    for run in runs:
        app = str(run.task.site)
        for state in (*(step.observation for step in run.steps), run.final):
            assert state is not None
            assert str(state.url).startswith(f"http://{app}.localhost/"), "no port in the record"


def test_function_tasks_have_solutions_too(tmp_path: Path) -> None:
    if REAL:
        pytest.skip("scripts exist for the small application's function task")
    (label,) = played(tmp_path / "out", "Scripted", ["notes/task_1/*"], "--set", "function")
    assert label.success


def test_who_only_stops_or_errs_gets_nothing(tmp_path: Path) -> None:
    assert not any(label.success for label in played(tmp_path / "stops", "Stops", MANY))
    wrong = played(tmp_path / "wrong", "Scripted", MISLED, "--policy.wrong")
    assert [label.success for label in wrong] == [False] * len(MISLED)


async def test_resets_give_equal_observations(tmp_path: Path) -> None:
    """After an episode that changed the state, and in another worker."""
    apps = {name.split("/")[0]: name for name in MANY}
    config = WebArenaInfinityConfig(root=ROOT, tasks=list(apps.values()))
    setting = config.setting(Playing(images=tmp_path, workers=2))
    try:
        for name in setting.tasks:
            seen: list[Observation] = []
            for environment in (setting.environments[0], *setting.environments):
                task = await setting.task(environment, name, 0)
                seen.append(await environment.reset(task))
                await environment.page.evaluate(
                    "fetch('/api/state', {method: 'PUT', body: JSON.stringify({changed: true})})"
                )
            assert seen[1:] == seen[:1] * 2, name
    finally:
        for environment in setting.environments:
            await environment.close()
        await setting.close()


@pytest.mark.parametrize(
    ("verifier", "note"),
    [
        ("raise KeyError('gone')", "the verifier failed: KeyError: 'gone'"),
        ("return 1, 'not a truth value'", "the verifier failed: TypeError: .* instead of a truth"),
        ("import time; time.sleep(600)", "the verifier did not end within 3 s"),
    ],
)
def test_verifier_that_fails_gives_no_label(tmp_path: Path, verifier: str, note: str) -> None:
    root = copy(tmp_path)
    file = root / "apps/notes/real-tasks/task_e2.py"
    file.write_text(f"def verify(server_url):\n    {verifier}\n")
    argv = words(tmp_path / "out", "Scripted", ["task_e2"], root)
    assert main(["rollout", *argv, "--verifier-timeout", "3"]) == 3
    (label,) = read_labels(tmp_path / "out/labels.jsonl")
    assert label.success is None
    assert label.note is not None and re.search(note, label.note), label.note


async def test_state_other_than_the_seed_ends_the_episode(tmp_path: Path) -> None:
    root = copy(tmp_path)
    page = root / "apps/notes/index.html"
    page.write_text(page.read_text().replace("dark: false, st", "dark: Math.random(), st"))
    setting = WebArenaInfinityConfig(root=root, tasks="task_e1").setting(Playing(images=tmp_path))
    (environment,) = setting.environments
    try:
        task = await setting.task(environment, setting.tasks[0], 0)
        await environment.reset(task)
        with pytest.raises(EnvironmentFailedError, match="notes starts in another state.*: dark"):
            await environment.reset(task)
        await environment.step(Action("stop"))
    finally:
        await environment.close()
        await setting.close()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_nothing_stays_after_a_kill(tmp_path: Path) -> None:
    run = Family("rollout", *words(tmp_path / "out", "Stops", MANY), folder=tmp_path)
    assert run.wait_until(lambda: any("host.py serve" in line for line in run.left().values()))
    run.kill()
    assert run.gone(), run.left()
