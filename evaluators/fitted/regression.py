"""Logistic regression over a feature table.

The wide features are fitted without constraints. The narrow features are fitted with a bound:
features that an agent can increase have no weight above 0, so that added words or steps cannot
raise the score (monotonic classification; Incer et al. 2018). Attacked copies of failures are
additional rows, labelled as failures; the copies of a run together weigh twice as much as the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from prill.errors import MissingExtraError, UsageError
from prill.evaluators.fitted.calibration import fit_logistic, fit_platt, sigmoid
from prill.evaluators.fitted.features import BEYOND_THE_AGENT, Linear, Reading
from prill.evaluators.fitted.guard import OPEN, TASKS_OF_A_WORD, NoveltyGuard, fit_guard
from prill.evaluators.fitted.overlap import RunDigests
from prill.evaluators.labels import grouped_folds

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Candidate regularisation strengths (the inverse of the penalty). Inner cross-validation chooses
# one.
STRENGTHS = (0.3, 1.0, 3.0, 10.0)
BOUNDED_STRENGTHS = (0.3, 1.0)
_INNER_FOLDS = 4
FOLDS = 5  # of the figures on the card
# Minimum numbers of runs of each outcome, and of tasks, for a fit.
_MIN_EACH, _MIN_TASKS = 10, 10
# Total weight of the attacked copies of a failure; the failure itself has weight 1.
_COPIES_WEIGH = 2.0
_UNKNOWN = RunDigests("", "")
# Numbers are scaled to this standard deviation and texts to length 1, so that one penalty suits
# both.
_SCALE = 0.1
_MIN_SPREAD = 1e-9


@dataclass(frozen=True, kw_only=True)
class FitExample:
    """A labelled run for the fit. `copies` are the attacked copies of a failure, by family."""

    id: str
    reading: Reading
    copies: dict[str, Reading] = field(default_factory=dict)
    success: bool
    task: str
    site: str | None = None
    cut_off: bool = False
    digests: RunDigests = _UNKNOWN
    told: str = ""  # what the reason says of the values asked for


@dataclass(frozen=True)
class FittedRegression:
    """The fitted weights and guard, and their probabilities for rows of the feature table."""

    table: FeatureTable
    strength: float
    slope: float
    offset: float
    bias: float
    features: list[tuple[float, float]]
    words: dict[str, dict[str, float]]
    guard: NoveltyGuard | None

    def probabilities(self, rows: Sequence[int]) -> list[float | None]:
        """Returns the judge's probabilities for rows of the table; None if the guard rejects it."""
        return self.judged([self.table.readings[row] for row in rows])

    def judged(self, readings: Sequence[Reading]) -> list[float | None]:
        """Returns the judge's probabilities for any readings; None if the guard rejects one."""
        linear = Linear(self.bias, self.features, self.words, against=self.table.bounded)
        return [
            None if self.guard and self.guard.objection(one) else sigmoid(linear(one).logit)
            for one in readings
        ]


class _Weights(NamedTuple):
    columns: NDArray[Any]
    bias: float


class FeatureTable:
    """The feature table: the runs, then the attacked copies.

    The words of each text are a sparse binary matrix. A judge that does not `abstain` judges every
    run whose last state has a text.
    """

    def __init__(self, runs: Sequence[FitExample], *, bounded: bool, abstain: bool = True) -> None:
        import numpy as np

        if runs[0].reading.words:
            try:
                import sklearn  # noqa: F401
            except ImportError:
                raise MissingExtraError("scikit-learn", "student") from None

        copies = [
            (i, family, reading)
            for i, run in enumerate(runs)
            for family, reading in run.copies.items()
        ]
        self.runs = runs
        self.bounded, self.abstain = bounded, abstain
        self.readings = [run.reading for run in runs] + [reading for *_, reading in copies]
        self.run_of = np.array([*range(len(runs)), *(i for i, *_ in copies)])
        self.family = [None] * len(runs) + [family for _, family, _ in copies]
        self.families = sorted({family for _, family, _ in copies})
        self.numbers = np.array([reading.numbers for reading in self.readings], dtype=float)
        self.success = np.array([runs[i].success for i in self.run_of])
        self.tasks = [run.task for run in runs]
        self.task = np.unique(self.tasks, return_inverse=True)[1][self.run_of]
        self.words = {
            text: _sparse([reading.words[text] for reading in self.readings])
            for text in runs[0].reading.words
        }

    def find_copies(self, runs: Sequence[int], families: Collection[str]) -> list[int]:
        """Returns the rows of the attacked copies of these runs."""
        inside = set(runs)
        rows = range(len(self.runs), len(self.readings))
        return [
            row for row in rows if self.family[row] in families and int(self.run_of[row]) in inside
        ]


