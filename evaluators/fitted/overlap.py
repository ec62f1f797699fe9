"""Detects verdicts on runs that the judge was fitted to.

Fitted files contain digests of their runs and tasks (`FittedRuns`), and each verdict records the
relation of its run to them (`Verdict.fitted_on`). A verdict file alone therefore shows whether its
figures are held out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from prill.evaluators.labels import make_task
from prill.types import EvaluatorInfo, FittedOn, Trajectory, Verdict

# The note of `prill fit --out-of-fold` in each verdict; in files of earlier versions it is only in
# the reason.
OUT_OF_FOLD = "by a judge fitted without the runs of this task"
_FITTED = ("student", "prior", "stacked")
_CALIBRATED = "calibrated "
# Relations in order of precedence: the one that biases figures most comes first.
_WORST: tuple[FittedOn, ...] = ("run", "unknown", "task", "other")
_SPEECH = ("answer", "stop", "message")  # wrappers remove the text of these actions


class RunDigests(NamedTuple):
    """The digests of a run and of its task."""

    run: str
    task: str


@dataclass(frozen=True, kw_only=True)
class FittedRuns:
    """Digests of the labelled runs and tasks of a fit; `ids` if only the runs' ids are known."""

    runs: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    @staticmethod
    def of(pairs: Iterable[RunDigests]) -> FittedRuns:
        """Returns the fitted runs with these digests, in sorted order."""
        known = list(pairs)
        return FittedRuns(
            runs=tuple(sorted({pair.run for pair in known})),
            tasks=tuple(sorted({pair.task for pair in known})),
        )

    @staticmethod
    def named(ids: Iterable[str]) -> FittedRuns:
        """Returns the fitted runs with these ids."""
        return FittedRuns(ids=tuple(sorted({_digest(id) for id in ids})))

    def relation(self, trajectory: Trajectory) -> FittedOn:
        """Returns the relation of a run to the fitted runs."""
        runs, tasks, ids = self._sets
        run, task = compute_digests(trajectory)
        if run in runs or (ids and _digest(trajectory.id) in ids):
            return "run"
        return "task" if task in tasks else "other"

    @cached_property
    def _sets(self) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        return frozenset(self.runs), frozenset(self.tasks), frozenset(self.ids)


def compute_digests(trajectory: Trajectory) -> RunDigests:
    """Computes the digests of a run and of its task.

    The run's digest covers the task and the actions. It does not depend on captions, image paths,
    the id or the agent's claims.
    """
    actions = []
    for step in trajectory.steps:
        action = step.action
        texts = (action.text,) if action.kind == "other" else (action.target, action.value)
        done = () if action.kind in _SPEECH else (*texts, action.point, action.end_point)
        actions.append((action.kind, *done, step.observation.url))
    task = make_task(trajectory)
    return RunDigests(_digest(repr((task, trajectory.task.goal, actions))), _digest(task))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def worst(relations: Iterable[FittedOn | None]) -> FittedOn | None:
    """Returns the relation of a verdict that combines several others; None if none was fitted."""
    found = set(relations)
    return next((relation for relation in _WORST if relation in found), None)


def get_relation(verdict: Verdict) -> FittedOn | None:
    """Returns the relation of the verdict's run to the fitted runs, also for files of earlier
    versions.

    It is `unknown` if a part was fitted to unrecorded runs, and None if nothing was fitted.
    """
    if verdict.fitted_on is not None:
        return verdict.fitted_on
    if verdict.unscored == "input":  # malformed lines never reach a judge
        return None
    if not was_fitted(verdict.evaluator):
        return None
    return "other" if verdict.reason.endswith(OUT_OF_FOLD) else "unknown"


