"""Tables of labels known to be wrong, applied on request.

With it, WebArena's success rate (arXiv 2307.13854), in all, by site and by type of evaluation, with
the labels as they are and corrected. Which of its labels are wrong, `webarena_corrections.toml`
says (arXiv 2404.06474).
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
    """What the label of a task ought to be, and why."""

    task: str
    success: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """A table of corrections for one benchmark, found in the runs that `made_for` describes: others
    may be truly successes.

    `source`: only labels of this source are replaced; None: those of any.
    """

    benchmark: str
    made_for: str
    source: str | None = None
    correction: tuple[Correction, ...]

    def number(self, task_id: str) -> str:
        """A task's id without the benchmark before it: `24` for `24`, `webarena.24` and
        `webarena/24`.
        """
        return re.sub(
            rf"\A{re.escape(self.benchmark)}[./_:-]", "", task_id, count=1, flags=re.IGNORECASE
        )

    def of(self, task_id: str) -> Correction | None:
        """The correction of a task, if there is one."""
        number = self.number(task_id)
        return next((c for c in self.correction if c.task == number), None)


@dataclass(frozen=True, kw_only=True)
class Corrected:
    """Labels after the corrections. `matched` have a corrected task, `changed` are those that said
    otherwise; both by id.
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
        UsageError: There is no such table, or it is not of that form.
    """
    shipped = files("prill.evaluators.meta")
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
            f"no corrections are called {name!r}; there are: {', '.join(names)}, or give a file"
        ) from None
    except ValueError as error:  # msgspec's are such, too
        raise UsageError(f"{name}: not a table of corrections: {error}") from None


def correct(
    labels: Iterable[LabelRecord], corrections: Corrections, tasks: Mapping[str, str] | None = None
) -> Corrected:
    """Replaces the success of labels whose task is in a table of corrections.

    Args:
        labels: The labels.
        corrections: The table.
        tasks: The task id of each trajectory id. An id that it lacks is its own task id. None: all
            are.

    Returns:
        All labels, and the ids of those that the table matched and changed.
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
    """Successes among `n` labelled runs with the 95 % Wilson interval, and the same after the
    corrections.

    `part` is "all", "site" or "evaluation", `value` which one.
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
    """The rate over all decided labels of WebArena's tasks, then over each site and each type of
    evaluation.

    `tasks` maps ids to task ids, such as 24 or webarena.24; an id that it lacks is its own.
    `parts_of` has the parts of each task number, such as ("site", "map")
    (`prill.emulators.webarena.tasks.task_parts`). Corrections concern labels of source `oracle`
    only. Empty without decided labels; raises UsageError when there are several sources and none is
    chosen.
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
