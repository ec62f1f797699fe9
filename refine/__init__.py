"""Improving agents from verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.io.retries import read_results
    from prill.refine.demonstration import PlainTeacher, Teacher
    from prill.refine.filter import ExportSpec, export_rows
    from prill.refine.filtered_bc.results import read_study_results, results_text, write_results
    from prill.refine.filtered_bc.study import StudyArm, run_study
    from prill.refine.outcomes import make_table, table_lines
    from prill.refine.reflector import LessonsConfig, Reflective, Reflector, make_challenges
    from prill.refine.reflexion import PlaySettings, run_reflexion
    from prill.refine.retries import Challenge, RetrySpec, with_second_opinion
    from prill.refine.rows import dpo_rows, kto_rows, sft_rows
    from prill.refine.selection import FilterSpec, filter_steps
    from prill.refine.training.spec import TrainSpec, training_spec
    from prill.refine.training.train import check_training
    from prill.refine.training.train import train_rows as train

__all__ = [
    "Challenge",
    "ExportSpec",
    "FilterSpec",
    "LessonsConfig",
    "PlainTeacher",
    "PlaySettings",
    "Reflective",
    "Reflector",
    "RetrySpec",
    "StudyArm",
    "Teacher",
    "TrainSpec",
    "check_training",
    "dpo_rows",
    "export_rows",
    "filter_steps",
    "kto_rows",
    "make_challenges",
    "make_table",
    "read_results",
    "read_study_results",
    "results_text",
    "run_reflexion",
    "run_study",
    "sft_rows",
    "table_lines",
    "train",
    "training_spec",
    "with_second_opinion",
    "write_results",
]
__getattr__, __dir__ = lazily(__name__)
