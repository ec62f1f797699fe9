"""Evaluating judges: agreement with labels, comparison, calibration, attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.evaluators.meta.agreement import Agreement, by_step, measure_agreement, pair
    from prill.evaluators.meta.annotators import annotator_agreement
    from prill.evaluators.meta.calibration_fit import calibrate
    from prill.evaluators.meta.comparison import compare, rank_agents, slices
    from prill.evaluators.meta.corrections import correct, load_corrections
    from prill.evaluators.meta.figure import Figure

__all__ = [
    "Agreement",
    "Figure",
    "annotator_agreement",
    "by_step",
    "calibrate",
    "compare",
    "correct",
    "load_corrections",
    "measure_agreement",
    "pair",
    "rank_agents",
    "slices",
]
__getattr__, __dir__ = lazily(__name__)
