"""The service's own API: it takes trajectories, returns results, and runs background jobs."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from prill.errors import InputError
from prill.io.lines import UNREADABLE
from prill.refine.rewards import RewardResult
from prill.service.guard import log
from prill.service.judge_queue import Answer, JudgeError, JudgeQueue, Source
from prill.service.memory import (
    BusyError,
    ByteBudget,
    Reservation,
    check_values,
    off_loop,
    trajectory_bytes,
)
from prill.service.metrics import Metrics
from prill.service.request_parsing import MAX_ID, RequestParser
from prill.service.spec import ServiceSpec
from prill.types import Trajectory, UnscoredReason, Usage

_T = TypeVar("_T")
_V = TypeVar("_V")
INLINE = 64_000  # bytes; larger requests are parsed in a thread


class ScoreItem(msgspec.Struct, forbid_unknown_fields=True):
    """One trajectory: the record itself, or the path of a recorded one below the media root with
    its id.
    """

    trajectory: dict[str, Any] | None = None
    path: str | None = None
    id: str | None = None
    images: dict[str, str] = msgspec.field(default_factory=dict)

    def read(self, parser: RequestParser) -> Trajectory:
        """Reads the trajectory. Raises InputError."""
        if (self.trajectory is None) == (self.path is None):
            raise InputError("give either `trajectory` or `path`")
        if self.trajectory is not None:
            return parser.trajectory(self.trajectory, self.images)
        assert self.path is not None
        return parser.recorded(self.path, self.id)


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Trajectories to judge. Each item is parsed separately, so that an error affects only that
    item.
    """

    items: list[msgspec.Raw]


class _Named(msgspec.Struct):
    id: Any = None


class _Head(_Named):
    """The id of an item, which is readable even if the rest of the item is not."""

    trajectory: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a request: its trajectory, or its error."""

    id: str
    trajectory: Trajectory | None = None
    failure: Scored | JudgeError | None = None


class Scored(msgspec.Struct, kw_only=True, omit_defaults=False):
    """The result of one trajectory.

    `abstained`: there is no verdict, for the reason in `unscored`; `reward` is then null unless the
    service is configured to send a number instead.
    """

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
    """The results in the order of the request, and their total cost."""

    results: list[Scored]
    judge: str
    usage: Usage


class JobStatus(msgspec.Struct):
    """The status of a job; `results` are present when it is done."""

    id: str
    status: Literal["running", "done"]
    items: int
    finished: int
    results: list[Scored] | None = None


def scored(answer: Answer) -> Scored:
    """Converts an answer to the service's result record."""
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


def unscored(id: str, code: UnscoredReason, reason_text: str) -> Scored:
    """Makes the result of a trajectory that never reached the judge."""
    return Scored(
        id=id,
        abstained=True,
        reward=None,
        success=None,
        score=None,
        unscored=code,
        reason=reason_text,
    )


@dataclass(slots=True)
class _Job:
    """A background job.

    A running job holds the memory of its request; a finished one holds its results and their size.
    """

    items: int
    reservation: Reservation
    finished: int = 0
    task: asyncio.Task[None] | None = None
    results: list[Scored] | None = None
    size: int = 0


