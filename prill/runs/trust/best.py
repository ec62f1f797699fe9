"""Picks the best of several attempts at each task, by verdicts or by comparing the attempts, and
estimates the value of such picks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from prill.captioner.registry import CaptionerLike, captioner_for, make_captioner
from prill.config.values import Config, get_name
from prill.errors import InputError, UsageError
from prill.evaluators.combine import as_score
from prill.evaluators.comparative import (
    ComparativeJudge,
    ComparedAttempts,
    ComparisonLog,
    ComparisonSpec,
)
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution
from prill.evaluators.labels import cluster, latest_verdicts
from prill.evaluators.meta.best import (
    BestPoint,
    Pick,
    best_of_all,
    best_of_n,
    pick_best,
    pick_compared,
)
from prill.evaluators.meta.figure import about_intervals, interval, text_table
from prill.io.lines import read_lines
from prill.io.outputs import check_output, expect_file, write_output
from prill.io.store import read_labels, read_trajectories, read_verdicts, write_trajectories
from prill.io.tables import Table, Tabular, printable
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.io.verdict_log import RETRIED
from prill.models.calls import Transcript, transcribed
from prill.models.options import BudgetOption, ConcurrencyOption
from prill.models.registry import ModelLike, make_run_model, price_table
from prill.runs.base import Printed, kept_transcripts, run_budget, synchronous
from prill.runs.plan import RunPlan, compute_cost
from prill.runs.trust.agree import read_runs
from prill.scoring.items import transcript_log, work_through
from prill.transcripts.files import TranscriptLog
from prill.types import EvaluatorInfo, Trajectory, Usage
from prill.ui.report.lines import PlotLine, PlotPoint, line_chart

_MAX_PROBLEMS = 10
# Called with the number of tasks compared so far, and their number.
Progress = Callable[[int, int], None]
_COLUMNS: dict[str, type] = {
    **{"task": str, "id": str, "value": float, "success": bool},
    **{"tied": int, "attempts": int, "unscored": int},
}


@dataclass(frozen=True, kw_only=True)
class BestConfig(Config):
    """Configuration of `prill best`: the best of several attempts at a task, by the verdicts of a
    judge or by comparing them.
    """

    trajectories: Annotated[
        str | Path,
        Meta(description="Trajectory file. It shows which attempts share a task."),
    ]
    verdicts: Annotated[
        str | Path | None,
        Meta(
            description="Verdict file of one judge on all attempts: the highest score is the best."
        ),
    ] = None
    compare: Annotated[
        str | Path | None,
        Meta(
            description="File for comparisons: a model compares the attempts at each task, without "
            "verdicts. An interrupted run resumes there."
        ),
    ] = None
    model: Annotated[ModelLike | None, Meta(description="Model that compares.")] = None
    captioner: Annotated[
        CaptionerLike | None,
        Meta(
            description="Captioner that describes states (default: screenshots if there are any, "
            "otherwise the text of the states)."
        ),
    ] = None
    comparison: Annotated[
        ComparisonSpec, Meta(description="Settings of comparing: seed, described actions, limits.")
    ] = field(default=ComparisonSpec())
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = 16
    resume: Annotated[
        bool,
        Meta(
            description="Continue the comparison file. Otherwise it is renamed to FILE.bak "
            "and a new one is started."
        ),
    ] = True
    retry_unscored: Annotated[
        bool, Meta(description="Compare unscored tasks again, in addition to missing ones.")
    ] = False
    transcripts: Annotated[
        str | Path | bool,
        Meta(
            description="Folder for prompts and replies of models (default: next to the "
            "comparison file)."
        ),
    ] = True
    output: Annotated[
        str | Path | None, Meta(description="File for the best attempt at each task.")
    ] = None
    labels: Annotated[
        str | Path | None,
        Meta(
            description="Label file, used to report the success rate of the best of N attempts "
            "for each N."
        ),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    attempts: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Largest N, over the tasks with that many labelled attempts "
            "(default: the smallest number of attempts at any task).",
        ),
    ] = None
    plot: Annotated[
        str | Path | None,
        Meta(description="Chart of the true success rate by N to write (SVG). Requires labels."),
    ] = None

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: The options conflict.
        """
        if (self.verdicts is None) == (self.compare is None):
            raise UsageError(
                "give the verdicts of a judge, or compare and a model",
                parameters=("verdicts", "compare"),
            )
        if (self.model is None) != (self.compare is None):
            raise UsageError(
                "compare needs a model, and only compare calls one", parameters=("model", "compare")
            )
        if self.compare is not None and self.attempts is not None:
            raise UsageError(
                "attempts: a comparison is of all attempts at a task; it has no choice among fewer",
                parameters=("attempts",),
            )
        for name in ("attempts", "plot"):
            if getattr(self, name) is not None and self.labels is None:
                raise UsageError(f"{name} needs labels", parameters=("labels",))


