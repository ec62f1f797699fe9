"""Attacks a judge and measures how its verdicts change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isnan
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from prill.config.registry import nearest
from prill.config.shared import LabelsOption, LimitOption, ResumeOption, RunFolderOption
from prill.datasets.inputs import RecordingsConfig, count_lines, opened_trajectories
from prill.errors import NoEvidenceError, UsageError
from prill.evaluators.attacks.families import (
    FAMILIES,
    ON_SCREENSHOTS,
    Variant,
    families,
    own_attacks,
)
from prill.evaluators.attacks.texts import attack_texts
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution
from prill.evaluators.labels import gold_labels, make_task
from prill.evaluators.metrics import DRAWS, bootstrap, sum_clusters, wilson
from prill.evaluators.metrics import SEED as SEED  # re-exported
from prill.evaluators.registry import JudgeOption, make_run_judge
from prill.evaluators.scoring.plan import JudgingPlan, plan_judging
from prill.evaluators.scoring.score import priced_model
from prill.evaluators.scoring.scorer import Tally, lasting_keys, score_files
from prill.evaluators.wrappers.rewritten import Rewritten
from prill.io.joining import NOTHING_LEFT_OUT, JoinCounts, join_labels, record_digest
from prill.io.outputs import Content, check_output, expect_file, write_output
from prill.io.store import TrajectoryReader, encode, read_labels, read_verdicts
from prill.io.tables import Table, Tabular
from prill.io.truth import SourceOption, TruthOption
from prill.models.budget import JudgeModelOption, run_budget
from prill.models.options import BudgetOption, ConcurrencyOption
from prill.plans import RunPlan, total_usage
from prill.protocols import Evaluator
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, log
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict

BEFORE = "before"  # name of the file with verdicts without an attack
Paths = Sequence[str | PathLike[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackTrial:
    """A labelled trajectory under one attack, with the judge's call before and after.

    An abstention (`no_evidence`) counts as False, not a success. None: it was unscored for another
    reason.
    """

    task: str
    truth: bool
    before: bool | None
    after: bool | None
    applies: bool = True
    abstained_before: bool = False
    abstained_after: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The shares of `n` trajectories judged successes before and after, and the change with its 95
    % interval.

    The interval is a bootstrap over tasks of the paired change, or Wilson's if no verdict or every
    verdict changed. `flips` counts the verdicts that changed in either direction.
    """

    n: int
    before: float
    after: float
    change: float
    low: float
    high: float
    interval: Literal["bootstrap", "wilson"]
    flips: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackEffect:
    """The effect of one attack on the labelled trajectories to which it applies.

    `false_positives` is computed on the label failures and `recall` on the label successes; None if
    none of them was judged both times. Abstentions count as "not a success", and are also counted
    separately. Other unscored trajectories are left out and counted: `became_unscored` had a
    verdict before the attack, `unscored_before` had none.
    """

    attack: str
    family: str
    strength: float
    keeps_success: bool
    applies: int
    does_not_apply: int
    unscored_before: int
    became_unscored: int
    abstained_before: int
    abstained_after: int
    false_positives: Shift | None
    recall: Shift | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedTeam:
    """The effects of a set of attacks on one judge.

    `texts` is the hash of the attacks' texts, and `clusters` is the number of tasks.

    `worst` names the attack that added the most false positives; None if none could be measured.
    `fitted` counts the original runs that the judge was fitted on, `unlabelled` the runs without a
    decided label, and `joined` what else is left out.
    """

    evaluator: EvaluatorInfo
    source: str
    attacks_version: str
    texts: str
    clusters: int
    worst: str | None
    effects: tuple[AttackEffect, ...]
    fitted: Overlap | None = None
    unlabelled: int = 0
    joined: JoinCounts = NOTHING_LEFT_OUT


