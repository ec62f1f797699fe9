"""The three file formats as JSON Schemas, and files report against them line by line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from prill.errors import InputError, UsageError
from prill.files.kinds import Kind, kind_of
from prill.files.lines import read_lines
from prill.models.images import open_checked, read_image
from prill.store import BadLine, numbered_trajectories, screenshots_of
from prill.types import LabelRecord, Trajectory, Verdict

_RECORDS: dict[Kind, type] = {"trajectories": Trajectory, "labels": LabelRecord, "verdicts": Verdict}
KINDS = tuple(_RECORDS)


def schema(kind: Kind) -> str:
    """The JSON Schema (2020-12) of one line of such a file, as JSON text. Keys that it does not name are allowed."""
    made = msgspec.json.schema(_RECORDS[kind])
    for definition in made["$defs"].values():
        # The rest is about Python.
        definition["description"] = definition["description"].partition("\n")[0]
        for name, part in definition["properties"].items():
            if name in ("point", "end_point"):
                part["anyOf"][0]["prefixItems"] = [{"type": "number", "minimum": 0, "maximum": 1}] * 2
            elif name == "score":
                part["anyOf"][0] |= {"minimum": 0, "maximum": 1}
    if kind == "trajectories":
        made["$defs"]["Trajectory"]["properties"]["id"]["minLength"] = 1
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"One line of {kind}.jsonl"}
    return json.dumps({**head, **made}, indent=1) + "\n"


@dataclass(slots=True)
class FileReport:
    """What a file holds. `kind` is None when no line tells; a problem says file, line, and the field's path if it has one."""

    path: str
    kind: Kind | None = None
    good: int = 0
    broken: int = 0
    problems: list[str] = field(default_factory=list)


def check_file(
    path: str | os.PathLike[str], *, decode_images: bool = False, progress: Callable[[], object] = lambda: None
) -> FileReport:
    """Reads every line as prill would, and looks for the images that trajectories name, inside them if `decode_images`.

    `progress` is called after every line. A file that cannot be read is a problem, too.
    """
    report = FileReport(os.fspath(path))
    try:
        report.kind = next((kind for line in read_lines(path) if (kind := kind_of(line.data))), None)
        lines = _trajectory_lines(path, decode_images) if report.kind == "trajectories" else _lines(path, report.kind)
        for problems in lines:
            report.problems += problems
            report.broken += bool(problems)
            report.good += not problems
            progress()
        if not report.good + report.broken:
            report.problems.append(f"{path}: the file is empty")
    except (UsageError, InputError) as error:
        report.problems.append(str(error))
    return report


def _lines(path: str | os.PathLike[str], kind: Kind | None) -> Iterator[list[str]]:
    """The problems of each line of labels or verdicts, or of something else."""
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_RECORDS[kind] if kind else dict)
    for line in read_lines(path):
        place = f"{os.fspath(path)}:{line.number}"
        try:
            decoder.decode(line.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            torn = "" if line.complete else "incomplete last line: "
            yield [f"{place}: {torn}{str(error).replace('Object missing required', 'missing')}"]
            continue
        other = kind_of(line.data)
        if kind is None:
            yield [f"{place}: neither a trajectory (no key `task`) nor a verdict (`evaluator`) nor a label (`success`)"]
        else:
            yield [] if other == kind else [f"{place}: belongs to {other}, among {kind}"]


def _trajectory_lines(path: str | os.PathLike[str], decode_images: bool) -> Iterator[list[str]]:
    places: dict[str, str] = {}
    fault = cache(_decoding_fault if decode_images else _reading_fault)
    for place, item in numbered_trajectories(path):
        if isinstance(item, BadLine):
            other = kind_of(item.raw)
            yield [item.message if other in (None, "trajectories") else f"{place}: belongs to {other}, among trajectories"]
            continue
        first = places.setdefault(item.id, place)
        problems = [] if first == place else [f"{place}: duplicate id {item.id!r}, first used at {first}"]
        for screenshot, at in screenshots_of(item):
            if (problem := fault(screenshot)) is not None:
                problems.append(f"{place}: {problem} - at `{at}`")
        yield problems


def _reading_fault(path: str) -> str | None:
    if os.path.isfile(path) and os.access(path, os.R_OK):
        return None
    return _fault(lambda: read_image(path))


def _decoding_fault(path: str) -> str | None:
    return _fault(lambda: open_checked(path))


def _fault(look: Callable[[], object]) -> str | None:
    try:
        look()
    except InputError as error:
        return str(error)
    return None