@dataclass(frozen=True, kw_only=True)
class BestResult(Printed, Tabular):
    """The picks; printing it shows what `prill best` prints.

    Args:
        evaluator: The judge.
        picks: The pick of each task, in the order of the file.
        curve: The true success of the best of N attempts; empty without labels.
        tasks: The number of tasks behind the curve.
        unlabelled: The number of attempts without a decided label, which the curve excludes.
        fitted: The number of labelled attempts that the judge was fitted on.
        output: The file of the picked attempts.
        compared: The file of the comparisons. None: the picks come from verdicts.
        unscored: The number of compared tasks that are unscored, by reason.
        usage: The calls of this run and their cost.
        stopped: Whether the run was stopped before its end; the picks are then incomplete.
    """

    evaluator: EvaluatorInfo
    picks: tuple[Pick, ...]
    curve: tuple[BestPoint, ...] = ()
    tasks: int = 0
    unlabelled: int = 0
    fitted: Overlap | None = None
    output: str | None = None
    compared: str | None = None
    unscored: Mapping[str, int] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    stopped: bool = False

    def table(self) -> Table:
        """Returns one row per task."""
        rows = tuple(
            (p.task, p.id, p.value, p.success, len(p.tied), p.attempts, p.unscored)
            for p in self.picks
        )
        return Table(tuple(_COLUMNS), rows, _COLUMNS)

    def svg(self) -> str:
        """Returns the chart of the curve with its intervals, as SVG text; empty without labels."""
        if not self.curve:
            return ""
        lines = [
            PlotLine(
                name,
                [
                    PlotPoint.of(point.n, figure, f"{name}, N {point.n}: {figure}")
                    for point in self.curve
                    if not (figure := getattr(point, key)).undefined
                ],
            )
            for key, name in (("pick", "best of N by the judge"), ("passed", "pass@N"))
        ]
        return line_chart("True success of the best of N attempts", "N", lines, whole=True)

    def __str__(self) -> str:
        return "\n".join(_page(self))


async def best_async(
    config: BestConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Progress = lambda done, expected: None,
) -> BestResult:
    """Picks the best attempt at each task, by a judge's verdicts or by comparing the attempts.

    Args:
        config: The files, and the largest N of the curve or the model that compares.
        stop: An event; once it is set, no further task is compared.
        progress: Called after every compared task with the tasks so far and their number.

    Returns:
        The picks and, with labels, the true success of the best of N attempts.

    Raises:
        UsageError: No attempt has a verdict, none has a label, or a file cannot be read or written.
        InputError: A verdict or a label is broken; the message names its line.
        EndpointError: The model's endpoint accepts no call.
    """
    _check_files(config)
    tasks = await asyncio.to_thread(_read_tasks, config.trajectories)
    if config.compare is None:
        return await asyncio.to_thread(_by_verdicts, config, tasks)
    run = _Comparing(config, tasks, stop or asyncio.Event(), progress)
    with run_budget(config.budget_usd, file=config.compare, begin_again=not config.resume):
        await run.compare()
    return await asyncio.to_thread(run.result)


best = synchronous(best_async)
"""Runs `best_async` with the same parameters, for scripts and notebooks."""


