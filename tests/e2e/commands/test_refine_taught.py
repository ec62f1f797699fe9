"""Policies that ask a model can be taught, by an adapter of the model: `react` over a tiny random
model in this process, and `screen` over one that sees.

Two steps teach them nothing, and nothing is claimed: this is the chain, from what a script did to
plays with the adapter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import iter_trajectories
from prill.policies.react import React, ReactSpec
from prill.policies.registry import PolicyConfig
from prill.refine.filtered_bc.study import FilteredBCConfig, make_player
from prill.testing import ScriptedModel
from tests.support.paths import ROOT
from tests.support.refine.launching import QUIET, needs_training

SAMPLES = ROOT / "datasets/samples/miniwob/trajectories.jsonl"
STUDY = """
[policy]
name = "{policy}"
model = "local:{model}"
max_tokens = 4
{options}

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
preset = "{preset}"
targets = "language"
steps = 2
batch = 2
max_length = 4096
held_out = 0.0
dtype = "float32"

[[arms]]
name = "filtered"
judge = "oracle"
"""
ROUND = "out/seed-0/filtered/round-1"
CALL = '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": ['
Taught = Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]


@pytest.fixture
def taught(
    chromium: None, offline: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Taught:
    """The results and the rows of a study in which a policy plays, learns from a script, and plays
    again.
    """

    def study(policy: str, model: Path, preset: str, options: str) -> Any:
        text = STUDY.format(policy=policy, model=model, preset=preset, options=options)
        (tmp_path / "study.toml").write_text(text)
        words = [str(tmp_path / "study.toml"), "-o", str(tmp_path / "out"), "--json"]
        assert main(["filtered-bc", *words]) == 0
        results = json.loads(capsys.readouterr().out)
        assert [
            (score["arm"], score["n"] + score["unlabelled"]) for score in results["scores"]
        ] == [
            ("base", 2),
            ("filtered", 2),
        ]
        agents = [
            {run.agent for run in iter_trajectories(tmp_path / played / "trajectories.jsonl")}
            for played in ("out/base/attempts", "out/base/evaluation", f"{ROUND}/evaluation")
        ]
        name = f"{policy}/local/{model.name}"
        assert agents == [{"scripted"}, {name}, {f"{name}+adapter"}]
        rows = (tmp_path / ROUND / "rows.jsonl").read_text().splitlines()
        return results, list(map(json.loads, rows))

    return study


@needs_training
@QUIET
@pytest.mark.slow
def test_react_over_a_local_model_is_taught(
    taught: Taught, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    runs = [run for run in iter_trajectories(SAMPLES) if run.task.site == "click-button"]
    asked, _ = React(ScriptedModel([]), ReactSpec(reasoning=False)).demonstrate(runs[0], 0)
    # Its tokens are react's words: its questions are long.
    lines = tuple("\n".join(map(str, message.parts)) for message in asked)
    model = tiny_model("qwen2", lines=lines, tokens=2000)
    results, rows = taught("react", model, "small-text", "reasoning = false")
    (judge,) = results["judges"]
    assert (
        judge["attempts"]["episodes"],
        judge["learnt"]["attempts"],
        judge["learnt"]["precision"],
    ) == (4, 2, 1.0)
    # The rows are react's own questions, and its own words for what the script did.
    assert rows[0]["completion"][0]["content"] == "```click [1]```"
    assert "triple back-ticks" in rows[0]["prompt"][0]["content"]
    # From Python it is the same study, in which nothing is left to do.
    written = (tmp_path / ROUND / "rows.jsonl").read_bytes()
    config = prill.FilteredBCConfig.load(tmp_path / "study.toml", output=tmp_path / "out")
    successes = prill.filtered_bc(config).to_pandas()["successes"].tolist()
    assert successes == [score["successes"] for score in results["scores"]]
    assert (tmp_path / ROUND / "rows.jsonl").read_bytes() == written


@needs_training
@QUIET
@pytest.mark.slow
def test_screen_over_a_tiny_vision_model_is_taught(
    taught: Taught, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    options = 'grammar = "qwen3-vl"\nhistory = 2'
    _, rows = taught("screen", tiny_model("qwen3_vl"), "qwen3-vl", options)
    assert any(CALL in row["completion"][0]["content"][0]["text"] for row in rows)
    for row in rows:
        assert "<tool_call>" in row["completion"][0]["content"][0]["text"]
        assert [part["type"] for part in row["prompt"][-1]["content"]][-1] == "image"
        assert all((tmp_path / ROUND / image).is_file() for image in row["images"])


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
