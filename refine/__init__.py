"""From verdicts to better agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.refine.demonstration import PlainTeacher
    from prill.refine.export import ExportSpec, export_rows
    from prill.refine.filter import FilterSpec, filter_steps
    from prill.refine.filtered_bc import Study, read_study, run_study, study_of
    from prill.refine.results import results_of, results_text
    from prill.refine.rows import dpo_rows, kto_rows, sft_rows
    from prill.refine.training.preflight import check_training
    from prill.refine.training.spec import TrainSpec, training_spec
    from prill.refine.training.train import train

__all__ = [
    "ExportSpec",
    "FilterSpec",
    "PlainTeacher",
    "Study",
    "TrainSpec",
    "check_training",
    "dpo_rows",
    "export_rows",
    "filter_steps",
    "kto_rows",
    "read_study",
    "results_of",
    "results_text",
    "run_study",
    "sft_rows",
    "study_of",
    "train",
    "training_spec",
]
_HOMES = {
    "ExportSpec": "export",
    "FilterSpec": "filter",
    "PlainTeacher": "demonstration",
    "Study": "filtered_bc",
    "TrainSpec": "training.spec",
    "check_training": "training.preflight",
    "dpo_rows": "rows",
    "export_rows": "export",
    "filter_steps": "filter",
    "kto_rows": "rows",
    "read_study": "filtered_bc",
    "results_of": "results",
    "results_text": "results",
    "run_study": "filtered_bc",
    "sft_rows": "rows",
    "study_of": "filtered_bc",
    "train": "training.train",
    "training_spec": "training.spec",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