def plan_best(config: BestConfig) -> RunPlan:
    """Plans the run without calling a model. Raises UsageError.

    The cost is an upper bound: equal actions of attempts are described once.
    """
    _check_files(config)
    tasks = _read_tasks(config.trajectories)
    if config.compare is None:
        return RunPlan(work=(f"{len(tasks)} tasks; the picks come from verdicts",))
    with run_budget(
        config.budget_usd, file=config.compare, begin_again=not config.resume, planned=True
    ):
        judge = _make_judge(config)
    keys = _lasting_keys(config) if config.resume else {}
    usage, todo, done, problems = Usage(), 0, 0, []
    for name, attempts in _gathered(config.trajectories, tasks):
        try:
            if name in keys and keys[name] == judge.key(attempts):
                done += 1
                continue
            usage += judge.estimate(attempts)
            todo += 1
        except InputError as error:
            problems.append(f"{name}: {error}")
    usd = compute_cost(usage, judge.info.model, price_table(config.model))
    return RunPlan(
        work=(
            f"{todo} tasks to compare, {done} done, {len(problems)} that cannot be used",
            f"would be written to {config.compare}",
        ),
        counts={"tasks": todo, "done": done, "broken": len(problems)},
        usage=replace(usage, usd=usd),
        most=True,
        problems=tuple(problems),
    )


def _check_files(config: BestConfig) -> None:
    inputs = [config.verdicts, config.trajectories, config.labels]
    if config.compare is not None:
        expect_file(config.compare, "comparisons")
        check_output(
            config.compare, "comparisons", inputs, continued=config.resume, parameter="compare"
        )
        inputs.append(config.compare)
    if config.output is not None:
        check_output(config.output, "trajectories", inputs)
    if config.plot is not None:
        check_output(config.plot, "a diagram", [*inputs, config.output], parameter="plot")


def _read_tasks(path: str | Path) -> dict[str, list[str]]:
    """Returns the ids of the attempts at each task, in the order of the file."""
    names = read_runs(path, ()).tasks
    tasks: dict[tuple[bool, str], list[str]] = {}
    for id in names:
        tasks.setdefault(cluster(id, names), []).append(id)
    return {name.removeprefix("/"): ids for (_, name), ids in tasks.items()}


def _gathered(
    path: str | Path, tasks: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, list[Trajectory]]]:
    """Yields each task once all of its attempts are read, with the attempts."""
    task_of = {id: task for task, ids in tasks.items() for id in ids}
    waiting: dict[str, dict[str, Trajectory]] = {}
    for run in read_trajectories(path, on_error="skip"):
        task = task_of.get(run.id)
        if task is None:
            continue
        runs = waiting.setdefault(task, {})
        runs[run.id] = run
        if len(runs) == len(tasks[task]):
            yield task, list(waiting.pop(task).values())


def _by_verdicts(config: BestConfig, tasks: Mapping[str, Sequence[str]]) -> BestResult:
    assert config.verdicts is not None
    evaluator, latest = latest_verdicts(read_verdicts(config.verdicts))
    ids = [id for attempts in tasks.values() for id in attempts]
    if latest.keys().isdisjoint(ids):
        raise UsageError(
            f"the trajectories do not match the verdicts: none has the id {next(iter(latest))!r}"
        )
    picks = tuple(
        pick_best(name, {id: latest.get(id) for id in attempts}) for name, attempts in tasks.items()
    )
    result = BestResult(evaluator=evaluator, picks=picks)
    if config.labels is not None:
        truths = _truths(config, ids)
        labelled = [
            known
            for attempts in tasks.values()
            if (
                known := [(as_score(latest.get(id)), truths[id]) for id in attempts if id in truths]
            )
        ]
        curve = best_of_n(labelled, config.attempts)
        result = replace(
            result,
            curve=curve,
            tasks=sum(len(attempts) >= len(curve) for attempts in labelled),
            unlabelled=len(ids) - len(truths),
            fitted=find_overlap(latest[id] for id in truths if id in latest),
        )
    return _written(config, result)


