"""Adds checked claims of the agent's answer to any judge's verdict."""

from __future__ import annotations

from dataclasses import replace

from prill.evaluators.claim_check import VERSION, check_claims
from prill.evaluators.wrappers.rewritten import Wrapper
from prill.protocols import Evaluator
from prill.types import Findings, Trajectory, Verdict


class ClaimChecked(Wrapper):
    """A judge whose findings include the checked claims of the answer; outcome and score are
    unchanged.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        super().__init__(evaluator, {"check_claims": VERSION})

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the judge's verdict with `findings.claims`."""
        verdict = await self.evaluator(trajectory)
        found = replace(verdict.findings or Findings(), claims=check_claims(trajectory))
        return replace(verdict, findings=found, evaluator=self.info)
