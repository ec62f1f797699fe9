"""Fitted judges: what they look at, what they must not look at, and what their card says."""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prill.datasets.formats.agentrewardbench_webjudge import load, load_labels
from prill.errors import UsageError
from prill.evaluators.fitted.features import AGAINST, read
from prill.evaluators.fitted.fit import (
    Fit,
    examples,
    fit,
    fit_with_scores,
    held_out,
)
from prill.evaluators.fitted.regression import cross_validated
from prill.evaluators.fitted.student import Kind, Student, StudentModel
from prill.evaluators.labels import gold_labels, grouped_folds
from prill.io.store import BadLine, encode
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.paths import ROOT

# Looked for and not imported, as every worker collects every file.
if importlib.util.find_spec("sklearn") is None:
    pytest.skip("scikit-learn is not installed: pip install '.[student]'", allow_module_level=True)


def made(number: int, success: bool, site: str = "shop", **changes: Any) -> Trajectory:
    """A run of task `number`: a success is short, and its last page says so; a failure goes round
    in circles.
    """
    dice = random.Random(f"{number} {success}")
    saw = f"Order {number}: " + (
        "the order was placed, thank you" if success else "the cart is empty, not found"
    )
    count = dice.randint(2, 5) if success else dice.randint(4, 12)
    target = [f"link {dice.randint(0, 30 if success else 2)}" for _ in range(count)]
    steps = [
        Step(Observation(caption=f"page {i}"), Action("click", target=target[i]), "I go on")
        for i in range(count)
    ]
    if success or dice.random() < 0.5:
        steps.append(
            Step(
                Observation(caption=saw),
                Action("answer", "answer('done')", value="done"),
                "I am done",
            )
        )
    run = Trajectory(
        id=f"{number}-{success}",
        task=Task(id=f"t{number}", goal=f"Place order {number}", platform="web", site=site),
        steps=tuple(steps),
        final=Observation(caption=saw),
        answer="done" if steps[-1].action.is_final else None,
    )
    return replace(run, **changes)


RUNS = [
    made(i, success, site)
    for i in range(20)
    for success in (True, False)
    for site in [("shop", "forum")[i % 2]]
]
GOLD: dict[str, bool | None] = {run.id: run.id.endswith("True") for run in RUNS}


def fitted(
    kind: Kind = "student", evidence_only: bool = False, runs: list[Trajectory] = RUNS
) -> StudentModel:
    return fit(examples(runs, GOLD, kind, evidence_only)[0], kind, evidence_only)


@functools.cache
def hardened() -> Fit:
    families = ("stop-early", "answer-short")
    plain, runs = (examples(RUNS, GOLD, "student", False, harden)[0] for harden in ((), families))
    return fit_with_scores(runs, "student", False, hardened=True, plain=plain)


@functools.cache
def model_of(kind: Kind, evidence_only: bool) -> StudentModel:
    return fitted(kind, evidence_only)


def judge(kind: Kind = "student", evidence_only: bool = False) -> Student:
    return Student(model_of(kind, evidence_only), label="test")


@pytest.mark.parametrize("kind", ["student", "prior"])
async def test_student_learns_easy_outcomes(kind: Kind) -> None:
    verdicts = [await judge(kind)(run) for run in RUNS]
    right = sum(verdict.success == GOLD[verdict.id] for verdict in verdicts)
    assert right >= (38 if kind == "student" else 32)
    assert all(v.success == (v.score is not None and v.score >= 0.5) for v in verdicts)
    assert all(v.usage.calls == 0 and v.evaluator.name == kind for v in verdicts)


async def test_saved_judge_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(encode(model_of("student", False)))
    loaded = Student.load(tmp_path / "m.json")
    assert [(await loaded(run)).score for run in RUNS] == [
        (await judge()(run)).score for run in RUNS
    ]
    assert loaded.info.model is not None and loaded.info.model.startswith("sha256:")


@pytest.mark.parametrize("kind", ["student", "prior"])
@given(words=st.text(max_size=40), number=st.integers(0, len(RUNS) - 1))
def test_claims_do_not_move_the_score(kind: Kind, words: str, number: int) -> None:
    import asyncio

    run = RUNS[number]
    last = run.steps[-1]
    if last.action.is_final:
        last = replace(
            last, action=replace(last.action, text=f"answer({words!r})", value=words, target=words)
        )
    message = Step(
        Observation(caption="chat"), Action("message", "message('hello')", value="hello")
    )
    steps = (message, *run.steps[:-1], last)
    before = replace(run, steps=(message, *run.steps))
    changed = (replace(step, thought=words) for step in steps[1:])
    claim = replace(
        message,
        thought=words,
        action=replace(message.action, text=words, value=words, target=words),
    )
    after = replace(run, steps=(claim, *changed), answer=words)
    student = judge(kind, evidence_only=True)
    assert asyncio.run(student(before)).score == asyncio.run(student(after)).score
    assert asyncio.run(student(before)).reason == asyncio.run(student(after)).reason


