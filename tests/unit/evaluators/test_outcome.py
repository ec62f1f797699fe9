"""The two evaluators of the paper, with a scripted model and with the mock endpoint."""

import asyncio
import time
from dataclasses import replace
from importlib.resources import files
from math import log
from pathlib import Path
from statistics import median

import pytest
from PIL import Image as Picture

from prill.captioner.recorded import GivenCaption
from prill.errors import ContextTooLongError, UsageError
from prill.evaluators.judgement import Judgement, make_verdict
from prill.evaluators.outcome import CaptionJudge, ModularSpec, VLMJudge, VLMSpec
from prill.models.client import OpenAIModel
from prill.models.prompts import NONCE, Prompt, load_prompt
from prill.protocols import Image, Message, Reply, Token
from prill.scoring.scorer import score_stream
from prill.testing import MockServer, ScriptedModel
from prill.types import Action, Observation, Platform, Step, Task, Trajectory, Usage
from tests.support.messages import text

SUCCESS = "Thoughts: it is there\nStatus: success"


class Given:
    """The caption in the record."""

    name = "given"

    async def __call__(self, observation: Observation) -> str:
        return observation.caption or ""


def trajectory(folder: Path | None = None, platform: Platform = "web", **last: str) -> Trajectory:
    if folder:
        last["screenshot"] = str(folder / "end.png")
        Picture.new("RGB", (20, 10)).save(last["screenshot"])
    steps = (
        Step(
            Observation(caption="start page"),
            Action("click", "click [7] where [7] is link 'Cart'"),
            "I am sure I did it",
        ),
    )
    task = Task(goal="Put it in the cart", platform=platform)
    return Trajectory(id="a", task=task, steps=steps, final=Observation(**last), answer="Done!")


async def test_modular_judge_shows_no_thoughts() -> None:
    model = ScriptedModel([SUCCESS])
    verdict = await CaptionJudge(model, Given())(trajectory(caption="The cart holds 1 item"))
    assert (verdict.success, verdict.score, verdict.reason) == (True, 1.0, "it is there")
    shown = text(model.seen[0])
    for words in (
        "Put it in the cart",
        "1: click at [link 'Cart']",
        "The cart holds 1 item",
        "Done!",
    ):
        assert words in shown
    assert "I am sure" not in shown
    assert "start page" not in shown


async def test_vision_judge_sees_last_frames(tmp_path: Path) -> None:
    model = ScriptedModel([SUCCESS])
    verdict = await VLMJudge(model)(trajectory(tmp_path))
    assert verdict.success
    system, user = model.seen[0]
    assert system.role == "system"
    assert user.parts[-1] == Image(str(tmp_path / "end.png"))
    assert "Image 1: the state after the last action." in text((user,))


