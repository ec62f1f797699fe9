"""Training recipes: what is checked first, which trainer runs, what the model card says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from prill.config.registry import load_object
from prill.errors import UsageError
from prill.refine.demonstration import Teacher
from prill.refine.training.preflight import Devices, Preflight, Say, TrainingPlan, plan_training
from prill.refine.training.spec import Trained, TrainSpec
from prill.refine.training.trainer import TrainingWatch, make_trainer

_ON_PAGES = "prill.papers.mind2web.training"
# Where the recipes are that other packages have, looked up when one is first used.
_RECIPES: Mapping[Trained, str] = {
    "judge": "prill.refine.training.judge:JudgeRecipe",
    "ranker": f"{_ON_PAGES}.ranker:RankerRecipe",
    "planner": f"{_ON_PAGES}.planner:PlannerRecipe",
}


class RecipePlan(Protocol):
    """All that a training needs to begin."""

    @property
    def facts(self) -> Preflight:
        """Estimates before the training."""
        ...

    @property
    def digests(self) -> Mapping[str, object]:
        """Hashes of the training data, to recognise it on resume."""
        ...


class Recipe(Protocol):
    """How one kind of thing is trained. A plan is always one that the recipe made."""

    caution: ClassVar[str]

    def plan(
        self,
        spec: TrainSpec,
        rows: str | os.PathLike[str],
        folder: Path,
        say: Say,
        *,
        teacher: Teacher | None,
        taught: Mapping[str, Any] | None,
        devices: Devices | None,
    ) -> RecipePlan:
        """Reads and measures everything. Raises UsageError where the training would fail."""
        ...

    def trainer(
        self,
        spec: TrainSpec,
        plan: Any,
        folder: Path,
        watch: TrainingWatch,
        *,
        on_gpu: bool,
        teacher: Teacher | None,
    ) -> Any:
        """A trainer of transformers' over the plan, with the model loaded."""
        ...

    def figures(self, trainer: Any, plan: Any, say: Say) -> dict[str, Any]:
        """Figures measured at the end besides losses, by every process."""
        ...

    def title(self, spec: TrainSpec) -> str:
        """The heading of the model card."""
        ...

    def tags(self, spec: TrainSpec) -> str:
        """The tags of the card."""
        ...

    def learnt_from(self, plan: Any) -> str:
        """A description of the training data, with what was left out."""
        ...

    def table(self, figures: Mapping[str, Any]) -> str:
        """Further figures as a table of the card; empty without any."""
        ...


class RowRecipe:
    """A policy or a captioner, from rows of prompt and completion, by TRL."""

    caution: ClassVar[str] = "Rows that a judge let through carry that judge's errors."

    def plan(
        self,
        spec: TrainSpec,
        rows: str | os.PathLike[str],
        folder: Path,
        say: Say,
        *,
        teacher: Teacher | None,
        taught: Mapping[str, Any] | None,
        devices: Devices | None,
    ) -> TrainingPlan:
        """Reads and measures the rows. Raises UsageError where the training would fail."""
        refuse_teacher(spec, teacher)
        return plan_training(spec, rows, folder, say, devices)

    def trainer(
        self,
        spec: TrainSpec,
        plan: TrainingPlan,
        folder: Path,
        watch: TrainingWatch,
        *,
        on_gpu: bool,
        teacher: Teacher | None,
    ) -> Any:
        """TRL's trainer over the rows."""
        return make_trainer(spec, plan, folder, watch, on_gpu=on_gpu)

    def figures(self, trainer: Any, plan: TrainingPlan, say: Say) -> dict[str, Any]:
        """Nothing."""
        return {}

    def title(self, spec: TrainSpec) -> str:
        """What it does."""
        return (
            "A captioner: screens as text"
            if spec.trains == "captioner"
            else "A policy: what to do next"
        )

    def tags(self, spec: TrainSpec) -> str:
        """The method and the library."""
        return "prill, sft, trl" + ", lora" * (spec.method != "full")

    def learnt_from(self, plan: TrainingPlan) -> str:
        """How many rows and pictures."""
        facts = plan.facts
        return (
            f"on {facts.learnt:,} rows ({facts.pictures:,} pictures), with the loss on the "
            f"answers only. {facts.overlong:,} "
            f"rows were too long\nand left out; {facts.held_out:,} rows of other tasks were kept "
            "apart."
        )

    def table(self, figures: Mapping[str, Any]) -> str:
        """Nothing."""
        return ""


def recipe_for(trains: Trained) -> Recipe:
    """The recipe of a kind.

    Args:
        trains: What is trained.

    Returns:
        Its recipe.
    """
    return load_object(_RECIPES[trains])() if trains in _RECIPES else RowRecipe()


def refuse_teacher(spec: TrainSpec, teacher: Teacher | None) -> None:
    """Raises UsageError for a policy where none is asked."""
    if teacher is not None:
        raise UsageError(
            f"a {spec.trains} learns without a policy; leave it out", parameters=("policy",)
        )
