"""Reads Playwright traces, `trace.zip` (tried: format version 10 by Playwright 1.65, and 6 by
1.44).

Steps are the calls that act on a page; calls that wait, look or assert are not steps, and a script
(`evaluate`) is kind `other`. The screenshot before a step is the last screencast frame before it,
and the last frame is the final state; without `screenshots=True` there are none. A trace has
neither a goal nor thoughts, so its goal is empty. (microsoft/playwright,
packages/trace/src/trace.ts.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from prill.actions.tool_calls import fraction, scroll_direction, tool_action
from prill.datasets.reading.archives import Archive
from prill.datasets.reading.images import ImageFolder, image_store
from prill.datasets.reading.records import Record, decode_json, iso_date, read_record
from prill.datasets.reading.sources import Source, find_files
from prill.errors import InputError
from prill.io.store import BadLine
from prill.types import Action, Observation, Point, Step, StrPath, Task, Trajectory

_PATTERNS = ("*.zip",)
_SUFFIX, _RUNNERS = ".trace", "test.trace"  # the test runner's trace repeats the library's
# Methods that act on a page, and the parameter that has their value.
METHODS: dict[str, tuple[str, str | None]] = {
    "goto": ("goto", "url"),
    "goBack": ("back", None),
    "goForward": ("forward", None),
    "reload": ("goto", None),
    "newPage": ("new_tab", None),
    "close": ("close_tab", None),
    "bringToFront": ("focus_tab", None),
    "click": ("click", None),
    "tap": ("click", None),
    "dblclick": ("double_click", None),
    "hover": ("hover", None),
    "check": ("click", None),
    "uncheck": ("click", None),
    "fill": ("type", "value"),
    "type": ("type", "text"),
    "press": ("press", "key"),
    "selectOption": ("select", None),
    "setInputFiles": ("upload", "localPaths"),
    "dragAndDrop": ("drag", None),
    "keyboardType": ("type", "text"),
    "keyboardInsertText": ("type", "text"),
    "keyboardPress": ("press", "key"),
    "mouseClick": ("click", None),
    "mouseMove": ("hover", None),
    "mouseDown": ("mouse_down", None),
    "mouseUp": ("mouse_up", None),
    "mouseWheel": ("scroll", None),
    "touchscreenTap": ("click", None),
    "evaluateExpression": ("other", None),
}
_CLASSES = frozenset({"Page", "Frame", "BrowserContext", "ElementHandle"})
_NAMED = re.compile(r'internal:role=([\w-]+)(?:\[name="((?:[^"\\]|\\.)*)"[is]?\])?')
_LABELLED = re.compile(r'internal:(?:label|text|attr=\[[\w-]+)=?"((?:[^"\\]|\\.)*)"')
# Internal calls of the library, which are not actions.
_NOT_SHOWN = frozenset(
    {"strict", "timeout", "isFunction", "arg", "force", "noWaitAfter", "trial", "waitUntil"}
)


class Place(Record):
    """A point, or a box by its top left corner, in CSS pixels of the viewport."""

    x: float | None = None
    y: float | None = None
    width: float | None = None
    height: float | None = None


class _Error(Record):
    message: str | None = None
    error: _Error | None = None


class _Options(Record):
    viewport: Place | None = None


class _Snapshot(Record, rename="camel"):
    call_id: str | None = None
    frame_url: str | None = None
    is_main_frame: bool = False


class _Event(Record, rename="camel"):
    """A line of any type; other fields are skipped."""

    type: str
    call_id: str | None = None
    start_time: float | None = None
    time: float | None = None
    timestamp: float | None = None
    method: str | None = None
    params: dict[str, object] | None = None
    point: Place | None = None
    box: Place | None = None
    error: _Error | None = None
    sha1: str | None = None
    file: str | None = None
    width: float | None = None
    height: float | None = None
    wall_time: float | None = None
    title: str | None = None
    options: _Options | None = None
    snapshot: _Snapshot | None = None
    class_: object = None


@dataclass
class PageCall:
    """A call by Playwright's own names, and the position of its input."""

    start: float
    method: str
    params: Mapping[str, object]
    point: Place | None = None
    box: Place | None = None
    error: str | None = None
    url: str | None = None


@dataclass
class _Trace:
    calls: dict[str, PageCall] = field(default_factory=dict)
    frames: list[_Event] = field(default_factory=list)
    viewport: tuple[float, float] | None = None
    wall: float | None = None
    title: str | None = None


