"""JSON Schemas of the file formats, and line-by-line validation against them."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec

from prill.actions.tool_calls import unknown_kind
from prill.errors import InputError, UsageError
from prill.io.faults import guess, line_fault, unknown_keys
from prill.io.images import open_checked, read_image
from prill.io.kinds import Kind, detect_file_kind, detect_kind
from prill.io.lines import UNREADABLE, Form, decode_as, read_lines
from prill.io.outputs import detect_line_content
from prill.io.store import BadLine, UniqueIds, list_screenshots, numbered_trajectories
from prill.types import LabelRecord, Trajectory, Verdict

_RECORDS: dict[Kind, type] = {
    "trajectories": Trajectory,
    "labels": LabelRecord,
    "verdicts": Verdict,
}
KINDS = tuple(_RECORDS)
_UNKNOWN = (
    "neither a trajectory (no key `task`) nor a verdict (`evaluator`) nor a label (`success`)"
)
_FORMS: dict[Form, str] = {
    "mark": "begins with a byte order mark; it is read, but other tools want UTF-8 without one",
    "crlf": (
        "lines end as on Windows (CRLF); they are read, but other tools want plain ends: "
        "dos2unix FILE"
    ),
    "array": (
        "a JSON array; it is read as a whole, so write a large one as one object a line: jq "
        "-c '.[]' FILE"
    ),
    "pretty": (
        "objects over several lines; they are read, but other tools want one a line: jq -c . FILE"
    ),
}


def schema(kind: Kind) -> str:
    """Returns the JSON Schema (2020-12) of one line of a file, as JSON text.

    Keys that the schema does not name are allowed.
    """
    made = msgspec.json.schema(_RECORDS[kind])
    for definition in made["$defs"].values():
        docstring = cleandoc(definition["description"])
        # the other lines are about Python or single keys
        definition["description"] = docstring.partition("\n")[0]
        described = _arguments(docstring)
        for name, part in definition["properties"].items():
            if name in described:
                part["description"] = described[name]
            if name in ("point", "end_point"):
                part["anyOf"][0]["prefixItems"] = [
                    {"type": "number", "minimum": 0, "maximum": 1}
                ] * 2
            elif name == "score":
                part["anyOf"][0] |= {"minimum": 0, "maximum": 1}
    if kind == "trajectories":
        made["$defs"]["Trajectory"]["properties"]["id"]["minLength"] = 1
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of {kind}.jsonl",
    }
    return json.dumps({**head, **made}, indent=1) + "\n"


def _arguments(docstring: str) -> dict[str, str]:
    """Returns a docstring's description of each argument, each on one line."""
    section = docstring.partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


@dataclass(slots=True)
class FileReport:
    """The result of checking a file.

    `kind` is None if no line shows it. A problem contains file, line and, if it has one, the
    field's path. `notes` report deviations that are accepted: other forms of JSON, unknown keys,
    repeated records.
    """

    path: str
    kind: Kind | None = None
    good: int = 0
    broken: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_file(
    path: str | os.PathLike[str],
    *,
    decode_images: bool = False,
    ids: UniqueIds | None = None,
    progress: Callable[[], object] = lambda: None,
) -> FileReport:
    """Reads every line as prill would, and checks that the images of trajectories exist.

    With `decode_images`, the images are decoded too. `ids` are the ids of files that are read
    together with this one: a repeated id is a problem, as it is for `score`. `progress` is called
    after every line. A file that cannot be read is reported as a problem.
    """
    report = FileReport(os.fspath(path))
    unknown = _Unknown()
    try:
        report.kind = detect_file_kind(path)
        if report.kind == "trajectories":
            lines = _trajectory_lines(path, decode_images, unknown, ids or UniqueIds())
        else:
            lines = _lines(path, report.kind, unknown, report.notes)
        for problems in lines:
            report.problems += problems
            report.broken += bool(problems)
            report.good += not problems
            progress()
        if not report.good + report.broken:
            report.problems.append(f"{path}: the file is empty")
        report.notes[:0] = _forms(path)
    except (UsageError, InputError) as error:
        report.problems.append(str(error))
    report.notes += unknown.notes(
        "judges do not see it" if report.kind == "trajectories" else "nothing reads it"
    )
    return report


