"""AgentRewardBench's cleaned files, made up with the fields that its package writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prill.cli import main
from prill.datasets.formats.agentrewardbench import load, load_labels
from prill.io.store import BadLine
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
        "n_steps": 1,
        "cum_reward": 1.0,
        "cum_raw_reward": 0,
        "terminated": True,
        "truncated": False,
        "err_msg": None,
    }
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


def test_date_from_recorded_path(tmp_path: Path) -> None:
    run(
        tmp_path,
        "a",
        step(
            0,
            "noop()",
            screenshot_path="shots/2025-01-21_13-02-37_agent_on_webarena.24/screenshot_step_0.png",
        ),
    )
    assert only(tmp_path).metadata["date"] == "2025-01-21T13:02:37"


def test_early_message_does_not_end_run(tmp_path: Path) -> None:
    run(tmp_path, "a", step(0, "send_msg_to_user('which?')"), step(1, "click('4')"))
    assert [s.action.kind for s in only(tmp_path).steps] == ["message", "click"]


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


def test_error_only_of_unfinished_runs(tmp_path: Path) -> None:
    run(
        tmp_path,
        "a",
        step(0, "click('4')"),
        summary={"cum_reward": 0, "err_msg": "ParseError", "terminated": True},
    )
    assert [label.success for label in load_labels(tmp_path) if isinstance(label, LabelRecord)] == [
        False
    ]
    assert only(tmp_path).error is None


def test_run_without_reward_has_no_label(tmp_path: Path) -> None:
    run(tmp_path, "a", step(0, "click('4')"), summary={"cum_reward": None})
    assert list(load_labels(tmp_path)) == []


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


@pytest.mark.parametrize(
    "path",
    ["/etc/hostname", "../secret.png", "../../../../secret.png", "secret.png", "a\0b/secret.png"],
)
def test_screenshot_paths_stay_inside(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.png").write_bytes(b"x")
    run(tmp_path / "data" / "cleaned", "a", step(0, "click('4')", screenshot_path=path))
    assert only(tmp_path / "data" / "cleaned").observations[0].screenshot is None


def test_goal_in_parts_and_gzip_are_read(tmp_path: Path) -> None:
    goal = [
        {"type": "text", "text": "Buy"},
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "text", "text": "tea"},
    ]
    path = run(tmp_path, "a", step(0, "click('4')"), goal=goal)
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert (only(tmp_path).id, only(tmp_path).task.goal) == ("webarena/gpt/a", "Buy\ntea")


def test_broken_files_cost_only_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = run(tmp_path, "good", step(0, "click('4')", screenshot_path=None))
    (good.parent / "cut.json").write_text(good.read_text(encoding="utf-8")[:200], encoding="utf-8")
    (good.parent / "other.json").write_text('{"steps": []}', encoding="utf-8")
    (good.parent / "packed.json.gz").write_bytes(gzip.compress(good.read_bytes())[:40])
    run(tmp_path, "z_empty")
    items = list(load(tmp_path))
    assert [type(item) for item in items] == [BadLine, Trajectory, BadLine, BadLine, BadLine]
    assert main(["convert", "agentrewardbench", str(tmp_path), "-o", str(tmp_path / "out")]) == 3
    assert "1 trajectories, " in capsys.readouterr().err
