"""Joins runs, verdicts and labels by id, and counts what does not belong together."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from prill.errors import UsageError
from prill.types import EvaluatorInfo, LabelRecord, Observation, Trajectory, Verdict

_encode = msgspec.json.Encoder(order="sorted").encode
MAX_IDS = 3  # named in a line


@dataclass(frozen=True, kw_only=True)
class JoinCounts:
    """What the figures leave out, in numbers.

    Args:
        runs: The number of runs in the trajectory files. None: no such file was given.
        without_verdict: The number of these runs without any verdict, not even an unscored one.
        unscored: The number of verdicts on these runs that are unscored.
        other_verdicts: The number of verdicts of other runs, which are not used.
        other_labels: The number of labels of other runs, which are not used.
        replaced: The number of verdicts that a later verdict on the same run replaces.
        repeated: The number of labels that are equal to an earlier one.
        examples: Some of the runs without a verdict.
    """

    runs: int | None = None
    without_verdict: int = 0
    unscored: int = 0
    other_verdicts: int = 0
    other_labels: int = 0
    replaced: int = 0
    repeated: int = 0
    examples: tuple[str, ...] = ()

    def lines(self, of: str = "") -> Iterator[str]:
        """Yields lines with the counts that are not 0; `of` names whose they are."""
        if self.without_verdict:
            more = self.without_verdict - len(self.examples)
            names = ", ".join(map(repr, self.examples)) + (f" and {more} more" if more else "")
            yield f"Runs without a verdict{of}: {self.without_verdict} of {self.runs} ({names})"
        unused = {
            "verdicts of other runs": self.other_verdicts,
            "labels of other runs": self.other_labels,
            "verdicts that later ones replace": self.replaced,
        }
        if any(unused.values()):
            listed = ", ".join(f"{count} {what}" for what, count in unused.items() if count)
            yield f"Not used{of}: {listed}"
        if self.repeated:
            yield f"Repeated{of}: {self.repeated} labels are equal to an earlier one"


NOTHING_LEFT_OUT = JoinCounts()


@dataclass(frozen=True)
class Joined:
    """The judge, its last verdict on each run, the labels of the runs, in order, and the counts."""

    judge: EvaluatorInfo
    verdicts: dict[str, Verdict]
    labels: tuple[LabelRecord, ...]
    counts: JoinCounts


def join(
    verdicts: Iterable[Verdict],
    labels: Iterable[LabelRecord] = (),
    runs: Mapping[str, str] | None = None,
) -> Joined:
    """Joins verdicts and labels with the runs that were judged.

    Args:
        verdicts: The verdicts of one judge.
        labels: The labels.
        runs: The digest of each run (`record_digest`) by id. None: every verdict and label counts.

    Returns:
        The verdicts and labels of these runs.

    Raises:
        UsageError: No verdict is on one of the runs, the verdicts are by several judges, or some
            are on other contents of the runs.
    """
    known = list(verdicts)
    judge, latest = latest_verdicts(known)
    kept, counts = join_labels(labels, runs)
    used = latest
    missing: list[str] = []
    if runs is not None:
        used = {id: verdict for id, verdict in latest.items() if id in runs}
        missing = [id for id in runs if id not in latest]
        if not used:
            raise UsageError(
                "the trajectories do not match the verdicts: none has the id "
                f"{next(iter(latest))!r}"
            )
        expect_same_runs(used.values(), runs)
    counts = replace(
        counts,
        without_verdict=len(missing),
        unscored=sum(verdict.success is None for verdict in used.values()),
        other_verdicts=len(latest) - len(used),
        replaced=len(known) - len(latest),
        examples=tuple(missing[:MAX_IDS]),
    )
    return Joined(judge, used, kept, counts)


def join_labels(
    labels: Iterable[LabelRecord], runs: Collection[str] | None
) -> tuple[tuple[LabelRecord, ...], JoinCounts]:
    """Returns the labels of the runs with these ids (None: all), and the counts.

    If `runs` maps to digests, raises UsageError like `expect_same_runs`.
    """
    every = list(labels)
    kept = tuple(label for label in every if runs is None or label.id in runs)
    if isinstance(runs, Mapping):
        expect_same_runs(kept, runs)
    return kept, JoinCounts(
        runs=None if runs is None else len(runs),
        other_labels=len(every) - len(kept),
        repeated=len(kept) - len({_encode(label) for label in kept}),
    )


def latest_verdicts(verdicts: Iterable[Verdict]) -> tuple[EvaluatorInfo, dict[str, Verdict]]:
    """Returns the judge of all verdicts, and the last verdict for each id.

    All verdicts must be by one judge, including those that a later verdict replaces.
    """
    first: EvaluatorInfo | None = None
    latest = {}
    for verdict in verdicts:
        if first is None:
            first = verdict.evaluator
        elif verdict.evaluator != first:
            both = " and ".join(
                f"{e.name} {e.version} ({e.model}, {e.prompt}, {e.params})"
                for e in (first, verdict.evaluator)
            )
            raise UsageError(
                f"the verdicts come from several judges ({both}); keep the verdicts of each "
                "in a file of its own"
            )
        latest[verdict.id] = verdict
    if first is None:
        raise UsageError("there are no verdicts")
    return first, latest


def expect_same_runs(decisions: Iterable[Verdict | LabelRecord], runs: Mapping[str, str]) -> None:
    """Raises UsageError if verdicts or labels are on other contents of the runs, by their digests.

    Verdicts of earlier versions and labels of oracles have no digest, and are not compared.
    """
    compared = [decision for decision in decisions if decision.record and decision.id in runs]
    changed = [decision for decision in compared if decision.record != runs[decision.id]]
    if changed:
        noun, done = ("verdict", "judged") if isinstance(changed[0], Verdict) else ("label", "seen")
        raise UsageError(
            f"{len(changed)} of {len(compared)} {noun}s are on other contents of the "
            f"trajectories with their ids (such as {changed[0].id!r}): the file changed after it "
            f"was {done}; make the {noun}s again, or give the file that was {done}"
        )


def record_digest(trajectory: Trajectory) -> str:
    """Returns the digest (`sha256:…`) of what a trajectory says about its run.

    It covers the task, states, actions, thoughts and the answer. It does not cover what can change
    without another run: the id, the agent's name, captions, paths of images, and metadata.
    """
    return f"sha256:{hashlib.sha256(_encode(_bare(trajectory))).hexdigest()}"


def _bare(trajectory: Trajectory) -> Trajectory:
    task = replace(trajectory.task, earlier=tuple(map(_bare, trajectory.task.earlier)))
    steps = tuple(
        replace(step, observation=_bare_state(step.observation)) for step in trajectory.steps
    )
    final = trajectory.final and _bare_state(trajectory.final)
    return replace(trajectory, id="", agent=None, metadata={}, task=task, steps=steps, final=final)


def _bare_state(state: Observation) -> Observation:
    return replace(state, screenshot=None, caption=None)
