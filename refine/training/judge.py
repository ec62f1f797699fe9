"""Trains a judge on labelled trajectories, or on the verdicts of another judge."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from prill.captioner.registry import captioner_for
from prill.config.shared import TRAJECTORIES, OutOfFoldOption
from prill.datasets.inputs import opened_folders, warn_left_out
from prill.errors import UsageError
from prill.evaluators.fitted.calibration import quality
from prill.evaluators.fitted.features import read
from prill.evaluators.fitted.guard import fit_guard
from prill.evaluators.fitted.overlap import OUT_OF_FOLD, FittedRuns, compute_digests
from prill.evaluators.labels import grouped_folds, make_task
from prill.evaluators.metrics import FIGURES, auc, auc_interval, count_outcomes, figures, intervals
from prill.evaluators.readers import LABELS, OUTCOMES
from prill.evaluators.registry import JudgeConfig, is_description, judge_options, make_judge
from prill.evaluators.scoring.scorer import score_stream
from prill.evaluators.wrappers.guarded import GuardFile
from prill.io.joining import join, join_labels, record_digest
from prill.io.outputs import (
    check_output,
    expect_writable,
    is_same_file,
    make_folder,
    write_output,
    writing,
)
from prill.io.store import BadLine, TrajectoryReader, encode, read_labels, read_verdicts
from prill.io.truth import SourceOption, TruthOption, collect_labels, decide_truth
from prill.io.verdict_files import read_verdict_files
from prill.refine.formats import make_format
from prill.refine.judge_rows import (
    Grouping,
    RequestRecorder,
    Truth,
    group_of,
    judge_rows,
    truths_from,
)
from prill.refine.training.preflight import Say, TrainingPlan
from prill.refine.training.samples import Sample, first_difference
from prill.refine.training.spec import DEFAULT_PRESETS, Trained, TrainSpec
from prill.refine.training.train import PresetConfig, PresetOption, Recipe, TrainConfig
from prill.refine.training.weights import keeps_logits
from prill.running import log, wait_for
from prill.types import Trajectory, Verdict

JUDGE, GUARD, FOLDS = "judge.json", "guard.json", "folds"
_REACHED = next(word for word, label in LABELS.items() if label == "reached")
_SHOWN = ("accuracy", "balanced accuracy", "kappa")
_UNMEASURED = "not measured: a probability can be read without a reply only of bare verdicts"
_MODULAR = JudgeConfig("modular")
_PRESET = PresetConfig(DEFAULT_PRESETS["judge"])


@dataclass(frozen=True, kw_only=True)
class TrainJudgeConfig(TrainConfig):
    """Configuration of `prill train judge`: a judge from labelled trajectories, or from the
    verdicts of another judge.
    """

    trains: ClassVar[Trained] = "judge"

    rows: Annotated[str | Path, TRAJECTORIES]
    labels: Annotated[
        str | Path | None,
        Meta(
            description="Label file to learn from. With teacher: labels that the "
            "teacher's verdicts must agree with."
        ),
    ] = None
    teacher_verdicts: Annotated[
        str | Path | None, Meta(description="Verdicts of another judge to learn from.")
    ] = None
    agreeing: Annotated[
        str | Path | None,
        Meta(
            description="Verdicts of a second judge. Trajectories on which the two judges "
            "differ are left out."
        ),
    ] = None
    soft_labels: Annotated[
        bool,
        Meta(description="Learn the teacher's probability of success, with form = word."),
    ] = False
    judge: Annotated[
        JudgeConfig | str | Mapping[str, Any],
        Meta(
            description="Judge to train: modular, vlm, steps, likelihood, or another page whose "
            "replies a label determines, such as FILE.toml. Its `form` is word by default."
        ),
    ] = _MODULAR
    grouping: Annotated[
        Grouping,
        Meta(
            description="Unit that the held-out split does not divide: a task, its "
            "template, or a goal."
        ),
    ] = "task"
    out_of_fold: OutOfFoldOption = None
    folds: Annotated[
        int,
        Meta(ge=2, le=20, description="Number of judges to train for the out-of-fold verdicts."),
    ] = 3
    source: SourceOption = None
    truth: TruthOption = "majority"
    preset: PresetOption = _PRESET

    def check(self) -> None:
        """Validates that there are labels or teacher verdicts to train on.

        Raises:
            UsageError: There are neither, or soft labels are wanted without a teacher, or in a form
                that states reasons.
        """
        if self.soft_labels and self.teacher_verdicts is None:
            raise UsageError(
                "soft labels are a teacher's probabilities: name its verdicts, or leave them out",
                parameters=("soft_labels", "teacher_verdicts"),
            )
        if self.soft_labels and self.described.get("form") != "word":
            raise UsageError(
                "soft labels need a judge that replies with one word: set its form to word",
                parameters=("soft_labels", "judge"),
            )
        if self.labels is None and self.teacher_verdicts is None:
            raise UsageError(
                "nothing to learn from; give labels, or the verdicts of a teacher",
                parameters=("labels", "teacher_verdicts"),
            )

    @cached_property
    def described(self) -> dict[str, Any]:
        """Returns the judge's name and options for training and for later calls."""
        judge = JudgeConfig.read(self.judge, "judge")
        if not isinstance(judge, JudgeConfig) or is_description(judge.name):
            raise UsageError(
                "judge is missing; give the judge to train, with its options: modular, vlm, "
                "steps, likelihood, or a page (FILE.toml)",
                parameters=("judge",),
            )
        table, options = dict(judge.mapping()), judge_options(judge.name)
        if "form" in options:
            table.setdefault("form", "word")
        if "captioner" in options and options["captioner"].required:
            table.setdefault("captioner", captioner_for(opened_folders([self.rows])))
        return table

    @contextmanager
    def training_rows(self, *, planned: bool = False) -> Iterator[str | Path]:
        """Yields the file of rows next to the output; a temporary file for a dry run."""
        output = Path(self.output)
        with tempfile.TemporaryDirectory() as passing:
            folder = Path(passing) if planned else output.parent
            path = folder / f"{output.name}.rows.jsonl"
            inputs = (self.rows, self.labels, self.teacher_verdicts, self.agreeing)
            if self.out_of_fold is not None:
                check_output(self.out_of_fold, "verdicts", inputs, parameter="out_of_fold")
                _ = self._parts  # an error before anything is trained
            if any(other is not None and is_same_file(path, other) for other in inputs):
                raise UsageError(
                    f"{path}: both an input and an output; choose another output",
                    parameters=("output",),
                )
            expect_writable(path)
            make_folder(path)
            made = self.make_rows()
            with writing(path) as file:
                for row in made.rows:
                    file.write(encode(row))
            yield path

    def make_rows(self) -> JudgeRows:
        """Makes the rows, without training; the result is deterministic.

        Returns:
            The rows, to inspect or to `export` for another trainer.

        Raises:
            UsageError: No run gives a row, the judge cannot be trained, or a file cannot be read.
            InputError: A verdict or a label is broken.
        """
        return _make_rows(self)

    def trained(self, folder: Path) -> None:
        """Writes the judge's configuration (`judge.json`) and the range of its training data
        (`guard.json`).
        """
        if (folder / JUDGE).exists() and (folder / GUARD).exists():
            return
        spec, used = self.spec(), self.make_rows().used
        readable = [run for run in used if run.steps]
        guard = fit_guard(
            [read(run, "student", evidence_only=False) for run in readable],
            [make_task(run) for run in readable],
        )
        known = GuardFile(
            guard=guard if guard.vocabulary else None,
            fitted_to=FittedRuns.of(map(compute_digests, used)),
        )
        model: dict[str, Any] = {"name": f"local:{folder if spec.method == 'full' else spec.model}"}
        if spec.method != "full":
            model["adapter"] = str(folder)
        write_output(folder / GUARD, msgspec.json.encode(known) + b"\n")
        about = {**self.described, "model": model, "guard": str(folder / GUARD)}
        write_output(folder / JUDGE, msgspec.json.format(msgspec.json.encode(about)) + b"\n")

    def fold_trainings(self, folder: Path) -> Sequence[TrainJudgeConfig]:
        """Returns the trainings of the `out_of_fold` judges, each without a part of the runs."""
        if self.out_of_fold is None:
            return ()
        trainings = []
        for number, apart in enumerate(self._parts):
            left_out = {run.id for run in apart}
            learned: dict[str, Any] = {}
            for name in ("labels",) if self.teacher_verdicts is None else ("teacher_verdicts",):
                learned[name] = folder / FOLDS / f"{number}.{name}.jsonl"
                read: Any = read_labels if name == "labels" else read_verdicts
                records = (r for r in read(getattr(self, name)) if r.id not in left_out)
                write_output(learned[name], b"".join(map(encode, records)))
            output = folder / FOLDS / str(number)
            trainings.append(replace(self, output=output, out_of_fold=None, **learned))
        return trainings

    def folds_trained(self, folder: Path, say: Say) -> None:
        """Writes out-of-fold verdicts, in the name of the judge that learned from all runs."""
        if self.out_of_fold is None:
            return
        info = make_judge(folder / JUDGE).info
        ids = [run.id for part in self._parts for run in part]
        verdicts: dict[str, Verdict] = {}

        async def judge_folds() -> None:
            for number, apart in enumerate(self._parts):
                judge = make_judge(folder / FOLDS / str(number) / JUDGE)
                async for verdict in score_stream(apart, judge):
                    reason = "; ".join(filter(None, (verdict.reason, OUT_OF_FOLD)))
                    verdicts[verdict.id] = replace(verdict, evaluator=info, key="", reason=reason)
                    say("out of fold", len(verdicts), len(ids))

        wait_for(judge_folds)
        write_output(self.out_of_fold, b"".join(encode(verdicts[id]) for id in ids))
        log.info(
            "%d verdicts, each by a judge trained without the run's %s -> %s",
            len(verdicts),
            self.grouping,
            self.out_of_fold,
        )

    @property
    def fold_count(self) -> int:
        """Returns the number of judges for `out_of_fold`."""
        return 0 if self.out_of_fold is None else self.folds

    @cached_property
    def _parts(self) -> list[list[Trajectory]]:
        """The runs with an outcome to learn, by the fold that leaves them out.

        Raises UsageError if the runs of the other folds do not have both outcomes.
        """
        truths, _ = _truths(self)
        outcomes = {id: t.success for id, t in truths.items() if t.success is not None}
        with closing(TrajectoryReader(opened_folders([self.rows]))) as reader:
            runs = [r for _, r in reader if not isinstance(r, BadLine) and r.id in outcomes]
        groups = [group_of(run, self.grouping) for run in runs]
        fold_of = grouped_folds(groups, [outcomes[run.id] for run in runs], self.folds, 0)
        parts: list[list[Trajectory]] = [[] for _ in range(self.folds)]
        for run, fold in zip(runs, fold_of, strict=True):
            parts[fold].append(run)
        for number, apart in enumerate(parts):
            others = {outcomes[r.id] for i, part in enumerate(parts) if i != number for r in part}
            if not apart or len(others) < 2:
                raise UsageError(
                    f"{self.folds} folds of {len(set(groups))} groups by {self.grouping}: one is "
                    "empty, or leaves no success or no failure to learn from; set fewer folds, or "
                    "label more runs",
                    parameters=("folds",),
                )
        return parts