async def test_vision_judge_sees_what_tells(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for shade, path in enumerate(paths):
        Picture.new("RGB", (20, 10), (shade, 0, 0)).save(path)
    states = [Observation(screenshot=str(path), url=f"http://shop/{path.stem}") for path in paths]
    actions = (
        Action("click", "click [1]"),
        Action("click", "click", target="button 'Buy'"),
        *[Action("scroll", "scroll")] * 2,
    )
    steps = tuple(Step(state, action) for state, action in zip(states, actions, strict=False))
    run = Trajectory(id="a", task=Task(goal="g", platform="web"), steps=steps, final=states[-1])
    model = ScriptedModel([SUCCESS] * 3)
    for options in ({}, {"frames": 2}, {"preset": "paper"}):
        await VLMJudge(model, spec=VLMSpec(**options))(run)  # type: ignore[arg-type]
    images = [
        [Path(part.path).stem for part in messages[1].parts if isinstance(part, Image)]
        for messages in model.seen
    ]
    assert images == [["0", "1", "3", "4"], ["3", "4"], ["4"]]
    sent = text(model.seen[0])
    assert "Image 2: the state before action 2 of 4." in sent
    assert "Image 2: http://shop/1\n" in sent.split("[addresses ")[1].split("[/addresses")[0]
    assert "http://shop" not in text(model.seen[2]), "the paper shows no address"


async def test_state_before_stands_in_for_the_last() -> None:
    spoken = Step(Observation(), Action("stop", "stop [Done]"))
    run = trajectory()
    for last in (replace(run, final=None), replace(run, steps=(*run.steps, spoken), final=None)):
        model = ScriptedModel([SUCCESS])
        assert (await CaptionJudge(model, GivenCaption())(last)).success
        assert f"The state before action 1 of {len(last.steps)}:\n[state" in text(model.seen[0])


async def test_end_unread_is_no_evidence(tmp_path: Path) -> None:
    shot = trajectory(tmp_path, caption="x").observations[-1]
    click, wait, stop = (Step(shot, Action(kind, kind)) for kind in ("click", "wait", "stop"))
    blind = Step(Observation(), Action("wait", "wait"))
    said = replace(stop, observation=Observation())
    # (actions and what was seen before each, the state after the last, whether somebody can tell
    # what came of it)
    runs: list[tuple[tuple[Step, ...], Observation | None, bool]] = [
        ((click, wait), Observation(), False),
        ((click, wait), Observation(url="http://shop"), False),
        ((click, stop), Observation(), True),
        ((click, stop, said), Observation(), True),
        ((click, wait), None, True),
        ((click, blind), None, True),
        ((click, blind, blind), None, False),
        ((click, blind, said), None, False),
        ((), shot, True),
        ((), None, False),
    ]
    for steps, final, seen in runs:
        run = replace(trajectory(), steps=steps, final=final)
        for judge in (
            *(VLMJudge(ScriptedModel([SUCCESS]), spec=VLMSpec(frames=n)) for n in (None, 1, 4)),
        ):
            assert ((await judge(run)).unscored, judge.estimate(run).calls) == (
                None if seen else "no_evidence",
                int(seen),
            )
            assert bool(judge.screenshots(run)) is seen
        for reader in (
            CaptionJudge(ScriptedModel([SUCCESS]), GivenCaption(), spec=ModularSpec(frames=n))
            for n in (1, 2, 4)
        ):
            assert ((await reader(run)).unscored, reader.estimate(run).calls) == (
                None if seen else "no_evidence",
                int(seen),
            )


@pytest.mark.parametrize(
    "word", ["insufficient-evidence", "Insufficient evidence.", "insufficient_evidence"]
)
async def test_insufficient_evidence_is_no_verdict(word: str) -> None:
    reply = f"Thoughts: the page after the order is missing\nStatus: {word}"
    verdict = await CaptionJudge(ScriptedModel([reply]), Given())(trajectory(caption="x"))
    assert (verdict.success, verdict.unscored, verdict.rewards) == (None, "no_evidence", None)
    assert "the page after the order is missing" in verdict.reason
    paper = ScriptedModel([reply])
    assert (
        await CaptionJudge(paper, Given(), spec=ModularSpec(preset="paper"))(
            trajectory(caption="x")
        )
    ).unscored == "parse"


async def test_score_leaves_out_third_answer() -> None:
    likely = (("failure", log(0.2)), ("insufficient", log(0.2)), ("success", log(0.6)))
    tokens = (Token("Status: ", 0.0), Token("success", log(0.6), likely))
    model = ScriptedModel([Reply(SUCCESS, Usage(), {"thoughts": "x", "status": "success"}, tokens)])
    assert (await CaptionJudge(model, Given())(trajectory(caption="x"))).score == 0.75


@pytest.mark.parametrize(("status", "last"), [("success", 1.0), ("failure", 0.0)])
async def test_rewards_are_those_of_the_paper(status: str, last: float) -> None:
    run = trajectory(caption="x")
    run = replace(run, steps=run.steps * 3)
    model = ScriptedModel([f"Thoughts: x\nStatus: {status}"] * 2)
    assert (await CaptionJudge(model, Given())(run)).rewards == (0.0, 0.0, last)
    assert (await CaptionJudge(model, Given())(replace(run, steps=()))).rewards is None


PROMPTS = sorted(
    file.name.removesuffix(".md") for file in (files("prill.evaluators") / "prompts").iterdir()
)
PAPERS = [name for name in PROMPTS if name.startswith("paper_")]
ADDED = ("citations", "described_frames")  # to the first turn of other prompts
MEASURED = "likelihood"  # a model writes nothing after it, and its calls quote different runs


@pytest.mark.parametrize(
    "name", [name for name in PROMPTS if name not in (*PAPERS, *ADDED, MEASURED)]
)
def test_calls_of_a_prompt_begin_alike(name: str) -> None:
    prompt = load_prompt("prill.evaluators", name)
    system, user = prompt.text.split("\n# user\n")
    assert set(Prompt(name, system).slots) <= {"device"}
    assert user.startswith("The code of this message is {{ code }};"), (
        "the code stands before all that is quoted"
    )


@pytest.mark.parametrize("name", PAPERS)
def test_paper_prompts_add_nothing(name: str) -> None:
    prompt = load_prompt("prill.evaluators", name)
    assert "code" not in prompt.slots
    for addition in ("quoted", "instruction", "evidence", "may be false", "`"):
        assert addition not in prompt.text.replace("```", "")


async def test_paper_preset_is_plain_text(tmp_path: Path) -> None:
    run = replace(
        trajectory(tmp_path, caption="The cart holds [1] item"),
        answer=None,
        metadata={"date": "2026-01-05"},
    )
    run = replace(run, final=replace(run.final or Observation(), url="http://shop/cart"))
    model = ScriptedModel([SUCCESS] * 3)
    await CaptionJudge(model, Given(), spec=ModularSpec(preset="paper"))(run)
    await VLMJudge(model, spec=VLMSpec(preset="paper", answer=True))(run)
    await VLMJudge(model, spec=VLMSpec(preset="paper"))(run)
    for messages in model.seen:
        sent = text(messages)
        assert not [
            word
            for word in (NONCE, "[request", "[/", "http://shop", "2026", "code of this")
            if word in sent
        ]
        assert (
            "User intent: Put it in the cart\n\nAction history:\n1: click at [link 'Cart']\n"
            in sent
        )
    worded, seen, silent = map(text, model.seen)
    assert "```md\nThe cart holds [1] item\n```" in worded
    assert worded.rstrip().endswith("answer to the user: N/A")
    assert seen.rstrip().endswith("answer to the user: N/A")
    assert silent.rstrip().endswith("is in the image.")
    assert model.seen[1][1].parts[-1] == Image(str(tmp_path / "end.png"), detail="high")


async def test_answer_can_be_left_out() -> None:
    model = ScriptedModel([SUCCESS])
    await CaptionJudge(model, Given(), spec=ModularSpec(answer=False))(trajectory(caption="x"))
    assert "Done!" not in text(model.seen[0])


async def test_left_out_answer_not_in_actions(tmp_path: Path) -> None:
    plain = trajectory(tmp_path, caption="x")
    spoken = replace(
        plain,
        steps=(
            *plain.steps,
            Step(Observation(), Action("stop", "stop [It costs 12]", value="It costs 12")),
        ),
    )
    for build in (
        lambda model, **options: VLMJudge(model, spec=VLMSpec(**options)),
        lambda model, **options: CaptionJudge(model, Given(), spec=ModularSpec(**options)),
    ):
        model = ScriptedModel([SUCCESS] * 3)
        for options in ({}, {"answer": False}, {"preset": "paper"}):
            await build(model, **options)(spoken)  # type: ignore[operator]
        shown = ["It costs 12" in text(messages) for messages in model.seen]
        assert shown == [True, False, True], "the paper's protocol shows the actions as they are"


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ("web", "web sites"),
        ("android", "Android phone"),
        ("ios", "iPhone"),
        ("desktop", "desktop computer"),
    ],
)
async def test_prompt_follows_the_platform(platform: Platform, words: str) -> None:
    model = ScriptedModel([SUCCESS])
    await CaptionJudge(model, Given())(trajectory(platform=platform, caption="x"))
    assert words in text(model.seen[0])


