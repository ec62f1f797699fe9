"""From verdicts to better agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.refine.demonstration import PlainTeacher
    from prill.refine.export import ExportSpec, export_rows
    from prill.refine.filter import FilterSpec, filter_steps
    from prill.refine.outcomes import read_results, table_of
    from prill.refine.reflector import Reflective, Reflector, ReflectorSpec
    from prill.refine.reflexion import Challenge, Play, play_again
    from prill.refine.retries import RetrySpec, with_second_opinion
    from prill.refine.rows import dpo_rows, kto_rows, sft_rows

__all__ = [
    "Challenge",
    "ExportSpec",
    "FilterSpec",
    "PlainTeacher",
    "Play",
    "Reflective",
    "Reflector",
    "ReflectorSpec",
    "RetrySpec",
    "dpo_rows",
    "export_rows",
    "filter_steps",
    "kto_rows",
    "play_again",
    "read_results",
    "sft_rows",
    "table_of",
    "with_second_opinion",
]
_HOMES = {
    "Challenge": "reflexion",
    "ExportSpec": "export",
    "FilterSpec": "filter",
    "PlainTeacher": "demonstration",
    "Play": "reflexion",
    "Reflective": "reflector",
    "Reflector": "reflector",
    "ReflectorSpec": "reflector",
    "RetrySpec": "retries",
    "dpo_rows": "rows",
    "export_rows": "export",
    "filter_steps": "filter",
    "kto_rows": "rows",
    "play_again": "reflexion",
    "read_results": "outcomes",
    "sft_rows": "rows",
    "table_of": "outcomes",
    "with_second_opinion": "retries",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
