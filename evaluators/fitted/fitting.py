"""Fits a student judge or a calibration to labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from prill.config.shared import (
    JSON_FILE,
    JUDGED,
    EvidenceOnlyOption,
    LabelsOption,
    OneJudgeOption,
    OutOfFoldOption,
    PlotOption,
)
from prill.datasets.inputs import RecordingsConfig, opened_trajectories, warn_left_out
from prill.errors import UsageError
from prill.evaluators.agreement.agreement import pair
from prill.evaluators.agreement.figure import interval, text_table
from prill.evaluators.fitted.calibration import Bin, Calibration
from prill.evaluators.fitted.calibration_fit import CalibrationResult, Goal, Operating
from prill.evaluators.fitted.calibration_fit import calibrate as fit_calibration
from prill.evaluators.fitted.curve import CurveBand, CurvePoint, learning_curve
from prill.evaluators.fitted.fit import (
    HARDENED_FAMILIES,
    Fit,
    Origin,
    examples,
    fit_with_scores,
)
from prill.evaluators.fitted.guard import OPEN
from prill.evaluators.fitted.overlap import compute_digests, find_overlap, fitted_caution
from prill.evaluators.fitted.regression import FitExample
from prill.evaluators.fitted.stack import RecordedVerdicts, Stacked, StackModel
from prill.evaluators.fitted.stack_card import stack_card
from prill.evaluators.fitted.stack_fit import StackFit, fit_stack
from prill.evaluators.fitted.student import (
    Attacked,
    Kind,
    Student,
    StudentHeldOut,
    StudentModel,
    make_label,
)
from prill.evaluators.labels import gold_labels, make_task
from prill.evaluators.metrics import FEW_CLUSTERS
from prill.io.joining import join, join_labels, record_digest
from prill.io.lines import file_sha256
from prill.io.outputs import check_output, write_output
from prill.io.store import (
    BadLine,
    TrajectoryReader,
    encode,
    read_labels,
    read_verdicts,
)
from prill.io.tables import Table, Tabular
from prill.io.truth import SourceOption, TruthOption
from prill.io.verdict_files import read_verdict_files
from prill.running import Printed, as_run, log
from prill.types import Trajectory

FoldSeedOption = Annotated[
    int, Meta(ge=0, description="Seed for the folds of the cross-validation.")
]
_HELD_OUT_FIGURES = attrgetter(
    *("runs", "successes", "auc", "accuracy", "balanced_accuracy", "kappa", "abstained")
)
_BAR = 20  # characters of a bar in the text diagram
_HELD_OUT: dict[str, type] = {
    "runs": str,
    "judged": int,
    "successes": int,
    "auc": float,
    "accuracy": float,
    "balanced_accuracy": float,
    "kappa": float,
    "abstained": int,
}
_BINS: dict[str, type] = {
    "scores": str,
    "low": float,
    "high": float,
    "runs": int,
    "mean_score": float,
    "success_rate": float,
}


# Fitting a judge to labelled runs


@dataclass(frozen=True, kw_only=True)
class FitConfig(RecordingsConfig):
    """Configuration of `prill fit`: fit a judge to labelled trajectories, without a language
    model.
    """

    labels: LabelsOption
    output: Annotated[str | Path, JSON_FILE]
    kind: Annotated[
        Kind,
        Meta(
            description="student: uses the course of the run and its texts. prior: uses "
            "the course of the run only."
        ),
    ] = "student"
    source: SourceOption = None
    truth: TruthOption = "majority"
    evidence_only: EvidenceOnlyOption = False
    harden: Annotated[
        bool,
        Meta(
            description="Let nothing that an agent can add count as evidence of success, "
            "and fit on attacked copies of failures, too."
        ),
    ] = False
    abstain: Annotated[
        bool,
        Meta(
            description="Leave runs whose last state is unlike those of the fitted runs unscored. "
            "One without a text always is."
        ),
    ] = True
    families: Annotated[
        Sequence[str],
        Meta(
            description="With harden: attacks to fit against, named as in `prill redteam` "
            f"(default {', '.join(HARDENED_FAMILIES)})."
        ),
    ] = ()
    out_of_fold: OutOfFoldOption = None
    with_verdicts: Annotated[
        Sequence[str | Path],
        Meta(
            description="Verdict files of other judges, one judge per file. Fits one judge "
            "on all their scores (a stacked judge)."
        ),
    ] = ()
    kappa: Annotated[
        float | None,
        Meta(
            gt=0,
            lt=1,
            description="With `with`: call other judges only where this kappa requires it "
            "(default: call all judges).",
        ),
    ] = None
    learning_curve: PlotOption = None
    seed: FoldSeedOption = 0

    def check(self) -> None:
        """Validates options that depend on each other."""
        if self.families and not self.harden:
            raise UsageError("families: only with harden", parameters=("harden",))
        if not self.abstain and (self.harden or self.evidence_only):
            raise UsageError(
                "abstain: a judge for agents that may deceive it has to: a page that is padded, or "
                "written in lookalike letters, hides what counts against success",
                parameters=("abstain",),
            )
        if self.kappa is not None and not self.with_verdicts:
            raise UsageError(
                "kappa: verdict files are missing (with); kappa chooses which of their "
                "judges to call",
                parameters=("with_verdicts",),
            )


@dataclass(frozen=True)
class FitResult(Printed, Tabular):
    """A fitted judge; printing it shows its card.

    Args:
        model: The judge's weights and its card.
        output: The file that holds it.
        out_of_fold: The verdict file of judges fitted without the run's task; None: not requested.
        broken: A message for each trajectory that could not be read.
        stack: The stacked judge in the file, if verdicts of other judges were given; `model` is its
            student.
        curve: The student's figures with fewer labels, if a learning curve was requested.
    """

    chart: ClassVar[str] = "prill.ui.charts:fit_chart"

    model: StudentModel
    output: str
    out_of_fold: str | None = None
    broken: tuple[str, ...] = ()
    stack: StackModel | None = None
    curve: tuple[CurvePoint, ...] = ()

    @property
    def exit_code(self) -> int:
        """Returns 3 if some lines could not be read, else 0."""
        return 3 if self.broken else 0

    def to_dict(self) -> dict[str, Any]:
        """Returns the judge's card as a JSON object."""
        card = self.stack.card if self.stack else self.model.card
        return dict(msgspec.to_builtins(card))

    def table(self) -> Table:
        """Returns one row per slice of the runs, with figures of judges fitted on other tasks.

        Fractions are in [0, 1].
        """
        slices = (*_stacked_held_out(self.stack), *_held_out(self.model))
        rows = ((name, *_HELD_OUT_FIGURES(figures)) for name, figures in slices)
        return Table(tuple(_HELD_OUT), tuple(rows), _HELD_OUT)

    def __str__(self) -> str:
        stacked = () if self.stack is None else (*stack_card(self.stack), "")
        return "\n".join((*stacked, *_card(self.model), *_curve(self.curve)))


