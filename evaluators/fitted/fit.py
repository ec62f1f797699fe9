"""Fits judges (`prill.evaluators.fitted.student`) to labelled trajectories, with figures from runs that they have not seen.

One setting is left open, how far weights may grow, and the data at hand choose it: by cross-validation grouped by task, which
calibrates the probabilities as well. Figures on the card come from a second cross-validation around all of that. Everything
else is fixed: which features there are, the scale of numbers against texts, in how many tasks a word must occur. How these
were settled: benchmarks/student.py.

The model is a logistic regression over numbers at a common scale and sets of words, calibrated (Platt). Where only evidence
counts, words may speak against success and never for it: whoever writes on a page can add words, and a sum that no added word
can raise is not turned by them (monotonic classification; Incer et al. 2018).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from prill.errors import MissingExtra, UsageError
from prill.evaluators.fitted.calibration import fit_platt, sigmoid
from prill.evaluators.fitted.features import Reading, cut_off, names, read
from prill.evaluators.fitted.student import FORMAT, Card, HeldOut, Kind, Linear, StudentModel
from prill.evaluators.labels import grouped_folds, task_of
from prill.evaluators.metrics import auc
from prill.types import Trajectory

if TYPE_CHECKING:
    from numpy.typing import NDArray


FOLDS = 5  # of the figures on the card
THRESHOLD = 0.5
# What a fit needs: runs of each outcome, and tasks.
_LEAST_EACH, _LEAST_TASKS = 10, 10
# Sites left out in turn: at most so many, each with at least so many runs.
_SITES_LEFT_OUT, _LEAST_OF_A_SITE = 10, 20
# How far weights may grow: the inverse of the penalty on them. Cross-validation inside the fit takes one.
STRENGTHS = (0.3, 1.0, 3.0, 10.0)
_INNER_FOLDS = 4
# A word counts once it occurs in runs of three tasks: one that occurs in a single task tells the task, not the outcome.
_TASKS_OF_A_WORD = 3
# Numbers have a standard deviation of this and texts a length of 1, so that a single penalty suits both.
_SCALE = 0.1
_LEAST_SPREAD = 1e-9


@dataclass(frozen=True, kw_only=True)
class Example:
    """A labelled run as the fit sees it."""

    reading: Reading
    success: bool
    task: str
    site: str | None
    cut_off: bool


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the card says of the data: SHA-256 of the files, and the source of the labels."""

    data: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Fitted:
    """Weights for the file, and what they give for rows of the table that they came from."""

    table: Table
    strength: float
    bias: float
    features: list[tuple[float, float]]
    words: dict[str, dict[str, float]]
    against: bool

    def probabilities(self, rows: Sequence[int]) -> list[float]:
        """What the judge of these weights would say; `rows` of the table."""
        linear = Linear(self.bias, self.features, self.words, against=self.against)
        return [sigmoid(linear(self.table.runs[i].reading).logit) for i in rows]


class _Weights(NamedTuple):
    columns: NDArray[Any]
    bias: float


def examples(
    trajectories: Iterable[Trajectory], gold: Mapping[str, bool | None], kind: Kind, evidence_only: bool
) -> tuple[list[Example], int]:
    """The runs with a decided label and at least one step; and how many others there were."""
    runs, others = [], 0
    for trajectory in trajectories:
        success = gold.get(trajectory.id)
        if success is None or not trajectory.steps:
            others += 1
            continue
        reading = read(trajectory, kind, evidence_only)
        runs.append(
            Example(
                reading=reading,
                success=success,
                task=task_of(trajectory),
                site=trajectory.task.site,
                cut_off=cut_off(trajectory),
            )
        )
    return runs, others


