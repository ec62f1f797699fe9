"""Filtered behavioural cloning (arXiv 2404.06474): play, judge, filter, train, play again.

`LOOP` is the round. The study's folder holds the result of every stage, so the same call resumes
after the last finished one. In each later round, the adapter of the round before plays, and the
training starts from the untrained model on the kept steps of all rounds so far. One GPU suffices:
rollout, judging and training run one after another.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from msgspec import Meta

from prill.config.registry import OptionError, check_options
from prill.config.shared import GpusOption, RunFolderOption
from prill.config.toml import read_table
from prill.config.values import Config, PartConfig, plain
from prill.emulators.task_source import join_names, numbers
from prill.episodes.episodes import EpisodePlan
from prill.errors import BudgetSpentError, UsageError
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.registry import make_judge
from prill.evaluators.scoring.scorer import Tally, score_files
from prill.io.joining import latest_verdicts
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.lines import read_lines
from prill.io.manifest import MANIFEST, write_manifest
from prill.io.outputs import expect_file, write_errors, write_output
from prill.io.store import encode, iter_trajectories, read_labels, read_verdicts
from prill.io.tables import data_frame
from prill.locks import lock_file, lock_if_free, releasing
from prill.models.budget import run_budget
from prill.models.devices import free_devices
from prill.models.options import BudgetOption
from prill.plans import RunPlan, listed, times, total_usage
from prill.policies.registry import PolicyConfig, PolicyLike
from prill.protocols import Evaluator
from prill.refine.filter import figures
from prill.refine.filtered_bc.episodes import Rollouts, StudyEnvironment, Table, plays_otherwise
from prill.refine.filtered_bc.results import (
    ADAPTER,
    BASE,
    BY_ROUND,
    RESULTS,
    ROWS,
    STUDY,
    TABLES,
    StudyResults,
    judged_right,
    read_round,
    read_rounds,
    results_text,
    verdicts_suffix,
    write_results,
)
from prill.refine.rows import sft_rows
from prill.refine.selection import OF_SCORES, Filtered, FilterSpec, filter_steps, require_steps
from prill.refine.training.preflight import check_settings, parse_devices, row_estimate
from prill.refine.training.spec import TrainSpec, training_spec
from prill.refine.training.train import train_rows as train
from prill.refine.training.trainer import Progress
from prill.refine.training.weights import open_base
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, run_outside_loop
from prill.types import LabelRecord, Verdict

log = logging.getLogger("prill.runs")
# The name of a folder below the study's: no path separator, not hidden, and short enough for every
# file system.
_NAME = r"^\w[\w.-]{0,59}\Z"
# Keys of the table `evaluation` that determine the grader if the environment has no oracle.
_GRADING = ("judge", "annotated")
_DESCRIBED = ("policy", "episodes", "attempts", "evaluation", "filter", "training")
_LATER = (
    "{0} has no oracle, so there are no results until people have labelled each folder "
    "`evaluation` of the study (prill annotate FOLDER/trajectories.jsonl -o "
    "FOLDER/labels.jsonl, then the same study with tables_only)"
)


FilterOptions = Annotated[
    Mapping[str, Any], Meta(description="Filter options; those of an arm are added to all arms'.")
]


@dataclass(frozen=True, kw_only=True)
class StudyArm(Config):
    """An arm of a study: a judge and a filter; without a judge, all steps are kept."""

    name: Annotated[
        str, Meta(pattern=_NAME, description="Name of the arm in tables and of its folder.")
    ]
    judge: Annotated[Any, Meta(description="Judge, by name, table or file.")] = None
    filter: FilterOptions = field(default_factory=dict)

    def check(self) -> None:
        """Checks that the judge is a name or a table, which the study's record can hold.

        Raises:
            OptionError: The judge is neither a name nor a table.
        """
        object.__setattr__(self, "judge", _as_written(self.judge))
        _expect_description(self.judge, "judge")

    @property
    def described(self) -> str | dict[str, Any]:
        """The judge's name or table; without a judge, every attempt is a success."""
        judge: str | dict[str, Any] | None = self.judge
        return "always-success" if judge is None else judge