def _sparse(rows: Sequence[set[str]]) -> tuple[Any, list[str]]:
    import numpy as np
    from scipy.sparse import csr_matrix

    terms = {word: i for i, word in enumerate(sorted(set().union(*rows)))}
    columns = [terms[word] for row in rows for word in row]
    starts = np.cumsum([0, *map(len, rows)])
    table = csr_matrix((np.ones(len(columns)), columns, starts), shape=(len(rows), len(terms)))
    table.sort_indices()  # sets have no order; sort for reproducible sums
    return table, list(terms)


def fit_rows(
    table: FeatureTable,
    runs: Sequence[int],
    seed: int,
    *,
    families: Collection[str] | None = None,
    like: FittedRegression | None = None,
) -> FittedRegression:
    """Fits the weights to some runs of the table and their copies of `families` (None: all).

    Strength and calibration are chosen by cross-validation on the runs, or taken from `like`.
    """
    families = table.families if families is None else families
    if not table.words:
        return _fit_rows(table, runs, seed, families, like)
    from threadpoolctl import threadpool_limits

    # Threads do not speed up operations on such small arrays, and slow them down on a busy machine.
    with threadpool_limits(1):
        return _fit_rows(table, runs, seed, families, like)


def _fit_rows(
    table: FeatureTable,
    runs: Sequence[int],
    seed: int,
    families: Collection[str],
    like: FittedRegression | None,
) -> FittedRegression:
    import numpy as np

    guard = None
    if table.words:
        readings, tasks = [table.readings[i] for i in runs], [table.tasks[i] for i in runs]
        guard = fit_guard(readings, tasks) if table.abstain else OPEN
    # Copies that the guard rejects are not needed for the fit.
    copies = [
        row
        for row in table.find_copies(runs, families)
        if not (guard and guard.objection(table.readings[row]))
    ]
    rows = np.array([*runs, *copies])
    row_weights = _row_weights(table, rows)
    if like is None:
        strength, slope, offset = _settle(table, runs, rows, row_weights, seed)
    else:
        strength, slope, offset = like.strength, like.slope, like.offset
    design = _Design(table, rows, row_weights)
    *_, weights = design.path((strength,))
    return design.fitted(weights, strength, slope, offset, guard)


def _settle(
    table: FeatureTable,
    runs: Sequence[int],
    rows: NDArray[Any],
    row_weights: NDArray[Any],
    seed: int,
) -> tuple[float, float, float]:
    """Chooses the strength and the calibration's slope and offset by cross-validation.

    `rows` are the runs, then their copies.
    """
    import numpy as np

    strengths = BOUNDED_STRENGTHS if table.bounded else STRENGTHS
    truths = [table.runs[i].success for i in runs]
    folds = grouped_folds([table.tasks[i] for i in runs], truths, _INNER_FOLDS, seed)
    fold_of_run = dict(zip(runs, folds, strict=True))
    fold_of = np.array([fold_of_run[int(i)] for i in table.run_of[rows]])
    logits = np.zeros((len(strengths), len(rows)))
    for fold in range(_INNER_FOLDS):
        here = fold_of == fold
        if not here.any() or len(set(table.success[rows[~here]].tolist())) < 2:
            raise UsageError(
                "successes or failures occur in too few tasks; label runs of more tasks"
            )
        design = _Design(table, rows[~here], row_weights[~here])
        held_out = design.of(rows[here])
        for i, weights in enumerate(design.path(strengths)):
            logits[i, here] = held_out @ weights.columns + weights.bias
    # log(1 + e^-margin): the log loss.
    losses = np.logaddexp(0, -logits * np.where(table.success[rows], 1, -1)) @ row_weights
    best = int(losses.argmin())
    # Probabilities are calibrated on the original runs only.
    return (strengths[best], *fit_platt(logits[best, : len(runs)].tolist(), truths))


