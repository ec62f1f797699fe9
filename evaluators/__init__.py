"""Judges turn a trajectory into a verdict. `prill.judge("vlm", model=…)` makes one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.evaluators.baselines import Constant, LabelOracle, SelfReport
    from prill.evaluators.combine import Cascade, Ensemble, Vote, savings
    from prill.evaluators.criteria import Rubric, RubricCriterion, read_rubrics
    from prill.evaluators.fitted.calibration import Calibrated, read_calibration
    from prill.evaluators.fitted.student import Student
    from prill.evaluators.function import FunctionJudge, as_judge
    from prill.evaluators.judge import PageJudge
    from prill.evaluators.judgement import Judgement, kept_steps, make_verdict, outcome_rewards
    from prill.evaluators.labels import gold_labels, task_names
    from prill.evaluators.registry import JUDGES, judge_options, make_judge
    from prill.evaluators.wrappers.rewritten import EvidenceOnly, Rewritten

__all__ = [
    "JUDGES", "Calibrated", "Cascade", "Constant", "Ensemble", "EvidenceOnly", "FunctionJudge",
    "Judgement", "LabelOracle", "PageJudge", "Rewritten", "Rubric", "RubricCriterion", "SelfReport",
    "Student", "Vote", "as_judge", "gold_labels", "judge_options", "kept_steps", "make_judge",
    "make_verdict", "outcome_rewards", "read_calibration", "read_rubrics", "savings", "task_names",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)
