"""Judges that are shown a rewritten copy of each trajectory, and say so in every verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from prill.errors import Unscored, UsageError
from prill.evaluators.evidence import without_claims
from prill.evaluators.judgement import ClaimReader, Judgement, verdict_of
from prill.protocols import Estimator, Evaluator, every_judge
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict


def _nothing(trajectory: Trajectory) -> Sequence[str]:
    return ()


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
        reads: Callable[[Trajectory], Sequence[str]] = _nothing,
    ) -> None:
        self.evaluator = evaluator
        self.rewrite = rewrite
        self.params = dict(params)
        self.reads = reads

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The evaluator that is shown the rewritten trajectory."""
        return (self.evaluator,)

    @cached_property
    def info(self) -> EvaluatorInfo:
        """That of the evaluator, with `params` beside its own."""
        info = self.evaluator.info
        return replace(info, params={**info.params, **self.params})

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
            copy = await self.rewrite(trajectory)
        except Unscored as failure:
            reason = failure

            async def judge() -> Judgement:
                raise reason

            return await verdict_of(self, trajectory, judge)
        return replace(await self.evaluator(copy), evaluator=self.info)


class EvidenceOnly(Rewritten):
    """Any judge, without the agent's thoughts, its answer and the words of its messages: it judges by evidence alone.

    Rewriting the agent's reasoning alone can turn judges (arXiv 2601.14691); this one cannot be turned that way. The price:
    where the task is to find something out, the answer is what there is to judge, and it is not seen. Raises UsageError for a
    fitted judge that was fitted to look at claims: without them it would misjudge.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        for judge in every_judge(evaluator):
            if isinstance(judge, ClaimReader) and judge.needs_claims:
                raise UsageError(
                    f"{judge.info.name} was fitted to look at what agents claim, so without that it would misjudge; "
                    "fit one that goes by evidence only",
                    parameters=("evidence_only",),
                )
        super().__init__(evaluator, self._silenced, {"evidence_only": True})

    async def _silenced(self, trajectory: Trajectory) -> Trajectory:
        return without_claims(trajectory)
