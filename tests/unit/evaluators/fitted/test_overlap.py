"""What a fitted judge, a calibration and whatever contains them say of the runs that they were
fitted to.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from prill import score
from prill.evaluators.agreement.agreement import agreement, measure_agreement, pair
from prill.evaluators.agreement.trivial import compare_with_baselines
from prill.evaluators.baselines import Constant
from prill.evaluators.combine import Cascade, Ensemble, Vote
from prill.evaluators.evidence import without_claims
from prill.evaluators.fitted.calibration import Calibrated, read_calibration
from prill.evaluators.fitted.calibration_fit import calibrate
from prill.evaluators.fitted.fit import Fit, examples, fit_with_scores
from prill.evaluators.fitted.overlap import (
    Overlap,
    compute_digests,
    get_relation,
)
from prill.evaluators.fitted.student import Student
from prill.evaluators.labels import make_task
from prill.io.store import encode
from prill.protocols import Evaluator
from prill.types import (
    Action,
    FittedOn,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
)
from prill.ui.report.headline import headline

# Looked for and not imported, as every worker collects every file.
if importlib.util.find_spec("sklearn") is None:
    pytest.skip("scikit-learn is not installed: pip install '.[student]'", allow_module_level=True)


def made(number: int, attempt: int, success: bool) -> Trajectory:
    steps = [
        Step(
            Observation(caption=f"page {i}"),
            Action("click", target=f"{attempt} {i if success else 0}"),
            "I go on",
        )
        for i in range(2 if success else 6)
    ]
    return Trajectory(
        id=f"{number}-{attempt}-{success}",
        task=Task(id=f"t{number}", goal=f"Place order {number}", platform="web"),
        steps=(
            *steps,
            Step(
                Observation(caption="end"),
                Action("answer", "answer('done')", value="done"),
                "I am done",
            ),
        ),
        final=Observation(caption="the order was placed" if success else "the cart is empty"),
        answer="done",
    )


FITTED = [made(i, 0, success) for i in range(20) for success in (True, False)]
SAME_TASKS = [made(i, 1, success) for i in range(10) for success in (True, False)]
OTHERS = [made(i, 0, success) for i in range(30, 36) for success in (True, False)]
LABELS = [
    LabelRecord(id=run.id, success=run.id.endswith("True"))
    for run in (*FITTED, *SAME_TASKS, *OTHERS)
]


@functools.cache
def fit() -> Fit:
    gold: dict[str, bool | None] = {label.id: label.success for label in LABELS}
    return fit_with_scores(examples(FITTED, gold, "student", False)[0], "student", False)


def student(**changes: object) -> Student:
    return Student(replace(fit().model, **changes), label="sha256:0")


def relations(judge: Evaluator, *runs: Trajectory) -> list[FittedOn | None]:
    return [verdict.fitted_on for verdict in score(runs, judge)]


def test_verdict_says_what_its_judge_has_seen() -> None:
    assert relations(student(), FITTED[0], SAME_TASKS[0], OTHERS[0]) == ["run", "task", "other"]


def test_moved_captioned_and_renamed_run_is_known() -> None:
    run = FITTED[0]
    steps = tuple(
        replace(step, observation=Observation(f"new/{i}.png", "text", caption="x"))
        for i, step in enumerate(run.steps)
    )
    assert relations(student(), replace(run, id="new", steps=steps, metadata={"a": 1})) == ["run"]
    assert (
        compute_digests(without_claims(run)) == compute_digests(run) != compute_digests(FITTED[1])
    )


def test_file_of_earlier_version_says_unknown(tmp_path: Path) -> None:
    old = msgspec.to_builtins(fit().model)
    del old["fitted_to"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert relations(Student.load(tmp_path / "old.json"), FITTED[0], OTHERS[0]) == [
        "unknown",
        "unknown",
    ]


def test_verdicts_of_earlier_versions_are_understood() -> None:
    held_out = student().out_of_fold(["a", "b"], [0.5, None])
    assert [verdict.fitted_on for verdict in held_out] == ["other", "other"]
    assert [get_relation(replace(verdict, fitted_on=None)) for verdict in held_out] == [
        "other",
        "other",
    ]
    (mine,) = score([FITTED[0]], student())
    assert get_relation(replace(mine, fitted_on=None)) == "unknown"
    (both,) = score([FITTED[0]], Vote([student(), Constant(True)]))
    assert get_relation(replace(both, fitted_on=None)) == "unknown"
    (constant,) = score([FITTED[0]], Constant(True))
    assert get_relation(constant) is None


@pytest.mark.parametrize(
    "judge",
    [
        lambda: Vote([student(), Constant(True)]),
        lambda: Ensemble([Constant(False), student()]),
        lambda: Cascade(student(), Constant(False)),
        lambda: Cascade(Constant(True), student(), band=(0.0, 1.0)),
        lambda: Vote([Cascade(Constant(True), student(), band=(0.0, 1.0)), Constant(False)]),
    ],
    ids=["vote", "ensemble", "first of a cascade", "second of a cascade", "cascade in a vote"],
)
def test_combinations_contain_what_was_fitted(judge: object) -> None:
    made_judge: Evaluator = judge()  # type: ignore[operator]
    assert relations(made_judge, FITTED[0], SAME_TASKS[0], OTHERS[0]) == ["run", "task", "other"]


def test_calibration_knows_its_runs_with_and_without_the_file(tmp_path: Path) -> None:
    verdicts = [
        replace(verdict, evaluator=Constant(True).info)
        for verdict in student().out_of_fold(*_held_out())
    ]
    pairing = pair(verdicts, LABELS)
    tasks = {run.id: make_task(run) for run in FITTED}
    digests = {run.id: compute_digests(run) for run in FITTED}
    by_content = calibrate(pairing, "platt", tasks=tasks, digests=digests).calibration
    by_id = calibrate(pairing, "platt").calibration
    (tmp_path / "c.json").write_bytes(encode(by_content))
    renamed = replace(FITTED[0], id="x")
    for calibration, known in ((read_calibration(tmp_path / "c.json"), "run"), (by_id, "other")):
        judge = Calibrated(Constant(True), calibration)
        assert relations(judge, FITTED[0], OTHERS[0], renamed) == ["run", "other", known]
    assert relations(Calibrated(Constant(True), by_content), SAME_TASKS[0]) == ["task"]
    assert relations(
        Calibrated(Constant(True), replace(by_content, fitted_to=None)), OTHERS[0]
    ) == ["unknown"]
    assert by_content.hash == replace(by_content, fitted_to=None).hash


def _held_out() -> tuple[list[str], list[float | None]]:
    return [run.id for run in FITTED], fit().out_of_fold


def test_agreement_counts_and_headline_does_not_praise() -> None:
    flattered = agreement(score(FITTED, student()), LABELS)
    assert flattered.fitted is not None and flattered.fitted.run == flattered.judged > 30
    sentence = headline("student", flattered, {}, ())
    assert (
        f"{flattered.judged} of which it was fitted on, so the figure does not hold for other runs"
        in sentence
    )
    assert "better than" not in sentence
    earlier = [replace(verdict, fitted_on=None) for verdict in score(FITTED, student())]
    assert "whether it was fitted on them is unknown" in headline(
        "student", agreement(earlier, LABELS), {}, ()
    )
    pairing = pair(student().out_of_fold(*_held_out()), LABELS)
    honest, (rules,) = measure_agreement(pairing), compare_with_baselines([pairing], None)
    assert honest.fitted is not None and not honest.fitted.flatters
    assert "rule without a judge (always" in headline("student", honest, {}, rules)


@pytest.mark.parametrize(
    ("overlap", "words"),
    [
        (Overlap(other=3), None),
        (
            Overlap(run=2, other=1),
            "was fitted on 2 of these 3 runs: its figures on them are too good",
        ),
        (Overlap(unknown=3), "possibly those of 3 of these 3 runs"),
        (Overlap(task=1, other=2), "on other runs of the tasks of 1 of these 3 runs"),
    ],
)
def test_caution_has_the_counts(overlap: Overlap, words: str | None) -> None:
    caution = overlap.caution("j")
    assert caution is None if words is None else caution is not None and words in caution
