"""Evaluating judges: agreement with labels, comparison, calibration, attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.evaluators.agreement.agreement import Agreement, by_step, measure_agreement, pair
    from prill.evaluators.agreement.annotators import annotator_agreement
    from prill.evaluators.agreement.comparison import compare, rank_agents, slices
    from prill.evaluators.agreement.corrections import correct, load_corrections
    from prill.evaluators.agreement.figure import Figure
    from prill.evaluators.fitted.calibration_fit import calibrate

__all__ = [
    "Agreement", "Figure", "annotator_agreement", "by_step", "calibrate", "compare", "correct",
    "load_corrections", "measure_agreement", "pair", "rank_agents", "slices",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)