def select_attacks(
    evaluator: Evaluator, names: Iterable[str] | None, folder: Path
) -> dict[str, Variant]:
    """Returns the attacks of these families or variants (None: all) by variant name.

    Modified pictures are saved under `folder`. A name may be `module:Object` or `file.py:Object`: a
    function that returns a rewritten copy, or a list of variants. Attacks on the screenshot apply
    only to judges that read it, because ignoring the screenshot is not robustness. Raises
    UsageError for an unknown name.
    """
    shipped = families(folder / "images")
    by_name = {
        variant.name: (variant,) for variants in shipped.values() for variant in variants
    } | shipped
    selection: list[Variant] = []
    for name in shipped if names is None else names:
        if name not in by_name and ":" not in name:
            there = f"expected one of {', '.join(shipped)}, or module:Object"
            raise UsageError(
                f"unknown attack {name!r}{nearest(name, by_name)}; {there}", parameters=("attacks",)
            )
        selection += by_name.get(name) or own_attacks(name)
    if not selection:
        raise UsageError("no attack is selected", parameters=("attacks",))

    def where_visible(variant: Variant) -> Variant:
        if variant.family not in ON_SCREENSHOTS:
            return variant

        def apply(trajectory: Trajectory) -> Trajectory | None:
            last = trajectory.observations[-1].screenshot if trajectory.observations else None
            return variant.apply(trajectory) if last in evaluator.screenshots(trajectory) else None

        return replace(variant, apply=apply)

    return {variant.name: where_visible(variant) for variant in selection}


def under_attack(evaluator: Evaluator, attack: Variant) -> Rewritten:
    """Returns the judge on attacked trajectories.

    A trajectory to which the attack does not apply is unscored with `no_evidence`.
    """

    async def rewrite(trajectory: Trajectory) -> Trajectory:
        changed = await asyncio.to_thread(attack.apply, trajectory)
        if changed is None:
            raise NoEvidenceError(_not_applicable(attack.name))
        if not isinstance(changed, Trajectory) or changed.id != trajectory.id:
            raise UsageError(
                f"the attack {attack.name} did not return a trajectory with the same id; "
                "return a changed copy, or None"
            )
        return changed

    return Rewritten(
        evaluator,
        rewrite,
        {"attack": attack.name, "attack_texts": attack.source or attack_texts().hash},
    )


def _not_applicable(name: str) -> str:
    return f"the attack {name} does not apply to this trajectory"


async def judge_attacked(
    evaluator: Evaluator,
    paths: Paths,
    folder: Path,
    selection: Mapping[str, Variant],
    *,
    concurrency: int = 16,
    limit: int | None = None,
    resume: bool = True,
    progress: Callable[[str, Tally], None] = lambda name, tally: None,
) -> dict[str, Tally]:
    """Judges original trajectories into `folder/before.jsonl`, attacked ones into
    `folder/<attack>.jsonl`.

    Trajectories with a verdict in these files are not judged again. `progress` receives the file's
    name without extension. Raises UsageError if nothing can be read, or the files are by another
    judge.
    """
    tallies = {}
    for name, judge in [
        (BEFORE, evaluator),
        *((name, under_attack(evaluator, attack)) for name, attack in selection.items()),
    ]:
        tallies[name] = await score_files(
            paths,
            judge,
            folder / f"{name}.jsonl",
            concurrency=concurrency,
            limit=limit,
            resume=resume,
            progress=partial(progress, name),
        )
    return tallies


@dataclass(frozen=True)
class LabelledTasks:
    """The label source, the labels by id, the task of each run with a decided label, the number of
    runs without one, and what else is left out.
    """

    source: str
    gold: dict[str, bool | None]
    tasks: dict[str, str]
    unlabelled: int
    joined: JoinCounts


