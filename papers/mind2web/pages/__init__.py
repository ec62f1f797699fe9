"""Recorded pages as models read them: cut around candidates, as text, with choices (Mind2Web and
its successors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.papers.mind2web.pages.state import (
        Marking,
        PageState,
        StepScore,
        describe_step,
        read_state,
        rejoined,
    )
    from prill.papers.mind2web.pages.tree import CandidateView, RecordedPage

__all__ = [
    "CandidateView",
    "Marking",
    "PageState",
    "RecordedPage",
    "StepScore",
    "describe_step",
    "read_state",
    "rejoined",
]
__getattr__, __dir__ = lazily(__name__)
