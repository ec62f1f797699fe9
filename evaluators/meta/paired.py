"""Compares two agents on the same tasks: difference in success, paired tests and variance
components.

Sources: the interval adds two tasks, one of each sign, as for paired proportions in Bonett and
Price, J. Educ. Behav. Stat. 37 (2012) 479; McNemar, Psychometrika 12 (1947) 153; variance
components by the method of moments, Searle, Casella and McCulloch, Variance Components (1992),
chapter 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import UsageError
from prill.evaluators.meta.comparison import exact_mcnemar
from prill.evaluators.meta.figure import Figure
from prill.evaluators.metrics import SEED

if TYPE_CHECKING:
    from numpy.typing import NDArray

# One tuple per run, with its scored verdicts; an empty tuple is an unscored run.
Runs = Sequence[Sequence[bool]]
Decision = Literal["pass", "fail", "inconclusive"]
# Up to this number of tasks, all sign changes are enumerated; for more, this number is sampled.
_FEW_TASKS, _DRAWS = 13, 10_000
_ROUNDING = 1e-9
_REQUIREMENT = re.compile(r"\s*B\s*(>=|≥|>)\s*A\s*(?:([+-])\s*(\d+(?:\.\d*)?|\.\d+))?\s*")


@dataclass(frozen=True)
class TaskRuns:
    """The runs of A and of B at one task, each with its scored verdicts; several, if a run was
    judged repeatedly.
    """

    task: str
    a: Runs
    b: Runs


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Variance components of one verdict, and their shares of the variance of the difference.

    Args:
        judge: Variance between verdicts on one run. None: no run was judged repeatedly.
        agent: Variance between runs of one task by the same agent. None: no task has several runs.
            It includes the judge's variance if `judge` is None.
        task: Variance between tasks by the same agent. None: as for `agent`.
        judge_share: The judge's share of the variance of the difference, in [0, 1].
        agent_share: The agents' share of that variance, in [0, 1]. The rest comes from tasks that
            differ in which agent is better.
        judged_again: The number of runs with several scored verdicts.
        attempted_again: The number of tasks with several scored runs of one agent.
    """

    judge: float | None
    agent: float | None
    task: float | None
    judge_share: float | None
    agent_share: float | None
    judged_again: int
    attempted_again: int


@dataclass(frozen=True, kw_only=True)
class AgentDifference:
    """The difference in success of two agents. Every task has the same weight, with the mean of its
    runs.

    Args:
        tasks: Tasks with a scored run of each agent. All figures use these tasks.
        only_a: Tasks with a scored run of A only.
        only_b: Tasks with a scored run of B only.
        runs_a: Scored runs of A.
        runs_b: Scored runs of B.
        unscored_a: Unscored runs of A in all tasks.
        unscored_b: Unscored runs of B in all tasks.
        rate_a: Success rate of A, in [0, 1].
        rate_b: Success rate of B, in [0, 1].
        difference: B minus A, in [-1, 1], with a 95 % interval by Student's t over tasks; no
            interval for a single task.
        bounds: The difference of all runs if A's unscored runs were successes and B's failures, and
            vice versa; None if all runs are scored.
        bounds_interval: The lower end of the interval of the first bound and the upper end of the
            second.
        to_failure: Tasks where most runs of A succeed and most of B fail.
        to_success: Tasks where most runs of A fail and most of B succeed.
        mcnemar: Two-sided p-value of McNemar's exact test on those tasks.
        sign_flip: Two-sided p-value of the permutation test that exchanges the agents within tasks.
        noise: The variance components of judge, agents and tasks.
        vote_noise: The same of one vote, where verdicts are votes of samples of one judge. Its
            shares are those of the difference by mean votes. None: there are no such votes.
    """

    tasks: int
    only_a: int
    only_b: int
    runs_a: int
    runs_b: int
    unscored_a: int
    unscored_b: int
    rate_a: float
    rate_b: float
    difference: Figure
    bounds: tuple[float, float] | None
    bounds_interval: tuple[float, float] | None
    to_failure: int
    to_success: int
    mcnemar: float
    sign_flip: float
    noise: Noise
    vote_noise: Noise | None = None