@as_run(FitConfig)
def fit(config: FitConfig) -> FitResult:
    """Fits a judge to labelled trajectories and writes it as one JSON file.

    Args:
        config: The trajectories and labels, the type of judge, and the output file.

    Returns:
        The judge with its card: figures from runs that it was not fitted on.

    Raises:
        UsageError: There are too few labelled runs, no label matches, or a file cannot be read or
            written.
        MissingExtraError: scikit-learn is not installed.
    """
    with opened_trajectories(config) as trajectories:
        return _fitted(config, trajectories)


def _fitted(config: FitConfig, trajectories: Sequence[str]) -> FitResult:
    inputs = [*trajectories, config.labels, *config.with_verdicts]
    check_output(config.output, "a fitted judge", inputs)
    if config.out_of_fold:
        check_output(
            config.out_of_fold, "verdicts", [*inputs, config.output], parameter="out_of_fold"
        )
    if config.learning_curve:
        check_output(config.learning_curve, "a diagram", inputs, parameter="learning_curve")
    labels = list(read_labels(config.labels))
    source, gold = gold_labels(labels, config.source, config.truth)
    broken: list[str] = []
    digests: dict[str, str] = {}
    harden = tuple(config.families or HARDENED_FAMILIES) if config.harden else ()
    kind, evidence_only = config.kind, config.evidence_only
    with closing(TrajectoryReader(trajectories)) as reader:
        # Read the same runs again without hardening, to measure what hardening costs.
        readable = (
            list(_good(reader, broken, digests)) if harden else _good(reader, broken, digests)
        )
        runs, left_out = examples(readable, gold, kind, evidence_only, harden)
    plain = examples(readable, gold, kind, evidence_only)[0] if harden else ()
    if not runs:
        raise UsageError(
            f"no trajectory has a decided label of source {source!r}; check that the ids of "
            "both files match"
        )
    warn_left_out(config.labels, join_labels(labels, digests)[1])
    result = fit_with_scores(
        runs,
        kind,
        evidence_only,
        hardened=bool(harden),
        seed=config.seed,
        left_out=left_out + len(broken),
        origin=Origin(data=tuple(file_sha256(str(path)) for path in inputs), source=source),
        plain=plain,
        abstain=config.abstain,
    )
    model, ids = result.model, [run.id for run in runs]
    stacked = _stacked(config, result, runs, digests) if config.with_verdicts else None
    data = encode(stacked.model if stacked else model)
    write_output(config.output, data)
    log.info("%s -> %s (%.0f kB)", "stacked" if stacked else kind, config.output, len(data) / 1000)
    if config.out_of_fold:
        label = make_label(data)
        if stacked:
            sources = [RecordedVerdicts(source.judge, {}) for source in stacked.model.sources]
            judge = Stacked(stacked.model, sources, label=label)
            held_out = judge.out_of_fold(ids, stacked.out_of_fold)
        else:
            held_out = Student(model, label=label).out_of_fold(
                ids, result.out_of_fold, [run.told for run in runs]
            )
        on_runs = (replace(verdict, record=digests[verdict.id]) for verdict in held_out)
        write_output(config.out_of_fold, b"".join(map(encode, on_runs)))
        log.info(
            "%d verdicts, each by a judge fitted without the run's task -> %s",
            len(runs),
            config.out_of_fold,
        )
    for problem in broken[:10]:
        log.warning("left out: %s", problem)
    out_of_fold = str(config.out_of_fold) if config.out_of_fold else None
    stack = stacked.model if stacked else None
    curve = learning_curve(runs, model, seed=config.seed) if config.learning_curve else ()
    fitted = FitResult(model, str(config.output), out_of_fold, tuple(broken), stack, curve)
    if config.learning_curve:
        write_output(config.learning_curve, fitted.svg().encode())
    return fitted


