"""The importer on rows made up in the two layouts of the data set, and on the real files where they
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats.androidworld import load, load_labels
from prill.types import LabelRecord, Trajectory

Recording = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Path]
SWITCH = {"t": 'Wi-Fi "5 GHz"', "cls": "Switch", "b": [0, 1200, 1080, 1200], "chk": True}


def row(**more: Any) -> dict[str, Any]:
    return {
        "id": "aw/1",
        "platform": "android",
        "task": "WifiOn",
        "goal": "Turn on Wi-Fi",
        "agent": "a",
        **more,
    }


def acted(recording: Recording, action: str) -> Trajectory:
    (trajectory,) = load(
        recording([row(steps=[{"i": 0, "action": action, "ui": []}], final_ui=[])], [])
    )
    return trajectory


def test_narrative_is_caption_of_one_step(recording: Recording) -> None:
    (trajectory,) = load(recording([row(narrative="I opened the settings.", run_time_s=3.5)], []))
    assert [o.caption for o in trajectory.observations] == ["I opened the settings."]
    assert (trajectory.task.id, trajectory.task.platform, trajectory.answer) == (
        "WifiOn",
        "android",
        None,
    )
    assert trajectory.metadata == {"evidence": "narrative", "run_time_s": 3.5}


def test_elements_become_lines_with_places(recording: Recording) -> None:
    action = 'Reason: it is off {now}\nAction: {"action_type": "click", "index": 4}'
    (trajectory,) = load(
        recording(
            [row(steps=[{"i": 0, "action": action, "ui": [SWITCH]}], final_ui=[SWITCH, SWITCH])], []
        )
    )
    line = r'Switch "Wi-Fi \"5 GHz\"" (checked) at (0.50, 0.50)'
    assert trajectory.steps[0].observation.text == line
    assert trajectory.final is not None
    assert trajectory.final.text == f"{line}\n{line}"
    assert (
        trajectory.steps[0].action.kind,
        trajectory.steps[0].action.target,
        trajectory.steps[0].action.point,
    ) == ("click", "4", None)
    assert trajectory.steps[0].thought == "it is off {now}"


@pytest.mark.parametrize(
    ("command", "kind", "value"),
    [
        (
            '{"action_type": "input_text", "text": "tea", "index": 1, "clear_text": true}',
            "type",
            "tea",
        ),
        ('{"action_type": "swipe", "direction": "left"}', "swipe", "left"),
        ('{"action_type": "open_app", "app_name": "Settings"}', "open", "Settings"),
        ('{"action_type": "navigate_back"}', "back", None),
        ('{"action_type": "dance"}', "other", None),
    ],
)
def test_commands_become_kinds_and_values(
    recording: Recording, command: str, kind: str, value: str | None
) -> None:
    action = acted(recording, f"Reason: so\n\nAction: {command}").steps[0].action
    assert (action.kind, action.value, action.text) == (kind, value, command)


def test_answer_is_the_last_thing_said(recording: Recording) -> None:
    trajectory = acted(
        recording,
        'Reason: r\nAction: {"action_type": "status", "goal_status": "complete", "text": "It is '
        'on."}',
    )
    assert (trajectory.steps[0].action.is_final, trajectory.answer) == (True, "It is on.")


def test_success_is_a_reward_of_exactly_one(recording: Recording) -> None:
    rewards = {"a": 1.0, "b": 0.5, "c": 0.0, "d": None}
    folder = recording([], [{"id": id, "oracle_reward": reward} for id, reward in rewards.items()])
    assert list(load_labels(folder)) == [
        LabelRecord(id=id, success=success, source="oracle")
        for id, success in (("a", True), ("b", False), ("c", False), ("d", None))
    ]


@pytest.mark.labelled
def test_real_recordings_read_whole(real: Callable[[str], Path]) -> None:
    folder = real("androidworld")
    items = list(load(folder))
    assert Counter(t.metadata["evidence"] for t in items) == {"narrative": 73, "steps": 24}
    assert all(t.observations[-1].text for t in items if t.metadata["evidence"] == "steps")
    assert not [
        s
        for t in items
        for s in t.steps
        if s.action.kind == "other" and t.metadata["evidence"] == "steps"
    ]
    assert Counter(label.success for label in load_labels(folder)) == {True: 67, False: 30}
