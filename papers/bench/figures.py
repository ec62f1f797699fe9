"""Computes benchmark results: success by task, by category and overall, with confidence intervals,
and the cost of an attempt.

All figures come from the files that `prill.refine.run_reflexion` wrote to a folder, so they
describe the episodes that were played.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from prill.evaluators.labels import get_template
from prill.evaluators.metrics import choose_method, ratio_interval, wilson
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.retries import TaskResult, read_results
from prill.io.store import iter_trajectories, read_labels
from prill.papers.bench.papers import ALL, Benchmark, Column, Paper, Theirs, theirs
from prill.papers.replies import ReplyCounts, recorded
from prill.papers.structured_reflection.agent import planning_calls
from prill.types import Trajectory, Usage

FORMAT = "prill bench 1"
# The action counts for which SteP (arXiv 2310.03720) compares the tokens of attempts.
LENGTHS = (5, 15)
Missing = Literal["undecided", "broke off", "could not begin", "no lesson"]
Method = Literal["bootstrap", "t", "wilson over seeds", "wilson over clusters"]
# MiniWoB++'s oracle notes the page's reward in this form.
_REWARD = re.compile(r"(?:not submitted: )?raw reward (-?[\d.e+-]+)")
# The airline's oracle notes the fraction of checkpoints reached in this form.
_PROGRESS = re.compile(r"progress (\d\.\d+)")
# The reasons why retries ended without an outcome, as `prill.refine` writes them.
_MISSING: Mapping[str, Missing] = {
    "unscored": "undecided",
    "broken": "broke off",
    "not_begun": "could not begin",
    "no_lesson": "no lesson",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTrial:
    """One attempt at a task.

    Args:
        success: Whether the attempt succeeded. None: it has no outcome.
        reward: The page's reward; a success may have less than 1. None: not reported.
        progress: The completed fraction of the task, in [0, 1]. None: not reported.
        actions: The number of actions, without the one that ends the episode.
        usage: The cost of the attempt and its lesson.
        replies: The numbers of readable and unreadable replies of the model.
        planned: The number of calls that planned its actions. None: it plans one at a time.
    """

    success: bool | None
    reward: float | None = None
    progress: float | None = None
    actions: int = 0
    usage: Usage = field(default_factory=Usage)
    replies: ReplyCounts = field(default_factory=ReplyCounts)
    planned: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """One task and seed, with its trials.

    Args:
        task: The task.
        seed: The seed.
        trials: The attempts, in order.
        group: The site.
        cluster: Runs of one cluster are not independent evidence. Empty: the task is the cluster.
        missing: Why it ended before all trials. None: it succeeded, or all were played.
    """

    task: str
    seed: int
    trials: tuple[BenchTrial, ...]
    group: str = "none"
    cluster: str = ""
    missing: Missing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchShare:
    """The success rate within `trials` trials and its 95 % interval; None without an outcome."""

    trials: int
    success: float | None
    low: float | None = None
    high: float | None = None
    method: Method | None = None
    decided: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """Results of some tasks: success after each number of trials, and means per attempt.

    `actions` counts only attempts with an outcome. `full` is the success rate after the last trial
    if only a reward of 1 counts; `progress` is the best over the trials. None where unknown.
    """

    name: str
    category: str = ""
    tasks: int
    runs: int
    attempts: int
    success: tuple[BenchShare, ...]
    actions: float | None
    calls: float | None
    tokens: float | None
    usd: float | None
    full: float | None = None
    progress: float | None = None
    replies: ReplyCounts = field(default_factory=ReplyCounts)
    theirs: tuple[Theirs | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTest:
    """A test of whether more trials solve more; `mcnemar` is one-tailed, `theirs` a printed p."""

    name: str
    first: int
    last: int
    pairs: int
    gained: int
    mcnemar: float
    t: float | None = None
    p: float | None = None
    theirs: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Successful attempts of a task: their actions, and the calls that planned these."""

    task: str
    trials: int
    solved: int
    actions: int
    calls: int
    theirs: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessTokens:
    """Mean request tokens of successful attempts with `LENGTHS` actions. None without one."""

    attempts: int
    tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The results for one list of tasks. The columns are the paper's."""

    title: str
    paper: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    categories: tuple[BenchRow, ...]
    tasks: tuple[BenchRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """All figures of an agent on a benchmark.

    Args:
        format: The version of the file format.
        benchmark: The benchmark.
        agent: The agent's name.
        trials: The numbers of trials after which success is given.
        settings: Further recorded settings.
        missing: How many runs have no outcome after the last trial, by reason.
        usage: The cost of all runs.
        overall: The figures of all runs.
        sections: The figures by list of tasks.
        tests: Whether more trials solve more, by category and by task.
        planning: Actions and the calls that planned them, by task and number of trials.
        success_tokens: The request tokens of successful attempts with `LENGTHS` actions.
    """

    format: str = FORMAT
    benchmark: Benchmark
    agent: str
    trials: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, int]
    usage: Usage
    overall: BenchRow
    sections: tuple[Section, ...]
    tests: tuple[TrialTest, ...] = ()
    planning: tuple[Planning, ...] = ()
    success_tokens: SuccessTokens = SuccessTokens(attempts=0, tokens=None)


