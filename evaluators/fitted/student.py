"""The student judge (`prill fit`): a fast linear model over features.

It is valid only for runs like those it was fitted on. Its card has the figures for unseen sites,
and every verdict on an unseen site says so. Runs that differ too much from the fitted runs are
unscored (`guard.py`). Fitting: `prill.evaluators.fitted.fit`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from itertools import groupby
from typing import Literal

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import sigmoid
from prill.evaluators.fitted.features import Linear, Reading, Scores, names, read, texts
from prill.evaluators.fitted.guard import NoveltyGuard
from prill.evaluators.fitted.overlap import FittedRuns, held_out_verdicts
from prill.evaluators.fitted.values import describe_values
from prill.evaluators.judgement import WithoutModel
from prill.io.lines import decode_json, read_whole
from prill.types import EvaluatorInfo, FittedOn, Trajectory, Usage, Verdict

FORMAT = "prill student 2"
Kind = Literal["student", "prior"]
_SHOWN, _MIN_SHOWN = 3, 0.05
_THEMES = {
    "state": "the latest states",
    "goal": "the request",
    "claims": "what the agent says",
    "actions": "kinds of action",
}
# A judge with a lower AUC on sites that it was not fitted on returns no verdict for such sites.
MIN_TRANSFER = 0.65
_ADVICE = "make the file with `prill fit`"
_NO_USAGE = Usage()


@dataclass(frozen=True, kw_only=True)
class StudentHeldOut:
    """Held-out figures of the judge; a figure is None if it is undefined, as for runs of one
    outcome.

    `runs` and `successes` count the judged runs; `abstained` counts the unscored runs.
    """

    runs: int
    successes: int
    auc: float | None
    accuracy: float | None
    balanced_accuracy: float | None
    kappa: float | None
    abstained: int = 0


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """False positive rates under a family of attacks, over `failures` attacked copies of failures.

    Abstentions do not count as false positives.

    `before` is the rate without the attack. `hardened` is the rate of a judge that was also fitted
    with copies of this family; `unseen` is the rate of a judge that was fitted only with copies of
    all other families.
    """

    failures: int
    before: float
    hardened: float
    unseen: float


@dataclass(frozen=True, kw_only=True)
class Band:
    """The band outside of which the judge was sure, on held-out runs.

    At most 5 % of the runs scored below `low` and at least 95 % of those above `high` were
    successes. 0 and 1 mean that the judge was never sure.
    """

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class StudentCard:
    """The card of a fitted judge: its data and its held-out figures.

    `data`: SHA-256 of the files, trajectories before labels. `sites` counts runs by site.
    `left_out` runs had no decided label or no step. `all_runs` and `not_cut_off` come from
    `folds`-fold cross-validation grouped by task, and `other_sites` from leaving out one site at a
    time. `transfer` pools these sites: it is the figure for an unknown site. `attacks` has the
    families that the judge was fitted against, and `not_hardened` the figures of a judge fitted
    without them.
    """

    data: tuple[str, ...]
    source: str
    runs: int
    tasks: int
    successes: int
    left_out: int
    sites: dict[str, int]
    folds: int
    seed: int
    strength: float
    versions: dict[str, str]
    all_runs: StudentHeldOut
    not_cut_off: StudentHeldOut
    other_sites: dict[str, StudentHeldOut]
    transfer: StudentHeldOut | None
    band: Band
    attacks: dict[str, Attacked]
    not_hardened: StudentHeldOut | None


@dataclass(frozen=True, kw_only=True)
class StudentModel:
    """The file of a student: calibrated weights on the logit scale.

    `features` has a weight and a centre for each number, `words` a weight for each word.

    With `evidence_only` or `hardened`, no word and no count of actions has a weight above 0. Adding
    text or steps costs an agent nothing, so they must not raise the score. `guard` is None for a
    prior, which reads no page. `fitted_to` has digests of the runs; files of earlier versions lack
    it.
    """

    format: str
    kind: Kind
    evidence_only: bool
    hardened: bool
    bias: float
    features: dict[str, tuple[float, float]]
    words: dict[str, dict[str, float]]
    guard: NoveltyGuard | None
    threshold: float
    card: StudentCard
    fitted_to: FittedRuns | None = None

    @property
    def narrow(self) -> bool:
        """Whether it uses the narrow features: nothing that an agent can add raises the score."""
        return self.kind == "student" and (self.evidence_only or self.hardened)


class Student(WithoutModel):
    """A judge that uses a fitted classifier, without images or a language model.

    `strangers` counts the judged trajectories of unknown sites.

    Args:
        model: The classifier.
        label: The name recorded in verdicts.
        threshold: The minimum probability of a success, in [0, 1]. None: the classifier's own, else
            0.5.
    """

    def __init__(self, model: StudentModel, *, label: str, threshold: float | None = None) -> None:
        self.model = model
        self.threshold = model.threshold if threshold is None else threshold
        params = {
            "evidence_only": model.evidence_only,
            "hardened": model.hardened,
            "threshold": self.threshold,
        }
        self.info = EvaluatorInfo(model.kind, "2", label, params=params)
        self._linear = Linear(
            model.bias, model.features.values(), model.words, against=model.narrow
        )
        self.strangers = Counter[str]()
        self._known_sites = frozenset(model.card.sites)
        self._themes = _themes(list(model.features), self._linear.offsets)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threshold: float | None = None) -> Student:
        """Reads a fitted classifier.

        Args:
            path: A file that `prill fit` wrote.
            threshold: The minimum probability of a success, in [0, 1]. None: the classifier's own,
                else 0.5.

        Raises:
            UsageError: The file cannot be read, or is not a classifier of this version.
        """
        data = read_whole(path, _ADVICE)
        model = decode_json(data, StudentModel, f"{path}: not a fitted judge", _ADVICE)
        check_features(model, path)
        if threshold is not None and not 0 <= threshold <= 1:
            raise UsageError(f"threshold {threshold}: expected a probability from 0 to 1")
        return cls(model, label=make_label(data), threshold=threshold)

    @property
    def needs_claims(self) -> bool:
        """Whether it was fitted with the agents' claims."""
        return self.model.kind == "student" and not self.model.evidence_only

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict; unscored with `no_evidence` if there is too little evidence.

        The reason names the most important features.
        """
        start = time.perf_counter()
        reading, objection = self._read(trajectory)
        if objection is not None or reading is None:
            return Verdict(
                id=trajectory.id,
                unscored="no_evidence",
                reason=objection or "",
                evaluator=self.info,
                fitted_on=self.fitted_on(trajectory),
            )
        scores = self._linear(reading)
        wide = self.model.kind == "student" and not self.model.narrow
        told = describe_values(trajectory) if wide else ""
        reason = f"{told}; {self._reason(scores)}" if told else self._reason(scores)
        score = round(sigmoid(scores.logit), 6)
        return Verdict(
            id=trajectory.id,
            success=score >= self.threshold,
            score=score,
            reason=reason + self._warning(trajectory.task.site),
            usage=_NO_USAGE,
            seconds=round(time.perf_counter() - start, 4),
            evaluator=self.info,
            fitted_on=self.fitted_on(trajectory),
        )

    def fitted_on(self, trajectory: Trajectory) -> FittedOn:
        """Returns the relation of a trajectory to the runs that the classifier was fitted on.

        Returns:
            `run` if it was fitted on this trajectory, `task` if on others of its task, `other` if
            on other tasks, and `unknown` if its file does not record the runs.
        """
        return (
            "unknown" if self.model.fitted_to is None else self.model.fitted_to.relation(trajectory)
        )

    def _read(self, trajectory: Trajectory) -> tuple[Reading | None, str | None]:
        """Returns the features of the trajectory, or the reason why it cannot be judged."""
        if not trajectory.steps:
            return None, "the trajectory has no steps to read"
        model, site = self.model, trajectory.task.site
        transfer = model.card.transfer
        if (
            not self.knows(site)
            and transfer
            and transfer.auc is not None
            and transfer.auc < MIN_TRANSFER
        ):
            self.strangers[site or ""] += 1
            return (
                None,
                f"fitted without runs of {site}, and it does not transfer to other sites "
                f"(AUC {transfer.auc:.2f})",
            )
        reading = read(trajectory, model.kind, model.evidence_only, model.hardened)
        return reading, model.guard.objection(reading) if model.guard else None

    def out_of_fold(
        self, ids: Sequence[str], probabilities: Sequence[float | None], told: Sequence[str] = ()
    ) -> list[Verdict]:
        """Returns verdicts in this judge's name from out-of-fold probabilities.

        Args:
            ids: The trajectory ids.
            probabilities: The probability of success of each, in [0, 1]. None: unscored.
            told: What to say of each trajectory first. Empty: nothing.

        Returns:
            The verdicts, in the same order.
        """
        rounded = [None if p is None else round(p, 6) for p in probabilities]
        found = [(p, p is not None and p >= self.threshold) for p in rounded]
        silent = "not like the runs it was fitted on"
        return held_out_verdicts(self.info, ids, found, silent, told)

    def knows(self, site: str | None) -> bool:
        """Returns whether the classifier was fitted on trajectories of a site.

        Args:
            site: The site. None: the trajectory names none.

        Returns:
            Whether it was; True if no sites are recorded.
        """
        return site is None or not self._known_sites or site in self._known_sites

    def _warning(self, site: str | None) -> str:
        if site is None or self.knows(site):
            return ""
        self.strangers[site] += 1
        transfer = self.model.card.transfer
        if transfer is None or transfer.accuracy is None:
            return f"; fitted without runs of {site}; its accuracy on other sites was not measured"
        return (
            f"; fitted without runs of {site}; its accuracy on other sites was "
            f"{transfer.accuracy:.2f}"
        )

    def _reason(self, scores: Scores) -> str:
        parts = [
            (sum(scores.numbers[first:last]) - offset, name)
            for name, first, last, offset in self._themes
        ]
        parts += [
            (adds, self._quoted(text, adds, known_words))
            for text, adds, known_words in scores.words
        ]
        parts.sort()
        against = [f"{name} {value:+.1f}" for value, name in parts[:_SHOWN] if value <= -_MIN_SHOWN]
        speaking = [
            f"{name} {value:+.1f}"
            for value, name in parts[: -_SHOWN - 1 : -1]
            if value >= _MIN_SHOWN
        ]
        return (
            f"for: {', '.join(speaking) or 'nothing'}; against: {', '.join(against) or 'nothing'}"
        )

    def _quoted(self, text: str, adds: float, known_words: Set[str]) -> str:
        weighted = zip(
            map(self.model.words[text].__getitem__, known_words), known_words, strict=True
        )
        strongest = (nlargest if adds > 0 else nsmallest)(_SHOWN, weighted)
        return f"words of the {text} ({', '.join([word for _, word in strongest])})"


def make_label(data: bytes) -> str:
    """Returns the label of a fitted judge in verdicts, which is the hash of its file."""
    return f"sha256:{hashlib.sha256(data).hexdigest()[:16]}"


def _themes(features: list[str], offsets: list[float]) -> list[tuple[str, int, int, float]]:
    """Returns the themes of adjacent features: description, start, end and mean contribution."""
    themes, first = [], 0
    for theme, group in groupby(features, key=lambda name: name.partition("/")[0]):
        last = first + len(list(group))
        themes.append((_THEMES.get(theme, theme), first, last, sum(offsets[first:last])))
        first = last
    return themes


def check_features(model: StudentModel, path: str | os.PathLike[str]) -> None:
    """Raises UsageError if the model's features are not those of this version."""
    if model.format != FORMAT or tuple(model.features) != names(
        model.kind, model.evidence_only, model.narrow
    ):
        raise UsageError(
            f"{path}: fitted by another version of prill ({model.format}); {_ADVICE} again"
        )
    if set(model.words) != set(texts(model.kind, model.evidence_only, model.narrow)) or (
        model.guard is None
    ) != (model.kind == "prior"):
        raise UsageError(
            f"{path}: not a fitted judge (words of {', '.join(model.words) or 'nothing'}); "
            f"{_ADVICE}"
        )
