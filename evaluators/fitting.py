"""Fits the judges of `prill.evaluators.student` to labelled trajectories, with figures from runs that they have not seen.

One setting is left open, how far weights may grow, and the data at hand choose it: by cross-validation grouped by task, which
calibrates the probabilities as well. Figures on the card come from a second cross-validation around all of that. Everything
else is fixed: which features there are, the scale of numbers against texts, in how many tasks a word must occur. How these
were settled: benchmarks/student.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prill.errors import UsageError
from prill.evaluators.features import cut_off, names, read
from prill.evaluators.folds import grouped_folds, task_of
from prill.evaluators.ranking import auc
from prill.evaluators.regression import Example, Table, fit_rows
from prill.evaluators.student import FORMAT, Card, HeldOut, Kind, StudentModel
from prill.types import Trajectory

FOLDS = 5
THRESHOLD = 0.5
_LEAST_EACH, _LEAST_TASKS = 10, 10
_SITES_LEFT_OUT, _LEAST_OF_A_SITE = 10, 20


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the card says of the data: SHA-256 of the files, and the source of the labels."""

    data: tuple[str, ...] = ()
    source: str = ""


def examples(
    trajectories: Iterable[Trajectory], gold: Mapping[str, bool | None], kind: Kind, evidence_only: bool
) -> tuple[list[Example], int]:
    """The runs with a decided label and at least one step; and how many others there were."""
    found, others = [], 0
    for trajectory in trajectories:
        success = gold.get(trajectory.id)
        if success is None or not trajectory.steps:
            others += 1
            continue
        reading = read(trajectory, kind, evidence_only)
        found.append(
            Example(
                reading=reading,
                success=success,
                task=task_of(trajectory),
                site=trajectory.task.site,
                cut_off=cut_off(trajectory),
            )
        )
    return found, others


def fit(
    runs: Sequence[Example], kind: Kind, evidence_only: bool, *, seed: int = 0, left_out: int = 0, origin: Origin | None = None
) -> StudentModel:
    """The fitted judge with its card. Raises UsageError when there are too few runs, MissingExtra without scikit-learn."""
    table = _table(runs)
    sites = Counter(run.site for run in runs if run.site is not None)
    seen = _held_out(table, seed)
    model = fit_rows(table, range(len(runs)), seed)
    origin = origin or Origin()
    others = {}
    for site, count in sites.most_common(_SITES_LEFT_OUT) if len(sites) > 1 else ():
        inside = [i for i, run in enumerate(runs) if run.site == site]
        outside = [i for i, run in enumerate(runs) if run.site != site]
        if count >= _LEAST_OF_A_SITE and _enough([runs[i] for i in outside]):
            others[site] = held_out([runs[i].success for i in inside], fit_rows(table, outside, seed).probabilities(inside))
    free = [i for i, run in enumerate(runs) if not run.cut_off]
    card = Card(
        data=origin.data,
        source=origin.source,
        runs=len(runs),
        tasks=len({run.task for run in runs}),
        successes=sum(run.success for run in runs),
        left_out=left_out,
        sites=dict(sorted(sites.items())),
        folds=FOLDS,
        seed=seed,
        strength=model.strength,
        versions=_versions(),
        all_runs=held_out([run.success for run in runs], seen),
        not_cut_off=held_out([runs[i].success for i in free], [seen[i] for i in free]),
        other_sites=others,
    )
    return StudentModel(
        format=FORMAT,
        kind=kind,
        evidence_only=evidence_only,
        bias=model.bias,
        features=dict(zip(names(kind, evidence_only), model.features, strict=True)),
        words=model.words,
        threshold=THRESHOLD,
        card=card,
    )


def cross_validated(runs: Sequence[Example], seed: int) -> list[float]:
    """For each run the probability that a judge fitted without its task gives it."""
    return _held_out(_table(runs), seed)


def without_site(runs: Sequence[Example], site: str, seed: int) -> tuple[list[int], list[float]]:
    """Which runs are of that site, and the probabilities that a judge fitted on the other sites gives them."""
    inside = [i for i, run in enumerate(runs) if run.site == site]
    outside = [i for i, run in enumerate(runs) if run.site != site]
    return inside, fit_rows(_table(runs), outside, seed).probabilities(inside)


def held_out(truths: Sequence[bool], probabilities: Sequence[float], threshold: float = THRESHOLD) -> HeldOut:
    """The figures of probabilities against labels."""
    successes = sum(truths)
    failures = len(truths) - successes
    said = [p >= threshold for p in probabilities]
    hits = sum(s and t for s, t in zip(said, truths, strict=True))
    rejected = sum(not s and not t for s, t in zip(said, truths, strict=True))
    return HeldOut(
        runs=len(truths),
        successes=successes,
        auc=_short(auc(probabilities, truths)) if truths else None,
        accuracy=_short((hits + rejected) / len(truths)) if truths else None,
        balanced_accuracy=_short((hits / successes + rejected / failures) / 2) if successes and failures else None,
    )


def _short(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 4)


def _table(runs: Sequence[Example]) -> Table:
    if not _enough(runs):
        raise UsageError(
            f"too few labelled runs to fit a judge: {sum(run.success for run in runs)} successes and "
            f"{sum(not run.success for run in runs)} failures in {len({run.task for run in runs})} tasks; "
            f"at least {_LEAST_EACH} of each, in {_LEAST_TASKS} tasks, are needed"
        )
    return Table(runs)


def _enough(runs: Sequence[Example]) -> bool:
    successes = sum(run.success for run in runs)
    few = min(successes, len(runs) - successes) < _LEAST_EACH
    return not few and len({run.task for run in runs}) >= _LEAST_TASKS


def _held_out(table: Table, seed: int) -> list[float]:
    fold_of = grouped_folds(table.tasks, table.success.tolist(), FOLDS, seed)
    found = [0.0] * len(table.runs)
    for fold in range(FOLDS):
        inside = [i for i, f in enumerate(fold_of) if f == fold]
        outside = [i for i, f in enumerate(fold_of) if f != fold]
        for i, p in zip(inside, fit_rows(table, outside, seed).probabilities(inside), strict=True):
            found[i] = p
    return found


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    from prill import __version__

    return {"prill": __version__, "scikit-learn": version("scikit-learn")}