def _row_weights(table: FeatureTable, rows: NDArray[Any]) -> NDArray[Any]:
    """Returns weight 1 for each run, and weights for its copies that sum to a constant."""
    import numpy as np

    is_copy = rows >= len(table.runs)
    counts = np.bincount(table.run_of[rows[is_copy]], minlength=len(table.runs))
    return np.where(is_copy, _COPIES_WEIGH / np.maximum(1, counts[table.run_of[rows]]), 1.0)


class _Design:
    """The design matrix of rows: scaled numbers, and words that occur in enough of their tasks."""

    def __init__(self, table: FeatureTable, rows: NDArray[Any], weights: NDArray[Any]) -> None:
        import numpy as np

        self.table, self.rows, self.row_weights = table, rows, weights
        runs = rows[rows < len(table.runs)]
        self.centre = table.numbers[runs].mean(axis=0)
        spread = table.numbers[runs].std(axis=0)
        # Rounding gives constant columns a spread of about 1e-16; they must not count.
        varies = spread > _MIN_SPREAD
        self.factor = np.where(varies, _SCALE / np.where(varies, spread, 1), 0)
        self.columns = {
            text: _common(words[rows], table.task[rows]) for text, (words, _) in table.words.items()
        }

    def of(self, rows: NDArray[Any]) -> Any:
        import numpy as np

        numbers = (self.table.numbers[rows] - self.centre) * self.factor
        if not self.columns:
            return numbers
        from scipy.sparse import csr_matrix, diags_array, hstack

        blocks = [csr_matrix(numbers)]
        for text, columns in self.columns.items():
            block = self.table.words[text][0][rows][:, columns]
            if self.table.bounded:
                blocks.append(_SCALE * block)
            else:
                blocks.append(
                    diags_array(1 / np.sqrt(np.maximum(1, np.diff(block.indptr)))) @ block
                )
        return hstack(blocks).tocsr()

    def path(self, strengths: Sequence[float]) -> Iterator[_Weights]:
        """Yields the weights at each strength, each started from the previous ones (warm start)."""
        data, truths = self.of(self.rows), self.table.success[self.rows]
        if self.table.bounded:
            yield from self._bounded(data, truths, strengths)
            return
        if not self.columns:
            yield from self._of_numbers(data, truths, strengths)
            return
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=2000, tol=1e-3, warm_start=True)
        for strength in strengths:
            model.set_params(C=strength).fit(data, truths)
            yield _Weights(model.coef_[0].copy(), float(model.intercept_[0]))

    def _of_numbers(
        self, data: NDArray[Any], truths: NDArray[Any], strengths: Sequence[float]
    ) -> Iterator[_Weights]:
        """Fits a prior, by numpy alone."""
        import numpy as np

        rows = np.column_stack([data, np.ones(len(data))])
        weights = np.zeros(rows.shape[1])
        for strength in strengths:
            ridge = np.append(np.full(len(weights) - 1, 1 / strength), 0.0)
            weights = fit_logistic(rows, truths, ridge, weights)
            yield _Weights(weights[:-1], float(weights[-1]))

    def _bounded(
        self, data: Any, truths: NDArray[Any], strengths: Sequence[float]
    ) -> Iterator[_Weights]:
        """Fits weights; only those of features beyond the agent's control can be above 0."""
        import numpy as np
        from scipy.optimize import minimize

        signs, transposed = np.where(truths, 1.0, -1.0), data.T.tocsr()
        free = len(BEYOND_THE_AGENT)
        bounds = [(None, None if i < free else 0.0) for i in range(data.shape[1])] + [(None, None)]
        start = np.zeros(data.shape[1] + 1)

        def loss(weights: NDArray[Any], strength: float) -> tuple[float, NDArray[Any]]:
            margins = (data @ weights[:-1] + weights[-1]) * signs
            slopes = -signs * self.row_weights / (1 + np.exp(np.minimum(margins, 500)))
            value = (
                strength * (self.row_weights @ np.logaddexp(0, -margins))
                + weights[:-1] @ weights[:-1] / 2
            )
            return value, np.append(
                strength * (transposed @ slopes) + weights[:-1], strength * slopes.sum()
            )

        for strength in strengths:
            start = minimize(
                loss, start, args=(strength,), jac=True, method="L-BFGS-B", bounds=bounds,
                options={"maxiter": 500, "ftol": 1e-6, "gtol": 1e-3},
            ).x  # fmt: skip
            yield _Weights(start[:-1].copy(), float(start[-1]))

    def fitted(
        self,
        fit: _Weights,
        strength: float,
        slope: float,
        offset: float,
        guard: NoveltyGuard | None,
    ) -> FittedRegression:
        """Returns the weights as in the file: for unscaled features, including the calibration."""
        weights = (fit.columns * slope).tolist()
        count = len(self.centre)
        pairs = zip(weights[:count], self.factor.tolist(), self.centre.tolist(), strict=True)
        features = [
            (_rounded(weight * factor), _rounded(centre)) for weight, factor, centre in pairs
        ]
        scale = _SCALE if self.table.bounded else 1.0
        words = {}
        for text, columns in self.columns.items():
            terms, count_after = self.table.words[text][1], count + len(columns)
            pairs_of_words = zip(columns, weights[count:count_after], strict=True)
            words[text] = {
                terms[c]: _rounded(w * scale)
                for c, w in pairs_of_words
                if w or not self.table.bounded
            }
            count = count_after
        bias = _rounded(fit.bias * slope + offset)
        return FittedRegression(self.table, strength, slope, offset, bias, features, words, guard)