def _stacked(
    config: FitConfig, student: Fit, runs: Sequence[FitExample], digests: Mapping[str, str]
) -> StackFit:
    """Fits the stacked judge; rejects verdicts of a judge that was fitted on these runs."""
    judges = []
    for path in config.with_verdicts:
        try:
            joined = join(read_verdicts(path), (), digests)
        except UsageError as error:
            raise UsageError(f"{path}: {error}", parameters=("with_verdicts",)) from None
        warn_left_out(path, joined.counts)
        info, latest = joined.judge, joined.verdicts
        overlap = find_overlap(latest[run.id] for run in runs if run.id in latest)
        caution = fitted_caution(info.name, overlap)
        if caution and overlap and overlap.flatters:
            raise UsageError(
                f"{path}: {caution}. Use its out-of-fold verdicts",
                parameters=("with_verdicts",),
            )
        if caution:
            log.warning("%s: %s", path, caution)
        judges.append((info, latest))
    return fit_stack(student, runs, judges, seed=config.seed, kappa=config.kappa)


def _good(
    reader: TrajectoryReader, broken: list[str], digests: dict[str, str]
) -> Iterator[Trajectory]:
    """Yields the readable runs; adds the others' problems to `broken`, and each run's digest."""
    for _, item in reader:
        if isinstance(item, BadLine):
            broken.append(item.message)
        else:
            digests[item.id] = record_digest(item)
            yield item


def _stacked_held_out(stack: StackModel | None) -> Iterator[tuple[str, StudentHeldOut]]:
    if stack is None:
        return
    yield f"stacked, all ({stack.card.folds} folds by task)", stack.card.all_runs
    if stack.card.planned:
        yield "stacked, by its plan", stack.card.planned
    for worth in stack.card.worth:
        yield f"stacked without {worth.name}", worth.without


def _held_out(model: StudentModel) -> Iterator[tuple[str, StudentHeldOut]]:
    facts = model.card
    yield f"all ({facts.folds} folds by task)", facts.all_runs
    if facts.not_hardened:
        yield "all, were it not hardened", facts.not_hardened
    yield "complete runs only", facts.not_cut_off
    yield from (
        (f"{site}, fitted on the other sites", figures)
        for site, figures in facts.other_sites.items()
    )