@dataclass(frozen=True)
class JudgeRows:
    """Rows to train a judge on.

    Attributes:
        rows: The rows in TRL's format: `prompt`, `completion`, `images`, and their source.
        used: The trajectories with rows.
        lost: Runs without rows, by reason.
    """

    rows: tuple[dict[str, Any], ...]
    used: tuple[Trajectory, ...]
    lost: Mapping[str, int]

    def export(self, folder: str | Path, format: str = "trl") -> Path:
        """Writes the rows for a trainer to a folder, which is created.

        `format` is trl, llama-factory, ms-swift, axolotl, or `module:Object`. Returns the file of
        rows, next to the trainer's configuration for loading it.
        """
        target, written = Path(folder), make_format(format)
        path = target / "sft.jsonl"
        make_folder(path)
        with writing(path) as file:
            for row in self.rows:
                file.write(encode(written.row("sft", row)))
        images = any("images" in row for row in self.rows)
        for name, text in written.other_files(["sft"], images=images).items():
            write_output(target / name, text.encode())
        return path


def _make_rows(config: TrainJudgeConfig) -> JudgeRows:
    truths, lost = _truths(config)
    recorder = RequestRecorder()
    judge = make_judge(config.described, model=recorder)
    rows: list[dict[str, Any]] = []
    used: list[Trajectory] = []

    async def collect() -> None:
        with closing(TrajectoryReader(opened_folders([config.rows]))) as reader:
            for _, item in reader:
                if isinstance(item, BadLine):
                    lost["broken line"] += 1
                    continue
                truth = truths.get(item.id)
                if truth is None:
                    lost["nothing to learn"] += 1
                    continue
                found = await judge_rows(
                    judge,
                    recorder,
                    item,
                    truth,
                    grouping=config.grouping,
                    soft=config.soft_labels,
                )
                if isinstance(found, str):
                    lost[found] += 1
                    continue
                rows.extend(found)
                used.append(item)

    wait_for(collect)
    if lost:
        reasons = ", ".join(f"{count} {why}" for why, count in Counter(lost).most_common())
        log.info("%d rows of %d runs; runs without one: %s", len(rows), len(used), reasons)
    if not rows:
        raise UsageError(
            f"{config.rows}: no run gives a row ({dict(lost)}); check that the ids of "
            "labels and verdicts match",
            parameters=("labels", "teacher_verdicts"),
        )
    return JudgeRows(tuple(rows), tuple(used), dict(lost))


