"""Finds probably wrong labels: all judges contradict them, or a success changed nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from prill.errors import InputError
from prill.evaluators.combine import opinion
from prill.evaluators.meta.agreement import Pairing
from prill.io.images import file_hash
from prill.types import Observation, Opinion, Trajectory


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A label that is probably wrong.

    Args:
        id: The trajectory's id.
        goal: The task's goal; None: no trajectory file was given.
        label: The label's success.
        reasons: The reasons why it may be wrong.
        judges: The opinion of each judge; the parts of a combined judge count as judges.
    """

    id: str
    goal: str | None = None
    label: bool
    reasons: tuple[str, ...]
    judges: tuple[Opinion, ...] = field(default=())


def find_suspects(
    pairings: Sequence[Pairing], trajectories: Iterable[Trajectory] = ()
) -> tuple[Suspect, ...]:
    """Finds labels that are probably wrong.

    Args:
        pairings: The verdicts of each judge, joined with the same labels.
        trajectories: The judged runs. Without them, states are not checked.

    Returns:
        The runs in which every judge with a scored verdict contradicts the label, and the labelled
        successes without an answer in which no recorded state differs from the first. They are
        sorted by the number of reasons, the number of contradicting judges, and the judges'
        confidence.
    """
    truths: dict[str, bool] = {}
    judges: dict[str, list[Opinion]] = {}
    for pairing in pairings:
        truths.update({pair.verdict.id: pair.truth for pair in pairing.pairs})
        for pair in pairing.pairs:
            judges.setdefault(pair.verdict.id, []).extend(
                pair.verdict.opinions or (opinion(pair.verdict),)
            )
    reasons: dict[str, list[str]] = {
        id: [text] for id, truth in truths.items() if (text := _contradiction(truth, judges[id]))
    }
    goals: dict[str, str] = {}
    for run in trajectories:
        goals[run.id] = run.task.goal
        if truths.get(run.id) and (text := _without_change(run)):
            reasons.setdefault(run.id, []).append(text)
    found = [
        Suspect(
            id=id,
            goal=goals.get(id),
            label=truths[id],
            reasons=tuple(texts),
            judges=tuple(judges[id]),
        )
        for id, texts in reasons.items()
    ]
    return tuple(sorted(found, key=lambda one: (-len(one.reasons), *_weight(one))))


def _contradiction(truth: bool, judges: Sequence[Opinion]) -> str | None:
    scored = [judge for judge in judges if judge.success is not None]
    if not scored or any(judge.success == truth for judge in scored):
        return None
    names = {True: "success", False: "failure"}
    return (
        f"labelled a {names[truth]}, but every judge says {names[not truth]} ({len(scored)} "
        f"of {len(judges)} are scored)"
    )


def _without_change(run: Trajectory) -> str | None:
    states = run.observations
    if run.answer or not states or len({*_looks(states)}) > 1:
        return None
    return (
        f"labelled a success, but no state differs from the first after {len(run.steps)} "
        "actions, and there is no answer"
    )


def _looks(states: Iterable[Observation]) -> Iterator[tuple[str | None, ...]]:
    """Yields each state's recorded content; an unreadable image is identified by its path."""
    for state in states:
        picture = state.screenshot
        if picture is not None:
            with suppress(InputError):
                picture = file_hash(picture)
        yield picture, state.text, state.url, state.caption


def _weight(suspect: Suspect) -> tuple[float, float, str]:
    against = [judge for judge in suspect.judges if judge.success is (not suspect.label)]
    sure = [abs((0.5 if judge.score is None else judge.score) - 0.5) for judge in against]
    return -len(against), -sum(sure), suspect.id