KNOWN = sorted(
    {
        word
        for run in RUNS
        for state in run.observations
        for word in (state.caption or "").lower().split()
    }
)


@given(
    words=st.lists(st.sampled_from(KNOWN) | st.text(max_size=12), max_size=30),
    number=st.integers(0, len(RUNS) - 1),
)
def test_evidence_only_ignores_added_words(words: list[str], number: int) -> None:
    import asyncio

    run = RUNS[number]
    added = " ".join(words)
    caption = run.final.caption if run.final and run.final.caption else ""
    student = judge(evidence_only=True)
    before = asyncio.run(student(run)).score
    after = asyncio.run(student(replace(run, final=Observation(caption=f"{caption} {added}"))))
    assert before is not None
    assert after.unscored == "no_evidence" if after.score is None else after.score <= before


@pytest.mark.parametrize(
    "disguise",
    [
        "саrt is empty",
        "ｃａｒｔ is empty",
        "ca\u200brt is e\u0301mpty",
        "𝐜𝐚𝐫𝐭 is empty",
        "СART IS ЕМРТY",
    ],
)
def test_disguised_words_are_read_as_seen(disguise: str) -> None:
    assert read(replace(RUNS[0], final=Observation(text=disguise)), "student", True).words[
        "state"
    ] == {"cart", "is", "empty"}


async def test_no_readable_state_no_verdict() -> None:
    bare = Trajectory(
        id="x", task=Task(goal=""), steps=(Step(Observation(), Action("teleport")),), answer="Done"
    )
    for only in (False, True):
        verdict = await judge("student", only)(bare)
        assert (verdict.unscored, verdict.reason) == (
            "no_evidence",
            "the last state has neither text nor caption",
        )
    verdict = await judge("prior")(bare)  # it goes by telemetry, of which there is some
    assert verdict.score is not None and 0 <= verdict.score <= 1


def speaking() -> Student:
    """A student that does not abstain."""
    runs, _ = examples(RUNS, GOLD, "student", evidence_only=False)
    fitted = fit_with_scores(runs, "student", evidence_only=False, abstain=False)
    assert None not in fitted.out_of_fold
    return Student(fitted.model, label="test")


async def test_without_a_text_none_has_a_verdict() -> None:
    for page in ("", " \n"):
        verdict = await speaking()(replace(RUNS[0], final=Observation(caption=page)))
        assert (verdict.unscored, "neither text" in verdict.reason) == ("no_evidence", True)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("the order " * 500, "characters"),
        ("gone", "characters"),
        ("zyxw vutsr qponml kjihgf edcba zyxwvut srq", "known"),
    ],
)
async def test_unlike_states_are_no_evidence(page: str, reason: str) -> None:
    unlike = replace(RUNS[0], final=Observation(caption=page))
    assert (await speaking()(unlike)).score is not None
    for student in (judge(), judge(evidence_only=True), Student(hardened().model, label="test")):
        verdict = await student(unlike)
        assert (verdict.unscored, reason in verdict.reason) == ("no_evidence", True), verdict.reason


@given(
    number=st.integers(0, len(RUNS) - 1),
    count=st.integers(1, 12),
    kind=st.sampled_from(["click", "type", "hover", "goto"]),
)
def test_added_steps_never_raise_the_score(number: int, count: int, kind: Kind) -> None:
    import asyncio

    run = RUNS[number]
    # At the beginning: in the middle they might break up a run of equal actions, which speaks
    # against success too.
    added = tuple(
        Step(Observation(), Action(kind, target=f"new {i}", value="Place order"))
        for i in range(count)
    )
    longer = replace(run, steps=(*added, *run.steps))
    for student in (judge(evidence_only=True), Student(hardened().model, label="test")):
        before, after = (asyncio.run(student(one)).score for one in (run, longer))
        assert before is not None and after is not None and after <= before


def test_hardened_words_speak_against() -> None:
    model = hardened().model
    assert set(model.words) == {"state", "state before", "answer"}
    assert all(weight < 0 for words in model.words.values() for weight in words.values())
    assert all(model.features[name][0] <= 0 for name in AGAINST)
    assert not any("thought" in name for name in model.features)


async def test_weak_transfer_means_no_verdict() -> None:
    model = model_of("student", False)
    transfer = model.card.transfer
    assert transfer is not None
    weak = replace(model, card=replace(model.card, transfer=replace(transfer, auc=0.6)))
    verdict = await Student(weak, label="test")(made(3, False, site="bank"))
    assert (verdict.unscored, "AUC 0.60" in verdict.reason) == ("no_evidence", True)
    assert (await Student(weak, label="test")(made(3, False))).score is not None


