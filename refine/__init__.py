"""From verdicts to better agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.refine.demonstration import PlainTeacher
    from prill.refine.export import ExportSpec, export_rows
    from prill.refine.filter import FilterSpec, filter_steps
    from prill.refine.rows import dpo_rows, kto_rows, sft_rows
    from prill.refine.training.preflight import check_training
    from prill.refine.training.spec import TrainSpec, training_spec
    from prill.refine.training.train import train

__all__ = [
    "ExportSpec",
    "FilterSpec",
    "PlainTeacher",
    "TrainSpec",
    "check_training",
    "dpo_rows",
    "export_rows",
    "filter_steps",
    "kto_rows",
    "sft_rows",
    "train",
    "training_spec",
]
_HOMES = {
    "ExportSpec": "export",
    "FilterSpec": "filter",
    "PlainTeacher": "demonstration",
    "TrainSpec": "training.spec",
    "check_training": "training.preflight",
    "dpo_rows": "rows",
    "export_rows": "export",
    "filter_steps": "filter",
    "kto_rows": "rows",
    "sft_rows": "rows",
    "train": "training.train",
    "training_spec": "training.spec",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