def _truths(config: BestConfig, ids: Sequence[str]) -> dict[str, bool]:
    """Returns the decided labels of attempts. Raises UsageError if there are none."""
    assert config.labels is not None
    _, truths = gold_labels(read_labels(config.labels), config.source, config.truth)
    known = {id: truth for id in ids if (truth := truths.get(id)) is not None}
    if not known:
        raise UsageError("no attempt has a decided label", parameters=("labels",))
    return known


def _written(config: BestConfig, result: BestResult) -> BestResult:
    """Writes the picked attempts and the chart."""
    if config.output is not None and not result.stopped:
        chosen = {pick.id for pick in result.picks}
        runs = read_trajectories(config.trajectories, on_error="skip")
        write_trajectories(config.output, (run for run in runs if run.id in chosen))
        result = replace(result, output=str(config.output))
    if config.plot is not None and result.curve:
        write_output(config.plot, result.svg().encode())
    return result


def _make_judge(config: BestConfig) -> ComparativeJudge:
    assert config.model is not None  # `check` requires one
    model = make_run_model(config.model, {"concurrency": config.concurrency})
    captioner = config.captioner
    if captioner is None and (
        get_name(config.model) == "embedded" or not _has_pictures(config.trajectories)
    ):
        captioner = captioner_for([config.trajectories])
    return ComparativeJudge(
        model, None if captioner is None else make_captioner(captioner), spec=config.comparison
    )


def _has_pictures(path: str | Path) -> bool:
    """Returns whether the first trajectory with states has a screenshot."""
    states = (run.observations for run in read_trajectories(path, on_error="skip"))
    first = next((observations for observations in states if observations), ())
    return any(state.screenshot for state in first)


def _lasting_keys(config: BestConfig) -> dict[str, str]:
    """Returns the keys of the comparisons that a run would keep."""
    path = Path(config.compare or "")
    if not path.exists():
        return {}
    read = msgspec.json.Decoder(ComparedAttempts).decode
    keys: dict[str, str] = {}
    for line in read_lines(path):
        try:
            one = read(line.data)
        except msgspec.MsgspecError:
            continue  # the run refuses the file, or removes an incomplete line
        keys.pop(one.id, None)
        if one.unscored is None or not (config.retry_unscored or one.unscored in RETRIED):
            keys[one.id] = one.key
    return keys


@dataclass
class _Comparing:
    """A run that compares attempts."""

    config: BestConfig
    tasks: Mapping[str, Sequence[str]]
    stop: asyncio.Event
    progress: Progress
    compared: dict[str, ComparedAttempts] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    done: int = 0

    async def compare(self) -> None:
        """Compares the attempts at each task, several tasks at a time.

        After the first error no further task is started; the error is raised when the running
        comparisons have ended.
        """
        config = self.config
        self.judge = await asyncio.to_thread(_make_judge, config)
        folder = kept_transcripts(config.transcripts, config.compare or "")
        source = _gathered(config.trajectories, self.tasks)
        with (
            ComparisonLog(
                config.compare or "",
                self.judge.info,
                resume=config.resume,
                retry_unscored=config.retry_unscored,
            ) as log,
            transcript_log(folder, resume=config.resume) as calls,
        ):
            read = msgspec.json.Decoder(ComparedAttempts).decode
            known = (read(line) for _, line in log.lines())
            self.compared |= {one.id: one for one in known}
            work = partial(self._compare_one, log, calls)
            await work_through(source, config.concurrency, self.stop, work)

    async def _compare_one(
        self,
        log: ComparisonLog,
        calls: TranscriptLog | None,
        entry: tuple[str, list[Trajectory]],
    ) -> None:
        task, attempts = entry
        if not log.done(task, lambda: self.judge.key(attempts)):
            with transcribed() as made:
                result = await self.judge(task, attempts)
            if calls is not None and made:
                calls.append(Transcript(task, result.key, tuple(made)))
            log.append(result)
            self.compared[task] = result
            self.usage += result.usage
        self.done += 1
        self.progress(self.done, len(self.tasks))
        await asyncio.sleep(0)

    def result(self) -> BestResult:
        """Returns the picks; with labels, with their true success."""
        config = self.config
        found = {task: self.compared[task] for task in self.tasks if task in self.compared}
        result = BestResult(
            evaluator=self.judge.info,
            picks=tuple(pick_compared(one, self.tasks[task]) for task, one in found.items()),
            compared=str(config.compare),
            unscored=Counter(one.unscored for one in found.values() if one.unscored is not None),
            usage=self.usage,
            stopped=self.done < len(self.tasks),
        )
        if config.labels is not None:
            ids = [id for attempts in self.tasks.values() for id in attempts]
            truths = _truths(config, ids)
            labelled = [
                ([truths[id] for id in one.attempts], [truths[id] for id in one.best])
                for one in found.values()
                if truths.keys() >= set(one.attempts)
            ]
            result = replace(
                result,
                curve=best_of_all(labelled) if labelled else (),
                tasks=len(labelled),
                unlabelled=len(ids) - len(truths),
            )
        return _written(config, result)


