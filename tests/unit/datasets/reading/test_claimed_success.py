"""The agent's own flag, from every format that has one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from prill.actions.ending import CLAIMED_SUCCESS
from prill.datasets.formats import androidworld, atif, messages, online_mind2web, osworld
from prill.io.store import BadLine
from prill.types import Trajectory

Written = Callable[[Path, str, dict[str, Any]], Iterable[Trajectory | BadLine]]


def _atif(folder: Path, name: str, arguments: dict[str, Any]) -> Iterable[Trajectory | BadLine]:
    call = {"tool_call_id": "c", "function_name": name, "arguments": arguments}
    steps = [
        {"source": "user", "message": "Go"},
        {"source": "agent", "message": "", "tool_calls": [call]},
    ]
    document = {
        "schema_version": "ATIF-v1.6",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": steps,
    }
    (folder / "t.json").write_text(json.dumps(document))
    return atif.load(folder / "t.json")


def _messages(folder: Path, name: str, arguments: dict[str, Any]) -> Iterable[Trajectory | BadLine]:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    log = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    (folder / "run.json").write_text(json.dumps(log))
    return messages.load(folder / "run.json")


def _osworld(folder: Path, name: str, arguments: dict[str, Any]) -> Iterable[Trajectory | BadLine]:
    run = folder / "chrome" / "x"
    run.mkdir(parents=True)
    (run / "instruction.txt").write_text("Go")
    (run / "traj.jsonl").write_text(
        json.dumps({"step_num": 1, "action": {"action_type": name, "parameters": arguments}})
    )
    return osworld.load(folder)


def _online_mind2web(
    folder: Path, name: str, arguments: dict[str, Any]
) -> Iterable[Trajectory | BadLine]:
    row = {
        "task_id": "1",
        "task": "Go",
        "action_history": [{name: arguments}],
        "final_result_response": "x",
    }
    (folder / "rows.jsonl").write_text(json.dumps(row))
    return online_mind2web.load(folder / "rows.jsonl")


WRITTEN: tuple[Written, ...] = (_atif, _messages, _osworld, _online_mind2web)


def claimed(items: Iterable[Trajectory | BadLine]) -> object:
    (run,) = items
    assert isinstance(run, Trajectory), run
    return run.metadata.get(CLAIMED_SUCCESS)


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize(
    ("name", "arguments", "flag"),
    [
        ("done", {"success": True, "text": "x"}, True),
        ("done", {"success": False, "text": "x"}, False),
        ("done", {"text": "success"}, None),
        ("terminate", {"status": "Failure"}, False),
        ("terminate", {"status": "success"}, True),
        ("terminate", {"status": "42"}, None),
        ("click", {"index": 1, "success": True}, None),
    ],
)
def test_flag_of_the_last_call_is_kept(
    written: Written, name: str, arguments: dict[str, Any], flag: bool | None, tmp_path: Path
) -> None:
    assert claimed(written(tmp_path, name, arguments)) is flag


@pytest.mark.parametrize(("word", "flag"), [("DONE", True), ("FAIL", False), ("WAIT", None)])
def test_words_of_osworld_are_a_flag(word: str, flag: bool | None, tmp_path: Path) -> None:
    run = tmp_path / "chrome" / "x"
    run.mkdir(parents=True)
    (run / "instruction.txt").write_text("Go")
    (run / "traj.jsonl").write_text(json.dumps({"step_num": 1, "action": word}))
    assert claimed(osworld.load(tmp_path)) is flag


@pytest.mark.parametrize(("status", "flag"), [("complete", True), ("infeasible", False)])
def test_status_of_androidworld_is_a_flag(status: str, flag: bool, tmp_path: Path) -> None:
    action = f'Reason: it is over Action: {{"action_type": "status", "goal_status": "{status}"}}'
    row = {"id": "a", "task": "t", "goal": "Go", "steps": [{"action": action, "ui": []}]}
    (tmp_path / "trajectories.jsonl").write_text(json.dumps(row))
    assert claimed(androidworld.load(tmp_path)) is flag
