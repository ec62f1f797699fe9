"""Judging by evidence alone: what the agent says of itself is taken away before any judge sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from prill.evaluators.evidence import without_claims
from prill.plan import Estimator
from prill.protocols import Evaluator
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict


class EvidenceOnly:
    """Any judge, without the agent's thoughts, its answer and the words of its messages.

    Rewriting the agent's reasoning alone can turn judges (arXiv 2601.14691); this one cannot be turned that way. The price:
    where the task is to find something out, the answer is what there is to judge, and it is not seen.
    """

    def __init__(self, judge: Evaluator) -> None:
        self.judge = judge

    @cached_property
    def info(self) -> EvaluatorInfo:
        """That of the judge, marked."""
        info = self.judge.info
        return replace(info, params={**info.params, "evidence_only": True})

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Those of the judge."""
        return self.judge.screenshots(without_claims(trajectory))

    def estimate(self, trajectory: Trajectory) -> Usage:
        """That of the judge; nothing where it has none."""
        return self.judge.estimate(without_claims(trajectory)) if isinstance(self.judge, Estimator) else Usage()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The judge's verdict on the evidence."""
        return replace(await self.judge(without_claims(trajectory)), evaluator=self.info)