def recognise(source: Source) -> bool:
    """Returns whether the entries of an archive are those of a trace."""
    return source.has(_matches_format, *_PATTERNS)


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields the trace of an archive, or of every one below a folder; the id is its path without
    `.zip`.
    """
    with image_store(images) as store:
        for path, name in find_files(source, _matches_format, *_PATTERNS):
            folder = store.new()
            yield read_record(str(path), partial(_read, path, name, folder))
            folder.close()


def _matches_format(file: Source) -> bool:
    names = file.zip_names
    return any(name.endswith(_SUFFIX) for name in names) and any(
        name.endswith(".network") for name in names
    )


def _read(path: Path, name: str, images: ImageFolder) -> Trajectory:
    with Archive(path) as archive:
        files = sorted(
            one for one in archive.names if one.endswith(_SUFFIX) and not one.endswith(_RUNNERS)
        )
        if not files:
            raise InputError("this archive contains no .trace file")
        trace = _Trace()
        for file in files:
            _events(archive.read(file), file, trace)
        return _trajectory(name, trace, archive, images)


def _events(data: bytes, file: str, trace: _Trace) -> None:
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = decode_json(line, _Event)
        except InputError as error:
            if number == len(lines):  # truncated while it was written
                return
            raise InputError(f"{file}:{number}: {error}") from None
        _take(event, trace)


def _take(event: _Event, trace: _Trace) -> None:
    call = trace.calls.get(event.call_id or "")
    if event.type == "context-options":
        view = event.options.viewport if event.options else None
        if view and view.width and view.height:
            trace.viewport = view.width, view.height
        trace.wall, trace.title = trace.wall or event.wall_time, trace.title or event.title
    elif (
        event.type in ("before", "action")
        and event.call_id
        and event.method in METHODS
        and event.class_ in _CLASSES
    ):
        made = PageCall(
            event.start_time or 0.0, event.method, event.params or {}, event.point, event.box
        )
        made.error = _message(event.error)
        trace.calls[event.call_id] = made
    elif event.type == "input" and call is not None:
        call.point, call.box = event.point or call.point, event.box or call.box
    elif event.type == "after" and call is not None:
        call.error, call.point = _message(event.error), event.point or call.point
    elif event.type == "screencast-frame" and (event.file or event.sha1):
        trace.frames.append(event)
    elif event.type == "frame-snapshot" and event.snapshot and event.snapshot.is_main_frame:
        known = trace.calls.get(event.snapshot.call_id or "")
        if known is not None:
            known.url = known.url or event.snapshot.frame_url


def _trajectory(name: str, trace: _Trace, archive: Archive, images: ImageFolder) -> Trajectory:
    calls = sorted(trace.calls.values(), key=lambda call: call.start)
    if calls and calls[0].method == "newPage":
        del calls[0]  # the initial page of every trace
    frames = sorted(trace.frames, key=lambda frame: frame.timestamp or 0.0)
    copies: dict[str, str | None] = {}

    def picture(frame: _Event | None) -> str | None:
        """Returns a frame's file; None for a missing or broken one: traces are often truncated."""
        if frame is None:
            return None
        entry = frame.file or f"resources/{frame.sha1}"
        if entry not in copies:
            try:
                copies[entry] = images.add(archive.read(entry)) if entry in archive.names else None
            except InputError:
                copies[entry] = None
        return copies[entry]

    steps: list[Step] = []
    at, url, failed = 0, None, None
    for call in calls:
        while at < len(frames) and (frames[at].timestamp or 0.0) <= call.start:
            at += 1
        frame = frames[at - 1] if at else None
        url = call.url or url
        # Early frames have a viewport size that is not final yet.
        size = trace.viewport or (
            (frame.width, frame.height) if frame and frame.width and frame.height else None
        )
        steps.append(
            Step(Observation(picture(frame), text=failed, url=url), page_action(call, size))
        )
        failed = call.error
        address = call.params.get("url")
        url = address if call.method == "goto" and isinstance(address, str) and not failed else url
    last = picture(frames[-1] if frames else None)
    metadata: dict[str, object] = {"title": trace.title} if trace.title else {}
    if trace.wall and (date := iso_date(trace.wall / 1e3)):
        metadata["date"] = date
    start = next(
        (step.action.value for step in steps if step.action.kind == "goto" and step.action.value),
        None,
    )
    return Trajectory(
        id=name,
        task=Task(goal="", platform="web", start_url=start),
        steps=tuple(steps),
        final=Observation(last, text=failed, url=url) if last or failed else None,
        metadata=metadata,
        error=failed,
    )


def page_action(call: PageCall, size: tuple[float, float] | None) -> Action:
    """Returns the action of a call in METHODS; `size` is the viewport's, in CSS pixels."""
    kind, key = METHODS[call.method]
    shown = {name: value for name, value in call.params.items() if name not in _NOT_SHOWN}
    value = call.params.get(key) if key else None
    if kind == "scroll":
        value = scroll_direction(call.params.get("deltaX"), call.params.get("deltaY"))
    elif kind == "select":
        options = call.params.get("options")
        choices = (
            [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
        )
        named = (one.get("valueOrLabel", one.get("label", one.get("value"))) for one in choices)
        value = ", ".join(str(one) for one in named if one is not None) or None
    elif isinstance(value, list):
        value = ", ".join(map(str, value))
    if kind == "click" and call.params.get("button") == "right":
        kind = "right_click"
    action = tool_action(call.method, shown)
    return replace(
        action,
        kind=kind,
        value=value if isinstance(value, str) else None,
        target=_target(call.params.get("selector", call.params.get("source"))),
        point=_point(call, size),
        end_point=None,
    )


def _point(call: PageCall, size: tuple[float, float] | None) -> Point | None:
    """Returns the requested position, else that of the input, else the middle of the element.

    The order matters: for a mouse click, older traces record the position of the previous input.
    """
    if "x" in call.params:
        return fraction(call.params["x"], call.params.get("y"), size)
    if call.point is not None:
        return fraction(call.point.x, call.point.y, size)
    box = call.box
    if box is None or box.x is None or box.y is None or box.width is None or box.height is None:
        return None
    return fraction(box.x + box.width / 2, box.y + box.height / 2, size)


def _target(selector: object) -> str | None:
    """Returns the element of a selector by its role and name if it has them: `button 'Buy'`."""
    if not isinstance(selector, str) or not selector:
        return None
    if (match := _NAMED.fullmatch(selector)) is not None:
        return f"{match[1]} '{match[2]}'" if match[2] else match[1]
    match = _LABELLED.match(selector)
    return f"'{match[1]}'" if match is not None and ">>" not in selector else selector


def _message(error: _Error | None) -> str | None:
    if error is None:
        return None
    inner = error.error or error
    return inner.message or "failed"
