"""Reflexion with any judge (arXiv 2303.11366): attempt, verdict, reflection.

In each round, all unfinished tasks are played, then judged, then reflected on; or the tasks run one
after another (`RetrySpec.order`). Attempts use the common episode loop (`prill.episodes.loop`) and
recorder (`prill.episodes.record`). Each result is stored at once by task and attempt, so that a
killed run resumes. An oracle's labels go from the recorder to the labels file, and from there to
the results; agent, judge and reflector see trajectories and verdicts only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Generic

import msgspec

from prill.config.toml import read_table
from prill.episodes.loop import is_unpaid
from prill.episodes.record import Episode, Pool, RecordTally, record
from prill.episodes.run_folder import RunFolder
from prill.errors import BudgetSpentError, NoEvidenceError, UnscoredError, UsageError
from prill.evaluators.combine import as_score
from prill.evaluators.judgement import Judgement, make_verdict
from prill.io.append_log import AppendLog
from prill.io.checksums import Checksums
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.outputs import write_errors, write_output
from prill.io.store import copy_image, encode, read_verdicts, with_screenshots
from prill.io.verdict_log import VerdictLog, lasts
from prill.models.calls import gather_calls
from prill.models.ledger import metered
from prill.models.transport import PATIENCE
from prill.protocols import E, Evaluator, Learner
from prill.refine.outcomes import (
    LESSONS,
    RESULTS,
    SETTINGS,
    VERDICTS,
    AttemptResult,
    ReflexionResults,
    TaskResult,
    attempts_in,
    label_records,
    make_table,
    read_lessons,
    truths_in,
)
from prill.refine.retries import (
    Attempt,
    End,
    Lesson,
    Move,
    RetrySpec,
    answer_among,
    collect_lessons,
    decided,
    get_threshold,
    next_move,
    visible_verdict,
)
from prill.scoring.scorer import score_stream
from prill.types import (
    EvaluatorInfo,
    LabelRecord,
    Step,
    Task,
    Trajectory,
    Usage,
    Verdict,
)

_AT_ONCE = 16  # lessons


@dataclass(frozen=True, kw_only=True)
class Challenge(Generic[E]):
    """One task to try several times.

    Args:
        name: The task's name in the results.
        id: Returns the id of an attempt from its number, from 0. The same settings give the same
            ids.
        task: Returns the task; it is called before each attempt with the environment.
        learner: Creates the agent of an attempt from the lessons of the attempts before it and the
            attempt's number, from 0.
        agent: The agent's name for the record. None: no name.
        metadata: Additional metadata of the trajectories.
        needs: The resources that no other episode may use at the same time, such as the sites that
            a reset restores.
    """

    name: str
    id: Callable[[int], str]
    task: Callable[[E], Awaitable[Task]]
    learner: Callable[[Sequence[str], int], Learner]
    agent: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PlaySettings(Generic[E]):
    """Options of the episodes.

    Args:
        oracle: Labels an episode in its environment. None: episodes have no labels.
        max_steps: The most actions of an episode.
        timeout: The time limit of an episode, in seconds. None: no limit.
        early_stop: As in `prill.rollout`.
        patience: The longest time without any reply of a model before the run ends, in seconds.
        leftovers: Why a later attempt may see changes of an earlier one. None: every attempt starts
            in a fresh state.
    """

    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None
    max_steps: int = 30
    timeout: float | None = 600.0
    early_stop: Callable[[Sequence[Step]], str | None] | None = None
    patience: float = PATIENCE
    leftovers: str | None = None


@dataclass(frozen=True)
class ReflexionProgress:
    """The progress of a run: `done` of `total` tasks in stage `move` of `attempt` (from 0)."""

    move: Move
    attempt: int
    done: int
    total: int


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

    Returns:
        The results.

    Raises:
        UsageError: The folder holds a run with other settings, or there is neither a judge nor an
            oracle.
        EndpointError: A model cannot be used at all.
    """
    run = _Run(
        pool,
        challenges,
        judge or LabelJudge(out / LABELS),
        out,
        spec or RetrySpec(),
        play or PlaySettings(),
        baseline,
        progress,
    )
    return await run.all(settings or {}, retry_broken=retry_broken, retry_unscored=retry_unscored)


