"""TRL's GRPO with a judge as its reward function, on tiny models; and the way in which ms-swift
calls.
"""

import asyncio
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import prill
from prill.errors import UsageError
from prill.refine.rewards import Reward, TRLReward, to_json
from prill.testing import MockServer
from prill.types import EvaluatorInfo, Observation, Task, Trajectory, Verdict
from tests.support.paths import ROOT

INFO = EvaluatorInfo("every-other", "1")
trains = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "transformers", "trl")),
    reason="not installed: pip install '.[train]'",
)


class EveryOther:
    """Success and failure in turn; nothing is said of the first of four."""

    info = INFO

    def __init__(self) -> None:
        self.judged: list[Trajectory] = []

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        place = len(self.judged) % 4
        self.judged.append(trajectory)
        await asyncio.sleep(0)
        if place == 0:
            return Verdict(id=trajectory.id, unscored="timeout", reason="too slow", evaluator=INFO)
        return Verdict(id=trajectory.id, success=place == 1, reason="seen", evaluator=INFO)


ROWS: list[dict[str, Any]] = [
    {"prompt": [{"role": "user", "content": f"buy tea {i}"}]} for i in range(4)
]
PICTURES: list[dict[str, Any]] = [
    {
        "prompt": [
            {
                "role": "user",
                "content": [{"type": "image"}, {"type": "text", "text": f"buy tea {i}"}],
            }
        ],
        "images": [Image.new("RGB", (112, 84), (60 * i, 0, 0))],
    }
    for i in range(4)
]


SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "num_generations": 4,
    "max_completion_length": 6,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
}


@trains
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rows"), [("qwen2", ROWS), ("qwen2_5_vl", PICTURES)])
@pytest.mark.filterwarnings("ignore")  # what trainers and their libraries deprecate in one another
def test_unscored_samples_have_no_advantage(
    kind: str, rows: list[dict[str, Any]], tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tiny_model(kind)  # first: it makes torchvision importable
    import torch
    from datasets import Dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoProcessor,
        AutoTokenizer,
    )
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    sees = kind != "qwen2"
    judge = EveryOther()
    trainer = GRPOTrainer(
        model=(AutoModelForImageTextToText if sees else AutoModelForCausalLM).from_pretrained(
            folder
        ),
        processing_class=(AutoProcessor if sees else AutoTokenizer).from_pretrained(folder),
        reward_funcs=[TRLReward(Reward(judge), column=None)],
        args=GRPOConfig(str(tmp_path), max_steps=2, **SETTINGS),
        train_dataset=Dataset.from_list(rows),
    )
    advantages: list[list[float]] = []
    compute = trainer._generate_and_score_completions

    def watched(inputs: Any) -> Any:
        made = compute(inputs)
        advantages.append(made["advantages"].tolist())
        return made

    trainer._generate_and_score_completions = watched
    trainer.train()
    assert [len(batch) for batch in advantages] == [4, 4]
    for unscored, success, *failures in advantages:
        assert unscored == 0.0
        assert success > 0 > max(failures)
        # the baseline is that of the three
        assert success + sum(failures) == pytest.approx(0.0, abs=1e-5)
    logged = [row for row in trainer.state.log_history if "rewards/judge/mean" in row]
    assert [row["judge/unscored"] for row in logged] == [0.25, 0.25]
    assert [row["rewards/judge/mean"] for row in logged] == [pytest.approx(1 / 3)] * 2
    assert all(trajectory.task.goal.startswith("buy tea") for trajectory in judge.judged)
    assert all(
        (trajectory.steps[0].observation.screenshot is not None) == sees
        for trajectory in judge.judged
    )


