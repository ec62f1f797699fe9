"""Agent-Eval-Refine folders made up in the test: trajectories, captions, several annotators, and
what may be missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats.agent_eval_refine import detect_platform, load, load_labels
from prill.types import Action, LabelRecord, Trajectory


def folder(root: Path, records: list[Any], **meta: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "trajectory_log.json").write_text(json.dumps(records), encoding="utf-8")
    if meta:
        (root / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return root


def record(uid: str | int, *actions: str, key: str = "raw_action", **more: Any) -> dict[str, Any]:
    steps = [{"img": f"{uid}_{i}.png", "other": {key: action}} for i, action in enumerate(actions)]
    return {
        "uid": uid,
        "intent": f"Goal {uid}",
        "response": "",
        "other": {},
        "steps": steps,
        **more,
    }


def judgements(root: Path, name: str, *rows: dict[str, Any]) -> None:
    (root / "evals").mkdir(exist_ok=True)
    (root / "evals" / f"{name}.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )


def judged(uid: str, who: str, annotation: str | bool, **more: Any) -> dict[str, Any]:
    return {
        "dataset_path": "d",
        "task_idx": 0,
        "task_uid": uid,
        "user_uid": who,
        "annotation": annotation,
        "comment": "",
        **more,
    }


def only(root: Path, **options: Any) -> Trajectory:
    (trajectory,) = load(root, **options)
    assert isinstance(trajectory, Trajectory), trajectory
    return trajectory


def test_labels_last_line_per_annotator(tmp_path: Path) -> None:
    root = folder(tmp_path / "web", [record("24", "stop [yes]")])
    judgements(
        root,
        "round1",
        judged("24", "ann", "Failure"),
        judged("", "ann", "Success"),
        judged("25", "ann", "Success", task_idx=-1),
        judged("24", "bob", "Failure", comment="no price"),
        judged("24", "ann", "Success"),
        judged("24", "cy", True),
    )
    assert list(load_labels(root)) == [
        LabelRecord(id="24", success=True, annotator="ann"),
        LabelRecord(id="24", success=False, annotator="bob", note="no price"),
        LabelRecord(id="24", success=True, annotator="cy"),
    ]


def test_labels_oracle_told_from_people(tmp_path: Path) -> None:
    root = folder(tmp_path / "web", [])
    judgements(root, "oracle_eval", judged("1", "webarena", "Success"))
    judgements(root, "people", judged("1", "ann", "Failure"))
    assert [(label.source, label.success) for label in load_labels(root)] == [
        ("oracle", True),
        ("human", False),
    ]


def test_bare_ids_read_from_the_tree(tmp_path: Path) -> None:
    row = record(7, "click [4]", "type [5] [tea] [1]", "stop []")
    for step in row["steps"]:
        step["accessibility_tree"] = "[4] link 'Cart'\n[5] textbox 'Search' required: False"
    steps = only(folder(tmp_path / "web", [row])).steps
    assert [(step.action.target, step.action.value) for step in steps[:2]] == [
        ("[4] link 'Cart'", None),
        ("[5] textbox 'Search'", "tea"),
    ]


@pytest.mark.parametrize(
    ("path", "platform"),
    [
        ("webarena_gpt4", "web"),
        ("website/android_runs", "android"),
        ("ios/run-3", "ios"),
        ("android/scenarios", "android"),
    ],
)
def test_platform_from_deepest_folder(tmp_path: Path, path: str, platform: str) -> None:
    assert detect_platform(tmp_path / path) == platform


def test_actions_of_each_platform(tmp_path: Path) -> None:
    def actions(platform: str, key: str, *texts: str) -> list[Action]:
        return [
            step.action
            for step in only(folder(tmp_path / platform, [record(1, *texts, key=key)])).steps
        ]

    web = actions("web", "raw_action", "click [13] where [13] is [13] link '12 Reviews'", "dance")
    assert [(a.kind, a.target) for a in web] == [("click", "link '12 Reviews'"), ("other", None)]
    point = "Action Type: DualPoint, Touch Point: (0.5000, 0.2000), Lift Point: (0.5000, {})"
    typed = "Action Type: Type, Typed Text: 'it's tea'"
    android = actions(
        "android",
        "action",
        point.format("0.2500"),
        point.format("0.2600"),
        typed,
        "Action Type: TaskComplete",
    )
    assert [(a.kind, a.point, a.end_point, a.value) for a in android] == [
        ("click", (0.5, 0.2), None, None),
        ("swipe", (0.5, 0.2), (0.5, 0.26), None),
        ("type", None, None, "it's tea"),
        ("stop", None, None, None),
    ]
    ios = actions(
        "ios",
        "translated_action",
        "tap 195 422",
        "swipe left",
        'type "tea"',
        "press home",
        "task complete",
    )
    assert [(a.kind, a.point, a.value) for a in ios] == [
        ("click", (0.5, 0.5), None),
        ("swipe", None, "left"),
        ("type", None, "tea"),
        ("home", None, None),
        ("stop", None, None),
    ]


def test_reference_answers_stay_out(tmp_path: Path) -> None:
    config = {
        "task_id": 24,
        "sites": ["shopping"],
        "start_url": "http://shop",
        "eval": {"reference_answers": "SECRET"},
    }
    trajectory = only(
        folder(
            tmp_path / "web", [record("24", "stop []", other={"config": config, "score": "SECRET"})]
        )
    )
    assert (trajectory.task.id, trajectory.task.site, trajectory.task.start_url) == (
        "webarena.24",
        "shopping",
        "http://shop",
    )
    assert "SECRET" not in repr(trajectory)


def test_harness_stop_is_no_answer(tmp_path: Path) -> None:
    trajectory = only(
        folder(
            tmp_path / "web", [record("1", "stop [x]", response="Early stop: Reach max steps 30")]
        )
    )
    assert (trajectory.answer, trajectory.metadata["ended_by"]) == (
        None,
        "Early stop: Reach max steps 30",
    )


def test_reflexion_trials_and_labels(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    for trial, score in ((0, 0.0), (10, 1.0), (2, None)):
        more = {
            "trail_idx": trial,
            "memory": ["LESSON"],
            "status": "VERDICT",
            "score": 1,
            "captions": ["Only the last"],
        }
        steps = record("24", "click [1]", "stop [a]")["steps"]
        steps[0] |= {"accessibility_tree": "tree", "url": "http://x"}
        text = json.dumps(
            {"uid": "24", "intent": "g", "steps": steps, "oracle_score": score, **more}
        )
        (tmp_path / "records" / f"24_{trial}.json").write_text(text, encoding="utf-8")
    trials = [item for item in load(tmp_path) if isinstance(item, Trajectory)]
    assert [item.id for item in trials] == ["24_0", "24_2", "24_10"]
    assert trials[0].steps[0].observation.text == "tree"
    assert [o.caption for o in trials[0].observations] == [None, "Only the last"]
    assert not [word for word in ("LESSON", "VERDICT", "oracle", "score") if word in repr(trials)]
    assert [
        (label.id, label.success)
        for label in load_labels(tmp_path)
        if isinstance(label, LabelRecord)
    ] == [("24_0", False), ("24_10", True)]