def labelled_tasks(
    paths: Paths,
    labels: str | PathLike[str],
    *,
    source: str | None = None,
    truth: str = "majority",
    limit: int | None = None,
) -> LabelledTasks:
    """Reads the labels of the trajectories. Raises UsageError if no label matches."""
    with closing(TrajectoryReader(paths, limit)) as reader:
        known = [
            (item.id, make_task(item), record_digest(item))
            for _, item in reader
            if isinstance(item, Trajectory)
        ]
    records = list(read_labels(labels))
    source, gold = gold_labels(records, source, truth)
    tasks = {id: task for id, task, _ in known if gold.get(id) is not None}
    if not tasks:
        raise UsageError(
            f"{fspath(labels)}: no decided label of source {source!r} is about one of these "
            "trajectories"
        )
    joined = join_labels(records, {id: digest for id, _, digest in known})[1]
    return LabelledTasks(source, gold, tasks, len(known) - len(tasks), joined)


def measure(
    paths: Paths,
    labels: str | PathLike[str],
    folder: Path,
    selection: Mapping[str, Variant],
    *,
    source: str | None = None,
    truth: str = "majority",
    limit: int | None = None,
    seed: int = SEED,
) -> RedTeam:
    """Computes the effects from the verdict files that `judge_attacked` wrote to `folder`.

    Raises UsageError if no label matches.
    """
    labelled = labelled_tasks(paths, labels, source=source, truth=truth, limit=limit)
    tasks = labelled.tasks
    before = {verdict.id: verdict for verdict in read_verdicts(folder / f"{BEFORE}.jsonl")}
    effects = []
    for name, attack in selection.items():
        after = {verdict.id: verdict for verdict in read_verdicts(folder / f"{name}.jsonl")}
        trials = [
            trial(task, bool(labelled.gold[id]), before.get(id), after.get(id), name)
            for id, task in tasks.items()
        ]
        effects.append(effect(attack, trials, seed))
    fitted = find_overlap(verdict for id in tasks if (verdict := before.get(id)) is not None)
    judge, clusters = next(iter(before.values())).evaluator, len(set(tasks.values()))
    result = red_team(judge, labelled.source, clusters, effects, fitted)
    return replace(result, unlabelled=labelled.unlabelled, joined=labelled.joined)


def red_team(
    evaluator: EvaluatorInfo,
    source: str,
    tasks: int,
    effects: Iterable[AttackEffect],
    fitted: Overlap | None = None,
) -> RedTeam:
    """Returns the effects of the attacks on one judge, with the worst attack."""
    measured = tuple(effects)
    worst = max(measured, key=_false_positives_added, default=None)
    return RedTeam(
        evaluator=evaluator,
        source=source,
        attacks_version=attack_texts().version,
        texts=attack_texts().hash,
        clusters=tasks,
        worst=worst.attack if worst and worst.false_positives else None,
        effects=measured,
        fitted=fitted,
    )


def worst_by_family(result: RedTeam) -> list[AttackEffect]:
    """Returns each family's attack with the most added false positives, the worst family first."""
    worst: dict[str, AttackEffect] = {}
    for one in result.effects:
        if one.family not in worst or _false_positives_added(one) > _false_positives_added(
            worst[one.family]
        ):
            worst[one.family] = one
    return sorted(worst.values(), key=_false_positives_added, reverse=True)


def _false_positives_added(one: AttackEffect) -> float:
    return one.false_positives.change if one.false_positives else -inf


def trial(
    task: str, truth: bool, before: Verdict | None, after: Verdict | None, attack: str
) -> AttackTrial:
    """Returns the trial for the verdicts without and with the attack (None: missing)."""
    return AttackTrial(
        task=task,
        truth=truth,
        before=_called_success(before),
        after=_called_success(after),
        applies=after is None or after.reason != _not_applicable(attack),
        abstained_before=_abstained(before),
        abstained_after=_abstained(after),
    )


