"""Compares two agents on the same tasks, with a gate for continuous integration: difference in
success, paired tests and variance components.

Sources: the interval adds two tasks, one of each sign, as for paired proportions in Bonett and
Price, J. Educ. Behav. Stat. 37 (2012) 479; McNemar, Psychometrika 12 (1947) 153; variance
components by the method of moments, Searle, Casella and McCulloch, Variance Components (1992),
chapter 4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from msgspec import Meta

from prill.config.shared import PlotOption
from prill.datasets.inputs import RecordingsConfig
from prill.errors import UsageError
from prill.evaluators.agreement.agree import KnownRuns, known_runs
from prill.evaluators.agreement.comparison import exact_mcnemar
from prill.evaluators.agreement.figure import HEADING, Figure, figure_row, interval, value_row
from prill.evaluators.labels import cluster
from prill.evaluators.metrics import SEED
from prill.io.joining import MAX_IDS, JoinCounts, join, latest_verdicts
from prill.io.outputs import Content, check_output, write_output
from prill.io.store import read_labels
from prill.io.tables import Table, Tabular, code_block, printable
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.io.verdict_files import read_verdict_files
from prill.running import Printed, as_run
from prill.types import EvaluatorInfo, LabelRecord, Verdict

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


# The run


Change = Literal["to failure", "to success", "none", "mixed", "unscored"]
_MAX_ROWS = 30  # of a list of changed tasks
_MAX_REASON = 300  # characters
_COLUMNS: dict[str, type] = {
    **{"task": str, "change": str, "runs_a": int, "runs_b": int, "rate_a": float, "rate_b": float}
}


@dataclass(frozen=True, kw_only=True)
class CompareConfig(RecordingsConfig):
    """Configuration of `prill compare`: two agents' success on the same tasks."""

    a: Annotated[
        str | Path,
        Meta(description="Verdict file on the runs of agent A, for example the old agent."),
    ]
    b: Annotated[
        str | Path,
        Meta(description="Verdict file on the runs of agent B, for example the new agent."),
    ]
    trajectories: Annotated[
        Sequence[str | Path],
        Meta(
            description="Trajectories that were judged, or those of A and those of B, as for "
            "`prill score`. They show which runs share a task. Without them, runs with the same "
            "id share one."
        ),
    ] = ()
    a_again: Annotated[
        Sequence[str | Path],
        Meta(
            description="Further verdict files of the same judge on A's runs, used to "
            "measure the judge's noise."
        ),
    ] = ()
    b_again: Annotated[
        Sequence[str | Path],
        Meta(description="Further verdict files of the same judge on B's runs."),
    ] = ()
    labels: Annotated[
        Sequence[str | Path],
        Meta(
            description="Label file, or the two of A and B. The difference by labels is "
            "reported, too."
        ),
    ] = ()
    source: SourceOption = None
    truth: TruthOption = "majority"
    outcome: Annotated[
        Literal["verdicts", "labels"],
        Meta(
            description="What decides whether a run succeeded. With labels, a run without "
            "a decided label is unscored."
        ),
    ] = "verdicts"
    require: Annotated[
        str | None,
        Meta(
            description='Requirement on B, for example "B >= A - 0.02". The confidence '
            "interval decides."
        ),
    ] = None
    unscored: Annotated[
        Literal["left-out", "bounds"],
        Meta(
            description="Treatment of unscored runs in the requirement. left-out: only "
            "scored runs count. bounds: it must hold whatever the outcome of the unscored "
            "runs."
        ),
    ] = "left-out"
    report: Annotated[
        str | None,
        Meta(min_length=1, description="Page of `prill report` (file or URL) to link runs to."),
    ] = None
    junit: Annotated[str | Path | None, Meta(description="JUnit report to write (XML).")] = None
    markdown: Annotated[str | Path | None, Meta(description="Summary to write (Markdown).")] = None
    plot: PlotOption = None

    def check(self) -> None:
        """Validates options that depend on each other."""
        if self.require is not None:
            Requirement.parse(self.require)
        for name in ("trajectories", "labels"):
            if len(getattr(self, name)) > 2:
                raise UsageError(
                    f"{name}: expected one file, or two (A's and B's); got "
                    f"{len(getattr(self, name))}",
                    parameters=(name,),
                )
        if self.outcome == "labels" and not self.labels:
            raise UsageError("outcome: labels are missing", parameters=("labels",))


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One run in a comparison.

    Args:
        id: The trajectory's id.
        success: The fraction of its verdicts (or its label) that are success; None: unscored.
        unscored: The reason why it is unscored; None: it is scored.
        reason: The first 300 characters of the judge's reason.
        link: The URL of the run in the report; None: no report was named.
    """

    id: str
    success: float | None
    unscored: str | None = None
    reason: str = ""
    link: str | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedTask:
    """One task on which both agents have runs.

    Args:
        task: Its name.
        change: The change from A to B, by the majority of the scored runs; `mixed`: half of one
            agent's runs; `unscored`: an agent has no scored run.
        a: The runs of A.
        b: The runs of B.
    """

    task: str
    change: Change
    a: tuple[ComparedRun, ...]
    b: tuple[ComparedRun, ...]


@dataclass(frozen=True, kw_only=True)
class ComparedSide:
    """The runs of one agent, in numbers.

    Args:
        file: The verdict file.
        evaluator: The judge.
        runs: The number of runs.
        unscored: The number of runs the judge did not score, by reason; `no verdict` means that
            there is no verdict at all.
        joined: The numbers of runs without a verdict, and of verdicts and labels of other runs.
    """

    file: str
    evaluator: EvaluatorInfo
    runs: int
    unscored: Mapping[str, int]
    joined: JoinCounts


@dataclass(frozen=True, kw_only=True)
class CompareResult(Printed, Tabular):
    """Two agents compared; printing it shows what `prill compare` prints.

    Args:
        a: A's file, judge and runs.
        b: B's file, judge and runs.
        by_verdicts: The difference by verdicts; None if no task has scored runs of both, and labels
            decide.
        by_labels: The difference by labels; None without labels on runs of both.
        judge_error: The part of the difference by verdicts that is the judge's error, if labels are
            known: the mean of verdict minus label of B, minus that of A.
        tasks: The tasks on which both agents have runs.
        unassigned: The runs of one trajectory file that no verdict file has, and that cannot be
            assigned to A or B by their agent.
        decision: Whether B meets the requirement; None: no requirement was set.
        config: The configuration of the run.
    """

    chart: ClassVar[str] = "prill.ui.charts:compare_chart"

    a: ComparedSide
    b: ComparedSide
    by_verdicts: AgentDifference | None
    by_labels: AgentDifference | None = None
    judge_error: Figure | None = None
    tasks: tuple[ComparedTask, ...]
    unassigned: tuple[str, ...] = ()
    decision: Decision | None = None
    config: CompareConfig

    def junit(self) -> str:
        """Returns the requirement and the tasks as a JUnit report (XML)."""
        return self.made_by("prill.ui.junit:compare_junit")

    def markdown(self) -> str:
        """Returns what is printed as Markdown, for a pull request."""
        head = "difference" if self.decision is None else self.decision
        return code_block(f"prill compare: {head}", str(self))

    @property
    def exit_code(self) -> int:
        """Returns 1 if B does not meet the requirement, 6 if that is undecided, else 0."""
        return {None: 0, "pass": 0, "fail": 1, "inconclusive": 6}[self.decision]

    @property
    def main(self) -> AgentDifference:
        """Returns the difference that the requirement applies to: by verdicts, or by labels."""
        found = self.by_labels if self.config.outcome == "labels" else self.by_verdicts
        assert found is not None
        return found

    @property
    def ends(self) -> tuple[float, float] | None:
        """Returns the interval that decides the requirement; None if there is none."""
        figure = self.main.difference
        if self.config.unscored == "bounds" and self.main.bounds is not None:
            return self.main.bounds_interval
        return figure.ends

    @property
    def same_judge(self) -> bool:
        """Returns whether the same judge with the same settings judged both."""
        return self.a.evaluator == self.b.evaluator

    def changed(self, change: Change) -> tuple[ComparedTask, ...]:
        """Returns the tasks with a given change.

        Args:
            change: The change, such as `"to failure"`.

        Returns:
            The tasks with that change.
        """
        return tuple(task for task in self.tasks if task.change == change)

    def table(self) -> Table:
        """Returns one row per task."""
        rows = tuple(
            (
                task.task,
                task.change,
                len(task.a),
                len(task.b),
                *(_mean_outcome([run.success for run in runs]) for runs in (task.a, task.b)),
            )
            for task in self.tasks
        )
        return Table(tuple(_COLUMNS), rows, _COLUMNS)

    def __str__(self) -> str:
        return "\n".join(_page(self))


@as_run(CompareConfig)
def compare(config: CompareConfig) -> CompareResult:
    """Compares two agents' success on the same tasks.

    Args:
        config: The files, the requirement, and the reports to write.

    Returns:
        The difference with a 95 % interval, the tasks that changed, and the decision.

    Raises:
        UsageError: Nothing can be compared, or a file cannot be read or written.
        InputError: A verdict or a label is broken; the message names its line.
    """
    inputs = [
        *(config.a, config.b, *config.a_again, *config.b_again),
        *(*config.trajectories, *config.labels),
    ]
    outputs: tuple[tuple[str, str | Path | None, Content], ...] = (
        ("junit", config.junit, "a JUnit report"),
        ("markdown", config.markdown, "a comparison"),
        ("plot", config.plot, "a diagram"),
    )
    written: list[str | Path] = []
    for name, path, content in outputs:
        if path is not None:
            check_output(path, content, [*inputs, *written], parameter=name)
            written.append(path)
    known = [known_runs(config.runs(path)) for path in config.trajectories]
    a, b = (
        _read_side(config, index, known[index % len(known)] if known else None) for index in (0, 1)
    )
    if len(config.trajectories) == 1 and (twice := a.verdicts.keys() & b.verdicts.keys()):
        raise UsageError(
            f"{min(twice)!r} and {len(twice) - 1} other runs are in both verdict files; "
            "give the trajectories of A and B as two files, or compare judges with `prill agree`",
            parameters=("trajectories",),
        )
    unassigned = _assign(known[0], (a, b)) if len(known) == 1 else ()
    if unassigned and config.unscored == "bounds":
        raise UsageError(
            f"unscored: no bounds can be given, as {_unassigned(unassigned)}; give the "
            "trajectories of A and B as two files, or record which agent made each (`agent`)",
            parameters=("unscored", "trajectories"),
        )
    tasks = {name: (a.tasks[name], b.tasks[name]) for name in a.tasks if name in b.tasks}
    if not tasks:
        raise UsageError(
            (
                f"no task has runs of both agents: A has {_name(next(iter(a.tasks), None))}, B "
                f"has {_name(next(iter(b.tasks), None))}"
            )
            + ("" if config.trajectories else "; trajectories show which runs share a task"),
            parameters=("trajectories",),
        )
    everything = {
        name: (a.tasks.get(name, []), b.tasks.get(name, [])) for name in a.tasks | b.tasks
    }
    by_labels = config.outcome == "labels"
    result = CompareResult(
        a=a.summary(by_labels),
        b=b.summary(by_labels),
        by_verdicts=_by_verdicts(everything, a, b, needed=not by_labels),
        by_labels=_side_difference(everything, a.labelled, b.labelled, needed=by_labels)
        if config.labels
        else None,
        judge_error=_judge_error(tasks, a, b) if config.labels else None,
        tasks=tuple(
            _compared_task(name[1].removeprefix("/"), ids, (a, b), config)
            for name, ids in sorted(tasks.items())
        ),
        unassigned=unassigned,
        config=config,
    )
    if config.require is not None:
        result = replace(result, decision=Requirement.parse(config.require).decide(result.ends))
    texts = {"junit": result.junit, "markdown": result.markdown, "plot": result.svg}
    for name, path, _ in outputs:
        if path is not None:
            write_output(path, texts[name]().encode())
    return result


@dataclass(frozen=True)
class _Side:
    """One agent: its runs by task, the verdicts on each, and its labels."""

    file: str
    evaluator: EvaluatorInfo
    tasks: dict[tuple[bool, str], list[str]]
    verdicts: dict[str, list[Verdict]]
    labels: dict[str, bool | None]
    joined: JoinCounts

    def scores(self, id: str) -> tuple[bool, ...]:
        """Returns the scored verdicts on a run."""
        verdicts = self.verdicts.get(id, ())
        return tuple(verdict.success for verdict in verdicts if verdict.success is not None)

    def votes(self, id: str) -> tuple[bool, ...]:
        """Returns the votes of samples of one judge behind the first verdict on a run."""
        verdicts = self.verdicts.get(id)
        from prill.evaluators.combine import sampled_votes  # it imports every judge

        return sampled_votes(verdicts[0]) if verdicts else ()

    def labelled(self, id: str) -> tuple[bool, ...]:
        """Returns the decided label of a run, if it has one."""
        label = self.labels.get(id)
        return () if label is None else (label,)

    def unscored(self, id: str, by_labels: bool) -> str | None:
        """Returns why a run is unscored; None if it is scored."""
        if by_labels:
            return None if self.labelled(id) else "no label"
        if self.scores(id):
            return None
        verdicts = self.verdicts.get(id)
        return str(verdicts[0].unscored) if verdicts else "no verdict"

    def summary(self, by_labels: bool) -> ComparedSide:
        """Returns the runs in numbers."""
        ids = [id for ids in self.tasks.values() for id in ids]
        missing = [id for id in ids if id not in self.verdicts]
        reasons = Counter(why for id in ids if (why := self.unscored(id, by_labels)) is not None)
        return ComparedSide(
            file=self.file,
            evaluator=self.evaluator,
            runs=len(ids),
            unscored=dict(reasons.most_common()),
            joined=replace(
                self.joined,
                runs=len(ids),
                without_verdict=len(missing),
                examples=tuple(missing[:MAX_IDS]),
            ),
        )


def _assign(runs: KnownRuns, sides: Sequence[_Side]) -> tuple[str, ...]:
    """Adds the runs of one file that no verdict file has to the side of their agent.

    Returns those that cannot be assigned. Runs of a third agent belong to neither side.
    """
    agents = [{runs.agents.get(id) for id in side.verdicts if id in runs.tasks} for side in sides]
    named = all(len(own) == 1 and None not in own for own in agents) and agents[0] != agents[1]
    unassigned = []
    for id in runs.tasks:
        if any(id in side.verdicts for side in sides):
            continue
        agent = runs.agents.get(id)
        if agent is None or not named:
            unassigned.append(id)
        for side, own in zip(sides, agents, strict=True):
            if named and agent in own:
                side.tasks.setdefault(cluster(id, runs.tasks), []).append(id)
    return tuple(unassigned)


def _unassigned(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else ""
    names = ", ".join(map(repr, ids[:MAX_IDS])) + more
    return f"{len(ids)} runs are in no verdict file, and may be of A or of B ({names})"


def _read_side(config: CompareConfig, index: int, runs: KnownRuns | None) -> _Side:
    """Reads the files of A (0) or B (1)."""
    path, again = ((config.a, config.a_again), (config.b, config.b_again))[index]
    digests = None if runs is None else runs.digests
    labels: tuple[LabelRecord, ...] = ()
    if config.labels:
        labels = tuple(read_labels(config.labels[index % len(config.labels)]))
    joined = join(read_verdict_files(path), labels, digests)
    evaluator = joined.judge
    verdicts = {id: [verdict] for id, verdict in joined.verdicts.items()}
    for more in again:
        repeated = list(read_verdict_files(more))
        other, _ = latest_verdicts(repeated)
        if (other.name, other.version, other.model, other.prompt) != (
            *(evaluator.name, evaluator.version),
            *(evaluator.model, evaluator.prompt),
        ):
            raise UsageError(
                f"{more}: its verdicts are by {other.name} {other.version} ({other.model}), "
                f"but those in {path} by {evaluator.name} {evaluator.version} "
                f"({evaluator.model}); the noise of a judge can only be measured on "
                "repeated verdicts of the same judge",
                parameters=(f"{'ab'[index]}_again",),
            )
        for id, verdict in join(repeated, (), digests).verdicts.items():
            verdicts.setdefault(id, []).append(verdict)
    names = None if runs is None else runs.tasks
    tasks: dict[tuple[bool, str], list[str]] = {}
    for id in names if names is not None and len(config.trajectories) == 2 else verdicts:
        tasks.setdefault(cluster(id, names), []).append(id)
    return _Side(
        file=str(path),
        evaluator=evaluator,
        tasks=tasks,
        verdicts=verdicts,
        labels=gold_labels(labels, config.source, config.truth)[1] if labels else {},
        joined=joined.counts,
    )


def _side_difference(
    tasks: Mapping[tuple[bool, str], tuple[Sequence[str], Sequence[str]]],
    a: Callable[[str], tuple[bool, ...]],
    b: Callable[[str], tuple[bool, ...]],
    *,
    needed: bool,
) -> AgentDifference | None:
    """Returns the difference by one type of outcome.

    If the difference is optional, the result is None for lack of runs.
    """
    runs = _task_runs(tasks, a, b)
    if not needed and not any(any(task.a) and any(task.b) for task in runs):
        return None
    return compare_agents(runs)


def _task_runs(
    tasks: Mapping[tuple[bool, str], tuple[Sequence[str], Sequence[str]]],
    a: Callable[[str], tuple[bool, ...]],
    b: Callable[[str], tuple[bool, ...]],
) -> list[TaskRuns]:
    return [
        TaskRuns(name[1], [a(id) for id in runs_a], [b(id) for id in runs_b])
        for name, (runs_a, runs_b) in sorted(tasks.items())
    ]


def _by_verdicts(
    tasks: Mapping[tuple[bool, str], tuple[Sequence[str], Sequence[str]]],
    a: _Side,
    b: _Side,
    *,
    needed: bool,
) -> AgentDifference | None:
    """Returns the difference by verdicts, with the noise of the votes behind them."""
    found = _side_difference(tasks, a.scores, b.scores, needed=needed)
    if found is None:
        return None
    return replace(found, vote_noise=vote_noise(_task_runs(tasks, a.votes, b.votes)))


def _judge_error(tasks: Iterable[tuple[bool, str]], a: _Side, b: _Side) -> Figure | None:
    """Returns the mean of verdict minus label of B, minus that of A, over tasks where both are
    known.
    """
    found = []
    for name in tasks:
        errors = [
            [
                sum(scores) / len(scores) - label
                for id in side.tasks[name]
                if (scores := side.scores(id)) and (label := side.labels.get(id)) is not None
            ]
            for side in (a, b)
        ]
        if all(errors):
            mean_a, mean_b = (sum(values) / len(values) for values in errors)
            found.append(mean_b - mean_a)
    return mean_difference(found, "judge's error in B - A") if found else None


def _compared_task(
    name: str, ids: Sequence[Sequence[str]], sides: Sequence[_Side], config: CompareConfig
) -> ComparedTask:
    by_labels = config.outcome == "labels"
    runs = []
    for side, members in zip(sides, ids, strict=True):
        compared = []
        for id in members:
            verdicts = side.verdicts.get(id)
            outcomes = side.labelled(id) if by_labels else side.scores(id)
            compared.append(
                ComparedRun(
                    id=id,
                    success=sum(outcomes) / len(outcomes) if outcomes else None,
                    unscored=side.unscored(id, by_labels),
                    reason=verdicts[0].reason[:_MAX_REASON] if verdicts else "",
                    link=f"{config.report}#t={quote(id, safe='')}" if config.report else None,
                )
            )
        runs.append(tuple(compared))
    shares = [_mean_outcome([run.success for run in side]) for side in runs]
    return ComparedTask(task=name, change=_change(*shares), a=runs[0], b=runs[1])


def _change(a: float | None, b: float | None) -> Change:
    if a is None or b is None:
        return "unscored"
    if 0.5 in (a, b):
        return "mixed"
    return "none" if (a > 0.5) == (b > 0.5) else "to success" if b > 0.5 else "to failure"


def _mean_outcome(outcomes: Iterable[float | None]) -> float | None:
    scored = [outcome for outcome in outcomes if outcome is not None]
    return round(sum(scored) / len(scored), 9) if scored else None


def _name(task: tuple[bool, str] | None) -> str:
    return "none" if task is None else repr(task[1])


def decision_line(result: CompareResult) -> str:
    """Returns a line with the requirement, its decision, and the reason."""
    requirement = Requirement.parse(result.config.require or "")
    ends = result.ends
    if ends is None:
        why = "there is no interval"
    else:
        where = {
            "pass": "is not below",
            "fail": "is below",
            "inconclusive": "reaches both sides of",
        }
        why = (
            f"the interval of B - A, {interval(ends)}, "
            f"{where[result.decision or 'inconclusive']} {requirement.margin:g}"
        )
    if result.config.unscored == "bounds" and result.main.bounds is not None:
        why += ", whatever the outcome of the unscored runs"
    return f"{result.config.require}: {result.decision}, as {why}"


def _cautions(result: CompareResult) -> Iterator[str]:
    main, error = result.main, result.judge_error
    if not result.same_judge:
        yield "the verdicts on A and B are by different judges, or with different settings"
    if error is not None and ((error.low or 0) > 0 or (error.high or 0) < 0):
        yield "the judge's error rates differ between A and B: the difference by verdicts is biased"
    if result.config.require is None or result.config.unscored == "bounds" or main.bounds is None:
        return
    by_bounds = Requirement.parse(result.config.require).decide(main.bounds_interval)
    if by_bounds != result.decision:
        yield f"with unscored = bounds the requirement would be: {by_bounds}"


def differences(result: CompareResult) -> Iterator[tuple[str, Figure, tuple[float, float] | None]]:
    """Yields figures with their names, and the bounds with unscored runs."""
    if (found := result.by_verdicts) is not None:
        yield "B - A, by verdicts", found.difference, found.bounds_interval
    if (found := result.by_labels) is not None:
        yield "B - A, by labels", found.difference, found.bounds_interval
    if result.judge_error is not None:
        yield result.judge_error.name, result.judge_error, None


def _page(result: CompareResult) -> Iterator[str]:
    main = result.main
    for name, side in (("A", result.a), ("B", result.b)):
        judge = printable(side.evaluator.title)
        yield f"{name}: {printable(side.file)}, {side.runs} runs, by {judge}"
    yield (
        f"Tasks: {main.tasks} with scored runs of both, {main.only_a} of A alone, {main.only_b} of "
        "B alone"
    )
    for caution in _cautions(result):
        yield f"Warning: {caution}"
    yield ""
    yield HEADING
    for name, rate in (("A, success", main.rate_a), ("B, success", main.rate_b)):
        yield value_row(name, rate, "-")
    for name, figure, _ in differences(result):
        yield figure_row(figure, name)
    yield ""
    yield f"Intervals: t, {main.tasks} tasks, equally weighted"
    yield (
        f"Tests of no difference: p {main.sign_flip:.4f} by sign flips of tasks; p "
        f"{main.mcnemar:.4f} by McNemar's exact test ({main.to_failure} tasks to failure, "
        f"{main.to_success} to success)"
    )
    yield from _components(main.noise, "verdict", "B - A")
    if main.vote_noise is not None:
        yield from _components(main.vote_noise, "vote", "B - A by mean votes")
    yield from _unscored(result)
    if result.config.require is not None:
        yield f"Requirement {decision_line(result)}"
    for change in ("to failure", "to success"):
        tasks = result.changed(change)
        if tasks:
            yield from ("", f"Changed {change} ({len(tasks)})")
        for task in tasks[:_MAX_ROWS]:
            yield f"  {printable(task.task)}"
            for name, runs in (("A", task.a), ("B", task.b)):
                yield from (f"    {name} {describe_run(run)}" for run in runs)
        if len(tasks) > _MAX_ROWS:
            yield f"  … and {len(tasks) - _MAX_ROWS} more; the JSON output lists all"
    yield ""
    yield _conclusion(result)


def _conclusion(result: CompareResult) -> str:
    """Returns one sentence on what the difference is usable for, by its interval."""
    ends = result.ends
    if ends is None:
        return "In short: too few tasks to tell the difference from chance."
    if ends[0] <= 0 <= ends[1]:
        return "In short: not shown to differ: the difference may be chance."
    word = "better" if ends[0] > 0 else "worse"
    return f"In short: usable as evidence that B is {word} than A on tasks like these."


def describe_run(run: ComparedRun) -> str:
    """Formats a run as one line."""
    share = run.success or 0.0
    what = {1.0: "success", 0.0: "failure"}.get(share, f"success {share:.2f}")
    parts = [
        f"{run.id}: {run.unscored or what}" + ("." if run.reason else ""),
        run.reason,
        run.link,
    ]
    return printable(" ".join(word for word in parts if word))


def _components(noise: Noise, what: str, difference: str) -> Iterator[str]:
    """Yields the variance components of one verdict or vote, and their shares."""
    if noise.judge is None and noise.agent is None:
        return
    again = "judged again" if what == "verdict" else "with several votes"
    parts = {
        f"the judge {{}} ({noise.judged_again} runs {again})": noise.judge,
        f"runs of a task {{}} ({noise.attempted_again} tasks with several"
        + ("" if noise.judge is not None else "; with the judge's")
        + ")": noise.agent,
        "tasks {}": noise.task,
    }
    listed = [text.format(f"{value:.4f}") for text, value in parts.items() if value is not None]
    yield f"Variance of a {what}: {', '.join(listed)}"
    shares = {"the judge": noise.judge_share, "runs of a task": noise.agent_share}
    if known := [f"{name} {share:.0%}" for name, share in shares.items() if share is not None]:
        yield f"Share in the variance of {difference}: {', '.join(known)}"


def _unscored(result: CompareResult) -> Iterator[str]:
    main = result.main
    for name, side in (("A", result.a), ("B", result.b)):
        if side.unscored:
            reasons = ", ".join(f"{reason} {count}" for reason, count in side.unscored.items())
            yield f"Unscored, {name}: {sum(side.unscored.values())} of {side.runs} ({reasons})"
        yield from side.joined.lines(f", {name}")
    if result.unassigned:
        yield f"Not compared: {_unassigned(result.unassigned)}"
    if main.bounds is not None:
        low, high = main.bounds
        yield (
            f"  left out; B - A of all runs is from {low:.3f} to {high:.3f}, with intervals "
            f"{interval(main.bounds_interval)}"
        )