def _truths(config: TrainJudgeConfig) -> tuple[dict[str, Truth], Counter[str]]:
    """Returns what to learn of each run, and the counts of runs left out by reason."""
    with closing(TrajectoryReader(opened_folders([config.rows]))) as reader:
        runs = {r.id: record_digest(r) for _, r in reader if not isinstance(r, BadLine)}

    def judged(path: str | Path | None) -> dict[str, Verdict] | None:
        if path is None:
            return None
        joined = join(read_verdict_files(path), (), runs)
        warn_left_out(path, joined.counts)
        return joined.verdicts

    labels = None if config.labels is None else _labelled(config, runs)
    return truths_from(labels, judged(config.teacher_verdicts), judged(config.agreeing))


def _labelled(config: TrainJudgeConfig, runs: Mapping[str, str]) -> dict[str, Truth]:
    """Returns the label of each labelled run; steps on which annotators disagree have none."""
    assert config.labels is not None
    labels = list(read_labels(config.labels))
    warn_left_out(config.labels, join_labels(labels, runs)[1])
    _, by_id = collect_labels(labels, config.source, config.truth)
    truths = {}
    for id, records in by_id.items():
        steps: dict[int, set[Any]] = {}
        for record in records:
            for step in record.steps or ():
                steps.setdefault(step.index, set()).add(step.label)
        truths[id] = Truth(
            decide_truth(records, config.truth),
            steps={index: labels.pop() for index, labels in steps.items() if len(labels) == 1},
        )
    return truths


