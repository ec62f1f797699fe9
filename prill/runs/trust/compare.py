"""Compares two agents' runs on the same tasks by their verdicts; usable as a CI gate."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.evaluators.combine import sampled_votes
from prill.evaluators.labels import cluster, latest_verdicts
from prill.evaluators.meta.figure import HEADING, Figure, figure_row, interval, value_row
from prill.evaluators.meta.paired import (
    AgentDifference,
    Decision,
    Noise,
    Requirement,
    TaskRuns,
    compare_agents,
    mean_difference,
    vote_noise,
)
from prill.io.outputs import Content, check_output, write_output
from prill.io.store import read_labels, read_verdicts
from prill.io.tables import Table, Tabular, markdown_cell, printable
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.runs.base import Printed, asynchronous
from prill.runs.trust.agree import read_runs
from prill.types import EvaluatorInfo, Verdict
from prill.ui.report.difference import difference_svg

Change = Literal["to failure", "to success", "none", "mixed", "unscored"]
_MAX_ROWS = 30  # of a list of changed tasks
_MAX_REASON = 300  # characters
_COLUMNS: dict[str, type] = {
    **{"task": str, "change": str, "runs_a": int, "runs_b": int, "rate_a": float, "rate_b": float},
}


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Config):
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
            description="Trajectory file that was judged, or the two of A and B. They show "
            "which runs share a task. Without them, runs with the same id share one."
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
    plot: Annotated[
        str | Path | None,
        Meta(description="Chart of the difference with its intervals to write (SVG)."),
    ] = None

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: The options conflict.
        """
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
        strangers: The number of verdicts on runs that the trajectory files lack.
    """

    file: str
    evaluator: EvaluatorInfo
    runs: int
    unscored: Mapping[str, int]
    strangers: int


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
        decision: Whether B meets the requirement; None: no requirement was set.
        config: The configuration of the run.
    """

    a: ComparedSide
    b: ComparedSide
    by_verdicts: AgentDifference | None
    by_labels: AgentDifference | None = None
    judge_error: Figure | None = None
    tasks: tuple[ComparedTask, ...]
    decision: Decision | None = None
    config: CompareConfig

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
                *(_share([run.success for run in runs]) for runs in (task.a, task.b)),
            )
            for task in self.tasks
        )
        return Table(tuple(_COLUMNS), rows, _COLUMNS)

    def svg(self) -> str:
        """Returns the chart of the difference with its intervals, as SVG text."""
        rows = [(name, figure, ends) for name, figure, ends in _rows(self)]
        margin = Requirement.parse(self.config.require).margin if self.config.require else None
        return difference_svg("Success of B less that of A", rows, margin)

    def __str__(self) -> str:
        return "\n".join(_page(self))


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
    a, b = (_read_side(config, index) for index in (0, 1))
    if len(config.trajectories) == 1 and (twice := a.verdicts.keys() & b.verdicts.keys()):
        raise UsageError(
            f"{min(twice)!r} and {len(twice) - 1} other runs are in both verdict files; "
            "give the trajectories of A and B as two files, or compare two judges with "
            "`against` of `prill agree`",
            parameters=("trajectories",),
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
        by_labels=_difference(everything, a.labelled, b.labelled, needed=by_labels)
        if config.labels
        else None,
        judge_error=_judge_error(tasks, a, b) if config.labels else None,
        tasks=tuple(
            _compared_task(name[1].removeprefix("/"), ids, (a, b), config)
            for name, ids in sorted(tasks.items())
        ),
        config=config,
    )
    if config.require is not None:
        result = replace(result, decision=Requirement.parse(config.require).decide(result.ends))
    texts = {"junit": _junit, "markdown": _markdown, "plot": CompareResult.svg}
    for name, path, _ in outputs:
        if path is not None:
            write_output(path, texts[name](result).encode())
    return result


compare_async = asynchronous(compare)
"""Runs `compare` in a thread, with the same parameters, for programs with an event loop."""


