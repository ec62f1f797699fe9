"""Reads browser-use histories, `AgentHistoryList` as `agent.save_history(path)` writes it (tried:
0.1.48, 0.13.14).

A step of the file is one model reply: several actions with one result and one element each, and one
screenshot taken before the first. Each action becomes a step; only the first has the screenshot,
and actions that were not executed (there are fewer results than actions) are left out. The goal is
in `state_message` between `<user_request>` tags, along with the page state that the agent saw;
older files have neither, and their goal is empty.

Verdicts are labels and not part of the trajectory: `success`, the agent's own claim (source
`self-report`), and `judgement`, of browser-use's own judge (source `llm-judge`).
(browser-use/browser-use, browser_use/agent/views.py.)
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from prill.actions.tool_calls import fraction, tool_action
from prill.datasets.reading.chat import end_once
from prill.datasets.reading.images import RecordImages, Run, image_size_or_none, read_runs
from prill.datasets.reading.records import Record, as_record, iso_date, read_record
from prill.datasets.reading.sources import Document, Source, read_documents
from prill.io.store import BadLine
from prill.types import Action, LabelRecord, Observation, Point, Step, StrPath, Task, Trajectory

_log = logging.getLogger(__name__)
_PATTERNS = ("*.json", "*.json.gz")
_BEGIN = re.compile(
    rb'\s*\{\s*"history"\s*:\s*\[\s*\{\s*"(?:model_output|result|state|metadata|state_message)"\s*:'
)
# Action names that mean something else, or nothing, elsewhere.
_KINDS = {
    "switch": "focus_tab", "close": "close_tab", "input": "type", "select_dropdown": "select",
    "scroll_up": "scroll", "scroll_down": "scroll", "find_text": "scroll",
    "scroll_to_text": "scroll", "drag_drop": "drag",
}  # fmt: skip
_REQUEST = re.compile(r"<user_request>\s*(.*?)\s*</user_request>", re.DOTALL)
_PAGE = re.compile(r"<browser_state>\s*(.*?)\s*</browser_state>", re.DOTALL)
_PAGES_ABOVE = re.compile(r"<page_info>\s*([\d.]+) pages above")
# The agent's names for its screenshots, below its own folder in the temporary folder.
_PICTURE = re.compile(r"step_\d{1,9}\.png")
_FOLDER = "browser_use_agent_"


class _Place(Record):
    x: float | None = None
    y: float | None = None
    width: float | None = None
    height: float | None = None


class _Coordinates(Record):
    center: _Place | None = None


class _Element(Record):
    """An element; newer files have `node_name`, `bounds`, `ax_name`, older ones the others."""

    node_name: str | None = None
    tag_name: str | None = None
    attributes: dict[str, object] | None = None
    bounds: _Place | None = None
    ax_name: str | None = None
    viewport_coordinates: _Coordinates | None = None
    viewport_info: _Place | None = None


class _HistoryState(Record):
    """The state before the actions of a reply."""

    url: str | None = None
    screenshot_path: str | None = None
    screenshot: str | None = None
    interacted_element: tuple[_Element | None, ...] | None = None


class _Thoughts(Record):
    thinking: str | None = None
    evaluation_previous_goal: str | None = None
    memory: str | None = None
    next_goal: str | None = None


class _Output(_Thoughts):
    action: tuple[dict[str, dict[str, object] | None], ...] = ()
    current_state: _Thoughts | None = None


class _Judgement(Record):
    verdict: bool | None = None
    reasoning: str | None = None
    failure_reason: str | None = None


class _Result(Record):
    is_done: bool | None = None
    success: bool | None = None
    error: str | None = None
    extracted_content: str | None = None
    judgement: _Judgement | None = None
    metadata: dict[str, object] | None = None


class _Times(Record):
    step_start_time: float | None = None


class _HistoryItem(Record):
    """One model reply: the state before it, and a result for each of its actions."""

    state: _HistoryState
    result: tuple[_Result, ...]
    model_output: _Output | None = None
    metadata: _Times | None = None
    state_message: str | None = None


class _History(Record):
    """A history as browser-use writes it, limited to the fields that are read."""

    history: tuple[_HistoryItem, ...]


def recognise(source: Source) -> bool:
    """Returns whether the first keys of a file are those of a history."""
    return source.has(_matches_format, *_PATTERNS)


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the run of a file, or of every history below a folder.

    The id is the file's path without suffix.

    The goal of files that have none is empty. A screenshot is searched at its recorded path, if
    that is in browser-use's temporary folder, then under its name in `screenshots/` next to the
    file. Missing ones are left out, with one warning.
    """
    warned = False

    def read(document: Document, unpacked: RecordImages) -> Trajectory:
        nonlocal warned
        reader = _HistoryReader(document.path.parent, unpacked)
        trajectory = reader.trajectory(document.name, _history(document))
        if reader.missing and not warned:
            _log.warning(
                "%s: pictures are missing, the first is %s", document.place, reader.missing[0]
            )
            warned = True
        return trajectory

    def runs(document: Document) -> Iterator[Run]:
        yield document.place, document.path.parent, partial(read, document)

    return read_runs(read_documents(source, _matches_format, _PATTERNS, runs), images)


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the agent's claim of success (source `self-report`), and the verdict of browser-use's
    judge (source `llm-judge`).
    """
    return read_documents(source, _matches_format, _PATTERNS, _labels)


def _matches_format(source: Source) -> bool:
    return _BEGIN.match(source.head) is not None


def _history(document: Document) -> _History:
    return as_record(document.only, _History)


def _labels(document: Document) -> Iterator[LabelRecord | BadLine]:
    id, history = document.name, read_record(document.place, partial(_history, document))
    if isinstance(history, BadLine):
        yield history
        return
    results = [result for item in history.history for result in item.result]
    done = next((result for result in reversed(results) if result.is_done), None)
    if done is not None and done.success is not None:
        yield LabelRecord(id=id, success=done.success, source="self-report")
    judgement = next((result.judgement for result in reversed(results) if result.judgement), None)
    if judgement is not None and judgement.verdict is not None:
        yield LabelRecord(
            id=id,
            success=judgement.verdict,
            source="llm-judge",
            note=judgement.failure_reason or judgement.reasoning,
        )


class _HistoryReader:
    """Reads one history; `missing` lists the screenshots that were not found."""

    def __init__(self, folder: Path, images: RecordImages) -> None:
        self._folder, self._images = folder, images
        self.missing: list[str] = []

    def trajectory(self, id: str, history: _History) -> Trajectory:
        """Returns the run of a history."""
        items = history.history
        # Later messages contain page text before the request; the first does not.
        goal = next(
            (request for item in items if (request := _first(_REQUEST, item.state_message))), ""
        )
        steps: list[Step] = []
        extracted: str | None = None  # extracted by the previous action
        for item in items:
            for step, result in self._steps(item, extracted):
                steps.append(step)
                extracted = (
                    None
                    if result is None or result.is_done
                    else result.error or result.extracted_content
                )
        last = items[-1] if items else None
        final = self._observation(last, extracted) if last and last.model_output is None else None
        times = [item.metadata.step_start_time for item in items if item.metadata]
        return Trajectory(
            id=id,
            task=Task(goal=goal, platform="web"),
            agent="browser-use",
            steps=end_once(steps),
            final=final,
            answer=steps[-1].action.value if steps and steps[-1].action.is_final else None,
            metadata={"date": date} if times and (date := iso_date(times[0])) else {},
            error=next((r.error for r in last.result if r.error), None)
            if last and last.model_output is None
            else None,
        )

    def _steps(
        self, item: _HistoryItem, extracted: str | None
    ) -> Iterator[tuple[Step, _Result | None]]:
        if item.model_output is None:
            return
        before = self._observation(item, extracted)
        elements = item.state.interacted_element or ()
        for i, call in enumerate(item.model_output.action[: max(1, len(item.result))]):
            name, values = next(iter(call.items()), ("(no action)", None))
            result = item.result[i] if i < len(item.result) else None
            element = elements[i] if i < len(elements) else None
            observation = (
                before if i == 0 else Observation(url=before.url, text=_seen(item.result[i - 1]))
            )
            point = _point(values or {}, element, result, before, item.state_message)
            action = _action(name, values or {}, element, point if i == 0 else None)
            yield Step(observation, action, _thought(item.model_output) if i == 0 else None), result

    def _observation(self, item: _HistoryItem, extracted: str | None) -> Observation:
        texts = [text for text in (extracted, _first(_PAGE, item.state_message)) if text]
        return Observation(
            self.picture(item.state), text="\n\n".join(texts) or None, url=item.state.url or None
        )

    def picture(self, state: _HistoryState) -> str | None:
        """Returns the file of a state's screenshot; None if there is none."""
        if state.screenshot:
            return self._images.file(f"data:image/png;base64,{state.screenshot}")
        if not state.screenshot_path:
            return None
        path = Path(state.screenshot_path)
        is_own = path.parent.name == "screenshots" and path.parent.parent.name.startswith(_FOLDER)
        if _PICTURE.fullmatch(path.name):
            for candidate in (path if is_own else None, self._folder / "screenshots" / path.name):
                if candidate is not None and candidate.is_file():
                    return str(candidate.resolve())
        self.missing.append(state.screenshot_path)
        return None


