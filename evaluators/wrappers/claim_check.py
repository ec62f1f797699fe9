"""Adds checked claims of the agent's answer to any judge's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from prill.evaluators.claim_check import VERSION, check_claims
from prill.evaluators.wrappers.rewritten import estimate_usage
from prill.protocols import Evaluator
from prill.types import EvaluatorInfo, Findings, Trajectory, Usage, Verdict


class ClaimChecked:
    """A judge whose findings include the checked claims of the answer; outcome and score are
    unchanged.

    Args:
        evaluator: The judge.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The wrapped judge."""
        return (self.evaluator,)

    @cached_property
    def info(self) -> EvaluatorInfo:
        """The judge's info, with the version of the check among its settings."""
        info = self.evaluator.info
        return replace(info, params={**info.params, "check_claims": VERSION})

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the judge's screenshots."""
        return self.evaluator.screenshots(trajectory)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the judge's estimate; the check calls no model.

        Raises:
            UsageError: The judge cannot estimate its usage.
        """
        return estimate_usage(self.evaluator, trajectory)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the judge's verdict with `findings.claims`."""
        verdict = await self.evaluator(trajectory)
        found = replace(verdict.findings or Findings(), claims=check_claims(trajectory))
        return replace(verdict, findings=found, evaluator=self.info)
