"""Which steps are kept: the rule for attempts, for steps, for a wanted precision, and what drops a
step besides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import FORMAT, Calibration, CalibrationMap, Quality
from prill.evaluators.judgement import kept_steps
from prill.io.store import encode
from prill.refine.selection import Filtered, FilterSpec, filter_steps, require_steps
from prill.types import Action, EvaluatorInfo, Observation, Step
from tests.support.refine.builders import JUDGE, attempt, click, picture, step_verdict, verdict

THREE = (click(7), click(7), Action("stop", "stop [a]", value="a"))


def places(filtered: Filtered) -> list[tuple[str, int]]:
    return [(step.trajectory.id, step.index) for step in filtered.steps]


def why(filtered: Filtered) -> dict[tuple[str, int], str]:
    return {(fact.id, fact.index): fact.why for fact in filtered.facts}


def calibration(path: Path, info: EvaluatorInfo = JUDGE) -> Path:
    """Of a judge that is too sure: a score of 0.9 is a probability of 0.8, of 0.5 one of 0.5, of
    0.1 one of 0.2.
    """
    points = CalibrationMap(method="isotonic", scores=(0.1, 0.5, 0.9), values=(0.2, 0.5, 0.8))
    quality = Quality(brier=0.2, calibration_error=0.1)
    made = Calibration(
        format=FORMAT, evaluator=info, map=points, threshold=0.6, rule="r", source="human", labelled=50, successes=25,  # noqa: E501
        unscored=0, folds=5, grouped_by="task", before=quality, after=quality,
    )  # fmt: skip
    path.write_bytes(encode(made))
    return path


def test_successes_are_kept_whole() -> None:
    runs = [attempt("a", *THREE), attempt("b", *THREE)]
    filtered = filter_steps(runs, [verdict("a"), verdict("b", False)])
    assert places(filtered) == [("a", 0), ("a", 1), ("a", 2)]
    assert [(step.trajectory.id, step.index) for step in filtered.rejected] == [
        ("b", 0),
        ("b", 1),
        ("b", 2),
    ]
    assert Counter(fact.why for fact in filtered.lost) == {"judged a failure": 3}


def test_scores_meet_the_threshold() -> None:
    runs = [attempt(id, *THREE) for id in "abc"]
    verdicts = [verdict("a", True, 0.9), verdict("b", True, 0.7), verdict("c", False, 0.7)]
    kept = {id for id, _ in places(filter_steps(runs, verdicts, FilterSpec(threshold=0.7)))}
    assert kept == {"a", "b", "c"}
    filtered = filter_steps(runs, verdicts, FilterSpec(threshold=0.8))
    assert {id for id, _ in places(filtered)} == {"a"}
    assert why(filtered)["b", 0] == "score below 0.8"


def test_threshold_without_scores_is_an_error() -> None:
    with pytest.raises(UsageError, match="verdict on a by vlm has no score") as error:
        filter_steps([attempt("a", *THREE)], [verdict("a")], FilterSpec(threshold=0.5))
    assert error.value.parameters == ("threshold",)


def test_rewards_decide_for_step_judges() -> None:
    runs = [attempt("a", *THREE, click(7))]
    filtered = filter_steps(runs, [step_verdict("a", "towards", "away", "reached", "towards")])
    assert places(filtered) == [("a", 0), ("a", 2)]
    assert why(filtered) == {
        ("a", 0): "",
        ("a", 1): "reward below 0.5",
        ("a", 2): "",
        ("a", 3): "after the goal was reached",
    }
    assert [step.index for step in filtered.rejected] == [1], (
        "what came after the goal is neither good nor bad"
    )
    everything = FilterSpec(threshold=-0.5, stop_at_reached=False)
    assert (
        len(
            filter_steps(
                runs, [step_verdict("a", "towards", "away", "reached", "towards")], everything
            ).steps
        )
        == 4
    )


@pytest.mark.parametrize("threshold", [-1.0, 0.5])
def test_steps_without_a_label_teach_nothing(threshold: float) -> None:
    judged = step_verdict("a", "towards", "not_sure", "reached")
    assert judged.steps is not None
    first, unread, last = judged.steps
    judged = replace(judged, steps=(first, replace(unread, flagged=True), last))
    filtered = filter_steps([attempt("a", *THREE)], [judged], FilterSpec(threshold=threshold))
    assert (places(filtered), filtered.rejected) == ([("a", 0), ("a", 2)], ())
    assert why(filtered)["a", 1] == "not judged"


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.5, 0.7, 1.0])
def test_rule_is_that_of_the_judge_steps(threshold: float) -> None:
    judged = step_verdict("a", "not_sure", "towards", "reached", "away")
    filtered = filter_steps(
        [attempt("a", *THREE, click(7))], [judged], FilterSpec(threshold=threshold)
    )
    assert tuple(step.index for step in filtered.steps) == kept_steps(judged, threshold)


def test_level_says_what_a_verdict_is_about() -> None:
    runs = [attempt("a", *THREE)]
    judged = [step_verdict("a", "towards", "away", "reached")]
    assert len(filter_steps(runs, judged, FilterSpec(level="attempt")).steps) == 3
    last = [replace(verdict("a"), rewards=(0.0, 0.0, 1.0))]
    assert places(filter_steps(runs, last, FilterSpec(level="step"))) == [("a", 2)]
    assert len(filter_steps(runs, last).steps) == 3, "an outcome's rewards judge no steps"
    with pytest.raises(UsageError, match="has no rewards of steps"):
        filter_steps(runs, [verdict("a")], FilterSpec(level="step"))


@pytest.mark.parametrize("spec", [FilterSpec(), FilterSpec(keep_all=True)])
def test_unscored_attempts_are_nowhere(spec: FilterSpec) -> None:
    runs = [attempt(id, *THREE) for id in "abc"]
    filtered = filter_steps(runs, [verdict("a"), verdict("b", None)], spec)
    assert {step.trajectory.id for step in (*filtered.steps, *filtered.rejected)} == {"a"}
    assert filtered.unscored == {"timeout": 1, "no verdict": 1}
    assert (filtered.attempts, why(filtered)["b", 0], why(filtered)["c", 0]) == (
        3,
        "unscored: timeout",
        "no verdict",
    )


def test_keep_all_is_plain_behaviour_cloning() -> None:
    runs = [attempt("a", *THREE), attempt("b", *THREE)]
    spec = FilterSpec(keep_all=True)
    everything = [(run.id, i) for run in runs for i in range(3)]
    assert places(filter_steps(runs, [verdict("a"), verdict("b", False)], spec)) == everything
    steps = [
        step_verdict("a", "reached", "away", "away"),
        step_verdict("b", "away", "away", "away"),
    ]
    assert places(filter_steps(runs, steps, spec)) == everything


def test_precision_chooses_the_threshold(tmp_path: Path) -> None:
    runs = [attempt(id, *THREE) for id in "abcd"]
    verdicts = [
        verdict(id, score > 0.5, score)
        for id, score in zip("abcd", (0.9, 0.5, 0.5, 0.1), strict=True)
    ]
    file = calibration(tmp_path / "c.json")
    # Calibrated 0.8, 0.5, 0.5, 0.2: the first three have a mean of 0.6, all four of 0.5.
    for precision, kept, noise in (
        (0.7, "a", 0.2),
        (0.61, "a", 0.2),
        (0.6, "abc", 0.4),
        (0.5, "abcd", 0.5),
    ):
        filtered = filter_steps(runs, verdicts, FilterSpec(calibration=file, precision=precision))
        assert {id for id, _ in places(filtered)} == set(kept)
        assert filtered.label_noise == pytest.approx(noise)
    with pytest.raises(UsageError, match="the highest is 0.800"):
        filter_steps(runs, verdicts, FilterSpec(calibration=file, precision=0.9))


def test_calibration_brings_its_threshold(tmp_path: Path) -> None:
    runs = [attempt(id, *THREE) for id in "ab"]
    file = calibration(tmp_path / "c.json")
    filtered = filter_steps(
        runs, [verdict("a", True, 0.9), verdict("b", True, 0.6)], FilterSpec(calibration=file)
    )
    assert (
        {id for id, _ in places(filtered)},
        filtered.threshold,
        filtered.expected_precision,
    ) == ({"a"}, 0.6, 0.8)


def test_calibrated_scores_are_taken_as_they_are(tmp_path: Path) -> None:
    file = calibration(tmp_path / "c.json")
    from prill.evaluators.fitted.calibration import read_calibration

    info = EvaluatorInfo(
        "calibrated vlm", "1", "m", None, {"calibration": read_calibration(file).hash}
    )
    judged = replace(verdict("a", True, 0.65), evaluator=info)
    assert (
        filter_steps(
            [attempt("a", *THREE)], [judged], FilterSpec(calibration=file)
        ).expected_precision
        == 0.65
    )


def test_calibration_of_others_is_refused(tmp_path: Path) -> None:
    file = calibration(tmp_path / "c.json", EvaluatorInfo("vlm", "1", "another"))
    with pytest.raises(UsageError, match="for another judge"):
        filter_steps(
            [attempt("a", *THREE)], [verdict("a", True, 0.9)], FilterSpec(calibration=file)
        )


def test_steps_without_effect_are_dropped(tmp_path: Path) -> None:
    run = attempt("a", *THREE, pages=("one", "one", "two", "two"))
    filtered = filter_steps([run], [verdict("a")], FilterSpec(drop_idle=True))
    assert [why(filtered)["a", i] for i in range(3)] == ["without effect", "", ""], (
        "an answer changes no page"
    )
    same, copy, other = (
        picture(tmp_path / "a.png"),
        picture(tmp_path / "b.png"),
        picture(tmp_path / "c.png", "blue"),
    )
    shots = tuple(
        Step(Observation(screenshot=path), click(7))
        for path in (same, copy, other, str(tmp_path / "no.png"))
    )
    seen = filter_steps(
        [replace(run, steps=shots, final=None)], [verdict("a")], FilterSpec(drop_idle=True)
    )
    assert [why(seen)["a", i] for i in range(4)] == ["without effect", "", "", ""]


def test_tasks_are_capped_by_seed() -> None:
    runs = [
        attempt(f"{task}{i}", *THREE, task=task)
        for task, count in (("x", 5), ("y", 2))
        for i in range(count)
    ]
    verdicts = [verdict(run.id) for run in runs]

    def kept(runs: list[object], **spec: object) -> set[tuple[str, int]]:
        return set(places(filter_steps(runs, verdicts, FilterSpec(**spec))))  # type: ignore[arg-type]

    first = kept([*runs], per_task=4)
    assert Counter(id[0] for id, _ in first) == {"x": 4, "y": 4}
    assert kept(runs[::-1], per_task=4) == first, "the order of the files does not matter"
    assert any(kept([*runs], per_task=4, seed=seed) != first for seed in (1, 2))
    assert Counter(id[0] for id, _ in kept([*runs], balance=True)) == {"x": 6, "y": 6}


def test_the_best_attempts_of_each_task_are_kept() -> None:
    runs = [
        attempt(id, click(7), task=task)
        for id, task in (("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"), ("e", "y"), ("f", "y"))
    ]
    verdicts = [
        verdict("a", True, 0.6),
        verdict("b", None),  # never has a score, not even the lowest
        verdict("c", True, 0.9),
        verdict("d", True, 0.6),
        verdict("e", False, 0.4),
        verdict("f", False, 0.3),
    ]

    def kept(**spec: object) -> list[str]:
        filtered = filter_steps(runs, verdicts, FilterSpec(**spec))  # type: ignore[arg-type]
        assert not {step.trajectory.id for step in filtered.rejected} & set("abcd")
        return [step.trajectory.id for step in filtered.steps]

    assert kept(best=1) == ["c"], "of the task y, both failed"
    assert kept(best=2) == ["a", "c"], "of equals, the first in the file"
    assert kept(best=3) == ["a", "c", "d"]
    assert kept(best=1, keep_all=True) == ["c", "e"]
    assert kept(best=9, keep_all=True) == ["a", "c", "d", "e", "f"]
    lost = why(filter_steps(runs, verdicts, FilterSpec(best=1)))
    assert lost["a", 0] == "of an attempt that is not among the best of its task"
    assert lost["b", 0] == "unscored: timeout" and lost["e", 0] == "judged a failure"


def test_verdicts_of_others_are_told() -> None:
    with pytest.raises(UsageError, match="do not match the verdicts: none has the id 'b'"):
        filter_steps([attempt("a", *THREE)], [verdict("b")])
    with pytest.raises(UsageError, match=r"verdict on a judges 4 steps, but the trajectory has 3"):
        filter_steps([attempt("a", *THREE)], [step_verdict("a", *["towards"] * 4)])
    assert (
        filter_steps([attempt("a", *THREE)], [verdict("a"), verdict("b")]).joined.other_verdicts
        == 1
    )


def test_empty_result_names_the_rules() -> None:
    runs = [attempt("a", *THREE), attempt("b", *THREE)]
    with pytest.raises(
        UsageError,
        match="no step is left of 6 in 2 attempts: judged a failure 3, unscored: timeout 3",
    ):
        require_steps(filter_steps(runs, [verdict("a", False), verdict("b", None)]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"precision": 0.9}, "needs a calibration"),
        ({"precision": 0.9, "calibration": "c", "threshold": 0.5}, "give only one of the two"),
        ({"keep_all": True, "threshold": 0.5}, "a threshold has no effect"),
        ({"level": "step", "calibration": "c"}, "applies to scores of attempts"),
        ({"treshold": 0.5}, "did you mean 'threshold'"),
        ({"per_task": 0}, "per_task"),
    ],
)
def test_settings_that_clash_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FilterSpec.of(given)


def test_seeds_of_a_task_are_one_task() -> None:
    """MiniWoB++ makes a task again for each seed, and WebArena fills templates: neither is another
    kind of task.
    """
    seeds = [
        attempt(f"s{n}", click(7), task=f"miniwob/click-link?seed={n}", site="click-link")
        for n in range(3)
    ]
    filled = [
        replace(
            attempt(f"w{n}", click(7), task=f"webarena.{n}"), metadata={"intent_template_id": 222}
        )
        for n in range(2)
    ]
    alone = attempt("a", click(7), task="webarena.9", site="shopping")
    runs = [*seeds, *filled, alone]
    filtered = filter_steps(runs, [verdict(run.id) for run in runs], FilterSpec(per_task=1))
    kept = sorted(step.trajectory.id[0] for step in filtered.steps)
    assert kept == ["a", "s", "w"]
    assert {fact.task for fact in filtered.facts} == {
        "miniwob/click-link",
        "/template 222",
        "shopping/webarena.9",
    }
