"""Policies that ask a model can be taught: `react` over a tiny random model in this process, by an
adapter of the model.

Two steps teach it nothing, and nothing is claimed: this is the chain, from what a script did to
plays with the adapter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import iter_trajectories
from prill.policies.react import React, ReactSpec
from prill.policies.registry import PolicyConfig
from prill.refine.filtered_bc.study import FilteredBCConfig, make_player
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
        for run in iter_trajectories(SAMPLES)
        if isinstance(run, Trajectory) and run.task.site == "click-button"
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
        main(["filtered-bc", str(tmp_path / "study.toml"), "-o", str(tmp_path / "out"), "--json"])
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
            for run in iter_trajectories(folder / "trajectories.jsonl")
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
        "policy": policy, "episodes": episodes, "attempts": {"seeds": "0"}, "evaluation": {"seeds": "1"}, "arms": [arm], "output": "s"  # noqa: E501
    }  # fmt: skip


def test_adapters_go_to_the_model_of_a_policy(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    study = FilteredBCConfig.read(
        table(name="react", model=f"local:{tmp_path}", batch=4, reasoning=False)
    )
    assert study.make_training(0).model == str(tmp_path)
    config = make_player(study).episodes(
        tmp_path, {**study.episodes, **study.evaluation}, tmp_path / "adapter"
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
            "policy: react calls gpt-4o, which cannot load an adapter.*local:MODEL",
        ),
        ({"name": "autoui"}, "policy: autoui has no option `adapter`.*local:MODEL"),
    ],
)
def test_models_without_adapters_are_refused(policy: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_player(FilteredBCConfig.read(table(**policy)))