def read_runs(folder: Path, groups: Mapping[str, str] | None = None) -> list[BenchRun]:
    """Reads the runs that Reflexion recorded in a folder, named `task-sSEED`.

    Args:
        folder: The run's folder.
        groups: The group of each task, by task. None: the site that the recording names.

    Raises:
        UsageError: The folder holds no such run.
        InputError: A line of a file is broken.
    """
    labels, path = folder / LABELS, folder / TRAJECTORIES
    notes = {label.id: label.note or "" for label in read_labels(labels)} if labels.exists() else {}
    played = (
        {item.id: _recorded(item) for item in iter_trajectories(path, on_error="skip")}
        if path.exists()
        else {}
    )
    return [_run(result, played, notes, groups or {}) for result in read_results(folder).tasks]


def make_bench(
    runs: Sequence[BenchRun],
    papers: Sequence[Paper] = (),
    *,
    benchmark: Benchmark,
    agent: str,
    trials: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> Bench:
    """Computes the figures of recorded runs, next to those of papers.

    Args:
        runs: The runs, each of at most `trials` trials.
        papers: Published figures to show next to them.
        benchmark: The name of the benchmark.
        agent: The agent's name.
        trials: The most attempts at one task; success is also given after a paper's numbers.
        settings: Further settings to record. None: no further settings.

    Returns:
        The figures, overall, by category and by task. Success rates are in [0, 1].
    """
    counts = sorted(
        {1, trials}
        | {column.trials for paper in papers for column in paper.columns if column.trials < trials}
    )
    last = [(run, solved(run, trials)) for run in runs]
    missing: Counter[str] = Counter(
        run.missing or "undecided" for run, success in last if success is None
    )
    sections = [_section(runs, paper, counts, benchmark) for paper in papers or (None,)]
    return Bench(
        benchmark=benchmark,
        agent=agent,
        trials=tuple(counts),
        settings=dict(settings or {}),
        missing=dict(missing),
        usage=sum((trial.usage for run in runs for trial in run.trials), start=Usage()),
        overall=_row(ALL, runs, counts),
        sections=tuple(section for section in sections if section.categories),
        tests=tuple(_tests(runs, papers, counts)),
        planning=tuple(_planning(runs, papers, counts)),
        success_tokens=_success_tokens(runs),
    )


def compare_trials(
    runs: Sequence[BenchRun], first: int, last: int, *, name: str = ALL, theirs: float | None = None
) -> TrialTest:
    """Tests whether `last` trials solve more than the `first`, over runs with an outcome."""
    pairs = [
        (bool(solved(run, first)), after)
        for run in runs
        if (after := solved(run, last)) is not None
    ]
    gained = sum(after and not before for before, after in pairs)
    t, p = _paired_t([after - before for before, after in pairs])
    return TrialTest(
        name=name,
        first=first,
        last=last,
        pairs=len(pairs),
        gained=gained,
        mcnemar=0.5**gained,  # one-sided and exact: later trials lose no success
        t=t,
        p=p,
        theirs=theirs,
    )


def _paired_t(differences: Sequence[int]) -> tuple[float | None, float | None]:
    """Returns Student's t of paired differences, None if it is not finite, and its two-sided p.

    Both are None for fewer than two pairs.
    """
    from scipy.special import stdtr

    if len(differences) < 2:
        return None, None
    mean, spread = fmean(differences), stdev(differences)
    if spread == 0:
        return (0.0, 1.0) if mean == 0 else (None, 0.0)
    t = mean / (spread / sqrt(len(differences)))
    return t, float(2 * stdtr(len(differences) - 1, -abs(t)))


def _tests(
    runs: Sequence[BenchRun], papers: Sequence[Paper], counts: Sequence[int]
) -> Iterator[TrialTest]:
    """Yields the tests by category, overall, and for each task with additional successes."""
    by_task = _by(runs, lambda run: run.task)
    groups = _categories(papers[0], by_task) if papers else {}
    printed = {name: p for paper in papers for name, p in paper.tests.items()}
    for first, last in combinations(counts, 2):
        for name, some in {**groups, ALL: runs}.items():
            if some:
                theirs = printed.get(f"{name}: T={first}, T={last}")
                yield compare_trials(some, first, last, name=name, theirs=theirs)
        tests = (compare_trials(some, first, last, name=task) for task, some in by_task.items())
        yield from (test for test in tests if test.gained)


def _planning(
    runs: Sequence[BenchRun], papers: Sequence[Paper], counts: Sequence[int]
) -> Iterator[Planning]:
    """Yields the figures of each task that has a success with recorded planning calls."""
    printed = {name: row for paper in papers for name, row in paper.planning.items()}
    for task, of_task in _by(runs, lambda run: run.task).items():
        for count in counts:
            first = (next((t for t in run.trials[:count] if t.success), None) for run in of_task)
            good = [trial for trial in first if trial is not None and trial.planned is not None]
            if good:
                yield Planning(
                    task=task,
                    trials=count,
                    solved=len(good),
                    actions=sum(trial.actions for trial in good),
                    calls=sum(trial.planned or 0 for trial in good),
                    theirs=printed.get(f"{task}: T={count}"),
                )


def _categories(
    paper: Paper, by_task: Mapping[str, Sequence[BenchRun]]
) -> dict[str, list[BenchRun]]:
    """Returns the runs of the paper's tasks by its categories."""
    return {
        category: [run for task in tasks for run in by_task.get(task, ())]
        for category, tasks in paper.categories.items()
    }


def _success_tokens(runs: Sequence[BenchRun]) -> SuccessTokens:
    tokens = [
        trial.usage.prompt_tokens
        for run in runs
        for trial in run.trials
        if trial.success and LENGTHS[0] <= trial.actions <= LENGTHS[1]
    ]
    return SuccessTokens(attempts=len(tokens), tokens=fmean(tokens) if tokens else None)


def solved(run: BenchRun, trials: int) -> bool | None:
    """Returns whether one of the first trials succeeded. None if that is not known."""
    first = run.trials[:trials]
    if any(trial.success for trial in first):
        return True
    cut_short = run.missing is not None and len(first) < trials
    return (
        None if cut_short or not first or any(trial.success is None for trial in first) else False
    )


def compute_share(runs: Sequence[BenchRun], trials: int) -> BenchShare:
    """Computes the success rate within the first trials. Every task has the same weight."""
    outcomes: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for run in runs:
        if (success := solved(run, trials)) is not None:
            outcomes[run.cluster or run.task, run.task].append(success)
    decided = sum(map(len, outcomes.values()))
    mean = _mean_of_tasks(outcomes)
    found = BenchShare(trials=trials, success=mean, decided=decided, missing=len(runs) - decided)
    if mean is None:
        return found
    low, high, method = _interval(mean, outcomes)
    return replace(found, low=low, high=high, method=method)


def _full(trials: Sequence[BenchTrial]) -> float | None:
    """Returns whether one has a reward of 1. None if the reward of a success is unknown."""
    rewards = [trial.reward for trial in trials if trial.success]
    return None if None in rewards else float(1 in rewards)


def _progress(trials: Sequence[BenchTrial]) -> float | None:
    """Returns the best progress. None if all are unknown."""
    return max((trial.progress for trial in trials if trial.progress is not None), default=None)


def mean_best(
    runs: Sequence[BenchRun], trials: int, best: Callable[[Sequence[BenchTrial]], float | None]
) -> float | None:
    """Returns the mean over tasks of the runs' best. None if any is unknown."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if solved(run, trials) is not None:
            if (value := best(run.trials[:trials])) is None:
                return None
            by_task[run.task].append(value)
    return _mean_of_tasks(by_task)


def _mean_of_tasks(by_task: Mapping[Any, Sequence[float]]) -> float | None:
    """Returns the mean over tasks, each with the same weight. None without a task."""
    return fmean(map(fmean, by_task.values())) if by_task else None


def _interval(
    mean: float, outcomes: Mapping[tuple[str, str], Sequence[bool]]
) -> tuple[float, float, Method]:
    """Returns the interval over one task's seeds or the tasks' clusters, and its method."""
    if len(outcomes) == 1:
        return *wilson(mean, sum(map(len, outcomes.values()))), "wilson over seeds"

    rows: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (cluster, _), of_task in outcomes.items():
        rows[cluster][0] += fmean(of_task)
        rows[cluster][1] += 1
    if (found := ratio_interval(list(rows.values()), 0.0)) is not None:
        return *found, choose_method(len(rows))
    # Identical clusters leave no variance to resample, so each cluster counts as one trial.
    return *wilson(mean, len(rows)), "wilson over clusters"


# What is read from the recording of an attempt: its cluster, its site, and its trial without the
# outcome.
_Recorded = tuple[str, str, BenchTrial]


def _recorded(item: Trajectory) -> _Recorded:
    # The final action does not change the environment.
    actions = sum(not step.action.is_final for step in item.steps)
    replies, planned = recorded(item.metadata, "replies", ReplyCounts), planning_calls(item) or None
    trial = BenchTrial(success=None, actions=actions, replies=replies, planned=planned)
    return get_template(item), item.task.site or "none", trial


def _run(
    result: TaskResult,
    played: Mapping[str, _Recorded],
    notes: Mapping[str, str],
    groups: Mapping[str, str],
) -> BenchRun:
    task, _, seed = result.name.rpartition("-s")
    unknown = (task, "none", BenchTrial(success=None))
    found = [played.get(attempt.id, unknown) for attempt in result.attempts]
    cluster, site, _ = found[0] if found else unknown
    return BenchRun(
        task=task,
        seed=int(seed),
        group=groups.get(task, site),
        cluster=cluster,
        trials=tuple(
            replace(
                trial,
                success=None if attempt.status == "broken" else attempt.truth,
                reward=_noted(_REWARD, notes.get(attempt.id, "")),
                progress=_noted(_PROGRESS, notes.get(attempt.id, "")),
                usage=attempt.actor + attempt.reflector,
            )
            for attempt, (_, _, trial) in zip(result.attempts, found, strict=True)
        ),
        missing=_MISSING.get(result.ended),
    )


def _noted(pattern: re.Pattern[str], note: str) -> float | None:
    found = pattern.fullmatch(note)
    return float(found[1]) if found else None


def _section(
    runs: Sequence[BenchRun], paper: Paper | None, counts: Sequence[int], benchmark: Benchmark
) -> Section:
    """Returns the paper's tasks by its categories, else all by site where there are several."""
    categories: Mapping[str, Sequence[BenchRun]] = {}
    if paper is not None and paper.categories:
        by_seed = sorted(runs, key=lambda run: run.seed)
        categories = _categories(paper, _by(by_seed, lambda run: run.task))
        runs = list(chain.from_iterable(categories.values()))
    elif paper.sizes if paper is not None else benchmark == "webarena":
        by_site = _by(runs, lambda run: run.group)
        sizes = () if paper is None else paper.sizes
        categories = {name: by_site[name] for name in (*sizes, *by_site) if name in by_site}
    rows = [_row(name, some, counts, paper) for name, some in categories.items() if some]
    rows += [_row(ALL, runs, counts, paper)] if runs else []
    home = {run.task: name for name, of_category in categories.items() for run in of_category}
    shown = paper if paper is not None and paper.tasks else None
    tasks = tuple(
        _row(task, several, counts, shown, home.get(task, ""))
        for task, several in _by(runs, lambda run: run.task).items()
    )
    if paper is None:
        return Section(title="sites" if categories else "all", categories=tuple(rows), tasks=tasks)
    about = {name: getattr(paper, name) for name in ("title", "paper", "source", "notes")}
    return Section(**about, columns=paper.columns, categories=tuple(rows), tasks=tasks)


def _row(
    name: str,
    runs: Sequence[BenchRun],
    counts: Sequence[int],
    paper: Paper | None = None,
    category: str | None = None,
) -> BenchRow:
    """Computes one row. `category` is set only for the row of a task."""
    trials = [trial for run in runs for trial in run.trials]
    action_counts = [trial.actions for trial in trials if trial.success is not None]
    usage = sum((trial.usage for trial in trials), start=Usage())
    tasks = dict.fromkeys(run.task for run in runs if solved(run, counts[-1]) is not None)
    rewarded = any(trial.reward is not None for trial in trials)
    return BenchRow(
        name=name,
        category=category or "",
        tasks=len({run.task for run in runs}),
        runs=len(runs),
        attempts=len(trials),
        success=tuple(compute_share(runs, count) for count in counts),
        actions=fmean(action_counts) if action_counts else None,
        calls=usage.calls / len(trials) if trials else None,
        tokens=(usage.prompt_tokens + usage.completion_tokens) / len(trials) if trials else None,
        usd=usage.usd / len(trials) if trials and usage.usd is not None else None,
        full=mean_best(runs, counts[-1], _full) if rewarded else None,
        progress=mean_best(runs, counts[-1], _progress),
        replies=sum((trial.replies for trial in trials), start=ReplyCounts()),
        theirs=() if paper is None else theirs(paper, category or name, tasks),
    )


def _by(runs: Iterable[BenchRun], key: Callable[[BenchRun], str]) -> dict[str, list[BenchRun]]:
    groups: dict[str, list[BenchRun]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return dict(groups)
