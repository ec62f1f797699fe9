"""Judging by evidence alone: what the agent says of itself is taken away before any judge sees it."""

from __future__ import annotations

from prill.evaluators.evidence import without_claims
from prill.evaluators.rewritten import Rewritten
from prill.protocols import Evaluator
from prill.types import Trajectory


class EvidenceOnly(Rewritten):
    """Any judge, without the agent's thoughts, its answer and the words of its messages.

    Rewriting the agent's reasoning alone can turn judges (arXiv 2601.14691); this one cannot be turned that way. The price:
    where the task is to find something out, the answer is what there is to judge, and it is not seen.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        super().__init__(evaluator, self._silenced, {"evidence_only": True})

    async def _silenced(self, trajectory: Trajectory) -> Trajectory:
        return without_claims(trajectory)
