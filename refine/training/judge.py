"""The training of a judge: rows with one verdict each, and figures on held-out tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any, ClassVar

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import quality
from prill.evaluators.metrics import FIGURES, auc, auc_interval, count_outcomes, figures, intervals
from prill.evaluators.outcome import OUTCOMES
from prill.evaluators.steps import LABELS
from prill.refine.training.preflight import Say, TrainingPlan
from prill.refine.training.recipe import Recipe
from prill.refine.training.samples import Sample, first_difference
from prill.refine.training.spec import TrainSpec
from prill.refine.training.weights import keeps_logits

_REACHED = next(word for word, label in LABELS.items() if label == "reached")
_SHOWN = ("accuracy", "balanced accuracy", "kappa")
_UNMEASURED = "not measured: a probability can be read without a reply only of bare verdicts"


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