def _card(model: StudentModel) -> Iterator[str]:
    """Yields the judge's card as lines of text."""
    facts = model.card
    claims = ", without the agent's claims" if model.evidence_only else ""
    hardened = ", hardened" if model.hardened else ""
    yield (
        f"Judge: {model.kind}{claims}{hardened}; success from a probability of {model.threshold:g}"
    )
    left_out = f"; {facts.left_out} without label or steps left out" if facts.left_out else ""
    runs = f"{facts.runs} runs of {facts.tasks} tasks, {facts.successes} successes"
    yield f"Fitted on {runs}; labels: {facts.source or 'unknown'}{left_out}"
    yield ""
    heading = ("runs", "successes", "AUC", "accuracy", "balanced", "kappa", "abstains")
    rows = ((name, *_HELD_OUT_FIGURES(figures)) for name, figures in _held_out(model))
    yield from text_table(("on runs it was not fitted on", *heading), rows)
    yield ""
    yield from _attacks(facts.attacks)
    if model.guard is not None and model.guard == OPEN:
        most = model.guard.characters[1]
        yield f"It judges every run whose last state has a text, of up to {most:,} characters."
    elif guard := model.guard:
        yield (
            f"It judges last states of {guard.characters[0]:,} to {guard.characters[1]:,} "
            f"characters and {guard.words[0]:,} to {guard.words[1]:,} different words, of "
            f"which it knows {guard.coverage:.0%}; other runs are unscored (no_evidence)."
        )
    if facts.band.low > 0:
        yield (
            f"At least 95 % of the runs with a score below {facts.band.low:g} were "
            "failures: a cascade calls the second judge above it."
        )
    if facts.other_sites:
        yield ("It was fitted on these sites; the rows by site show its accuracy on other sites.")
    else:
        yield (
            "It was fitted on runs like these; there are too few sites to estimate its "
            "accuracy on other sites."
        )
    yield _conclusion(facts.all_runs)


def _conclusion(figures: StudentHeldOut) -> str:
    """Returns one sentence on what the fitted judge is usable for, by its held-out figures."""
    if not figures.kappa or figures.kappa <= 0:
        return "In short: no better than chance on runs that it was not fitted on."
    return (
        f"In short: better than chance on runs like these, at kappa {figures.kappa:.2f}: usable "
        "where `prill agree` on new labels confirms it."
    )


def _curve(points: Sequence[CurvePoint]) -> Iterator[str]:
    if not points:
        return
    yield ""
    heading = ("with fewer labels", "tasks", "AUC", "range of splits", "kappa", "range of splits")
    rows = (
        (f"{one.labels:.0f}", round(one.tasks), *_band(one.auc), *_band(one.kappa))
        for one in points
    )
    yield from text_table(heading, rows)
    first, last = points[-2:] if len(points) > 1 else (points[0], points[0])
    if first.auc and last.auc and first is not last:
        more = last.labels - first.labels
        gain = last.auc.mean - first.auc.mean
        spread = last.auc.high - last.auc.low
        yield (
            (
                f"The last {more:.0f} labels changed the AUC by {gain:+.3f}; different splits "
                f"of the same labels differ by {spread:.3f}."
            )
            + (" More labels like these will change little." if abs(gain) < spread / 2 else "")
        )


def _attacks(attacks: Mapping[str, Attacked]) -> Iterator[str]:
    """Yields, for each attack family, the failures judged as successes by judges fitted without
    their tasks.
    """
    if not attacks:
        return
    heading = ("failures called successes", "runs", "before", "attacked")
    rows = (
        (name, a.failures, f"{a.before:>6.1%}", f"{a.hardened:>6.1%}", f"{a.unseen:>6.1%}")
        for name, a in sorted(attacks.items())
    )
    yield from text_table((*heading, "fitted without that family"), rows)
    yield ""


def _band(band: CurveBand | None) -> tuple[float | None, str]:
    return (None, "") if band is None else (band.mean, interval((band.low, band.high)))


