"""A screen model is taught from its own attempts: `screen` over a tiny random Qwen-VL in this
process, by one TOML.

Two steps teach it nothing, and nothing is claimed: this is the chain, from Chromium to plays with
the adapter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from prill.cli import main
from prill.io.store import iter_trajectories
from prill.types import Trajectory

STUDY = """
[policy]
name = "screen"
model = "local:{model}"
grammar = "qwen3-vl"
history = 2
max_tokens = 4

[episodes]
environment = "miniwob"
tasks = ["click-test-2", "click-button"]
max_steps = 2

[[attempts]]
seeds = "0"

[[attempts]]
policy = "scripted"
behaviour = "solve,wrong-target"
seeds = "0"

[evaluation]
seeds = "1000"

[training]
preset = "qwen3-vl"
steps = 2
batch = 2
max_length = 4096
dtype = "float32"

[[arms]]
name = "filtered"
judge = "oracle"
"""
CALL = '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": ['


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the libraries' own, about their deprecations
@pytest.mark.usefixtures("chromium")
def test_screen_over_a_tiny_vision_model_is_taught(
    tiny_model: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if missing := [
        name for name in ("torch", "transformers", "trl", "peft") if find_spec(name) is None
    ]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = tiny_model("qwen3_vl")
    (tmp_path / "study.toml").write_text(STUDY.format(model=model))
    assert (
        main(["filtered-bc", str(tmp_path / "study.toml"), "-o", str(tmp_path / "out"), "--json"])
        == 0
    )
    results = json.loads(capsys.readouterr().out)
    assert [(score["arm"], score["n"] + score["unlabelled"]) for score in results["scores"]] == [
        ("base", 2),
        ("filtered", 2),
    ]
    done = tmp_path / "out/seed-0/filtered/round-1"
    rows = [json.loads(line) for line in (done / "rows.jsonl").read_text().splitlines()]
    assert rows
    assert any(CALL in row["completion"][0]["content"][0]["text"] for row in rows)
    for row in rows:
        assert "<tool_call>" in row["completion"][0]["content"][0]["text"]
        assert [part["type"] for part in row["prompt"][-1]["content"]][-1] == "image"
        assert all(Path(done, image).is_file() for image in row["images"])
    agents = [
        {
            run.agent
            for run in iter_trajectories(folder / "trajectories.jsonl")
            if isinstance(run, Trajectory)
        }
        for folder in (tmp_path / "out/base/attempts", done / "evaluation")
    ]
    name = f"screen/local/{model.name}"
    assert agents == [{"scripted", name}, {f"{name}+adapter"}]
