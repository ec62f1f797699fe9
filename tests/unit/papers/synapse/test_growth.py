"""A memory that grows: which trajectories become exemplars, in which form, and what is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from prill.cli import main
from prill.io.store import encode, write_labels, write_trajectories
from prill.papers.embedders import TfidfEmbedder
from prill.papers.synapse.growth import build_xpath, grow, make_exemplar
from prill.papers.synapse.memory import ExemplarMemory
from prill.papers.synapse.sandbox import Page, find_now
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
    Verdict,
)

JUDGE = EvaluatorInfo(name="judge", version="1")


def page(*buttons: str) -> str:
    return (
        '<div data-wob_ref="1">'
        + "".join(
            f'<button data-wob_ref="{i}">{word}</button>' for i, word in enumerate(buttons, 2)
        )
        + '<input id="q" data-wob_ref="90"><input type="radio" data-wob_ref="91"></div>'
    )


def run(
    id: str, goal: str, *actions: Action, pages: Sequence[str] = (), site: str = "click-button"
) -> Trajectory:
    texts = [*pages, *([page("go", "no")] * len(actions))]
    steps = tuple(
        Step(Observation(text=text), action) for text, action in zip(texts, actions, strict=False)
    )
    return Trajectory(id=id, task=Task(id=id, goal=goal, site=site), steps=steps)


def click(word: str = "go", id: str = "a") -> Trajectory:
    target = {"go": '<button data-wob_ref="2">go', "no": "[3]"}[word]
    return run(id, f"Click the {word} button {id}", Action("click", "click", target=target))


def verdict(id: str, score: float = 0.9, **more: object) -> Verdict:
    return Verdict(
        **{"id": id, "success": score >= 0.5, "score": score, "evaluator": JUDGE, **more}
    )  # type: ignore[arg-type]


def empty() -> ExemplarMemory:
    return ExemplarMemory([], embedder=TfidfEmbedder())


def test_recorded_actions_become_calls() -> None:
    done = (
        Action("click", "click", target="[2]"),
        Action("type", "type", target='<input data-wob_ref="90">', value="ada"),
        Action("press", "press", value="Control+a"),
        Action(
            "click",
            "agent.click_xpath(\"//button[text()='no']\")",
            target='<button data-wob_ref="3">no',
        ),
        Action("hover", "hover", target="91"),
        Action("stop", "stop"),
    )
    found = make_exemplar(run("t", "g", *done), "judge")
    assert found.steps[0].action.splitlines() == [
        "agent.click_xpath(\"//button[text()='go']\")",
        "agent.click_xpath(\"//*[@id='q']\")",
        'agent.type("ada")',
        'agent.press("command+a")',
        "agent.click_xpath(\"//button[text()='no']\")",
        "agent.movemouse(\"//input[@type='radio']\")",
    ]
    assert (found.name, found.provenance, found.source) == ("click-button", "judge", "t")
    assert found.key.startswith("Task: g\nState:\n<div")


def test_an_xpath_selects_its_element_alone() -> None:
    text = (
        page("go", "it's", "go", 'say "it\'s"')
        + '<label data-wob_ref="95"><input type="checkbox" data-wob_ref="96">mo</label>'
    )
    tree = Page(text)
    for element in tree.elements:
        if element.get("data-wob_ref"):
            assert find_now(tree, build_xpath(element, tree)) == [element]
    box = find_now(tree, "//*[@data-wob_ref='96']")[0]
    assert build_xpath(box, tree) == "//label[normalize-space()='mo']/input"


async def test_only_accepted_runs_are_added() -> None:
    runs = [
        click("go", "sure"),
        click("no", "unsure"),
        click("go", "failed"),
        click("no", "unscored"),
        click("no", "unjudged"),
    ]
    verdicts = {
        "sure": verdict("sure", 0.95),
        "unsure": verdict("unsure", 0.7),
        "failed": verdict("failed", 0.1),
        "unscored": Verdict(id="unscored", unscored="parse", evaluator=JUDGE),
    }
    grown = await grow(empty(), runs, verdicts, threshold=0.9)
    assert [exemplar.source for exemplar in grown.added] == ["sure"]
    assert grown.left_out == {"below the threshold": 2, "unscored": 1, "no verdict": 1}
    by_word = await grow(empty(), runs, verdicts)
    assert [exemplar.source for exemplar in by_word.added] == ["sure", "unsure"]


async def test_wrong_verdicts_are_counted() -> None:
    runs = [
        click("go", "x"),
        click("no", "y"),
        run("z", "other words", Action("press", value="Enter")),
    ]
    grown = await grow(
        empty(), runs, {run.id: verdict(run.id) for run in runs}, labels={"x": True, "y": False}
    )
    assert (len(grown.added), grown.wrong, grown.unlabelled) == (3, 1, 1)


def test_the_verb_makes_and_extends_a_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [click("go", "x"), click("no", "y"), click("go", "z")]
    write_trajectories(tmp_path / "t.jsonl", runs)
    scored = zip(runs, (0.9, 0.8, 0.2), strict=True)
    (tmp_path / "v.jsonl").write_bytes(
        b"".join(encode(verdict(one.id, score)) for one, score in scored)
    )
    write_labels(
        tmp_path / "l.jsonl",
        [LabelRecord(id="x", success=True), LabelRecord(id="y", success=False)],
    )
    words = [
        "papers",
        "exemplars",
        str(tmp_path / "t.jsonl"),
        "--verdicts",
        str(tmp_path / "v.jsonl"),
        "-o",
        str(tmp_path / "memory"),
    ]
    assert (
        main([*words, "--threshold", "0.7", "--labels", str(tmp_path / "l.jsonl"), "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "added": 2,
        "exemplars": 2,
        "left_out": {"below the threshold": 1},
        "wrong": 1,
        "unlabelled": 0,
    }
    assert [
        exemplar.source
        for exemplar in ExemplarMemory.load(tmp_path / "memory", TfidfEmbedder()).exemplars
    ] == ["x", "y"]
    assert main([*words, "--threshold", "0.1"]) == 0
    assert "added: 1;" in capsys.readouterr().out
    assert main([*words, "--threshold", "0.7", "--calibration", "c.json"]) == 2
    assert "or threshold (--calibration, --threshold)" in capsys.readouterr().err
    assert main([*words[:-1], str(tmp_path)]) == 2
    assert "exists without exemplars.jsonl" in capsys.readouterr().err
