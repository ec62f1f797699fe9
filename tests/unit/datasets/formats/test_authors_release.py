"""The authors' released form of Agent-Eval-Refine: read as it is written, and on to scores, figures
and training rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.cli import main
from prill.datasets.formats import agent_eval_refine, screenshots
from prill.io.store import BadLine
from prill.types import LabelRecord, Trajectory
from tests.support.commands.endpoint import Endpoint
from tests.support.datasets import authors_release as authors

VERDICT = '{"thoughts": "seen", "status": "success"}'
TAP = "idb ui tap --udid {udid} 331 438"
IOS_STEPS = [
    ("tap [[851,520]]", "tap [[851,520]]", TAP),
    ("swipe up", "swipe left", "idb ui swipe --udid {udid} 400 200 300 200 --duration 0.1"),
    ("press back", "press back", "idb ui button --udid {udid} HOME"),
    ('type "rain boots"', 'type "rain boots"', 'idb ui text --udid {udid} "rain boots"'),
    ("tap [[250,300]]", "tap [[250,300]]", "idb ui tap --udid {udid} 97 253"),
    ("task complete", "task complete", "end"),
]


def trajectories(root: Path, **options: Any) -> list[Trajectory]:
    items = list(agent_eval_refine.load(root, **options))
    assert not [item.message for item in items if isinstance(item, BadLine)]
    return [item for item in items if isinstance(item, Trajectory)]


def labels(root: Path) -> list[LabelRecord]:
    items = list(agent_eval_refine.load_labels(root))
    assert not [item.message for item in items if isinstance(item, BadLine)]
    return [item for item in items if isinstance(item, LabelRecord)]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_webarena_task_from_rendered_text(tmp_path: Path) -> None:
    actions = ["click [1148] where [1148] is [1148] table ''", "none", "stop [$5]"]
    (run,) = trajectories(authors.webarena(tmp_path / "webarena-gpt4cot", [("$5", actions, True)]))
    assert (run.id, run.task.id, run.task.site, run.task.start_url) == (
        "40",
        "webarena.40",
        "shopping",
        "http://shop.example:7770",
    )
    assert (run.answer, run.metadata["intent_template_id"]) == ("$5", 139)
    assert [step.action.kind for step in run.steps] == ["click", "other", "stop"]
    assert "SECRET" not in repr(run)


@pytest.mark.parametrize(
    "config", ['{"task_id": 40, "sites": ["map"]}', None, "", "<b>no configuration</b>"]
)
def test_webarena_config_of_any_form_is_read(tmp_path: Path, config: str | None) -> None:
    root = authors.webarena(tmp_path / "webarena", [("", ["stop []"], False)])
    log = json.loads((root / "trajectory_log.json").read_text())
    log[0]["other"]["config"] = config
    (root / "trajectory_log.json").write_text(json.dumps(log))
    assert trajectories(root)[0].task.id == (
        "webarena.40" if config and config.startswith("{") else "40"
    )


def test_webarena_results_are_the_oracles(tmp_path: Path) -> None:
    root = authors.webarena(
        tmp_path / "webarena", [("a", ["stop [a]"], True), ("b", ["stop [b]"], False)]
    )
    assert labels(root) == [
        LabelRecord(id="40", success=True, source="oracle"),
        LabelRecord(id="41", success=False, source="oracle"),
    ]


def test_skipped_captions_are_none(tmp_path: Path) -> None:
    root = authors.webarena(
        tmp_path / "webarena", [("", ["go_back", "scroll [down]", "stop []"], True)]
    )
    assert [state.caption for state in trajectories(root)[0].observations] == [
        None,
        "# Page 1",
        "# Page 2",
    ]
    other = tmp_path / "mine.json"
    other.write_text(json.dumps({"40_0": "# Mine"}))
    chosen = trajectories(root, captions=str(other))[0]
    assert ([state.caption for state in chosen.observations], chosen.metadata["captions"]) == (
        ["# Mine", None, None],
        "mine",
    )


def test_ios_places_are_thousandths(tmp_path: Path) -> None:
    (run,) = trajectories(
        authors.ios(tmp_path / "ios80-cogagent-v0", [("Open Settings", IOS_STEPS)])
    )
    assert run.task.goal == "Open Settings"
    assert [(step.action.kind, step.action.point, step.action.value) for step in run.steps] == [
        ("click", (0.851, 0.52), None),
        ("swipe", None, "left"),
        ("home", None, None),
        ("type", None, "rain boots"),
        ("click", (0.25, 0.3), None),
        ("stop", None, None),
    ]
    assert run.steps[0].thought == "Plan: 1. Open it. 2. Change it.\nNext Action: Touch the icon."
    assert run.final is not None
    assert Path(run.final.screenshot or "").name == "1706434050.573745-6.jpg"


def test_ios_unreadable_reply_is_no_claim(tmp_path: Path) -> None:
    (run,) = trajectories(
        authors.ios(tmp_path / "ios", [("Open it", [("dance", "Invalid action", "end")])])
    )
    assert (run.steps[-1].action.kind, run.answer) == ("other", None)
    assert run.metadata["ended_by"] == "the agent's reply held no readable operation"


def test_annotation_app_offers_four_decisions(tmp_path: Path) -> None:
    found = {}
    for annotation in ("Success", "Failure", "Unsure", "Emulator Error"):
        root = authors.ios(tmp_path / annotation / "ios", [("Open it", IOS_STEPS[:1])], annotation)
        (label,) = labels(root)
        found[annotation] = (label.success, label.undecided, label.source, label.annotator)
    assert found == {
        "Success": (True, None, "human", "ann"),
        "Failure": (False, None, "human", "ann"),
        "Unsure": (None, "unsure", "human", "ann"),
        "Emulator Error": (None, "not_executable", "human", "ann"),
    }


def test_android_plan_is_kept(tmp_path: Path) -> None:
    touch = "Action Type: DualPoint, Touch Point: (0.6325, 0.8017), Lift Point: (0.6325, 0.8017)"
    plan = (
        'Action Plan: [DUAL_POINT,TYPE] ; Action Decision: "action_type": "DUAL_POINT", '
        '"touch_point": "[0.8017, 0.6325]"'
    )
    cogagent = "Plan: 1. Stop.\nNext Action: Stop.\nGrounded Operation:task complete"
    root = authors.android(
        tmp_path / "android",
        "Search for tea",
        [(touch, plan), ("Action Type: TaskComplete", cogagent)],
    )
    (run,) = trajectories(root)
    assert [(step.action.kind, step.action.point, step.thought) for step in run.steps] == [
        ("click", (0.6325, 0.8017), "Action Plan: [DUAL_POINT,TYPE]"),
        ("stop", None, "Plan: 1. Stop.\nNext Action: Stop."),
    ]


def test_reflexion_pictures_are_found(tmp_path: Path) -> None:
    root = authors.reflexion(tmp_path, 24, 1, ["click [7]", "stop []"], 1.0)
    (trial,) = trajectories(root)
    assert [Path(state.screenshot or "").is_file() for state in trial.observations] == [True, True]
    assert (trial.id, trial.task.id, [state.caption for state in trial.observations]) == (
        "24_1",
        "webarena.24",
        ["# Shop", "# Cart"],
    )
    assert "SECRET" not in repr(trial)


def test_aitw_truth_is_not_a_persons(tmp_path: Path) -> None:
    """unify_android_aitw_data.ipynb: the annotation is a boolean, and the annotator's name that of
    the data set.
    """
    root = authors.android(tmp_path / "android-gt", "Search", [("Action Type: TaskComplete", "")])
    row = {
        "dataset_path": "android-gt",
        "task_idx": "0323_172117-dc2f7adf",
        "task_uid": "0323_172117-dc2f7adf",
    }
    (root / "evals/v0.jsonl").unlink()
    (root / "evals/gt.jsonl").write_text(
        json.dumps({**row, "user_uid": "AitW", "annotation": True, "comment": ""}) + "\n"
    )
    assert labels(root) == [LabelRecord(id="0323_172117-dc2f7adf", success=True, source="oracle")]


def test_web_folder_to_agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [
        ("$5", ["click [7] where [7] is [7] link 'Tea'", "stop [$5]"], True),
        ("Early stop: Same action for 3 times", ["go_back", "stop []"], False),
    ]
    theirs, ours = authors.webarena(tmp_path / "webarena-gpt4cot", tasks), tmp_path / "ours"
    assert (
        main(
            [
                "convert",
                "agent-eval-refine",
                str(theirs),
                "-o",
                str(ours),
                "--captions",
                "ocr-sft-qwenvl-v2",
            ]
        )
        == 0
    )
    assert "2 trajectories, 2 labels" in capsys.readouterr().err
    runs, verdicts = str(ours / "trajectories.jsonl"), str(ours / "v.jsonl")
    with Endpoint(lambda text: VERDICT) as endpoint:
        words = ["--judge", "modular", "--judge.captioner", "given", *endpoint.words]
        assert main(["score", runs, "-o", verdicts, *words]) == 0
    assert all("# Page 1" in turn and "SKIP" not in turn for turn in endpoint.turns)
    capsys.readouterr()
    assert (
        main(["agree", verdicts, str(ours / "labels.jsonl"), "--trajectories", runs, "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["confusion"]) == ("oracle", {"tp": 1, "fp": 1, "tn": 0, "fn": 0})


def test_captioner_pairs_become_rows(tmp_path: Path) -> None:
    theirs = tmp_path / "gui_cap_dataset"
    pairs = []
    for i, text in enumerate(
        (
            "# Shop\n* the cart with two things in it",
            "# Map\n* the river and the streets beside it",
            "ERROR",
        )
    ):
        authors.picture(theirs / f"images/{i}.png", 80 * i)
        pairs.append({"img": f"/home/someone/data/gui_cap_dataset/images/{i}.png", "cap": text})
    (theirs / "final.json").write_text(json.dumps(pairs, indent=2))
    assert main(["convert", "screenshots", str(theirs), "-o", str(tmp_path / "ours")]) == 3, (
        "one has no description"
    )
    words = ["--for-training", "--captioner", "given", "--near", "-1", "--min-chars", "1"]
    assert (
        main(
            [
                "caption",
                str(tmp_path / "ours/trajectories.jsonl"),
                "-o",
                str(tmp_path / "data"),
                *words,
            ]
        )
        == 0
    )
    rows = lines(tmp_path / "data/rows.jsonl")
    assert [row["completion"][0]["content"][0]["text"] for row in rows] == [
        pair["cap"] for pair in pairs[:2]
    ]
    assert all((tmp_path / "data" / row["images"][0]).is_file() for row in rows)


def test_folder_of_pictures_is_read(tmp_path: Path) -> None:
    for name in ("b/2.jpg", "a.png", "b/1.PNG"):
        authors.picture(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    runs = [item for item in screenshots.load(tmp_path) if isinstance(item, Trajectory)]
    assert [run.id for run in runs] == ["a.png", "b/1.PNG", "b/2.jpg"]
    assert [run.final.caption for run in runs if run.final] == [None, None, None]
