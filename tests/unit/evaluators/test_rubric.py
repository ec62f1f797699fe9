"""The rubric judge: a criterion is met only by a state that was shown, and the share of the weight
is told apart.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import CallTimeoutError, ContextTooLongError, RefusalError, UsageError
from prill.evaluators.criteria import Rubric, RubricCriterion, read_rubrics
from prill.protocols import Message
from prill.testing import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory, Usage, Verdict
from tests.support.messages import images, text

RUBRIC = Rubric(
    (RubricCriterion("The kettle is blue", 3.0), RubricCriterion("It is in the cart", 1.0))
)
GIVEN = {"t": RUBRIC}


def attempt(
    count: int = 3, id: str = "a", goal: str = "Buy a blue kettle", folder: Path | None = None
) -> Trajectory:
    def state(i: int) -> Observation:
        if folder is None:
            return Observation(caption=f"screen {i}")
        path = folder / f"{i:02}.png"
        Picture.new("RGB", (20, 10), (i, 0, 0)).save(path)
        return Observation(screenshot=str(path))

    steps = tuple(
        Step(state(i), Action("click", f"deed {i}"), "surely done") for i in range(count - 1)
    )
    return Trajectory(
        id=id, task=Task(id="t", goal=goal), steps=steps, final=state(count - 1), answer="Bought"
    )


def stage(messages: Sequence[Message]) -> str:
    head = messages[0].parts[0]
    assert isinstance(head, str)
    return (
        "criteria"
        if "Write the criteria" in head
        else "rating"
        if "give each criterion" in head
        else "verdict"
    )


def assessed(*found: tuple[str, int], **more: Any) -> str:
    criteria = [
        {"criterion": i, "reason": f"because {i}", "step": s, "met": m}
        for i, (m, s) in enumerate(found, 1)
    ]
    return json.dumps(
        {
            "criteria": criteria,
            "side_effects": [],
            "obstacle_reason": "",
            "obstacle": "none",
            **more,
        }
    )


class Model(ScriptedModel):
    """`scores` gives the ratings by what a picture is called or what a text holds."""

    def __init__(
        self, verdict: Any = "", scores: dict[str, Any] | None = None, criteria: Any = ""
    ) -> None:
        self.verdict, self.scores, self.criteria = verdict, scores or {}, criteria
        super().__init__(self._answer)

    def _answer(self, messages: Sequence[Message]) -> Any:
        if stage(messages) == "criteria":
            return self.criteria
        if stage(messages) == "verdict":
            return self.verdict.pop(0) if isinstance(self.verdict, list) else self.verdict
        shown = (images(messages) or [text(messages)])[0]
        scores = next((value for name, value in self.scores.items() if name in shown), [3, 3])
        return (
            scores
            if isinstance(scores, Exception)
            else json.dumps({"description": "a sight", "scores": scores})
        )

    def of(self, name: str) -> list[tuple[Message, ...]]:
        return [messages for messages in self.seen if stage(messages) == name]


async def judged(model: Model, count: int = 3, **options: Any) -> Verdict:
    return await prill.judge(
        "rubric", model=model, captioner=GivenCaption(), rubrics=GIVEN, **options
    )(attempt(count))


async def test_all_criteria_met_is_success() -> None:
    model = Model(assessed(("met", 1), ("met", 2)))
    verdict = await judged(model)
    assert (verdict.success, verdict.score) == (True, 1.0)
    assert verdict.findings is not None
    assert verdict.findings.process == 1.0
    first = verdict.findings.criteria[0]
    assert (first.text, first.weight, first.met, first.step, first.reason) == (
        "The kettle is blue",
        3.0,
        "met",
        1,
        "because 1",
    )
    shown = text(model.of("verdict")[0])
    for words in (
        "Buy a blue kettle",
        "2. It is in the cart",
        "2: deed 1",
        "State 1 (after action 1)",
        "screen 2",
        "Bought",
    ):
        assert words in shown
    assert "surely" not in shown


@pytest.mark.parametrize(
    ("found", "met", "process"),
    [
        ((("met", 1), ("not_met", 2)), ("met", "not_met"), 0.75),
        ((("not_met", -1), ("met", 2)), ("not_met", "met"), 0.25),
        ((("insufficient_evidence", -1), ("met", 2)), ("insufficient_evidence", "met"), 0.25),
        ((("met", -1), ("met", 2)), ("insufficient_evidence", "met"), 0.25),  # no proof is given
        # there is no such state
        ((("met", 3), ("met", 2)), ("insufficient_evidence", "met"), 0.25),
        ((("not_met", 9), ("met", 2)), ("insufficient_evidence", "met"), 0.25),
    ],
)
async def test_criterion_without_proof_fails(
    found: tuple[tuple[str, int], ...], met: tuple[str, ...], process: float
) -> None:
    verdict = await judged(Model(assessed(*found)))
    assert verdict.findings is not None
    assert tuple(criterion.met for criterion in verdict.findings.criteria) == met
    assert (verdict.success, verdict.findings.process, verdict.score) == (
        False,
        process,
        process / 2,
    )
    assert "1 of 2 criteria met" in verdict.reason


@pytest.mark.parametrize(
    "found",
    [(("insufficient_evidence", -1), ("insufficient_evidence", -1)), (("met", -1), ("not_met", 9))],
)
async def test_evidence_of_nothing_is_unscored(found: tuple[tuple[str, int], ...]) -> None:
    verdict = await judged(Model(assessed(*found)))
    assert (verdict.success, verdict.unscored) == (None, "no_evidence")
    assert verdict.reason is not None
    assert "The kettle is blue" in verdict.reason


async def test_state_not_shown_proves_nothing() -> None:
    model = Model(assessed(("met", 0), ("met", 3)), {"screen 0": [1, 1]})
    verdict = await judged(model, 4, top_k=2)
    assert "screen 0" not in text(model.of("verdict")[0])
    assert verdict.findings is not None
    first = verdict.findings.criteria[0]
    assert (first.met, first.step) == ("insufficient_evidence", None)
    assert "said met by state 0, which was not shown" in first.reason
    assert verdict.success is False


async def test_lower_threshold_passes_a_share() -> None:
    verdict = await judged(Model(assessed(("met", 1), ("not_met", 2))), threshold=0.75)
    assert (verdict.success, verdict.score) == (True, 0.875)


async def test_obstacle_and_side_effects_apart() -> None:
    reply = assessed(
        ("met", 1),
        ("met", 2),
        obstacle="login_wall",
        obstacle_reason="asks for one",
        side_effects=["removed a cup", " "],
    )
    verdict = await judged(Model(reply))
    assert verdict.findings is not None
    assert verdict.findings.not_executable == "login_wall: asks for one"
    assert verdict.findings.side_effects == ("removed a cup",)
    assert (verdict.success, verdict.score, verdict.findings.process) == (False, 0.0, 1.0)
    harmless = await judged(Model(assessed(("met", 1), ("met", 2), side_effects=["removed a cup"])))
    assert harmless.success is True


async def test_best_frames_of_each_criterion(tmp_path: Path) -> None:
    scores = {"00": [5, 1], "01": [4, 1], "02": [1, 5], "03": [3, 2], "04": [1, 1], "05": [1, 1]}
    model = Model(assessed(("met", 0), ("met", 2)), scores)
    assert (
        await prill.judge("rubric", model=model, rubrics=GIVEN, top_k=1)(
            attempt(6, folder=tmp_path)
        )
    ).success
    assert images(model.of("verdict")[0]) == ["00", "02", "05"]
    assert len(model.of("rating")) == 6


@pytest.mark.parametrize("scores", [[3], [3, 3, 3], [0, 6], "none"])
async def test_unusable_rating_keeps_its_frame(scores: Any) -> None:
    model = Model(assessed(("met", 0), ("met", 2)), {"screen 0": scores, "screen 1": [1, 1]})
    verdict = await judged(model)
    assert verdict.success
    assert verdict.reason == "2 of 2 criteria met [1 of 3 frames could not be rated]"
    assert "screen 1" not in text(model.of("verdict")[0])


@pytest.mark.parametrize("failure", [CallTimeoutError("late"), RefusalError("no")])
async def test_failed_call_leaves_unscored(failure: Exception) -> None:
    for model in (Model(failure), Model(scores={"screen 1": failure})):
        verdict = await judged(model)
        assert (verdict.success, verdict.unscored) == (None, getattr(failure, "code", ""))


async def test_criteria_made_once_for_each_goal() -> None:
    criteria = json.dumps(
        {
            "criteria": [
                {"text": "The kettle is blue", "weight": 3},
                {"text": "In the cart", "weight": 1},
            ]
        }
    )
    model = Model(assessed(("met", 0), ("not_met", -1)), criteria=criteria)
    judge = prill.judge("rubric", model=model, captioner=GivenCaption())
    verdicts = await asyncio.gather(*(judge(attempt(id=str(i))) for i in range(10)))
    assert {verdict.findings.process for verdict in verdicts if verdict.findings} == {0.75}
    assert len(model.of("criteria")) == 1
    await judge(attempt(goal="Buy a red kettle"))
    assert len(model.of("criteria")) == 2
    later = attempt()
    await judge(
        replace(later, task=replace(later.task, earlier=(attempt(goal="Only under 20 euros"),)))
    )
    assert "1. Only under 20 euros" in text(model.of("criteria")[2]), (
        "after another request it asks for something else"
    )


@pytest.mark.parametrize(
    "criteria",
    [
        [],
        [{"text": " ", "weight": 1}],
        [{"text": "x", "weight": 0}],
        [{"text": "x", "weight": -1}],
        [{"text": "Same", "weight": 1}, {"text": "same", "weight": 2}],
    ],
)
async def test_unusable_criteria_are_not_kept(criteria: list[dict[str, Any]]) -> None:
    model = Model(assessed(("met", 0)), {"": [3]}, criteria=json.dumps({"criteria": criteria}))
    judge = prill.judge("rubric", model=model, captioner=GivenCaption())
    assert (await judge(attempt())).unscored == "parse"
    model.criteria = json.dumps({"criteria": [{"text": "x", "weight": 1}]})
    assert (await judge(attempt())).success


async def test_criteria_go_by_task_or_goal() -> None:
    model = Model(assessed(("met", 0), ("met", 1)))
    by_goal = prill.judge(
        "rubric", model=model, captioner=GivenCaption(), rubrics={"Buy a blue kettle": RUBRIC}
    )
    assert (await by_goal(attempt())).success
    assert not model.of("criteria")
    other = prill.judge(
        "rubric", model=ScriptedModel([]), captioner=GivenCaption(), rubrics={"another": RUBRIC}
    )
    verdict = await other(attempt())
    assert (verdict.unscored, verdict.usage) == ("input", Usage())
    assert "'t'" in verdict.reason
    model.criteria = json.dumps({"criteria": [{"text": "x", "weight": 1}]})
    model.scores = {"": [3]}
    made = prill.judge(
        "rubric",
        model=model,
        captioner=GivenCaption(),
        rubrics={"another": RUBRIC},
        make_missing=True,
    )
    assert (await made(attempt())).success


async def test_too_long_sent_with_fewer_proofs(tmp_path: Path) -> None:
    reply = assessed(("met", 1), ("met", 5))
    model = Model([ContextTooLongError("too long"), reply], {"00": [5, 5]})
    verdict = await prill.judge("rubric", model=model, rubrics=GIVEN, top_k=5)(
        attempt(6, folder=tmp_path)
    )
    assert [images(messages) for messages in model.of("verdict")] == [
        ["00", "01", "02", "03", "04", "05"],
        ["00", "05"],
    ]
    assert verdict.findings is not None
    assert [criterion.met for criterion in verdict.findings.criteria] == [
        "insufficient_evidence",
        "met",
    ]


TOML = """
[[rubric]]
task_id = "t"
criteria = [{ text = "The kettle is blue", weight = 3 }, { text = "It is in the cart" }]
"""


def test_rubrics_read_from_json_and_toml(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(TOML)
    row = {
        "task_id": "t",
        "criteria": [{"text": "The kettle is blue", "weight": 3}, {"text": "It is in the cart"}],
    }
    (tmp_path / "r.jsonl").write_text(
        json.dumps(row) + "\n" + json.dumps({"goal": "g", "criteria": [{"text": "x"}]}) + "\n"
    )
    assert read_rubrics(tmp_path / "r.toml") == {"t": RUBRIC}
    assert read_rubrics(tmp_path / "r.jsonl") == {"t": RUBRIC, "g": Rubric((RubricCriterion("x"),))}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", r"r.jsonl:1: not JSON"),
        ('{"criteria": [{"text": "x"}]}', r"r.jsonl:1: expected a \"task_id\" or a \"goal\""),
        ('{"task_id": "a"}', r"Expected `array`, got `null` - at `\$.criteria`"),
        (
            '{"task_id": "a", "criteria": [{"text": "x", "wieght": 2}]}',
            r"unknown field 'wieght'; expected one of text, weight",
        ),
        (
            '{"task_id": "a", "criteria": [{"text": "x", "weight": 0}]}',
            r"weight 0: expected a positive number",
        ),
        ('{"task_id": "a", "criteria": [{"text": "x"}, {"text": "X "}]}', r"'X ' occurs twice"),
        (
            '{"goal": "a", "criteria": [{"text": "x"}]}\n' * 2,
            r"r.jsonl:2: 'a' already has a rubric",
        ),
    ],
)
def test_broken_rubric_file_says_where(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "r.jsonl").write_text(content)
    with pytest.raises(UsageError, match=problem):
        read_rubrics(tmp_path / "r.jsonl")


async def test_findings_in_any_order_last_counts() -> None:
    def finding(criterion: Any, met: str, step: Any) -> dict[str, Any]:
        return {"criterion": criterion, "reason": f"{met} at {step}", "step": step, "met": met}

    found = [
        finding("2", "met", "2"),
        finding(1, "met", 0),
        finding(7, "met", 0),
        finding(1, "not_met", None),
    ]
    verdict = await judged(Model(json.dumps({**json.loads(assessed()), "criteria": found})))
    assert verdict.findings is not None
    assert [(c.met, c.step) for c in verdict.findings.criteria] == [("not_met", None), ("met", 2)]
