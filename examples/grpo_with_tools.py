"""GRPO with an environment: the model calls its tools, and a judge rewards what happened in it, not
what the model says of it.

Run: OPENAI_BASE_URL=http://127.0.0.1:8000/v1 python examples/grpo_with_tools.py JUDGE MODEL
MODEL is one whose chat template has tools, such as Qwen/Qwen3-0.6B. It needs
pip install '.[train]'.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from typing import Any

import prill
from prill import Action, Observation, Step, Task, Trajectory
from prill.models import mend_torchvision
from prill.refine.rewards import TRLReward

GOALS = ["Buy the green tea.", "Buy two cups."]
PRICES = {"green tea": 4, "black tea": 3, "cups": 9}


class Shop:
    """A shop with one page. The attribute `trajectory` is what `TRLReward` judges."""

    def reset(self, **row: Any) -> str:
        """Starts an episode; returns what the model sees after its prompt."""
        self.basket: list[str] = []
        goal = row["prompt"][-1]["content"]
        self.trajectory = Trajectory(id=goal, task=Task(goal=goal), final=self._page())
        return str(self.trajectory.final and self.trajectory.final.text)

    def put(self, product: str, count: int) -> str:
        """Puts products into the basket.

        Args:
            product: The product's name.
            count: How many.
        """
        if product not in PRICES:
            return self._seen(f"put({product!r}, {count})", f"There is no {product}.")
        self.basket += [product] * max(0, min(count, 10))
        return self._seen(f"put({product!r}, {count})", "")

    def order(self) -> str:
        """Orders what is in the basket."""
        bought, self.basket = self.basket, []
        return self._seen("order()", f"Ordered: {', '.join(bought) or 'nothing'}.")

    def _page(self, message: str = "") -> Observation:
        products = ", ".join(f"{name} ${price}" for name, price in PRICES.items())
        basket = ", ".join(self.basket) or "empty"
        return Observation(text=f"Products: {products}. Basket: {basket}. {message}".strip())

    def _seen(self, call: str, message: str) -> str:
        before, after = self.trajectory.final or Observation(), self._page(message)
        steps = (*self.trajectory.steps, Step(before, Action("other", call)))
        self.trajectory = replace(self.trajectory, steps=steps, final=after)
        return str(after.text)


def main(judge_model: str, model: str) -> None:
    """Trains two steps on a CPU and prints the rewards."""
    mend_torchvision()
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportPrivateImportUsage]

    reward = prill.reward("modular", captioner="text", model=judge_model, judge_timeout=120)
    judges: list[Any] = [TRLReward(reward)]
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=64,
            max_steps=2,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=judges,
            environment_factory=Shop,
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": goal}]} for goal in GOALS]
            ),
            args=settings,
        )
        trainer.train()
    for row in trainer.state.log_history:
        if "rewards/judge/mean" in row:
            print(
                f"step {row['step']}: reward {row['rewards/judge/mean']:.2f}, unscored "
                f"{row['judge/unscored']:.2f}"
            )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