@trains
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_environments_of_a_trainer_are_judged(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """By TRLReward, and by the `get_reward` of an environment; the first of four is unscored each
    time.
    """
    folder = tiny_model("qwen2")
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen2_5_chat_template

    torch.set_num_threads(1)
    judge, own = EveryOther(), EveryOther()
    reward = Reward(own)

    class Kettle:
        def reset(self, **row: Any) -> str:
            self.trajectory = Trajectory(
                id="k", task=Task(goal="boil water"), answer=row["prompt"][0]["content"]
            )
            return " The kettle is empty."

        def fill(self, litres: int) -> str:
            """Fills the kettle.

            Args:
                litres: How much water.
            """
            return f"{litres} litres are in it."

        async def get_reward(self) -> float | None:
            return await reward(self.trajectory)

    reader = AutoTokenizer.from_pretrained(folder)
    reader.chat_template = qwen2_5_chat_template  # one that TRL knows, with tools
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        processing_class=reader,
        reward_funcs=[TRLReward(Reward(judge))],
        args=GRPOConfig(str(tmp_path), max_steps=1, **SETTINGS),
        train_dataset=Dataset.from_list(ROWS[:1]),
        environment_factory=Kettle,
    )
    trainer.train()
    [logged] = [row for row in trainer.state.log_history if "rewards/judge/mean" in row]
    assert logged["rewards/judge/mean"] == logged["rewards/Kettle/mean"] == pytest.approx(1 / 3)
    assert logged["judge/unscored"] == 0.25
    for asked in (judge, own):
        assert [trajectory.answer for trajectory in asked.judged] == ["buy tea 0"] * 4


def recorded(truth: str) -> Trajectory:
    return Trajectory(
        id=f"t-{truth}", task=Task(goal="buy tea"), final=Observation(text=f"A page. truth={truth}")
    )


class Shop:
    """An environment as TRL has them, with what happened in it."""

    def __init__(self, truth: str) -> None:
        self.trajectory = recorded(truth)


def metered() -> tuple[dict[str, Any], dict[str, Any]]:
    noted: dict[str, Any] = {}
    return noted, {"log_metric": noted.__setitem__, "log_extra": noted.__setitem__}


@pytest.fixture(scope="module")
def reward() -> Any:
    with MockServer() as server:
        yield prill.reward(
            "modular",
            captioner="text",
            model="mock",
            base_url=server.base_url,
            api_key_env="NO_SUCH_KEY",
        )


BATCH = [to_json(recorded("success")), to_json(recorded("failure")), "no trajectory"]


async def test_columns_are_judged_and_logged(
    reward: Reward, caplog: pytest.LogCaptureFixture
) -> None:
    noted, loggers = metered()
    numbers = await TRLReward(reward)(
        prompts=["p"] * 3,
        completions=["c"] * 3,
        completion_ids=[[1]] * 3,
        trajectory=BATCH,
        trainer_state=None,
        **loggers,
    )
    assert numbers == [1.0, 0.0, None]
    assert noted["judge/unscored"] == pytest.approx(1 / 3)
    assert noted["judge_reason"][2].startswith("input: row 2")
    assert "1 of 3 unscored (input 1)" in caplog.text


async def test_environments_go_before_columns(reward: Reward) -> None:
    shops = [Shop("failure"), Shop("success")]
    assert await TRLReward(reward)(
        completions=["c"] * 2, environments=shops, trajectory=BATCH[:2]
    ) == [0.0, 1.0]


async def test_missing_columns_stop_the_training(reward: Reward) -> None:
    with pytest.raises(UsageError, match=r"no column 'trajectory'.*its columns: solution, task_id"):
        await TRLReward(reward)(completions=["c"], prompts=["p"], task_id=[1], solution=["s"])
    with pytest.raises(UsageError, match="2 completions, but 1 trajectories"):
        await TRLReward(reward)(completions=["c"] * 2, trajectory=BATCH[:1])


def test_another_process_can_be_handed_it(reward: Reward) -> None:
    function = TRLReward(reward, name="outcome")
    assert asyncio.run(function(completions=["c"], trajectory=BATCH[:1])) == [1.0]
    program = (
        "import asyncio, pickle, sys\nfunction, batch = pickle.load(sys.stdin.buffer)\n"
        "print(function.__name__, asyncio.run(function(completions=['c'] * len(batch), "
        "trajectory=batch)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((function, BATCH[:2])),
        capture_output=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout.decode().strip()) == (0, "outcome [1.0, 0.0]"), (
        done.stderr.decode()
    )