@dataclass(frozen=True)
class _Side:
    """One agent: its runs by task, the verdicts on each, and its labels."""

    file: str
    evaluator: EvaluatorInfo
    tasks: dict[tuple[bool, str], list[str]]
    verdicts: dict[str, list[Verdict]]
    labels: dict[str, bool | None]
    strangers: int

    def scores(self, id: str) -> tuple[bool, ...]:
        """Returns the scored verdicts on a run."""
        verdicts = self.verdicts.get(id, ())
        return tuple(verdict.success for verdict in verdicts if verdict.success is not None)

    def votes(self, id: str) -> tuple[bool, ...]:
        """Returns the votes of samples of one judge behind the first verdict on a run."""
        verdicts = self.verdicts.get(id)
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
        reasons = Counter(why for id in ids if (why := self.unscored(id, by_labels)) is not None)
        return ComparedSide(
            file=self.file,
            evaluator=self.evaluator,
            runs=len(ids),
            unscored=dict(reasons.most_common()),
            strangers=self.strangers,
        )


def _read_side(config: CompareConfig, index: int) -> _Side:
    """Reads the files of A (0) or B (1)."""
    path, again = ((config.a, config.a_again), (config.b, config.b_again))[index]
    evaluator, latest = latest_verdicts(read_verdicts(path))
    verdicts = {id: [verdict] for id, verdict in latest.items()}
    for more in again:
        other, repeated = latest_verdicts(read_verdicts(more))
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
        for id, verdict in repeated.items():
            verdicts.setdefault(id, []).append(verdict)
    names = None
    ids = list(verdicts)
    if config.trajectories:
        names = read_runs(config.trajectories[min(index, len(config.trajectories) - 1)], ()).tasks
        ids = list(names) if len(config.trajectories) == 2 else [id for id in ids if id in names]
    tasks: dict[tuple[bool, str], list[str]] = {}
    for id in ids:
        tasks.setdefault(cluster(id, names), []).append(id)
    labels: dict[str, bool | None] = {}
    if config.labels:
        _, labels = gold_labels(
            read_labels(config.labels[min(index, len(config.labels) - 1)]),
            config.source,
            config.truth,
        )
    return _Side(
        file=str(path),
        evaluator=evaluator,
        tasks=tasks,
        verdicts=verdicts,
        labels=labels,
        strangers=0 if names is None else sum(id not in names for id in verdicts),
    )


