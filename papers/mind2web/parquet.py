"""Multimodal-Mind2Web (SeeAct, arXiv 2401.01614; osunlp/Multimodal-Mind2Web on the Hugging Face
hub): Parquet with a row for each action.

The columns are those of Mind2Web's tasks and actions, and `target_action_index`, the index of the
action in `action_reprs`. `operation` and each candidate are JSON strings. The rows of a task are
joined even if they are not adjacent. `raw_html` and `screenshot` are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from prill.datasets.reading.records import UNREADABLE
from prill.errors import MissingExtraError
from prill.io.store import BadLine

SUFFIX = ".parquet"
_TASK = ("annotation_id", "confirmed_task", "action_reprs", "website", "domain", "subdomain")
_LISTS = ("pos_candidates", "neg_candidates")
_ACTION = ("action_uid", "operation", "cleaned_html", *_LISTS)
_INDEX = "target_action_index"
_COLUMNS = (*_TASK, *_ACTION, _INDEX)
_ROWS = 8  # rows read at once: a page has up to several megabytes
# The maximum bytes of our columns in one row group. The data set's row groups have up to several
# hundred rows.
_LARGEST = 4 << 30


class _Group(msgspec.Struct):
    """The rows read for one task, by the index of their action."""

    task: dict[str, Any]
    actions: dict[int, dict[str, Any]] = {}
    problem: str | None = None


def read_tasks(paths: Sequence[Path]) -> Iterator[tuple[str, Any] | BadLine]:
    """Yields the tasks of Parquet files, each after its last row is read.

    Args:
        paths: The files; one task may have rows in several files.

    Yields:
        A place and a task in the form of Mind2Web's JSON, with `indexes`, the places of its actions
        in `action_reprs`; a BadLine for a file or a task that cannot be read.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow") from None
    left: Counter[str] = Counter()
    whole: list[Path] = []
    for path in paths:
        try:
            _check(pyarrow.parquet.ParquetFile(path))
            ids = pyarrow.parquet.read_table(path, columns=["annotation_id"])
            left.update(map(str, ids.column(0).to_pylist()))
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            yield _bad(str(path), str(error))
            continue
        whole.append(path)
    groups: dict[str, _Group] = {}
    for path in whole:
        number = 0
        try:
            batches = pyarrow.parquet.ParquetFile(path).iter_batches(
                batch_size=_ROWS, columns=list(_COLUMNS)
            )
            for batch in batches:
                for row in batch.to_pylist():
                    id = str(row["annotation_id"])
                    group = groups.setdefault(id, _Group({name: row[name] for name in _TASK}))
                    _add(group, row, f"{path}[{number}]")
                    number += 1
                    left[id] -= 1
                    if not left[id]:
                        yield _task(f"{path}: {id}", groups.pop(id))
        except (pyarrow.ArrowException, OSError) as error:
            yield _bad(str(path), f"damaged after {number} rows, which were read: {error}")
    for id, group in groups.items():
        group.problem = group.problem or f"{left[id]} of its rows could not be read"
        yield _task(f"{whole[-1].parent}: {id}", group)


def _check(file: Any) -> None:
    """Raises ValueError for other columns and for oversized row groups."""
    names = file.schema_arrow.names
    if missing := [name for name in _COLUMNS if name not in names]:
        raise ValueError(
            f"not Multimodal-Mind2Web: the columns {', '.join(missing)} are missing (for "
            "Mind2Web's own data, give the JSON file)"
        )
    for i in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(i)
        columns = [group.column(j) for j in range(group.num_columns)]
        size = sum(
            column.total_uncompressed_size
            for column in columns
            if column.path_in_schema.partition(".")[0] in _COLUMNS
        )
        if size > _LARGEST:
            raise ValueError(
                f"row group {i} has {size:,} bytes, more than the limit of {_LARGEST:,}"
            )


def _add(group: _Group, row: dict[str, Any], place: str) -> None:
    """Adds an action to its task. The first problem of a task is kept."""
    try:
        index = int(row[_INDEX])
        if index in group.actions:
            raise ValueError(f"a second row for action {index}")
        action = {name: row[name] for name in _ACTION}
        action["operation"] = _decoded(row["operation"])
        for name in _LISTS:
            action[name] = [_candidate(_decoded(candidate)) for candidate in row[name] or ()]
        group.actions[index] = action
    except (*UNREADABLE, ValueError, TypeError) as error:
        group.problem = group.problem or f"{place}: {error}"


def _decoded(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str) else value


def _candidate(value: Any) -> Any:
    """Parses a candidate. Some copies of the data store the node's id only among its attributes."""
    if isinstance(value, dict) and not value.get("backend_node_id"):
        attributes = _decoded(value.get("attributes") or {})
        if isinstance(attributes, dict):
            return {**value, "backend_node_id": attributes.get("backend_node_id")}
    return value


def _task(place: str, group: _Group) -> tuple[str, Any] | BadLine:
    if group.problem is not None:
        return _bad(place, group.problem)
    ordered = sorted(group.actions)
    actions = [group.actions[index] for index in ordered]
    return place, {**group.task, "actions": actions, "indexes": ordered}


def _bad(place: str, problem: str) -> BadLine:
    return BadLine(place, place, " ".join(problem.split())[:300], b"")