class JudgeRecipe(Recipe):
    """The recipe for a judge: rows of `prill.refine.judge_rows`, trained by TRL."""

    caution: ClassVar[str] = (
        "It is for runs like those it learnt from, asked in the same words (`judge.json`)."
    )

    def plan(self, spec: TrainSpec, *args: Any, **rest: Any) -> TrainingPlan:
        """Reads and measures the rows. Raises UsageError if a row not `given` has no verdict."""
        plan = super().plan(spec, *args, **rest)
        for sample in plan.rows.samples:
            if not sample.given and (sample.verdict is None or sample.verdict not in sample.answer):
                raise UsageError(
                    f"{plan.rows.path}:{sample.line}: not the row of a judge, because its "
                    "completion contains no `verdict`"
                )
        return plan

    def figures(self, trainer: Any, plan: TrainingPlan, say: Say) -> dict[str, Any]:
        """Compares probabilities of success with the labels of the held-out tasks."""
        rows = plan.held_out
        if not rows or (chosen := _choices(rows)) is None:
            return {"held_out_figures": None}
        good, others = chosen
        scores = held_out_scores(
            trainer, plan, good, others, lambda done: say("held out", done, len(rows))
        )
        truths = [sample.verdict == good for sample in rows]
        return {"held_out_figures": measure(scores, truths, [sample.group for sample in rows])}

    def title(self, spec: TrainSpec) -> str:
        """Returns the heading of the model card."""
        return "A judge: whether an agent did what was asked"

    def table(self, figures: Mapping[str, Any]) -> str:
        """Formats the held-out figures and a reliability table."""
        found = figures.get("held_out_figures")
        if found is None:
            return f"\nHeld-out figures: {_UNMEASURED}, on rows that were kept apart.\n"
        lines = [
            f"\n| on {found['rows']} rows of {found['groups']} tasks that were kept apart, "
            f"{found['successes']} of them successes | | 95 % interval, by task |",
            "|---|---|---|",
        ]
        for name in (*_SHOWN, "auc"):
            value, interval = found[name], found["intervals"].get(name)
            shown = "-" if value is None else f"{value:.3f}"
            bounds = "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
            lines.append(f"| {name} | {shown} | {bounds} |")
        lines += [
            f"| Brier score | {found['brier']:.3f} | |",
            f"| expected calibration error | {found['calibration_error']:.3f} | |",
        ]
        return "\n".join(lines) + "\n"