def _difference(
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
    found = _difference(tasks, a.scores, b.scores, needed=needed)
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
    shares = [_share([run.success for run in side]) for side in runs]
    return ComparedTask(task=name, change=_change(*shares), a=runs[0], b=runs[1])


def _change(a: float | None, b: float | None) -> Change:
    if a is None or b is None:
        return "unscored"
    if 0.5 in (a, b):
        return "mixed"
    return "none" if (a > 0.5) == (b > 0.5) else "to success" if b > 0.5 else "to failure"


def _share(outcomes: Iterable[float | None]) -> float | None:
    scored = [outcome for outcome in outcomes if outcome is not None]
    return round(sum(scored) / len(scored), 9) if scored else None


def _name(task: tuple[bool, str] | None) -> str:
    return "none" if task is None else repr(task[1])


def _decision_line(result: CompareResult) -> str:
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


def _rows(result: CompareResult) -> Iterator[tuple[str, Figure, tuple[float, float] | None]]:
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
    for name, figure, _ in _rows(result):
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
        yield f"Requirement {_decision_line(result)}"
    for change in ("to failure", "to success"):
        tasks = result.changed(change)
        if tasks:
            yield from ("", f"Changed {change} ({len(tasks)})")
        for task in tasks[:_MAX_ROWS]:
            yield f"  {printable(task.task)}"
            for name, runs in (("A", task.a), ("B", task.b)):
                yield from (f"    {name} {_describe_run(run)}" for run in runs)
        if len(tasks) > _MAX_ROWS:
            yield f"  … and {len(tasks) - _MAX_ROWS} more; the JSON output lists all"


def _describe_run(run: ComparedRun) -> str:
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
        if side.strangers:
            yield f"Left out, {name}: {side.strangers} verdicts without a trajectory"
    if main.bounds is not None:
        low, high = main.bounds
        yield (
            f"  left out; B - A of all runs is from {low:.3f} to {high:.3f}, with intervals "
            f"{interval(main.bounds_interval)}"
        )


# Characters that XML 1.0 does not allow.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _junit(result: CompareResult) -> str:
    """Returns a JUnit report: the requirement as a test that can fail, and each task as a test
    case.

    Tasks also change by chance, so a single task never fails.
    """
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    root = Element("testsuites", name="prill compare")

    def suite(name: str, count: int, failures: int, errors: int, skipped: int) -> Element:
        counts = {"tests": count, "failures": failures, "errors": errors, "skipped": skipped}
        return SubElement(
            root, "testsuite", {"name": name, **{key: str(n) for key, n in counts.items()}}
        )

    def case(parent: Element, kind: str, name: str) -> Element:
        return SubElement(parent, "testcase", classname=f"prill.{kind}", name=_xml(name), time="0")

    if result.decision is not None:
        failed, open_ = (int(result.decision == word) for word in ("fail", "inconclusive"))
        test = case(
            suite("requirement", 1, failed, open_, 0), "requirement", result.config.require or ""
        )
        if result.decision != "pass":
            kind = "failure" if failed else "error"
            SubElement(test, kind, type=result.decision, message=_xml(_decision_line(result)))
    unscored = result.changed("unscored")
    tasks = suite("tasks", len(result.tasks), 0, 0, len(unscored))
    for task in result.tasks:
        test = case(tasks, "task", task.task)
        lines = [
            f"{s} {_describe_run(run)}"
            for s, runs in (("A", task.a), ("B", task.b))
            for run in runs
        ]
        if task.change == "unscored":
            SubElement(test, "skipped", message=_xml("; ".join(lines)))
        elif task.change != "none":
            SubElement(test, "system-out").text = _xml("\n".join([f"{task.change}:", *lines]))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _xml(text: str) -> str:
    return _NO_XML.sub("?", text)


def _markdown(result: CompareResult) -> str:
    """Returns the summary as Markdown, for a pull request."""
    main = result.main
    head = "difference" if result.decision is None else result.decision
    lines = [f"## prill compare: {head}", ""]
    if result.decision is not None:
        lines += [markdown_cell(_decision_line(result)), ""]
    lines += [f"**Warning:** {markdown_cell(caution)}\n" for caution in _cautions(result)]
    rows = [("A, success", main.rate_a, "-"), ("B, success", main.rate_b, "-")]
    for name, figure, _ in _rows(result):
        rows.append((name, figure.value, interval(figure.ends)))
    types = {"": str, "value": float, "95 % interval": str}
    lines.append(Table(tuple(types), tuple(rows), types).to_markdown())
    lines.append(
        f"{main.tasks} tasks; p {main.sign_flip:.4f} by sign flips, {main.mcnemar:.4f} by "
        f"McNemar's exact test. Unscored: {main.unscored_a} of A, {main.unscored_b} of B.\n"
    )
    for change in ("to failure", "to success"):
        tasks = result.changed(change)
        if tasks:
            lines += [f"### Changed {change} ({len(tasks)})", ""]
        for task in tasks[:_MAX_ROWS]:
            lines.append(f"* {markdown_cell(task.task)}")
            for name, runs in (("A", task.a), ("B", task.b)):
                lines += [f"  * {name} {_markdown_run(run)}" for run in runs]
        if tasks:
            lines.append(
                f"* … and {len(tasks) - _MAX_ROWS} more\n" if len(tasks) > _MAX_ROWS else ""
            )
    return "\n".join(lines) + "\n"


def _markdown_run(run: ComparedRun) -> str:
    text = markdown_cell(_describe_run(replace(run, link=None)))
    return f"{text} ([report]({quote(run.link, safe='/:#=%?&')}))" if run.link else text