@dataclass(frozen=True)
class Requirement:
    """A requirement on B's success rate: at least A's rate plus `margin`, which is in [-1, 1] and
    usually negative; if `strict`, more than that.
    """

    margin: float = 0.0
    strict: bool = False

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Parses a requirement such as `B >= A - 0.02`. Raises UsageError for a text of another
        format.
        """
        found = _REQUIREMENT.fullmatch(text)
        margin = float((found[2] or "") + (found[3] or "0")) if found else 2.0
        if found is None or abs(margin) > 1:
            raise UsageError(
                f"require: expected something like 'B >= A - 0.02' or 'B > A', with a number up to "
                f"1; got {text!r}",
                parameters=("require",),
            )
        return cls(margin, found[1] == ">")

    def decide(self, ends: tuple[float, float] | None) -> Decision:
        """Decides whether all, none or part of an interval of B minus A meets the requirement."""
        if ends is None:
            return "inconclusive"
        low, high = ends
        if low > self.margin or (low == self.margin and not self.strict):
            return "pass"
        if high < self.margin or (high == self.margin and self.strict):
            return "fail"
        return "inconclusive"


def compare_agents(tasks: Iterable[TaskRuns]) -> AgentDifference:
    """Compares two agents by the verdicts on their runs of the same tasks. Only the bounds include
    unscored runs. Raises UsageError if no task has a scored run of each agent.
    """
    import numpy as np

    tasks = list(tasks)
    both = [task for task in tasks if any(task.a) and any(task.b)]
    if not both:
        raise UsageError("no task has a scored run of A and one of B")
    rates = _rates(both)
    outcomes = np.sign(np.where(abs(rates - 0.5) < _ROUNDING, 0.5, rates) - 0.5)
    changed = outcomes[:, 1] - outcomes[:, 0]
    difference = rates[:, 1] - rates[:, 0]
    to_failure, to_success = int((changed == -2).sum()), int((changed == 2).sum())
    unscored = [sum(not run for task in tasks for run in getattr(task, side)) for side in "ab"]
    bounds = ends = None
    if any(unscored):
        worst, best = (
            _difference(list(_completed(tasks, a, b))) for a, b in ((True, False), (False, True))
        )
        bounds = (worst.value, best.value)
        if worst.low is not None and best.high is not None:
            ends = (worst.low, best.high)
    return AgentDifference(
        tasks=len(both),
        only_a=sum(any(task.a) for task in tasks) - len(both),
        only_b=sum(any(task.b) for task in tasks) - len(both),
        runs_a=sum(map(bool, (run for task in both for run in task.a))),
        runs_b=sum(map(bool, (run for task in both for run in task.b))),
        unscored_a=unscored[0],
        unscored_b=unscored[1],
        rate_a=float(rates[:, 0].mean()),
        rate_b=float(rates[:, 1].mean()),
        difference=_difference(both),
        bounds=bounds,
        bounds_interval=ends,
        to_failure=to_failure,
        to_success=to_success,
        mcnemar=exact_mcnemar(to_failure, to_success),
        sign_flip=sign_flip(difference),
        noise=_noise(both, difference),
    )


def vote_noise(tasks: Iterable[TaskRuns]) -> Noise | None:
    """Computes the variance components of one vote, of verdicts that are votes of one judge.

    A vote is 1 for success, else 0. The judge's component is the variance of the votes on one run,
    the sum of squares around each run's mean over the votes less one for each run. What the votes
    leave of the variance between runs of a task is the agent's: their mean of k votes still has
    1/k of the judge's. The verdict of the vote varies less with the judge than one vote does, by
    an amount that k votes on a run cannot tell without bias.

    Args:
        tasks: The tasks, with the votes on each run instead of verdicts.

    Returns:
        The components, and their shares of the variance of the difference by mean votes. None: no
        run of a task that both agents tried has several votes.
    """
    import numpy as np

    both = [task for task in tasks if any(task.a) and any(task.b)]
    if not any(len(run) > 1 for task in both for run in (*task.a, *task.b)):
        return None
    return _noise(both, np.diff(_rates(both))[:, 0])


def mean_difference(differences: Sequence[float], name: str = "B - A") -> Figure:
    """Returns the mean of one difference per task, in [-1, 1], with its 95 % interval.

    The interval is that of one run per task: for means of several, it is wider than needed.
    """
    import numpy as np

    return _figure(np.asarray(differences, dtype=float), name=name)


def sign_flip(differences: Sequence[float] | NDArray[Any]) -> float:
    """Returns the two-sided p-value of the permutation test that flips the signs of whole tasks.

    It is the share of sign changes whose sum is at least as far from 0. All sign changes are used
    for up to 13 tasks that differ; for more, 10,000 random ones with a fixed seed.
    """
    import numpy as np

    values = np.asarray(differences, dtype=float)
    values = values[abs(values) > _ROUNDING]
    least = abs(values.sum()) - _ROUNDING
    if len(values) <= _FEW_TASKS:
        bits = (np.arange(2 ** len(values))[:, None] >> np.arange(len(values))) & 1
        return float((abs((2 * bits - 1) @ values) >= least).mean())
    drawn = np.random.default_rng(SEED).integers(0, 2, (_DRAWS, len(values)), dtype=np.int8)
    return float((1 + (abs((2 * drawn - 1) @ values) >= least).sum()) / (1 + _DRAWS))


def _difference(tasks: Sequence[TaskRuns]) -> Figure:
    """Returns B minus A over tasks with scored runs of both.

    The variance of a task's rate, as a share of that of a single run, is 1 for one run per task,
    and for runs that always repeat the first; it is 1 / k for k independent runs of equal tasks,
    and is not estimated as less.
    """
    import numpy as np

    rates = _rates(tasks)
    counts = [sum(map(bool, runs)) for task in tasks for runs in (task.a, task.b)]
    single = float((rates.mean(axis=0) * (1 - rates.mean(axis=0))).sum())
    share = float(rates.var(axis=0).sum()) / single if single > _ROUNDING else 1.0
    least = float(np.mean(1 / np.array(counts)))
    return _figure(np.diff(rates)[:, 0], max(least, share))


def _figure(differences: NDArray[Any], share: float = 1.0, name: str = "B - A") -> Figure:
    """Returns the mean with Student's t interval, with two added tasks, one of each sign.

    Their squared difference is `share`, the variance of a task's rate as a share of a single run's.
    """
    import numpy as np
    from scipy.special import stdtrit

    n, value = len(differences), float(differences.mean())
    if n < 2:
        return Figure(name, value)
    padded = np.append(differences, (share**0.5, -(share**0.5)))
    spread = float(stdtrit(n - 1, 0.975) * padded.std() / np.sqrt(n + 2))
    centre = float(padded.mean())
    low, high = max(-1.0, min(value, centre - spread)), min(1.0, max(value, centre + spread))
    return Figure(name, value, low, high, "t")


def _rates(tasks: Sequence[TaskRuns]) -> NDArray[Any]:
    """Returns the mean of A's runs and of B's runs for each task."""
    import numpy as np

    rows = [[_mean(list(map(_mean, filter(None, runs)))) for runs in (t.a, t.b)] for t in tasks]
    return np.array(rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _completed(tasks: Iterable[TaskRuns], a: bool, b: bool) -> Iterator[TaskRuns]:
    """Yields the tasks with runs of both agents, with an assumed outcome for unscored runs."""
    for task in tasks:
        if task.a and task.b:
            sides = (
                [run or (value,) for run in runs] for runs, value in ((task.a, a), (task.b, b))
            )
            yield TaskRuns(task.task, *sides)


def _noise(tasks: Sequence[TaskRuns], differences: NDArray[Any]) -> Noise:
    """Returns the pooled variance components of both agents' scored runs."""
    sides = [[[run for run in getattr(task, s) if run] for task in tasks] for s in "ab"]
    cells = [runs for side in sides for runs in side]  # the runs of one task and agent
    again = [run for runs in cells for run in runs if len(run) > 1]
    judge = _pooled(again, _squares) if again else None
    repeated = [runs for runs in cells if len(runs) > 1]
    agent = task = None
    if repeated:
        within = _pooled(repeated, lambda runs: _squares(list(map(_mean, runs))))
        judged = _pooled(repeated, lambda runs: (len(runs) - 1) * _mean(list(map(_inverse, runs))))
        agent = max(0.0, within - (judge or 0.0) * judged)
        if len(tasks) > 1:
            task = max(0.0, _mean([_between(side, within) for side in sides]))
    total = differences.var(ddof=1) * len(tasks) if len(tasks) > 1 else 0.0
    return Noise(
        judge=judge,
        agent=agent,
        task=task,
        judge_share=_share(
            judge, total, (sum(map(_inverse, runs)) / len(runs) ** 2 for runs in cells)
        ),
        agent_share=_share(agent, total, map(_inverse, cells)),
        judged_again=len(again),
        attempted_again=sum(any(len(side[i]) > 1 for side in sides) for i in range(len(tasks))),
    )


def _pooled(groups: Sequence[Sequence[Any]], squares: Callable[[Any], float]) -> float:
    """Returns the sums of squares divided by the degrees of freedom."""
    return sum(map(squares, groups)) / sum(len(group) - 1 for group in groups)


def _squares(values: Sequence[float]) -> float:
    middle = _mean(values)
    return sum((value - middle) ** 2 for value in values)


def _inverse(values: Sequence[Any]) -> float:
    return 1 / len(values)


def _between(side: Sequence[Sequence[Sequence[bool]]], within: float) -> float:
    """Returns the variance between the tasks of one agent, minus the variance of a task's mean."""
    means = [_mean(list(map(_mean, runs))) for runs in side]
    return _squares(means) / (len(means) - 1) - within * _mean(list(map(_inverse, side)))


def _share(variance: float | None, total: float, weights: Iterable[float]) -> float | None:
    if variance is None or total <= 0:
        return None
    return float(min(1.0, variance * sum(weights) / total))
