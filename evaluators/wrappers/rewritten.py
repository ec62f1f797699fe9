"""An evaluator that judges a rewritten copy of each trajectory, and says so in every verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from prill.errors import Unscored, UsageError
from prill.evaluators.evidence import without_claims
from prill.evaluators.judgement import Judgement, verdict_of
from prill.protocols import Estimator, Evaluator
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict


class Rewritten:
    """`evaluator`, shown what `rewrite` makes of a trajectory; an Unscored error of `rewrite` is that trajectory's verdict.

    `params` goes into the fingerprint and must change whenever `rewrite` does. `reads` names image files that `rewrite`
    looks at besides those of the evaluator.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        rewrite: Callable[[Trajectory], Awaitable[Trajectory]],
        params: Mapping[str, str | bool],
        reads: Callable[[Trajectory], Sequence[str]] = lambda trajectory: (),
    ) -> None:
        self.evaluator = evaluator
        self.rewrite = rewrite
        self.params = dict(params)
        self.reads = reads

    @cached_property
    def info(self) -> EvaluatorInfo:
        """That of the evaluator, with `params` beside its own."""
        own = self.evaluator.info
        return replace(own, params={**own.params, **self.params})

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """The images that the evaluator or the rewriting looks at, each once."""
        return list(dict.fromkeys((*self.evaluator.screenshots(trajectory), *self.reads(trajectory))))

    def estimate(self, trajectory: Trajectory) -> Usage:
        """What the evaluator expects for the trajectory as it was recorded. Raises UsageError where it cannot say."""
        if not isinstance(self.evaluator, Estimator):
            raise UsageError(f"evaluator {self.evaluator.info.name} cannot say beforehand what it needs")
        return self.evaluator.estimate(trajectory)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The evaluator's verdict on the rewritten trajectory."""
        try:
            shown = await self.rewrite(trajectory)
        except Unscored as failure:
            reason = failure

            async def judge() -> Judgement:
                raise reason

            return await verdict_of(self, trajectory, judge)
        return replace(await self.evaluator(shown), evaluator=self.info)


# Judging by evidence alone: what the agent says of itself is taken away before any judge sees it.


class EvidenceOnly(Rewritten):
    """Any judge, without the agent's thoughts, its answer and the words of its messages.

    Rewriting the agent's reasoning alone can turn judges (arXiv 2601.14691); this one cannot be turned that way. The price:
    where the task is to find something out, the answer is what there is to judge, and it is not seen.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        super().__init__(evaluator, self._silenced, {"evidence_only": True})

    async def _silenced(self, trajectory: Trajectory) -> Trajectory:
        return without_claims(trajectory)
