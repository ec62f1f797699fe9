"""Reads trajectories of Stagehand's evaluations: one folder per run, with trajectory.json,
screenshots/, task_data.json and scores/.

The probe after a step is the agent's observation before the next step; the last one is the final
state. `act` is described in text whose first word is the action. The status is in the metadata;
runs that ended with `error` have an error.

Verdicts in `scores/` are labels of source `llm-judge`; their notes hold the expected answer, and
`load_rubrics` reads the rubric of the task. (browserbase/stagehand,
packages/core/lib/v3/verifier/types.ts, packages/evals/framework.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from msgspec import field

from prill.actions.tool_calls import detect_kind, fraction, tool_action
from prill.datasets.reading.chat import TokenUsage, count_tokens, end_once
from prill.datasets.reading.images import RecordImages, Run, image_size_or_none, read_runs
from prill.datasets.reading.records import (
    Record,
    as_record,
    date_in,
    decode_json,
    read_file,
    read_record,
)
from prill.datasets.reading.sources import Document, Source, members, read_documents
from prill.io.store import BadLine
from prill.types import Action, LabelRecord, Observation, Step, StrPath, Task, Trajectory

_PATTERNS = ("*.json",)
_KINDS = {
    "navback": "back", "keys": "press", "close": "stop", "done": "stop", "fillForm": "type",
    "fillFormVision": "type",
}  # fmt: skip
_ENDS = frozenset({"done", "close"})
_CLAIM = "taskComplete"  # the agent's claim of success


class _Criterion(Record, rename="camel"):
    criterion: str
    description: str = ""
    max_points: float = 1.0
    condition: str | None = None


class _Rubric(Record):
    items: tuple[_Criterion, ...] = ()


class _Task(Record, rename="camel"):
    id: str
    instruction: str
    init_url: str | None = None
    precomputed_rubric: _Rubric | None = None
    expected_answer: str | None = None


class _Modality(Record, rename="camel"):
    type: str = "text"
    content: object = None
    image_path: str | None = None
    bytes_base64: str | None = None
    media_type: str | None = None


class _Evidence(Record):
    modalities: tuple[_Modality, ...] = ()


class _Probe(Record, rename="camel"):
    url: str | None = None
    screenshot_path: str | None = None
    aria_tree: str | None = None


class _Output(Record):
    ok: bool = True
    error: str | None = None


class _Step(Record, rename="camel"):
    action_name: str
    action_args: dict[str, object] = field(default_factory=dict)
    reasoning: str | None = None
    agent_evidence: _Evidence = _Evidence()
    probe_evidence: _Probe = _Probe()
    tool_output: _Output = _Output()
    started_at: str | None = None


class _Run(Record, rename="camel"):
    task: _Task
    steps: tuple[_Step, ...]
    status: str = ""
    final_answer: str | None = None
    final_observation: _Probe | None = None
    termination_reason: str | None = None
    usage: TokenUsage | None = None


class _Score(Record, rename="camel"):
    outcome_success: bool
    process_score: float | None = None


def recognise(source: Source) -> bool:
    """Returns whether the keys are those of a trajectory.json."""
    return source.has(_matches_format, *_PATTERNS)


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the run of a folder or of its trajectory.json, or every run below a folder.

    Ids are the paths of the runs' folders.

    Positions are pixels of the last image.
    """
    return read_runs(read_documents(source, _matches_format, _PATTERNS, _runs), images)


def _runs(document: Document) -> Iterator[Run]:
    yield document.place, document.path.parent, partial(_trajectory, document)


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the verdicts in `scores/` next to each trajectory.

    Their note has the process score and the expected answer.
    """
    return read_documents(source, _matches_format, _PATTERNS, _labels)


def _labels(document: Document) -> Iterator[LabelRecord | BadLine]:
    for path in members(document.path.parent / "scores", "*.json"):
        yield read_record(str(path), partial(_label, document, path))


def load_rubrics(source: StrPath) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yields the rubric of each task that has one: its id, and its criteria with `text` and
    `weight`.

    The weight is the maximum of points. Criteria without points are skipped.
    """
    for run in read_documents(
        source,
        _matches_format,
        _PATTERNS,
        lambda document: [read_record(document.place, partial(_run, document))],
    ):
        if isinstance(run, BadLine) or run.task.precomputed_rubric is None:
            continue
        criteria: list[dict[str, object]] = []
        for item in run.task.precomputed_rubric.items:
            if item.max_points <= 0:
                continue
            text = f"{item.criterion}: {item.description}" if item.description else item.criterion
            criteria.append(
                {
                    "text": f"If {item.condition}: {text}" if item.condition else text,
                    "weight": item.max_points,
                }
            )
        if criteria:
            yield run.task.id, criteria


def _matches_format(file: Source) -> bool:
    value = file.value
    if not isinstance(value, dict) or not {"task", "steps", "status"} <= value.keys():
        return False
    task, steps = value["task"], value["steps"]
    return isinstance(task, dict) and "instruction" in task and isinstance(steps, list)