def _common(words: Any, tasks: NDArray[Any]) -> list[int]:
    import numpy as np
    from scipy.sparse import csr_matrix

    members = csr_matrix((np.ones(len(tasks)), (tasks, np.arange(len(tasks)))))
    spread = np.bincount((members @ words).tocsr().indices, minlength=words.shape[1])
    return [int(column) for column in np.flatnonzero(spread >= TASKS_OF_A_WORD)]


def _rounded(value: float) -> float:
    """Rounds to five digits, for small files and to hide differences between machines."""
    return float(f"{value:.5g}")


# Cross-validation


def cross_validated(runs: Sequence[FitExample], seed: int) -> list[float | None]:
    """Returns each run's probability from a judge fitted without its task; None if it abstains."""
    table = FeatureTable(runs, bounded=is_bounded(runs))
    return scores_out_of_fold(table, iter_folds(table, seed))


def expect_enough(runs: Sequence[FitExample]) -> None:
    """Raises UsageError if these are too few runs or tasks for a fit."""
    if not enough(runs):
        raise UsageError(
            f"too few labelled runs to fit a judge: {sum(run.success for run in runs)} successes "
            f"and {sum(not run.success for run in runs)} failures in "
            f"{len({run.task for run in runs})} tasks; at least {_MIN_EACH} of each, in "
            f"{_MIN_TASKS} tasks, are needed"
        )


def is_bounded(runs: Sequence[FitExample]) -> bool:
    """Returns whether the runs were read with the narrow features."""
    return "state before" in runs[0].reading.words


def enough(runs: Sequence[FitExample]) -> bool:
    """Returns whether these are enough runs of each outcome, and tasks, for a fit."""
    successes = sum(run.success for run in runs)
    few = min(successes, len(runs) - successes) < _MIN_EACH
    return not few and len({run.task for run in runs}) >= _MIN_TASKS


def iter_folds(
    table: FeatureTable, seed: int
) -> Iterator[tuple[list[int], list[int], FittedRegression]]:
    """Yields each fold's runs, the other runs, and the regression fitted on the other runs."""
    fold_of = grouped_folds(table.tasks, [run.success for run in table.runs], FOLDS, seed)
    for fold in range(FOLDS):
        outside = [i for i, f in enumerate(fold_of) if f != fold]
        yield (
            [i for i, f in enumerate(fold_of) if f == fold],
            outside,
            fit_rows(table, outside, seed),
        )


def scores_out_of_fold(
    table: FeatureTable, folds: Iterable[tuple[list[int], list[int], FittedRegression]]
) -> list[float | None]:
    """Returns the score of each run by the fit without it; None if it abstains."""
    probabilities: list[float | None] = [None] * len(table.runs)
    for inside, _, fitted in folds:
        for i, p in zip(inside, fitted.probabilities(inside), strict=True):
            probabilities[i] = p
    return probabilities
