"""OpenAI batch files made up here: requests, replies, and what can go wrong between them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prill.cli import main
from prill.datasets.formats.openai_batch import load
from prill.errors import UsageError
from prill.io.store import BadLine, read_trajectories
from prill.types import Trajectory

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="  # noqa: E501
CALL = {
    "id": "a",
    "type": "function",
    "function": {"name": "goto", "arguments": '{"url": "http://shop"}'},
}


def request(id: str = "r1", **more: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "You are"},
        {"role": "user", "content": "Buy tea"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": [{"type": "image_url", "image_url": {"url": PIXEL}}],
        },
    ]
    body = {
        "model": "m",
        "messages": messages,
        "tools": [{"type": "function", "function": {"name": "goto"}}],
    }
    return {"custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body, **more}


def reply(id: str = "r1", *texts: str, **more: Any) -> dict[str, Any]:
    choices = [
        {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": t}}
        for i, t in enumerate(texts)
    ]
    body = {
        "model": "m-2026",
        "choices": choices,
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    }
    return {
        "id": "batch_1",
        "custom_id": id,
        "response": {"status_code": 200, "body": body},
        "error": None,
        **more,
    }


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path


def test_request_and_reply_are_one_run(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", request())
    write(tmp_path / "out.jsonl", reply("other", "x"), reply("r1", "Bought."))
    (trajectory,) = load(tmp_path)
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.id, trajectory.task.goal, trajectory.agent, trajectory.answer) == (
        "r1",
        "Buy tea",
        "m-2026",
        "Bought.",
    )
    assert [s.action.kind for s in trajectory.steps] == ["goto", "answer"]
    assert trajectory.steps[1].observation.screenshot is not None
    assert trajectory.error is None
    assert trajectory.metadata == {
        "finish_reason": "stop",
        "prompt_tokens": 9,
        "completion_tokens": 2,
    }


def test_reply_with_tool_call_ends_in_action(tmp_path: Path) -> None:
    reply_row = reply("r1", "")
    reply_row["response"]["body"]["choices"][0]["message"]["tool_calls"] = [CALL]
    write(tmp_path / "in.jsonl", request())
    write(tmp_path / "out.jsonl", reply_row)
    (trajectory,) = load(tmp_path / "in.jsonl")
    assert isinstance(trajectory, Trajectory)
    assert ([s.action.kind for s in trajectory.steps], trajectory.final, trajectory.answer) == (
        ["goto", "goto"],
        None,
        None,
    )


def test_requests_of_one_goal_share_a_task(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", request(), {**request(), "custom_id": "r2"})
    write(tmp_path / "out.jsonl", reply("r1", "yes", "no"), reply("r2", "well"))
    items = [item for item in load(tmp_path) if isinstance(item, Trajectory)]
    assert [(t.id, t.answer) for t in items] == [("r1/0", "yes"), ("r1/1", "no"), ("r2", "well")]
    assert {(t.task.id, t.task.goal) for t in items} == {("", "Buy tea")}


@pytest.mark.parametrize(
    ("reply_fields", "error"),
    [
        (
            {"response": None, "error": {"code": "expired", "message": "too late"}},
            "the request failed: too late",
        ),
        (
            {"response": {"status_code": 429, "body": {"error": {"message": "slow"}}}},
            "the request failed (status 429): slow",
        ),
        (
            {"response": {"status_code": 500, "body": "oops"}},
            "the request failed (status 500): no reason given",
        ),
        ({"custom_id": "other"}, "no reply in the batch"),
    ],
)
def test_failed_request_keeps_what_happened(
    tmp_path: Path, reply_fields: dict[str, Any], error: str
) -> None:
    write(tmp_path / "in.jsonl", request())
    write(tmp_path / "out.jsonl", reply("r1", "x", **reply_fields))
    (trajectory,) = load(tmp_path)
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.error, len(trajectory.steps), trajectory.answer) == (error, 1, None)
    assert trajectory.final is not None
    assert trajectory.final.screenshot is not None


def test_good_reply_before_a_failed_one(tmp_path: Path) -> None:
    failed = reply("r1", response=None, error={"message": "x"})
    write(tmp_path / "in.jsonl", request())
    write(tmp_path / "errors.jsonl", failed)
    write(tmp_path / "out.jsonl", reply("r1", "Bought."), failed)
    (trajectory,) = load(tmp_path)
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.error, trajectory.answer) == (None, "Bought.")


def test_requests_without_replies_are_read(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as file:
        file.write(json.dumps(request()))
    (trajectory,) = load(tmp_path)
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.error, trajectory.agent, len(trajectory.steps)) == (None, "m", 1)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('{"custom_id": "r0", "bo', "truncated"),
        (request("r1"), "occurs twice"),
        (request("r2", url="/v1/embeddings"), "expected /v1/chat/completions"),
        (request("r2", body={"model": "m"}), "r2: Object missing required field `messages`"),
        (request("r2", body={"messages": [{"role": "system", "content": "x"}]}), "no goal"),
        (
            request(
                "r2",
                body={
                    "messages": [
                        {"role": "user", "content": [{"type": "image_url", "image_url": "x.png"}]}
                    ]
                },
            ),
            "x.png",
        ),
        (request("none"), "no choices"),
    ],
)
def test_broken_request_named_others_read(tmp_path: Path, bad: Any, problem: str) -> None:
    write(tmp_path / "in.jsonl", request("r1"), bad, request("r9"))
    write(tmp_path / "out.jsonl", reply("r1", "a"), reply("r9", "b"), reply("none"))
    first, broken, last = load(tmp_path)
    assert (first.id, last.id) == ("r1", "r9")
    assert isinstance(broken, BadLine)
    assert "in.jsonl:2: " in broken.message
    assert problem in broken.problem


def test_broken_reply_is_named(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", request("r1"))
    write(tmp_path / "out.jsonl", reply("r1", "a"), "{")
    broken, good = load(tmp_path)
    assert isinstance(broken, BadLine)
    assert "out.jsonl:2: " in broken.message
    assert isinstance(good, Trajectory)


def test_no_requests_are_an_error(tmp_path: Path) -> None:
    out = write(tmp_path / "out.jsonl", reply("r1", "a"))
    for source, problem in (
        (tmp_path, "expected"),
        (out, "give the file of requests"),
        (tmp_path / "x", "no such"),
    ):
        with pytest.raises(UsageError, match=problem):
            list(load(source))


def test_converted_folder_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "in.jsonl", request("r1"), "{")
    assert main(["convert", "openai-batch", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 3
    assert "in.jsonl:2: " in capsys.readouterr().err
    (trajectory,) = read_trajectories(tmp_path / "out" / "trajectories.jsonl")
    assert isinstance(trajectory, Trajectory)
    assert trajectory.final is not None
    assert Path(str(trajectory.final.screenshot)).is_file()
