"""Reflexion with any judge and policy (arXiv 2303.11366): attempt, verdict, reflection.

In each round, all unfinished tasks are played, then judged, then reflected on (`LOOP`); or the
tasks run one after another (`RetrySpec.order`). Attempts use the common episode loop
(`prill.episodes.loop`) and recorder (`prill.episodes.record`). Each result is stored at once by
task and attempt, so that a killed run resumes. An oracle's labels go from the recorder to the
labels file, and from there to the results; agent, judge and reflector see trajectories and verdicts
only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Generic

import msgspec
from msgspec import Meta

from prill.config.registry import read_options
from prill.config.shared import RetryUnscoredOption, RunFolderOption
from prill.config.toml import read_table
from prill.config.values import Config
from prill.emulators.task_source import fingerprint
from prill.episodes.cases import Case
from prill.episodes.episodes import (
    EpisodePlan,
    EpisodesConfig,
    PolicyOption,
    RolloutSession,
    session,
    template_from_case,
)
from prill.episodes.loop import is_unpaid
from prill.episodes.policies import shared_model
from prill.episodes.record import Episode, Pool, RecordTally, record
from prill.episodes.run_folder import RunFolder, unlabelled_attempts
from prill.errors import BudgetSpentError, NoEvidenceError, UnscoredError, UsageError
from prill.evaluators.baselines import NoiseSpec, NoisyLabels
from prill.evaluators.combine import as_score
from prill.evaluators.judgement import Baseline, Judgement
from prill.evaluators.registry import (
    WRAPPER_OPTIONS,
    JudgeConfig,
    JudgeLike,
    make_judge,
    make_run_judge,
)
from prill.evaluators.scoring.scorer import score_stream
from prill.io.append_log import AppendLog
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.manifest import HASHES, VERSIONS, write_manifest
from prill.io.outputs import check_output, expect_file, write_output
from prill.io.retries import (
    LESSONS,
    RESULTS,
    SETTINGS,
    VERDICTS,
    AttemptResult,
    End,
    Lesson,
    ReflexionResults,
    TaskResult,
    lost_labels_note,
    read_lessons,
)
from prill.io.store import copy_image, encode, read_verdicts, with_screenshots
from prill.io.tables import data_frame
from prill.io.verdict_log import VerdictLog, lasts
from prill.models.budget import UncalledModel
from prill.models.calls import gather_calls
from prill.models.devices import used_together
from prill.models.ledger import metered
from prill.models.registry import ModelConfig, ModelLike, model_options
from prill.plans import NOTHING_RECORDED, RunPlan, times, total_usage
from prill.policies.registry import PolicyConfig
from prill.protocols import E, Evaluator, LanguageModel, Learner
from prill.refine.outcomes import (
    attempts_in,
    label_records,
    make_table,
    table_lines,
    truths_in,
)
from prill.refine.reflector import LessonsConfig, LessonsOption, Reflective, Reflector, find_learner
from prill.refine.retries import (
    Attempt,
    Challenge,
    Move,
    RetrySpec,
    answer_among,
    collect_lessons,
    decided,
    get_threshold,
    next_move,
    visible_verdict,
    with_second_opinion,
)
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run
from prill.types import EvaluatorInfo, LabelRecord, Step, Trajectory, Usage, Verdict

log = logging.getLogger("prill.runs")
TABLE = "results.md"
_UNGRADED = (
    "{0} has no oracle: attempts are counted by the judge's verdicts, and the true success "
    "rates stay unknown until people have labelled the attempts (prill annotate "
    "{1}/trajectories.jsonl -o {1}/labels.jsonl, then the same run again)"
)
_AT_ONCE = 16  # lessons
_RETRIES, _LESSONS = RetrySpec(), LessonsConfig()
# The task states in which neither the judge nor the last attempt gives an answer.
_TROUBLE = ("unscored", "no_lesson", "broken", "not_begun")


@dataclass(frozen=True, kw_only=True)
class ReflexionConfig(Config):
    """Configuration of `prill reflexion`: retry tasks while a judge says failure, each time with
    the lessons so far.
    """

    spec: EpisodesConfig
    policy: PolicyOption = "react"
    output: RunFolderOption
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
    lessons: LessonsOption = _LESSONS
    baseline: Annotated[
        str | Path | None,
        Meta(
            description="Another run. Its attempts and lessons are reused as long as both "
            "judges agree."
        ),
    ] = None
    retry_unscored: RetryUnscoredOption = False

    def check(self) -> None:
        """Validates options that depend on each other."""
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
        model = self.spec.model
        if model is not None or "model" not in options:
            return model
        described = ModelConfig.read(options["model"], "policy.model")
        if not isinstance(described, ModelConfig):
            made: LanguageModel = described
            return made
        among = {key: options[key] for key in model_options(described) if key in options}
        return ModelConfig(described.name, **{**among, **described.options})

    @property
    def calls(self) -> int:
        """Returns the default maximum of concurrent calls per model."""
        return max(self.spec.workers or 1, 16)


@dataclass(frozen=True)
class ReflexionResult(Printed):
    """Result of a Reflexion run.

    Args:
        results: The results file: every attempt with its verdict, label and lesson, and the table.
        output: The output folder.
    """

    results: ReflexionResults
    output: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the table as a JSON object."""
        return dict(msgspec.to_builtins(self.results.table))

    def notes(self) -> Iterator[str]:
        """Yields what the figures leave out, the tasks without an answer, and the files."""
        results, folder = self.results, Path(self.output)
        yield from (f"attempts after the first: {warning}" for warning in results.warnings)
        yield from (f"{name}: {why}" for name, why in self.unanswered.items())
        yield f"-> {folder / RESULTS}, {folder / TABLE}"
        attempts = sum(len(task.attempts) for task in results.tasks)
        yield from lost_labels_note(folder, results.lost_labels, attempts)

    @property
    def exit_code(self) -> int:
        """Returns 3 if some tasks have no answer."""
        return EXIT_ALL if self.complete else EXIT_SOME

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


