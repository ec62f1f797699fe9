"""Tables of annotations that came with published runs, as labels: AgentRewardBench's, and those of
AgentOccam's 812 WebArena runs (arXiv 2410.13825), 1, 0.5 or 0 by three people.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import LabelRecord

_GRADES = (0.0, 0.5, 1.0)
# The required columns of AgentRewardBench's annotations.csv, and the answers that are decided.
_COLUMNS = ("annotator_name", "benchmark", "task_id", "model_name", "trajectory_success")
_SUCCESS = {"Successful": True, "Unsuccessful": False}


def load_labels(path: str | PathLike[str]) -> Iterator[LabelRecord | BadLine]:
    """Yields one label of source `human` for each person and task.

    Only grade 1 is success, and a note keeps a grade of 0.5.

    A missing grade gives no label. Raises UsageError if the file is not such a table.
    """
    for place, task, people in _rows(path):
        try:
            for annotator, grade, note in people:
                if grade.strip():
                    value = _grade(grade)
                    notes = [
                        *(["partially correct"] if value == 0.5 else []),
                        *([note.strip()] if note.strip() else []),
                    ]
                    note_text = "; ".join(notes) or None
                    yield LabelRecord(
                        id=task, success=value == 1.0, annotator=annotator, note=note_text
                    )
        except InputError as error:
            yield BadLine(task, place, str(error), task.encode())


def load_grades(path: str | PathLike[str]) -> dict[str, dict[str, float]]:
    """Returns the grade of each person for each task.

    Raises InputError, with the line, for an invalid grade.
    """
    grades: dict[str, dict[str, float]] = {}
    for place, task, people in _rows(path):
        try:
            grades[task] = {
                annotator: _grade(grade) for annotator, grade, _ in people if grade.strip()
            }
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
    return grades


def _rows(path: str | PathLike[str]) -> Iterator[tuple[str, str, list[tuple[str, str, str]]]]:
    """Yields the position, the task, and (annotator, grade, note) for each person."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if header[:1] != ["Task ID"] or len(header) < 4:
                raise UsageError(
                    f"{path}: expected a table with Task ID, then a grade and a note by "
                    "each annotator"
                )
            # "Alice (Correct: 1; …)", "Alice's Note", "Bob", "Bob's Note", …, "Average"
            people = [(i, header[i].split(" (")[0].strip()) for i in range(1, len(header) - 1, 2)]
            for row in reader:
                if row and row[0].strip().isdigit():
                    cells = row + [""] * (len(header) - len(row))
                    yield (
                        f"{path}:{reader.line_num}",
                        row[0].strip(),
                        [(name, cells[i], cells[i + 1]) for i, name in people],
                    )
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not CSV in UTF-8: {error}") from None


def _grade(text: str) -> float:
    try:
        grade = float(text)
    except ValueError:
        grade = -1.0
    if grade not in _GRADES:
        raise InputError(f"grade {text!r} is not one of 0, 0.5 and 1")
    return grade


def load_annotations(path: str | PathLike[str]) -> Iterator[LabelRecord | BadLine]:
    """Yields one label of source `human` per line of annotations.csv; the note keeps the other
    answers.

    Ids are `<benchmark>/<model>/<task>`, as `load_labels` has them. An unknown answer is undecided.
    Raises UsageError if the file is not such a table.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if missing := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
                raise UsageError(f"{path}: the table has no column {', '.join(missing)}")
            for row in reader:
                cells = {
                    name: (value or "").strip()
                    for name, value in row.items()
                    if isinstance(value, str) or value is None
                }
                place = f"{path}:{reader.line_num}"
                if not all(cells[name] for name in ("benchmark", "task_id", "model_name")):
                    yield BadLine(place, place, "benchmark, task_id or model_name is empty", b"")
                    continue
                extra = [
                    name.removeprefix("trajectory_")
                    for name in cells
                    if name.startswith("trajectory_")
                ]
                extra = [
                    f"{name}: {cells[f'trajectory_{name}']}" for name in extra if name != "success"
                ]
                yield LabelRecord(
                    id=f"{cells['benchmark']}/{cells['model_name'].removeprefix('GenericAgent-')}/{cells['task_id']}",
                    success=_SUCCESS.get(cells["trajectory_success"]),
                    annotator=cells["annotator_name"] or None,
                    note="; ".join(extra) or None,
                )
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not CSV in UTF-8: {error}") from None
