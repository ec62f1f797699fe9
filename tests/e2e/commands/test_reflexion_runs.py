"""Retries of twenty tasks each on MiniWoB++ and the local shop, in the real Chromium, under judges
that err in every way: the tables are worked out here from the courses of the tasks and the draws of
the judges, without the code that makes them.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from prill.cli import main
from prill.io.retries import OutcomeTable, ReflexionResults, read_results
from prill.io.store import read_labels
from tests.support.commands.command import environment
from tests.support.commands.reflexion_actors import COURSES, MINIWOB, SHOP
from tests.support.paths import SUPPORT

ACTORS = SUPPORT / "commands/reflexion_actors.py"
ATTEMPTS = 3
PLACES = {"miniwob": (MINIWOB, ("miniwob",)), "shop": (SHOP, ("webarena", "--shop"))}


class Rates(NamedTuple):
    """How a judge errs, and the score of a success that it calls a failure."""

    false_positives: float = 0.0
    false_negatives: float = 0.0
    unscored: float = 0.0
    lost_score: float = 0.4


LOSING = Rates(false_negatives=0.6)
# Each run takes what another one played already: the first one's attempts serve all.
RUNS: dict[str, tuple[Rates | None, str | None]] = {
    "oracle": (None, None),
    "losing": (LOSING, "oracle"),
    "losing, keep best": (LOSING, "losing"),
    "perfect": (Rates(), "losing"),
    "content": (Rates(false_positives=0.6), "losing"),
    "unsure": (Rates(unscored=0.5), "losing"),
}


@dataclass(frozen=True)
class Made:
    """One attempt by hand: whether it is right, and what the judge says: a success, or None, and a
    score.
    """

    truth: bool
    success: bool | None
    score: float


@dataclass(frozen=True)
class Place:
    """What was run somewhere: the folder, and for each task what follows the attempt's number in
    ids: it tells the settings.
    """

    folder: Path
    tasks: Sequence[str]
    settings: dict[str, str]
    codes: dict[str, int]

    def results(self, name: str) -> ReflexionResults:
        return read_results(self.folder / name)

    def table(self, name: str) -> OutcomeTable:
        table = self.results(name).table
        assert table is not None
        return table

    def id(self, task: str, number: int) -> str:
        return f"{task}-s0-a{number}-{self.settings[task]}"

    def by_hand(self, name: str) -> dict[str, list[Made]]:
        """The attempts at each task under the judge of this run."""
        return {task: list(self._attempts(task, RUNS[name][0] or Rates())) for task in self.tasks}

    def _attempts(self, task: str, rates: Rates) -> Iterator[Made]:
        for number, letter in enumerate(COURSES[task]):
            if letter == ".":  # the same lesson again
                return
            made = judged(self.id(task, number), letter == "S", rates)
            yield made
            if made.success is not False:
                return


def judged(id: str, truth: bool, rates: Rates) -> Made:
    """What the judge says of an attempt: numbers from 0 to 1 that hang on the id alone, against its
    rates.
    """

    def drawn(words: str) -> float:
        return int(sha256(f"0 {words}".encode()).hexdigest()[:16], 16) / 16**16

    if drawn(f"unscored {id}") < rates.unscored:
        return Made(truth, None, -1.0)
    wrong = drawn(id) < (rates.false_negatives if truth else rates.false_positives)
    return Made(
        truth, truth != wrong, (rates.lost_score if truth else 0.6) if wrong else float(truth)
    )


def answer(attempts: Sequence[Made], retries: int, keep_best: bool) -> bool:
    """Whether the answer after so many retries is right."""
    so_far = attempts[: retries + 1]
    return max(so_far, key=lambda made: made.score).truth if keep_best else so_far[-1].truth


@pytest.fixture(scope="module", params=list(PLACES))
def place(
    request: pytest.FixtureRequest, chromium: None, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    """All judges on the same attempts."""
    tasks, words = PLACES[request.param]
    folder, codes = tmp_path_factory.mktemp(request.param), {}
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        for name in os.environ.keys() - environment().keys():
            patch.delenv(name)
        # Ids, and so the draws of the judges, hang on the settings, also on the words that name the
        # agent.
        shutil.copy(ACTORS, folder)
        for name, (rates, baseline) in RUNS.items():
            command = [
                "reflexion",
                *words,
                "--tasks",
                ",".join(tasks),
                "--workers",
                "2",
                "--policy",
                f"{ACTORS.name}:Actor",
            ]
            command += ["--attempts", str(ATTEMPTS), "-o", name, *judge_options(rates)]
            command += ["--baseline", baseline] if baseline else []
            command += ["--keep-best"] if name.endswith("keep best") else []
            codes[name] = main(command)
    first = (label.id.rsplit("-", 3) for label in read_labels(folder / "oracle" / "labels.jsonl"))
    return Place(folder, tasks, {task: settings for task, _, _, settings in first}, codes)


def judge_options(rates: Rates | None) -> list[str]:
    if rates is None:
        return ["--judge", "oracle"]
    options = [
        f"--judge.{name.replace('_', '-')}={getattr(rates, name)}"
        for name in ("false_positives", "false_negatives", "unscored")
    ]
    return ["--judge", "noisy", *options, "--judge.wrong-margin=0.1"]


@pytest.mark.slow
def test_every_attempt_went_as_by_script(place: Place) -> None:
    truths = {
        label.id: label.success for label in read_labels(place.folder / "losing" / "labels.jsonl")
    }
    expected = {
        place.id(task, number): made.truth
        for task, attempts in place.by_hand("losing").items()
        for number, made in enumerate(attempts)
    }
    assert truths == expected
    assert len(place.tasks) == 20


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RUNS))
def test_tables_are_those_by_hand(place: Place, name: str) -> None:
    table, hand, keep_best = place.table(name), place.by_hand(name), name.endswith("keep best")
    solved = [
        sum(answer(attempts, retries, keep_best) for attempts in hand.values())
        for retries in range(ATTEMPTS)
    ]
    assert [(row.retries, row.solved, row.decided) for row in table.rows] == [
        (k, n, 20) for k, n in enumerate(solved)
    ]
    right = {task: answer(attempts, ATTEMPTS, keep_best) for task, attempts in hand.items()}
    assert table.gained == sum(
        right[task] and not attempts[0].truth for task, attempts in hand.items()
    )
    lost = sum(
        not right[task] and any(made.truth for made in attempts) for task, attempts in hand.items()
    )
    assert table.lost_to_false_negatives == lost
    assert table.kept_by_false_positives == sum(
        made[-1].success is True and not made[-1].truth for made in hand.values()
    )
    ends = Counter(end(task, attempts) for task, attempts in hand.items())
    assert table.ended == dict(ends)
    assert place.codes[name] == (3 if ends["unscored"] else 0)


def end(task: str, attempts: Sequence[Made]) -> str:
    last = attempts[-1].success
    if last is not False:
        return "unscored" if last is None else "accepted"
    return "attempts" if len(attempts) == ATTEMPTS else "repeated_lesson"


@pytest.mark.slow
def test_keep_best_loses_nothing_to_them(place: Place) -> None:
    plain, best = place.table("losing"), place.table("losing, keep best")
    assert plain.lost_to_false_negatives > 0 == best.lost_to_false_negatives
    for retries, row in enumerate(best.rows):
        hand = place.by_hand("losing").values()
        assert row.solved == sum(
            any(made.truth for made in attempts[: retries + 1]) for attempts in hand
        )
    assert best.rows[-1].solved == plain.rows[-1].solved + plain.lost_to_false_negatives


@pytest.mark.slow
def test_calls_are_counted_by_hand(place: Place) -> None:
    results, table = place.results("oracle"), place.table("oracle")
    # After a failure a lesson is drawn, unless it was the last attempt.
    assert table.reflector.calls == 41 - 18 - 1
    assert (
        table.actor.calls
        == sum(attempt.actor.calls for task in results.tasks for attempt in task.attempts)
        >= 41
    )
    assert table.calls_per_solved == pytest.approx((table.actor.calls + table.reflector.calls) / 18)
    assert place.table("perfect").calls_per_solved == 0, (
        "attempts and lessons are those of another run"
    )


# Killed