async def test_no_evidence_makes_no_call() -> None:
    model = ScriptedModel([])
    assert (await VLMJudge(model)(trajectory(caption="x"))).unscored == "no_evidence"
    assert (
        await CaptionJudge(model, Given())(Trajectory(id="a", task=Task(goal="g")))
    ).unscored == "no_evidence"


async def test_prompt_too_long_is_sent_shorter() -> None:
    model = ScriptedModel([ContextTooLongError("too long"), SUCCESS])
    verdict = await CaptionJudge(model, Given(), spec=ModularSpec(max_chars=4000))(
        trajectory(caption="x" * 9000)
    )
    assert verdict.success
    first, second = (text(messages).count("x") for messages in model.seen)
    assert 4000 <= first < 4100
    assert 660 <= second < 760
    model = ScriptedModel([ContextTooLongError("too long")])
    assert (await CaptionJudge(model, Given())(trajectory(caption="short"))).unscored == "context"


async def test_long_history_keeps_every_action() -> None:
    model = ScriptedModel([ContextTooLongError("too long"), SUCCESS])
    steps = tuple(Step(Observation(), Action("type", f"type {i} " + "y" * 700)) for i in range(30))
    long = Trajectory(
        id="a", task=Task(goal="g", platform="web"), steps=steps, final=Observation(caption="x")
    )
    assert (await CaptionJudge(model, Given())(long)).success
    first, second = map(text, model.seen)
    assert first.count("y") > 12_000
    assert second.count("y") < 4_000
    assert all(f"\n{i}: type {i - 1} yy" in second for i in range(1, 31))


