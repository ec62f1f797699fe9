"""An evaluator that judges a rewritten copy of each trajectory, and says so in every verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from prill.errors import Unscored, UsageError
from prill.evaluators.outcome import Judgement, verdict_of
from prill.plan import Estimator
from prill.protocols import Evaluator
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