def _action(
    name: str, values: Mapping[str, object], element: _Element | None, point: Point | None
) -> Action:
    action = tool_action(
        name, {key: value for key, value in values.items() if key != "success" or name != "done"}
    )
    kind = _KINDS.get(name, action.kind)
    value = action.value
    if kind == "scroll":
        up = name == "scroll_up" or values.get("down") is False
        value = "up" if up else "down"
    elif name in ("switch", "close", "switch_tab", "close_tab"):
        tab = values.get("tab_id", values.get("page_id"))
        value = None if tab is None else str(tab)
    elif name == "done" and "data" in values:  # a structured answer
        value = json.dumps(values["data"], ensure_ascii=False)
    elif kind in ("type", "select") and isinstance(text := values.get("text"), str):
        value = text
    return replace(
        action,
        kind=kind,
        value=value,
        target=_target(values, element) or action.target,
        point=point,
    )


def _target(values: Mapping[str, object], element: _Element | None) -> str | None:
    """Returns the element in the form of page texts: `[4] button 'Buy'`."""
    if element is None:
        return None
    attributes = element.attributes or {}
    names = (
        element.ax_name,
        *(
            attributes.get(key)
            for key in ("aria-label", "placeholder", "title", "alt", "name", "id")
        ),
    )
    name = next((text for text in names if isinstance(text, str) and text.strip()), "")
    role = attributes.get("role") or element.node_name or element.tag_name or "element"
    index = values.get("index")
    number = f"[{index}] " if isinstance(index, int) else ""
    quote = '"' if "'" in name else "'"
    return (
        f"{number}{str(role).lower()} {quote}{name}{quote}"
        if name
        else f"{number}{str(role).lower()}"
    )


