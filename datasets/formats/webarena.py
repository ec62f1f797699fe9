"""Reads WebArena run folders (arXiv 2307.13854): one render_<task>.html per task, and logs with the
benchmark's own results.

The pages are parsed by the markers that WebArena writes between their parts, not as HTML, because
they contain page texts unescaped.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from prill.actions.elements import with_element
from prill.actions.webarena import join_sites, parse_action, split_answer
from prill.datasets.reading.configs import config_values, sites_in
from prill.datasets.reading.images import ImageFolder, image_store
from prill.datasets.reading.records import date_in, read_file, read_record
from prill.datasets.reading.sources import Source, members
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import LabelRecord, Observation, Step, StrPath, Task, Trajectory

_NAME = re.compile(r"render_(\d+)(?:_(\d+))?\.html")
_PAGE = re.compile(r"<h2>New Page</h2>\s*<h3 class='url'>")
_URL = re.compile(r"URL: (.*?)</a></h3>")
_TEXT = "<div class='state_obv'><pre>"
_AFTER_TEXT = re.compile(
    r"</pre><div>\s*(?:<img src='data:image/\w+;base64,([^']*)'[^>]*>\s*)?<div class='prev_action'"
)
_RAW = re.compile(
    r"<div class='raw_parsed_prediction'[^>]*><pre>(.*?)</pre></div><div class='action_object'",
    re.DOTALL,
)
_PARSED, _PLAIN = "<div class='parsed_action'", "<div class='predict_action'>"
_RESULT = re.compile(r"\[Result\] \((PASS|FAIL)\) .*?(?<!\d)(\d{1,9})\.json")
_BEGIN = re.compile(r"\[Config file\]: .*?(?<!\d)(\d{1,9})\.json")
_ERROR = re.compile(r"\[(?:Unhandled|OpenAI) Error\] (.*)")


@dataclass(slots=True)
class _Log:
    results: dict[int, bool] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    dates: dict[int, str] = field(default_factory=dict)


def recognise(source: Source) -> bool:
    """Returns whether pages are as WebArena's renderer writes them."""
    return source.has(
        lambda file: b"class='state_obv'" in file.head and b"<pre>" in file.head, "render_*.html"
    )


