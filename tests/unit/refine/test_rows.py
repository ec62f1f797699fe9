"""Rows as TRL reads them: questions and answers of kept steps, judged examples, pairs at one state,
and what gives no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.errors import UnparsableError
from prill.io.store import encode
from prill.protocols import Image, Message
from prill.refine.demonstration import PlainTeacher, action_line
from prill.refine.rows import dpo_rows, kto_rows, sft_rows
from prill.refine.selection import Filtered, KeptStep, filter_steps
from prill.refine.training.samples import read_rows, split
from prill.types import Action, Observation, Step, Trajectory
from tests.support.refine.builders import Parrot, attempt, click, picture, step_verdict, verdict

STOP = Action("stop", "stop [a]", value="a")


def two_attempts() -> Filtered:
    runs = [attempt("good", click(7), STOP), attempt("bad", click(9), STOP)]
    return filter_steps(runs, [verdict("good"), verdict("bad", False)])


def shots(tmp_path: Path, *names: str) -> Filtered:
    steps = tuple(Step(Observation(screenshot=str(tmp_path / name)), click(7)) for name in names)
    return filter_steps([replace(attempt("a", click(7)), steps=steps, final=None)], [verdict("a")])


def test_text_rows_are_question_and_answer() -> None:
    first, last = sft_rows(two_attempts())
    assert set(first) == {"prompt", "completion", "task", "trajectory", "step"}
    assert (first["trajectory"], first["step"], last["step"]) == ("good", 0, 1)
    assert first["completion"] == [{"role": "assistant", "content": "click [7] link 'Cart'"}]
    assert [turn["role"] for turn in first["prompt"]] == ["system", "user"]
    question = first["prompt"][1]["content"]
    assert (
        question.startswith("Goal: Open the cart\nCODE: ")
        and "\nDone so far:\nnothing" in question
        and "StaticText 'state 0'" in question
    )
    assert "1. click [7] link 'Cart'" in last["prompt"][1]["content"]
    assert last["completion"][0]["content"] == 'stop "a"'


def test_image_rows_have_parts(tmp_path: Path) -> None:
    path = picture(tmp_path / "s.png")
    (row,) = sft_rows(
        shots(tmp_path, "s.png"), place=lambda found: Path(found).relative_to(tmp_path).as_posix()
    )
    assert row["images"] == ["s.png"]
    assert [part["type"] for part in row["prompt"][1]["content"]] == ["image", "text"]
    assert row["completion"] == [
        {"role": "assistant", "content": [{"type": "text", "text": "click [7] link 'Cart'"}]}
    ]
    assert next(iter(sft_rows(shots(tmp_path, "s.png"))))["images"] == [path]


def test_equal_inputs_give_equal_rows() -> None:
    rows = list(sft_rows(two_attempts()))
    assert rows == list(sft_rows(two_attempts()))
    codes = [row["prompt"][1]["content"].split("[state ")[1].split("]")[0] for row in rows]
    assert len(set(codes)) == 2 and all(len(code) == 8 for code in codes), (
        "a code for each question"
    )
    assert "\ue000" not in str(rows)


def test_attempts_at_a_task_are_held_out_together(tmp_path: Path) -> None:
    names = {f"{task}-{number}": task for task in "abcd" for number in range(3)}
    runs = [attempt(name, click(7), task=task) for name, task in names.items()]
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"".join(map(encode, sft_rows(filter_steps(runs, map(verdict, names))))))
    learnt, held_out = (
        {names[sample.origin.split(",")[0]] for sample in some}
        for some in split(read_rows(file).samples, 0.5)
    )
    assert (len(learnt), len(held_out), learnt & held_out) == (2, 2, set())


def test_kto_labels_are_the_verdicts() -> None:
    rows = list(kto_rows(two_attempts()))
    assert [(row["trajectory"], row["label"]) for row in rows] == [("good", True)] * 2 + [
        ("bad", False)
    ] * 2
    steps = filter_steps([attempt("a", click(7), click(9))], [step_verdict("a", "towards", "away")])
    assert [(row["step"], row["label"]) for row in kto_rows(steps)] == [(0, True), (1, False)]


def test_pairs_share_task_and_state() -> None:
    (row,) = dpo_rows(two_attempts())
    assert (row["trajectory"], row["step"], row["rejected_trajectory"], row["rejected_step"]) == (
        "good",
        0,
        "bad",
        0,
    )
    assert row["chosen"][0]["content"] == "click [7] link 'Cart'"
    assert row["rejected"][0]["content"] != row["chosen"][0]["content"], (
        "step 1 has one answer in both: it tells nothing"
    )
    runs = [attempt("good", click(7), task="x"), attempt("bad", click(9), task="y")]
    assert not list(dpo_rows(filter_steps(runs, [verdict("good"), verdict("bad", False)])))


def test_broken_images_cost_their_rows_only(tmp_path: Path) -> None:
    picture(tmp_path / "good.png")
    Picture.new("RGB", (60, 60), "red").save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:-40])
    noted: list[tuple[int, str, str]] = []
    rows = list(
        sft_rows(
            shots(tmp_path, "no.png", "good.png", "cut.png"),
            note=lambda step, why, message: noted.append((step.index, why, message)),
        )
    )
    assert [row["step"] for row in rows] == [1]
    assert [(index, why) for index, why, _ in noted] == [
        (0, "missing or broken image"),
        (2, "missing or broken image"),
    ]
    assert noted[0][2] == f"a, step 0: image {tmp_path / 'no.png'} is missing"


def test_what_cannot_be_taught_is_told() -> None:
    class Mute(Parrot):
        def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
            raise UnparsableError("no such word")

    kept = filter_steps([attempt("a", click(7))], [verdict("a")])
    backwards = Parrot("x", messages=(Message("user", ("a",)), Message("user", ("b",))))
    for teacher, expected in (
        (Mute(), "no words for it in the policy's language"),
        (Parrot(" "), "empty answer"),
        (backwards, "question and answer do not alternate"),
    ):
        noted: list[str] = []

        def note(step: KeptStep, why: str, message: str, noted: list[str] = noted) -> None:
            noted.append(why)

        assert not list(sft_rows(kept, teacher, note=note))
        assert noted == [expected]


def test_rows_ask_what_the_policy_asks(tmp_path: Path) -> None:
    messages = (
        Message("system", ("S",)),
        Message("user", ("before", Image(picture(tmp_path / "s.png")), "after")),
    )
    kept = filter_steps([attempt("a", click(7))], [verdict("a")])
    (row,) = sft_rows(kept, Parrot("go", messages=messages))
    assert row["prompt"] == [
        {"role": "system", "content": [{"type": "text", "text": "S"}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "before"},
                {"type": "image"},
                {"type": "text", "text": "after"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (
            Action("type", "x", target="[9] textbox 'Search'", value="tea\n"),
            "type \"tea\\n\" into [9] textbox 'Search'",
        ),
        (Action("click", "tap 1 2", point=(0.5, 0.2)), "click at (500, 200)"),
        (
            Action("swipe", "s", point=(0.5, 0.8), end_point=(0.5, 0.2)),
            "swipe from (500, 800) to (500, 200)",
        ),
        (Action("press", "p", value="Enter"), 'press "Enter"'),
        (Action("home", ""), "home"),
        (Action("hover", "hover over\nthe menu"), "hover over the menu"),
        (Action("other", "pyautogui.click(3, 4)"), "pyautogui.click(3, 4)"),
        (Action("stop", "done here"), "stop"),
    ],
)
def test_actions_are_one_line(action: Action, line: str) -> None:
    assert action_line(action) == line


def test_plain_history_is_bounded() -> None:
    run = attempt("a", *[click(i) for i in range(5)])
    messages, answer = PlainTeacher(history=2).demonstrate(run, 4)
    asked = str(messages[1].parts[0])
    assert [line for line in asked.splitlines() if line[:2] in ("2.", "3.", "4.")] == [
        "3. click [2] link 'Cart'",
        "4. click [3] link 'Cart'",
    ]
    assert answer == "click [4] link 'Cart'"
    nothing, _ = PlainTeacher(history=0).demonstrate(run, 4)
    assert "link 'Cart'\n4." not in str(nothing) and "nothing" in str(nothing[1].parts[0])
