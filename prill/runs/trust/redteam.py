"""Attacks a judge and measures how its verdicts change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from prill.errors import UsageError
from prill.evaluators.attacks.families import FAMILIES, Variant
from prill.evaluators.fitted.overlap import fitted_caution
from prill.evaluators.meta.redteam import (
    BEFORE,
    SEED,
    AttackEffect,
    RedTeam,
    Shift,
    judge_attacked,
    labelled_tasks,
    measure,
    select_attacks,
    under_attack,
    worst_by_family,
)
from prill.evaluators.metrics import DRAWS
from prill.evaluators.registry import JudgeLike, make_run_judge
from prill.io.outputs import Content, check_output, expect_file, write_output
from prill.io.store import encode
from prill.io.tables import Table, Tabular
from prill.io.truth import SourceOption, TruthOption
from prill.models.options import BudgetOption, ConcurrencyOption
from prill.protocols import Evaluator
from prill.runs.base import (
    JudgeModelOption,
    Printed,
    RecordingsConfig,
    ResumeVerdictsOption,
    count_lines,
    log,
    opened_trajectories,
    run_budget,
    synchronous,
)
from prill.runs.plan import JudgingPlan, RunPlan, plan_judging, total_usage
from prill.runs.score import priced_model
from prill.scoring.scorer import Tally, lasting_keys
from prill.types import Usage
from prill.ui.report.shifts import shift_svg

_FILES: dict[str, Content] = {
    "redteam.json": "red team figures",
    "redteam.md": "red team figures",
    "redteam.svg": "a diagram",
}
_HEADING = (
    "attack",
    "failures",
    "called success, before → after",
    "change",
    "successes",
    "recall, before → after",
    "change",
)
_SHIFT = ("n", "before", "after", "change", "low", "high")
_COLUMNS: dict[str, type] = {
    "attack": str,
    "family": str,
    "strength": float,
    **dict.fromkeys(("applies", "does_not_apply", "unscored_before", "became_unscored"), int),
    **{
        f"{what}_{name}": int if name == "n" else float
        for what in ("false_positives", "recall")
        for name in _SHIFT
    },
}
_SLACK = 1e-9  # percentage points: a change in points is a sum of binary fractions
# Called with the current attack, the verdicts so far, and the expected number.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class RedteamConfig(RecordingsConfig):
    """Configuration of `prill redteam`: attack a judge with false claims and injected text."""

    labels: Annotated[
        str | Path, Meta(description="Label file. False positives are counted on its failures.")
    ]
    output: Annotated[
        str | Path,
        Meta(
            description="Output folder for verdicts, redteam.json, .md and .svg. An "
            "interrupted run resumes there."
        ),
    ]
    judge: Annotated[
        JudgeLike,
        Meta(description="Judge to attack: a name, FILE.toml, FILE.json or module:Object."),
    ]
    model: JudgeModelOption = None
    attacks: Annotated[
        Sequence[str],
        Meta(
            description="Attack families, single attacks such as pad-after-2000, or "
            f"module:Object of your own (default: all {len(FAMILIES)} families of "
            "docs/how-to/red-team.md)."
        ),
    ] = ()
    max_shift: Annotated[
        float | None,
        Meta(
            ge=0,
            description="Maximum increase of the false positive rate by one attack, in "
            "percentage points. The run fails above it.",
        ),
    ] = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = 16
    limit: Annotated[
        int | None, Meta(ge=1, description="Attack only the first N trajectories.")
    ] = None
    seed: Annotated[int, Meta(ge=0, description="Seed of the bootstrap for the intervals.")] = SEED
    resume: ResumeVerdictsOption = True


@dataclass(frozen=True)
class RedteamResult(Printed, Tabular):
    """The effects of attacks on a judge; printing it shows the worst strength of each family.

    Args:
        figures: The effect of every attack.
        output: The folder with verdicts, table and picture.
        unread: The number of trajectories that could not be read.
        too_far: The attack that exceeds the configuration's `max_shift`; None: none does, or no
            limit is set.
    """

    figures: RedTeam
    output: str
    unread: int = 0
    too_far: str | None = None

    @property
    def worst(self) -> AttackEffect:
        """Returns the attack that adds the most false positives."""
        return worst_by_family(self.figures)[0]

    @property
    def unscored(self) -> bool:
        """Returns whether a verdict is unscored, so that trajectories are excluded from the
        rates.
        """
        return any(
            effect.became_unscored or effect.unscored_before for effect in self.figures.effects
        )

    def svg(self) -> str:
        """Returns the chart of the change by strength, a panel for each family, as SVG text."""
        return shift_svg(self.figures)

    def table(self) -> Table:
        """Returns one row per attack and strength.

        Rates before and after are in [0, 1]; the change has its 95 % interval.
        """
        rows = []
        for effect in self.figures.effects:
            shifts = [
                None if shift is None else getattr(shift, name)
                for shift in (effect.false_positives, effect.recall)
                for name in _SHIFT
            ]
            plain = [getattr(effect, name) for name in _COLUMNS if hasattr(effect, name)]
            rows.append((*plain, *shifts))
        return Table(tuple(_COLUMNS), tuple(rows), _COLUMNS)

    def __str__(self) -> str:
        return markdown(self.figures)


async def redteam_async(
    config: RedteamConfig, *, progress: Progress = lambda attack, done, expected: None
) -> RedteamResult:
    """Judges trajectories unchanged and under each attack, and measures how the verdicts change.

    Verdicts already in the output folder are kept, so the same configuration resumes a stopped run.

    Args:
        config: The judge, the attacks, and the labelled trajectories.
        progress: Called after every verdict with the attack, the verdicts so far, and the expected
            number.

    Returns:
        The effect of every attack; the folder also holds it as JSON, Markdown and SVG.

    Raises:
        UsageError: The configuration is invalid, nothing could be read, or `max_shift` is set and
            no failure was judged with and without an attack.
        EndpointError: The model's endpoint accepts no call.
    """
    folder = Path(config.output)
    with opened_trajectories(config) as trajectories:
        await asyncio.to_thread(_prepare, config, trajectories)
        with run_budget(config.budget_usd, folder=folder, begin_again=not config.resume):
            judge, selection = _attacked(config, trajectories, folder)
            lines = await asyncio.to_thread(count_lines, trajectories, config.limit)
            expected, done = lines * (1 + len(selection)), dict[str, int]()

            def show(attack: str, tally: Tally) -> None:
                done[attack] = tally.skipped + tally.made
                progress(attack, sum(done.values()), expected)

            tallies = await judge_attacked(
                judge,
                trajectories,
                folder,
                selection,
                concurrency=config.concurrency,
                limit=config.limit,
                resume=config.resume,
                progress=show,
            )
        return await asyncio.to_thread(
            _measured, config, trajectories, selection, tallies[BEFORE].unscored["input"]
        )


redteam = synchronous(redteam_async)
"""Runs `redteam_async` with the same parameters, for scripts and notebooks."""


def plan_redteam(config: RedteamConfig) -> RunPlan:
    """Plans the run without calling a model. Raises UsageError.

    Each trajectory is judged once unchanged, and once for each attack that applies.
    """
    with opened_trajectories(config) as trajectories:
        return _planned(config, trajectories)


def _planned(config: RedteamConfig, trajectories: Sequence[str]) -> RunPlan:
    _prepare(config, trajectories)
    folder = Path(config.output)
    with run_budget(config.budget_usd, folder=folder, begin_again=not config.resume, planned=True):
        judge, selection = _attacked(config, trajectories, folder)
    judges = {
        BEFORE: judge,
        **{name: under_attack(judge, attack) for name, attack in selection.items()},
    }
    model, prices = priced_model(config.judge, config.model)
    todo = done = 0
    usages: list[Usage | None] = []
    fresh: JudgingPlan | None = None
    for name, attacked in judges.items():
        keys = lasting_keys(folder / f"{name}.jsonl", retry_unscored=False) if config.resume else {}
        if keys or fresh is None:
            plan = plan_judging(
                attacked, trajectories, limit=config.limit, keys=keys, model=model, prices=prices
            )
            fresh = fresh if keys else plan
        else:
            plan = fresh  # an attack never makes a trajectory that was not seen before shorter
        todo, done, usages = todo + plan.todo, done + plan.done, [*usages, plan.usage]
    total = JudgingPlan(todo, done, total_usage(usages), len(selection) > 0, plan.problems)
    return total.run_plan(
        f"{len(selection)} attacks and the unattacked runs; would be written to {config.output}"
    )


def _prepare(config: RedteamConfig, trajectories: Sequence[str]) -> None:
    """Validates files and labels before any call is made."""
    expect_file(config.output, "a folder")
    for name, content in _FILES.items():
        check_output(Path(config.output) / name, content, [*trajectories, config.labels])
    _, gold, tasks = labelled_tasks(
        trajectories, config.labels, source=config.source, truth=config.truth, limit=config.limit
    )
    if config.max_shift is not None and all(gold[id] for id in tasks):
        raise UsageError(
            "there is no labelled failure, so there is no shift to compare",
            parameters=("max_shift",),
        )


def _attacked(
    config: RedteamConfig, trajectories: Sequence[str], folder: Path
) -> tuple[Evaluator, dict[str, Variant]]:
    judge = make_run_judge(
        config.judge, model=config.model, concurrency=config.concurrency, trajectories=trajectories
    )
    return judge, select_attacks(
        judge, [name for name in config.attacks if name] if config.attacks else None, folder
    )


def _measured(
    config: RedteamConfig,
    trajectories: Sequence[str],
    selection: Mapping[str, Variant],
    unread: int,
) -> RedteamResult:
    folder = Path(config.output)
    figures = measure(
        trajectories,
        config.labels,
        folder,
        selection,
        source=config.source,
        truth=config.truth,
        limit=config.limit,
        seed=config.seed,
    )
    effects = figures.effects
    strengths = ["## All attacks", "", *_lines(effects), "", *_left_out(effects)]
    every = "\n".join(strengths).rstrip()
    texts = (f"{markdown(figures)}\n\n{every}\n", shift_svg(figures))
    for name, data in zip(
        _FILES, (encode(figures), *(text.encode() for text in texts)), strict=True
    ):
        write_output(folder / name, data)
    if unread:
        log.warning(
            "left out %d unreadable lines; the reasons are in %s",
            unread,
            folder / f"{BEFORE}.jsonl",
        )
    if caution := fitted_caution(figures.evaluator.name, figures.fitted):
        log.warning("%s", caution)
    return RedteamResult(figures, str(config.output), unread, _too_far(figures, config.max_shift))


def _too_far(figures: RedTeam, max_shift: float | None) -> str | None:
    if max_shift is None:
        return None
    worst = worst_by_family(figures)[0]
    if worst.false_positives is None:
        raise UsageError(
            "no failure was judged both with and without an attack, so there is no shift to compare"
        )
    return worst.attack if 100 * worst.false_positives.change > max_shift + _SLACK else None


# The figures as Markdown


def markdown(result: RedTeam) -> str:
    """Returns the worst strength of every family as a Markdown table, with notes on its limits."""
    effects = worst_by_family(result)
    evaluator = result.evaluator
    notes = [
        (
            f"Judge: {evaluator.title}. Labels: {result.source}. Attacks: version "
            f"{result.attacks_version}, {len(result.effects)} in {len(effects)} families; for "
            "each family, the attack that adds the most false positives."
        ),
        f"Changes in points, with 95 % intervals: bootstrap over {result.clusters} tasks, {DRAWS} "
        "draws; * Wilson, as all draws are alike.",
    ]
    if caution := fitted_caution(evaluator.name, result.fitted):
        notes.append(f"Warning: {caution}.")
    if not all(effect.keeps_success for effect in effects):
        notes.append(
            "† The attack removes the requested answer, or a step: recall may fall rightly."
        )
    notes += _left_out(effects)
    worst = effects[0]
    if worst.false_positives is not None:
        added = (
            f"Worst: {worst.attack}, {_change(worst.false_positives)} points of false positives."
        )
        notes.append(
            added if worst.false_positives.change > 0 else "No family adds false positives."
        )
    return "\n".join([*_lines(effects), "", *notes])


def _lines(effects: Sequence[AttackEffect]) -> list[str]:
    rows = [_HEADING, *(_row(effect) for effect in effects)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADING))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _left_out(effects: Sequence[AttackEffect]) -> list[str]:
    """Yields how many runs were left out or abstained, one line per group of attacks with equal
    counts.
    """
    attacks: dict[str, list[str]] = {}
    for effect in effects:
        counts = {
            "where the attack does not apply": effect.does_not_apply,
            "unscored before": effect.unscored_before,
            "that became unscored": effect.became_unscored,
        }
        left_out = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if left_out:
            attacks.setdefault(f"Left out: {left_out}", []).append(effect.attack)
        if effect.abstained_before or effect.abstained_after:
            abstained = f"{effect.abstained_before} before, {effect.abstained_after} after"
            attacks.setdefault(f"Unscored, which counts as no success: {abstained}", []).append(
                effect.attack
            )
    return [f"{why} ({', '.join(names)})." for why, names in attacks.items()]


def _row(effect: AttackEffect) -> tuple[str, ...]:
    count, shares, change = _shift(effect.recall)
    dagger = "" if effect.keeps_success or effect.recall is None else " †"
    return (effect.attack, *_shift(effect.false_positives), count, shares, change + dagger)


def _shift(shift: Shift | None) -> tuple[str, str, str]:
    if shift is None:
        return "0", "-", "-"
    return str(shift.n), f"{100 * shift.before:.1f} % → {100 * shift.after:.1f} %", _change(shift)


def _change(shift: Shift) -> str:
    star = " *" if shift.interval == "wilson" else ""
    return f"{100 * shift.change:+.1f} ({100 * shift.low:+.1f} to {100 * shift.high:+.1f}){star}"
