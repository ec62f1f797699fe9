"""Policies that ask a model can be taught: `react` over a tiny random model in this process, by an
adapter of the model.

Two steps teach it nothing, and nothing is claimed: this is the chain, from what a script did to
plays with the adapter.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import read_trajectories
from prill.policies.react import React, ReactSpec
from prill.policies.registry import PolicyConfig
from prill.refine.filtered_bc import Study
from prill.runs.filtered_bc import Rollouts
from prill.testing import ScriptedModel
from prill.types import Trajectory
from tests.support.paths import ROOT

SAMPLES = ROOT / "datasets/samples/miniwob/trajectories.jsonl"
STUDY = """
[policy]
name = "react"
model = "local:{model}"
reasoning = false
max_tokens = 4

[episodes]
environment = "miniwob"
tasks = ["click-test-2"]
max_steps = 1

[[attempts]]
policy = "scripted"
behaviour = "solve,wrong-target"
seeds = "0-1"

[evaluation]
seeds = "1000-1001"

[training]
preset = "small-text"
targets = "language"
steps = 2
batch = 2
max_length = 4096
dtype = "float32"

[[arms]]
name = "filtered"
judge = "oracle"
"""


@pytest.fixture
def random_model(tiny_model: Callable[..., Path]) -> Path:
    """A tiny model whose tokens are react's words: its questions are long."""
    if missing := [
        name for name in ("torch", "transformers", "trl", "peft") if find_spec(name) is None
    ]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    runs = [
        run
        for run in read_trajectories(SAMPLES)
        if isinstance(run, Trajectory) and run.task.site == "click-test-2"
    ]
    asked, _ = React(ScriptedModel([]), ReactSpec(reasoning=False)).demonstrate(runs[0], 0)
    return tiny_model(
        "qwen2", lines=tuple("\n".join(map(str, message.parts)) for message in asked), tokens=2000
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the libraries' own, about their deprecations
@pytest.mark.usefixtures("chromium")
def test_react_over_a_local_model_is_taught(
    random_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "study.toml").write_text(STUDY.format(model=random_model))
    assert (
        main(
            [
                "refine",
                "filtered-bc",
                str(tmp_path / "study.toml"),
                "-o",
                str(tmp_path / "out"),
                "--json",
            ]
        )
        == 0
    )
    results = json.loads(capsys.readouterr().out)
    assert [(score["arm"], score["n"] + score["unlabelled"]) for score in results["scores"]] == [
        ("base", 2),
        ("filtered", 2),
    ]
    (judge,) = results["judges"]
    assert (
        judge["attempts"]["episodes"],
        judge["learnt"]["attempts"],
        judge["learnt"]["precision"],
    ) == (4, 2, 1.0)
    done = tmp_path / "out/seed-0/filtered/round-1"
    # The rows are react's own questions, and its own words for what the script did.
    first = json.loads((done / "rows.jsonl").read_text().splitlines()[0])
    assert first["completion"][0]["content"] == "```click [1]```"
    assert "triple back-ticks" in first["prompt"][0]["content"]
    agents = [
        {
            run.agent
            for run in read_trajectories(folder / "trajectories.jsonl")
            if isinstance(run, Trajectory)
        }
        for folder in (
            tmp_path / "out/base/attempts",
            tmp_path / "out/base/evaluation",
            done / "evaluation",
        )
    ]
    name = f"react/local/{random_model.name}"
    assert agents == [{"scripted"}, {name}, {f"{name}+adapter"}]
    # From Python it is the same study, in which nothing is left to do.
    rows = (done / "rows.jsonl").read_bytes()
    config = prill.FilteredBCConfig.load(tmp_path / "study.toml", output=tmp_path / "out")
    successes = prill.filtered_bc(config).to_pandas()["successes"].tolist()
    assert successes == [score["successes"] for score in results["scores"]]
    assert (done / "rows.jsonl").read_bytes() == rows


def table(**policy: object) -> dict[str, object]:
    episodes = {"environment": "miniwob", "tasks": ["click-test-2"]}
    arm = {"name": "filtered", "judge": "oracle"}
    return {
        "policy": policy, "episodes": episodes, "attempts": {"seeds": "0"}, "evaluation": {"seeds": "1"}, "arms": [arm]  # noqa: E501
    }  # fmt: skip


def test_adapters_go_to_the_model_of_a_policy(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    study = Study.read(table(name="react", model=f"local:{tmp_path}", batch=4, reasoning=False))
    assert study.make_training(0).model == str(tmp_path)
    config = (
        Rollouts(study)
        .episodes(tmp_path, {**study.episodes, **study.evaluation}, tmp_path / "adapter")
        .config
    )
    options = {
        "model": f"local:{tmp_path}",
        "batch": 4,
        "reasoning": False,
        "adapter": str(tmp_path / "adapter"),
    }
    assert config.policy == PolicyConfig("react", **options)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"name": "react", "model": "gpt-4o"},
            "policy: react calls gpt-4o, which cannot load an adapter.*local:DIR",
        ),
        ({"name": "autoui"}, "policy: autoui has no option `adapter`.*local:DIR"),
    ],
)
def test_models_without_adapters_are_refused(policy: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Rollouts(Study.read(table(**policy)))


def test_only_attempts_may_be_anothers() -> None:
    study = Study.read(
        {**table(name="small-text"), "evaluation": {"seeds": "1", "policy": "scripted"}}
    )
    with pytest.raises(UsageError, match="evaluation.policy: only attempts may use another policy"):
        Rollouts(study)


def test_later_rounds_need_own_attempts() -> None:
    attempts = [{"seeds": "1", "policy": "scripted"}]
    Rollouts(Study.read({**table(name="small-text"), "attempts": attempts}))
    with pytest.raises(UsageError, match="rounds: all attempts are made by another policy"):
        Rollouts(Study.read({**table(name="small-text"), "attempts": attempts, "rounds": 2}))


def test_attempts_are_counted_on_over_rounds(tmp_path: Path) -> None:
    study = Study.read(table(name="small-text"))
    episodes = Rollouts(study).episodes(
        tmp_path, {**study.episodes, "seeds": "0", "attempts": 2}, None, earlier=3
    )
    assert (episodes.config.attempts, episodes.config.first_play) == (2, 6)

    async def attempts() -> list[int]:
        async with episodes.session(planned=True) as made:
            return [row.attempt for row in made.rows]

    assert asyncio.run(attempts()) == [6, 7]


ROUNDS = """
rounds = 2

[policy]
name = "small-text"
model = "{model}"

[episodes]
environment = "miniwob"
tasks = ["click-test-2"]
max_steps = 1
workers = 2

[[attempts]]
seeds = "0-5"
set = ["policy.explore=1"]

[[attempts]]
policy = "scripted"
seeds = "20"

[evaluation]
seeds = "1000-1001"

[training]
preset = "small-text"
targets = "language"
steps = 2
batch = 2
dtype = "float32"

[[arms]]
name = "self-training"
"""


def runs_in(folder: Path) -> list[Trajectory]:
    return [
        run
        for run in read_trajectories(folder / "trajectories.jsonl")
        if isinstance(run, Trajectory)
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("chromium")
def test_second_round_plays_and_learns_again(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "study.toml").write_text(ROUNDS.format(model=random_model))
    out = tmp_path / "out"
    command = ["refine", "filtered-bc", str(tmp_path / "study.toml"), "-o", str(out)]
    assert main(command) == 0
    first, second = (out / f"seed-0/self-training/round-{number}" for number in (1, 2))
    before, after = runs_in(out / "base/attempts"), runs_in(second / "attempts")
    assert [run.agent for run in before].count("scripted") == 1 and len(before) == 7
    # What drew any action draws others on the same pages; what the script does is known, and is not
    # played again.
    assert [run.agent for run in after] == ["small-text"] * 6
    done = [
        {
            run.task.id: run.steps[0].action.text
            for run in runs
            if run.agent == "small-text" and run.steps
        }
        for runs in (before, after)
    ]
    assert done[0].keys() == done[1].keys() and done[0] != done[1]
    rows = [(folder / "rows.jsonl").read_text().splitlines() for folder in (first, second)]
    assert rows[1][: len(rows[0])] == rows[0] and len(rows[1]) > len(rows[0])
    # Where the evaluation of the second round is missing, it is played, and nothing else is done
    # again.
    results, trained = (
        (out / "results.json").read_bytes(),
        (second / "adapter/training.json").stat().st_mtime_ns,
    )
    assert [score["round"] for score in json.loads(results)["scores"]] == [0, 1, 2]
    (second / "manifest.json").unlink()
    (second / "evaluation").rename(tmp_path / "evaluation")
    assert main(command) == 2, "what is gone is named"
    assert main(["accept", str(out)]) == 0
    assert main(command) == 0
    assert (out / "results.json").read_bytes() == results
    assert (second / "adapter/training.json").stat().st_mtime_ns == trained
