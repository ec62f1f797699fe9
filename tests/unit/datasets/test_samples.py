"""The committed MiniWoB++ sample is whole and small, and nothing about its runs but what was done
tells success from failure.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prill.evaluators.fitted.features import read
from prill.io.store import iter_trajectories, read_labels
from prill.types import LabelRecord, Trajectory
from tests.support.paths import ROOT

SAMPLE = ROOT / "datasets" / "samples" / "miniwob"
PAIRS = {"solve": "wrong-target", "look-first": "unsent", "corrected": "undone"}
# Balanced accuracy that a rule over the course of a run may reach.
CHANCE = 0.6


@pytest.fixture(scope="module")
def trajectories() -> dict[str, Trajectory]:
    runs = list(iter_trajectories(SAMPLE / "trajectories.jsonl"))
    assert len({t.id for t in runs}) == len(runs)
    return {t.id: t for t in runs}


@pytest.fixture(scope="module")
def labels() -> dict[str, LabelRecord]:
    return {label.id: label for label in read_labels(SAMPLE / "labels.jsonl")}


def behaviour(label: LabelRecord) -> str:
    return (label.note or "").partition(";")[0]


def test_every_run_has_a_label_from_the_page(
    trajectories: dict[str, Trajectory], labels: dict[str, LabelRecord]
) -> None:
    assert list(trajectories) == list(labels)
    assert len(labels) >= 160 and len({t.task.id for t in trajectories.values()}) >= 25
    for label in labels.values():
        reward = float((label.note or "").rpartition(" ")[2])
        assert label.source == "oracle" and label.success is (reward > 0)


def test_runs_come_in_pairs_that_differ_in_what_was_done_only(
    trajectories: dict[str, Trajectory], labels: dict[str, LabelRecord]
) -> None:
    pairs: dict[tuple[str, str], list[Trajectory]] = defaultdict(list)
    for run in trajectories.values():
        pairs[run.task.goal, run.task.start_url or ""].append(run)
    assert len(pairs) * 2 == len(trajectories)
    for pair in pairs.values():
        success, failure = sorted(pair, key=lambda run: not labels[run.id].success)
        assert [labels[run.id].success for run in (success, failure)] == [True, False]
        assert PAIRS[behaviour(labels[success.id])] == behaviour(labels[failure.id])
        assert Counter(kinds(success)) == Counter(kinds(failure))
        assert kinds(success)[-1] == kinds(failure)[-1] == "stop"
        assert success.steps[0].observation.text == failure.steps[0].observation.text
        assert [s.action.text for s in success.steps] != [s.action.text for s in failure.steps]
    assert all(count >= 10 for count in Counter(map(behaviour, labels.values())).values())


def kinds(run: Trajectory) -> list[str]:
    return [step.action.kind for step in run.steps]


NUMBERS: dict[str, Callable[[Trajectory], float]] = {
    "steps": lambda run: len(run.steps),
    "kinds of action": lambda run: len(set(kinds(run))),
    "clicks": lambda run: kinds(run).count("click"),
    "entries": lambda run: kinds(run).count("type") + kinds(run).count("select"),
    "different actions": lambda run: len({step.action.text for step in run.steps}),
    "characters of the answer": lambda run: len(run.answer or ""),
    "words of the answer": lambda run: len((run.answer or "").split()),
    "characters of the thoughts": lambda run: sum(len(step.thought or "") for step in run.steps),
    "characters of the actions": lambda run: sum(len(step.action.text) for step in run.steps),
    "characters of the last state": lambda run: len((run.final and run.final.text) or ""),
    "characters of all states": lambda run: sum(len(o.text or "") for o in run.observations),
    "characters of the goal": lambda run: len(run.task.goal),
    "pictures": lambda run: sum(o.screenshot is not None for o in run.observations),
    "last state unchanged": lambda run: run.observations[-1].text == run.observations[-2].text,
}


def balanced(says: Iterable[bool], truths: Iterable[bool]) -> float:
    said, true = np.array(list(says)), np.array(list(truths))
    return float((said[true].mean() + (~said[~true]).mean()) / 2)


@pytest.mark.parametrize("name", NUMBERS)
def test_no_threshold_on_the_course_tells_the_label(
    name: str, trajectories: dict[str, Trajectory], labels: dict[str, LabelRecord]
) -> None:
    """Even the best threshold, chosen on all labels."""
    values = np.array([NUMBERS[name](run) for run in trajectories.values()], dtype=float)
    truths = [labels[id].success is True for id in trajectories]
    rates = [balanced(values >= value, truths) for value in set(values)]
    assert max(max(rates), 1 - min(rates)) <= CHANCE


def test_no_word_of_the_claims_tells_the_label(
    trajectories: dict[str, Trajectory], labels: dict[str, LabelRecord]
) -> None:
    """Nor does a word of the answer or of a thought that occurs in at least five tasks."""
    truths = [labels[id].success is True for id in trajectories]
    said = [
        set(" ".join([run.answer or "", *(step.thought or "" for step in run.steps)]).split())
        for run in trajectories.values()
    ]
    sites: dict[str, set[str]] = defaultdict(set)
    for words, run in zip(said, trajectories.values(), strict=True):
        for word in words:
            sites[word].add(run.task.id)
    common = [word for word, where in sites.items() if len(where) >= 5]
    assert len(common) > 10
    for word in common:
        rate = balanced([word in words for words in said], truths)
        assert max(rate, 1 - rate) <= CHANCE, word


@pytest.mark.parametrize("depth", [2, 4])
def test_no_small_tree_over_telemetry_tells_the_label(
    depth: int, trajectories: dict[str, Trajectory], labels: dict[str, LabelRecord]
) -> None:
    """Out of fold by task, over everything that `prior` reads and the numbers above."""
    trees = pytest.importorskip(
        "sklearn.tree", reason="scikit-learn is not installed: pip install '.[student]'"
    )
    runs = list(trajectories.values())
    rows = np.array(
        [
            [*read(run, "prior", evidence_only=False).numbers, *(f(run) for f in NUMBERS.values())]
            for run in runs
        ]
    )
    truths = np.array([labels[run.id].success is True for run in runs])
    tasks = np.unique([run.task.id for run in runs], return_inverse=True)[1]
    says = np.zeros(len(runs), dtype=bool)
    for fold in range(5):
        apart = tasks % 5 == fold
        tree = trees.DecisionTreeClassifier(max_depth=depth, random_state=0)
        says[apart] = tree.fit(rows[~apart], truths[~apart]).predict(rows[apart])
    assert balanced(says, truths) <= CHANCE


def test_every_picture_opens_and_is_used(trajectories: dict[str, Trajectory]) -> None:
    used = {Path(str(o.screenshot)) for t in trajectories.values() for o in t.observations}
    used -= {Path("None")}
    assert used == set((SAMPLE / "images").iterdir())
    for path in used:
        with Image.open(path) as picture:
            picture.load()
            assert (picture.format, picture.size) == ("WEBP", (320, 420))
        assert path.stat().st_size < 12_000
    seen = [all(o.screenshot for o in run.observations) for run in trajectories.values()]
    assert sum(seen) == len({run.task.id for run in trajectories.values()}) * 2
    files = [path for path in SAMPLE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_500_000


def test_trajectory_tells_label_only_by_acts(trajectories: dict[str, Trajectory]) -> None:
    told = {
        (t.agent, json.dumps(t.metadata), t.error, t.steps[-1].action.kind, len(t.id))
        for t in trajectories.values()
    }
    assert told == {("scripted", '{"ended_by": "agent"}', None, "stop", 18)}
    text = (SAMPLE / "trajectories.jsonl").read_text()
    hints = ("reward", "oracle", "success", '"solve"', *PAIRS, *PAIRS.values())
    assert not [word for word in hints if word in text and word != "solve"]