def _page(result: BestResult) -> Iterator[str]:
    judge, picks = result.evaluator, result.picks
    yield f"Judge: {printable(judge.title)}"
    if caution := fitted_caution(judge.name, result.fitted):
        yield f"Warning: {caution}"
    picked = [pick for pick in picks if pick.id is not None]
    attempts = sum(p.attempts for p in picks)
    ties = sum(bool(pick.tied) for pick in picks)
    if result.compared is None:
        yield (
            f"Picked: {len(picked)} of {len(picks)} tasks, from {attempts} attempts; "
            f"{sum(bool(pick.success) for pick in picked)} picks are successes according to "
            "the judge"
        )
        yield (
            f"Ties: {ties} tasks, in which the first attempt is picked; unscored: "
            f"{sum(pick.unscored for pick in picks)} attempts, never picked"
        )
    else:
        yield from _comparisons(result, len(picked), attempts, ties)
    if result.output is not None:
        yield f"Written: {result.output}"
    if not result.curve:
        return
    yield ""
    heading = ("N", "best of N", "95 % interval", "pass@N", "95 % interval", "")
    rows = (
        (
            *(one.n, one.pick, interval(one.pick.ends), one.passed, interval(one.passed.ends)),
            "" if one.picked > 1 - 1e-9 else "!",
        )
        for one in result.curve
    )
    yield from text_table(heading, rows)
    yield ""
    yield from about_intervals([], result.tasks, "task")
    if any(point.picked <= 1 - 1e-9 for point in result.curve):
        left_out = "tasks without a pick"
        if result.compared is None:
            left_out = "samples in which every attempt is unscored"
        yield f"! leaves out {left_out}"
    if result.unlabelled:
        yield f"Left out: {result.unlabelled} attempts without a decided label"


def _comparisons(result: BestResult, picked: int, attempts: int, ties: int) -> Iterator[str]:
    count = Counter(pick.choice for pick in result.picks)
    yield (
        f"Picked: {picked} of {len(result.picks)} tasks, from {attempts} attempts, shown in an "
        f"order shuffled by seed {result.evaluator.params['seed']}, because models prefer some "
        "positions"
    )
    yield (
        f"Equal: {ties} tasks, in which the first attempt is picked; no attempt did any part: "
        f"{count['none']}; one attempt only, not compared: {count['only']}"
    )
    reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(result.unscored.items()))
    yield f"Unscored: {sum(result.unscored.values())} tasks, without a pick" + (
        f" ({reasons})" if reasons else ""
    )
    usd = result.usage.usd
    yield (
        f"Calls: {result.usage.calls} in this run, "
        f"{'cost unknown' if usd is None else f'${usd:.4f}'}; comparisons in {result.compared}"
    )
    broken = [pick for pick in result.picks if pick.unscored]
    for pick in broken[:_MAX_PROBLEMS]:
        yield f"  {printable(pick.task)}: {printable(pick.reason)}"
    if len(broken) > _MAX_PROBLEMS:
        yield f"  and {len(broken) - _MAX_PROBLEMS} more"
