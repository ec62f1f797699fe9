"""Reads AndroidWorld runs (arXiv 2405.14573), as narratives or as steps with visible elements.

The folder holds `trajectories.jsonl.gz` and `labels.jsonl.gz`. The two groups come from different
agents with very different success rates: `metadata["evidence"]` is `narrative` or `steps`, and
figures of the two should not be pooled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from prill.actions.ending import claim_in, with_claim
from prill.datasets.reading.records import Record, find_rows, read_rows
from prill.datasets.reading.sources import Source
from prill.io.store import BadLine
from prill.types import Action, LabelRecord, Observation, Step, StrPath, Task, Trajectory

# The screen size is not recorded. Boxes of most runs end at the size of the Pixel 6 that
# AndroidWorld specifies.
_SCREEN = (1080, 2400)
_KINDS = {
    "click": "click", "double_tap": "double_click", "long_press": "long_press",
    "input_text": "type", "scroll": "scroll", "swipe": "swipe", "navigate_back": "back",
    "navigate_home": "home", "open_app": "open", "keyboard_enter": "press", "wait": "wait",
    "answer": "answer", "status": "stop",
}  # fmt: skip


class _Element(Record):
    t: str
    cls: str
    b: tuple[float, float, float, float]
    chk: bool = False


class _Step(Record):
    action: str
    ui: tuple[_Element, ...] = ()


class _Row(Record):
    id: str
    task: str
    goal: str
    agent: str | None = None
    narrative: str | None = None
    run_time_s: float | None = None
    steps: tuple[_Step, ...] = ()
    final_ui: tuple[_Element, ...] | None = None


class _Labels(Record):
    id: str
    oracle_reward: float | None


class _Command(Record):
    action_type: str
    index: int | None = None
    text: str | None = None
    direction: str | None = None
    app_name: str | None = None
    goal_status: str | None = None


def recognise(source: Source) -> bool:
    """Returns whether the source is a folder with rows of a task name, a goal, and a narrative or
    steps.
    """
    rows = (
        [file.value for file in source.files("trajectories.jsonl", "trajectories.jsonl.gz")]
        if source.is_folder
        else []
    )
    return any(
        isinstance(row, dict)
        and {"id", "task", "goal"} <= row.keys()
        and {"narrative", "steps"} & row.keys()
        and isinstance(row["task"], str)
        for row in rows
    )


def load(folder: StrPath) -> Iterator[Trajectory | BadLine]:
    """Yields every run, without its outcome.

    A narrative is the caption of one step; elements are the text of an observation.
    """
    return read_rows(find_rows(folder, "trajectories"), _Row, _trajectory)


def load_labels(folder: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields one label of source `oracle` for each run.

    Success is a reward of exactly 1; a missing reward is undecided.
    """
    return read_rows(find_rows(folder, "labels"), _Labels, _label)


def _trajectory(row: _Row) -> Iterator[Trajectory]:
    task = Task(id=row.task, goal=row.goal, platform="android", site="androidworld")
    yield _from_narrative(row, task) if row.narrative is not None else _from_steps(row, task)


def _label(row: _Labels) -> Iterator[LabelRecord]:
    yield LabelRecord(
        id=row.id,
        success=None if row.oracle_reward is None else row.oracle_reward == 1.0,
        source="oracle",
    )


def _from_narrative(row: _Row, task: Task) -> Trajectory:
    metadata: dict[str, object] = {"evidence": "narrative"}
    if row.run_time_s is not None:
        metadata["run_time_s"] = row.run_time_s
    step = Step(Observation(caption=row.narrative), Action("narrative", "see the narrative"))
    return Trajectory(id=row.id, task=task, agent=row.agent, steps=(step,), metadata=metadata)


def _from_steps(row: _Row, task: Task) -> Trajectory:
    elements = [
        element
        for screen in (*(step.ui for step in row.steps), row.final_ui or ())
        for element in screen
    ]
    width = max((element.b[2] for element in elements), default=0)
    height = max((element.b[3] for element in elements), default=0)
    size = (max(width, _SCREEN[0]), max(height, _SCREEN[1]))
    steps, claimed = [], None
    for raw in row.steps:
        action, thought, claimed = _parse(raw.action)
        steps.append(Step(Observation(text=_page(raw.ui, size)), action, thought))
    final = None if row.final_ui is None else Observation(text=_page(row.final_ui, size))
    answer = steps[-1].action.value if steps and steps[-1].action.is_final else None
    return Trajectory(
        id=row.id,
        task=task,
        agent=row.agent,
        steps=tuple(steps),
        final=final,
        answer=answer,
        metadata=with_claim({"evidence": "steps"}, claimed),
    )


def _page(elements: tuple[_Element, ...], size: tuple[float, float]) -> str:
    """Returns the page as one line per element: class, text, state, centre in fractions of the
    screen.
    """
    lines = []
    for e in elements:
        x, y = (e.b[0] + e.b[2]) / 2 / size[0], (e.b[1] + e.b[3]) / 2 / size[1]
        state = " (checked)" if e.chk else ""
        lines.append(f"{e.cls} {json.dumps(e.t, ensure_ascii=False)}{state} at ({x:.2f}, {y:.2f})")
    return "\n".join(lines)


def _parse(line: str) -> tuple[Action, str | None, bool | None]:
    """Parses "Reason: … Action: {…}" into the action, the thought and the agent's claim.

    The kind is `other` if the end is not a command.

    `index` counts elements of a longer list than the recorded one, so it cannot be converted to a
    position on the screen.
    """
    reason, marker, text = line.rpartition("Action:")
    text = text.strip()
    thought = reason.strip().removeprefix("Reason:").strip() or None
    try:
        command = msgspec.json.decode(text, type=_Command)
    except msgspec.MsgspecError:
        return (
            (Action("other", text), thought, None)
            if marker
            else (Action("other", line.strip()), None, None)
        )
    kind = _KINDS.get(command.action_type, "other")
    target = None if command.index is None else str(command.index)
    value = command.text or command.direction or command.app_name
    claimed = claim_in({"goal_status": command.goal_status}) if kind == "stop" else None
    return Action(kind, text, target=target, value=value), thought, claimed