class _Unknown:
    """Unknown keys and action kinds: where each one occurs first, under which path, and how
    often.
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, str]] = {}
        self._count: Counter[str] = Counter()

    def note(self, place: str, paths: Iterable[str]) -> None:
        for path in paths:
            key = path.rpartition(".")[2]
            self._add(key, f"{place}: unknown key `{path}`{guess(key)}")

    def note_kinds(self, place: str, trajectory: Trajectory) -> None:
        for index, step in enumerate(trajectory.steps):
            if (problem := unknown_kind(step.action.kind)) is not None:
                at = f"{place}: {problem} at `steps[{index}].action.kind`"
                self._add(problem, at, "judges see it as it is")

    def _add(self, what: str, first: str, effect: str = "") -> None:
        self._first.setdefault(what, (first, effect))
        self._count[what] += 1

    def notes(self, effect: str) -> list[str]:
        times = {
            what: f", {count} times in total" if count > 1 else ""
            for what, count in self._count.items()
        }
        return [
            f"{first}{times[what]}; {own or effect}" for what, (first, own) in self._first.items()
        ]


def _forms(path: str | os.PathLike[str]) -> list[str]:
    """Returns notes about lines that are not one plain JSON object each, with their first
    position.
    """
    first: dict[Form, int] = {}
    for line in read_lines(path):
        first.setdefault(line.form, line.number)
    return [
        f"{os.fspath(path)}:{number}: {_FORMS[form]}"
        for form, number in first.items()
        if form in _FORMS
    ]


def _lines(
    path: str | os.PathLike[str], kind: Kind | None, unknown: _Unknown, notes: list[str]
) -> Iterator[list[str]]:
    """Yields the problems of each line of a file that does not contain trajectories."""
    type_ = _RECORDS[kind] if kind else dict
    places: dict[Hashable, str] = {}
    for line in read_lines(path):
        position = f"{os.fspath(path)}:{line.number}"
        try:
            record: Any = decode_as(line.data, type_)
        except UNREADABLE as error:
            yield [
                f"{position}: {line_fault(line.data, error, type_) if line.complete else f'incomplete last line: {error}'}"  # noqa: E501
            ]
            continue
        other = detect_kind(line.data)
        if kind is None:
            content = detect_line_content(line.data)
            unsupported = f"this is {content}, which prill check does not support"
            yield [f"{position}: {unsupported if content else _UNKNOWN}"]
        elif other != kind:
            yield [_misplaced(position, other, kind)]
        else:
            unknown.note(position, unknown_keys(msgspec.json.decode(line.data), type_))
            if (first := places.setdefault(_identity(record), position)) != position:
                notes.append(
                    f"{position}: duplicate {record.id!r} by the same judge or annotator, first at "
                    f"{first}; keep one of them"
                )
            yield []


def _identity(record: LabelRecord | Verdict) -> Hashable:
    """Returns what must be unique in a file: the trajectory, and who judged or labelled it."""
    if isinstance(record, LabelRecord):
        return record.id, record.source, record.annotator
    return record.id, msgspec.json.encode(record.evaluator)


def _misplaced(place: str, other: Kind | None, kind: Kind) -> str:
    return f"{place}: a {other} line in a file of {kind}; move it to a file of its own"


def _trajectory_lines(
    path: str | os.PathLike[str], decode_images: bool, unknown: _Unknown, ids: UniqueIds
) -> Iterator[list[str]]:

    @cache
    def fault(path: str) -> str | None:
        if not decode_images and os.path.isfile(path) and os.access(path, os.R_OK):
            return None
        try:
            (open_checked if decode_images else read_image)(path)
        except InputError as error:
            return str(error)
        return None

    for place, item in numbered_trajectories(path, unknown.note):
        checked = ids.checked(place, item)
        if isinstance(item, BadLine):
            other = detect_kind(item.raw)
            yield [
                item.message
                if other in (None, "trajectories")
                else _misplaced(place, other, "trajectories")
            ]
            continue
        unknown.note_kinds(place, item)
        problems = [checked.message] if isinstance(checked, BadLine) else []
        for screenshot, at in list_screenshots(item):
            if (problem := fault(screenshot)) is not None:
                problems.append(f"{place}: {problem} - at `{at}`")
        yield problems
