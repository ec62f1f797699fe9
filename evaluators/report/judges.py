"""Verdict files as the columns of a report: one for each evaluator that wrote into each file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prill.store import encode, read_verdicts
from prill.types import EvaluatorInfo, Verdict


@dataclass(frozen=True, slots=True)
class Judge:
    """What one evaluator said, by trajectory id; of several verdicts of an id the last counts. `name` is unique in a report."""

    name: str
    info: EvaluatorInfo
    verdicts: dict[str, Verdict]


def read_judges(paths: Sequence[str | os.PathLike[str]]) -> list[Judge]:
    """The judges of some verdict files, in order. Raises UsageError or InputError when a file cannot be read."""
    found: dict[tuple[str, bytes], tuple[EvaluatorInfo, dict[str, Verdict]]] = {}
    for path in dict.fromkeys(os.fspath(path) for path in paths):
        for verdict in read_verdicts(path):
            # A file that was continued with changed settings holds two judges, not one.
            info, verdicts = found.setdefault((path, encode(verdict.evaluator)), (verdict.evaluator, {}))
            verdicts[verdict.id] = replace(verdict, evaluator=info)
    names = _names([(path, info) for (path, _), (info, _) in found.items()])
    return [Judge(name, info, verdicts) for name, (info, verdicts) in zip(names, found.values(), strict=True)]


def _names(columns: list[tuple[str, EvaluatorInfo]]) -> list[str]:
    """As short as tells them apart: the evaluator's name, then with its model, version, prompt, file, and a number."""
    parts = [
        (info.name, info.model, f"v{info.version}", info.prompt and info.prompt.split(":")[-1][:8], Path(path).stem, f"#{n}")
        for n, (path, info) in enumerate(columns, 1)
    ]
    for size in range(1, 7):
        names = [" · ".join(part for part in row[:size] if part) for row in parts]
        if len(set(names)) == len(names):
            break
    return names
