"""The recipes of `prill train ranker` and `prill train planner`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from prill.papers.mind2web.training.pages import PagePlan
from prill.papers.mind2web.training.planner import make_planner_trainer, plan_planner
from prill.papers.mind2web.training.ranker import make_ranker_trainer, plan_ranker, ranking_figures
from prill.refine.demonstration import Teacher
from prill.refine.training.preflight import Devices, Say
from prill.refine.training.recipe import refuse_teacher
from prill.refine.training.spec import TrainSpec
from prill.refine.training.trainer import TrainingWatch


class PlannerRecipe:
    """A planner that answers a policy, from recorded pages."""

    caution: ClassVar[str] = "Its pages are recordings, which no action changed."
    heading: ClassVar[str] = "A planner: what to do next on a recorded page"

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
    ) -> PagePlan:
        """Reads the turns, and has the policy put each step once. Raises UsageError where the
        training would fail.
        """
        return plan_planner(spec, rows, folder, say, teacher=teacher, taught=taught)

    def trainer(
        self,
        spec: TrainSpec,
        plan: PagePlan,
        folder: Path,
        watch: TrainingWatch,
        *,
        on_gpu: bool,
        teacher: Teacher | None,
    ) -> Any:
        """The trainer over what the policy asks."""
        assert teacher is not None, "a plan of a planner has one"
        return make_planner_trainer(spec, plan, folder, watch, on_gpu=on_gpu, teacher=teacher)

    def figures(self, trainer: Any, plan: PagePlan, say: Say) -> dict[str, Any]:
        """Nothing."""
        return {}

    def title(self, spec: TrainSpec) -> str:
        """What it does."""
        return self.heading

    def tags(self, spec: TrainSpec) -> str:
        """What it is."""
        return f"prill, {spec.trains}"

    def learnt_from(self, plan: PagePlan) -> str:
        """How many steps of how many turns."""
        facts = plan.facts
        left_out = (
            f"{plan.gold.without:,} steps have no right candidate, and {facts.overlong:,} "
            "are too long or cannot be said"
        )
        drawn = f"{facts.learnt // max(1, len(plan.learnt))} rows a pass, redrawn each time"
        return (
            f"on {len(plan.learnt):,} steps of {len(plan.gold):,} turns, {drawn}. {left_out}: "
            "those\nwere left out; "
            f"{len(plan.held_out):,} steps of other conversations were kept apart."
        )

    def table(self, figures: Mapping[str, Any]) -> str:
        """How a ranker ranks what was kept apart."""
        found = figures.get("ranking")
        if not found:
            return ""
        rows = {
            "accuracy": found["accuracy"],
            "accuracy by lot": found["chance"],
            "MRR": found["mrr"],
        }
        rows |= {f"recall@{most}": share for most, share in found["recall"].items()}
        lines = "\n".join(f"| {name} | {share:.3f} |" for name, share in rows.items())
        return f"\n| on {found['steps']:,} steps kept apart | |\n|---|---|\n{lines}\n"


class RankerRecipe(PlannerRecipe):
    """A ranker of candidates, from recorded pages."""

    heading: ClassVar[str] = "A ranker: which element of a page is meant"

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
    ) -> PagePlan:
        """Reads and measures the turns. Raises UsageError where the training would fail."""
        refuse_teacher(spec, teacher)
        return plan_ranker(spec, rows, folder, say)

    def trainer(
        self,
        spec: TrainSpec,
        plan: PagePlan,
        folder: Path,
        watch: TrainingWatch,
        *,
        on_gpu: bool,
        teacher: Teacher | None,
    ) -> Any:
        """The trainer over right and wrong candidates."""
        return make_ranker_trainer(spec, plan, folder, watch, on_gpu=on_gpu)

    def figures(self, trainer: Any, plan: PagePlan, say: Say) -> dict[str, Any]:
        """How well all candidates of the steps that were kept apart are ranked."""
        if not plan.held_out or not trainer.is_world_process_zero():
            return {}
        model, steps = trainer.accelerator.unwrap_model(trainer.model), len(plan.held_out)
        return {
            "ranking": ranking_figures(
                model, plan, lambda done: say("ranking what was kept apart", done, steps)
            )
        }
