"""Cited steps: every judge shows labels, its citations are found as models write them, and each is
checked against what that call showed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image as Picture

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import UsageError
from prill.evaluators.citations import check_citations, find_citations, wrong_citations
from prill.evaluators.frames import FrameSpec
from prill.evaluators.judgement import ModelJudge
from prill.evaluators.outcome import CaptionJudge, ModularSpec, VLMJudge, VLMSpec
from prill.evaluators.rubric import RubricJudge, RubricSpec
from prill.evaluators.steps import StepJudge, StepsSpec
from prill.evaluators.webjudge import WebJudge
from prill.protocols import LanguageModel, Limits, Message
from prill.testing import MockServer, ScriptedModel
from prill.types import Action, Findings, Observation, Step, Task, Trajectory, Verdict
from tests.support.messages import text

INSTRUCTION = "Cite the steps that your reasoning rests on"

# How models write that they mean a step, and the steps that are meant.
PHRASES = {
    "The cart is full [S3].": [3],
    "It was paid and confirmed (S3, S5).": [3, 5],
    "He looked through the list [S3–S5].": [3, 4, 5],
    "In [S3-5] nothing changed.": [3, 4, 5],
    "the cart is empty [s3]": [3],
    "As step 3 shows, it is there.": [3],
    "Step 3: the agent opened the cart.": [3],
    "**[S3]** shows a receipt": [3],
    "**S3** shows a receipt": [3],
    "the receipt is in `S3` and `[S4]`": [3, 4],
    "the receipt [S3][S4]": [3, 4],
    "the receipt [S1, S2, and S4]": [1, 2, 4],
    "the receipt ([S3]; [S5])": [3, 5],
    "- S3: the cart\n* S4: the receipt": [3, 4],
    "as seen in S3.": [3],
    "S1": [1],
    "S1, S3.": [1, 3],
    "(see S3)": [3],
    "(S3 shows it)": [3],
    "[Step 3]": [3],
    "[Step S3]": [3],
    "steps 2 and 3, then steps 5–6": [2, 3, 5, 6],
    "Steps 2 to 4 are searches": [2, 3, 4],
    "【S3】": [3],
    "[S3](#s3)": [3],
    "[S3: the cart page]": [3],
    "[S0]": [0],
    # what is not a citation
    "the Galaxy S10 Plus costs less": [],
    "the phone (S10 Plus)": [],
    "an Amazon S3 bucket": [],
    "S10 is the cheapest phone": [],
    "the page says Step 2 of 3": [],
    "step 3.5 of the recipe": [],
    "s3cret, MS3 and S3x": [],
    "In step 3, 4 items were left": [3],
}


@pytest.mark.parametrize("phrase", PHRASES)
def test_citations_are_found_as_models_write_them(phrase: str) -> None:
    found = find_citations(phrase)
    assert [index + 1 for _, index in found] == PHRASES[phrase]
    assert all(words in phrase for words, _ in found)


@pytest.mark.parametrize(
    "text", ["(S1," * 20_000, "steps 1," * 20_000, "in" + " " * 100_000, "S1-" * 50_000]
)
def test_long_replies_are_searched_in_no_time(text: str) -> None:
    began = time.process_time()
    find_citations(text)
    check_citations(text, run(), {0})
    assert time.process_time() - began < 20  # a quadratic search takes minutes


def run(count: int = 3, folder: Path | None = None, final: bool = True) -> Trajectory:
    """A run whose states have captions, and screenshots if there is a folder."""
    states = []
    for i in range(count + 1):
        shot = None
        if folder is not None:
            shot = str(folder / f"{i}.png")
            Picture.new("RGB", (20, 10), (40 * i, 0, 0)).save(shot)
        states.append(Observation(screenshot=shot, caption=f"page {i}"))
    steps = tuple(
        Step(state, Action("click", f"click on [S9] {i}")) for i, state in enumerate(states[:-1], 1)
    )
    task = Task(goal="Buy bread", platform="web")
    return Trajectory(id="a", task=task, steps=steps, final=states[-1] if final else None)


def statuses(verdict: Verdict) -> dict[int, str]:
    assert verdict.findings is not None and verdict.findings.citations
    return {one.step + 1: one.status for one in verdict.findings.citations}


REASON = "S1: opened. The receipt is there [S2, S3], as in [S4] and [S7]."
OUTCOME = json.dumps({"thoughts": REASON, "status": "success"})
ANSWERS = {
    "List its key points": json.dumps({"key_points": ["bread is bought"]}),
    "Write the criteria": json.dumps({"criteria": [{"text": "step 9: bread", "weight": 1}]}),
    "Then score from 1 to 5": json.dumps({"description": "a shop [S1]", "score": "1"}),
    "Then give each criterion": json.dumps({"description": "a shop [S1]", "scores": [1]}),
    "Judge every criterion": json.dumps(
        {
            "criteria": [{"criterion": 1, "reason": REASON, "step": 3, "met": "met"}],
            "side_effects": [],
            "obstacle_reason": "",
            "obstacle": "none",
        }
    ),
    "You judge the work": OUTCOME,
}


def answering() -> ScriptedModel:
    return ScriptedModel(
        lambda messages: next(reply for words, reply in ANSWERS.items() if words in text(messages))
    )


JUDGES: dict[str, Callable[[LanguageModel, bool], ModelJudge]] = {
    "modular": lambda model, on: CaptionJudge(
        model, GivenCaption(), spec=ModularSpec(citations=on)
    ),
    "vlm": lambda model, on: VLMJudge(model, spec=VLMSpec(citations=on, frames=1)),
    "webjudge": lambda model, on: WebJudge(
        model, GivenCaption(), spec=FrameSpec(citations=on, top_k=1)
    ),
    "rubric": lambda model, on: RubricJudge(
        model, GivenCaption(), spec=RubricSpec(citations=on, top_k=1)
    ),
}


@pytest.mark.parametrize("name", JUDGES)
async def test_citations_are_checked_against_what_was_shown(name: str, tmp_path: Path) -> None:
    model = answering()
    verdict = await JUDGES[name](model, True)(run(folder=tmp_path))
    shown = text(model.seen[-1])
    assert INSTRUCTION in shown
    assert "\nS1: click on [S9] 1\n" in shown
    assert "[S4]" in shown.partition("\nS3: ")[2]  # the last state has its label
    # Only the last state is shown, and of the others the actions; step 7 does not exist.
    action, missing = "action_shown", "no_such_step"
    assert statuses(verdict) == {1: action, 2: action, 3: action, 4: "shown", 7: missing}
    assert [one.text for one in wrong_citations(verdict.findings)] == ["S7"]


@pytest.mark.parametrize("name", JUDGES)
async def test_without_the_option_nothing_changes(name: str, tmp_path: Path) -> None:
    model = answering()
    judge, citing = JUDGES[name](model, False), JUDGES[name](model, True)
    verdict = await judge(run(folder=tmp_path))
    shown = "".join(map(text, model.seen))
    assert INSTRUCTION not in shown and "[S4]" not in shown and "\n1: click" in shown
    assert "citations" not in judge.info.params
    assert not (verdict.findings and verdict.findings.citations)
    assert citing.info.params == {**judge.info.params, "citations": True}
    assert citing.info.prompt != judge.info.prompt


async def test_a_judge_of_steps_cites_what_its_own_call_showed() -> None:
    def play(messages: Sequence[Message]) -> str:
        return "Thoughts: the receipt [S2], before [S3]\nResponse: not-sure"

    model = ScriptedModel(play)
    verdict = await StepJudge(model, GivenCaption(), spec=StepsSpec(citations=True))(run(2))
    first = next(text(seen) for seen in model.seen if "[S1]" in text(seen).partition("# user")[0])
    assert "[S1]\n[before" in first and "[S2]\n[after" in first
    assert verdict.findings is not None
    assert [(one.text, one.status) for one in verdict.findings.citations or ()] == [
        ("S2", "shown"),
        ("S3", "not_shown"),  # in the call on the first action
        ("S3", "shown"),
    ]


async def test_a_state_that_was_not_recorded_is_no_step() -> None:
    judge = CaptionJudge(answering(), GivenCaption(), spec=ModularSpec(citations=True))
    verdict = await judge(run(final=False))
    assert statuses(verdict)[4] == "no_such_step"
    assert statuses(verdict)[3] == "shown"


class FewPictures(ScriptedModel):
    """A model that takes at most two pictures."""

    async def limits(self) -> Limits:
        return Limits(images=2)


async def test_pictures_without_room_in_the_request_were_not_shown(tmp_path: Path) -> None:
    judge = VLMJudge(FewPictures([OUTCOME]), spec=VLMSpec(citations=True, frames=4))
    action, missing = "action_shown", "no_such_step"
    found = statuses(await judge(run(folder=tmp_path)))
    assert found == {1: "shown", 2: action, 3: action, 4: "shown", 7: missing}


def test_citations_need_a_reply_with_reasons() -> None:
    for options in ({"preset": "paper"}, {"form": "word"}):
        for spec in (VLMSpec, ModularSpec, StepsSpec):
            with pytest.raises(UsageError, match="citations|cites"):
                spec(citations=True, **options)  # type: ignore[arg-type]


async def test_the_option_goes_to_an_endpoint_and_into_the_verdict() -> None:
    with MockServer(truth="prill.testing:marked_truth") as server:
        judge = prill.judge(
            "modular",
            model="m",
            base_url=server.base_url,
            captioner="given",
            citations=True,
        )
        item = run()
        item = replace(item, task=replace(item.task, goal="truth=failure"))
        verdict = await judge(item)
    assert verdict.success is False and verdict.reason.endswith("[S4]")
    assert statuses(verdict) == {4: "shown"}


def test_names_that_look_like_labels_of_no_step_are_no_citations() -> None:
    text = "bus **S92**, Osium AI (S2023, Paris), [S92], step 92, (S1, S93)"
    found = check_citations(text, run(), {0})
    assert [one.text for one in found if one.status == "no_such_step"] == ["S92", "step 92", "S93"]
    assert check_citations("bus **S92** (S2023, Paris)", run(), {0}) == ()


def test_a_reply_has_one_citation_of_a_step_however_often_it_names_it() -> None:
    found = check_citations("[S1] and [S1] and step 1", run(), {0})
    assert [(one.text, one.step, one.status) for one in found] == [
        ("S1", 0, "shown"),
        ("step 1", 0, "shown"),
    ]
    assert list(wrong_citations(Findings(citations=found))) == []
    assert list(wrong_citations(None)) == []
