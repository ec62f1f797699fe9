"""The real vLLM on the CPU, in an environment of its own (`make test-vllm`), with tiny random models: only form is checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.store import read_verdicts
from prill.types import Verdict

from . import tiny

PYTHON = os.environ.get("PRILL_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.skipif(not Path(PYTHON).is_file(), reason="no environment with vLLM: make test-vllm"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own, about their deprecations
]
# What vLLM wants on a CPU, and no telemetry, nor anything fetched.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
}
OPTIONS = ("--set", "serve_options=--enforce-eager --max-num-seqs 4", "--set", "dtype=bfloat16", "--set", "images=2")


@pytest.fixture
def folder(tmp_path: Path, torchvision_beside_cpu_torch: Callable[[], None]) -> Path:
    pytest.importorskip("transformers")
    torchvision_beside_cpu_torch()
    for i in range(4):
        Picture.linear_gradient("L").rotate(90 * i).resize((320, 180)).convert("RGB").save(tmp_path / f"{i}.png")
    task = {"id": "k", "goal": "Open the page", "platform": "web"}
    final = [{"screenshot": f"{i}.png", "caption": f"page {i}"} for i in range(4)]
    rows = [{"id": f"t{i}", "task": task, "steps": [], "final": state} for i, state in enumerate(final)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def judged(folder: Path, kind: str, judge: str) -> list[Verdict]:
    """Verdicts by a tiny model of that kind, which `prill score` serves for the time of its run."""
    import torch

    model, reader = tiny.build(kind, served=True)
    with torch.no_grad():  # quotation marks come soon, so that the texts in its replies end
        model.lm_head.weight[getattr(reader, "tokenizer", reader).convert_tokens_to_ids('"')] *= 20
    tiny.save(model.bfloat16(), reader, folder / kind)
    words = ["t.jsonl", "-o", "v.jsonl", "--evaluator", judge, "--serve", kind]
    command = [sys.executable, "-m", "prill", "score", *words, "--set", f"serve_python={PYTHON}", *OPTIONS]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **ENVIRONMENT}, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    return list(read_verdicts(folder / "v.jsonl"))


@pytest.mark.parametrize(("kind", "judge"), [("qwen2", "modular"), ("qwen2_5_vl", "vlm")])
def test_real_vllm_judges(folder: Path, kind: str, judge: str) -> None:
    verdicts = judged(folder, kind, judge)
    assert {verdict.id for verdict in verdicts} == {f"t{i}" for i in range(4)}
    for verdict in verdicts:
        assert verdict.evaluator.model == f"vllm/{kind}"
        assert verdict.usage.calls == 1 and verdict.usage.images == (judge == "vlm")
        assert verdict.unscored in (None, "no_evidence"), "that the evidence is insufficient is one of the offered answers"
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    assert scores and all(0.0 < score < 1.0 for score in scores), "probabilities of tokens, not words"
