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
# The modules of other packages' recipes, imported on first use.
_RECIPES: Mapping[Trained, str] = {
    "judge": "prill.refine.training.judge:JudgeRecipe",
    "ranker": f"{_ON_PAGES}:RankerRecipe",
    "planner": f"{_ON_PAGES}:PlannerRecipe",
}


class RecipePlan(Protocol):
    """The inputs of a training, read and checked."""

    @property
    def facts(self) -> Preflight:
        """Estimates before the training."""
        ...

    @property
    def digests(self) -> Mapping[str, object]:
        """Hashes of the training data, to recognise it on resume."""
        ...


class Recipe:
    """The training procedure for one kind of model; this one is for a policy or captioner: rows of
    prompt and completion, trained by TRL. Plans come from the recipe's own `plan`.
    """

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
        """Reads and measures the data. Raises UsageError if the training would fail."""
        refuse_teacher(spec, teacher)
        return plan_training(spec, rows, folder, say, devices)

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
        """Makes a transformers trainer for the plan, with the model loaded."""
        return make_trainer(spec, plan, folder, watch, on_gpu=on_gpu)

    def figures(self, trainer: Any, plan: Any, say: Say) -> dict[str, Any]:
        """Measures figures besides losses after the training; every process runs it."""
        return {}

    def title(self, spec: TrainSpec) -> str:
        """Returns the heading of the model card."""
        return (
            "A captioner: screens as text"
            if spec.trains == "captioner"
            else "A policy: what to do next"
        )

    def tags(self, spec: TrainSpec) -> str:
        """Returns the tags of the model card."""
        return "prill, sft, trl" + ", lora" * (spec.method != "full")

    def learnt_from(self, plan: Any) -> str:
        """Describes the training data and the rows left out."""
        facts = plan.facts
        return (
            f"on {facts.learnt:,} rows ({facts.pictures:,} pictures), with the loss on the "
            f"answers only. {facts.overlong:,} "
            f"rows were too long\nand left out; {facts.held_out:,} rows of other tasks were kept "
            "apart."
        )

    def table(self, figures: Mapping[str, Any]) -> str:
        """Formats further figures as a table of the model card; empty without any."""
        return ""


def recipe_for(trains: Trained) -> Recipe:
    """Returns the recipe for a kind of model."""
    return load_object(_RECIPES[trains])() if trains in _RECIPES else Recipe()


def refuse_teacher(spec: TrainSpec, teacher: Teacher | None) -> None:
    """Raises UsageError if a policy is given to a training that does not use one."""
    if teacher is not None:
        raise UsageError(
            f"policy: a {spec.trains} is trained without a policy; leave it out",
            parameters=("policy",),
        )
