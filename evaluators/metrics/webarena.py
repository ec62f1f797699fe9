"""WebArena's success rate: in all, by site and by type of evaluation, with the labels as they are and corrected.

The 812 tasks are those of arXiv 2307.13854. Which labels are wrong says `webarena_corrections.toml` (arXiv 2404.06474).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prill.datasets.webarena_tasks import TaskConfig, site_of
from prill.evaluators.corrections import correct, load_corrections
from prill.evaluators.intervals import wilson
from prill.evaluators.pairing import gold_labels
from prill.types import LabelRecord

_TASKS = 812


@dataclass(frozen=True, kw_only=True)
class SuccessRate:
    """Successes among `n` labelled runs with the 95 % Wilson interval, and the same after the corrections.

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
    configs: Iterable[TaskConfig] = (),
) -> tuple[SuccessRate, ...]:
    """The rate over all decided labels of WebArena's tasks, then over each site and each type of evaluation.

    `tasks` maps ids to task ids, such as 24 or webarena.24; an id that it lacks is its own. `configs` tells the parts: a task
    on two sites counts once, as "multi", and one with two types under both joined by "+". Corrections concern labels of
    source `oracle` only. Empty without decided labels; raises UsageError when there are several sources and none is chosen.
    """
    labels = list(labels)
    table = load_corrections("webarena")
    known = {str(config.task_id): config for config in configs}
    _, before = gold_labels(labels, source)
    _, after = gold_labels(correct(labels, table, tasks).labels, source)
    parts: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for id, success in before.items():
        number, corrected = table.number((tasks or {}).get(id, id)), after[id]
        if success is None or corrected is None or not number.isdecimal() or int(number) >= _TASKS:
            continue
        named = [("all", "all")]
        if config := known.get(number):
            named.append(("site", site_of(config.sites) or "none"))
            named.append(("evaluation", "+".join(sorted(config.eval.eval_types))))
        for part in named:
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
