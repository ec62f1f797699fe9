"""`prill agree --metric aitw`: predicted actions against the recorded ones, by the data set's own
matching.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.cli import main
from prill.io.store import write_trajectories
from prill.types import Action, Observation, Step, Task, Trajectory

# The recorded tap of the data set's example (y .7191, x .4154), and the box of the button below it,
# as recorded.
GOLD, HEIGHT, WIDTH = (0.4154, 0.7191), 0.0289 / 2.4, 0.4978 / 2.4
BUTTON = [0.2511 + 0.7 * WIDTH, 0.7045 + 0.7 * HEIGHT, WIDTH, HEIGHT]


def tap(y: float, x: float) -> Action:
    return Action("click", point=(x, y))


def swipe(y: float, x: float, to_y: float, to_x: float) -> Action:
    return Action("swipe", point=(x, y), end_point=(to_x, to_y))


TYPED, DONE, UP, LEFT = (
    Action("type", value="Green Tea"),
    Action("stop"),
    swipe(0.8, 0.5, 0.2, 0.5),
    swipe(0.5, 0.8, 0.5, 0.2),
)
RECORDED = [tap(0.7191, 0.4154), UP, TYPED, DONE]


def written(
    path: Path,
    *runs: tuple[str, str, Sequence[Action]],
    boxes: bool = False,
    error: str | None = None,
) -> str:
    """Trajectories of (id, goal, actions); every step of one with boxes has the button."""
    items = [
        Trajectory(
            id=id,
            task=Task(goal=goal, platform="android"),
            steps=tuple(Step(Observation(), action) for action in actions),
            metadata={"boxes": [[BUTTON]] * len(actions)} if boxes else {},
            error=error,
        )
        for id, goal, actions in runs
    ]
    write_trajectories(path, items)
    return str(path)


def matched(predicted: str, recorded: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["agree", predicted, recorded, "--metric", "aitw", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found | {figure["name"]: figure for figure in found["figures"]}


def test_figures_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the box, a swipe along the other axis, another text, the end; then nothing right, and one
    step not predicted.
    """
    recorded = written(
        tmp_path / "r.jsonl", ("a", "tea", RECORDED), ("b", "milk", [UP, TYPED, DONE]), boxes=True
    )
    predicted = written(
        tmp_path / "p.jsonl",
        ("a", "tea", [tap(0.715, 0.70), LEFT, Action("type", value="coffee"), DONE]),
        ("b", "milk", [tap(0.5, 0.5), Action("other", "?")]),
    )
    found = matched(predicted, recorded, capsys)
    assert (found["episodes"], found["steps"], found["clusters"], found["unpredicted_steps"]) == (
        2,
        7,
        2,
        1,
    )
    values = {
        name: found[name]["value"]
        for name in ("action", "type", "text", "tap", "swipe", "partial", "complete")
    }
    assert values == pytest.approx(
        {
            "action": 3 / 7,
            "type": 5 / 7,
            "text": 0,
            "tap": 1,
            "swipe": 0,
            "partial": (3 / 4 + 0) / 2,
            "complete": 0,
        }
    )


def test_converted_episodes_bring_their_boxes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The data set's own form, with a box of y, x, height and width: the tap matches through it."""
    step = {
        "episode_id": "e",
        "step_id": 0,
        "episode_length": 1,
        "goal_info": "Buy tea",
        "image/ui_annotations_positions": [[BUTTON[1], BUTTON[0], HEIGHT, WIDTH]],
        "results/action_type": 4,
        "results/yx_touch": [0.7191, 0.4154],
        "results/yx_lift": [0.7191, 0.4154],
    }
    (tmp_path / "general.json").write_text(json.dumps([step]), encoding="utf-8")
    assert (
        main(["convert", "aitw", str(tmp_path / "general.json"), "-o", str(tmp_path / "gold")]) == 0
    )
    predicted = written(tmp_path / "p.jsonl", ("e", "Buy tea", [tap(0.715, 0.70)]))
    found = matched(predicted, str(tmp_path / "gold/trajectories.jsonl"), capsys)
    assert (found["action"]["value"], found["without_boxes"]) == (1, 0)


def test_what_is_not_compared_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = written(tmp_path / "r.jsonl", ("a", "g", [UP]), ("b", "h", [UP]))
    predicted = written(tmp_path / "p.jsonl", ("a", "g", [UP, DONE]), ("z", "h", [UP]))
    assert main(["agree", predicted, recorded, "--metric", "aitw"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "1 recorded steps of 1 episodes",
        "action matches                 1.000",
        "1 recorded episodes without a prediction, left out",
        "1 predicted episodes without a recording",
        "1 predictions after the last recorded step",
        "1 episodes without bounding boxes",
    ):
        assert words in shown
    broken = written(tmp_path / "q.jsonl", ("a", "g", []), error="the phone is gone")
    assert main(["agree", broken, recorded, "--metric", "aitw"]) == 2
    assert "no recorded step has a prediction" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--steps"], ["--source", "human"], ["--truth", "first"], ["--trajectories", "t.jsonl"]],
)
def test_options_of_verdicts_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    one = written(tmp_path / "r.jsonl", ("a", "g", [UP]))
    assert main(["agree", one, one, "--metric", "aitw", *words]) == 2
    shown = capsys.readouterr().err
    assert f"{words[0][2:]}: only for verdicts" in shown and f"({words[0]})" in shown
