"""The first wrong step: counted per run, with runs that decide nothing left out."""

from __future__ import annotations

from typing import Any

from prill.evaluators.meta.first_error import first_errors
from prill.types import EvaluatorInfo, LabelRecord, StepLabel, StepVerdict, Verdict

INFO = EvaluatorInfo("steps", "2")


def judged(id: str, *labels: Any, flagged: tuple[int, ...] = (), **more: Any) -> Verdict:
    steps = tuple(StepVerdict(i, label, 0.0, "", i in flagged) for i, label in enumerate(labels))
    return Verdict(id=id, **{"success": True, "steps": steps, "evaluator": INFO, **more})


def labelled(id: str, *labels: Any, **more: Any) -> LabelRecord:
    steps = tuple(StepLabel(i, label) for i, label in enumerate(labels))
    return LabelRecord(id=id, success=None, steps=steps, **more)


def test_the_same_first_wrong_step_is_found() -> None:
    labels = [
        labelled("a", "towards", "away", "away"),
        labelled("b", "towards", "away", "reached"),
        labelled("c", "towards", "reached"),
        labelled("d", "towards", "reached"),
    ]
    verdicts = [
        judged("a", "towards", "not_sure", "towards"),
        judged("b", "away", "away", "reached"),
        judged("c", "reached", "reached"),
        judged("d", "towards", "away"),
    ]
    found = first_errors(verdicts, labels, "human")
    assert found is not None
    assert (found.wrong, found.found, found.right, found.passed) == (2, 1, 2, 1)
    assert (found.accuracy, found.accuracy_right, found.f1) == (0.5, 0.5, 0.5)


def test_what_nobody_says_decides_nothing() -> None:
    labels = [
        labelled("early", "not_sure", "away"),
        labelled("late", "away", "not_sure"),
        labelled("mute", "towards", "away"),
        labelled("failed", "away"),
        labelled("split", "away", annotator="x"),
        labelled("split", "towards", annotator="y"),
        labelled("other", "away", source="oracle"),
        labelled("nobody", "away"),
    ]
    verdicts = [
        judged("early", "towards", "away"),
        judged("late", "away", "away"),
        judged("mute", "towards", "away", flagged=(0,)),
        judged("failed", success=None, steps=None, unscored="timeout"),
        judged("split", "away"),
        judged("other", "away"),
    ]
    found = first_errors(verdicts, labels, "human")
    assert found is not None
    assert (found.wrong, found.found, found.right) == (1, 1, 0)
    assert (found.undecided, found.unscored) == (2, 2)
    assert found.accuracy_right is None and found.f1 is None


def test_labels_of_whole_runs_say_nothing() -> None:
    assert first_errors([judged("a", "away")], [LabelRecord(id="a", success=True)], "human") is None
