"""Measures the effect of attacks on a judge's verdicts and false positives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isnan
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

from prill.config.registry import nearest
from prill.errors import NoEvidenceError, UsageError
from prill.evaluators.attacks.families import ON_SCREENSHOTS, Variant, families, own_attacks
from prill.evaluators.attacks.texts import attack_texts
from prill.evaluators.fitted.overlap import Overlap, find_overlap
from prill.evaluators.labels import gold_labels, make_task
from prill.evaluators.metrics import SEED as SEED  # re-exported
from prill.evaluators.metrics import bootstrap, sum_clusters, wilson
from prill.evaluators.wrappers.rewritten import Rewritten
from prill.io.store import TrajectoryReader, read_labels, read_verdicts
from prill.protocols import Evaluator
from prill.scoring.scorer import Tally, score_files
from prill.types import EvaluatorInfo, Trajectory, Verdict

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
    `fitted` counts the original runs that the judge was fitted on.
    """

    evaluator: EvaluatorInfo
    source: str
    attacks_version: str
    texts: str
    clusters: int
    worst: str | None
    effects: tuple[AttackEffect, ...]
    fitted: Overlap | None = None


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


def labelled_tasks(
    paths: Paths,
    labels: str | PathLike[str],
    *,
    source: str | None = None,
    truth: str = "majority",
    limit: int | None = None,
) -> tuple[str, dict[str, bool | None], dict[str, str]]:
    """Returns the label source, the labels by id, and the task of each trajectory with a decided
    label.

    Raises UsageError if no label matches.
    """
    source, gold = gold_labels(read_labels(labels), source, truth)
    with closing(TrajectoryReader(paths, limit)) as reader:
        tasks = {
            item.id: make_task(item)
            for _, item in reader
            if isinstance(item, Trajectory) and gold.get(item.id) is not None
        }
    if not tasks:
        raise UsageError(
            f"{fspath(labels)}: no decided label of source {source!r} is about one of these "
            "trajectories"
        )
    return source, gold, tasks


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
    source, gold, tasks = labelled_tasks(paths, labels, source=source, truth=truth, limit=limit)
    before = {verdict.id: verdict for verdict in read_verdicts(folder / f"{BEFORE}.jsonl")}
    effects = []
    for name, attack in selection.items():
        after = {verdict.id: verdict for verdict in read_verdicts(folder / f"{name}.jsonl")}
        trials = [
            trial(task, bool(gold[id]), before.get(id), after.get(id), name)
            for id, task in tasks.items()
        ]
        effects.append(effect(attack, trials, seed))
    fitted = find_overlap(verdict for id in tasks if (verdict := before.get(id)) is not None)
    return red_team(
        next(iter(before.values())).evaluator, source, len(set(tasks.values())), effects, fitted
    )


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
