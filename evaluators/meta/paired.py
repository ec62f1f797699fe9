"""Two agents on the same tasks: difference in success, paired tests, and where the noise is.

Sources: the interval adds two tasks, one of each sign, as Bonett and Price, J. Educ. Behav. Stat.
37 (2012) 479, do for paired proportions; McNemar, Psychometrika 12 (1947) 153; variance components
by the method of moments, Searle, Casella and McCulloch, Variance Components (1992), chapter 4.
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

# One tuple a run, with its scored verdicts; empty: the run is unscored.
Runs = Sequence[Sequence[bool]]
Decision = Literal["pass", "fail", "inconclusive"]
# All sign changes of so many tasks are enumerated; of more tasks, this many are drawn.
_FEW_TASKS, _DRAWS = 13, 10_000
_ROUNDING = 1e-9
_REQUIREMENT = re.compile(r"\s*B\s*(>=|≥|>)\s*A\s*(?:([+-])\s*(\d+(?:\.\d*)?|\.\d+))?\s*")


@dataclass(frozen=True)
class TaskRuns:
    """The runs of one task.

    Args:
        task: The task's name.
        a: The runs of A, each with its scored verdicts; several are of a run that was judged again.
        b: The runs of B.
    """

    task: str
    a: Runs
    b: Runs


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Variance of one verdict, in parts, and what each adds to the variance of the difference.

    Args:
        judge: Between verdicts on one run. None: no run was judged again.
        agent: Between runs of one task, by the same agent. None: no task has several. Where `judge`
            is None its variance is in here.
        task: Between tasks, by the same agent. None: as `agent`.
        judge_share: The judge's share of the variance of the difference, in [0, 1].
        agent_share: The share of the agents' runs. The rest is tasks that differ in which agent is
            better.
        judged_again: How many runs have several scored verdicts.
        attempted_again: How many tasks have several scored runs of one agent.
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
    """How the success of two agents differs. Every task counts the same, with the mean of its runs.

    Args:
        tasks: Tasks with a scored run of each agent. All figures are of these.
        only_a: Tasks with a scored run of A alone.
        only_b: Tasks with a scored run of B alone.
        runs_a: Scored runs of A.
        runs_b: Scored runs of B.
        unscored_a: Unscored runs of A, of all tasks.
        unscored_b: Unscored runs of B, of all tasks.
        rate_a: Success of A, in [0, 1].
        rate_b: Success of B, in [0, 1].
        difference: B less A, in [-1, 1], with the 95 % interval by Student's t over tasks; without
            one for a single task.
        bounds: The difference of all runs if A's unscored runs were successes and B's failures, and
            the other way round; None where all are scored.
        bounds_interval: The lower end of the interval of the first, the upper of the second.
        to_failure: Tasks where most runs of A succeed and most of B fail.
        to_success: The other way round.
        mcnemar: Two-sided p of McNemar's exact test on those tasks.
        sign_flip: Two-sided p of the permutation test that exchanges the agents within tasks.
        noise: Judge noise apart from agent noise.
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


@dataclass(frozen=True)
class Requirement:
    """What B is required to be: at least A plus a margin.

    Args:
        margin: What is added to A's rate, in [-1, 1]; usually negative.
        strict: More than that, not at least.
    """

    margin: float = 0.0
    strict: bool = False

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Reads `B >= A - 0.02`.

        Raises:
            UsageError: It is anything else.
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
        """Whether an interval of B less A meets the requirement: all of it, none of it, or some."""
        if ends is None:
            return "inconclusive"
        low, high = ends
        if low > self.margin or (low == self.margin and not self.strict):
            return "pass"
        if high < self.margin or (high == self.margin and self.strict):
            return "fail"
        return "inconclusive"


def compare_agents(tasks: Iterable[TaskRuns]) -> AgentDifference:
    """Compares two agents by the verdicts on their runs of the same tasks.

    Args:
        tasks: The tasks, each once. Unscored runs are left out of everything but the bounds.

    Returns:
        The difference with interval and tests.

    Raises:
        UsageError: No task has a scored run of each agent.
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
            _figure(np.diff(_rates(list(_completed(tasks, a, b))))[:, 0])
            for a, b in ((True, False), (False, True))
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
        difference=_figure(difference),
        bounds=bounds,
        bounds_interval=ends,
        to_failure=to_failure,
        to_success=to_success,
        mcnemar=exact_mcnemar(to_failure, to_success),
        sign_flip=sign_flip(difference),
        noise=_noise(both, difference),
    )


def mean_difference(differences: Sequence[float], name: str = "B - A") -> Figure:
    """The mean of one difference a task, in [-1, 1], with its 95 % interval."""
    import numpy as np

    return _figure(np.asarray(differences, dtype=float), name)


def sign_flip(differences: Sequence[float] | NDArray[Any]) -> float:
    """The two-sided p of the permutation test that changes the signs of whole tasks.

    Args:
        differences: One difference a task.

    Returns:
        The share of sign changes whose sum is as far from 0: of all up to 13 tasks that differ, of
        10,000 drawn ones (the seed is fixed) above.
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


def _figure(differences: NDArray[Any], name: str = "B - A") -> Figure:
    """The mean with Student's t interval, with one task more of each sign, which differs fully."""
    import numpy as np
    from scipy.special import stdtrit

    n, value = len(differences), float(differences.mean())
    if n < 2:
        return Figure(name, value)
    padded = np.append(differences, (1.0, -1.0))
    spread = float(stdtrit(n - 1, 0.975) * padded.std() / np.sqrt(n + 2))
    centre = float(padded.mean())
    low, high = max(-1.0, min(value, centre - spread)), min(1.0, max(value, centre + spread))
    return Figure(name, value, low, high, "t")


def _rates(tasks: Sequence[TaskRuns]) -> NDArray[Any]:
    """For each task the mean of A's runs and that of B's."""
    import numpy as np

    rows = [[_mean(list(map(_mean, filter(None, runs)))) for runs in (t.a, t.b)] for t in tasks]
    return np.array(rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _completed(tasks: Iterable[TaskRuns], a: bool, b: bool) -> Iterator[TaskRuns]:
    """The tasks that both have runs of, with an outcome for the unscored ones."""
    for task in tasks:
        if task.a and task.b:
            sides = ([run or (told,) for run in runs] for runs, told in ((task.a, a), (task.b, b)))
            yield TaskRuns(task.task, *sides)


def _noise(tasks: Sequence[TaskRuns], differences: NDArray[Any]) -> Noise:
    """The components of variance of the scored runs of both agents, pooled."""
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
    """Sums of squares over degrees of freedom."""
    return sum(map(squares, groups)) / sum(len(group) - 1 for group in groups)


def _squares(values: Sequence[float]) -> float:
    middle = _mean(values)
    return sum((value - middle) ** 2 for value in values)


def _inverse(values: Sequence[Any]) -> float:
    return 1 / len(values)


def _between(side: Sequence[Sequence[Sequence[bool]]], within: float) -> float:
    """The variance between the tasks of one agent, less that of a task's mean."""
    means = [_mean(list(map(_mean, runs))) for runs in side]
    return _squares(means) / (len(means) - 1) - within * _mean(list(map(_inverse, side)))


def _share(variance: float | None, total: float, weights: Iterable[float]) -> float | None:
    if variance is None or total <= 0:
        return None
    return float(min(1.0, variance * sum(weights) / total))
