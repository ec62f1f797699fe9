"""Novelty guard: a fitted judge returns `no_evidence` for runs unlike its training data.

Missing evidence must not become a verdict. A page that is blank, padded or written in lookalike
letters lacks the words that count against success. The guard therefore measures how much text a
page has, and what share of it the judge knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor

from prill.evaluators.fitted.features import MAX_CHARACTERS, Reading

# The range excludes the lowest and highest 1 % of the fitted runs, and its upper end is raised by
# 25 %.
_LEFT_OUT, _BEYOND = 0.01, 1.25
# A word counts if it occurs in runs of three tasks: a word of a single task identifies the task,
# not the outcome.
TASKS_OF_A_WORD = 3
_WHAT = "that of the runs it was fitted on"


@dataclass(frozen=True, kw_only=True)
class NoveltyGuard:
    """The range of the last states that a student was fitted on.

    `characters` and `words` (distinct words) are the minimum and maximum. `coverage` is the minimum
    share of the words, without numbers, that are in `vocabulary`.
    """

    characters: tuple[int, int]
    words: tuple[int, int]
    coverage: float
    vocabulary: tuple[str, ...]

    @cached_property
    def known(self) -> frozenset[str]:
        """The vocabulary as a set."""
        return frozenset(self.vocabulary)

    def objection(self, reading: Reading) -> str | None:
        """Returns the reason why the run cannot be judged, or None."""
        if not reading.characters:
            return "the last state has neither text nor caption"
        words = reading.words["state"]
        for count, (least, most), unit in (
            (reading.characters, self.characters, "characters"),
            (len(words), self.words, "different words"),
        ):
            if not least <= count <= most:
                return f"the last state has {count:,} {unit}; {_WHAT} had {least:,} to {most:,}"
        coverage = _share(len(words & self.known), words)
        if coverage < self.coverage:
            return (
                f"only {coverage:.0%} of the words of the last state are known; of {_WHAT} "
                f"at least {self.coverage:.0%} were"
            )
        return None


# Rejects only states without any text.
OPEN = NoveltyGuard(
    characters=(1, MAX_CHARACTERS), words=(0, MAX_CHARACTERS), coverage=0.0, vocabulary=()
)


def fit_guard(readings: Sequence[Reading], tasks: Sequence[str]) -> NoveltyGuard:
    """Fits the guard to these runs.

    The known share of a run's words is computed without the runs of its own task.
    """
    task_counts: Counter[str] = Counter()
    words_by_task: dict[str, set[str]] = {}
    for reading, task in zip(readings, tasks, strict=True):
        words_by_task.setdefault(task, set()).update(reading.words["state"])
    for words in words_by_task.values():
        task_counts.update(word for word in words if not word.isdigit())
    vocabulary = tuple(
        sorted(word for word, count in task_counts.items() if count >= TASKS_OF_A_WORD)
    )
    elsewhere = {word for word in vocabulary if task_counts[word] > TASKS_OF_A_WORD}
    readable = [reading for reading in readings if reading.characters]
    lengths = sorted(reading.characters for reading in readable)
    counts = sorted(len(reading.words["state"]) for reading in readable)
    coverages = sorted(
        _share(len(reading.words["state"] & elsewhere), reading.words["state"])
        for reading in readable
    )
    least_length, most_length = _range(lengths)
    return NoveltyGuard(
        characters=(least_length, min(most_length, MAX_CHARACTERS)),
        words=_range(counts),
        # Round down, so that the run that sets the bound is inside it.
        coverage=floor(1e4 * coverages[int(_LEFT_OUT * len(coverages))]) / 1e4
        if coverages
        else 0.0,
        vocabulary=vocabulary,
    )


def _share(known_words: int, words: set[str]) -> float:
    return known_words / max(1, sum(not word.isdigit() for word in words))


def _range(ordered: Sequence[int]) -> tuple[int, int]:
    if not ordered:
        return (1, MAX_CHARACTERS)
    edge = int(_LEFT_OUT * len(ordered))
    return ordered[edge], round(ordered[-1 - edge] * _BEYOND)
