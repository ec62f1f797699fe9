"""Detects verdicts on the very runs that a judge was fitted to.

What was fitted to labels keeps digests of the runs and tasks (`FittedRuns`), and each verdict
records how it stands to them (`Verdict.fitted_on`). So a verdict file alone tells what its figures
are worth, without the fitted file.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from prill.evaluators.labels import make_task
from prill.types import EvaluatorInfo, FittedOn, Trajectory, Verdict

# What `prill fit --out-of-fold` says in each verdict; files of earlier versions say so in the
# reason alone.
OUT_OF_FOLD = "by a judge fitted without the runs of this task"
_FITTED = ("student", "prior", "stacked")
_CALIBRATED = "calibrated "
# The order in which verdicts of several judges count: what flatters most comes first.
_WORST: tuple[FittedOn, ...] = ("run", "unknown", "task", "other")
_SPEECH = ("answer", "stop", "message")  # wrappers take away what these say


class RunDigests(NamedTuple):
    """What names a run, and its task."""

    run: str
    task: str


@dataclass(frozen=True, kw_only=True)
class FittedRuns:
    """Digests of the labelled runs that something was fitted to, and of their tasks; `ids` where
    only their ids are known.
    """

    runs: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    @staticmethod
    def of(pairs: Iterable[RunDigests]) -> FittedRuns:
        """Those of the runs with these digests, in an order that does not depend on theirs."""
        known = list(pairs)
        return FittedRuns(
            runs=tuple(sorted({pair.run for pair in known})),
            tasks=tuple(sorted({pair.task for pair in known})),
        )

    @staticmethod
    def named(ids: Iterable[str]) -> FittedRuns:
        """Those of the runs with these ids."""
        return FittedRuns(ids=tuple(sorted({_digest(id) for id in ids})))

    def relation(self, trajectory: Trajectory) -> FittedOn:
        """How a run stands to those."""
        runs, tasks, ids = self._sets
        run, task = compute_digests(trajectory)
        if run in runs or (ids and _digest(trajectory.id) in ids):
            return "run"
        return "task" if task in tasks else "other"

    @cached_property
    def _sets(self) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        return frozenset(self.runs), frozenset(self.tasks), frozenset(self.ids)


def compute_digests(trajectory: Trajectory) -> RunDigests:
    """Both digests of a run. That of the run names the task and what was done: it is the same with
    captions, with pictures elsewhere, under another id, and without what the agent says.
    """
    actions = []
    for step in trajectory.steps:
        action = step.action
        words = (action.text,) if action.kind == "other" else (action.target, action.value)
        done = () if action.kind in _SPEECH else (*words, action.point, action.end_point)
        actions.append((action.kind, *done, step.observation.url))
    task = make_task(trajectory)
    return RunDigests(_digest(repr((task, trajectory.task.goal, actions))), _digest(task))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def worst(relations: Iterable[FittedOn | None]) -> FittedOn | None:
    """What a verdict that rests on several others says of them; None where none was fitted."""
    found = set(relations)
    return next((relation for relation in _WORST if relation in found), None)


def get_relation(verdict: Verdict) -> FittedOn | None:
    """How the verdict's run stands to those that its judge was fitted to, also where earlier
    versions made the verdict.

    `unknown` where a part was fitted and nothing says to what; None where nothing was.
    """
    if verdict.fitted_on is not None:
        return verdict.fitted_on
    if verdict.unscored is not None and not _was_made(verdict):
        return None
    if not was_fitted(verdict.evaluator):
        return None
    return "other" if verdict.reason.endswith(OUT_OF_FOLD) else "unknown"


def _was_made(verdict: Verdict) -> bool:
    """Whether a judge saw the run at all: broken lines never reach one."""
    return verdict.unscored != "input"


def was_fitted(info: EvaluatorInfo) -> bool:
    """Whether the judge, or one inside it, was fitted to labels or calibrated on some."""
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
    """Of how many verdicts the judge was fitted on the run, on another run of its task, on neither;
    or nobody knows.
    """

    run: int = 0
    task: int = 0
    other: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        """All verdicts of what was fitted."""
        return self.run + self.task + self.other + self.unknown

    @property
    def flatters(self) -> bool:
        """Whether figures of these verdicts rest, as far as is known, on what the judge was fitted
        on: they are no measure.
        """
        return bool(self.run or self.unknown)

    def caution(self, judge: str) -> str | None:
        """What to say with every figure of these verdicts; None where each is of a run and a task
        new to the judge.
        """
        parts = []
        if self.run:
            parts.append(
                f"was fitted on {self._share(self.run)}: figures of them flatter it, and say "
                "nothing of other runs"
            )
        if self.unknown:
            parts.append(
                "was fitted to labels, and nothing says whether to those of "
                f"{self._share(self.unknown)}: fit it again"
            )
        if self.task:
            parts.append(
                f"was fitted on other runs of the tasks of {self._share(self.task)}: new tasks "
                "may be harder for it"
            )
        return f"{judge} {'; it '.join(parts)}" if parts else None

    def _share(self, part: int) -> str:
        return f"{part:,} of these {self.total:,} runs" if self.total != 1 else "this run"


def find_overlap(verdicts: Iterable[Verdict]) -> Overlap | None:
    """The counts over these verdicts; None where nothing was fitted."""
    counts = Counter[str](
        relation for verdict in verdicts if (relation := get_relation(verdict)) is not None
    )
    return Overlap(**counts) if counts else None


def overlap_with(
    fitted_to: FittedRuns | None, trajectories: Iterable[Trajectory]
) -> Overlap | None:
    """The counts over these runs for what was fitted to those, a threshold say; None where there
    are no runs.
    """
    counts = Counter[str](
        "unknown" if fitted_to is None else fitted_to.relation(run) for run in trajectories
    )
    return Overlap(**counts) if counts else None


def fitted_caution(judge: str, overlap: Overlap | None) -> str | None:
    """The caution for a judge of that name; None where it was fitted on none of these runs and
    tasks, or not at all.
    """
    return overlap.caution(judge) if overlap else None


def relation_words(relation: FittedOn) -> str:
    """What a verdict of such a judge says of its run."""
    return {
        "run": "on this very run: the verdict says nothing of how it judges others",
        "task": "on other runs of this task",
        "other": "on runs of other tasks",
        "unknown": "on runs that are not known: this one may be among them",
    }[relation]