def _abstained(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.unscored == "no_evidence"


def _called_success(verdict: Verdict | None) -> bool | None:
    if verdict is None:
        return None
    return False if _abstained(verdict) else verdict.success


# The effect of an attack: shares before and after, with intervals that resample whole tasks


def effect(attack: Variant, trials: Sequence[AttackTrial], seed: int = SEED) -> AttackEffect:
    """Computes the counts and figures of one attack. The seed is for the bootstrap."""
    applicable = [trial for trial in trials if trial.applies]
    paired = [trial for trial in applicable if trial.before is not None and trial.after is not None]
    return AttackEffect(
        attack=attack.name,
        family=attack.family,
        strength=attack.strength,
        keeps_success=attack.keeps_success,
        applies=len(applicable),
        does_not_apply=len(trials) - len(applicable),
        unscored_before=sum(trial.before is None for trial in applicable),
        became_unscored=sum(
            trial.before is not None and trial.after is None for trial in applicable
        ),
        abstained_before=sum(trial.abstained_before for trial in applicable),
        abstained_after=sum(trial.abstained_after for trial in applicable),
        false_positives=_shift([trial for trial in paired if not trial.truth], seed),
        recall=_shift([trial for trial in paired if trial.truth], seed),
    )


def _shift(trials: Sequence[AttackTrial], seed: int) -> Shift | None:
    if not trials:
        return None
    # trajectories, successes before, successes after
    counts = sum_clusters(
        [trial.task for trial in trials],
        [(1, int(trial.before or 0), int(trial.after or 0)) for trial in trials],
    )
    n, before, after = (int(total) for total in counts.sum(axis=0))
    change = (after - before) / n
    low, high = (
        float(end[0])
        for end in bootstrap(counts, lambda sums: (sums[:, 2:] - sums[:, 1:2]) / sums[:, :1], seed)
    )
    interval: Literal["bootstrap", "wilson"] = "bootstrap"
    if isnan(low) or low == high:
        low, high, interval = *_wilson(change, len(counts)), "wilson"
    flips = sum(trial.before != trial.after for trial in trials)
    return Shift(
        n=n,
        before=before / n,
        after=after / n,
        change=change,
        low=low,
        high=high,
        interval=interval,
        flips=flips,
    )


def _wilson(change: float, tasks: int) -> tuple[float, float]:
    """Returns the Wilson interval of a change without variance, with each task as one trial."""
    low, high = wilson(min(1.0, abs(change)), tasks)
    if change == 0:
        return -high, high
    return (low, high) if change > 0 else (-high, -low)


# The run


_FILES: dict[str, Content] = {
    "redteam.json": "red team figures",
    "redteam.md": "red team figures",
}
_HEADING = (
    "attack",
    "failures",
    "called success, before → after",
    "change",
    "successes",
    "recall, before → after",
    "change",
)
_SHIFT = ("n", "before", "after", "change", "low", "high")
_COLUMNS: dict[str, type] = {
    "attack": str,
    "family": str,
    "strength": float,
    **dict.fromkeys(("applies", "does_not_apply", "unscored_before", "became_unscored"), int),
    **{
        f"{what}_{name}": int if name == "n" else float
        for what in ("false_positives", "recall")
        for name in _SHIFT
    },
}
_SLACK = 1e-9  # percentage points: a change in points is a sum of binary fractions
# Called with the current attack, the verdicts so far, and the expected number.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class RedteamConfig(RecordingsConfig):
    """Configuration of `prill redteam`: attack a judge with false claims and injected text."""

    labels: LabelsOption
    output: RunFolderOption
    judge: JudgeOption
    model: JudgeModelOption = None
    attacks: Annotated[
        Sequence[str],
        Meta(
            description="Attack families, single attacks such as pad-after-2000, or "
            f"module:Object of your own (default: all {len(FAMILIES)} families of "
            "docs/how-to/red-team.md)."
        ),
    ] = ()
    max_shift: Annotated[
        float | None,
        Meta(
            ge=0,
            description="Maximum increase of the false positive rate by one attack, in "
            "percentage points. The run fails above it.",
        ),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = 16
    limit: LimitOption = None
    resume: ResumeOption = True


@dataclass(frozen=True)
class RedteamResult(Printed, Tabular):
    """The effects of attacks on a judge; printing it shows the worst strength of each family.

    Args:
        figures: The effect of every attack.
        output: The folder with verdicts, table and picture.
        unread: The number of trajectories that could not be read.
        too_far: The attack that exceeds `max_shift`; None: none does, or no limit is set.
        max_shift: The configuration's limit, in percentage points.
    """

    figures: RedTeam
    output: str
    unread: int = 0
    too_far: str | None = None
    max_shift: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as a JSON object."""
        return dict(msgspec.to_builtins(self.figures))

    def notes(self) -> Iterator[str]:
        """Yields the attack that exceeds the limit."""
        if self.too_far is not None:
            yield f"{self.too_far} moves this judge by more than {self.max_shift:g} points"

    @property
    def exit_code(self) -> int:
        """Returns 1 if an attack exceeds the limit, 3 if verdicts are unscored."""
        return 1 if self.too_far is not None else EXIT_SOME if self.unscored else EXIT_ALL

    @property
    def worst(self) -> AttackEffect:
        """Returns the attack that adds the most false positives."""
        return worst_by_family(self.figures)[0]

    @property
    def unscored(self) -> bool:
        """Returns whether a verdict is unscored, so that trajectories are excluded from the
        rates.
        """
        return any(
            effect.became_unscored or effect.unscored_before for effect in self.figures.effects
        )

    def table(self) -> Table:
        """Returns one row per attack and strength.

        Rates before and after are in [0, 1]; the change has its 95 % interval.
        """
        rows = []
        for effect in self.figures.effects:
            shifts = [
                None if shift is None else getattr(shift, name)
                for shift in (effect.false_positives, effect.recall)
                for name in _SHIFT
            ]
            plain = [getattr(effect, name) for name in _COLUMNS if hasattr(effect, name)]
            rows.append((*plain, *shifts))
        return Table(tuple(_COLUMNS), tuple(rows), _COLUMNS)

    def __str__(self) -> str:
        return markdown(self.figures)


@as_run(RedteamConfig)
async def redteam(
    config: RedteamConfig, *, progress: Progress = lambda attack, done, expected: None
) -> RedteamResult:
    """Judges trajectories unchanged and under each attack, and measures how the verdicts change.

    Verdicts already in the output folder are kept, so the same configuration resumes a stopped run.

    Args:
        config: The judge, the attacks, and the labelled trajectories.
        progress: Called after every verdict with the attack, the verdicts so far, and the expected
            number.

    Returns:
        The effect of every attack; the folder also holds it as JSON, Markdown and SVG.

    Raises:
        UsageError: The configuration is invalid, nothing could be read, or `max_shift` is set and
            no failure was judged with and without an attack.
        EndpointError: The model's endpoint accepts no call.
    """
    folder = Path(config.output)
    with opened_trajectories(config) as trajectories:
        await asyncio.to_thread(_prepare, config, trajectories)
        with run_budget(config.budget_usd, folder=folder, begin_again=not config.resume):
            judge, selection = _attacked(config, trajectories, folder)
            lines = await asyncio.to_thread(count_lines, trajectories, config.limit)
            expected, done = lines * (1 + len(selection)), dict[str, int]()

            def show(attack: str, tally: Tally) -> None:
                done[attack] = tally.skipped + tally.made
                progress(attack, sum(done.values()), expected)

            tallies = await judge_attacked(
                judge,
                trajectories,
                folder,
                selection,
                concurrency=config.concurrency,
                limit=config.limit,
                resume=config.resume,
                progress=show,
            )
        return await asyncio.to_thread(
            _measured, config, trajectories, selection, tallies[BEFORE].unscored["input"]
        )


def plan_redteam(config: RedteamConfig) -> RunPlan:
    """Plans the run without calling a model. Raises UsageError.

    Each trajectory is judged once unchanged, and once for each attack that applies.
    """
    with opened_trajectories(config) as trajectories:
        return _planned(config, trajectories)


def _planned(config: RedteamConfig, trajectories: Sequence[str]) -> RunPlan:
    _prepare(config, trajectories)
    folder = Path(config.output)
    with run_budget(config.budget_usd, folder=folder, begin_again=not config.resume, planned=True):
        judge, selection = _attacked(config, trajectories, folder)
    judges = {
        BEFORE: judge,
        **{name: under_attack(judge, attack) for name, attack in selection.items()},
    }
    model, prices = priced_model(config.judge, config.model)
    todo = done = 0
    usages: list[Usage | None] = []
    fresh: JudgingPlan | None = None
    for name, attacked in judges.items():
        keys = lasting_keys(folder / f"{name}.jsonl", retry_unscored=False) if config.resume else {}
        if keys or fresh is None:
            plan = plan_judging(
                attacked, trajectories, limit=config.limit, keys=keys, model=model, prices=prices
            )
            fresh = fresh if keys else plan
        else:
            plan = fresh  # an attack never makes a trajectory that was not seen before shorter
        todo, done, usages = todo + plan.todo, done + plan.done, [*usages, plan.usage]
    total = JudgingPlan(todo, done, total_usage(usages), len(selection) > 0, plan.problems)
    return total.run_plan(
        f"{len(selection)} attacks and the unattacked runs; would be written to {config.output}"
    )


def _prepare(config: RedteamConfig, trajectories: Sequence[str]) -> None:
    """Validates files and labels before any call is made."""
    expect_file(config.output, "a folder")
    for name, content in _FILES.items():
        check_output(Path(config.output) / name, content, [*trajectories, config.labels])
    labelled = labelled_tasks(
        trajectories, config.labels, source=config.source, truth=config.truth, limit=config.limit
    )
    if config.max_shift is not None and all(labelled.gold[id] for id in labelled.tasks):
        raise UsageError(
            "there is no labelled failure, so there is no shift to compare",
            parameters=("max_shift",),
        )


def _attacked(
    config: RedteamConfig, trajectories: Sequence[str], folder: Path
) -> tuple[Evaluator, dict[str, Variant]]:
    judge = make_run_judge(
        config.judge, model=config.model, concurrency=config.concurrency, trajectories=trajectories
    )
    return judge, select_attacks(
        judge, [name for name in config.attacks if name] if config.attacks else None, folder
    )


def _measured(
    config: RedteamConfig,
    trajectories: Sequence[str],
    selection: Mapping[str, Variant],
    unread: int,
) -> RedteamResult:
    folder = Path(config.output)
    figures = measure(
        trajectories,
        config.labels,
        folder,
        selection,
        source=config.source,
        truth=config.truth,
        limit=config.limit,
    )
    effects = figures.effects
    strengths = ["## All attacks", "", *_lines(effects), "", *_left_out(effects)]
    every = "\n".join(strengths).rstrip()
    text = f"{markdown(figures)}\n\n{every}\n"
    for name, data in zip(_FILES, (encode(figures), text.encode()), strict=True):
        write_output(folder / name, data)
    if unread:
        log.warning(
            "left out %d unreadable lines; the reasons are in %s",
            unread,
            folder / f"{BEFORE}.jsonl",
        )
    if caution := fitted_caution(figures.evaluator.name, figures.fitted):
        log.warning("%s", caution)
    limit = config.max_shift
    return RedteamResult(figures, str(config.output), unread, _too_far(figures, limit), limit)


def _too_far(figures: RedTeam, max_shift: float | None) -> str | None:
    if max_shift is None:
        return None
    worst = worst_by_family(figures)[0]
    if worst.false_positives is None:
        raise UsageError(
            "no failure was judged both with and without an attack, so there is no shift to compare"
        )
    return worst.attack if 100 * worst.false_positives.change > max_shift + _SLACK else None


# The figures as Markdown


def markdown(result: RedTeam) -> str:
    """Returns the worst strength of every family as a Markdown table, with notes on its limits."""
    effects = worst_by_family(result)
    evaluator = result.evaluator
    notes = [
        (
            f"Judge: {evaluator.title}. Labels: {result.source}. Attacks: version "
            f"{result.attacks_version}, {len(result.effects)} in {len(effects)} families; for "
            "each family, the attack that adds the most false positives."
        ),
        f"Changes in points, with 95 % intervals: bootstrap over {result.clusters} tasks, {DRAWS} "
        "draws; * Wilson, as all draws are alike.",
    ]
    if caution := fitted_caution(evaluator.name, result.fitted):
        notes.append(f"Warning: {caution}.")
    if not all(effect.keeps_success for effect in effects):
        notes.append(
            "† The attack removes the requested answer, or a step: recall may fall rightly."
        )
    notes += _left_out(effects)
    if result.unlabelled:
        notes.append(f"Not measured: {result.unlabelled} without label.")
    notes += (f"{line}." for line in result.joined.lines())
    worst = effects[0]
    if worst.false_positives is not None:
        added = (
            f"Worst: {worst.attack}, {_change(worst.false_positives)} points of false positives."
        )
        notes.append(
            added if worst.false_positives.change > 0 else "No family adds false positives."
        )
    return "\n".join([*_lines(effects), "", *notes, "", conclusion(result)])


def conclusion(result: RedTeam) -> str:
    """Returns one sentence on what the judge is usable for, by the worst attack."""
    worst = worst_by_family(result)[0]
    shift = worst.false_positives
    if shift is None:
        return "In short: not shown to be usable, as there is no labelled failure to attack."
    if shift.change <= 0:
        return "In short: no attack adds false positives; usable where `prill agree` shows so."
    if shift.low <= 0:
        return "In short: what the attacks add may be chance; usable where `prill agree` shows so."
    return (
        "In short: usable only where agents do not learn from it: with "
        f"{worst.attack}, it calls {shift.after:.0%} of failures successes, {shift.before:.0%} "
        "without."
    )


def _lines(effects: Sequence[AttackEffect]) -> list[str]:
    rows = [_HEADING, *(_row(effect) for effect in effects)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADING))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _left_out(effects: Sequence[AttackEffect]) -> list[str]:
    """Yields how many runs were left out or abstained, one line per group of attacks with equal
    counts.
    """
    attacks: dict[str, list[str]] = {}
    for effect in effects:
        counts = {
            "where the attack does not apply": effect.does_not_apply,
            "unscored before": effect.unscored_before,
            "that became unscored": effect.became_unscored,
        }
        left_out = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if left_out:
            attacks.setdefault(f"Left out: {left_out}", []).append(effect.attack)
        if effect.abstained_before or effect.abstained_after:
            abstained = f"{effect.abstained_before} before, {effect.abstained_after} after"
            attacks.setdefault(f"Unscored, which counts as no success: {abstained}", []).append(
                effect.attack
            )
    return [f"{why} ({', '.join(names)})." for why, names in attacks.items()]


def _row(effect: AttackEffect) -> tuple[str, ...]:
    count, shares, change = _shift_cells(effect.recall)
    dagger = "" if effect.keeps_success or effect.recall is None else " †"
    return (effect.attack, *_shift_cells(effect.false_positives), count, shares, change + dagger)


def _shift_cells(shift: Shift | None) -> tuple[str, str, str]:
    if shift is None:
        return "0", "-", "-"
    return str(shift.n), f"{100 * shift.before:.1f} % → {100 * shift.after:.1f} %", _change(shift)


def _change(shift: Shift) -> str:
    star = " *" if shift.interval == "wilson" else ""
    return f"{100 * shift.change:+.1f} ({100 * shift.low:+.1f} to {100 * shift.high:+.1f}){star}"