def load(folder: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields every rendered task, in the order of their numbers.

    The id is `webarena.<task>`, with `_<trial>` if there are trials.

    `error` is the log's error of a run that failed, `metadata["date"]` the log's start time of the
    task; an answer of the harness itself ("Early stop: …") is `metadata["ended_by"]`. Screenshots
    are written to the folder `images`; without one, to a temporary folder, where a trajectory's
    screenshots are removed when the next trajectory is requested.
    """
    root = Path(folder)
    matches = [(_NAME.fullmatch(path.name), path) for path in _pages(root)]
    pages = [(int(name[1]), int(name[2] or -1), path) for name, path in matches if name]
    if not pages:
        raise UsageError(f"{root}: expected a folder that contains render_<task>.html")
    log = _read_logs(root)
    with image_store(images) as store:
        for number, trial, path in sorted(pages):
            image_folder = store.new()
            # The log does not distinguish trials.
            error, date = (
                (log.errors.get(number), log.dates.get(number)) if trial < 0 else (None, None)
            )
            yield read_record(str(path), partial(_trajectory, path, image_folder, error, date))
            image_folder.close()


def load_labels(folder: StrPath) -> Iterator[LabelRecord]:
    """Yields the benchmark's results from the log lines `[Result] (PASS) …`, source `oracle`.

    The last line of a task counts.

    A run that failed has no line and so no label. Folders with trials have no labels either,
    because the log does not distinguish trials.
    """
    root = Path(folder)
    if any((name := _NAME.fullmatch(path.name)) and name[2] for path in _pages(root)):
        return
    for number, passed in sorted(_read_logs(root).results.items()):
        yield LabelRecord(id=f"webarena.{number}", success=passed, source="oracle")


def _pages(root: Path) -> list[Path]:
    return [root] if root.is_file() else members(root, "render_*.html", "renders/render_*.html")


def _read_logs(root: Path) -> _Log:
    """Reads merged_log.txt.

    Without it, every .txt and .log file with "log" in its name or folder is read.
    """
    folder = root.parent if root.is_file() else root
    paths = [folder / "merged_log.txt"]
    if not paths[0].is_file():
        paths = [
            path
            for path in members(folder, "*", "log*/*")
            if path.suffix in (".txt", ".log") and "log" in f"{path.parent.name}/{path.name}"
        ]
    log = _Log()
    for path in paths:
        current = None
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if begun := _BEGIN.search(line):
                    current = int(begun[1])
                    log.errors.pop(current, None)
                    log.dates.pop(current, None)
                    if date := date_in(line):
                        log.dates[current] = date
                elif result := _RESULT.search(line):
                    log.results[int(result[2])] = result[1] == "PASS"
                elif (broke := _ERROR.search(line)) and current is not None:
                    log.errors[current] = broke[1].strip()
                    log.results.pop(current, None)
    return log


def _trajectory(
    path: Path, image_folder: ImageFolder, error: str | None, date: str | None
) -> Trajectory:
    try:
        head, *pages = _PAGE.split(read_file(path).decode().replace("\r\n", "\n"))
    except UnicodeDecodeError as problem:
        raise InputError(f"cannot be read: {problem}") from None
    if not pages:
        raise InputError("no step was recorded: the run ended before its first action")
    steps = []
    for i, page in enumerate(pages):
        try:
            steps.append(_step(page, image_folder))
        except InputError as problem:
            raise InputError(f"step {i}: {problem}") from None
    name = _NAME.fullmatch(path.name)
    answer, ended_by = split_answer(steps[-1].action.value if steps[-1].action.is_final else None)
    trial, config = name[2] if name else None, _config(head)
    task, template = _task(config), config.get("intent_template_id", "")
    extra = {
        "ended_by": ended_by,
        "date": date,
        "intent_template_id": int(template) if template.isdecimal() else None,
    }
    return Trajectory(
        id=f"{task.id}_{trial}" if trial else task.id,
        task=task,
        steps=tuple(steps),
        answer=answer,
        metadata={key: value for key, value in extra.items() if value not in (None, "")},
        error=error,
    )


def _config(head: str) -> dict[str, str]:
    """Returns the raw values of the configuration before the pages."""
    _, _, config = head.partition("<pre>")
    return config_values(config.rpartition("</pre>")[0])


def _task(values: Mapping[str, str]) -> Task:
    """Returns the task of a configuration."""
    number = values.get("task_id", "")
    if not number.isdecimal() or not values.get("intent"):
        raise InputError("the configuration before the first page has no task_id or no intent")
    return Task(
        id=f"webarena.{number}",
        goal=values["intent"],
        platform="web",
        site=join_sites(sites_in(values)),
        start_url=values.get("start_url") or None,
    )


def _step(page: str, image_folder: ImageFolder) -> Step:
    head, _, rest = page.partition(_TEXT)
    url, end = _URL.search(head), _AFTER_TEXT.search(rest)
    if end is None:
        raise InputError(
            "the state is incomplete: the file was cut off, or is not in WebArena's format"
        )
    _, marker, prediction = rest[end.end() :].partition(_PLAIN)
    if not marker:
        raise InputError(
            "the state has no action: the file was cut off, or is not in WebArena's format"
        )
    raw = _RAW.search(prediction)
    observation = Observation(
        screenshot=image_folder.add(_decoded(end[1])) if end[1] else None,
        text=rest[: end.start()] or None,
        url=url[1] if url else None,
    )
    _, marker, parsed = prediction.rpartition(_PARSED)
    # Without the named parts (the action set `playwright`), the action is the program itself.
    text = (
        parsed.partition("<pre>")[2].partition("</pre></div>")[0]
        if marker
        else prediction.partition("</div>")[0]
    )
    return Step(
        observation,
        with_element(parse_action(text), observation.text),
        (raw[1].strip() or None) if raw else None,
    )


def _decoded(image: str) -> bytes:
    try:
        return base64.b64decode(image, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the screenshot is not base64") from None
