"""Base classes of judges around another one, and of those that pass it a rewritten copy of each
trajectory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from prill.errors import UnscoredError, UsageError
from prill.evaluators.evidence import without_claims
from prill.evaluators.judgement import ClaimReader, Judgement, make_verdict
from prill.protocols import Estimator, Evaluator, every_judge
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict


class Wrapper:
    """The base class of judges around one other judge; `params` are added to that judge's
    fingerprint.
    """

    def __init__(self, evaluator: Evaluator, params: Mapping[str, str | bool]) -> None:
        self.evaluator = evaluator
        self.params = dict(params)

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The wrapped judge."""
        return (self.evaluator,)

    @cached_property
    def info(self) -> EvaluatorInfo:
        """The judge's info, with the wrapper's `params` added."""
        info = self.evaluator.info
        return replace(info, params={**info.params, **self.params})

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the judge's screenshots."""
        return self.evaluator.screenshots(trajectory)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the judge's estimate for the recorded trajectory. Raises UsageError if it makes
        none.
        """
        if not isinstance(self.evaluator, Estimator):
            raise UsageError(
                f"evaluator {self.evaluator.info.name} cannot say beforehand what it needs"
            )
        return self.evaluator.estimate(trajectory)


class Rewritten(Wrapper):
    """A wrapper that passes a rewritten trajectory to a judge.

    If rewriting raises an `UnscoredError`, the verdict is unscored.

    Args:
        evaluator: The judge.
        rewrite: Rewrites a trajectory.
        params: Part of the fingerprint; must change whenever `rewrite` changes.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        rewrite: Callable[[Trajectory], Awaitable[Trajectory]],
        params: Mapping[str, str | bool],
    ) -> None:
        super().__init__(evaluator, params)
        self.rewrite = rewrite

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the judge's verdict on the rewritten trajectory."""
        try:
            copy = await self.rewrite(trajectory)
        except UnscoredError as failure:
            reason = failure

            async def judge() -> Judgement:
                raise reason

            return await make_verdict(self, trajectory, judge)
        return replace(await self.evaluator(copy), evaluator=self.info)


class EvidenceOnly(Rewritten):
    """A judge that does not see the agent's thoughts, answer and message texts.

    Rewriting only the agent's reasoning can change verdicts (arXiv 2601.14691), but not those of
    this judge. The drawback is that the answer to an information-seeking task is not judged.

    Raises:
        UsageError: The judge was fitted with the agent's claims; without them its verdicts would be
            wrong.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        for judge in every_judge(evaluator):
            if isinstance(judge, ClaimReader) and judge.needs_claims:
                raise UsageError(
                    f"{judge.info.name} was fitted to use the agent's claims, so it would "
                    "misjudge without them; fit one on evidence only",
                    parameters=("evidence_only",),
                )
        super().__init__(evaluator, self._silenced, {"evidence_only": True})

    async def _silenced(self, trajectory: Trajectory) -> Trajectory:
        return without_claims(trajectory)
