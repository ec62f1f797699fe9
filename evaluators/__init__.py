"""Judges turn a trajectory into a verdict. `prill.judge("vlm", model=…)` makes one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.evaluators.baselines import Constant, LabelOracle, SelfReport
    from prill.evaluators.combine import Cascade, Ensemble, Vote, savings
    from prill.evaluators.fitted.calibration import Calibrated, read_calibration
    from prill.evaluators.fitted.student import Student
    from prill.evaluators.frames import FrameSpec
    from prill.evaluators.function import FunctionJudge, as_judge
    from prill.evaluators.judgement import Judgement, ModelJudge, make_verdict
    from prill.evaluators.labels import gold_labels, task_names
    from prill.evaluators.outcome import CaptionJudge, ModularSpec, VLMJudge, VLMSpec
    from prill.evaluators.registry import JUDGES, judge_options, make_judge
    from prill.evaluators.rubric import (
        Rubric,
        RubricCriterion,
        RubricJudge,
        RubricSpec,
        read_rubrics,
    )
    from prill.evaluators.steps import StepJudge, StepsSpec, kept_steps, outcome_rewards
    from prill.evaluators.webjudge import WebJudge
    from prill.evaluators.wrappers.marking import Marked
    from prill.evaluators.wrappers.pointing import Pointing
    from prill.evaluators.wrappers.rewritten import EvidenceOnly, Rewritten

__all__ = [
    "JUDGES",
    "Calibrated",
    "CaptionJudge",
    "Cascade",
    "Constant",
    "Ensemble",
    "EvidenceOnly",
    "FrameSpec",
    "FunctionJudge",
    "Judgement",
    "LabelOracle",
    "Marked",
    "ModelJudge",
    "ModularSpec",
    "Pointing",
    "Rewritten",
    "Rubric",
    "RubricCriterion",
    "RubricJudge",
    "RubricSpec",
    "SelfReport",
    "StepJudge",
    "StepsSpec",
    "Student",
    "VLMJudge",
    "VLMSpec",
    "Vote",
    "WebJudge",
    "as_judge",
    "gold_labels",
    "judge_options",
    "kept_steps",
    "make_judge",
    "make_verdict",
    "outcome_rewards",
    "read_calibration",
    "read_rubrics",
    "savings",
    "task_names",
]
__getattr__, __dir__ = lazily(__name__)