async def test_reason_names_words_and_new_site() -> None:
    verdict = await judge()(made(3, False))
    assert "words of the state" in verdict.reason
    assert "fitted without" not in verdict.reason
    abroad = await judge()(made(3, False, site="bank"))
    assert "fitted without runs of bank; its accuracy on other sites was" in abroad.reason
    assert (abroad.score, judge().knows(None)) == (verdict.score, True)


def test_judging_needs_no_scikit_learn(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(encode(model_of("student", False)))
    program = (
        "import asyncio, sys\nfrom prill.evaluators.fitted.student import Student\nfrom "
        "prill.types import *\n"
        f"judge = Student.load({str(tmp_path / 'm.json')!r})\n"
        "page = Observation(caption='Order 3: the order was placed, thank you')\n"
        "run = Trajectory(id='x', task=Task(goal='g'), steps=(Step(page, Action('click')),))\n"
        "assert asyncio.run(judge(run)).score is not None\n"
        "sys.exit(', '.join(name for name in ('sklearn', 'numpy', 'scipy') if name in "
        "sys.modules) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "change",
    [
        {"format": "prill student 1"},
        {"guard": None},
        {"features": {"length/steps": (0.1, 2.0)}},
        {"words": {}},
        {"kind": "prior"},
    ],
)
def test_other_version_must_be_refitted(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(encode(replace(model_of("student", False), **change)))
    with pytest.raises(UsageError, match="prill fit"):
        Student.load(tmp_path / "m.json")


def test_held_out_figures_by_hand() -> None:
    figures = held_out([True, True, False, False, False], [0.9, 0.4, 0.6, 0.1, 0.4])
    # Pairs of a success and a failure: 0.9 beats all three; 0.4 beats 0.1, ties 0.4, loses to 0.6.
    assert figures.auc == pytest.approx(4.5 / 6)
    # Right in 3 of 5; by chance in (2 * 2 + 3 * 3) / 25.
    assert figures.kappa == pytest.approx((0.6 - 0.52) / 0.48, abs=1e-4)
    assert (figures.accuracy, figures.balanced_accuracy) == (
        0.6,
        pytest.approx((1 / 2 + 2 / 3) / 2, abs=1e-4),
    )
    assert held_out([True], [0.2]).auc is None
    assert (
        held_out([True, False], [None, 0.2]).abstained,
        held_out([True, False], [None, 0.2]).accuracy,
    ) == (1, 1.0)
    assert held_out([], []).accuracy is None


@given(
    rows=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=60),
    count=st.integers(2, 6),
    seed=st.integers(),
)
def test_folds_never_split_a_task(rows: list[tuple[int, bool]], count: int, seed: int) -> None:
    tasks, truths = [task for task, _ in rows], [truth for _, truth in rows]
    fold_of = grouped_folds(tasks, truths, count, seed)
    assert all(
        len({f for f, t in zip(fold_of, tasks, strict=True) if t == task}) == 1 for task in tasks
    )
    assert set(fold_of) <= set(range(count))
    with_success = {task for task, truth in rows if truth}
    reached = {f for f, truth in zip(fold_of, truths, strict=True) if truth}
    assert len(reached) == min(count, len(with_success))


@pytest.fixture
def recorded() -> Callable[[], tuple[list[Trajectory], dict[str, bool | None]]]:
    """The labelled recordings; skips where there are none."""

    def find() -> tuple[list[Trajectory], dict[str, bool | None]]:
        base = Path(os.environ.get("PRILL_DATA") or ROOT.parent / "shared" / "data")
        folder = base / "arb_webjudge"
        if not folder.is_dir():
            pytest.skip(f"no recordings in {folder}; PRILL_DATA says where they are")
        _, gold = gold_labels(
            [label for label in load_labels(folder) if not isinstance(label, BadLine)],
            "human",
            "first",
        )
        return [run for run in load(folder) if not isinstance(run, BadLine)], gold

    return find


@pytest.mark.slow
@pytest.mark.labelled
@pytest.mark.parametrize(
    ("kind", "least_auc", "least_accuracy"), [("student", 0.90, 0.82), ("prior", 0.82, 0.738)]
)
def test_recorded_runs_reach_the_bars(
    kind: Kind,
    least_auc: float,
    least_accuracy: float,
    recorded: Callable[[], tuple[list[Trajectory], dict[str, bool | None]]],
) -> None:
    runs, gold = recorded()
    usable, left_out = examples(runs, gold, kind, False)
    assert (len(usable), left_out) == (619, 0)
    figures = [
        held_out([run.success for run in usable], cross_validated(usable, seed))
        for seed in range(3)
    ]
    # Every division into folds, not the luckiest.
    assert min(f.auc or 0.0 for f in figures) >= least_auc
    assert min(f.accuracy or 0.0 for f in figures) >= least_accuracy
    assert max(f.abstained for f in figures) <= 0.06 * 619