def _run(document: Document) -> _Run:
    return as_record(document.only, _Run)


def _id(document: Document) -> str:
    """Returns a run's folder; the file's path if it has another name or is the source itself."""
    folder, _, name = document.name.rpartition("/")
    return document.name if name != "trajectory" else folder or document.path.resolve().parent.name


def _label(document: Document, path: Path) -> LabelRecord:
    score, answer = decode_json(read_file(path), _Score), _run(document).task.expected_answer
    notes = (
        None if score.process_score is None else f"process score {score.process_score:g}",
        answer and f"expected answer: {answer}",
    )
    note = "; ".join(part for part in notes if part) or None
    return LabelRecord(
        id=_id(document),
        success=score.outcome_success,
        source="llm-judge",
        annotator=path.stem,
        note=note,
    )


def _trajectory(document: Document, images: RecordImages) -> Trajectory:
    run = _run(document)
    seen = Observation(url=run.task.init_url or None)
    size: tuple[float, float] | None = None
    steps: list[Step] = []
    for one in run.steps:
        steps.append(Step(seen, _action(one, size), one.reasoning or None))
        seen = _seen(one, seen.url, images)
        size = (image_size_or_none(seen.screenshot) if seen.screenshot else None) or size
    if (probe := run.final_observation) is not None:
        picture = images.file(probe.screenshot_path) if probe.screenshot_path else None
        seen = Observation(
            picture or seen.screenshot, text=probe.aria_tree or seen.text, url=probe.url or seen.url
        )
    metadata = {**({"status": run.status} if run.status else {}), **count_tokens([run.usage])}
    if run.steps and (date := date_in(run.steps[0].started_at or "")):
        metadata["date"] = date
    return Trajectory(
        id=_id(document),
        task=Task(
            id=run.task.id, goal=run.task.instruction, platform="web", start_url=run.task.init_url
        ),
        agent="stagehand",
        steps=end_once(steps),
        final=seen if run.steps and (seen.screenshot or seen.text) else None,
        answer=run.final_answer or None,
        metadata=metadata,
        error=(run.termination_reason or "error") if run.status == "error" else None,
    )


def _seen(step: _Step, before: str | None, images: RecordImages) -> Observation:
    """Returns the observation after a step.

    The probe's screenshot takes precedence over the agent's, the tree over the tool's output.
    """
    probe, pictures, texts = step.probe_evidence, list[str](), list[str]()
    for part in step.agent_evidence.modalities:
        if part.type == "image" and part.image_path:
            pictures += [path] if (path := images.file(part.image_path)) else []
        elif part.type == "image" and part.bytes_base64:
            path = images.file(f"data:{part.media_type or 'image/png'};base64,{part.bytes_base64}")
            pictures += [path] if path else []
        elif part.content is not None and part.content != "":
            texts.append(
                part.content
                if isinstance(part.content, str)
                else msgspec.json.encode(part.content).decode()
            )
    if step.tool_output.error:
        texts.append(step.tool_output.error)
    if probe.aria_tree:
        texts.append(probe.aria_tree)
    picture = images.file(probe.screenshot_path) if probe.screenshot_path else None
    return Observation(
        picture or (pictures[-1] if pictures else None),
        text="\n".join(dict.fromkeys(texts)) or None,
        url=probe.url or before,
    )


def _action(step: _Step, size: tuple[float, float] | None) -> Action:
    name, values = (
        step.action_name,
        {key: value for key, value in step.action_args.items() if key != _CLAIM},
    )
    action = tool_action(name, values, size)
    kind, value = _KINDS.get(name, action.kind), action.value
    if name == "act" and isinstance(
        instruction := values.get("action", values.get("instruction")), str
    ):
        kind = detect_kind(instruction.strip().split(" ", 1)[0])
        return Action(kind, action.text, value=None if kind == "other" else _quoted(instruction))
    if name == "keys":
        value = _text(values, "value", "keys", "text")
    elif name in _ENDS:
        value = _text(values, "output", "text", "answer", "reasoning")
    points = [_place(values.get(key), size) for key in ("startCoordinates", "endCoordinates")]
    target = values.get("describe")
    return replace(
        action,
        kind="drag" if name == "dragAndDrop" else kind,
        value=value,
        target=target if isinstance(target, str) else action.target,
        point=points[0] or action.point,
        end_point=points[1] or action.end_point,
    )


def _place(value: object, size: tuple[float, float] | None) -> tuple[float, float] | None:
    return (
        fraction(value[0], value[1], size) if isinstance(value, list) and len(value) == 2 else None
    )


def _text(values: Mapping[str, object], *keys: str) -> str | None:
    return next((text for key in keys if isinstance(text := values.get(key), str) and text), None)


def _quoted(instruction: str) -> str | None:
    """Returns the quoted text to type or choose: `type "green tea" into the search field`."""
    for mark in ('"', "'"):
        parts = instruction.split(mark)
        if len(parts) >= 3:
            return parts[1]
    return None
