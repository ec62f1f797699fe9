"""What judging trajectory files will do and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from prill.evaluators.combine import Cascade
from prill.evaluators.scoring.scorer import plan_files
from prill.io.shards import Shard
from prill.io.store import read_verdicts
from prill.plans import RunPlan, asks_models, compute_cost
from prill.protocols import Estimator, Evaluator, every_judge
from prill.types import Usage


@dataclass(frozen=True, slots=True)
class JudgingPlan:
    """The plan for judging trajectory files.

    It counts the trajectories to judge and those done; `usage` is None if the judge cannot estimate
    it.
    """

    todo: int
    done: int
    usage: Usage | None
    most: bool
    problems: tuple[str, ...]

    def run_plan(self, *work: str, seconds: float | None = None, **counts: int) -> RunPlan:
        """Returns the plan of a run that judges these files and does further `work`."""
        broken = len(self.problems)
        line = f"{self.todo} trajectories to judge, {self.done} done, {broken} that cannot be used"
        return RunPlan(
            work=(line, *work),
            counts={"trajectories": self.todo, "done": self.done, "broken": broken, **counts},
            usage=self.usage,
            unknown="this judge cannot estimate its usage",
            most=self.most,
            seconds=seconds,
            problems=self.problems,
        )


def plan_judging(
    judge: Evaluator,
    trajectories: Sequence[str],
    *,
    limit: int | None = None,
    keys: Mapping[str, str] | None = None,
    shard: Shard | None = None,
    model: str | None = None,
    prices: str | None = None,
) -> JudgingPlan:
    """Plans the judging of trajectory files.

    Args:
        judge: The judge.
        trajectories: The trajectory files.
        limit: Only read this many trajectories.
        keys: As in `prill.evaluators.scoring.scorer.plan_files`.
        shard: The shard for this machine.
        model: The model name for the price lookup; None: the judge's model if it has exactly one.
        prices: The path of a price table.
    """
    estimate = judge.estimate if isinstance(judge, Estimator) else None
    plan = plan_files(judge, trajectories, estimate, limit, keys, shard)
    # A cascade cannot tell in advance which trajectories its first judge will decide.
    most = any(isinstance(part, Cascade) for part in every_judge(judge))
    usage = plan.usage
    usd = compute_cost(usage, judge.info.model if model is None else model, prices)
    known = replace(usage, usd=usd) if estimate or not asks_models(judge) else None
    return JudgingPlan(plan.trajectories, plan.done, known, most, plan.problems)


def seconds_each(verdicts: str) -> float | None:
    """Returns the mean seconds of a verdict in the file; None if there are none."""
    took = [verdict.seconds for verdict in read_verdicts(verdicts) if verdict.success is not None]
    return fmean(took) if took else None
