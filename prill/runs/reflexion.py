"""Reflexion retries with any policy that reflects, any environment and any judge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.registry import read_options
from prill.emulators.task_source import fingerprint
from prill.errors import UsageError
from prill.evaluators.baselines import NoiseSpec, NoisyLabels
from prill.evaluators.registry import (
    WRAPPER_OPTIONS,
    JudgeConfig,
    JudgeLike,
    make_judge,
    make_run_judge,
)
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.outputs import check_output, expect_file, write_output
from prill.io.tables import data_frame
from prill.models.devices import used_together
from prill.models.registry import ModelConfig, ModelLike, model_options
from prill.policies.registry import PolicyConfig, PolicyLike
from prill.protocols import Evaluator, LanguageModel, Learner
from prill.refine.outcomes import ReflexionResults, table_lines
from prill.refine.reflector import LessonsConfig, Reflective, Reflector, ReflectorSpec, find_learner
from prill.refine.reflexion import (
    Challenge,
    LabelJudge,
    PlaySettings,
    ReflexionProgress,
    check_again,
    run_reflexion,
)
from prill.refine.retries import RetrySpec, with_second_opinion
from prill.runs.base import RunFolderOption, UncalledModel, synchronous
from prill.runs.plan import NOTHING_RECORDED, RunPlan, times, total_usage
from prill.runs.rollout.cases import Case
from prill.runs.rollout.episodes import (
    EpisodePlan,
    EpisodesConfig,
    RolloutSession,
    session,
    template_from_case,
)
from prill.runs.rollout.policies import shared_model
from prill.types import Usage

log = logging.getLogger("prill.runs")
TABLE = "results.md"
_UNGRADED = (
    "{0} has no oracle: attempts are counted by the judge's verdicts, and the true success "
    "rates stay unknown until people have labelled the attempts (prill annotate "
    "{1}/trajectories.jsonl -o {1}/labels.jsonl, then the same run again)"
)
_RETRIES, _LESSONS = RetrySpec(), LessonsConfig()
# The task states in which neither the judge nor the last attempt gives an answer.
_TROUBLE = ("unscored", "no_lesson", "broken", "not_begun")


@dataclass(frozen=True, kw_only=True)
class ReflexionConfig(EpisodesConfig):
    """Configuration of `prill reflexion`: retry tasks while a judge says failure, each time with
    the lessons so far.
    """

    output: RunFolderOption
    policy: Annotated[
        PolicyLike | None, Meta(description="Policy of the agent. It must accept lessons.")
    ] = "react"
    judge: Annotated[
        JudgeLike,
        Meta(
            description="Judge that decides whether to retry, or oracle for the environment's "
            "own labels."
        ),
    ]
    second: Annotated[
        JudgeLike | None, Meta(description="Second judge, asked before an attempt is discarded.")
    ] = None
    retries: Annotated[RetrySpec, Meta(description="How a task is retried.")] = _RETRIES
    lessons: Annotated[LessonsConfig, Meta(description="How lessons are generated.")] = _LESSONS
    baseline: Annotated[
        str | Path | None,
        Meta(
            description="Another run. Its attempts and lessons are reused as long as both "
            "judges agree."
        ),
    ] = None
    retry_unscored: Annotated[bool, Meta(description="Retry verdicts and lessons that failed.")] = (
        False
    )

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: A second judge is requested where the oracle's labels decide.
        """
        super().check()
        if self.second is not None and self.is_graded_by_oracle:
            raise UsageError(
                "second: not available with the judge oracle",
                parameters=("second",),
            )

    @property
    def is_graded_by_oracle(self) -> bool:
        """Returns whether the environment's own labels decide."""
        return self.judge == JudgeConfig("oracle")

    @property
    def policy_model(self) -> ModelLike | None:
        """Returns the policy's model, which judges and lessons use too unless they name another."""
        options = self.policy.options if isinstance(self.policy, PolicyConfig) else {}
        if self.model is not None or "model" not in options:
            return self.model
        described = ModelConfig.read(options["model"], "policy.model")
        if not isinstance(described, ModelConfig):
            made: LanguageModel = described
            return made
        among = {key: options[key] for key in model_options(described) if key in options}
        return ModelConfig(described.name, **{**among, **described.options})

    @property
    def calls(self) -> int:
        """Returns the default maximum of concurrent calls per model."""
        return max(self.workers or 1, 16)


