"""AgentRewardBench's human annotations as one table, annotations.csv (arXiv 2504.08942).

Ids are made as the runs of `arb_webjudge` have them, benchmark/model/task, so that these labels join with those runs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from os import PathLike

from prill.errors import UsageError
from prill.store import BadLine
from prill.types import LabelRecord

_SUCCESS = {"Successful": True, "Unsuccessful": False}
_NEEDED = ("annotator_name", "benchmark", "task_id", "model_name", "trajectory_success")


def load_labels(path: str | PathLike[str]) -> Iterator[LabelRecord | BadLine]:
    """One label of source `human` a line; the note keeps what else was asked. An unknown answer is no decision.

    Raises UsageError when the file is no such table.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if missing := [name for name in _NEEDED if name not in (reader.fieldnames or ())]:
                raise UsageError(f"{path}: the table has no column {', '.join(missing)}")
            for row in reader:
                cells = {name: (value or "").strip() for name, value in row.items() if isinstance(value, str) or value is None}
                place = f"{path}:{reader.line_num}"
                if not all(cells[name] for name in ("benchmark", "task_id", "model_name")):
                    yield BadLine(place, place, "benchmark, task_id or model_name is empty", b"")
                    continue
                extra = [name.removeprefix("trajectory_") for name in cells if name.startswith("trajectory_")]
                extra = [f"{name}: {cells[f'trajectory_{name}']}" for name in extra if name != "success"]
                yield LabelRecord(
                    id=f"{cells['benchmark']}/{cells['model_name'].removeprefix('GenericAgent-')}/{cells['task_id']}",
                    success=_SUCCESS.get(cells["trajectory_success"]),
                    annotator=cells["annotator_name"] or None,
                    note="; ".join(extra) or None,
                )
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: no CSV in UTF-8: {error}") from None