async def test_score_is_probability_of_success() -> None:
    with MockServer() as server:
        judge = CaptionJudge(OpenAIModel("m", base_url=server.base_url), Given())
        good = await judge(trajectory(caption="truth=success"))
        bad = await judge(trajectory(caption="truth=failure"))
    assert (good.success, bad.success) == (True, False)
    assert good.score is not None
    assert bad.score is not None
    assert 0.5 < good.score < 1.0
    assert 0.0 < bad.score < 0.5
    with MockServer(no_logprobs=True) as server:
        plain = await CaptionJudge(OpenAIModel("m", base_url=server.base_url), Given())(
            trajectory(caption="truth=failure")
        )
    assert (plain.success, plain.score) == (False, 0.0)


def test_identity_holds_every_setting() -> None:
    model = ScriptedModel([])
    infos = [
        VLMJudge(model).info,
        VLMJudge(model, spec=VLMSpec(frames=1)).info,
        VLMJudge(model, spec=VLMSpec(frames=2)).info,
        VLMJudge(model, spec=VLMSpec(preset="paper")).info,
        VLMJudge(model, spec=VLMSpec(answer=False)).info,
        CaptionJudge(model, Given()).info,
        CaptionJudge(model, Given(), spec=ModularSpec(max_tokens=9)).info,
        CaptionJudge(model, Given(), spec=ModularSpec(max_chars=9)).info,
    ]
    assert len({str(info) for info in infos}) == len(infos)
    assert VLMJudge(model).info == VLMJudge(model).info
    assert all(info.prompt and info.prompt.startswith("sha256:") for info in infos)


async def test_missing_screenshot_input_failure() -> None:
    with MockServer() as server:
        verdict = await VLMJudge(OpenAIModel("m", base_url=server.base_url))(
            trajectory(screenshot="/nowhere/x.png")
        )
    assert verdict.unscored == "input"
    assert "image /nowhere/x.png is missing" in verdict.reason


async def test_thoughts_only_shown_on_request() -> None:
    model = ScriptedModel([SUCCESS])
    await CaptionJudge(model, Given(), spec=ModularSpec(thoughts=True))(trajectory(caption="x"))
    shown = text(model.seen[0])
    assert "1: I am sure I did it" in shown.split("[thoughts ")[1].split("[/thoughts")[0]


@pytest.mark.parametrize(
    ("kind", "platform", "shown"),
    [
        ("text", "web", True),
        ("text", "android", False),
        ("vision", "web", False),
        ("vision", "ios", True),
    ],
)
async def test_paper_preset_shows_the_answer(
    tmp_path: Path, kind: str, platform: Platform, shown: bool
) -> None:
    model = ScriptedModel([SUCCESS])
    judge = (
        VLMJudge(model, spec=VLMSpec(preset="paper"))
        if kind == "vision"
        else CaptionJudge(model, Given(), spec=ModularSpec(preset="paper"))
    )
    verdict = await judge(trajectory(tmp_path, platform, caption="x"))
    assert verdict.success
    assert verdict.evaluator.params["preset"] == "paper"
    assert ("Done!" in text(model.seen[0])) is shown


async def test_paper_preset_asks_for_two_lines() -> None:
    with MockServer() as server:
        model = OpenAIModel("m", base_url=server.base_url)
        paper = await CaptionJudge(model, Given(), spec=ModularSpec(preset="paper"))(
            trajectory(caption="truth=success")
        )
    assert (paper.success, model.capabilities.structured) == (True, "json_schema")
    assert paper.reason
    assert "{" not in paper.reason


def test_paper_preset_shows_one_state() -> None:
    with pytest.raises(UsageError, match="one state"):
        CaptionJudge(ScriptedModel([]), Given(), spec=ModularSpec(preset="paper", frames=2))


async def test_seconds_leave_out_the_queue() -> None:
    waiting = [replace(trajectory(caption="The cart holds 1 item"), id=f"t{i}") for i in range(10)]
    with MockServer(latency=0.2) as server:
        judge = CaptionJudge(OpenAIModel("mock", base_url=server.base_url, concurrency=2), Given())
        await judge(waiting[0])  # the connection is open now
        start = time.perf_counter()
        seconds = [
            verdict.seconds async for verdict in score_stream(waiting, judge, concurrency=10)
        ]
        elapsed = time.perf_counter() - start
    # Five rounds of two calls: with its time in the queue, half of them would have taken three
    # rounds or more.
    assert elapsed > 1
    assert 0.2 <= median(seconds) < 0.4 * elapsed


async def test_calls_side_by_side_are_own_time() -> None:
    async def four_calls() -> Judgement:
        await asyncio.gather(*(model.complete((Message("user", (str(i),)),)) for i in range(4)))
        return Judgement(True, 1.0, "")

    with MockServer(latency=0.1) as server:
        model = OpenAIModel("mock", base_url=server.base_url, concurrency=2)
        verdict = await make_verdict(CaptionJudge(model, Given()), trajectory(), four_calls)
    assert verdict.seconds >= 0.2  # while two wait, the others run
