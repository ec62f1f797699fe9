"""Every example runs and shows what it promises."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prill import (
    Observation,
    Task,
    Trajectory,
    iter_trajectories,
    read_labels,
    read_verdicts,
    write_trajectories,
)
from prill.refine import read_results
from prill.testing import MockServer
from tests.support.caches import own_cache
from tests.support.chromium import need_chromium
from tests.support.examples import embedded, run
from tests.support.paths import ROOT


@pytest.fixture
def prill(commands: Path) -> Path:
    return commands / "prill"


@pytest.fixture
def python(commands: Path) -> Path:
    return commands / "python"


@embedded
def test_samples_get_a_verdict_each(python: Path) -> None:
    lines = run(python, "examples/score_offline.py", 3).splitlines()
    assert len(lines) == 3
    assert all(re.match(r"miniwob-\w+ (True|False) [01]\.\d+ ", line) for line in lines), lines


def test_the_api_in_fifteen_lines(python: Path, tmp_path: Path) -> None:
    samples = "datasets/samples/miniwob"
    shown = run(python, "examples/evaluate.py", samples, f"{samples}/labels.jsonl", tmp_path)
    assert shown.startswith("kappa 0.000")
    assert "corrected, PPI++" in shown and "31 with scored runs of both" in shown
    assert re.search(r"\d+ sft rows -> ", shown)
    assert len(list(read_verdicts(tmp_path / "student.jsonl"))) == 186
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_every_configuration_can_be_made(python: Path) -> None:
    assert re.fullmatch(r"\d\d configurations\n", run(python, "examples/configurations.py"))


def test_record_score_agree_together(prill: Path, tmp_path: Path) -> None:
    need_chromium("miniwob", "rapidocr")
    shown = run(
        "examples/record_score_agree.sh",
        tmp_path,
        PRILL=str(prill),
        PRILL_CACHE_DIR=own_cache(tmp_path),
    )
    assert re.search(r"4 trajectories; judged [1-4], unscored [0-3]\n", shown)
    assert re.search(r"judged success +\d +\d", shown)


def test_example_converts_and_scores(prill: Path, tmp_path: Path) -> None:
    shown = run("examples/convert_and_score.sh", tmp_path, PRILL=str(prill))
    assert (
        len(list(iter_trajectories(tmp_path / "trajectories.jsonl")))
        == len(list(read_labels(tmp_path / "labels.jsonl")))
        == 3
    )
    assert "human, 3 trajectories; judged 3, unscored 0" in shown
    assert re.search(r"judged success +1 +1\njudged failure +0 +1\n", shown)


needs_sklearn = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None,
    reason="scikit-learn is not installed: pip install '.[student]'",
)


@needs_sklearn
def test_example_fits_and_judges_samples(prill: Path, tmp_path: Path) -> None:
    shown = run("examples/fit_and_use_a_student.sh", tmp_path, PRILL=str(prill))
    assert "Judge: student; success from" in shown
    verdicts = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert len(verdicts) == 3
    assert all(0 <= verdict["score"] <= 1 and "for: " in verdict["reason"] for verdict in verdicts)


@needs_sklearn
def test_a_judge_is_measured_and_attacked(prill: Path, tmp_path: Path) -> None:
    shown = run("examples/trust_a_judge.sh", tmp_path, PRILL=str(prill))
    for words in ("Fitted on 72 runs", "no judge", "Threshold 0.6", "| inject-page  |"):
        assert words in shown
    assert re.search(r"McNemar\n1, 2 .* p [=<] 0\.\d+\n", shown)
    assert (tmp_path / "reliability.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("lost", "code", "word"), [(0.0, 0, "pass"), (0.1, 0, "inconclusive"), (0.5, 1, "fail")]
)
def test_workflow_gates_a_change_on_recorded_runs(
    commands: Path, tmp_path: Path, lost: float, code: int, word: str
) -> None:
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "examples/ci/compare_agents.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    for side, share in (("main", 0.0), ("new", lost)):
        runs = [
            Trajectory(
                id=f"{side}-{i}",
                task=Task(id=f"t{i}", goal="Order tea"),
                final=Observation(text="Thank you" if i >= share * 60 else "Basket"),
            )
            for i in range(60)
        ]
        write_trajectories(tmp_path / f"agent-runs/{side}.jsonl", runs)
    settings = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "JUDGE": str(ROOT / "examples/own_judge.py:PhraseJudge"),
    }
    result = None
    for step in job["steps"]:
        if "run" in step and step["name"] != "Install":
            # As GitHub runs them.
            result = subprocess.run(
                ["bash", "-e", "-c", step["run"]],
                cwd=tmp_path,
                env={**os.environ, **settings},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if step["name"] != "Compare":
                assert result.returncode == 0, result.stderr
    assert result is not None
    assert result.returncode == code, result.stderr
    assert (tmp_path / "summary.md").read_text().startswith(f"## prill compare: {word}")
    assert ("::warning::" in result.stdout) == (word == "inconclusive")


@needs_sklearn
def test_cascade_says_what_it_saved(prill: Path) -> None:
    command = ("examples/cascade.sh", "m")
    with MockServer() as server:
        result = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PRILL": str(prill), "OPENAI_BASE_URL": server.base_url},
            capture_output=True,
            text=True,
            check=True,
        )
        asked = server.stats().requests
    told = re.search(
        r"the second judge was asked for (\d+) of 186; that saved about (\d+) of its calls",
        result.stderr,
    )
    assert told, result.stderr
    no_text = 1  # the second judge gets this run and makes no call: a state has no text
    assert (int(told[1]) - no_text, int(told[2])) == (asked, 186 - asked - no_text)
    assert 0 < asked < 186


def test_a_trainer_meets_the_reward_service(tmp_path: Path) -> None:
    for package in ("starlette", "uvicorn", "prometheus_client"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install '.[serve]'")
    with MockServer() as server:
        environment = {**os.environ, "OPENAI_BASE_URL": server.base_url}
        command = (
            sys.executable,
            "-m",
            "prill",
            "serve",
            "examples/reward_service/service.toml",
            "--port",
            "0",
            "--json",
        )
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ) as service:
            try:
                assert service.stdout is not None
                url = json.loads(service.stdout.readline())["url"]
                lines = run(sys.executable, "examples/reward_service/train.py", url).splitlines()
            finally:
                service.terminate()
        assert service.returncode == 0
    assert lines[:2] == ["OpenRLHF [1.0]", "OpenRLHF [0.0]"]
    assert lines[2].startswith("  422: no_evidence") and lines[3:] == [
        "OpenRLHF None",
        "slime [1.0, 0.0]",
    ]


@embedded
def test_one_small_model_does_all_of_reflexion(prill: Path, tmp_path: Path) -> None:
    need_chromium("miniwob")
    shown = run(
        "examples/reflexion_embedded.sh",
        tmp_path,
        PRILL=str(prill),
        PRILL_CACHE_DIR=own_cache(tmp_path),
    )
    assert re.search(r"\| 1 \| \d \| 5 \| +\d+\.0% \|", shown), shown
    results = read_results(tmp_path)
    lessons = [
        attempt.lesson for task in results.tasks for attempt in task.attempts if attempt.lesson
    ]
    assert lessons, "what a judge so strict refuses is tried again with a lesson"
    assert results.table is not None and not {"broken", "not_begun"} & results.table.ended.keys()
    assert (
        min(results.table.actor.calls, results.table.judge.calls, results.table.reflector.calls) > 0
    )
    assert 'class="attempt-link"' in (tmp_path / "page.html").read_text("utf-8")


AGENTS = ("step", "structured-reflection", "synapse")


def ended(folder: Path) -> list[str]:
    """How the episodes in the folder ended, errors in words."""
    found = list(iter_trajectories(folder / "trajectories.jsonl"))
    return [item.error or str(item.metadata["ended_by"]) for item in found]


def test_agents_play_to_their_end(prill: Path, tmp_path: Path) -> None:
    """In the place of the embedded model, which is too slow here, an endpoint whose answers fit no
    agent, and are cut.
    """
    need_chromium("miniwob")
    with MockServer(thought_tokens=200) as server:
        settings = {
            "PRILL": str(prill),
            "OPENAI_BASE_URL": server.base_url,
            "MODEL": "m",
            "TASKS": "click-button",
        }
        shown = run("examples/agents_embedded.sh", tmp_path, **settings)
    assert len(re.findall(r"^\| all \| 1 \| 1 \| 0\.0% .* \| 0 \|", shown, re.MULTILINE)) == len(
        AGENTS
    ), shown
    assert {agent: ended(tmp_path / agent / "episodes") for agent in AGENTS} == {
        agent: ["agent"] for agent in AGENTS
    }
    assert all((tmp_path / agent / "results.svg").is_file() for agent in AGENTS)


@embedded
@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("PRILL_LONG") != "1", reason="takes several minutes: set PRILL_LONG=1"
)
def test_agents_play_by_the_embedded_model(prill: Path, tmp_path: Path) -> None:
    need_chromium("miniwob")
    run("examples/agents_embedded.sh", tmp_path, PRILL=str(prill))
    for agent in AGENTS:
        how = ended(tmp_path / agent / "episodes")
        assert len(how) == 5 and set(how) <= {"agent", "environment", "max_steps"}, (agent, how)


def test_taught_policy_teaches_what_it_asks(prill: Path, tmp_path: Path) -> None:
    """A row of the filter is the very question that the policy asks its model when it plays."""
    import asyncio

    from examples.taught_policy import Pointer
    from prill import iter_trajectories
    from prill.testing import ScriptedModel

    recorded = "datasets/samples/miniwob/trajectories.jsonl"
    run(prill, "score", recorded, "-o", tmp_path / "v.jsonl", "--judge", "always-success")
    command = (
        prill,
        "filter",
        recorded,
        "--verdicts",
        tmp_path / "v.jsonl",
        "-o",
        tmp_path / "rows",
    )
    run(*command, "--policy", "examples/taught_policy.py:Pointer")
    row = json.loads((tmp_path / "rows/sft.jsonl").read_text().splitlines()[0])
    trajectory = next(one for one in iter_trajectories(recorded) if one.id == row["trajectory"])
    model = ScriptedModel([row["completion"][0]["content"]])
    policy = Pointer(model)
    policy.reset(trajectory.task)
    step = trajectory.steps[row["step"]]
    assert asyncio.run(policy.act(step.observation)).action.target == step.action.target
    [asked] = model.seen
    assert [part for message in asked for part in message.parts] == [row["prompt"][0]["content"]]