@dataclass(frozen=True, kw_only=True)
class FilteredBCConfig(Config):
    """Configuration of `prill filtered-bc`: play, judge, filter, train, and evaluate on
    held-out tasks, in rounds.

    The tables of episodes have the fields of a rollout and of its environment. A judge that needs
    labels and names none uses the oracle's labels of the attempts that it judges.
    """

    policy: Annotated[PolicyLike, Meta(description="Policy to improve.")]
    episodes: Annotated[
        Mapping[str, Any],
        Meta(description="Environment, tasks and other settings of all episodes."),
    ]
    attempts: Annotated[
        Mapping[str, Any] | Sequence[Mapping[str, Any]],
        Meta(description="Episodes to learn from: a table, or several."),
    ]
    evaluation: Annotated[
        Mapping[str, Any],
        Meta(
            description="Episodes to evaluate policies on. Add `judge` or `annotated` if "
            "there is no oracle."
        ),
    ]
    arms: Annotated[Sequence[StudyArm], Meta(description="Training variants to compare.")]
    filter: FilterOptions = field(default_factory=dict)
    training: Annotated[
        Mapping[str, Any], Meta(description="Preset and options of the training.")
    ] = field(default_factory=dict)
    rounds: Annotated[
        int, Meta(ge=1, le=1000, description="Number of rounds of playing and training.")
    ] = 1
    output: RunFolderOption
    seeds: Annotated[
        int | str | Sequence[int],
        Meta(description="Training seeds. Each seed is a study of its own."),
    ] = "0"
    budget_usd: BudgetOption = None
    tables_only: Annotated[
        bool, Meta(description="Only write tables of the results so far, without training.")
    ] = False
    gpus: GpusOption = None

    def check(self) -> None:
        """Validates every table.

        Raises:
            OptionError: A table is invalid; the message names its key.
        """
        if not isinstance(self.policy, PolicyConfig):
            raise OptionError(
                f"policy: expected the name of a policy or a table, got {self.policy!r}", "policy"
            )
        if isinstance(self.attempts, Mapping):
            object.__setattr__(self, "attempts", (self.attempts,))
        for name in _DESCRIBED[1:]:
            object.__setattr__(self, name, _as_written(getattr(self, name)))
        for name in _DESCRIBED:
            try:
                msgspec.json.encode(plain(getattr(self, name)))
            except TypeError:
                problem = (
                    "a study is stored in its folder, so give names and tables instead of objects"
                )
                raise OptionError(f"{name}: {problem}", name) from None
        for name in ("attempts", "arms"):
            if not getattr(self, name):
                raise OptionError(f"{name}: expected at least one", name)
        names = [arm.name for arm in self.arms]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise OptionError(f"arms: two arms have the name {twice[0]!r}", "arms")
        if BASE in names:
            raise OptionError(
                "arms: an arm cannot have the name base, which is the policy without training",
                "arms",
            )
        annotated = self.evaluation.get("annotated", False)
        _expect_description(self.grader, "evaluation.judge")
        if not isinstance(annotated, bool):
            raise OptionError(
                f"evaluation.annotated: expected true or false, got {annotated!r}", "evaluation"
            )
        if self.grader is not None and annotated:
            raise OptionError(
                "evaluation.annotated: give either a judge or annotated = true, not both",
                "evaluation",
            )
        check_options(FilterSpec, self.filter, "the filter", place="filter.")
        for index, arm in enumerate(self.arms):
            with _options_at(f"arms[{index}].filter"):
                self.arm_filter(arm)
        with _options_at("training"):
            self.make_training(0)
        object.__setattr__(self, "seeds", join_names(self.seeds))
        self.training_seeds()

    @property
    def taught(self) -> PolicyConfig:
        """The policy to train."""
        return cast(PolicyConfig, self.policy)

    @property
    def kinds(self) -> Sequence[Table]:
        """The tables of attempts, usually one."""
        return (self.attempts,) if isinstance(self.attempts, Mapping) else self.attempts

    @property
    def held_out(self) -> dict[str, Any]:
        """The episodes of the evaluation, without the keys that name the grader."""
        return {key: value for key, value in self.evaluation.items() if key not in _GRADING}

    @property
    def grader(self) -> str | dict[str, Any] | None:
        """The judge that grades the evaluation if there is no oracle; None: labels grade it."""
        described: str | dict[str, Any] | None = self.evaluation.get("judge")
        return described

    def training_seeds(self) -> list[int]:
        """Returns the training seeds, in order.

        Raises:
            UsageError: A seed is neither a number nor a range.
        """
        return numbers(str(self.seeds), "seeds")

    def arm_filter(self, arm: StudyArm) -> FilterSpec:
        """Returns the filter of an arm; without a judge, options about scores are ignored."""
        shared = dict(self.filter)
        if arm.judge is None:
            shared = {key: value for key, value in shared.items() if key not in OF_SCORES}
            shared["keep_all"] = True
        return FilterSpec.of({**shared, **arm.filter})

    def make_training(self, seed: int) -> TrainSpec:
        """Returns the training settings for a seed. Training starts from the policy's weights.

        Raises:
            OptionError: A setting of the training is of the wrong type.
        """
        table = {"preset": "small-text", **self.training}
        if isinstance(model := self.taught.options.get("model"), str):
            table.setdefault("model", model.removeprefix("local:").removeprefix("vllm:"))
        if not isinstance(table["preset"], str):
            raise OptionError(f"preset: expected a string, got {table['preset']!r}", "preset")
        if "trains" in self.training and self.training["trains"] != "policy":
            raise OptionError(
                f"trains: a study trains a policy, not {self.training['trains']!r}", "trains"
            )
        return training_spec(**{**table, "seed": seed})

    def settings(self) -> dict[str, Any]:
        """Returns the study as its folder records it."""
        arms = [
            {name: getattr(arm, name) for name in ("name", "judge", "filter")} for arm in self.arms
        ]
        tables = {name: getattr(self, name) for name in _DESCRIBED if name != "policy"}
        tables |= {"policy": self.taught.table(), "arms": arms, "rounds": self.rounds}
        recorded = msgspec.json.encode(tables)
        settings: dict[str, Any] = json.loads(recorded)
        return settings


