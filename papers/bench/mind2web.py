"""Computes agents' results on recorded steps (Mind2Web, MT-Mind2Web): elements, operations, steps
and turns, with 95 % intervals.

Element accuracy and operation F1 are means over turns of the mean over a turn's steps. For
MT-Mind2Web (Self-MAP, ACL 2024), step success (SSR) is the mean over conversations of the fraction
of their steps that are right, and turn success (TSR) the mean over conversations of the fraction of
their turns with all steps right. For Mind2Web (arXiv 2306.06070), all figures are means over tasks.
All are computed once, after the last step. The papers' code differs: it skips last steps without a
positive, and divides by turns where it averages over conversations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from prill.errors import InputError
from prill.evaluators.metrics import intervals, ratio_of_rows, wilson
from prill.io.store import BadLine, iter_trajectories
from prill.papers.bench.papers import Paper, theirs
from prill.papers.mind2web.pages.state import (
    USUAL,
    Marking,
    StepScore,
    StepTarget,
    describe_step,
    format_conversation,
    read_state,
)
from prill.papers.replies import ReplyCounts, recorded
from prill.types import Trajectory, Usage

FORMAT = "prill bench mind2web 1"
RECALLS = (1, 5, 10, 20, 50)
Counting = Literal["mt-mind2web", "mind2web", "micro"]
# The metrics that each paper prints, in the paper's order.
METRICS: Mapping[Counting, tuple[str, ...]] = {
    "mt-mind2web": ("Ele. Acc", "Op. F1", "SSR", "TSR"),
    "mind2web": ("Ele. Acc", "Op. F1", "Step SR", "SR"),
    "micro": ("Ele. Acc", "Op. F1", "Step SR"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A recorded turn and the targets of its steps. Lengths are in characters."""

    id: str
    conversation: str
    number: int = 0
    site: str = "none"
    split: str = "all"
    asked: tuple[StepTarget, ...]
    instruction: int = 0
    elements: tuple[int, ...] = ()
    pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """An agent's score for each step of a turn. None: the episode was aborted."""

    turn: RecordedTurn
    scores: tuple[StepScore, ...] | None
    seed: int = 0
    usage: Usage = field(default_factory=Usage)
    replies: ReplyCounts = field(default_factory=ReplyCounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigure:
    """A mean and its 95 % interval from resampled conversations. None where no result is known."""

    share: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results of a row's turns, averaged in three ways. Aborted turns are only in `missing`."""

    name: str
    conversations: int
    turns: int
    steps: int
    missing: int = 0
    replies: ReplyCounts = field(default_factory=ReplyCounts)
    figures: Mapping[Counting, Mapping[str, StepFigure]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How often the best candidate is right, and the fraction of steps with one in the best k."""

    first: Figures
    recall: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TheirRow:
    """A paper's published results for one of its agents on this split."""

    name: str
    model: str
    figures: Mapping[str, float]
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The results for one split: all turns, by position in a conversation, and by website."""

    name: str
    all: Figures
    ranking: Ranking
    by_turn: tuple[Figures, ...]
    by_site: tuple[Figures, ...]
    theirs: tuple[TheirRow, ...] = ()
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBench:
    """All figures of an agent on recorded turns.

    Args:
        format: The version of the file format.
        agent: The agent's name.
        counting: How averages are taken: over the turns of conversations, or over single tasks.
        marking: How steps were marked.
        settings: What else was recorded.
        missing: How many turns ended with an error.
        not_begun: How many turns could not begin.
        usage: The cost of the episodes, including those that ended with an error.
        splits: The figures by split.
        sources: The sources of the published figures.
    """

    format: str = FORMAT
    agent: str
    counting: Counting
    marking: Marking
    settings: Mapping[str, Any] = field(default_factory=dict)
    missing: int
    not_begun: int = 0
    usage: Usage = field(default_factory=Usage)
    splits: tuple[Split, ...]
    sources: tuple[str, ...] = ()


def recorded_turns(
    file: Path, split: str, broken: Callable[[str], object] | None = None
) -> Iterator[RecordedTurn]:
    """Reads the turns of a file one by one; pages are not kept.

    Args:
        file: A trajectory file of recorded turns.
        split: The name of the split that the turns belong to.
        broken: Called with the problem of each broken turn. None: it raises.

    Yields:
        The turns, in the order of the file.

    Raises:
        InputError: A turn is broken and `broken` is None.
    """
    for item in iter_trajectories(file, on_error="yield"):
        try:
            if isinstance(item, BadLine):
                raise InputError(item.message)
            states = [read_state(step.observation.text or "") for step in item.steps]
        except (InputError, ValueError) as error:
            shown = error if isinstance(error, InputError) else f"{file}: turn {item.id!r}: {error}"
            if broken is None:
                raise InputError(str(shown)) from None
            broken(str(shown))
            continue
        number = item.metadata.get("turn")
        yield RecordedTurn(
            id=item.id,
            conversation=format_conversation(item),
            number=number if isinstance(number, int) else 0,
            site=item.task.site or "none",
            split=split,
            asked=tuple(map(describe_step, item.steps)),
            instruction=len(item.task.goal),
            elements=tuple(len(state.candidates) + len(state.withheld) for state in states),
            pages=tuple(len(state.page) for state in states),
        )


def played_turn(
    turn: RecordedTurn, episode: Trajectory, marking: Marking = USUAL, *, seed: int = 0
) -> PlayedTurn:
    """Scores an agent's episode of a recorded turn.

    Args:
        turn: The recorded turn.
        episode: The agent's episode.
        marking: How a step is marked.
        seed: The seed that the episode was played with.

    Returns:
        The turn with a score for each recorded step. A step that the agent did not take is wrong;
        an episode with an error has no scores (None).
    """
    usage = recorded(episode.metadata, "usage", Usage)
    replies = recorded(episode.metadata, "replies", ReplyCounts)
    if episode.error is not None:
        return PlayedTurn(turn, None, seed, usage, replies)
    return PlayedTurn(turn, tuple(marking.scores(turn.asked, episode)), seed, usage, replies)


def compute_figures(played: Iterable[PlayedTurn], name: str = "all") -> Figures:
    """Computes the results of these turns. The seeds of a conversation form one cluster."""
    every = list(played)
    known = [one for one in every if one.scores]
    rows = _rows(known)
    return Figures(
        name=name,
        conversations=len({one.turn.conversation for one in known}),
        turns=len(known),
        steps=sum(len(one.scores or ()) for one in known),
        missing=len(every) - len(known),
        replies=sum((one.replies for one in every), start=ReplyCounts()),
        figures=_figures(rows),
    )


def compute_ranking(turns: Iterable[RecordedTurn]) -> Ranking:
    """Computes the quality of the candidate order, independent of the agent."""
    every = list(turns)
    first = [
        PlayedTurn(turn, tuple(StepScore(float(bool(asked.within(1)))) for asked in turn.asked))
        for turn in every
    ]
    steps = [asked for turn in every for asked in turn.asked]
    recall = {k: fmean(bool(asked.within(k)) for asked in steps) for k in RECALLS} if steps else {}
    return Ranking(first=compute_figures(first, "rank 0"), recall=recall)


def describe_data(
    turns: Iterable[RecordedTurn], theirs: Sequence[float] = ()
) -> dict[str, Any] | None:
    """Computes statistics of recorded turns: means, lengths in characters, and a paper's numbers.
    None without a turn that has steps.
    """
    every = [turn for turn in turns if turn.asked and turn.elements]
    if not every:
        return None
    conversations = len({turn.conversation for turn in every})
    return {
        "conversations": conversations,
        "turns": len(every),
        "turns_each": len(every) / conversations,
        "actions": fmean(len(turn.asked) for turn in every),
        "elements": fmean(fmean(turn.elements) for turn in every),
        "instruction": fmean(turn.instruction for turn in every),
        "page": fmean(fmean(turn.pages) for turn in every),
        "theirs": tuple(theirs),
    }


def recorded_bench(
    played: Sequence[PlayedTurn],
    papers: Sequence[Paper] = (),
    *,
    agent: str,
    marking: Marking = USUAL,
    settings: Mapping[str, Any] | None = None,
    not_begun: int = 0,
) -> RecordedBench:
    """Computes the results of played turns for each split, next to published ones.

    Args:
        played: The scored turns.
        papers: Published figures.
        agent: The agent's name.
        marking: How the steps were marked.
        settings: What else to record. None: nothing.
        not_begun: How many turns could not begin. They count in no figure.

    Returns:
        The figures; accuracies and success rates are in [0, 1].
    """
    several = any(one.turn.number for one in played)
    counting: Counting = "mt-mind2web" if several else "mind2web"
    splits = []
    for name, of_split in _grouped(played, lambda one: one.turn.split).items():
        turns = {one.turn.id: one.turn for one in of_split}.values()
        printed = [paper.data[name] for paper in papers if several and name in paper.data]
        by_number = sorted(of_split, key=lambda one: one.turn.number)
        splits.append(
            Split(
                name=name,
                all=compute_figures(of_split, name),
                ranking=compute_ranking(turns),
                by_turn=_rows_by(by_number, lambda one: str(one.turn.number + 1)),
                by_site=_rows_by(of_split, lambda one: one.turn.site),
                data=describe_data(turns, *printed[:1]),
                theirs=tuple(
                    row for paper in papers for row in _theirs(paper, name, METRICS[counting])
                ),
            )
        )
    named = {row.name for split in splits for row in split.theirs}
    return RecordedBench(
        agent=agent,
        counting=counting,
        marking=marking,
        settings=dict(settings or {}),
        missing=sum(one.scores is None for one in played),
        not_begun=not_begun,
        usage=sum((one.usage for one in played), start=Usage()),
        splits=tuple(splits),
        sources=tuple(
            line
            for paper in papers
            if any(their_name(paper, column.name) in named for column in paper.columns)
            for line in (f"theirs: {paper.paper}. From {paper.source}.", *paper.notes)
        ),
    )


def _rows_by(played: Iterable[PlayedTurn], key: Callable[[PlayedTurn], str]) -> tuple[Figures, ...]:
    return tuple(compute_figures(some, name) for name, some in _grouped(played, key).items())


def _rows(played: Iterable[PlayedTurn]) -> list[list[float]]:
    """Returns a row for each conversation: the sum of each of `METRICS`, then what each is a mean
    over.
    """
    names = ("element", "f1", "success")
    by_conversation: dict[str, dict[int, list[tuple[StepScore, ...]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for one in played:
        by_conversation[one.turn.conversation][one.seed].append(one.scores or ())
    rows = []
    for seeds in by_conversation.values():
        turns = [scores for of_seed in seeds.values() for scores in of_seed]
        steps = [score for scores in turns for score in scores]
        over_turns = [sum(fmean(getattr(one, n) for one in turn) for turn in turns) for n in names]
        over_turns.append(sum(all(one.success for one in turn) for turn in turns))
        right = [[[one.success for one in turn] for turn in some] for some in seeds.values()]
        over_seeds = [
            sum(fmean(chain.from_iterable(some)) for some in right),
            sum(fmean(map(all, some)) for some in right),
        ]
        over_steps = [sum(getattr(score, name) for score in steps) for name in names]
        counts = [len(turns)] * 2 + [len(seeds)] * 2 + [len(turns)] * 4 + [len(steps)] * 3
        rows.append([*over_turns[:2], *over_seeds, *over_turns, *over_steps, *counts])
    return rows


def _figures(rows: Sequence[Sequence[float]]) -> dict[Counting, dict[str, StepFigure]]:
    import numpy as np

    if not rows:
        return {
            counting: dict.fromkeys(metrics, StepFigure(share=None))
            for counting, metrics in METRICS.items()
        }
    table = np.array(rows, float)
    shares = map(float, ratio_of_rows(table.sum(axis=0, keepdims=True))[0])
    lows, highs = intervals(table, ratio_of_rows, (0.0,) * (table.shape[1] // 2))
    known = iter(zip(shares, map(float, lows), map(float, highs), strict=True))

    def figure(share: float, low: float, high: float) -> StepFigure:
        if not low < high:  # identical rows or a single one: each conversation is one trial
            low, high = wilson(share, len(rows))
        return StepFigure(share=share, low=float(low), high=float(high))

    return {
        counting: {metric: figure(*next(known)) for metric in metrics}
        for counting, metrics in METRICS.items()
    }


def _grouped(
    played: Iterable[PlayedTurn], key: Callable[[PlayedTurn], str]
) -> dict[str, list[PlayedTurn]]:
    groups: dict[str, list[PlayedTurn]] = defaultdict(list)
    for one in played:
        groups[key(one)].append(one)
    return dict(groups)


def _theirs(paper: Paper, split: str, metrics: Sequence[str]) -> Iterator[TheirRow]:
    """Yields a paper's results for a split. Its rows are named `SPLIT: METRIC`."""
    if f"{split}: {metrics[-1]}" not in paper.printed:
        return
    printed = {metric: theirs(paper, f"{split}: {metric}", ()) for metric in metrics}
    for i, column in enumerate(paper.columns):
        known = {
            metric: figure.success
            for metric, row in printed.items()
            if (figure := row[i]) is not None
        }
        if known:
            yield TheirRow(
                name=their_name(paper, column.name),
                model=column.model,
                figures=known,
                seconds=column.seconds,
            )


def their_name(paper: Paper, column: str) -> str:
    """Returns the display name of a row with a paper's results."""
    return column if paper.title in column else f"{paper.title}: {column}"
