"""The two evaluators of the paper, with a scripted model and with the mock endpoint."""

import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from statistics import median

import pytest
from PIL import Image as Picture

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import ContextTooLongError, UsageError
from prill.evaluators.judge import load_page
from prill.evaluators.scoring.scorer import score_stream
from prill.models.client import OpenAIModel
from prill.models.prompts import NONCE, Prompt, load_prompt
from prill.protocols import Image
from prill.testing import MockServer, ScriptedModel
from prill.types import Action, Observation, Platform, Step, Task, Trajectory
from tests.support.messages import text

SUCCESS = "Thoughts: it is there\nStatus: success"


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
    verdict = await prill.judge("modular", model=model, captioner=GivenCaption())(
        trajectory(caption="The cart holds 1 item")
    )
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
    for options in ({"name": "vlm"}, {"name": "vlm", "frames": 2}, {"name": "aer-v"}):
        await prill.judge({**options, "model": model})(run)
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
        assert (await prill.judge("modular", model=model, captioner=GivenCaption())(last)).success
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
            *(prill.judge("vlm", model=ScriptedModel([SUCCESS]), frames=n) for n in (None, 1, 4)),
        ):
            assert ((await judge(run)).unscored, judge.estimate(run).calls) == (
                None if seen else "no_evidence",
                int(seen),
            )
            assert bool(judge.screenshots(run)) is seen
        for reader in (
            prill.judge(
                "modular", model=ScriptedModel([SUCCESS]), captioner=GivenCaption(), frames=n
            )
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
    verdict = await prill.judge("modular", model=ScriptedModel([reply]), captioner=GivenCaption())(
        trajectory(caption="x")
    )
    assert (verdict.success, verdict.unscored, verdict.rewards) == (None, "no_evidence", None)
    assert "the page after the order is missing" in verdict.reason
    paper = ScriptedModel([reply])
    assert (
        await prill.judge("aer-c", model=paper, captioner=GivenCaption())(trajectory(caption="x"))
    ).unscored == "parse"


@pytest.mark.parametrize(("status", "last"), [("success", 1.0), ("failure", 0.0)])
async def test_rewards_are_those_of_the_paper(status: str, last: float) -> None:
    run = trajectory(caption="x")
    run = replace(run, steps=run.steps * 3)
    model = ScriptedModel([f"Thoughts: x\nStatus: {status}"] * 2)
    assert (await prill.judge("modular", model=model, captioner=GivenCaption())(run)).rewards == (
        0.0,
        0.0,
        last,
    )
    assert (
        await prill.judge("modular", model=model, captioner=GivenCaption())(replace(run, steps=()))
    ).rewards is None


PROMPTS = sorted(
    file.name.removesuffix(".md")
    for file in (files("prill.evaluators.judges") / "prompts").iterdir()
)
OWN_PAGES = ("vlm", "modular", "steps", "rubric", "checklist", "ask")
PAPERS = [name for name in PROMPTS if name.startswith("paper_")]
# The prompts of prill's own judges; published ones name the code in their instructions.
OWN = {name for page in OWN_PAGES for name in load_page(page).prompt_names}
MEASURED = "likelihood"  # a model writes nothing after it, and its calls quote different runs


@pytest.mark.parametrize("name", [name for name in PROMPTS if name in OWN - {*PAPERS, MEASURED}])
def test_calls_of_a_prompt_begin_alike(name: str) -> None:
    prompt = load_prompt("prill.evaluators.judges", name)
    system, user = prompt.text.split("\n# user\n")
    assert set(Prompt(name, system).slots) <= {"device"}
    before, told, _ = user.partition("The code of this message is {{ code }};")
    # where a model lists what the user asked, words on quoting would become a criterion
    assert told and (not before or name == "rubric_criteria"), (
        "the code stands before all that is quoted"
    )


@pytest.mark.parametrize("name", PAPERS)
def test_paper_prompts_add_nothing(name: str) -> None:
    prompt = load_prompt("prill.evaluators.judges", name)
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
    await prill.judge("aer-c", model=model, captioner=GivenCaption())(run)
    await prill.judge("aer-v", model=model, answer=True)(run)
    await prill.judge("aer-v", model=model)(run)
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


async def test_left_out_answer_not_in_actions(tmp_path: Path) -> None:
    plain = trajectory(tmp_path, caption="x")
    spoken = replace(
        plain,
        steps=(
            *plain.steps,
            Step(Observation(), Action("stop", "stop [It costs 12]", value="It costs 12")),
        ),
    )
    for name, paper, read in (
        ("vlm", "aer-v", {}),
        ("modular", "aer-c", {"captioner": GivenCaption()}),
    ):
        model = ScriptedModel([SUCCESS] * 3)
        for options in ({"name": name}, {"name": name, "answer": False}, {"name": paper}):
            await prill.judge({**options, **read, "model": model})(spoken)
        shown = ["It costs 12" in text(messages) for messages in model.seen]
        assert shown == [True, False, True], "the paper's protocol shows the actions as they are"


async def test_prompt_too_long_is_sent_shorter() -> None:
    model = ScriptedModel([ContextTooLongError("too long"), SUCCESS])
    verdict = await prill.judge("modular", model=model, captioner=GivenCaption(), max_chars=4000)(
        trajectory(caption="x" * 9000)
    )
    assert verdict.success
    first, second = (text(messages).count("x") for messages in model.seen)
    assert 4000 <= first < 4100
    assert 660 <= second < 760
    model = ScriptedModel([ContextTooLongError("too long")])
    assert (
        await prill.judge("modular", model=model, captioner=GivenCaption())(
            trajectory(caption="short")
        )
    ).unscored == "context"


async def test_score_is_probability_of_success() -> None:
    with MockServer() as server:
        judge = prill.judge(
            "modular", model=OpenAIModel("m", base_url=server.base_url), captioner=GivenCaption()
        )
        good = await judge(trajectory(caption="truth=success"))
        bad = await judge(trajectory(caption="truth=failure"))
    assert (good.success, bad.success) == (True, False)
    assert good.score is not None
    assert bad.score is not None
    assert 0.5 < good.score < 1.0
    assert 0.0 < bad.score < 0.5
    with MockServer(no_logprobs=True) as server:
        plain = await prill.judge(
            "modular", model=OpenAIModel("m", base_url=server.base_url), captioner=GivenCaption()
        )(trajectory(caption="truth=failure"))
    assert (plain.success, plain.score) == (False, 0.0)


async def test_missing_screenshot_input_failure() -> None:
    with MockServer() as server:
        verdict = await prill.judge("vlm", model=OpenAIModel("m", base_url=server.base_url))(
            trajectory(screenshot="/nowhere/x.png")
        )
    assert verdict.unscored == "input"
    assert "image /nowhere/x.png is missing" in verdict.reason


async def test_thoughts_only_shown_on_request() -> None:
    model = ScriptedModel([SUCCESS])
    await prill.judge("modular", model=model, captioner=GivenCaption(), thoughts=True)(
        trajectory(caption="x")
    )
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
        prill.judge("aer-v", model=model)
        if kind == "vision"
        else prill.judge("aer-c", model=model, captioner=GivenCaption())
    )
    verdict = await judge(trajectory(tmp_path, platform, caption="x"))
    assert verdict.success
    assert ("Done!" in text(model.seen[0])) is shown


def test_the_papers_judge_shows_one_state() -> None:
    with pytest.raises(UsageError, match="no such option"):
        prill.judge("aer-c", model=ScriptedModel([]), captioner=GivenCaption(), frames=2)


async def test_seconds_leave_out_the_queue() -> None:
    waiting = [replace(trajectory(caption="The cart holds 1 item"), id=f"t{i}") for i in range(10)]
    with MockServer(latency=0.2) as server:
        judge = prill.judge(
            "modular",
            model=OpenAIModel("mock", base_url=server.base_url, concurrency=2),
            captioner=GivenCaption(),
        )
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