@dataclass(slots=True)
class Judging:
    """Handles scoring requests: parses them, calls the judge, and counts the sources of answers."""

    judge_queue: JudgeQueue
    parser: RequestParser
    metrics: Metrics
    budget: ByteBudget
    spec: ServiceSpec
    _jobs: OrderedDict[str, _Job] = field(default_factory=OrderedDict)

    async def read(
        self,
        data: bytes,
        reservation: Reservation,
        work: Callable[[bytes, RequestParser], _T],
        trajectories_of: Callable[[_T], Iterable[Trajectory]] | None = None,
    ) -> _T:
        """Parses a request's body with `work`, in a thread if the body is large or names files.

        While parsing, the request reserves the memory that the decoded body may take; afterwards,
        that of the trajectories that `trajectories_of` returns, whose images are files. Raises
        InputError and BusyError.
        """
        parser, is_large = self.parser.for_request(), len(data) > INLINE

        async def run(step: Callable[[], _V]) -> _V:
            is_slow = is_large or parser.media_root is not None
            return await off_loop(step, is_large=is_large) if is_slow else step()

        reservation.grow(await run(lambda: check_values(data, self.spec.max_values)))
        value = await run(lambda: work(data, parser))
        if is_large and trajectories_of is not None:
            reservation.resize(
                await run(lambda: sum(map(trajectory_bytes, trajectories_of(value))))
            )
        return value

    async def result(
        self, trajectory: Trajectory, client: str, deadline: float, *, is_large: bool = False
    ) -> Answer:
        """Returns the reward of a trajectory. Raises BusyError, InputError and JudgeError."""
        answer = await self.judge_queue.result(trajectory, client, deadline, is_large=is_large)
        self.metrics.sources.labels(answer.source).inc()
        return answer

    async def results(
        self, trajectories: Sequence[Trajectory], client: str, deadline: float, *, is_large: bool
    ) -> list[RewardResult]:
        """Returns the rewards of a batch, in order.

        Raises the first BusyError or JudgeError after all have ended.
        """
        work = [
            self.result(trajectory, client, deadline, is_large=is_large)
            for trajectory in trajectories
        ]
        answers = await asyncio.gather(*work, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer.result for answer in answers if isinstance(answer, Answer)]

    async def score(self, data: bytes, reservation: Reservation, deadline: float) -> list[Scored]:
        """Returns the results of a request; an error of one item affects only that item.

        Raises BusyError, JudgeError if nothing could be judged, and InputError for a request that
        is too large.
        """
        is_large, items = len(data) > INLINE, await self._items(data, reservation)
        del data  # the trajectories have been parsed
        outcomes = await self._outcomes(items, reservation.client, deadline, is_large=is_large)
        for outcome in outcomes:
            if isinstance(outcome, BusyError):
                raise outcome
        broken = [outcome for outcome in outcomes if isinstance(outcome, JudgeError)]
        if broken and len(broken) == len(outcomes):
            raise broken[0]
        return _worded(items, outcomes)

    async def begin(self, data: bytes, reservation: Reservation) -> JobStatus:
        """Starts a job.

        Raises BusyError if there are too many jobs or they hold too much memory, and InputError as
        `score` does.
        """
        is_large, items = len(data) > INLINE, await self._items(data, reservation)
        self._make_room(reservation.size)
        id = secrets.token_urlsafe(12)
        # From now on the job holds the request's reservation.
        job = self._jobs[id] = _Job(
            len(items), self.budget.reserve(reservation.client, reservation.size)
        )
        job.task = asyncio.create_task(self._run(job, items, is_large))
        reservation.release()
        return self.job(id)

    def job(self, id: str) -> JobStatus:
        """Returns the status of a job. Raises KeyError for an unknown id."""
        job = self._jobs[id]
        return JobStatus(
            id, "running" if job.results is None else "done", job.items, job.finished, job.results
        )

    @property
    def jobs_running(self) -> int:
        """Returns the number of running jobs."""
        return sum(job.results is None for job in self._jobs.values())

    async def finish_jobs(self) -> None:
        """Waits until no job is running."""
        if running := [
            job.task for job in self._jobs.values() if job.results is None and job.task is not None
        ]:
            await asyncio.wait(running)

    def check_count(self, items: int) -> None:
        """Raises InputError if a request has too many trajectories."""
        if items > self.spec.max_items:
            raise InputError(f"{items} items; the limit is {self.spec.max_items} per request")

    async def _items(self, data: bytes, reservation: Reservation) -> list[Item]:
        def read(data: bytes, parser: RequestParser) -> list[Item]:
            request = decode(data, ScoreRequest)
            if not request.items:
                raise InputError("items is empty: nothing to judge")
            self.check_count(len(request.items))
            return [_item(item, index, parser) for index, item in enumerate(request.items)]

        return await self.read(
            data,
            reservation,
            read,
            lambda items: [item.trajectory for item in items if item.trajectory],
        )

    async def _outcomes(
        self,
        items: Sequence[Item],
        client: str,
        deadline: float,
        *,
        is_large: bool,
        finished: Callable[[], None] = lambda: None,
    ) -> list[Scored | JudgeError | BusyError]:
        async def one(item: Item) -> Scored | JudgeError | BusyError:
            try:
                if item.trajectory is None:
                    assert item.failure is not None
                    return item.failure
                return scored(
                    await self.result(item.trajectory, client, deadline, is_large=is_large)
                )
            except InputError as error:
                return unscored(item.id, "input", str(error))
            except (JudgeError, BusyError) as error:
                return error
            except Exception as error:  # noqa: BLE001 - the other items are still answered
                log.warning("a trajectory could not be judged: %s", type(error).__name__)
                return JudgeError(f"an error of the service: {type(error).__name__}")
            finally:
                finished()

        return await asyncio.gather(*map(one, items))

    def _make_room(self, size: int) -> None:
        """Makes room for another job by dropping an old finished one.

        Jobs hold at most half of the memory, so that requests are still admitted.
        """
        running = [job for job in self._jobs.values() if job.results is None]
        if len(running) >= self.spec.max_jobs:
            raise BusyError(f"{self.spec.max_jobs} jobs are already in progress", 10)
        if running and sum(job.reservation.size for job in running) + size > self.budget.limit / 2:
            raise BusyError("the jobs in progress use all the memory for jobs", 10)
        if len(self._jobs) >= self.spec.max_jobs:
            del self._jobs[next(id for id, job in self._jobs.items() if job.results is not None)]

    async def _run(self, job: _Job, items: Sequence[Item], is_large: bool) -> None:
        def finished() -> None:
            job.finished += 1

        client, forever = job.reservation.client, float("inf")
        outcomes = await self._outcomes(
            items, client, forever, is_large=is_large, finished=finished
        )
        job.results = _worded(items, outcomes)
        job.reservation.release()
        job.size = len(msgspec.json.encode(job.results))
        self._forget_results(job)

    def _forget_results(self, newest: _Job) -> None:
        """Drops the results of the oldest finished jobs while results exceed their byte limit."""
        done = [
            (id, job)
            for id, job in self._jobs.items()
            if job.results is not None and job is not newest
        ]
        size = newest.size + sum(job.size for _, job in done)
        for id, job in done:
            if size <= self.spec.max_results:
                return
            size -= job.size
            del self._jobs[id]


