"""Conversations from single tasks: who belongs together, where a task is divided, and who puts it
into words.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from prill.cli import main
from prill.errors import BudgetSpentError, TransportError
from prill.papers.mind2web.format import load
from prill.papers.mind2web.multi_turn import (
    ConversationsConfig,
    ConversationTally,
    conversations,
    even_runs,
    read_runs,
)
from prill.papers.mind2web.pages.state import read_state
from prill.papers.replies import UnreadableReplyError
from prill.protocols import LanguageModel
from prill.testing import MockServer
from prill.testing.scripted import ScriptedModel
from prill.types import Trajectory


def task(id: str, goal: str, count: int = 2, website: str = "shop") -> dict[str, Any]:
    acts = [
        {
            "action_uid": f"{id}{k}",
            "operation": {"op": "CLICK", "value": ""},
            "cleaned_html": f'<html backend_node_id="{k}"/>',
            "pos_candidates": [{"backend_node_id": str(k)}],
            "neg_candidates": [],
        }
        for k in range(count)
    ]
    reprs = [f"[link]  {id} {k} -> CLICK" for k in range(count)]
    about = {
        "annotation_id": id,
        "website": website,
        "domain": "d",
        "subdomain": "s",
        "confirmed_task": goal,
    }
    return {**about, "action_reprs": reprs, "actions": acts}


def make(
    tmp_path: Path,
    tasks: list[Any],
    model: LanguageModel | None = None,
    stop: asyncio.Event | None = None,
    **options: Any,
) -> tuple[ConversationTally, list[dict[str, Any]]]:
    (tmp_path / "in.json").write_text(json.dumps(tasks))
    config = ConversationsConfig(
        source=tmp_path / "in.json", output=tmp_path / "out.json", model=model, **options
    )
    tally = asyncio.run(conversations.run_async(config, stop=stop)).tally
    return tally, json.loads((tmp_path / "out.json").read_text()) if (
        tmp_path / "out.json"
    ).exists() else []


def instructions(conversation: dict[str, Any]) -> list[str]:
    return [turn["confirmed_task"] for turn in conversation["turns"]]


@pytest.mark.parametrize(
    ("count", "runs"),
    [(1, [(0, 1)]), (4, [(0, 4)]), (5, [(0, 2), (2, 5)]), (9, [(0, 3), (3, 6), (6, 9)])],
)
def test_rule_divides_one_turn_for_four(count: int, runs: list[tuple[int, int]]) -> None:
    assert even_runs(count) == runs


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "no",
        '{"step 1": [1, 3], "step 2": [2]}',
        '{"step 1": [1, 2]}',
        '{"a": [1, 2, 3], "b": []}',
        '{"a": [1, 1, 2, 3]}',
        "[1]",
        '{"a": 3}',
    ],
)
def test_proposal_that_is_no_division_is_refused(reply: str) -> None:
    with pytest.raises(UnreadableReplyError):
        read_runs(reply, 3)


def test_made_conversations_are_read_as_the_real(tmp_path: Path) -> None:
    make(tmp_path, [task("a", "Rent a truck", 5), task("b", "Return the truck")])
    turns = [item for item in load(tmp_path / "out.json") if isinstance(item, Trajectory)]
    assert [
        (turn.metadata["conversation"], turn.metadata["turn"], len(turn.steps)) for turn in turns
    ] == [("a", 0, 2), ("a", 1, 3), ("a", 2, 2)]
    assert [read_state(step.observation.text or "").page[23:24] for step in turns[1].steps] == [
        "2",
        "3",
        "4",
    ]
    assert len(turns[2].task.earlier) == 2


def test_model_divides_and_writes(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            '{"step 1": [1], "step 2": [2, 3, 4, 5]}',
            '{"turn 1": "Find a truck.", "turn 2": "Rent it."}',
        ]
    )
    tally, (made,) = make(tmp_path, [task("a", "Rent a truck", 5)], model)
    assert instructions(made) == ["Find a truck.", "Rent it."]
    assert [len(turn["actions"]) for turn in made["turns"]] == [1, 4]
    assert (tally.by_rule, tally.not_rewritten, tally.problems) == (0, 0, [])


def divides_and_writes(messages: Any) -> str:
    if "Divide these" in str(messages):
        return '{"step 1": [1], "step 2": [2, 3, 4, 5]}'
    return '{"turn 1": "x", "turn 2": "y"}'


TWO = [task("a", "Rent a truck", 5), task("b", "Buy shoes", 5)]


@pytest.mark.parametrize(
    "error", [TransportError("silence"), BudgetSpentError("the budget is spent")]
)
def test_failed_call_is_no_turn_of_the_rule(tmp_path: Path, error: Exception) -> None:
    failing = ScriptedModel(
        lambda messages: error if "shoes" in str(messages) else divides_and_writes(messages)
    )
    tally, made = make(tmp_path, TWO, failing)
    assert (made, tally.unanswered, tally.problems) == ([], 1, [f"b: {error}"])
    tally, made = make(tmp_path, TWO, ScriptedModel(divides_and_writes))
    assert (len(made), tally.by_rule) == (2, 0)


def test_command_tells_calls_and_their_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of replies that nothing could be done with: a task of five actions is divided and
    worded, each asked twice.
    """
    (tmp_path / "in.json").write_text(json.dumps([task("a", "Rent a truck", 5)]))
    (tmp_path / "prices.toml").write_text("[mock]\nprompt = 1000\ncompletion = 1000\n")
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with MockServer() as server:
        words = [
            "--model",
            "mock",
            "--model.base-url",
            server.base_url,
            "--model.prices",
            str(tmp_path / "prices.toml"),
        ]
        assert (
            main(
                [
                    "papers",
                    "conversations",
                    str(tmp_path / "in.json"),
                    "-o",
                    str(tmp_path / "out.json"),
                    *words,
                ]
            )
            == 3
        )
    told = re.search(r"\n4 calls, (\d+) tokens, \$(\S+)\n", capsys.readouterr().err)
    assert told is not None and float(told[2]) == pytest.approx(int(told[1]) / 1000)


def test_the_same_command_asks_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps([task("a", "Rent a truck", 5)]))
    with MockServer() as server:
        words = [
            "--model",
            "mock",
            "--model.base-url",
            server.base_url,
            "--model.api-key-env",
            "NONE",
        ]
        command = ["papers", "conversations", str(tmp_path / "in.json"), *words]
        for _ in range(2):
            assert main([*command, "-o", str(tmp_path / "out.json")]) == 3
            (tmp_path / "out.json").unlink()
        assert server.stats().requests == 4