# Calibrating scores to probabilities, and choosing a threshold


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig(RecordingsConfig):
    """Configuration of `prill calibrate`: make a judge's scores probabilities, and choose a
    threshold.
    """

    verdicts: OneJudgeOption
    labels: LabelsOption
    output: Annotated[str | Path, JSON_FILE]
    method: Annotated[
        Literal["auto", "isotonic", "platt"],
        Meta(
            description="platt: a curve with two parameters. isotonic: any increasing step "
            "function. auto: platt, or isotonic if it is clearly better on held-out runs."
        ),
    ] = "auto"
    source: SourceOption = None
    truth: TruthOption = "majority"
    trajectories: Annotated[Sequence[str | Path], JUDGED] = ()
    target_precision: Annotated[
        float | None,
        Meta(
            gt=0,
            lt=1,
            description="Choose the lowest threshold with this precision, at 95 % confidence.",
        ),
    ] = None
    cost_fp: Annotated[
        float | None, Meta(gt=0, description="Cost of a false positive. Requires cost_fn.")
    ] = None
    cost_fn: Annotated[
        float | None, Meta(gt=0, description="Cost of a false negative, in the same unit.")
    ] = None
    plot: PlotOption = None
    seed: FoldSeedOption = 0

    def check(self) -> None:
        """Validates options that depend on each other."""
        if (self.cost_fp is None) != (self.cost_fn is None):
            raise UsageError(
                "cost_fp and cost_fn: give both; only their ratio matters",
                parameters=("cost_fp", "cost_fn"),
            )
        if self.cost_fp is not None and self.target_precision is not None:
            raise UsageError(
                "give either target_precision or the costs, not both",
                parameters=("target_precision", "cost_fp"),
            )

    @property
    def criterion(self) -> Goal:
        """Returns the criterion for the threshold."""
        costs = (
            None if self.cost_fp is None or self.cost_fn is None else (self.cost_fp, self.cost_fn)
        )
        return Goal(precision=self.target_precision, costs=costs)