def fit(
    runs: Sequence[Example], kind: Kind, evidence_only: bool, *, seed: int = 0, left_out: int = 0, origin: Origin | None = None
) -> StudentModel:
    """The fitted judge with its card. Raises UsageError when there are too few runs, MissingExtra without scikit-learn."""
    table = _table(runs)
    sites = Counter(run.site for run in runs if run.site is not None)
    held_out_probabilities = _held_out(table, seed)
    model = fit_rows(table, range(len(runs)), seed)
    origin = origin or Origin()
    others = {}
    for site, count in sites.most_common(_SITES_LEFT_OUT) if len(sites) > 1 else ():
        inside = [i for i, run in enumerate(runs) if run.site == site]
        outside = [i for i, run in enumerate(runs) if run.site != site]
        if count >= _LEAST_OF_A_SITE and _enough([runs[i] for i in outside]):
            others[site] = held_out([runs[i].success for i in inside], fit_rows(table, outside, seed).probabilities(inside))
    complete = [i for i, run in enumerate(runs) if not run.cut_off]
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
        all_runs=held_out([run.success for run in runs], held_out_probabilities),
        not_cut_off=held_out([runs[i].success for i in complete], [held_out_probabilities[i] for i in complete]),
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
    called = [p >= threshold for p in probabilities]
    hits = sum(s and t for s, t in zip(called, truths, strict=True))
    rejected = sum(not s and not t for s, t in zip(called, truths, strict=True))
    return HeldOut(
        runs=len(truths),
        successes=successes,
        auc=_rounded_figure(auc(probabilities, truths)) if truths else None,
        accuracy=_rounded_figure((hits + rejected) / len(truths)) if truths else None,
        balanced_accuracy=_rounded_figure((hits / successes + rejected / failures) / 2) if successes and failures else None,
    )


def _rounded_figure(figure: float | None) -> float | None:
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
    probabilities = [0.0] * len(table.runs)
    for fold in range(FOLDS):
        inside = [i for i, f in enumerate(fold_of) if f == fold]
        outside = [i for i, f in enumerate(fold_of) if f != fold]
        for i, p in zip(inside, fit_rows(table, outside, seed).probabilities(inside), strict=True):
            probabilities[i] = p
    return probabilities


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    from prill import __version__

    return {"prill": __version__, "scikit-learn": version("scikit-learn")}


# Logistic regression


class Table:
    """The runs as arrays; words of each text as a sparse table of zeros and ones."""

    def __init__(self, runs: Sequence[Example]) -> None:
        try:
            import sklearn  # noqa: F401
        except ImportError:
            raise MissingExtra("scikit-learn", "student") from None
        import numpy as np

        self.runs = runs
        self.numbers = np.array([run.reading.numbers for run in runs], dtype=float)
        self.success = np.array([run.success for run in runs])
        self.tasks = [run.task for run in runs]
        self.task = np.unique(self.tasks, return_inverse=True)[1]
        self.words = {text: _sparse([run.reading.words[text] for run in runs]) for text in runs[0].reading.words}
        self.against = runs[0].reading.evidence_only


def _sparse(rows: Sequence[set[str]]) -> tuple[Any, list[str]]:
    import numpy as np
    from scipy.sparse import csr_matrix

    terms = {word: i for i, word in enumerate(sorted(set().union(*rows)))}
    columns = [terms[word] for row in rows for word in row]
    starts = np.cumsum([0, *map(len, rows)])
    table = csr_matrix((np.ones(len(columns)), columns, starts), shape=(len(rows), len(terms)))
    table.sort_indices()  # sets have no order; sums that run over them should
    return table, list(terms)


def fit_rows(table: Table, rows: Sequence[int], seed: int) -> Fitted:
    """The weights for some rows of the table, at the strength that these rows choose."""
    from threadpoolctl import threadpool_limits

    # Arrays as small as these gain nothing from threads, which on a busy machine wait for each other most of the time.
    with threadpool_limits(1):
        return _fit_rows(table, rows, seed)


def _fit_rows(table: Table, rows: Sequence[int], seed: int) -> Fitted:
    import numpy as np

    row_numbers = np.asarray(rows)
    truths = table.success[row_numbers]
    fold_of = np.array(grouped_folds([table.tasks[i] for i in rows], truths.tolist(), _INNER_FOLDS, seed))
    logits = np.zeros((len(STRENGTHS), len(rows)))
    for fold in range(_INNER_FOLDS):
        inside, outside = row_numbers[fold_of == fold], row_numbers[fold_of != fold]
        if not inside.size or np.unique(table.success[outside]).size < 2:
            raise UsageError("successes or failures are confined to too few tasks; label runs of more tasks")
        design = _Design(table, outside)
        held_out = design.of(inside)
        for i, weights in enumerate(design.path(STRENGTHS)):
            logits[i, fold_of == fold] = held_out @ weights.columns + weights.bias
    # log(1 + e^-margin): the cost of the probability that was given to what happened.
    losses = np.logaddexp(0, -logits * np.where(truths, 1, -1)).mean(axis=1)
    best = int(losses.argmin())
    slope, offset = fit_platt(logits[best].tolist(), truths.tolist())
    design = _Design(table, row_numbers)
    *_, weights = design.path((STRENGTHS[best],))
    return design.fitted(weights, STRENGTHS[best], slope, offset)