def measure(
    scores: Sequence[float], truths: Sequence[bool], groups: Sequence[str]
) -> dict[str, Any]:
    """Computes the figures of scores at threshold 0.5, with bootstrap intervals over groups."""
    import numpy as np

    tables = count_outcomes(groups, [score >= 0.5 for score in scores], truths)
    value = figures(tables.sum(axis=0, keepdims=True))[0]
    low, high = intervals(tables)
    found: dict[str, Any] = {
        "rows": len(scores),
        "groups": len(tables),
        "successes": sum(truths),
        "intervals": {},
    }
    for name in _SHOWN:
        i = FIGURES.index(name)
        found[name] = None if np.isnan(value[i]) else round(float(value[i]), 4)
        if not np.isnan(low[i]) and low[i] < high[i]:
            found["intervals"][name] = [round(float(low[i]), 4), round(float(high[i]), 4)]
    area = auc(scores, truths)
    found["auc"] = None if area is None else round(area, 4)
    if area is not None and (interval := auc_interval(scores, truths, groups)) is not None:
        found["intervals"]["auc"] = [round(end, 4) for end in interval]
    errors = asdict(quality(scores, truths))
    return found | {name: round(number, 4) for name, number in errors.items()}


def _choices(rows: Sequence[Sample]) -> tuple[str, tuple[str, ...]] | None:
    """Returns the verdict for success, and the others; None if the replies differ in more than the
    verdict, for example in reasons.
    """
    around = {sample.answer.replace(sample.verdict or "", "\0", 1) for sample in rows}
    if len(around) > 1:
        return None
    if all(sample.verdict in OUTCOMES for sample in rows):
        return OUTCOMES[0], OUTCOMES[1:]
    if all(sample.verdict in LABELS for sample in rows):
        return _REACHED, tuple(word for word in LABELS if word != _REACHED)
    return None


def held_out_scores(
    trainer: Any,
    plan: TrainingPlan,
    positive: str,
    others: Sequence[str],
    done: Callable[[int], object] = lambda done: None,
) -> list[float]:
    """Returns P(`positive`) of each held-out row, from the first token at which verdicts differ."""
    torch = import_module("torch")
    model, scores = trainer.model, []
    keeps = keeps_logits(model)
    was_training = model.training
    model.eval()
    try:
        for number, (sample, row) in enumerate(
            zip(plan.held_out, trainer.eval_dataset, strict=True), 1
        ):
            offset, tokens = first_difference(
                sample, (positive, *others), plan.base.reader, sees=plan.base.sees
            )
            batch = trainer.data_collator([row])
            first = int((batch.pop("labels")[0] != -100).nonzero()[0, 0])
            position = first + offset - 1
            batch = {
                name: value.to(model.device) if hasattr(value, "to") else value
                for name, value in batch.items()
            }
            kept = (
                {"logits_to_keep": torch.tensor([position], device=model.device)} if keeps else {}
            )
            with torch.inference_mode():
                logits = model(**batch, **kept, use_cache=False).logits[0]
            chosen = logits[0 if keeps else position].float()[tokens]
            scores.append(float(chosen.softmax(-1)[0]))
            done(number)
    finally:
        model.train(was_training)
    return scores
