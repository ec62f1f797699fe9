"""Results of verifiers made up here, in the fields of versions 0.1 and 0.4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.cli import main
from prill.datasets.formats.verifiers import load, load_labels
from prill.errors import UsageError
from prill.io.store import BadLine, read_labels, read_trajectories
from prill.types import LabelRecord, Trajectory

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="  # noqa: E501
SHOT = {"type": "image_url", "image_url": {"url": PIXEL}}


def row(**more: Any) -> dict[str, Any]:
    call = json.dumps({"id": "a", "name": "goto", "arguments": '{"url": "http://shop"}'})
    return {
        "example_id": 7,
        "prompt": [
            {"role": "system", "content": "You are"},
            {"role": "user", "content": "How much is tea?"},
        ],
        "completion": [
            {"role": "assistant", "content": "I look", "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": "a",
                "content": [{"type": "text", "text": "Tea: 3"}, SHOT],
            },
            {"role": "assistant", "content": "It is 3."},
        ],
        "answer": "SECRET",
        "info": {"expected": "SECRET"},
        "reward": 1.0,
        "correctness": 0.125,
        "metrics": {"correctness": 0.125},
        "stop_condition": "SECRET_is_solved",
        "is_completed": True,
        "is_truncated": False,
        "token_usage": {"input_tokens": 100.0, "output_tokens": 20.0},
        "error": None,
        **more,
    }


def trace(**more: Any) -> dict[str, Any]:
    nodes = [
        {"message": {"role": "user", "content": "How much is tea?"}},
        {"parent": 0, "message": {"role": "assistant", "content": "no idea"}, "sampled": True},
        {
            "parent": 0,
            "message": {
                "role": "assistant",
                "tool_calls": [{"id": "a", "name": "search", "arguments": '{"query": "tea"}'}],
            },
            "sampled": True,
        },
        {"parent": 2, "message": {"role": "tool", "tool_call_id": "a", "content": "Tea: 3"}},
        {"parent": 3, "message": {"role": "assistant", "content": "It is 3."}, "sampled": True},
    ]
    return {
        "id": "t1",
        "task": {
            "type": "Shop",
            "data": {"idx": 7, "prompt": "How much is tea?", "answer": "SECRET"},
        },
        "agent": {"name": "agent", "config": {"model": "m"}},
        "nodes": nodes,
        "rewards": {"exact": {"score": 1.0, "weight": 0.5}, "form": {"score": 1.0, "weight": 0.25}},
        "metrics": {"correctness": 0.125},
        "info": {"expected": "SECRET"},
        "ok": True,
        "stop_condition": "SECRET_is_solved",
        **more,
    }


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path


def test_result_becomes_a_trajectory(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"env_id": "shop", "model": "m", "avg_reward": 1.0}')
    (trajectory,) = load(write(tmp_path / "results.jsonl", row()))
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.id, trajectory.task.id, trajectory.task.goal, trajectory.agent) == (
        "7/0",
        "shop/7",
        "How much is tea?",
        "m",
    )
    assert [(s.action.kind, s.action.value, s.thought) for s in trajectory.steps] == [
        ("goto", "http://shop", "I look"),
        ("answer", "It is 3.", None),
    ]
    assert trajectory.steps[1].observation.text == "Tea: 3"
    assert trajectory.steps[1].observation.screenshot is not None
    assert trajectory.answer == "It is 3."
    assert trajectory.metadata == {
        "env_id": "shop",
        "truncated": False,
        "prompt_tokens": 100.0,
        "completion_tokens": 20.0,
    }


def test_trace_gives_its_last_branch(tmp_path: Path) -> None:
    write(
        tmp_path / "run" / "traces.jsonl",
        {"id": "e", "env": {"id": "shop"}, "traces": [trace(), trace(id="t2")]},
    )
    first, second = load(tmp_path)
    assert isinstance(first, Trajectory)
    assert (first.id, second.id, first.task.id, first.agent) == ("t1", "t2", "shop/7", "m")
    assert [(s.action.kind, s.action.value) for s in first.steps] == [
        ("search", "tea"),
        ("answer", "It is 3."),
    ]
    assert first.metadata == {"env_id": "shop", "branches": 2, "truncated": False}


def test_truth_and_score_stay_out(tmp_path: Path) -> None:
    write(tmp_path / "a" / "results.jsonl", row())
    write(tmp_path / "b" / "traces.jsonl", {"traces": [trace()]})
    for items in load(tmp_path):
        assert isinstance(items, Trajectory)
        assert not [
            word for word in ("SECRET", "0.125", "reward", "correct") if word in repr(items)
        ]


def test_ids_unique_and_labels_join(tmp_path: Path) -> None:
    write(
        tmp_path / "a" / "results.jsonl", row(), row(example_id=8), row(prompt=5), row(reward=0.25)
    )
    write(tmp_path / "b" / "results.jsonl", row())
    items = list(load(tmp_path))
    assert [item.id for item in items if isinstance(item, Trajectory)] == [
        "a/7/0",
        "a/8/0",
        "a/7/2",
        "b/7/0",
    ]
    assert [label.id for label in load_labels(tmp_path)] == [
        "a/7/0",
        "a/8/0",
        "a/7/1",
        "a/7/2",
        "b/7/0",
    ]


def test_rewards_are_a_source_of_their_own(tmp_path: Path) -> None:
    rows = [row(), row(reward=0.4), row(reward=None), row(reward=0.0, error={"error": "Timeout"})]
    assert list(load_labels(write(tmp_path / "results.jsonl", *rows))) == [
        LabelRecord(id="7/0", success=True, source="reward", note="reward 1"),
        LabelRecord(id="7/1", success=False, source="reward", note="reward 0.4"),
        LabelRecord(id="7/2", success=None, source="reward"),
        LabelRecord(id="7/3", success=None, source="reward", note="ended with an error"),
    ]


def test_trace_rewards_are_weighed(tmp_path: Path) -> None:
    traces = [
        trace(),
        trace(id="t2", rewards={"exact": None}),
        trace(id="t3", ok=False),
        trace(id="t4", rewards={}),
    ]
    traces.append(trace(id="t5", rewards={"exact": {"score": None, "weight": 1.0}}))
    assert list(load_labels(write(tmp_path / "traces.jsonl", {"traces": traces}))) == [
        LabelRecord(id="t1", success=True, source="reward", note="reward 0.75"),
        LabelRecord(id="t2", success=None, source="reward"),
        LabelRecord(id="t3", success=None, source="reward", note="ended with an error"),
        LabelRecord(id="t5", success=None, source="reward"),
    ]


def test_rollout_break_is_its_error(tmp_path: Path) -> None:
    write(
        tmp_path / "a" / "results.jsonl",
        row(error={"error": "Timeout", "error_chain_str": "Timeout: 60 s"}, completion=None),
    )
    write(
        tmp_path / "b" / "traces.jsonl",
        {"traces": [trace(ok=False, errors=[{"type": "Timeout", "message": "60 s"}])]},
    )
    assert [items.error for items in load(tmp_path) if isinstance(items, Trajectory)] == [
        "Timeout: 60 s",
        "Timeout: 60 s",
    ]


def test_prompt_and_completion_as_text(tmp_path: Path) -> None:
    (trajectory,) = load(write(tmp_path / "results.jsonl", row(prompt="How much?", completion="3")))
    assert isinstance(trajectory, Trajectory)
    assert (trajectory.task.goal, trajectory.answer) == ("How much?", "3")


@pytest.mark.parametrize(
    ("name", "bad", "problem"),
    [
        ("results.jsonl", '{"example_id": 1, "prom', "truncated"),
        ("results.jsonl", row(reward="good"), r"$.reward"),
        ("results.jsonl", row(prompt=[{"content": "x"}]), "role"),
        ("results.jsonl", row(prompt=[]), "no goal"),
        (
            "traces.jsonl",
            {
                "traces": [
                    trace(nodes=[{"parent": 1, "message": {"role": "user"}}] * 2 + [{"x": 1}])
                ]
            },
            "message",
        ),
        (
            "traces.jsonl",
            {"traces": [trace(nodes=[{"parent": 9, "message": {"role": "user", "content": "x"}}])]},
            "do not exist",
        ),
    ],
)
def test_broken_row_named_others_read(tmp_path: Path, name: str, bad: Any, problem: str) -> None:
    good = row() if name == "results.jsonl" else {"traces": [trace()]}
    first, second = load(write(tmp_path / name, bad, good))
    assert isinstance(first, BadLine)
    assert f"{name}:1: " in first.message
    assert problem in first.problem
    assert isinstance(second, Trajectory)


def test_no_results_are_an_error(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(UsageError):
            list(load(source))


def test_converted_folder_stands_alone(tmp_path: Path) -> None:
    write(tmp_path / "in" / "results.jsonl", row(), row())
    assert main(["convert", "verifiers", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    items = list(read_trajectories(tmp_path / "out" / "trajectories.jsonl"))
    assert [
        Path(str(t.steps[1].observation.screenshot)).is_file()
        for t in items
        if isinstance(t, Trajectory)
    ] == [True, True]
    assert len(list((tmp_path / "out" / "images").iterdir())) == 1
    assert [label.source for label in read_labels(tmp_path / "out" / "labels.jsonl")] == [
        "reward",
        "reward",
    ]