def decode(data: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Decodes a request's body. Raises InputError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise InputError(f"the request does not have the expected form: {error}") from None


def _item(data: msgspec.Raw, index: int, parser: RequestParser) -> Item:
    id = _read_id(data, index)
    try:
        return Item(id, decode(data, ScoreItem).read(parser))
    except InputError as error:
        return Item(id, failure=unscored(id, "input", str(error)))
    except OSError as error:
        log.warning("an item could not be read: %s", error.strerror)
        return Item(id, failure=JudgeError(f"an error of the service: {error.strerror}"))


def _read_id(data: msgspec.Raw, index: int) -> str:
    try:
        head = msgspec.json.decode(data, type=_Head)
        has_record = bytes(memoryview(head.trajectory)[:1]) == b"{"
        id = msgspec.json.decode(head.trajectory, type=_Named).id if has_record else head.id
    except UNREADABLE:
        id = None
    return (
        id
        if isinstance(id, str) and 0 < len(id.encode("utf-8", "replace")) <= MAX_ID
        else f"items[{index}]"
    )


def _worded(
    items: Sequence[Item], outcomes: Sequence[Scored | JudgeError | BusyError]
) -> list[Scored]:
    return [
        outcome if isinstance(outcome, Scored) else unscored(item.id, "transport", str(outcome))
        for item, outcome in zip(items, outcomes, strict=True)
    ]


def totals(results: list[Scored], make_verdict: str) -> Results:
    """Returns the results with their total usage."""
    return Results(results, make_verdict, sum((one.usage for one in results), Usage()))