def was_fitted(info: EvaluatorInfo) -> bool:
    """Returns whether the judge, or a part of it, was fitted to or calibrated on labels."""
    if info.name in _FITTED or info.name.startswith(_CALIBRATED):
        return True
    inner = info.params.get("judges")
    return isinstance(inner, list | tuple) and any(
        isinstance(part, dict) and isinstance(part.get("name"), str) and was_fitted(_info(part))
        for part in inner
    )


def _info(part: dict[str, object]) -> EvaluatorInfo:
    params = part.get("params")
    return EvaluatorInfo(str(part["name"]), "", params=params if isinstance(params, dict) else {})


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Counts of verdicts by the run's relation to the fitted runs.

    The judge was fitted on the run, on another run of its task or on neither, or the relation is
    unknown.
    """

    run: int = 0
    task: int = 0
    other: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        """The number of verdicts by fitted judges."""
        return self.run + self.task + self.other + self.unknown

    @property
    def flatters(self) -> bool:
        """Whether figures of these verdicts include, as far as known, data that the judge was
        fitted on.

        Such figures are biased.
        """
        return bool(self.run or self.unknown)

    def caution(self, judge: str) -> str | None:
        """Returns a caution for these verdicts' figures; None if all runs and tasks are new."""
        parts = []
        if self.run:
            parts.append(
                f"was fitted on {self._share(self.run)}: its figures on them are too good, "
                "and do not apply to other runs"
            )
        if self.unknown:
            parts.append(
                f"was fitted on labels, possibly those of {self._share(self.unknown)}: fit "
                "it again to record them"
            )
        if self.task:
            parts.append(
                f"was fitted on other runs of the tasks of {self._share(self.task)}: it may "
                "be less accurate on new tasks"
            )
        return f"{judge} {'; it '.join(parts)}" if parts else None

    def _share(self, part: int) -> str:
        return f"{part:,} of these {self.total:,} runs" if self.total != 1 else "this run"


def find_overlap(verdicts: Iterable[Verdict]) -> Overlap | None:
    """Returns the counts over these verdicts; None if nothing was fitted."""
    counts = Counter[str](
        relation for verdict in verdicts if (relation := get_relation(verdict)) is not None
    )
    return Overlap(**counts) if counts else None


def overlap_with(
    fitted_to: FittedRuns | None, trajectories: Iterable[Trajectory]
) -> Overlap | None:
    """Returns the counts of these runs by their relation to `fitted_to`; None without runs."""
    counts = Counter[str](
        "unknown" if fitted_to is None else fitted_to.relation(run) for run in trajectories
    )
    return Overlap(**counts) if counts else None


def fitted_caution(judge: str, overlap: Overlap | None) -> str | None:
    """Returns the warning for the named judge; None if it was fitted on none of these."""
    return overlap.caution(judge) if overlap else None


def describe_relation(relation: FittedOn) -> str:
    """Returns the description of a relation for a verdict."""
    return {
        "run": "on this very run: the verdict does not show its accuracy on other runs",
        "task": "on other runs of this task",
        "other": "on runs of other tasks",
        "unknown": "on unknown runs: this one may be among them",
    }[relation]


def held_out_verdicts(
    info: EvaluatorInfo,
    ids: Sequence[str],
    found: Sequence[tuple[float | None, bool]],
    silent: str,
    told: Sequence[str] = (),
) -> list[Verdict]:
    """Returns verdicts from out-of-fold probabilities (None: unscored, as `silent`) and calls.

    `told` has what to say of each run first.
    """
    blank = Verdict(
        id="",
        unscored="no_evidence",
        reason=f"{silent}, {OUT_OF_FOLD}",
        evaluator=info,
        fitted_on="other",
    )
    reasons = [f"{words}; {OUT_OF_FOLD}" if words else OUT_OF_FOLD for words in told]
    return [
        replace(blank, id=id)
        if p is None
        else replace(blank, id=id, success=success, score=p, unscored=None, reason=reason)
        for id, (p, success), reason in zip(
            ids, found, reasons or [OUT_OF_FOLD] * len(ids), strict=True
        )
    ]
