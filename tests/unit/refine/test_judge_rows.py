"""Rows to train a judge on: the judge's own request, the right reply, and which runs give none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

import prill
from prill.errors import UsageError
from prill.evaluators.readers import LABELS
from prill.evaluators.registry import make_judge
from prill.io.store import encode
from prill.models.prompts import call_code, same_codes
from prill.models.request import worded
from prill.protocols import Form, Message, Reply
from prill.refine.judge_rows import CODES, RequestRecorder, Truth, judge_rows, truths_from
from prill.refine.training.samples import balanced, read_rows
from prill.testing import ScriptedModel
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    StepLabel,
    StepVerdict,
    Task,
    Trajectory,
    Usage,
    Verdict,
)

MODULAR = {"name": "modular", "captioner": "text", "form": "word"}
STEPS = {"name": "steps", "captioner": "text", "form": "word"}
TEACHER = EvaluatorInfo("vlm", "3", "gpt")


def run(id: str = "a", goal: str = "Buy a kettle", count: int = 3, **last: Any) -> Trajectory:
    steps = tuple(
        Step(Observation(text=f"page {i}"), Action("click", f"click {i}")) for i in range(count)
    )
    return Trajectory(
        id=id,
        task=Task(id=f"task-{goal}", goal=goal, platform="web"),
        steps=steps,
        final=Observation(**{"text": "Thank you", **last}),
    )


def said(id: str, success: bool | None, reason: str = "the page thanks", **more: Any) -> Verdict:
    unscored: Any = None if success is not None else "parse"
    return Verdict(
        id=id, success=success, reason=reason, unscored=unscored, evaluator=TEACHER, **more
    )


async def rows_of(judge: dict[str, Any], trajectory: Trajectory, truth: Truth) -> Any:
    recorder = RequestRecorder()
    return await judge_rows(make_judge(judge, model=recorder), recorder, trajectory, truth)


def own_page(folder: Path, settings: str = "") -> str:
    path = folder / "own.toml"
    path.write_text(
        f'evidence = "texts"\ncaptioner = "required"\n{settings}\n'
        '[[stages]]\nprompt = "own"\nreads = "verdict"\n'
    )
    (folder / "own.md").write_text("# user\nWas it done?\n{{ goal }}\n{{ states }}")
    return str(path)


class Listening:
    """A model as it runs in this process: it is asked for a form, and answers in it."""

    name = "listening"

    def __init__(self, word: str) -> None:
        self.word, self.heard = word, list[tuple[Message, ...]]()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        assert form is not None
        texts = [part for m in messages for part in m.parts if isinstance(part, str)]
        ending = form.instructions(as_json=not form.tagged)
        self.heard.append(worded(messages, ending, call_code(texts)))
        text = self.word if form.tagged else json.dumps({"thoughts": "so", "status": self.word})
        return Reply(text, Usage(), form.parse(text))


@pytest.mark.parametrize("form", ["word", "verdict", "thoughts"])
async def test_a_row_is_the_request_and_a_reply_that_the_judge_reads(form: str) -> None:
    judge = {**MODULAR, "form": form}
    (row,) = await rows_of(judge, run(), Truth(True, "the page thanks"))
    model = Listening("success")
    with same_codes(CODES):
        await make_judge(judge, model=model)(run())
    (heard,) = model.heard
    assert row["prompt"] == [{"role": m.role, "content": m.parts[0]} for m in heard]
    recorder = RequestRecorder()
    await make_judge(judge, model=recorder)(run())
    ((_, asked),) = recorder.requests
    assert asked is not None
    fields = asked.parse(row["completion"][0]["content"])
    assert fields["status"] == row["verdict"] == "success"
    assert fields.get("thoughts", "the page thanks") == "the page thanks"
    if form == "word":
        assert row["completion"][0]["content"] == "success"


async def test_pictures_of_a_judge_that_sees_stand_in_its_rows(tmp_path: Path) -> None:
    Picture.new("RGB", (40, 30), "red").save(tmp_path / "last.png")
    seen = run(screenshot=str(tmp_path / "last.png"))
    (row,) = await rows_of({"name": "vlm", "form": "word"}, seen, Truth(True))
    (tmp_path / "rows.jsonl").write_bytes(encode(row))
    (sample,) = read_rows(tmp_path / "rows.jsonl", pictures=True).samples
    assert sample.images == (str(tmp_path / "last.png"),)
    assert (sample.answer, sample.verdict, sample.group) == ("success", "success", row["task"])


async def test_each_labelled_step_gives_a_row_of_its_own() -> None:
    words = {label: word for word, label in LABELS.items()}
    rows = await rows_of(STEPS, run(), Truth(steps={0: "towards", 2: "reached"}))
    assert [(row["step"], row["verdict"]) for row in rows] == [
        (0, words["towards"]),
        (2, words["reached"]),
    ]
    shown = [row["prompt"][-1]["content"] for row in rows]
    assert "page 0" in shown[0] and "page 2" not in shown[0] and "page 2" in shown[1]


@pytest.mark.parametrize(
    ("judge", "truth", "why"),
    [
        (MODULAR, Truth(steps={0: "towards"}), "the label does not answer"),
        ({**MODULAR, "form": "thoughts"}, Truth(True), "or gives no reason"),
    ],
)
async def test_what_is_not_known_is_not_taught(
    judge: dict[str, Any], truth: Truth, why: str
) -> None:
    assert why in await rows_of(judge, run(), truth)


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        ({"name": "rubric"}, "its stage 'criteria'"),
        ({"name": "nnetnav"}, "its stage 'changes'"),
        ({"name": "ask", "question": "Is it red?"}, "more than that and a reason"),
        ({**MODULAR, "form": "thoughts", "probability": "stated"}, "tells a probability"),
    ],
)
async def test_a_page_whose_replies_no_label_determines_is_refused(
    judge: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=f"cannot learn from labels: .*{why}.*; train modular"):
        await rows_of({"captioner": "text", **judge}, run(), Truth(True, "why"))


def test_only_verdicts_on_which_others_agree_are_taught() -> None:
    teacher = {id: said(id, s) for id, s in (("a", True), ("b", True), ("c", False), ("d", None))}
    second = {"a": said("a", True), "b": said("b", False), "c": said("c", None)}
    kept, lost = truths_from(None, teacher, second)
    assert {id: truth.success for id, truth in kept.items()} == {"a": True}
    assert lost == {"unscored or undecided": 1, "the second verdict is missing or differs": 2}
    labels = {"a": Truth(False), "b": Truth(True), "c": Truth(None)}
    kept, lost = truths_from(labels, teacher)
    assert set(kept) == {"b"} and kept["b"].reason == "the page thanks"
    assert lost["the label is missing or differs"] == 2


def test_steps_are_taught_where_both_say_the_same() -> None:
    def steps(*labels: Any) -> Any:
        return tuple(StepVerdict(i, label, 0.0, "why") for i, label in enumerate(labels))

    teacher = {"a": said("a", True, steps=steps("towards", "away", "reached"))}
    second = {"a": said("a", False, steps=steps("towards", "towards", "reached"))}
    kept, _ = truths_from(None, teacher, second)
    assert kept["a"].steps == {0: "towards", 2: "reached"} and kept["a"].success is None


def config(folder: Path, **changed: Any) -> prill.TrainJudgeConfig:
    runs = [run(f"r{i}", f"goal {i // 2}") for i in range(6)]
    (folder / "t.jsonl").write_bytes(b"".join(map(encode, runs)))
    labels = [LabelRecord(id=f"r{i}", success=i % 2 == 0, note="raw reward 1") for i in range(5)]
    labels[0] = replace(labels[0], steps=(StepLabel(0, "towards"), StepLabel(1, "away")))
    (folder / "l.jsonl").write_bytes(b"".join(map(encode, labels)))
    return prill.TrainJudgeConfig(
        **{
            "rows": folder / "t.jsonl",
            "labels": folder / "l.jsonl",
            "output": folder / "judge",
            **changed,
        }
    )


def test_rows_of_files_name_what_is_held_out_together(tmp_path: Path) -> None:
    made = config(tmp_path, grouping="goal").make_rows()
    assert [row["task"] for row in made.rows] == [f"goal {i // 2}" for i in range(5)]
    assert made.lost == {"nothing to learn": 1} and len(made.used) == 5
    assert not any("raw reward" in json.dumps(row) for row in made.rows)
    steps = config(tmp_path, judge="steps").make_rows()
    assert [(row["trajectory"], row["step"]) for row in steps.rows] == [("r0", 0), ("r0", 1)]


def test_soft_labels_are_the_teachers_probabilities(tmp_path: Path) -> None:
    scores = {"r0": 0.9, "r1": 0.25, "r2": None}
    said_so = [replace(said(id, (p or 1) > 0.5), score=p) for id, p in scores.items()]
    (tmp_path / "v.jsonl").write_bytes(b"".join(map(encode, said_so)))
    soft = config(tmp_path, labels=None, teacher_verdicts=tmp_path / "v.jsonl", soft_labels=True)
    rows = soft.make_rows().rows
    assert [(row["verdict"], row["probability"]) for row in rows] == [
        ("success", 0.9),
        ("failure", 0.25),
        ("success", None),
    ]
    hard = replace(soft, soft_labels=False).make_rows().rows
    assert not any("probability" in row for row in hard)


def test_soft_labels_need_a_teacher_and_one_word(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name its verdicts"):
        config(tmp_path, soft_labels=True)
    reasons = {"name": "modular", "form": "thoughts"}
    with pytest.raises(UsageError, match="set its form to word"):
        config(tmp_path, teacher_verdicts="v.jsonl", soft_labels=True, judge=reasons)


@pytest.mark.parametrize("format", ["trl", "llama-factory", "ms-swift", "axolotl"])
def test_other_trainers_get_the_rows_in_their_form(format: str, tmp_path: Path) -> None:
    path = config(tmp_path).make_rows().export(tmp_path / "rows", format)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 5 and (tmp_path / "rows" / "README.md").is_file()
    turns = rows[0].get("completion") or rows[0].get("messages") or rows[0]["conversations"]
    assert turns[-1].get("content", turns[-1].get("value")) == "success"


def test_rarer_verdicts_are_repeated_until_all_have_as_many(tmp_path: Path) -> None:
    made = config(tmp_path).make_rows()
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, made.rows)))
    samples = list(read_rows(tmp_path / "rows.jsonl").samples)[:4]
    samples = [replace(s, verdict="failure" if i else "success") for i, s in enumerate(samples)]
    even = balanced(samples, 0)
    assert [s.verdict for s in even].count("success") == 3 and even[:4] == samples
    assert balanced(even, 0) == even


@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("name", ["aer-c", "agenttrek", "webvoyager", "own"])
async def test_a_page_is_taught_its_own_call_in_its_own_words(
    name: str, success: bool, tmp_path: Path
) -> None:
    judge = {"name": own_page(tmp_path) if name == "own" else name, "captioner": "text"}
    whole = replace(run(), answer="It is there.")
    (row,) = await rows_of(judge, whole, Truth(success, "the page {thanks}"))
    taught = ScriptedModel([row["completion"][0]["content"]])
    verdict = await make_judge(judge, model=taught)(whole)
    assert (verdict.success, verdict.reason) == (success, "the page {thanks}")
    assert row["verdict"] in row["completion"][0]["content"]


def test_a_page_of_ones_own_is_trained_on_its_own_calls(tmp_path: Path) -> None:
    page = own_page(tmp_path, 'settings = {form = "word"}')
    runs, labels = tmp_path / "t.jsonl", tmp_path / "labels.jsonl"
    runs.write_bytes(encode(run("a")) + encode(run("b", text="Nothing was bought")))
    labels.write_bytes(
        b"".join(encode(LabelRecord(id=id, success=id == "a", source="x")) for id in "ab")
    )
    config = prill.TrainJudgeConfig(rows=runs, labels=labels, judge=page, output=tmp_path / "j")
    rows = config.make_rows().rows
    assert config.described == {"name": page, "captioner": "text"}
    shown = [row["prompt"][0]["content"] for row in rows]
    assert all(text.startswith("Was it done?") for text in shown)
    assert "Nothing was bought" in shown[1] and "Thank you" in shown[0]
    assert [row["completion"][0]["content"] for row in rows] == ["success", "failure"]
