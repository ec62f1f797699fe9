"""What a goal asks for, as weighted criteria: the records, and files of criteria that people wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import msgspec

from prill.errors import InputError, UsageError
from prill.parse import RecordFormat
from prill.prompts import content_hash
from prill.store import read_lines
from prill.types import Task

_MOST = 20  # more do not fit one reply, and then they overlap


@dataclass(frozen=True, slots=True)
class Wanted:
    """One thing that a goal asks for. Weights are relative to one another."""

    text: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a criterion needs a text")
        if not (isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"weight {self.weight:g} is no positive number")


@dataclass(frozen=True, slots=True)
class Rubric:
    """The criteria of one goal."""

    criteria: tuple[Wanted, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.criteria) <= _MOST:
            raise ValueError(f"{len(self.criteria)} criteria: give 1 to {_MOST}")
        texts = [" ".join(wanted.text.casefold().split()) for wanted in self.criteria]
        if double := next((w.text for i, w in enumerate(self.criteria) if texts[i] in texts[:i]), None):
            raise ValueError(f"{double!r} occurs twice")


RUBRIC = RecordFormat(Rubric, '{"criteria": [{"text": "<what must hold>", "weight": <a number above 0>}, …]}')


def rubric_for(task: Task, rubrics: Mapping[str, Rubric]) -> Rubric | None:
    """The rubric under the task's id, else under its goal."""
    return rubrics.get(task.id) or rubrics.get(task.goal.strip())


def hash_of(rubrics: Mapping[str, Rubric]) -> str:
    """The content hash of a set of rubrics."""
    return content_hash(*(part for name, made in sorted(rubrics.items()) for part in (name, str(msgspec.json.encode(made)))))


def read_rubrics(path: str | os.PathLike[str]) -> dict[str, Rubric]:
    """Rubrics by task id or by goal, from a file of JSON lines (.gz too) or, when its name ends in .toml, `[[rubric]]` tables.

    Each has a `task_id` or a `goal`, and `criteria` with a `text` and, where it is not 1, a `weight`. Raises UsageError with
    the place for anything else.
    """
    rubrics: dict[str, Rubric] = {}
    for place, row in _rows(Path(path)):
        try:
            name, rubric = _read(row)
            if name in rubrics:
                raise ValueError(f"{name!r} has a rubric already")
        except (msgspec.ValidationError, ValueError) as error:
            raise UsageError(f"{place}: {error}") from None
        rubrics[name] = rubric
    if not rubrics:
        raise UsageError(f"{path}: holds no rubric")
    return rubrics


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    if path.suffix == ".toml":
        yield from _tables(path)
        return
    try:
        for line in read_lines(path):
            try:
                yield f"{path}:{line.number}", msgspec.json.decode(line.data)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UsageError(f"{path}:{line.number}: not JSON ({error})") from None
    except InputError as error:
        raise UsageError(str(error)) from None


def _tables(path: Path) -> Iterator[tuple[str, object]]:
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not TOML ({error})") from None
    tables = content.get("rubric")
    if set(content) != {"rubric"} or not isinstance(tables, list):
        raise UsageError(f"{path}: give [[rubric]] tables, and nothing else")
    yield from ((f"{path}: rubric {i}", table) for i, table in enumerate(tables, 1))


def _read(row: object) -> tuple[str, Rubric]:
    if not isinstance(row, dict):
        raise ValueError("not an object")
    _only(row, ("task_id", "goal", "criteria"))
    name = row.get("task_id", row.get("goal"))
    if ("task_id" in row) == ("goal" in row) or not isinstance(name, str) or not name.strip():
        raise ValueError('give a "task_id" or a "goal" (one of them, a text), and "criteria"')
    for wanted in _listed(row.get("criteria")):
        _only(wanted, ("text", "weight"))
    return name.strip(), msgspec.convert({"criteria": row.get("criteria")}, Rubric)


def _listed(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _only(row: Mapping[str, object], names: Sequence[str]) -> None:
    if unknown := sorted(set(row) - set(names)):
        raise ValueError(f"unknown field {unknown[0]!r}; there are: {', '.join(names)}")
