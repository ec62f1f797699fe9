"""AgentRewardBench's cleaned files, made up with the fields that its package writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats.agentrewardbench import load, load_labels
from prill.types import LabelRecord, Trajectory

RECORDED = "trajectories/shots/webarena/exp/2024_run/screenshot_step_{}.png"


def step(i: int, action: str | None, **more: Any) -> dict[str, Any]:
    return {
        "num": i,
        "reasoning": "so",
        "action": action,
        "screenshot_path": RECORDED.format(i),
        "url": "http://x",
        "focused_element": "4",
        "axtree": "whole tree",
        "axtree_pruned": "tree",
        "chat_messages": [{"role": "user", "content": "x"}],
        "stats": {"n": 1.5},
        **more,
    }


def run(folder: Path, name: str, *steps: dict[str, Any], **more: Any) -> Path:
    path = folder / "webarena" / "GenericAgent-gpt" / "exp" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    summary = {
        "n_steps": 1, "cum_reward": 1.0, "cum_raw_reward": 0, "terminated": True,
        "truncated": False, "err_msg": None,
    }  # fmt: skip
    record = {
        "benchmark": "webarena",
        "agent": "GenericAgent-gpt",
        "model": "gpt",
        "experiment": "exp",
        "valid": True,
        "goal": "Buy tea\n",
        "seed": 3,
        "flags": {"obs": {}},
        "summary_info": {**summary, **more.pop("summary", {})},
        "steps": list(steps),
        **more,
    }
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def only(folder: Path) -> Trajectory:
    (trajectory,) = load(folder)
    assert isinstance(trajectory, Trajectory), trajectory
    return trajectory


def test_run_read_without_its_reward(tmp_path: Path) -> None:
    run(
        tmp_path,
        "webarena.resized.24",
        step(0, "click('4')"),
        step(1, "send_msg_to_user('done')"),
        step(2, None),
    )
    trajectory = only(tmp_path)
    assert (trajectory.id, trajectory.task.id) == (
        "webarena/gpt/webarena.resized.24",
        "webarena.24",
    )
    assert (trajectory.task.goal, trajectory.task.site, trajectory.agent) == (
        "Buy tea",
        "webarena",
        "GenericAgent-gpt",
    )
    assert [(s.action.kind, s.thought, s.observation.text) for s in trajectory.steps] == [
        ("click", "so", "tree"),
        ("answer", "so", "tree"),
    ]
    assert trajectory.final is not None
    assert (trajectory.final.url, trajectory.answer) == ("http://x", "done")
    assert "reward" not in repr(trajectory)


def test_bids_read_from_pruned_tree(tmp_path: Path, shop_axtree: str) -> None:
    actions = (
        "click('237')",
        "fill('a12', 'red shoes')",
        "click('b4')",
        "click('12')",
        "noop(237)",
    )
    run(
        tmp_path,
        "a",
        *(step(i, action, axtree_pruned=shop_axtree) for i, action in enumerate(actions)),
    )
    assert [(s.action.target, s.action.value) for s in only(tmp_path).steps] == [
        ("[237] button 'Add to Cart'", None),
        ("[a12] searchbox 'Search'", "red shoes"),
        ("[b4] link 'Order #1042'", None),
        ("12", None),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("summary", "success", "note"),
    [
        ({"cum_reward": 1.0}, True, None),
        ({"cum_reward": 0}, False, None),
        ({"cum_reward": 0.75}, True, "reward 0.75"),
        ({"cum_reward": 0.25}, False, "reward 0.25"),
        (
            {"cum_reward": 0, "err_msg": "Timeout", "terminated": None},
            None,
            "an error ended the run",
        ),
        ({"cum_reward": 1, "err_msg": "Timeout", "terminated": False}, True, None),
    ],
)
def test_reward_is_the_oracle_label(
    tmp_path: Path, summary: dict[str, Any], success: bool | None, note: str | None
) -> None:
    run(tmp_path, "a", step(0, "click('4')"), summary=summary)
    assert list(load_labels(tmp_path)) == [
        LabelRecord(id="webarena/gpt/a", success=success, source="oracle", note=note)
    ]
    assert only(tmp_path).error == summary.get("err_msg")


def test_screenshots_below_and_beside(tmp_path: Path) -> None:
    run(
        tmp_path / "cleaned",
        "a",
        step(0, "click('4')"),
        step(1, "click('5')"),
        step(2, None, screenshot_path="None"),
    )
    shot = tmp_path / "shots" / "webarena" / "exp" / "2024_run" / "screenshot_step_0.png"
    shot.parent.mkdir(parents=True)
    shot.write_bytes(b"a picture")
    trajectory = only(tmp_path / "cleaned")
    assert [o.screenshot for o in trajectory.observations] == [str(shot), None, None]
    assert trajectory.metadata["screenshots_missing"] == 1
