"""Ranker and planner by transformers' Trainer, for real, of tiny models on pages made here: what is
learnt, and going on.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.io.store import write_trajectories
from prill.models.local.model import LocalModel
from prill.papers.mind2web.pages.state import PageState, read_state, without_pages
from prill.papers.mind2web.training import GoldTurns
from prill.policies.registry import make_policy
from prill.protocols import Message
from prill.refine.training.spec import TrainSpec, training_spec
from prill.refine.training.train import train_rows as train
from prill.testing.scripted import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.refine.launching import TRAINS, kill_training, train_on_two_processes
from tests.support.small_models import small_encoder, small_t5

needs_pages = pytest.mark.skipif(
    importlib.util.find_spec("lxml") is None, reason="not installed: pip install '.[papers]'"
)
pytestmark = [*TRAINS, needs_pages]
WORDS = ("cart", "search", "login", "menu", "help", "flights")
VERBS = ("press", "push", "hit")


def page_of(words: Sequence[str]) -> str:
    buttons = "".join(
        f'<div backend_node_id="{70 + i}"><button backend_node_id="{10 + i}"><text '
        f'backend_node_id="{50 + i}">{word}</text>'
        "</button></div>"
        for i, word in enumerate(words)
    )
    return f'<html backend_node_id="1"><body backend_node_id="2">{buttons}</body></html>'


def turn_of(number: int) -> Trajectory:
    """Two steps on pages with the same words in another order: press one of them, always the
    same.
    """
    draw, steps, goal = random.Random(number), list[Step](), WORDS[0]
    past: tuple[str, ...] = ()
    for _ in range(2):
        words = draw.sample(WORDS, len(WORDS))
        ids = tuple(str(10 + i) for i in range(len(words)))
        target = ids[words.index(goal)]
        said = f"[button]  {goal} -> CLICK"
        state = PageState(page_of(words), ids, past).text()
        steps.append(Step(Observation(text=state), Action("click", said, target=target)))
        past = (*past, said)
    about = {
        "conversation": f"c{number // 2}",
        "turn": number % 2,
        "uids": [f"u{number}a", f"u{number}b"],
    }
    earlier = (without_pages(turn_of(number - 1)),) if number % 2 else ()
    task = Task(
        id=f"t{number}",
        goal=f"{VERBS[number % 3]} {goal}",
        platform="web",
        site="shop",
        earlier=earlier,
    )
    return Trajectory(id=f"t{number}", task=task, steps=tuple(steps), metadata=about)


class Teacher:
    """Asks for the goal's verb, with drawn candidates, and with the pages of earlier turns counted
    before it.
    """

    def demonstrate(
        self, trajectory: Trajectory, index: int, *, draw: int | None = None
    ) -> tuple[Sequence[Message], str]:
        step = trajectory.steps[index]
        others = [
            id
            for id in read_state(step.observation.text or "").candidates
            if id != step.action.target
        ]
        shown = random.Random(f"{trajectory.id}/{index}/{draw}").sample(others, 2)
        pages = sum(
            step.observation.text is not None
            for turn in trajectory.task.earlier
            for step in turn.steps
        )
        asked = f"{pages} pages. {trajectory.task.goal}? {' '.join(shown)}"
        return (
            Message("system", ("Act.",)),
            Message("user", (asked,)),
        ), trajectory.task.goal.split()[0]


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gold") / "gold.jsonl"
    write_trajectories(path, [turn_of(number) for number in range(24)])
    return path


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [
        *WORDS,
        *VERBS,
        "pages Act. [button] CLICK ancestors: target: task is: Previous actions: html body button",
    ] * 4


@pytest.fixture(scope="module")
def encoder(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(
        tmp_path_factory.mktemp("models") / "encoder",
        lines,
        vocabulary=400,
        width=32,
        layers=1,
        heads=2,
    )


@pytest.fixture(scope="module")
def t5(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_t5(
        tmp_path_factory.mktemp("models") / "t5", lines, vocabulary=400, width=32, layers=1, heads=2
    )


def ranker_spec(model: Path, **changed: Any) -> TrainSpec:
    settings = {
        "learning_rate": 5e-3,
        "steps": 30,
        "batch": 16,
        "checkpoint_every": 1000,
        "held_out": 0.25,
        **changed,
    }
    return training_spec("small-ranker", trains="ranker", model=str(model), **settings)


def planner_spec(model: Path, **changed: Any) -> TrainSpec:
    settings = {
        "learning_rate": 1e-2,
        "steps": 40,
        "batch": 16,
        "checkpoint_every": 1000,
        "log_every": 1,
        **changed,
    }
    return training_spec("small-planner", trains="planner", model=str(model), **settings)


@pytest.fixture(scope="module")
def ranker(gold: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(ranker_spec(encoder), gold, tmp_path_factory.mktemp("trained") / "ranker")


@pytest.fixture(scope="module")
def planner(gold: Path, t5: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(
        planner_spec(t5), gold, tmp_path_factory.mktemp("trained") / "planner", teacher=Teacher()
    )


def figures(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "training.json").read_bytes())["figures"]
    return found


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def losses(folder: Path) -> list[float]:
    """Of all steps, in order."""
    return [loss for _, loss in figures(folder)["losses"]]


def test_ranker_beats_chance_where_unseen(ranker: Path) -> None:
    found = figures(ranker)["ranking"]
    assert (found["steps"], found["without"]) == (12, 0)
    assert found["chance"] == pytest.approx(1 / len(WORDS))
    assert found["accuracy"] > 0.8
    assert "| accuracy by chance | 0.167 |" in (ranker / "README.md").read_text(encoding="utf-8")


def test_planner_learns_its_answers(planner: Path) -> None:
    first, *_, last = losses(planner)
    assert last < first / 5


def test_planner_folder_answers_by_name(planner: Path, gold: Path) -> None:
    """Three calls of different lengths at once: an answer does not depend on those beside it."""
    turns, model = GoldTurns(gold), LocalModel(planner)
    asked = [Teacher().demonstrate(turns.whole_turn(number), 0, draw=7) for number in (0, 3, 8)]

    async def answers() -> list[str]:
        replies = await asyncio.gather(
            *(model.complete(messages, max_tokens=12) for messages, _ in asked)
        )
        return [reply.text.strip() for reply in replies]

    assert asyncio.run(answers()) == [answer for _, answer in asked]


def test_a_killed_ranker_goes_on(encoder: Path, gold: Path, tmp_path: Path) -> None:
    import torch

    # as in the process below: sums of several threads differ in their last bits
    torch.set_num_threads(1)
    settings = {"steps": 8, "batch": 8, "checkpoint_every": 4, "held_out": 0.0, "log_every": 1}
    spec = training_spec("small-ranker", trains="ranker", model=str(encoder), **settings)
    whole = train(spec, gold, tmp_path / "whole")
    folder = tmp_path / "killed"
    kill_training(
        "ranker",
        gold,
        folder,
        settings,
        "--preset",
        "small-ranker",
        "--model",
        encoder,
    )
    steps: list[int] = []
    train(spec, gold, folder, progress=lambda now: steps.append(now.step))
    assert set(steps) <= {5, 6, 7, 8}
    assert losses(folder) == losses(whole)
    first, second = weights(whole), weights(folder)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_stopped_planner_goes_on_alike(t5: Path, gold: Path, tmp_path: Path) -> None:
    import torch

    spec = planner_spec(t5, steps=6, checkpoint_every=3)
    whole = train(spec, gold, tmp_path / "whole", teacher=Teacher())
    stop = threading.Event()
    with pytest.raises(KeyboardInterrupt, match="stopped after step 4 of 6"):
        train(
            spec,
            gold,
            tmp_path / "other",
            teacher=Teacher(),
            progress=lambda now: now.step == 4 and stop.set(),
            stop=stop,
        )
    folder = train(spec, gold, tmp_path / "other", teacher=Teacher())
    first, second = weights(whole), weights(folder)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.skipif(
    "PRILL_LONG" not in os.environ, reason="PRILL_LONG=1: half a minute of the processor each"
)
@pytest.mark.parametrize("trains", ["ranker", "planner"])
def test_two_processes_learn_the_same(
    trains: str, encoder: Path, t5: Path, gold: Path, tmp_path: Path
) -> None:
    """Started by `accelerate launch` as on several GPUs: with the losses of one process."""
    few = {"steps": 3, "batch": 8, "checkpoint_every": 3, "log_every": 1, "held_out": 0.25}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in few.items()]
    of_ranker, teacher = trains == "ranker", make_policy("mindact", model=ScriptedModel([]))
    model, asked = (encoder, ()) if of_ranker else (t5, ("--policy", "mindact"))
    spec = training_spec(f"small-{trains}", trains=trains, model=str(model), **few)  # type: ignore[arg-type]
    one = train(spec, gold, tmp_path / "one", teacher=None if of_ranker else teacher)
    words = (trains, gold, "-o", tmp_path / "two", "--preset", f"small-{trains}", "--model", model)
    train_on_two_processes(*words, *asked, *flags)
    record = json.loads((tmp_path / "two/training.json").read_bytes())
    assert (record["processes"], record["done"]) == (2, True)
    assert len(list((tmp_path / "two/checkpoints/checkpoint-3").glob("rng_state_*.pth"))) == 2
    assert losses(tmp_path / "two") == pytest.approx(losses(one), rel=1e-3)
    if of_ranker:
        assert figures(tmp_path / "two")["ranking"] == figures(one)["ranking"]