class _Design:
    """The columns for some rows: numbers at a common scale, and the words that occur in enough of their tasks."""

    def __init__(self, table: Table, rows: NDArray[Any]) -> None:
        import numpy as np

        self.table, self.rows = table, rows
        self.centre = table.numbers[rows].mean(axis=0)
        spread = table.numbers[rows].std(axis=0)
        # Equal numbers have a spread of some 1e-16, by rounding: what never varies must not count.
        varies = spread > _LEAST_SPREAD
        self.factor = np.where(varies, _SCALE / np.where(varies, spread, 1), 0)
        self.columns = {text: _common(words[rows], table.task[rows]) for text, (words, _) in table.words.items()}

    def of(self, rows: NDArray[Any]) -> Any:
        import numpy as np
        from scipy.sparse import csr_matrix, diags_array, hstack

        blocks = [csr_matrix((self.table.numbers[rows] - self.centre) * self.factor)]
        for text, columns in self.columns.items():
            block = self.table.words[text][0][rows][:, columns]
            if self.table.against:
                blocks.append(_SCALE * block)
            else:
                blocks.append(diags_array(1 / np.sqrt(np.maximum(1, np.diff(block.indptr)))) @ block)
        return hstack(blocks).tocsr()

    def path(self, strengths: Sequence[float]) -> Iterable[_Weights]:
        """The weights at each strength in turn, each begun from the ones before."""
        from sklearn.linear_model import LogisticRegression

        data, truths = self.of(self.rows), self.table.success[self.rows]
        if self.table.against:
            yield from (self._against(data, truths, strength) for strength in strengths)
            return
        model = LogisticRegression(max_iter=2000, tol=1e-3, warm_start=True)
        for strength in strengths:
            model.set_params(C=strength).fit(data, truths)
            yield _Weights(model.coef_[0].copy(), float(model.intercept_[0]))

    def _against(self, data: Any, truths: NDArray[Any], strength: float) -> _Weights:
        """Weights of which none of a word is above 0: words that would speak for success go, until none is left."""
        import numpy as np
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=2000, tol=1e-3, C=strength)
        columns_used = np.arange(data.shape[1])
        while True:
            model.fit(data[:, columns_used], truths)
            speaking = (model.coef_[0] > 0) & (columns_used >= len(self.centre))
            if not speaking.any():
                break
            columns_used = columns_used[~speaking]
        columns = np.zeros(data.shape[1])
        columns[columns_used] = model.coef_[0]
        return _Weights(columns, float(model.intercept_[0]))

    def fitted(self, fit: _Weights, strength: float, slope: float, offset: float) -> Fitted:
        """The weights as the file has them: on the features as they are read, with the calibration worked in."""
        weights = (fit.columns * slope).tolist()
        count = len(self.centre)
        pairs = zip(weights[:count], self.factor.tolist(), self.centre.tolist(), strict=True)
        features = [(_rounded(weight * factor), _rounded(centre)) for weight, factor, centre in pairs]
        scale = _SCALE if self.table.against else 1.0
        words = {}
        for text, columns in self.columns.items():
            terms, count_after = self.table.words[text][1], count + len(columns)
            pairs_of_words = zip(columns, weights[count:count_after], strict=True)
            words[text] = {terms[c]: _rounded(w * scale) for c, w in pairs_of_words if w or not self.table.against}
            count = count_after
        bias = _rounded(fit.bias * slope + offset)
        return Fitted(self.table, strength, bias, features, words, self.table.against)


def _common(words: Any, tasks: NDArray[Any]) -> list[int]:
    import numpy as np
    from scipy.sparse import csr_matrix

    members = csr_matrix((np.ones(len(tasks)), (tasks, np.arange(len(tasks)))))
    spread = np.bincount((members @ words).tocsr().indices, minlength=words.shape[1])
    return [int(column) for column in np.flatnonzero(spread >= _TASKS_OF_A_WORD)]


def _rounded(value: float) -> float:
    """Five digits: files stay small, and what differs from machine to machine in the last digits does not show."""
    return float(f"{value:.5g}")
