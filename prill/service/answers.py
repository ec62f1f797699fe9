"""The service's own contract: trajectories in, results out, and jobs for those who come back later."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from prill.errors import InputError
from prill.refine.rewards import RewardResult
from prill.service.board import Board
from prill.service.desk import Answer, Busy, Desk, JudgeBroke, Source
from prill.service.intake import Intake
from prill.types import Trajectory, UnscoredReason, Usage

INLINE = 64_000  # bytes of a request up to which it is read without a thread


class ScoreItem(msgspec.Struct, forbid_unknown_fields=True):
    """One trajectory: the record itself, or the path of a recorded one below the media root, with its id."""

    trajectory: dict[str, Any] | None = None
    path: str | None = None
    id: str | None = None
    images: dict[str, str] = msgspec.field(default_factory=dict)

    def read(self, intake: Intake) -> Trajectory:
        """The trajectory. Raises InputError."""
        if (self.trajectory is None) == (self.path is None):
            raise InputError("give either `trajectory` or `path`")
        if self.trajectory is not None:
            return intake.trajectory(self.trajectory, self.images)
        assert self.path is not None
        return intake.recorded(self.path, self.id)


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Trajectories to judge."""

    items: list[ScoreItem]


class Scored(msgspec.Struct, kw_only=True, omit_defaults=False):
    """What became of one trajectory. `abstained`: there is no verdict, for the reason in `unscored`; `reward` is then null
    unless the service was told to put a number in its place."""

    id: str
    abstained: bool
    reward: float | None
    success: bool | None
    score: float | None
    unscored: UnscoredReason | None
    reason: str
    rewards: tuple[float, ...] | None = None
    parts: Mapping[str, float] = {}
    usage: Usage = Usage()
    seconds: float = 0.0
    key: str = ""
    source: Source | Literal["none"] = "none"


class Results(msgspec.Struct):
    """The results in the order of the request, and what they cost together."""

    results: list[Scored]
    judge: str
    usage: Usage


class JobStatus(msgspec.Struct):
    """How a job stands; `results` are there when it is done."""

    id: str
    status: Literal["running", "done"]
    items: int
    finished: int
    results: list[Scored] | None = None


def scored(answer: Answer) -> Scored:
    """The answer in the service's words."""
    result, verdict = answer.result, answer.result.verdict
    return Scored(
        id=verdict.id,
        abstained=bool(result.problem),
        reward=result.reward,
        success=verdict.success,
        score=verdict.score,
        unscored=verdict.unscored,
        reason=result.problem if result.problem and verdict.unscored is None else verdict.reason,
        rewards=verdict.rewards,
        parts=result.parts,
        usage=verdict.usage if answer.source == "judged" else Usage(),
        seconds=verdict.seconds,
        key=answer.key,
        source=answer.source,
    )


def unscored(id: str, code: UnscoredReason, words: str) -> Scored:
    """A trajectory that never reached the judge."""
    return Scored(id=id, abstained=True, reward=None, success=None, score=None, unscored=code, reason=words)


@dataclass(slots=True)
class _Job:
    items: int
    task: asyncio.Task[list[Scored]] | None = None
    finished: int = 0