def _point(
    values: Mapping[str, object],
    element: _Element | None,
    result: _Result | None,
    before: Observation,
    message: str | None,
) -> Point | None:
    """Returns the position of an action: the clicked one, else the requested one, else the
    element's middle.

    Positions are CSS pixels of the viewport; screenshots are assumed to have one pixel for each.
    The element's middle is in page coordinates, so it is valid only if the page is not scrolled.
    """
    old = element.viewport_info if element else None
    if (
        element
        and element.viewport_coordinates
        and (center := element.viewport_coordinates.center)
        and old
    ):
        return fraction(
            center.x, center.y, (old.width, old.height) if old.width and old.height else None
        )
    size = image_size_or_none(before.screenshot) if before.screenshot else None
    done = (result.metadata if result else None) or {}
    for known, x, y in (
        (done, "click_x", "click_y"),
        (done, "input_x", "input_y"),
        (values, "coordinate_x", "coordinate_y"),
    ):
        if x in known:
            return fraction(known[x], known.get(y), size)
    above = _first(_PAGES_ABOVE, message)
    if element is None or (box := element.bounds) is None or (above and above.strip("0.")):
        return None
    if box.x is None or box.y is None or box.width is None or box.height is None:
        return None
    return fraction(box.x + box.width / 2, box.y + box.height / 2, size)


def _thought(output: _Output) -> str | None:
    state = output.current_state or output
    parts = (
        output.thinking or state.thinking,
        state.evaluation_previous_goal,
        state.memory,
        state.next_goal,
    )
    return "\n\n".join(part for part in parts if part) or None


def _seen(result: _Result) -> str | None:
    return None if result.is_done else result.error or result.extracted_content or None


def _first(pattern: re.Pattern[str], text: str | None) -> str | None:
    match = pattern.search(text) if text else None
    return match[1] if match else None