@dataclass(frozen=True)
class ReflexionResult:
    """Result of a Reflexion run.

    Args:
        results: The results file: every attempt with its verdict, label and lesson, and the table.
        output: The output folder.
    """

    results: ReflexionResults
    output: str

    @property
    def complete(self) -> bool:
        """Returns whether every task has an answer and every label was recorded."""
        return not self.results.lost_labels and not self.unanswered

    @property
    def unanswered(self) -> dict[str, str]:
        """Returns the tasks without an answer, each with the reason."""
        found = {}
        for task in self.results.tasks:
            if task.ended in _TROUBLE:
                last = task.attempts[-1] if task.attempts else None
                why = "" if last is None else f": {last.problem or last.reason}"
                found[task.name] = f"{task.ended.replace('_', ' ')}{why}"
        return found

    def to_pandas(self) -> Any:
        """Returns a row for each attempt: task, number, status, score, truth, lesson, calls and
        cost.
        """
        rows = [
            {
                "task": task.name,
                "attempt": number,
                **{
                    name: getattr(attempt, name)
                    for name in ("id", "status", "answer", "score", "reason", "lesson", "truth")
                },
                "is_answer": number == task.answer,
                "calls": attempt.actor.calls + attempt.judge.calls + attempt.reflector.calls,
                "usd": (attempt.actor + attempt.judge + attempt.reflector).usd,
            }
            for task in self.results.tasks
            for number, attempt in enumerate(task.attempts)
        ]
        return data_frame(rows)

    def __str__(self) -> str:
        assert self.results.table is not None
        task_by_task = self.results.settings.get("retries", {}).get("order") == "task"
        order = (
            ["", "All attempts at a task were made before the next task (order: task)."]
            if task_by_task
            else []
        )
        return "\n".join((*table_lines(self.results.table), *order))


async def reflexion_async(
    config: ReflexionConfig, *, progress: Callable[[ReflexionProgress], None] = lambda stage: None
) -> ReflexionResult:
    """Plays, judges and reflects until every task has ended; the same call resumes a stopped run.

    Args:
        config: The environment, the policy, the judge, and how to retry.
        progress: Called after each attempt that was played or judged, and after each lesson.

    Returns:
        The results; they print as a table, which is also written to `results.md` in the folder.

    Raises:
        UsageError: The configuration is invalid, or the folder holds another run.
        EndpointError: The model's endpoint accepts no call.
        EnvironmentFailedError: The environment cannot start an episode.
    """
    _check_output(config)
    async with session(config, config.output) as made:
        if made.setting.oracle is None:
            log.warning(_UNGRADED.format(made.environment, config.output))
        run = _Run.of(config, made)
        results = await run_reflexion(
            made.pool,
            run.challenges,
            run.judge,
            Path(config.output),
            config.retries,
            **run.rest,
            retry_broken=config.retry_broken,
            retry_unscored=config.retry_unscored,
            progress=progress,
        )
    result = ReflexionResult(results, str(config.output))
    await asyncio.to_thread(write_output, Path(config.output) / TABLE, f"{result}\n".encode())
    return result


reflexion = synchronous(reflexion_async)
"""Runs `reflexion_async` with the same parameters, for scripts and notebooks."""


async def plan_reflexion_async(config: ReflexionConfig) -> RunPlan:
    """Plans the most that the run would do; makes every part and plays nothing.

    Args:
        config: The settings of the run.

    Returns:
        The plan.

    Raises:
        UsageError: The run could not start.
    """
    _check_output(config)
    async with session(config, config.output, planned=True) as made:
        if made.setting.oracle is None:
            log.warning(_UNGRADED.format(made.environment, config.output))
        run = _Run.of(config, made)
        check_again(
            made.pool, run.challenges, run.judge, Path(config.output), config.retries, **run.rest
        )
        episodes = EpisodePlan.of(made, config.retries.attempts)
        return plan_retries(episodes, run.judge, asks=run.asks, output=config.output)


plan_reflexion = synchronous(plan_reflexion_async)
"""Runs `plan_reflexion_async` with the same parameters, for scripts and notebooks."""


def _check_output(config: ReflexionConfig) -> None:
    expect_file(config.output, "a folder")
    check_output(Path(config.output) / TRAJECTORIES, "trajectories", continued=True)


@dataclass(frozen=True)
class _Run:
    """The parts of a run, made in its session.

    `asks`: a model writes the lessons.
    """

    challenges: Sequence[Challenge[Any]]
    judge: Evaluator | None
    asks: bool
    rest: dict[str, Any]

    @classmethod
    def of(cls, config: ReflexionConfig, made: RolloutSession) -> _Run:
        judge = _judge(config, made)
        lessons = config.lessons
        model = (
            None
            if lessons.model is None
            else shared_model(config.policy_model, lessons.model, config.calls)
        )
        make = partial(learner_from_case, made, model, lessons)
        first = make(Case(""), (), 0)
        settings = {
            "policy": made.plan.agent,
            "environment": made.environment,
            "run": fingerprint(list(made.run)),
            "lessons": {
                **lessons.settings(),
                "model": _model_name(first, model),
                "prompt": Reflector(UncalledModel()).prompt,
            },
        }
        challenges = [challenge_from_case(made, make, row) for row in made.rows]
        baseline = None if config.baseline is None else Path(config.baseline)
        rest = {"play": make_play_settings(made), "baseline": baseline, "settings": settings}
        return cls(challenges, judge, isinstance(first, Reflective), rest)