@dataclass(frozen=True)
class CalibrateResult(Printed, Tabular):
    """A calibration and its quality; a notebook shows its reliability diagram.

    Args:
        figures: The calibration, the threshold, and their figures on held-out runs.
        output: The file that holds the calibration.
    """

    chart: ClassVar[str] = "prill.ui.charts:calibration_chart"

    figures: CalibrationResult
    output: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as a JSON object."""
        return dict(msgspec.to_builtins(self.figures))

    @property
    def calibration(self) -> Calibration:
        """Returns the map from scores to probabilities: `calibration(score)` returns one in [0,
        1].
        """
        return self.figures.calibration

    @property
    def threshold(self) -> float:
        """Returns the lowest calibrated score that counts as success."""
        return self.calibration.threshold

    def table(self) -> Table:
        """Returns one row per tenth of the scores, before and after calibration.

        A row has the number of runs, their mean score, and their success rate.
        """
        rows = (
            (when, b.low, b.high, b.count, b.mean_score, b.success_rate)
            for when, bins in (("before", self.figures.before), ("after", self.figures.after))
            for b in bins
        )
        return Table(tuple(_BINS), tuple(rows), _BINS)

    def __str__(self) -> str:
        return "\n".join(_page(self.figures))


@as_run(CalibrateConfig)
def calibrate(config: CalibrateConfig) -> CalibrateResult:
    """Fits a calibration of one judge's scores, chooses a threshold, and writes both to a file.

    Args:
        config: The verdicts and labels, the criterion for the threshold, and the output file.

    Returns:
        The calibration, with figures from runs that it was not fitted to.

    Raises:
        UsageError: There are too few labels, no threshold reaches the precision, or a file cannot
            be read or written.
        MissingExtraError: scikit-learn is not installed.
    """
    inputs = [*config.verdicts, config.labels, *config.trajectories]
    check_output(config.output, "a calibration", inputs)
    if config.plot:
        check_output(config.plot, "a diagram", [*inputs, config.output], parameter="plot")
    tasks = digests = records = None
    if config.trajectories:
        known = {
            run.id: (make_task(run), compute_digests(run), record_digest(run))
            for run in config.runs()
        }
        tasks = {id: task for id, (task, _, _) in known.items()}
        digests = {id: digest for id, (_, digest, _) in known.items()}
        records = {id: record for id, (_, _, record) in known.items()}
    verdicts, labels = read_verdict_files(config.verdicts), read_labels(config.labels)
    pairing = pair(verdicts, labels, config.source, config.truth, records)
    figures = fit_calibration(pairing, config.method, config.criterion, tasks, config.seed, digests)
    result = CalibrateResult(figures, str(config.output))
    write_output(config.output, encode(result.calibration))
    if config.plot:
        write_output(config.plot, result.svg().encode())
    log.info("calibration of %s -> %s", result.calibration.evaluator.name, config.output)
    return result


def _page(result: CalibrationResult) -> Iterator[str]:
    """Yields the calibration as lines of text."""
    fit = result.calibration
    yield f"Judge: {fit.evaluator.title}"
    unscored = f"; {fit.unscored} unscored left out" if fit.unscored else ""
    yield f"Labels: {fit.source}, {fit.labelled} scored runs, {fit.successes} successes{unscored}"
    if caution := fitted_caution(fit.evaluator.name, result.fitted):
        yield f"Warning: {caution}"
    yield from result.joined.lines()
    yield f"Held out: {fit.folds} folds by {fit.grouped_by}"
    yield f"Method: {fit.map.method} ({fit.method_rule})"
    yield ""
    names = "Brier score", "calibration error, 10 equal widths"
    errors = [
        (f"{one.brier:.4f}", f"{one.calibration_error:.4f}") for one in (fit.before, fit.after)
    ]
    yield from text_table(("", "before", "after"), zip(names, *errors, strict=True))
    if fit.after.brier >= fit.before.brier:
        yield (
            f"Not better than before on held-out runs: {fit.labelled} runs are too few for a "
            "curve, or the scores were as good already"
        )
    yield ""
    yield from _diagram("before", result.before)
    yield ""
    yield from _diagram(f"after ({fit.map.method})", result.after)
    yield ""
    if result.values <= 2:
        yield (
            f"The judge gave {result.values} different score{'s' * (result.values != 1)}, "
            "which limits the calibration. A model that returns log-probabilities gives "
            "finer scores."
        )
        yield ""
    yield f"Threshold {fit.threshold:g}: {fit.rule}"
    yield f"  on all {fit.labelled} runs: {_figures(result.chosen)}"
    yield f"  chosen on some folds, tried on the other: {_figures(result.tried, bound=True)}"
    if result.missed:
        yield (
            "  held out, this is less than the target: there are too few runs to rely on "
            "this threshold"
        )
    if result.cost is not None and result.constant_cost is not None:
        yield (
            f"  cost per run, held out: {result.cost:.4f}; of the cheaper constant verdict: "
            f"{result.constant_cost:.4f}"
        )
    yield (
        "Bounds assume independent runs; runs of one task are not fully independent, so "
        "leave a margin."
    )
    if result.clusters < FEW_CLUSTERS:
        units = "tasks" if fit.grouped_by == "task" else "runs"
        yield (
            f"Warning: {result.clusters} {units}; with fewer than {FEW_CLUSTERS}, no curve "
            "and no bound is reliable"
        )
    rate = fit.successes / fit.labelled
    yield (
        "In short: usable as probabilities of success on runs like these."
        if fit.after.brier < rate * (1 - rate)
        else "In short: no better than chance: the success rate of the labels alone, "
        f"{rate:.3f}, is the better probability."
    )


def _figures(operating: Operating, *, bound: bool = False) -> str:
    if operating.precision is None:
        return "no run is called a success"
    recall = "-" if operating.recall is None else f"{operating.recall:.3f}"
    # Figures on the runs that a threshold was chosen on are too optimistic; the rule states the
    # guaranteed bound.
    least = f"; at least {operating.bound:.3f} with 95 % confidence" if bound else ""
    return (
        f"precision {operating.precision:.3f} ({operating.right} of "
        f"{operating.called}{least}), recall {recall}"
    )


def _diagram(name: str, bins: Sequence[Bin]) -> Iterator[str]:
    rows = []
    for b in bins:
        bar = ("█" * round(b.success_rate * _BAR)).ljust(_BAR, "·")
        index = min(_BAR - 1, int(b.mean_score * _BAR))
        bar = f"{bar[:index]}|{bar[index + 1 :]}"
        rows.append((f"{b.low:.1f} to {b.high:.1f}", b.count, b.mean_score, b.success_rate, bar))
    yield from text_table((name, "runs", "mean score", "successes", ""), rows)