def check_again(
    pool: Pool[E],
    challenges: Sequence[Challenge[E]],
    judge: Evaluator | None,
    out: Path,
    spec: RetrySpec,
    *,
    play: PlaySettings[E],
    baseline: Path | None = None,
    settings: Mapping[str, Any],
) -> None:
    """Raises the UsageError that `run_reflexion` would raise before it plays; writes nothing."""
    chosen = judge or LabelJudge(out / LABELS)
    run = _Run(pool, challenges, chosen, out, spec, play, baseline, lambda stage: None)
    run.expect_same(run.all_settings(settings))


class LabelJudge:
    """A judge that returns the labels of the current run: the upper bound for any judge. `path` is
    the run's label file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int] | None = None
        self._labels: dict[str, bool | None] = {}
        self.info = EvaluatorInfo("oracle", "1", params={"labels": "of this run"})

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns no screenshots: this judge does not look at any."""
        return ()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict; unscored with `no_evidence` if the oracle did not decide."""
        return await make_verdict(self, trajectory, lambda: self._judge(trajectory))

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
class _Run(Generic[E]):
    """The state of a run: the result of each attempt, and the files that store it."""

    pool: Pool[E]
    challenges: Sequence[Challenge[E]]
    judge: Evaluator
    out: Path
    spec: RetrySpec
    play: PlaySettings[E]
    baseline: Path | None
    progress: Callable[[ReflexionProgress], None]
    played: dict[str, _Played] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    lessons: dict[str, Lesson] = field(default_factory=dict)
    not_begun: set[str] = field(default_factory=set)
    old_lessons: dict[str, Lesson] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.judge, LabelJudge) and self.play.oracle is None:
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
        self.threshold = get_threshold(self.spec, self.judge)

    async def all(
        self, settings: Mapping[str, Any], *, retry_broken: bool, retry_unscored: bool
    ) -> ReflexionResults:
        """Runs stage after stage until every task has ended."""
        checksums = Checksums(self.out)
        # The results file is rewritten at the end. Settings are compared by value, since an editor
        # may save them in another format.
        await asyncio.to_thread(
            checksums.check,
            but=[RESULTS, *([SETTINGS] if (self.out / SETTINGS).is_file() else ())],
        )
        if self.baseline is not None:
            await asyncio.to_thread(Checksums(self.baseline).check)
        if not self.expect_same(recorded := self.all_settings(settings)):
            with write_errors(self.out):
                self.out.mkdir(parents=True, exist_ok=True)
            data = msgspec.json.encode(recorded, order="deterministic") + b"\n"
            write_output(self.out / SETTINGS, data)
        checksums.note(SETTINGS)
        for name in (VERDICTS, LESSONS):
            checksums.add(name)
        with (
            VerdictLog(self.out / VERDICTS, self.judge.info) as log,
            AppendLog(
                self.out / LESSONS,
                Lesson,
                what="lesson",
                checksums=checksums.growing(LESSONS),
                advice="fix the line or choose another folder",
            ) as self._lesson_log,
        ):
            self._load(retry_unscored)
            broken = {
                id: played.error for id, played in self.played.items() if played.error is not None
            }
            again = {id for id, error in broken.items() if retry_broken or is_unpaid(error)}
            for id in again:
                del self.played[id]
            if self.baseline is not None:
                self.old_lessons = read_lessons(self.baseline / LESSONS)
            while going := self._going():
                move = min(going, key=("play", "judge", "reflect").index)
                await getattr(self, f"_{move}_all")(going[move], log, again)
        Checksums(self.out).check([TRAJECTORIES, LABELS, VERDICTS, LESSONS])
        results = self._write(settings)
        checksums.note(RESULTS)
        return results

    def all_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings that distinguish this run from others."""
        return {
            **settings,
            "evaluator": msgspec.to_builtins(self.judge.info),
            "retries": self.spec.settings(),
        }

    def expect_same(self, settings: Mapping[str, Any]) -> bool:
        """Returns whether the folder holds a run. Raises UsageError if its settings differ."""
        path = self.out / SETTINGS
        if not path.exists():
            return False
        try:
            old, new = read_table(path), msgspec.json.decode(msgspec.json.encode(settings))
        except UsageError as error:
            reason = str(error).removeprefix(f"{path}: ")
            raise UsageError(
                f"{path}: not the settings of a run ({reason}); choose another folder"
            ) from None
        if differ := sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)):
            raise UsageError(
                f"{path}: contains a run with other settings ({', '.join(differ)}); choose "
                "another folder, and name this one as the baseline",
                parameters=("output", "baseline"),
            )
        return True

    def _load(self, retry_unscored: bool) -> None:
        """Reads the results of earlier calls from the folder."""
        RunFolder(self.out, checked=True).close()  # repairs files that a crash left incomplete
        self._read_recordings(None)
        verdicts = (
            read_verdicts(self.out / VERDICTS) if (self.out / VERDICTS).stat().st_size else ()
        )
        for verdict in verdicts:
            if lasts(verdict.unscored, retry_unscored=retry_unscored):
                self.verdicts[verdict.id] = decided(verdict, self.threshold)
        for id, lesson in read_lessons(self.out / LESSONS).items():
            if lesson.text is not None or not (
                retry_unscored or (lesson.problem or "").startswith(f"{BudgetSpentError.code}: ")
            ):
                self.lessons[id] = lesson

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

    async def _play_all(
        self, going: Sequence[Challenge[E]], log: VerdictLog, again: set[str]
    ) -> None:
        """Plays the next attempt at each of these tasks, or copies it from the baseline."""
        numbers = {challenge.name: len(self._attempts(challenge)) for challenge in going}
        number = min(numbers.values())
        wanted = {
            challenge.id(numbers[challenge.name]): challenge
            for challenge in going
            if self.spec.order == "task" or numbers[challenge.name] == number
        }
        self._reuse(wanted, again)
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
                retry_broken=bool(again & missing.keys()),
                checked=True,
                patience=self.play.patience,
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

    def _reuse(self, wanted: Mapping[str, Challenge[E]], again: set[str]) -> None:
        """Copies the baseline's recordings of these attempts, with their labels."""
        if self.baseline is None:
            return
        labels = label_records(self.baseline / LABELS)
        with RunFolder(self.out, checked=True) as folder:
            for trajectory in attempts_in(self.baseline, wanted):
                if (
                    trajectory.error is None
                    and trajectory.id not in folder
                    and trajectory.id not in again
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

    async def _judge_all(
        self, going: Sequence[Challenge[E]], log: VerdictLog, again: set[str]
    ) -> None:
        """Judges all attempts at these tasks that have no verdict."""
        attempts = [self._attempts(challenge) for challenge in going]
        ids, count = {attempt.id for made in attempts for attempt in made if attempt.is_unjudged}, 0
        async for verdict in score_stream(attempts_in(self.out, ids), self.judge):
            log.append(verdict)
            self.verdicts[verdict.id] = decided(verdict, self.threshold)
            count += 1
            self.progress(ReflexionProgress("judge", max(map(len, attempts)) - 1, count, len(ids)))
        if lacking := ids - self.verdicts.keys():
            raise UsageError(f"{self.out / TRAJECTORIES}: the attempt {min(lacking)} is missing")

    async def _reflect_all(
        self, going: Sequence[Challenge[E]], log: VerdictLog, again: set[str]
    ) -> None:
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

    def _write(self, settings: Mapping[str, Any]) -> ReflexionResults:
        truths = truths_in(self.out / LABELS)
        tasks = tuple(self._result(challenge, truths) for challenge in self.challenges)
        warnings = (
            (self.play.leftovers,)
            if self.play.leftovers and any(len(t.attempts) > 1 for t in tasks)
            else ()
        )
        results = ReflexionResults(
            evaluator=self.judge.info,
            settings={**settings, "retries": asdict(self.spec), "threshold": self.threshold},
            attempts=self.spec.attempts,
            keep_best=self.spec.keep_best,
            warnings=warnings,
            lost_labels=sum(not a.reused and a.id not in truths for t in tasks for a in t.attempts)
            if self.play.oracle
            else 0,
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
