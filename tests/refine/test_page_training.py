"""Ranker and planner by transformers' Trainer, for real, of tiny models on pages made here: what is learnt, and going on."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.models.local.model import LocalModel
from prill.models.local.ranker import CrossEncoder
from prill.pages.ranking import rank_step
from prill.pages.state import PageState, read_state
from prill.protocols import Message
from prill.refine.training.pages import Draws, GoldTurns
from prill.refine.training.planner import PlannerRows, plan_planner
from prill.refine.training.ranker import plan_ranker
from prill.refine.training.spec import TrainSpec, training_spec
from prill.refine.training.train import check_training, train
from prill.registry import OptionError
from prill.store import write_trajectories
from prill.testing.small_models import small_encoder, small_t5
from prill.types import Action, Observation, Step, Task, Trajectory

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("torch", "transformers", "trl", "peft", "accelerate", "lxml")),
        reason="not installed: pip install 'prill[train,mind2web]'",
    ),
    pytest.mark.filterwarnings("ignore"),  # the libraries' own, about their deprecations
    pytest.mark.slow,
]
WORDS = ("cart", "search", "login", "menu", "help", "flights")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def page_of(words: Sequence[str]) -> str:
    buttons = "".join(
        f'<button backend_node_id="{10 + i}"><text backend_node_id="{50 + i}">{word}</text></button>'
        for i, word in enumerate(words)
    )
    return f'<html backend_node_id="1"><body backend_node_id="2">{buttons}</body></html>'


def turn_of(number: int) -> Trajectory:
    """Two steps on pages with the same words in another order: press what the goal names."""
    draw, steps, goal = random.Random(number), list[Step](), WORDS[number % 2]
    past: tuple[str, ...] = ()
    for _ in range(2):
        words = draw.sample(WORDS, len(WORDS))
        ids = tuple(str(10 + i) for i in range(len(words)))
        target = ids[words.index(goal)]
        said = f"[button]  {goal} -> CLICK"
        state = PageState(page_of(words), ids, past).text()
        steps.append(Step(Observation(text=state), Action("click", said, target=target)))
        past = (*past, said)
    about = {"conversation": f"c{number // 2}", "turn": number % 2, "uids": [f"u{number}a", f"u{number}b"]}
    task = Task(id=f"t{number}", goal=f"press {goal}", platform="web", site="shop")
    return Trajectory(id=f"t{number}", task=task, steps=tuple(steps), metadata=about)


class Teacher:
    """Asks for the goal's word among drawn candidates, with the number of earlier turns before it."""

    def demonstrate(self, trajectory: Trajectory, index: int, *, draw: int | None = None) -> tuple[Sequence[Message], str]:
        step = trajectory.steps[index]
        others = [id for id in read_state(step.observation.text or "").candidates if id != step.action.target]
        shown = random.Random(f"{trajectory.id}/{index}/{draw}").sample(others, 2)
        asked = f"{len(trajectory.task.earlier)} turns. {trajectory.task.goal}? {' '.join(shown)}"
        return (Message("system", ("Act.",)), Message("user", (asked,))), trajectory.task.goal.split()[-1]


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gold") / "gold.jsonl"
    write_trajectories(path, [turn_of(number) for number in range(24)])
    return path


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [*WORDS, "press turns Act. [button] CLICK ancestors: target: task is: Previous actions: html body button"] * 4


@pytest.fixture(scope="module")
def encoder(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("models") / "encoder", lines, vocabulary=400, width=32, layers=1, heads=2)


@pytest.fixture(scope="module")
def t5(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_t5(tmp_path_factory.mktemp("models") / "t5", lines, vocabulary=400, width=32, layers=1, heads=2)


def ranker_spec(model: Path, **changed: Any) -> TrainSpec:
    settings = {"learning_rate": 5e-3, "steps": 120, "batch": 16, "checkpoint_every": 1000, "held_out": 0.25, **changed}
    return training_spec("small-ranker", trains="ranker", model=str(model), **settings)


def planner_spec(model: Path, **changed: Any) -> TrainSpec:
    settings = {"learning_rate": 1e-2, "steps": 40, "batch": 16, "checkpoint_every": 1000, "log_every": 1, **changed}
    return training_spec("small-planner", trains="planner", model=str(model), **settings)


@pytest.fixture(scope="module")
def ranker(gold: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(ranker_spec(encoder), gold, tmp_path_factory.mktemp("trained") / "ranker")


@pytest.fixture(scope="module")
def planner(gold: Path, t5: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(planner_spec(t5), gold, tmp_path_factory.mktemp("trained") / "planner", teacher=Teacher())


def figures(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "training.json").read_bytes())["figures"]
    return found


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def test_ranker_beats_chance_where_unseen(ranker: Path) -> None:
    found = figures(ranker)["ranking"]
    assert (found["steps"], found["without"]) == (12, 0)
    assert found["chance"] == pytest.approx(1 / len(WORDS))
    assert found["accuracy"] > 0.8
    assert "| accuracy by lot | 0.167 |" in (ranker / "README.md").read_text(encoding="utf-8")


def test_planner_learns_its_answers(planner: Path) -> None:
    losses = [loss for _, loss in figures(planner)["losses"]]
    assert losses[-1] < losses[0] / 5
