"""WebArena's oracle on answers and addresses: each mended defect is shown in both modes (T7 of the
acceptance tests).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prill.datasets.webarena_tasks import SITES, Mode, TaskConfig, load_configs, make_task
from prill.emulators.webarena.oracle import WebArenaOracle, extract_answer
from prill.emulators.webarena.oracle_answers import tokens, url_matches
from prill.errors import CallTimeoutError, EndpointError, UsageError
from prill.models.prompts import NONCE
from prill.testing import ScriptedModel
from prill.types import LabelRecord, Trajectory
from tests.support.emulators.webarena_tasks import MODES, config, ended


def string(**references: Any) -> TaskConfig:
    return config("string_match", reference_answers=references, string_note="nobody sells bands")


async def graded(
    task: TaskConfig, episode: Trajectory, mode: Mode, model: ScriptedModel | None = None
) -> LabelRecord:
    return await WebArenaOracle([task], mode=mode, model=model).grade(episode)


async def both(task: TaskConfig, episode: Trajectory) -> tuple[bool | None, bool | None]:
    paper, fixed = [(await graded(task, episode, mode)).success for mode in MODES]
    return paper, fixed


@pytest.mark.parametrize(
    ("reference", "answer", "paper", "fixed"),
    [
        ("Quest Lumaflex™ Band", "Quest Lumaflex™ Band", True, True),
        ("Quest Lumaflex™ Band", "  quest lumaflex™ band", True, True),
        ("Quest Lumaflex™ Band", "'Quest Lumaflex™ Band'", True, True),
        ("Quest Lumaflex™ Band", '"quest lumaflex™ band"', True, True),
        # the original cleans answers twice
        ("Quest Lumaflex™ Band", "\"'Quest Lumaflex™ Band'\"", True, True),
        ("Quest Lumaflex™ Band", "N/A", False, False),
        ("Quest Lumaflex™ Band", "The Quest Lumaflex™ Band", False, False),
        ("Quest Lumaflex™ Band", "Quest Lumaflex™\u00a0 Band.", False, True),
        ("N/A", "n/a", True, True),
        ("N/A", "N/A.", False, True),
        ("N/A", "“N/A”", False, True),
        ("$19.00", "19", False, False),
    ],
)
async def test_exact_match_of_answers(
    reference: str, answer: str, paper: bool, fixed: bool
) -> None:
    assert await both(string(exact_match=reference), ended(answer)) == (paper, fixed)


@pytest.mark.parametrize(
    ("references", "answer", "paper", "fixed"),
    [
        (["0"], "10", False, False),
        (["0"], "0 results", True, True),
        (["0"], "(0)", True, True),
        (["0"], "There are 0.", True, True),
        (["0"], "0. There are none", False, True),
        (["0"], "$0.00", False, True),  # task 144
        (["0"], "0/5 stars", False, True),
        # beside another reference the original looks for a piece of text
        (["0", "5"], "10 of 50", True, False),
        (["65 |OR| 3"], "It took 65 days", False, True),  # task 386
        (["65 |OR| 3"], "3", False, True),
        (["65 |OR| 3"], "653", False, False),
        (["19"], "It costs $19.00", True, True),
        (["19"], "190", True, False),
        (["19"], "2.19", True, False),
        (["19"], "19.5", True, False),
        (["1200"], "1,200 people", False, True),
        (["5.0"], "5 stars", False, True),
        (["170"], "order 000000170", True, False),
        (["000000170"], "order 000000170", True, True),
        (["2 hours"], "12 hours", True, False),
        (["$7.50"], "it is $7.50.", True, True),
        (["$7.50"], "it is $7.501", True, False),
        (["blue band"], "a Blue\u00a0Band", False, True),
        (["blue", "red"], "blue only", False, False),
        (["blue", "red"], "Red and 'blue'", True, True),
        ([""], "anything", True, True),
    ],
)
async def test_must_include_in_answers(
    references: list[str], answer: str, paper: bool, fixed: bool
) -> None:
    assert await both(string(must_include=references), ended(answer)) == (paper, fixed)


def test_words_are_cut_as_in_the_original() -> None:
    said = "it's \"2\", '3' or 4; (5/6) 7:30, 8: 9,5 10. no--1 n't... $0.5% don't end."
    words = (
        "it 's \" 2 \" , ' 3 ' or 4 ; ( 5/6 ) 7:30 , 8 : 9,5 10. no -- 1 n't ... $ 0.5 % do "
        "n't end ."
    )
    assert tokens(said) == words.split()


@pytest.mark.parametrize(
    ("reference", "url", "paper", "fixed"),
    [
        ("http://x/p/1", "http://x/p/1", True, True),
        ("http://x/p/1/", "http://x/p/1", True, True),
        ("http://x/p/1", "https://x/p/1/?a=b#top", True, True),
        ("http://x/", "http://x/p/1", True, False),
        ("http://x/", "http://x", True, True),
        ("http://x/p/1", "http://x/p/10", True, False),
        ("http://x/f/books", "http://x/f/books/12/title", True, True),
        ("http://x/f/books", "http://x:8080/f/books", False, False),
        ("http://x/f/books", "http://max/f/books", True, False),
        ("http://x/f/DIY", "http://x/f/diy", False, True),
        ("http://x/s/?q=a", "http://x/s?q=a", False, True),
        ("http://x/s?q=usb+wifi", "http://x/s?q=usb%20wifi&page=2", True, True),
        ("http://x/s?q=usb+wifi%20", "http://x/s?q=USB+wifi", False, True),
        ("http://x/s?q=a", "http://x/s?q=b", False, False),
        ("http://x/s?q=a", "http://x/s", False, False),
        ("http://x/a |OR| http://x/b/", "http://x/b", True, True),
        ("http://x/a |OR| http://x/b", "http://x/c", False, False),
        ("http://x/a?q=1 |OR| http://x/b?q=2", "http://x/a?q=1", True, True),
        ("http://x/a?q=1 |OR| http://x/b?q=2", "http://x/a?q=2", True, False),
        ("http://x/a?q=1 |OR| http://x/b", "http://x/b", False, True),
        ("http://x/a?t=1&t=2", "http://x/a?t=1", True, False),
        ("http://x/a?t=1&t=2", "http://x/a?t=2&t=1", True, True),
    ],
)
def test_url_match_of_addresses(reference: str, url: str, paper: bool, fixed: bool) -> None:
    assert tuple(url_matches(reference, url, mode) for mode in MODES) == (paper, fixed)


async def test_score_is_the_product_of_checks() -> None:
    task = config(
        "string_match",
        "url_match",
        reference_answers={"must_include": ["a"]},
        reference_url="http://x/p",
    )
    for answer, url, passed in (
        ("a", "http://x/p", True),
        ("b", "http://x/p", False),
        ("a", "http://x/q", False),
    ):
        label = await graded(task, ended(answer, url), "paper")
        assert (label.success, label.source, label.annotator) == (
            passed,
            "oracle",
            "webarena-paper",
        )
        assert (label.note is None) == passed


@pytest.mark.parametrize(
    ("verdict", "passed"), [("correct", True), ("partially correct", False), ("incorrect", False)]
)
async def test_only_correct_passes_fuzzy_match(verdict: str, passed: bool) -> None:
    for mode in MODES:
        model = ScriptedModel([f"Reasoning: I compared them.\nVerdict: {verdict}"])
        label = await graded(string(fuzzy_match=["three"]), ended("3 bands"), mode, model)
        assert (label.success, label.annotator) == (passed, f"webarena-{mode}+scripted")
        said = str(model.seen[0][1].parts[0])
        assert all(
            f"[{name} {NONCE}]\n{text}" in said
            for name, text in (("reference", "three"), ("answer", "3 bands"))
        )
        assert "How many bands?" in said


@pytest.mark.parametrize("mode", MODES)
async def test_impossible_task_needs_a_reason(mode: Mode) -> None:
    task = string(fuzzy_match="N/A")
    assert (await graded(task, ended('"N/A"'), mode)).success is True
    assert (await graded(task, ended("there are none"), mode)).success is None
    for verdict, passed in (("same", True), ("different", False)):
        model = ScriptedModel([f"Reasoning: x\nVerdict: {verdict}"])
        assert (await graded(task, ended("no shop has them"), mode, model)).success is passed
        assert "nobody sells bands" in str(model.seen[0][1].parts[0])


@pytest.mark.parametrize(
    "line", [CallTimeoutError("slow"), "Reasoning: x\nVerdict: perhaps", "nothing"]
)
async def test_no_verdict_leaves_it_open(line: str | Exception) -> None:
    for verdict in ("fuzzy", "reason"):
        task = string(fuzzy_match=["a"] if verdict == "fuzzy" else "N/A")
        label = await graded(task, ended("b"), "paper", ScriptedModel([line]))
        assert (label.success, (label.note or "").startswith("undecided: string_match")) == (
            None,
            True,
        )


async def test_unreachable_model_ends_the_run() -> None:
    with pytest.raises(EndpointError):
        await graded(
            string(fuzzy_match=["a"]),
            ended("b"),
            "paper",
            ScriptedModel([EndpointError("refused")]),
        )


async def test_failed_check_decides_alone() -> None:
    task = config(
        "string_match",
        "program_html",
        reference_answers={"must_include": ["a"]},
        program_html=[{"url": "last", "locator": "", "required_contents": {"must_include": ["x"]}}],
    )
    assert (await graded(task, ended("b"), "paper")).success is False
    label = await graded(task, ended("a"), "paper")
    assert (label.success, label.note) == (None, "undecided: program_html: no browser is available")


@pytest.mark.parametrize("mode", MODES)
async def test_broken_episode_has_no_label(mode: Mode) -> None:
    label = await graded(string(must_include=["a"]), ended("b", error="the browser crashed"), mode)
    assert (label.success, label.note) == (None, "ended with an error: the browser crashed")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (
            {"ended_by": "Early stop: Same action for 3 times"},
            "Early stop: Same action for 3 times",
        ),
        ({"ended_by": "ERROR: 3 tries"}, "ERROR: 3 tries"),
        ({"ended_by": "max_steps"}, "Early stop: Reach max steps 3"),
        ({"ended_by": "early_stop", "stopped": "typed 3 times"}, "Early stop: typed 3 times"),
    ],
)
async def test_harness_words_are_no_answer(metadata: dict[str, Any], words: str) -> None:
    episode = ended(None, metadata=metadata)
    episode = replace(episode, steps=episode.steps * 3)
    assert [extract_answer(episode, mode) for mode in MODES] == [words, ""]
    assert await both(string(must_include=["3"]), episode) == (True, False)


@pytest.fixture(scope="module")
def configs() -> tuple[TaskConfig, ...]:
    try:
        return load_configs({site: f"http://{site.lower()}.test" for site in SITES})
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("task", "answer", "paper", "fixed"),
    [
        (0, "Quest Lumaflex™ Band", True, True),
        (0, '"quest lumaflex™ band"', True, True),
        (0, "N/A", False, False),
        (144, "$0.00", False, True),
        (386, "65 |OR| 3", True, True),
        (386, "65", False, True),
        (386, "3", False, True),
        (386, "35", False, False),
    ],
)
async def test_answers_to_benchmark_tasks(
    configs: tuple[TaskConfig, ...], task: int, answer: str, paper: bool, fixed: bool
) -> None:
    episode = replace(ended(answer), task=make_task(configs[task]))
    labels = [await WebArenaOracle(configs, mode=mode).grade(episode) for mode in MODES]
    assert [label.success for label in labels] == [paper, fixed]