@as_run(ReflexionConfig)
async def reflexion(
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
    async with session(config.spec, config.output, policy=config.policy) as made:
        retries, _ = _retries(config, made, progress)
        results = await retries.run(
            retry_broken=config.spec.retry_broken, retry_unscored=config.retry_unscored
        )
    result = ReflexionResult(results, str(config.output))
    await asyncio.to_thread(write_output, Path(config.output) / TABLE, f"{result}\n".encode())
    return result


@as_run(ReflexionConfig)
async def plan_reflexion(config: ReflexionConfig) -> RunPlan:
    """Plans the most that the run would do; makes every part and plays nothing.

    Args:
        config: The settings of the run.

    Raises:
        UsageError: The run could not start.
    """
    _check_output(config)
    async with session(config.spec, config.output, policy=config.policy, planned=True) as made:
        retries, asks = _retries(config, made, lambda stage: None)
        retries.expect_same()
        episodes = EpisodePlan.of(made, config.retries.attempts)
        return plan_retries(episodes, retries.judge, asks=asks, output=config.output)


def _check_output(config: ReflexionConfig) -> None:
    expect_file(config.output, "a folder")
    check_output(Path(config.output) / TRAJECTORIES, "trajectories", continued=True)


def _retries(
    config: ReflexionConfig,
    made: RolloutSession,
    progress: Callable[[ReflexionProgress], None],
) -> tuple[Retries[Any], bool]:
    """Makes the run in its session, and tells whether a model writes the lessons."""
    if made.setting.oracle is None:
        log.warning(_UNGRADED.format(made.environment, config.output))
    judge, second = _judges(config, made)
    lessons = config.lessons
    model = (
        None
        if lessons.model is None
        else shared_model(config.policy_model, lessons.model, config.calls)
    )
    make = partial(learner_from_case, made, model, lessons)
    first = make(made.rows[0] if made.rows else Case(""), (), 0)
    asks = isinstance(first, Reflective)
    settings = {
        "policy": made.plan.agent,
        "environment": made.environment,
        "run": fingerprint(list(made.run)),
        "lessons": {
            **lessons.settings(),
            "model": (model or first.reflector.model).name
            if isinstance(first, Reflective)
            else "the policy's own",
            "prompt": Reflector(UncalledModel()).prompt,
        },
    }
    retries = Retries(
        made.pool,
        [challenge_from_case(made, make, row) for row in made.rows],
        judge,
        Path(config.output),
        config.retries,
        play=make_play_settings(made),
        baseline=None if config.baseline is None else Path(config.baseline),
        settings=settings,
        progress=progress,
        second=second,
    )
    return retries, asks


def make_play_settings(made: RolloutSession) -> PlaySettings[Any]:
    """Returns the settings for playing a session's episodes."""
    return PlaySettings(
        oracle=made.setting.oracle,
        max_steps=made.max_steps,
        timeout=made.config.episode_timeout,
        early_stop=made.early_stop,
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


def _judges(
    config: ReflexionConfig, made: RolloutSession
) -> tuple[Evaluator | None, Evaluator | None]:
    """Makes the judge (None: the environment's labels decide) and the second one, if any."""
    oracle = LabelJudge(Path(config.output) / LABELS)
    if config.is_graded_by_oracle:
        return None, None

    def make(path: str, judge: JudgeLike) -> Evaluator:
        if (
            isinstance(judge, JudgeConfig)
            and judge.name == "noisy"
            and "labels" not in judge.options
        ):
            if made.setting.oracle is None:
                raise UsageError(
                    "noisy: there is no oracle whose labels it could change; give `labels`",
                    parameters=("labels",),
                )
            # the labels of this run, which are written during the run, with artificial errors
            around = {key: value for key, value in judge.options.items() if key in WRAPPER_OPTIONS}
            own = {key: value for key, value in judge.options.items() if key not in around}
            spec = NoiseSpec(**read_options(NoiseSpec, own, "judge 'noisy'", place=f"{path}."))
            return make_judge(NoisyLabels(oracle, spec), **around)
        return make_run_judge(
            judge,
            policy_model=config.policy_model,
            concurrency=config.calls,
            captioner="text",
            path=path,
        )

    with used_together():
        judge = make("judge", config.judge)
        return judge, None if config.second is None else make("second", config.second)


def learner_from_case(
    made: RolloutSession,
    model: LanguageModel | None,
    spec: LessonsConfig,
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


@dataclass(frozen=True, kw_only=True)
class PlaySettings(Generic[E]):
    """Options of the episodes.

    Args:
        oracle: Labels an episode in its environment. None: episodes have no labels.
        max_steps: The most actions of an episode.
        timeout: The time limit of an episode, in seconds. None: no limit.
        early_stop: As in `prill.rollout`.
        leftovers: Why a later attempt may see changes of an earlier one. None: every attempt starts
            in a fresh state.
    """

    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None
    max_steps: int = 30
    timeout: float | None = 600.0
    early_stop: Callable[[Sequence[Step]], str | None] | None = None
    leftovers: str | None = None


@dataclass(frozen=True)
class ReflexionProgress:
    """The progress of a run: `done` of `total` tasks in stage `move` of `attempt` (from 0)."""

    move: Move
    attempt: int
    done: int
    total: int

    @property
    def state(self) -> tuple[Any, ...]:
        """Returns what a progress bar shows: the phase, the count, and the total."""
        move = {"play": "playing", "judge": "judging", "reflect": "reflecting"}[self.move]
        return f"attempt {self.attempt}: {move}", self.done, self.total


async def run_reflexion(
    pool: Pool[E],
    challenges: Sequence[Challenge[E]],
    judge: Evaluator | None,
    out: Path,
    spec: RetrySpec | None = None,
    *,
    play: PlaySettings[E] | None = None,
    baseline: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    retry_broken: bool = False,
    retry_unscored: bool = False,
    progress: Callable[[ReflexionProgress], None] = lambda stage: None,
) -> ReflexionResults:
    """Runs Reflexion: repeats each task until the judge accepts an attempt or no attempts are left.
    The same call resumes.

    Args:
        pool: The pool of environments.
        challenges: The tasks, each with its agent.
        judge: Decides whether an attempt succeeded. None: the oracle's labels decide, which is the
            upper bound.
        out: The run's folder. `results.json` in it holds the results.
        spec: The options of retries. None: the defaults.
        play: The options of episodes. None: the defaults.
        baseline: The folder of another run of these tasks, or of recorded first attempts. Attempts
            with the same id are copied from there, and lessons too if their prompt is the same.
            None: every attempt is played.
        settings: Further settings that distinguish this run from others. None: none.
        retry_broken: Play attempts again in which the environment failed.
        retry_unscored: Judge unscored attempts again.
        progress: Called at each stage.

    Raises:
        UsageError: The folder holds a run with other settings, or there is neither a judge nor an
            oracle.
        EndpointError: A model cannot be used at all.
    """
    given = (play or PlaySettings(), baseline, settings or {}, progress)
    retries = Retries(pool, challenges, judge, out, spec or RetrySpec(), *given)
    return await retries.run(retry_broken=retry_broken, retry_unscored=retry_unscored)


class LabelJudge(Baseline):
    """A judge that returns the labels of the current run: the upper bound for any judge. `path` is
    the run's label file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int] | None = None
        self._labels: dict[str, bool | None] = {}
        self.info = EvaluatorInfo("oracle", "1", params={"labels": "of this run"})

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        success = self._now().get(trajectory.id)
        if success is None:
            raise NoEvidenceError("the oracle did not decide")
        return Judgement(success, float(success), "the label says so")

    def _now(self) -> dict[str, bool | None]:
        """Returns the labels so far; the file is read again after it grew."""
        if self._path.exists():
            state = self._path.stat()
            if (found := (state.st_size, state.st_mtime_ns)) != self._read:
                self._labels, self._read = truths_in(self._path), found
        return self._labels


@dataclass(frozen=True)
class _Played:
    """The facts about a played attempt that stay in memory."""

    goal: str
    answer: str | None
    error: str | None
    usage: Usage
    reused: bool


@dataclass
class Retries(Generic[E]):
    """A run of Reflexion, as `run_reflexion` describes it: its parts, the result of each attempt so
    far, and the files that store it.
    """

    pool: Pool[E]
    challenges: Sequence[Challenge[E]]
    judge: Evaluator | None
    out: Path
    spec: RetrySpec
    play: PlaySettings[E]
    baseline: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[[ReflexionProgress], None] = lambda stage: None
    second: Evaluator | None = None  # asked before an attempt is discarded
    played: dict[str, _Played] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    lessons: dict[str, Lesson] = field(default_factory=dict)
    not_begun: set[str] = field(default_factory=set)
    old_lessons: dict[str, Lesson] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)  # broken attempts that are played again

    def __post_init__(self) -> None:
        if self.judge is None and self.play.oracle is None:
            raise UsageError(
                "there is no oracle whose labels could decide; name a judge",
                parameters=("evaluator",),
            )
        if (baseline := self.baseline) is not None:
            if baseline.resolve() == self.out.resolve():
                raise UsageError(
                    f"{baseline}: the other run is this run itself", parameters=("baseline",)
                )
            if not (baseline / TRAJECTORIES).is_file():
                raise UsageError(
                    f"{baseline}: contains no recorded attempts to reuse", parameters=("baseline",)
                )
        if self.judge is not None and self.second is not None:
            self.judge = with_second_opinion(self.judge, self.second, self.spec.threshold)
        self._judge = self.judge or LabelJudge(self.out / LABELS)
        self.threshold = get_threshold(self.spec, self._judge)

    async def run(self, *, retry_broken: bool, retry_unscored: bool) -> ReflexionResults:
        """Runs stage after stage until every task has ended."""
        recorded = self.expect_same()
        with (
            VerdictLog(self.out / VERDICTS, self._judge.info) as self._verdict_log,
            AppendLog(
                self.out / LESSONS,
                Lesson,
                what="lesson",
                advice="fix the line or choose another folder",
            ) as self._lesson_log,
        ):
            self._load(retry_unscored)
            self._expect_lessons()
            write_manifest(self.out / SETTINGS, recorded)
            broken = {id: one.error for id, one in self.played.items() if one.error is not None}
            self.again = {id for id, error in broken.items() if retry_broken or is_unpaid(error)}
            for id in self.again:
                del self.played[id]
            if self.baseline is not None:
                self.old_lessons = read_lessons(self.baseline / LESSONS)
            while going := self._going():
                move, stage = next(one for one in LOOP if one[0] in going)
                await stage(self, going[move])
            results = self._write()
            write_manifest(self.out / SETTINGS, recorded, [self.out / RESULTS])
        return results

    def expect_same(self) -> dict[str, Any]:
        """Returns the settings that distinguish this run from others. Raises UsageError if the
        folder holds a run with other settings.
        """
        settings = {
            **self.settings,
            "evaluator": msgspec.to_builtins(self._judge.info),
            "retries": asdict(self.spec),
        }
        path = self.out / SETTINGS
        if not path.exists():
            return settings
        try:
            old, new = read_table(path), msgspec.json.decode(msgspec.json.encode(settings))
        except UsageError as error:
            reason = str(error).removeprefix(f"{path}: ")
            raise UsageError(
                f"{path}: not the settings of a run ({reason}); choose another folder"
            ) from None
        keys = (old.keys() | new.keys()) - {HASHES, VERSIONS}
        if differ := sorted(key for key in keys if old.get(key) != new.get(key)):
            raise UsageError(
                f"{path}: contains a run with other settings ({', '.join(differ)}); choose "
                "another folder, and name this one as the baseline",
                parameters=("output", "baseline"),
            )
        return settings

    def _load(self, retry_unscored: bool) -> None:
        """Reads the results of earlier calls from the folder."""
        verdicts = (
            list(read_verdicts(self.out / VERDICTS)) if (self.out / VERDICTS).stat().st_size else []
        )
        recorded = {trajectory.id for trajectory in attempts_in(self.out, None)}
        if lost := [verdict.id for verdict in verdicts if verdict.id not in recorded]:
            raise UsageError(
                f"{self.out / TRAJECTORIES}: the attempt {lost[0]}, which has a verdict, is "
                f"missing; restore the file, or delete {VERDICTS} and {LESSONS}, and what is "
                "missing is made again"
            )
        RunFolder(self.out).close()  # repairs files that a crash left incomplete
        self._read_recordings(None)
        for verdict in verdicts:
            if lasts(verdict.unscored, retry_unscored=retry_unscored):
                self.verdicts[verdict.id] = decided(verdict, self.threshold)
        for id, lesson in read_lessons(self.out / LESSONS).items():
            if lesson.text is not None or not (
                retry_unscored or (lesson.problem or "").startswith(f"{BudgetSpentError.code}: ")
            ):
                self.lessons[id] = lesson

    def _expect_lessons(self) -> None:
        """Raises UsageError if a lesson that later attempts were given is missing."""
        for challenge in self.challenges:
            for attempt in self._attempts(challenge)[:-1]:
                if attempt.lesson is None:
                    raise UsageError(
                        f"{self.out / LESSONS}: the lesson from the attempt {attempt.id} is "
                        "missing; restore the file, or choose another folder"
                    )

    def _attempts(self, challenge: Challenge[E]) -> list[Attempt]:
        attempts: list[Attempt] = []
        for number in range(self.spec.attempts):
            id = challenge.id(number)
            played = self.played.get(id)
            if played is None:
                break
            attempts.append(Attempt(id, self.verdicts.get(id), self.lessons.get(id), played.error))
        return attempts

    def _next(self, challenge: Challenge[E]) -> Move | End:
        move = next_move(self._attempts(challenge), self.spec)
        return "not_begun" if move == "play" and challenge.name in self.not_begun else move

    def _going(self) -> dict[str, list[Challenge[E]]]:
        """Returns the unfinished tasks by their next stage."""
        going: dict[str, list[Challenge[E]]] = {}
        if self.spec.order == "attempt":
            open_, room = list(self.challenges), len(self.challenges)
        # as many tasks at the same time as there are environments; tasks with attempts go first
        else:
            open_, room = (
                sorted(self.challenges, key=lambda one: not self._attempts(one)),
                max(1, self.pool.size),
            )
        in_use = set[str]()
        for challenge in open_:
            move = self._next(challenge)
            if move not in ("play", "judge", "reflect"):
                continue
            if self.spec.order == "task" and (not room or not in_use.isdisjoint(challenge.needs)):
                continue
            going.setdefault(move, []).append(challenge)
            in_use |= challenge.needs
            room -= 1
        return going

    async def play_all(self, going: Sequence[Challenge[E]]) -> None:
        """Plays the next attempt at each of these tasks, or copies it from the baseline."""
        numbers = {challenge.name: len(self._attempts(challenge)) for challenge in going}
        number = min(numbers.values())
        wanted = {
            challenge.id(numbers[challenge.name]): challenge
            for challenge in going
            if self.spec.order == "task" or numbers[challenge.name] == number
        }
        self._reuse(wanted)
        missing = {id: challenge for id, challenge in wanted.items() if id not in self.played}
        episodes = [
            self._episode(challenge, id, numbers[challenge.name])
            for id, challenge in missing.items()
        ]

        def show(counts: RecordTally) -> None:
            self.progress(
                ReflexionProgress(
                    "play", number, counts.total + len(wanted) - len(missing), len(wanted)
                )
            )

        if episodes:
            await record(
                self.pool,
                episodes,
                self.out,
                oracle=self.play.oracle,
                max_steps=self.play.max_steps,
                timeout=self.play.timeout,
                early_stop=self.play.early_stop,
                retry_broken=bool(self.again & missing.keys()),
                progress=show,
            )
        self._read_recordings(missing)
        self.not_begun |= {
            challenge.name for id, challenge in missing.items() if id not in self.played
        }

    def _episode(self, challenge: Challenge[E], id: str, number: int) -> Episode[E]:
        lessons = collect_lessons(self._attempts(challenge))
        metadata: dict[str, Any] = {**challenge.metadata, "attempt": number}
        if number:
            metadata["lessons"] = lessons
            if self.play.leftovers:
                metadata["state"] = self.play.leftovers
        return Episode(
            id=id,
            task=challenge.task,
            policy=lambda: challenge.learner(lessons, number),
            agent=challenge.agent,
            metadata=metadata,
            needs=challenge.needs,
        )

    def _reuse(self, wanted: Mapping[str, Challenge[E]]) -> None:
        """Copies the baseline's recordings of these attempts, with their labels."""
        if self.baseline is None:
            return
        labels = label_records(self.baseline / LABELS)
        with RunFolder(self.out) as folder:
            for trajectory in attempts_in(self.baseline, wanted):
                if (
                    trajectory.error is None
                    and trajectory.id not in folder
                    and trajectory.id not in self.again
                ):
                    ours = with_screenshots(
                        trajectory, lambda path, at: str(copy_image(path, self.out / "images"))
                    )
                    folder.keep(
                        replace(ours, metadata={**ours.metadata, "reused": True}),
                        labels.get(trajectory.id),
                    )
        self._read_recordings(wanted)

    def _read_recordings(self, ids: Collection[str] | None) -> None:
        """Reads the recordings of these attempts; None: of all."""
        for trajectory in attempts_in(self.out, ids):
            usage = msgspec.convert(trajectory.metadata.get("usage", {}), Usage)
            reused = trajectory.metadata.get("reused") is True
            self.played[trajectory.id] = _Played(
                trajectory.task.goal,
                trajectory.answer,
                trajectory.error,
                Usage() if reused else usage,
                reused,
            )

    async def judge_all(self, going: Sequence[Challenge[E]]) -> None:
        """Judges all attempts at these tasks that have no verdict."""
        attempts = [self._attempts(challenge) for challenge in going]
        ids, count = {attempt.id for made in attempts for attempt in made if attempt.is_unjudged}, 0
        async for verdict in score_stream(attempts_in(self.out, ids), self._judge):
            # as this run counts it, which its report shows, too
            verdict = decided(verdict, self.threshold)
            self._verdict_log.append(verdict)
            self.verdicts[verdict.id] = verdict
            count += 1
            self.progress(ReflexionProgress("judge", max(map(len, attempts)) - 1, count, len(ids)))

    async def reflect_all(self, going: Sequence[Challenge[E]]) -> None:
        """Writes a lesson from the last attempt at each of these tasks."""
        by_id = {self._attempts(challenge)[-1].id: challenge for challenge in going}
        trajectories, count = attempts_in(self.out, by_id), 0
        while batch := list(islice(trajectories, _AT_ONCE)):
            await gather_calls(
                [self._reflect(by_id[trajectory.id], trajectory) for trajectory in batch]
            )
            count += len(batch)
            number = len(self._attempts(by_id[batch[-1].id])) - 1
            self.progress(ReflexionProgress("reflect", number, count, len(by_id)))

    async def _reflect(self, challenge: Challenge[E], trajectory: Trajectory) -> None:
        verdict = visible_verdict(self.verdicts[trajectory.id], self.spec.status)
        old = self.old_lessons.get(trajectory.id)
        if (
            old is not None
            and old.text is not None
            and old.status == verdict.reason
            and self.played[trajectory.id].reused
        ):
            self._keep(replace(old, usage=Usage()))
            return
        attempts = self._attempts(challenge)
        learner = challenge.learner(collect_lessons(attempts), len(attempts) - 1)
        text = problem = None
        with metered() as meter:
            try:
                text = await learner.reflect(trajectory, verdict)
            except UnscoredError as failure:
                problem = f"{failure.code}: {failure}"
        self._keep(
            Lesson(
                id=trajectory.id,
                text=text,
                status=verdict.reason,
                problem=problem,
                usage=meter.usage,
            )
        )

    def _keep(self, lesson: Lesson) -> None:
        self._lesson_log.append(lesson)
        self.lessons[lesson.id] = lesson

    def _write(self) -> ReflexionResults:
        truths = truths_in(self.out / LABELS)
        tasks = tuple(self._result(challenge, truths) for challenge in self.challenges)
        warnings = (
            (self.play.leftovers,)
            if self.play.leftovers and any(len(t.attempts) > 1 for t in tasks)
            else ()
        )
        lost = unlabelled_attempts(self.out) if self.play.oracle and self.played else set()
        results = ReflexionResults(
            evaluator=self._judge.info,
            settings={**self.settings, "retries": asdict(self.spec), "threshold": self.threshold},
            attempts=self.spec.attempts,
            keep_best=self.spec.keep_best,
            warnings=warnings,
            lost_labels=sum(not a.reused and a.id in lost for t in tasks for a in t.attempts),
            tasks=tasks,
            table=make_table(tasks, self.spec.attempts, keep_best=self.spec.keep_best),
        )
        write_output(
            self.out / RESULTS, msgspec.json.format(encode(results), indent=1).rstrip() + b"\n"
        )
        return results

    def _result(self, challenge: Challenge[E], truths: Mapping[str, bool | None]) -> TaskResult:
        attempts = self._attempts(challenge)
        ended = [attempt.broken is None for attempt in attempts]
        scores = [as_score(attempt.verdict) for attempt in attempts]
        move = self._next(challenge)
        assert move != "play" and move != "judge" and move != "reflect"
        return TaskResult(
            name=challenge.name,
            goal=self.played[attempts[0].id].goal if attempts else "",
            attempts=tuple(
                self._attempt_result(attempt, truths.get(attempt.id)) for attempt in attempts
            ),
            ended=move,
            answer=answer_among(ended, scores, keep_best=self.spec.keep_best),
        )

    def _attempt_result(self, attempt: Attempt, truth: bool | None) -> AttemptResult:
        played, verdict, lesson = self.played[attempt.id], attempt.verdict, attempt.lesson
        status = (
            "broken"
            if verdict is None
            else "unscored"
            if verdict.success is None
            else _WORDS[verdict.success]
        )
        return AttemptResult(
            id=attempt.id,
            status=status,  # type: ignore[arg-type]
            answer=played.answer,
            score=as_score(verdict),
            unscored=verdict.unscored if verdict else None,
            reason=verdict.reason if verdict else "",
            lesson=lesson.text if lesson else None,
            problem=attempt.broken or (lesson.problem if lesson else None),
            truth=truth,
            reused=played.reused,
            actor=played.usage,
            judge=verdict.usage if verdict else Usage(),
            reflector=lesson.usage if lesson else Usage(),
        )


_WORDS = {True: "success", False: "failure"}
LOOP = (
    ("play", Retries.play_all),
    ("judge", Retries.judge_all),
    ("reflect", Retries.reflect_all),
)
