"""Tables of labels known to be wrong, applied on request.

The module also computes WebArena's success rate (arXiv 2307.13854) in total, by site and by type of
evaluation, with original and corrected labels. `webarena_corrections.toml` lists the wrong labels
(arXiv 2404.06474).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import msgspec

from prill.config.toml import parse_toml
from prill.errors import UsageError
from prill.evaluators.labels import gold_labels
from prill.evaluators.metrics import wilson
from prill.types import LabelRecord

_SUFFIX = "_corrections.toml"
_WEBARENA_TASKS = 812


@dataclass(frozen=True)
class Correction:
    """The correct label of a task, and the reason."""

    task: str
    success: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """A table of label corrections for one benchmark.

    They were found in the runs that `made_for` describes; other runs of these tasks may be true
    successes.

    Only labels of `source` are replaced. None: labels of any source.
    """

    benchmark: str
    made_for: str
    source: str | None = None
    correction: tuple[Correction, ...]

    def number(self, task_id: str) -> str:
        """Returns a task's id without the prefix: `24` for `24`, `webarena.24`, `webarena/24`."""
        return re.sub(
            rf"\A{re.escape(self.benchmark)}[./_:-]", "", task_id, count=1, flags=re.IGNORECASE
        )

    def of(self, task_id: str) -> Correction | None:
        """Returns the correction of a task, or None."""
        number = self.number(task_id)
        return next((c for c in self.correction if c.task == number), None)


@dataclass(frozen=True, kw_only=True)
class Corrected:
    """Labels after the corrections.

    `matched` are the ids of labels whose task is in the table, `changed` the ids of labels that
    differed.
    """

    name: str
    made_for: str
    source: str | None
    tasks: int
    labels: tuple[LabelRecord, ...]
    matched: tuple[str, ...]
    changed: tuple[str, ...]


def load_corrections(name: str) -> Corrections:
    """Reads a table of corrections.

    Args:
        name: The name of a table that ships with prill, or the path of a TOML file.

    Returns:
        The table.

    Raises:
        UsageError: The table does not exist, or has a wrong format.
    """
    shipped = files("prill.evaluators.agreement")
    names = sorted(
        p.name.removesuffix(_SUFFIX) for p in shipped.iterdir() if p.name.endswith(_SUFFIX)
    )
    try:
        text = (shipped / f"{name}{_SUFFIX}" if name in names else Path(name)).read_text(
            encoding="utf-8"
        )
        return msgspec.convert(parse_toml(text), Corrections)
    except OSError:
        raise UsageError(
            f"unknown corrections {name!r}; expected one of {', '.join(names)}, or a file"
        ) from None
    except ValueError as error:  # includes msgspec's errors
        raise UsageError(f"{name}: not a table of corrections: {error}") from None


def correct(
    labels: Iterable[LabelRecord], corrections: Corrections, tasks: Mapping[str, str] | None = None
) -> Corrected:
    """Replaces the success of labels whose task is in a table of corrections.

    Args:
        labels: The labels.
        corrections: The table.
        tasks: The task id of each trajectory id. A missing id is its own task id. None: all
            trajectory ids are task ids.

    Returns:
        All labels, and the ids of the matched and the changed labels.
    """
    results, matched, changed = [], dict[str, None](), dict[str, None]()
    for label in labels:
        correction = corrections.of((tasks or {}).get(label.id, label.id))
        if correction is not None and corrections.source in (None, label.source):
            matched[label.id] = None
            if label.success != correction.success:
                changed[label.id] = None
                note = "; ".join(
                    part for part in (label.note, f"corrected: {correction.reason}") if part
                )
                label = replace(label, success=correction.success, undecided=None, note=note)
        results.append(label)
    return Corrected(
        name=corrections.benchmark,
        made_for=corrections.made_for,
        source=corrections.source,
        tasks=len(corrections.correction),
        labels=tuple(results),
        matched=tuple(matched),
        changed=tuple(changed),
    )


@dataclass(frozen=True, kw_only=True)
class SuccessRate:
    """The success rate of `n` labelled runs with 95 % Wilson intervals, before and after
    corrections.

    `part` is "all", "site" or "evaluation", and `value` is the site or the type of evaluation.
    """

    part: str
    value: str
    n: int
    successes: int
    rate: float
    interval: tuple[float, float]
    corrected_successes: int
    corrected_rate: float
    corrected_interval: tuple[float, float]


def success_rates(
    labels: Iterable[LabelRecord],
    tasks: Mapping[str, str] | None = None,
    *,
    source: str | None = None,
    truth: str = "majority",
    parts_of: Mapping[str, Sequence[tuple[str, str]]] | None = None,
) -> tuple[SuccessRate, ...]:
    """Returns the success rates of WebArena's tasks: in total, by site and by type of evaluation.

    Only decided labels count. `tasks` maps ids to task ids, such as 24 or webarena.24; a missing id
    is its own task id. `parts_of` has the parts of each task number, such as ("site", "map")
    (`prill.datasets.webarena_tasks.task_parts`). Corrections apply only to labels of source
    `oracle`. The result is empty without decided labels. Raises UsageError if there are several
    sources and none is chosen.
    """
    labels = list(labels)
    table = load_corrections("webarena")
    _, before = gold_labels(labels, source, truth)
    _, after = gold_labels(correct(labels, table, tasks).labels, source, truth)
    parts: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for id, success in before.items():
        number, corrected = table.number((tasks or {}).get(id, id)), after[id]
        if (
            success is None
            or corrected is None
            or not re.fullmatch(r"\d{1,6}", number)
            or int(number) >= _WEBARENA_TASKS
        ):
            continue
        for part in (("all", "all"), *(parts_of or {}).get(number, ())):
            parts.setdefault(part, []).append((success, corrected))
    order = {"all": 0, "site": 1, "evaluation": 2}
    ranked = sorted(parts.items(), key=lambda part: (order[part[0][0]], -len(part[1]), part[0][1]))
    return tuple(_rate(part, value, outcomes) for (part, value), outcomes in ranked)


def _rate(part: str, value: str, outcomes: Sequence[tuple[bool, bool]]) -> SuccessRate:
    n = len(outcomes)
    successes, corrected = (sum(side) for side in zip(*outcomes, strict=True))
    return SuccessRate(
        part=part,
        value=value,
        n=n,
        successes=successes,
        rate=successes / n,
        interval=wilson(successes / n, n),
        corrected_successes=corrected,
        corrected_rate=corrected / n,
        corrected_interval=wilson(corrected / n, n),
    )