def _as_written(value: Any) -> Any:
    """Converts a value to the form of a study file, in which a component without options is its
    name. A study from Python thus equals one from a file.
    """
    if isinstance(value, Mapping):
        return {str(key): _as_written(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_written(inner) for inner in value]
    return value.name if isinstance(value, PartConfig) and not value.options else plain(value)


def _expect_description(judge: Any, place: str) -> None:
    if not isinstance(judge, str | Mapping | None):
        raise OptionError(f"{place}: expected a name or a table, got {judge!r}", place)


@contextmanager
def _options_at(place: str, why: str = "") -> Iterator[None]:
    """A context whose errors name the key of the study."""
    try:
        yield
    except UsageError as error:
        end = "." if isinstance(error, OptionError) else ": "
        raise OptionError(f"{place}{end}{error}{why}", place) from None


@dataclass(frozen=True)
class FilteredBCResult(Printed):
    """Result of a study.

    Args:
        results: Success rates with intervals, comparisons of arms, precision and recall of each
            judge, and successes by task.
        output: The folder with everything that was recorded, judged and trained.
    """

    results: StudyResults
    output: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the results as a JSON object."""
        return dict(msgspec.to_builtins(self.results))

    def notes(self) -> Iterator[str]:
        """Yields the files of the results."""
        folder = Path(self.output)
        yield f"-> {folder / TABLES}, {folder / RESULTS}, {folder / BY_ROUND}"

    @property
    def exit_code(self) -> int:
        """Returns 3 if an arm had no training rows."""
        return EXIT_ALL if self.all_learnt else EXIT_SOME

    @property
    def all_learnt(self) -> bool:
        """Returns whether every arm had training rows."""
        return not any(judge["ended"] for judge in self.results.judges)

    def to_pandas(self) -> Any:
        """Returns a row for each arm, training seed and round: successes of n, with their
        interval.
        """
        names = ("arm", "seed", "round", "successes", "n", "unlabelled")
        return data_frame(
            [
                {
                    **{name: getattr(score, name) for name in names},
                    **dict(zip(("low", "high"), score.interval, strict=True)),
                }
                for score in self.results.scores
            ]
        )

    def __str__(self) -> str:
        return results_text(self.results)

    def _repr_html_(self) -> str:
        return (Path(self.output) / BY_ROUND).read_text(encoding="utf-8")


# Trains an adapter on rows and returns its folder, such as `prill.refine.training.train.train`.
Learn = Callable[..., Path]


@dataclass(frozen=True)
class Audience:
    """The callbacks for progress: stages as text, verdicts, rows read, training steps."""

    say: Callable[[str], object] = log.info
    judged: Callable[[Tally], None] = lambda tally: None
    read: Callable[[str, int, int], object] = lambda phase, done, total: None
    trained: Callable[[Progress], object] = lambda progress: None


@as_run(FilteredBCConfig)
def filtered_bc(
    config: FilteredBCConfig, *, progress: Callable[..., None] = lambda *now: None
) -> FilteredBCResult:
    """Runs a study of filtered behavioural cloning; the same call resumes one that was stopped.

    Several processes may run the same study at the same time: each skips the work that another one
    is doing.

    Args:
        config: The episodes, the policy, the judges and filters to compare, and the training.
        progress: Called with the counts of verdicts, with a phase of reading, its count and its
            total, and with the steps of a training.

    Returns:
        The results of everything that is finished; the folder holds tables and charts.

    Raises:
        UsageError: The configuration is invalid, or the folder holds another study.
        EndpointError: The model's endpoint accepts no call.
        EnvironmentFailedError: The environment cannot start an episode.
    """

    def run() -> FilteredBCResult:
        out = Path(config.output)
        expect_file(out, "a study")
        if config.gpus:
            raise UsageError(
                "gpus: only with a dry run; a study uses the GPUs that it finds",
                parameters=("gpus",),
            )
        if not config.tables_only:
            with run_budget(config.budget_usd, folder=out):
                world, judges, _ = prepare(config)
                with _options_at("training"):
                    _open_base(config.make_training(0))
                told = Audience(judged=progress, read=progress, trained=progress)
                _run(config, world, judges, told, train)
        elif not (out / STUDY).is_file():
            raise UsageError(f"{out}: contains no study yet")
        elif not (out / BASE / "evaluation" / MANIFEST).is_file():
            raise UsageError(
                f"{out}: the evaluation of the untrained policy is not finished; tables need it"
            )
        return FilteredBCResult(write_results(out), str(out))

    return run_outside_loop(run)


def run_study(
    config: FilteredBCConfig,
    world: StudyEnvironment,
    *,
    audience: Audience = Audience(),
    learn: Learn = train,
) -> None:
    """Runs a study in an environment of one's own. The same call resumes, and several processes may
    share the work.

    Args:
        config: The study. `read_study_results` computes its figures from the folder `output`.
        world: Plays the episodes.
        audience: The callbacks for progress.
        learn: Trains an adapter on rows.

    Raises:
        UsageError: The folder holds another study, a file in it was changed, or a part of the study
            cannot be used.
    """
    judges = make_judges(config)
    if learn is train:
        check_settings(config.make_training(0))
    _run(config, world, judges, audience, learn)


class Judges(NamedTuple):
    """The judge of each arm, by its name, and that of the evaluation, if a judge grades it."""

    arms: Mapping[str, Evaluator]
    evaluation: Evaluator | None


def make_judges(config: FilteredBCConfig, *, labelled: bool = True) -> Judges:
    """Creates the judges, and reads every file that a setting of them names.

    No episode is played, and nothing is written to the study's folder. Raises UsageError that names
    the key, if not `labelled` also for a judge that needs the oracle's labels.
    """
    for index, arm in enumerate(config.arms):
        with _options_at(f"arms[{index}].filter.calibration"):
            if (calibration := config.arm_filter(arm).calibration) is not None:
                read_calibration(calibration)
    why = "" if labelled else "; no oracle labels the attempts here"
    wanted = [(f"arms[{i}].judge", arm.described, why) for i, arm in enumerate(config.arms)]
    if config.grader is not None:
        wanted.append(("evaluation.judge", config.grader, ""))
    made: list[Evaluator] = []
    with tempfile.TemporaryDirectory(prefix="prill-check-") as folder:
        labels = Path(folder) / LABELS  # the labels of attempts that are not played yet
        labels.write_bytes(encode(LabelRecord(id="check", success=True, source="oracle")))
        for place, described, because in wanted:
            known = labelled and place != "evaluation.judge"
            with _options_at(place, because):
                judge = make_judge(described, defaults={"labels": str(labels)} if known else {})
                if re.search(r"[/\0]", judge.info.name):
                    problem = f"its name {judge.info.name!r} cannot be used in a file name"
                    raise UsageError(problem)
            made.append(judge)
    arms = {arm.name: judge for arm, judge in zip(config.arms, made, strict=False)}
    return Judges(arms, None if config.grader is None else made[-1])


def make_player(config: FilteredBCConfig) -> Rollouts:
    """Makes what plays the study's episodes. Raises UsageError for a table or policy of no use."""
    return Rollouts(config.taught, config.episodes, config.kinds, config.held_out, config.rounds)


def prepare(config: FilteredBCConfig) -> tuple[Rollouts, Judges, dict[str, EpisodePlan]]:
    """Makes every part of a study that plays or judges, so that errors appear before any episode.

    Returns the episode player, the judges, and the plan of each episode table; nothing is written
    to the study's folder. Raises UsageError that names the key of a part that cannot be made.
    """
    world, settings, out = make_player(config), config.settings(), Path(config.output)
    annotated = bool(config.evaluation.get("annotated"))
    expect_study(settings, out)
    plans = world.plans(out, graded=config.grader is not None or annotated)
    judges = make_judges(config, labelled=all(plan.graded for plan in plans.values()))
    if annotated:
        log.warning(_LATER.format(plans["evaluation"].environment))
    return world, judges, plans


def _open_base(spec: TrainSpec) -> Any:
    """Returns the base model to train.

    The result is None for the embedded model, because reading its size would require unpacking the
    weights. Raises UsageError.
    """
    check_settings(spec)
    return None if spec.model == "embedded" else open_base(spec)


def plan_filtered_bc(config: FilteredBCConfig) -> RunPlan:
    """Plans a study: makes every part, but plays, calls and writes nothing.

    Args:
        config: The study; its `gpus` are the GPUs to plan for.

    Returns:
        The most the study would do, with calls and cost where they are known.

    Raises:
        UsageError: The configuration is invalid.
    """

    def run() -> RunPlan:
        out, spec = Path(config.output), config.make_training(0)
        expect_file(out, "a study")
        if config.tables_only:
            raise UsageError("tables_only: not available in a dry run", parameters=("tables_only",))
        with run_budget(config.budget_usd, folder=out, planned=True):
            _, judges, plans = prepare(config)
            with _options_at("training"):
                base = _open_base(spec)
            plan = _plan(config, plans, judges)
        if base is None or not config.gpus:
            return plan
        devices = parse_devices(config.gpus)
        of_one = row_estimate(devices, spec, base, out)
        line = f"{of_one}; arms and seeds share {devices.count} GPUs"
        return replace(plan, work=(*plan.work, line))

    return run_outside_loop(run)


def _plan(config: FilteredBCConfig, plans: Mapping[str, EpisodePlan], judges: Judges) -> RunPlan:
    """Plans the study, including finished stages."""
    attempts = [plan for name, plan in plans.items() if name != "evaluation"]
    evaluation, seeds = plans["evaluation"], len(config.training_seeds())
    lines = seeds * len(config.arms)
    # Rounds after the first play the trained policy, separately for each arm and seed.
    own = [
        plan
        for plan, kind in zip(attempts, config.kinds, strict=True)
        if not plays_otherwise(config.taught.name, kind)
    ]
    later, trainings = lines * (config.rounds - 1), lines * config.rounds
    per_round = sum(plan.episodes for plan in own)
    played = sum(plan.todo for plan in attempts) + later * per_round
    evaluated = evaluation.todo + trainings * evaluation.episodes
    of_arm = sum(plan.episodes for plan in attempts) + seeds * (config.rounds - 1) * per_round
    judged = [(judge, of_arm) for judge in judges.arms.values()]
    if judges.evaluation is not None:
        judged.append((judges.evaluation, (1 + trainings) * evaluation.episodes))
    verdicts = sum(count for _, count in judged)
    spec = config.make_training(0)
    steps = f"{spec.steps} steps" if spec.steps else f"{spec.epochs:g} epochs over the kept rows"
    names = listed([judge.info.name for judge in judges.arms.values()])
    usages = [
        *(plan.all_usage for plan in plans.values()),
        times(total_usage(plan.usage for plan in own), later),
        times(evaluation.usage, trainings * evaluation.episodes),
        *(times(evaluation.recorded.judging(judge), count) for judge, count in judged),
    ]
    return RunPlan(
        work=(
            *(f"{name}: {plan.line()}" for name, plan in plans.items()),
            f"arms: {len(config.arms)}, judged by {names}; at most {verdicts} verdicts",
            f"rounds: {config.rounds}; training seeds: {seeds}",
            f"train {trainings} times from {spec.model} ({spec.method}), {steps} of {spec.batch} "
            "rows",
            f"in total: at most {played} attempts and {evaluated} evaluation episodes",
            f"would be written to {config.output}",
        ),
        counts={
            "attempts": played,
            "evaluation": evaluated,
            "verdicts": verdicts,
            "trainings": trainings,
        },
        usage=total_usage(usages),
        most=True,
    )


def _run(
    config: FilteredBCConfig,
    world: StudyEnvironment,
    judges: Judges,
    audience: Audience,
    learn: Learn,
) -> None:
    """Plays the untrained policy, and then each arm with each seed, round after round."""
    out = Path(config.output)
    read_rounds(out)
    _record_study(config.settings(), out, audience)
    stage = _Stages(config, world, judges.evaluation, audience, learn)
    audience.say("the untrained policy: attempts to learn from, and its evaluation")

    def play_base(name: str, kinds: Sequence[Table], wait: bool) -> bool:
        with _exclusive(out / BASE / name, audience, wait=wait) as locked:
            if locked:
                stage.record(out / BASE / name, kinds, None)
                if name == "evaluation":
                    stage.grade(out / BASE / name)
        return locked

    def run_arm(seed: int, arm: StudyArm, wait: bool) -> bool:
        before: Round | None = None
        for number in range(1, config.rounds + 1):
            folder = round_folder(out, seed, arm.name, number)
            with _exclusive(folder, audience, wait=wait) as locked:
                if not locked:
                    return False
                audience.say(f"seed {seed}, {arm.name}, round {number}")
                attempts = out / BASE / "attempts" if number == 1 else folder / "attempts"
                this = Round(seed, arm, number, folder, attempts)
                if before is not None:
                    this.player, this.lessons = before.adapter, before.lessons
                before = stage.run(this)
            if before.adapter is None:
                break
        return True

    _run_jobs(
        [
            partial(play_base, "attempts", config.kinds),
            partial(play_base, "evaluation", (config.held_out,)),
        ]
    )
    _run_jobs(
        [partial(run_arm, seed, arm) for seed in config.training_seeds() for arm in config.arms]
    )


def _run_jobs(jobs: Sequence[Callable[[bool], bool]]) -> None:
    """Runs all jobs. The argument of a job says whether to wait for another process; its result
    says whether it is done.

    A job that another process works on is waited for only if no other job is left. After each wait
    all remaining jobs are tried again, since a process may have died.
    """
    while jobs := [job for job in jobs if not job(False)]:
        jobs[0](True)
        jobs = jobs[1:]


@dataclass
class Round:
    """A round of an arm with a training seed: what its stages find, one after the other.

    `player` is the adapter of the round before, which plays; `lessons` are the kept steps of all
    rounds so far; `ended` is why nothing was learnt.
    """

    seed: int
    arm: StudyArm
    number: int
    folder: Path
    attempts: Path
    player: Path | None = None
    lessons: list[Filtered] = field(default_factory=list)
    verdicts: Sequence[Verdict] = ()
    adapter: Path | None = None
    ended: str = ""
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether an earlier call finished the round.

        One that ended without rows is tried again: unscored attempts may get verdicts now.
        """
        file = self.folder / MANIFEST
        return file.exists() and "ended" not in read_round(file)


@dataclass(frozen=True)
class _Stages:
    """The stages of a round (`LOOP`), for all arms and seeds of a study."""

    config: FilteredBCConfig
    world: StudyEnvironment
    grader: Evaluator | None
    audience: Audience
    learn: Learn

    def run(self, of: Round) -> Round:
        """Runs the stages, and writes the round's manifest last."""
        is_done = of.is_done
        for stage in LOOP:
            if not of.ended:
                stage(self, of)
        facts = {
            "format": "prill round 1",
            "seed": of.seed,
            "arm": of.arm.name,
            "round": of.number,
            "attempts": {
                "folder": os.path.relpath(of.attempts, of.folder),
                **_played(of.attempts),
            },
            **of.manifest,
        }
        if of.ended:
            self.audience.say(f"{of.arm.name}: {of.ended}")
            write_manifest(of.folder / MANIFEST, {**facts, "ended": of.ended})
        elif not is_done and of.adapter is not None:
            files = [folder / TRAJECTORIES for folder in (of.attempts, of.folder / "evaluation")]
            files += [of.folder / ROWS, *sorted(of.adapter.glob("adapter_*"))]
            write_manifest(of.folder / MANIFEST, facts, files)
        return of

    def play(self, of: Round) -> None:
        """Plays attempts to learn from; the first round shares those of the untrained policy."""
        if of.number > 1:
            self.record(of.attempts, self.config.kinds, of.player, earlier=of.number - 1)

    def judge(self, of: Round) -> None:
        """Judges the attempts. Verdicts are stored next to them, so that arms and seeds with the
        same judge share them.
        """
        judge = make_judge(of.arm.described, defaults={"labels": str(of.attempts / LABELS)})
        of.verdicts = self._verdicts(judge, of.arm.described, of.attempts)
        right = judged_right(of.verdicts, of.attempts)
        of.manifest["judge"] = {**msgspec.to_builtins(judge.info), **right}

    def filter(self, of: Round) -> None:
        """Selects the steps to learn from."""
        # An episode that broke off reflects the environment, not the agent.
        played = iter_trajectories(of.attempts / TRAJECTORIES)
        spec = self.config.arm_filter(of.arm)
        filtered = filter_steps((one for one in played if one.error is None), of.verdicts, spec)
        of.lessons.append(filtered)
        of.manifest["filter"] = {**msgspec.to_builtins(spec), **figures(filtered)}

    def train(self, of: Round) -> None:
        """Trains an adapter on the rows of all rounds so far."""
        if of.is_done:
            of.adapter = of.folder / ADAPTER
            return
        rows = of.folder / ROWS
        lines, left_out = self._rows(of.lessons, rows)
        try:
            if short := sum(one.unscored == BudgetSpentError.code for one in of.verdicts):
                raise UsageError(
                    f"the budget is used up (unscored: budget {short} of {len(of.verdicts)}); "
                    "raise it to resume"
                )
            require_steps(of.lessons[-1])
            if not lines:
                why = ", ".join(f"{reason} {count}" for reason, count in left_out.items())
                kept = len(of.lessons[-1].steps)
                raise UsageError(f"none of the {kept} steps kept gives a row: {why}")
        except UsageError as nothing:
            of.ended = str(nothing)
            return
        write_output(rows, b"".join(lines))
        spec, told = self.config.make_training(of.seed), self.audience
        of.adapter = self.learn(
            spec, rows, of.folder / ADAPTER, say=told.read, progress=told.trained
        )
        free_devices()
        counts = {"count": len(lines), "left_out": left_out}
        of.manifest |= {"rows": counts, "training": spec.settings()}
        self.audience.say(f"seed {of.seed}, {of.arm.name}, round {of.number}: evaluation")

    def play_again(self, of: Round) -> None:
        """Plays the held-out episodes with the adapter."""
        evaluation = of.folder / "evaluation"
        self.record(evaluation, (self.config.held_out,), of.adapter)
        self.grade(evaluation)
        of.manifest["evaluation"] = _played(evaluation)

    def record(
        self, folder: Path, kinds: Sequence[Table], adapter: Path | None, *, earlier: int = 0
    ) -> None:
        """Plays all tables of episodes once. Episodes that broke off are not repeated: that would
        change data that a training has already used.
        """
        if (folder / MANIFEST).exists():
            return
        for kind in kinds:
            self.world.play(folder, {**self.config.episodes, **kind}, adapter, earlier)
        free_devices()
        recording = {"format": "prill recording 1", "labelled": (folder / LABELS).exists()}
        write_manifest(folder / MANIFEST, recording, [folder / TRAJECTORIES])

    def grade(self, evaluation: Path) -> None:
        """Judges an evaluation, if the study names a judge for it."""
        if self.grader is not None:
            self._verdicts(self.grader, self.config.grader or "", evaluation)

    def _verdicts(
        self, judge: Evaluator, description: str | Mapping[str, Any], folder: Path
    ) -> list[Verdict]:
        """Reads a judge's verdicts on the recordings in a folder, and judges those without one."""
        file = folder / f"verdicts-{judge.info.name}{verdicts_suffix(description)}"
        with _exclusive(file, self.audience):
            told = self.audience.judged
            asyncio.run(score_files([folder / TRAJECTORIES], judge, file, progress=told))
            free_devices()
            return list(latest_verdicts(read_verdicts(file))[1].values())

    def _rows(self, lessons: Sequence[Filtered], file: Path) -> tuple[list[bytes], dict[str, int]]:
        """Returns the rows of the lessons as lines of that file, and the number of kept steps
        without a row, by reason.
        """
        left_out: Counter[str] = Counter()
        lines = [
            msgspec.json.encode(row) + b"\n"
            for filtered in lessons
            for row in sft_rows(
                filtered,
                self.world.teacher(),
                place=lambda path: os.path.relpath(path, file.parent),
                note=lambda step, why, message: left_out.update([why]),
            )
        ]
        return lines, dict(left_out)


LOOP = (_Stages.play, _Stages.judge, _Stages.filter, _Stages.train, _Stages.play_again)


def round_folder(out: Path, seed: int, arm: str, number: int) -> Path:
    """Returns the folder of a round."""
    return out / f"seed-{seed}" / arm / f"round-{number}"


def expect_study(settings: Mapping[str, Any], out: Path) -> bool:
    """Returns whether the folder already holds this study, possibly with fewer arms. Raises
    UsageError if it holds other files.
    """
    file = out / STUDY
    with write_errors(out):
        # Every process writes the study file first, except for locks, whose names begin with a dot.
        if not file.exists():
            if out.exists() and any(not there.name.startswith(".") for there in out.iterdir()):
                raise UsageError(
                    f"{out}: contains something that is not a study; choose another folder",
                    parameters=("output",),
                )
            return False
    try:
        there = read_table(file)
    except UsageError as error:
        raise UsageError(f"{error}; choose another folder", parameters=("output",)) from None
    other = [name for name in settings if there.get(name) != settings[name]]
    arms = there.get("arms")
    if other == ["arms"] and isinstance(arms, list) and all(a in settings["arms"] for a in arms):
        other = []
    if other:
        problem = f"{file}: contains a study with other {', '.join(other)}; choose another folder"
        raise UsageError(problem, parameters=("output",))
    return True


def _record_study(settings: Mapping[str, Any], out: Path, audience: Audience) -> None:
    """Records the study in the folder. A study may add arms; the results of the others stay."""
    expect_study(settings, out)
    with _exclusive(out / STUDY, audience):
        if not expect_study(settings, out) or read_table(out / STUDY) != settings:
            text = json.dumps(settings, indent=1, ensure_ascii=False, default=str)
            write_output(out / STUDY, text.encode() + b"\n")


@contextmanager
def _exclusive(folder: Path, audience: Audience, *, wait: bool = True) -> Iterator[bool]:
    """Locks a folder for one process; others wait, or get False. A dead one's lock is free."""
    with write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        path = folder.with_name(f".{folder.name}.lock")
        if (lock := lock_if_free(path)) is None and wait:
            audience.say(f"another process is running in {folder}; waiting for it")
            lock = lock_file(path)
    with releasing(lock) as has_lock:
        yield has_lock


def _played(folder: Path) -> dict[str, Any]:
    """Returns the counts of the played episodes by the oracle's labels."""
    labels = read_labels(folder / LABELS) if (folder / LABELS).exists() else ()
    counts = Counter({label.id: label.success for label in labels}.values())
    return {
        "episodes": sum(1 for _ in read_lines(folder / TRAJECTORIES)),
        "successes": counts[True],
        "failures": counts[False],
    }
