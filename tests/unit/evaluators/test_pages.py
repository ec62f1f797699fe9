"""Pages of judges: prill's own fit together, one's own run, and wrong ones are told with their
line.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path

import pytest

import prill
from prill.errors import UsageError
from prill.evaluators.judge import load_page, page_maker, write_page
from prill.evaluators.page import list_pages, page_file
from prill.evaluators.registry import JUDGES
from prill.testing import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.messages import text
from tests.support.paths import ROOT

WALL = (ROOT / "examples/login_wall.toml").read_text("utf-8")
ANSWER = json.dumps({"q1": {"reason": "a form", "step": 2, "answer": "yes"}})


def run(id: str = "a", states: int = 4) -> Trajectory:
    seen = [Observation(text=f"page {i}") for i in range(states)]
    steps = tuple(Step(state, Action("click", f"click [{i}]")) for i, state in enumerate(seen[:-1]))
    return Trajectory(id=id, task=Task(goal="Buy tea"), steps=steps, final=seen[-1])


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(WALL)
    return path


def test_every_page_is_a_judge_and_is_refused_nowhere(tmp_path: Path) -> None:
    of_pages = {name for name in JUDGES.entries if hasattr(JUDGES.maker(name), "page")}
    assert of_pages == {*list_pages()}
    for name in list_pages():
        assert load_page(str(page_file(name))) == load_page(name)
        page = load_page(name)
        assert len([line for line in page.text.splitlines() if line]) < 100, "it fits on a screen"
        assert page.shows and (page.paper or name == "ask")
        assert page.differences or not page.source, "a published one says where it differs"


async def test_ten_lines_ask_about_the_last_two_states(mine: Path) -> None:
    model = ScriptedModel([ANSWER])
    judge = prill.judge(str(mine), model=model, captioner="text")
    verdict = await judge(run())
    assert verdict.success is True and verdict.evaluator.name == "mine"
    assert verdict.findings is not None and verdict.findings.answers[0].step == 2  # type: ignore[index]
    shown = text(model.seen[0])
    assert "page 2" in shown and "page 3" in shown and "page 1" not in shown
    assert judge.estimate(run()).calls == 1  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(judge)).info == judge.info


def test_a_changed_page_or_prompt_is_another_judge(mine: Path) -> None:
    def info() -> object:
        return prill.judge(str(mine), model=ScriptedModel([]), captioner="text").info

    found = [info()]
    mine.write_text(WALL.replace("most = 2", "most = 3"))
    found.append(info())
    prompt = load_page("ask").load("ask").text
    (mine.parent / "ask.md").write_text(prompt.replace("You answer", "You always answer"))
    found.append(info())
    assert len({json.dumps(str(one)) for one in found}) == 3
    comment = f"# why\n{mine.read_text()}"
    mine.write_text(comment)
    assert info() == found[-1]


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ('evidence = "texts"', 'evidense = "texts"', r":1: unknown key 'evidense' .*'evidence'"),
        ('"texts"', '"text"', r":1: evidence: .*did you mean 'texts'"),
        ('["max_tokens"]', '["max_token"]', r":3: options: .*did you mean 'max_tokens'"),
        ("question =", "qestion =", r":4: qestion: unknown setting .*'question'"),
        ('"yes/no"}', '"os:system"}', r":4: answer: 'os:system' is an object"),
        ('prompt = "ask" ', 'prompt = "asks"', r":7: prompt: .*did you mean 'ask'"),
        ('prompt = "ask" ', 'prompt = "../../secret"', r":7: prompt: there is no prompt"),
        ('reads = "answers"', 'reads = "answer"', r":8: reads: .*did you mean 'answers'"),
        ('reads = "answers"', 'reads = "criteria"', r":8: reads: .*the last stage"),
        ('reads = "answers"', 'reads = "assessment"', r":8: reads: .*named 'criteria'"),
        ('reads = "answers"', 'reads = "label"', r":8: reads: 'label' needs per = 'step'"),
        ('reads = "answers"', 'red = "answers"', r":8: unknown key 'red' .*'reads'"),
        ("most = 2", "most = 0", r":9: most: Expected `int` >= 1"),
        ("which", "whic", r":9: unknown key 'whic' .*'which'"),
        ('"last"', '"lats"', r":9: which: .*did you mean 'last'.*expected one of best, graded"),
        ("[[stages]]", "[[stages", r"not valid TOML"),
        ('question = "Was a login wall met?", ', "", r":8: reads: .*question"),
    ],
)
def test_a_wrong_page_is_told_with_its_line(right: str, wrong: str, words: str, mine: Path) -> None:
    assert right in WALL
    mine.write_text(WALL.replace(right, wrong))
    with pytest.raises(UsageError, match=words) as error:
        load_page(str(mine))
    assert str(error.value).startswith(str(mine))


def test_a_placeholder_that_nothing_fills_is_told_with_its_line(mine: Path) -> None:
    mine.write_text(WALL.replace('prompt = "ask" ', 'prompt = "own" '))
    for words, problem in (
        ("{{ gol }}", r"line 4: unknown placeholder {{ gol }} \(did you mean {{ goal }}"),
        ("{{ item }}", r"unknown placeholder {{ item }}"),
        ("{{ criteria }}", r"unknown placeholder {{ criteria }}"),
    ):
        (mine.parent / "own.md").write_text(f"# system\nSay it.\n# user\n{words}\n")
        with pytest.raises(UsageError, match=problem):
            load_page(str(mine))


def test_a_prompt_without_a_turn_of_the_user_is_refused(mine: Path) -> None:
    mine.write_text(WALL.replace('prompt = "ask" ', 'prompt = "own" '))
    (mine.parent / "own.md").write_text("# system\nSay it.\n# User\n{{ goal }}\n")
    with pytest.raises(UsageError, match="prompt own: the heading `# user` is missing"):
        load_page(str(mine))


def test_a_page_without_stages_is_told_what_it_lacks(mine: Path) -> None:
    mine.write_text(WALL.replace("[[stages]]", "[stages]"))
    with pytest.raises(UsageError, match=r"the page of a judge has \[\[stages\]\]"):
        prill.judge(str(mine), model=ScriptedModel([]))


@pytest.mark.parametrize("name", list_pages())
def test_a_copy_of_a_page_sends_what_the_page_sends(name: str, tmp_path: Path) -> None:
    page = load_page(name)
    files = write_page(page, str(tmp_path / "copy" / "mine.toml"))
    assert len(files) > len(page.prompt_names)
    copy = load_page(files[0])
    assert copy.hash == page.hash
    assert [copy.load(one).text for one in copy.prompt_names] == [
        page.load(one).text for one in page.prompt_names
    ]
    with pytest.raises(UsageError, match="there already"):
        write_page(page, files[0])


async def test_criteria_are_written_once_a_goal_and_later_prompts_have_results(
    tmp_path: Path,
) -> None:
    (tmp_path / "judge.md").write_text("# user\n{{ goal }}\n{{ plan }}\n{{ actions }}")
    (tmp_path / "plan.md").write_text("# user\nWhat must be done?\n{{ goal }}")
    (tmp_path / "two.toml").write_text(
        '[[stages]]\nname = "plan"\nper = "goal"\nprompt = "plan"\nreads = "text"\n'
        '[[stages]]\nprompt = "judge"\nreads = "verdict"\n'
    )
    model = ScriptedModel(
        lambda messages: "buy [/plan it" if "must be" in text(messages) else "Status: success"
    )
    judge = prill.judge(str(tmp_path / "two.toml"), model=model)
    verdicts = await asyncio.gather(judge(run("a")), judge(run("b")))
    assert [verdict.success for verdict in verdicts] == [True, True]
    assert len(model.seen) == 3
    assert "[plan \ue000]\nbuy [ /plan it\n[/plan \ue000]" in text(model.seen[-1])


def test_a_page_may_be_part_of_a_judge(mine: Path) -> None:
    described = {"name": "vote", "judges": [{"name": str(mine)}, {"name": "self-report"}]}
    model = ScriptedModel([])
    made = prill.judge(described, model=model, captioner="text")
    assert [part.info.name for part in made.parts] == ["mine", "self-report"]  # type: ignore[attr-defined]


def test_options_are_those_that_the_page_names(mine: Path) -> None:
    maker = page_maker(load_page(str(mine)))
    assert [*maker.__annotations__] == ["model", "captioner", "prompt", "max_tokens"]
    with pytest.raises(UsageError, match="frames: judge .* has no such option"):
        prill.judge(str(mine), model=ScriptedModel([]), captioner="text", frames=2)
