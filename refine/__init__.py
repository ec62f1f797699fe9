"""From verdicts to better agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.refine.demonstration import PlainTeacher
    from prill.refine.export import ExportSpec, export_rows
    from prill.refine.filter import FilterSpec, filter_steps
    from prill.refine.rows import dpo_rows, kto_rows, sft_rows

__all__ = [
    "ExportSpec",
    "FilterSpec",
    "PlainTeacher",
    "dpo_rows",
    "export_rows",
    "filter_steps",
    "kto_rows",
    "sft_rows",
]
_HOMES = {
    "ExportSpec": "export",
    "FilterSpec": "filter",
    "PlainTeacher": "demonstration",
    "dpo_rows": "rows",
    "export_rows": "export",
    "filter_steps": "filter",
    "kto_rows": "rows",
    "sft_rows": "rows",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