@dataclass(slots=True)
class Judging:
    """Judges what requests bring: reads them, asks the desk, and counts where answers came from."""

    desk: Desk
    intake: Intake
    board: Board
    max_items: int = 256
    max_jobs: int = 256
    _jobs: OrderedDict[str, _Job] = field(default_factory=OrderedDict)

    async def read(self, request: Any, body_size: int) -> Any:
        """What a request's `read`-like function gives; in a thread where much has to be decoded, or files may be read."""
        slow = body_size > INLINE or self.intake.media_root is not None
        return await asyncio.to_thread(request) if slow else request()

    async def result(self, trajectory: Trajectory, client: str, deadline: float) -> Answer:
        """The reward of a trajectory. Raises Busy and JudgeBroke."""
        answer = await self.desk.result(trajectory, client, deadline)
        self.board.sources[answer.source] += 1
        return answer

    async def results(self, trajectories: list[Trajectory], client: str, deadline: float) -> list[RewardResult]:
        """Those of a batch, in order. Raises the first Busy or JudgeBroke when all have ended."""
        work = (self.result(trajectory, client, deadline) for trajectory in trajectories)
        answers = await asyncio.gather(*work, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer.result for answer in answers if isinstance(answer, Answer)]

    async def score(self, request: ScoreRequest, size: int, client: str, deadline: float) -> list[Scored]:
        """The results of a request; what is wrong with one item is that item's. Raises Busy, JudgeBroke where nothing at all
        could be judged, and InputError for a request that is too large."""
        self._check(request)
        return await self._score(request, size, client, deadline, None)

    def begin(self, request: ScoreRequest, size: int, client: str) -> JobStatus:
        """Begins a job. Raises Busy when there are too many, InputError as `score`."""
        self._check(request)
        if len(self._jobs) >= self.max_jobs:
            done = next((id for id, job in self._jobs.items() if job.task is not None and job.task.done()), None)
            if done is None:
                raise Busy(f"{self.max_jobs} jobs are under way already", 10)
            del self._jobs[done]
        id = secrets.token_urlsafe(12)
        job = self._jobs[id] = _Job(len(request.items))
        job.task = asyncio.create_task(self._score(request, size, client, float("inf"), job))
        job.task.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # read, so that it is not reported as lost
        return self.job(id)

    def job(self, id: str) -> JobStatus:
        """How a job stands. Raises KeyError for one that there is not, and what ended it."""
        job = self._jobs[id]
        assert job.task is not None
        if not job.task.done():
            return JobStatus(id, "running", job.items, job.finished)
        return JobStatus(id, "done", job.items, job.finished, job.task.result())

    @property
    def jobs_running(self) -> int:
        """Jobs under way."""
        return sum(job.task is not None and not job.task.done() for job in self._jobs.values())

    async def finish_jobs(self) -> None:
        """Returns when no job is under way."""
        if running := [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]:
            await asyncio.wait(running)

    def check_count(self, items: int) -> None:
        """Raises InputError for more trajectories than a request may bring."""
        if items > self.max_items:
            raise InputError(f"{items} items; the limit here is {self.max_items} a request")

    def _check(self, request: ScoreRequest) -> None:
        if not request.items:
            raise InputError("items is empty: nothing to judge")
        self.check_count(len(request.items))

    async def _score(self, request: ScoreRequest, size: int, client: str, deadline: float, job: _Job | None) -> list[Scored]:
        async def one(place: int, item: ScoreItem) -> Scored | JudgeBroke:
            try:
                trajectory = await self.read(lambda: item.read(self.intake), size)
                return scored(await self.result(trajectory, client, deadline))
            except InputError as error:
                return unscored(_id_of(item, place), "input", str(error))
            except JudgeBroke as error:
                return error
            finally:
                if job is not None:
                    job.finished += 1

        outcomes = await asyncio.gather(*(one(place, item) for place, item in enumerate(request.items)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, JudgeBroke):
                raise outcome
        broken = [outcome for outcome in outcomes if isinstance(outcome, JudgeBroke)]
        if broken and len(broken) == len(outcomes) and job is None:
            raise broken[0]
        return [
            unscored(_id_of(request.items[place], place), "transport", str(outcome))
            if isinstance(outcome, JudgeBroke)
            else outcome
            for place, outcome in enumerate(outcomes)
            if isinstance(outcome, Scored | JudgeBroke)
        ]


def _id_of(item: ScoreItem, place: int) -> str:
    id = item.id if item.trajectory is None else item.trajectory.get("id")
    return id if isinstance(id, str) and id else f"items[{place}]"


def totals(results: list[Scored], verdict_of: str) -> Results:
    """The results with their sum."""
    return Results(results, verdict_of, sum((one.usage for one in results), Usage()))