def make_play_settings(made: RolloutSession) -> PlaySettings[Any]:
    """Returns the settings for playing a session's episodes."""
    return PlaySettings(
        oracle=made.setting.oracle,
        max_steps=made.max_steps,
        timeout=made.config.episode_timeout,
        early_stop=made.early_stop,
        patience=made.config.patience,
        leftovers=made.setting.leftovers,
    )


def plan_retries(
    episodes: EpisodePlan, judge: Evaluator | None, *, asks: bool, output: str | Path
) -> RunPlan:
    """Plans the most that retries would do; solved tasks are not retried.

    `asks`: a model writes the lessons.
    """
    lessons = episodes.episodes * (episodes.attempts - 1)
    who = "the environment's labels" if judge is None else judge.info.name
    work = [episodes.line(), f"judge at most {episodes.todo} attempts by {who}"]
    if episodes.attempts > 1:
        work.append(f"generate at most {lessons} lessons")
    usages = [
        episodes.all_usage,
        times(episodes.recorded.judging(judge), episodes.todo),
        None if asks and lessons else Usage(),
    ]
    unknown = (
        "the cost of a lesson is not known in advance"
        if episodes.usage is not None and usages[2] is None
        else None
    )
    return RunPlan(
        work=(*work, f"would be written to {output}"),
        counts={
            "episodes": episodes.episodes,
            "tasks": episodes.tasks,
            "done": episodes.done,
            "attempts": episodes.attempts,
            "verdicts": episodes.todo,
            "lessons": lessons,
        },
        usage=total_usage(usages),
        unknown=unknown or NOTHING_RECORDED,
        most=True,
        most_seconds=episodes.most_seconds,
    )


def _judge(config: ReflexionConfig, made: RolloutSession) -> Evaluator | None:
    """Makes the judge, wrapped with the second judge if one is configured.

    The result is None if the environment's labels decide.
    """
    if config.is_graded_by_oracle:
        return None

    def make(path: str, judge: JudgeLike) -> Evaluator:
        if (
            isinstance(judge, JudgeConfig)
            and judge.name == "noisy"
            and "labels" not in judge.options
        ):
            return _noisy(
                path, judge, Path(config.output) / LABELS, graded=made.setting.oracle is not None
            )
        return make_run_judge(
            judge,
            policy_model=config.policy_model,
            concurrency=config.calls,
            captioner="text",
            path=path,
        )

    with used_together():
        judge = make("judge", config.judge)
        second = None if config.second is None else make("second", config.second)
    return judge if second is None else with_second_opinion(judge, second, config.retries.threshold)


def _noisy(path: str, judge: JudgeConfig, labels: Path, *, graded: bool) -> Evaluator:
    """Makes a judge that returns this run's labels, which are written during the run, with
    artificial errors.
    """
    if not graded:
        raise UsageError(
            "noisy: there is no oracle whose labels it could change; give `labels`",
            parameters=("labels",),
        )
    around = {key: value for key, value in judge.options.items() if key in WRAPPER_OPTIONS}
    own = {key: value for key, value in judge.options.items() if key not in around}
    spec = NoiseSpec(**read_options(NoiseSpec, own, "judge 'noisy'", place=f"{path}."))
    return make_judge(NoisyLabels(LabelJudge(labels), spec), **around)


def learner_from_case(
    made: RolloutSession,
    model: LanguageModel | None,
    spec: ReflectorSpec,
    row: Case,
    lessons: Sequence[str],
    number: int,
) -> Learner:
    """Makes the agent of an attempt, with its lessons.

    Raises UsageError for a policy that does not accept lessons.
    """
    return find_learner(made.plan.make(replace(row, attempt=number)), lessons, model, spec)


def challenge_from_case(
    made: RolloutSession, make: Callable[[Case, Sequence[str], int], Learner], row: Case
) -> Challenge[Any]:
    """Returns one task and seed to try several times.

    `make` makes the agent of an attempt, with the lessons so far.
    """
    return Challenge(
        name=f"{row.task}-s{row.seed}",
        id=lambda number: made.id(replace(row, attempt=number)),
        task=partial(made.setting.task, name=row.task, seed=row.seed),
        learner=partial(make, row),
        agent=made.plan.agent,
        metadata={"seed": row.seed, **template_from_case(made, row)},
        needs=made.setting.needs.get(row.task, frozenset()),
    )


def _model_name(learner: Learner, model: LanguageModel | None) -> str:
    return (
        (model or learner.reflector.model).name
        if isinstance(learner, Reflective)
        else "the policy's own"
    )
