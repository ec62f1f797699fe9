"""Base of judges that see a rewritten copy of each trajectory and record that in the verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from prill.errors import UnscoredError, UsageError
from prill.evaluators.evidence import without_claims
from prill.evaluators.judgement import ClaimReader, Judgement, make_verdict
from prill.protocols import Estimator, Evaluator, every_judge
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict


def _nothing(trajectory: Trajectory) -> Sequence[str]:
    return ()


class Rewritten:
    """Shows a judge a rewritten trajectory. An `UnscoredError` error of the rewriting becomes that
    trajectory's verdict.

    Args:
        evaluator: The judge.
        rewrite: Rewrites a trajectory.
        params: Goes into the fingerprint; it changes whenever `rewrite` does.
        reads: Lists the image files that `rewrite` looks at besides those of the judge.
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
        return list(
            dict.fromkeys((*self.evaluator.screenshots(trajectory), *self.reads(trajectory)))
        )

    def estimate(self, trajectory: Trajectory) -> Usage:
        """What the judge expects for the trajectory as it was recorded.

        Raises:
            UsageError: The judge cannot say.
        """
        if not isinstance(self.evaluator, Estimator):
            raise UsageError(
                f"evaluator {self.evaluator.info.name} cannot say beforehand what it needs"
            )
        return self.evaluator.estimate(trajectory)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The evaluator's verdict on the rewritten trajectory."""
        try:
            copy = await self.rewrite(trajectory)
        except UnscoredError as failure:
            reason = failure

            async def judge() -> Judgement:
                raise reason

            return await make_verdict(self, trajectory, judge)
        return replace(await self.evaluator(copy), evaluator=self.info)


class EvidenceOnly(Rewritten):
    """Any judge, without the agent's thoughts, its answer and the words of its messages.

    Rewriting the agent's reasoning alone can change verdicts (arXiv 2601.14691), but not those of
    this judge. The price: where the task is to find something out, the answer is not seen.

    Args:
        evaluator: The judge.

    Raises:
        UsageError: The judge was fitted to look at the agent's claims: without them it would be
            wrong.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        for judge in every_judge(evaluator):
            if isinstance(judge, ClaimReader) and judge.needs_claims:
                raise UsageError(
                    f"{judge.info.name} was fitted to look at what agents claim, so without that "
                    "it would misjudge; "
                    "fit one that goes by evidence only",
                    parameters=("evidence_only",),
                )
        super().__init__(evaluator, self._silenced, {"evidence_only": True})

    async def _silenced(self, trajectory: Trajectory) -> Trajectory:
        return without_claims(trajectory)
