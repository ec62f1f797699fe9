"""Runs a judge on batch answers, and collects the requests that have no answer yet."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

from prill.batches.folder import Answers, BatchFolder, StageWriter, request_id
from prill.errors import AnswerPendingError, UsageError
from prill.io.store import TrajectoryReader
from prill.models.calls import PerGoal
from prill.models.client import OpenAIModel
from prill.models.ledger import price_factor
from prill.models.prompts import same_codes
from prill.models.request import EndpointCapabilities
from prill.models.transport import Endpoint, answered_by
from prill.protocols import Evaluator, every_judge
from prill.scoring.scorer import Tally, score_files, score_stream
from prill.types import EvaluatorInfo, Trajectory, Verdict

# "50% cost discount compared to synchronous APIs" (OpenAI's documentation of the batch API). Other
# providers give the same discount.
PRICE_SHARE = 0.5


class Replay:
    """Runs a judge on stored answers; requests without an answer go to `stage`.

    Trajectories are judged one at a time, and what a reply reveals about the endpoint is discarded
    after each. Otherwise one reply would change the later requests, and their stored answers would
    not be found.
    """

    def __init__(self, judge: Evaluator, secret: str, answers: Answers, stage: StageWriter) -> None:
        self.judge = judge
        self._models = tuple(_models(judge))
        for part in every_judge(judge):
            for value in vars(part).values() if hasattr(part, "__dict__") else ():
                # its calls were charged to trajectories that had no verdict then
                if isinstance(value, PerGoal):
                    value.forget()
        self._secret, self._answers, self._stage = secret, answers, stage
        self._requested: Counter[str] = Counter()
        self._one = asyncio.Lock()

    @property
    def info(self) -> EvaluatorInfo:
        """Returns the judge's info."""
        return self.judge.info

    @property
    def parts(self) -> Sequence[Evaluator]:
        """Returns the judge itself."""
        return (self.judge,)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the judge's screenshots."""
        return self.judge.screenshots(trajectory)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the judge's verdict. Raises AnswerPendingError if an answer is missing."""
        async with self._one:
            self._requested.clear()
            with ExitStack() as stack:
                for model in self._models:
                    # start without learned capabilities and without cached replies, which would
                    # cost nothing
                    for name, value in (("capabilities", EndpointCapabilities()), ("cache", None)):
                        stack.callback(setattr, model, name, getattr(model, name))
                        setattr(model, name, value)
                for context in (
                    answered_by(self._answer),
                    same_codes(self._secret),
                    price_factor(PRICE_SHARE),
                ):
                    stack.enter_context(context)
                return await self.judge(trajectory)

    def _answer(self, endpoint: Endpoint, body: bytes) -> tuple[int, bytes]:
        id = request_id(body, endpoint.base_url)
        self._requested[id] += 1
        if (
            self._requested[id] > 1
        ):  # the same request again, because the first reply contained no verdict
            id = f"{id}-{self._requested[id]}"
        if (answer := self._answers.get(id)) is not None:
            return answer
        if self._answers.wants(id):
            self._stage.add(id, body, endpoint.base_url, endpoint.api_key_env)
            self._answers.note_written(id)
        raise AnswerPendingError("the answer is not available yet")


def _models(judge: Evaluator) -> Iterator[OpenAIModel]:
    """Yields the models that a judge calls.

    Raises UsageError for a model on this machine, or if the judge calls no model.
    """
    found = False
    for part in every_judge(judge):
        for holder in (part, getattr(part, "captioner", None)):
            model = getattr(holder, "model", None)
            if isinstance(model, OpenAIModel) and type(model.endpoint) is Endpoint:
                found = True
                yield model
            elif model is not None and hasattr(model, "complete"):
                raise UsageError(
                    f"model {model.name} runs on this machine, but a batch needs a model at "
                    "an endpoint; give its plain name, even if you run the batch yourself"
                )
    if not found:
        raise UsageError(
            f"judge {judge.info.name} calls no model at an endpoint, so it needs no batch"
        )


def expect_endpoint(judge: Evaluator) -> None:
    """Raises UsageError for a judge that calls no model at an endpoint."""
    tuple(_models(judge))


async def write(
    trajectories: Sequence[str | os.PathLike[str]],
    judge: Evaluator,
    folder: str | os.PathLike[str],
    *,
    limit: int | None = None,
    described: dict[str, Any] | None = None,
    progress: Callable[[int], None] = lambda read: None,
    **sizes: int,
) -> Tally:
    """Writes the requests that a judge would make for trajectory files.

    Requests that were already written are skipped.

    Args:
        trajectories: Trajectory files, or folders of them.
        judge: A judge that calls a model at an endpoint.
        folder: The batch folder; it is created if it does not exist.
        limit: The maximum number of trajectories, counted from the first. None: all.
        described: The judge's description, stored so that the judge can be recreated. None: not
            stored.
        progress: Called with the number of trajectories read.
        **sizes: Limits of a request file, as in `StageWriter`.

    Returns:
        The tally; `pending` counts the trajectories whose answers are missing.

    Raises:
        UsageError: No trajectory could be read, the judge asks no endpoint, or the folder belongs
            to another judge.
    """
    expect_endpoint(judge)
    tally = Tally()
    with closing(TrajectoryReader(trajectories, limit)) as reader:
        items = iter(reader)
        first = next(items)  # raises if there is no trajectory
        with (
            BatchFolder(
                folder, judge.info, trajectories=trajectories, limit=limit, judge=described
            ) as batch,
            closing(Answers(batch)) as answers,
            StageWriter(batch, **sizes) as stage,
        ):

            def source() -> Iterator[Any]:
                yield first[1]
                for _, item in items:
                    progress(reader.read)
                    yield item

            replay = Replay(judge, batch.manifest.secret, answers, stage)
            async for verdict in score_stream(source(), replay, concurrency=1):
                tally.add(verdict)
            stage.finish()
        tally.read, tally.unknown_keys = reader.read, reader.unknown
    tally.pending = tally.read - tally.made
    return tally


async def collect(
    folder: str | os.PathLike[str],
    judge: Evaluator,
    output: str | os.PathLike[str],
    *,
    answers: Sequence[str | os.PathLike[str]] = (),
    retry_failed: bool = False,
    transcripts: str | os.PathLike[str] | None = None,
    stop: asyncio.Event | None = None,
    say: Callable[[str], None] = lambda words: None,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Makes verdicts from the answers of a batch, as if the judge had called an endpoint.

    Calling it again resumes. Trajectories with missing answers stay `pending`, and the requests
    that they still need are written as the next stage.

    Args:
        folder: The batch folder that `write` created.
        judge: The judge that the requests were written for.
        output: The verdict file.
        answers: Answer files, which are first copied into the folder.
        retry_failed: Write requests again that failed or whose answer was cut off.
        transcripts: The folder for transcripts of the model calls. None: no transcripts.
        stop: An event that stops the run before the next trajectory. None: all trajectories are
            judged.
        say: Called with a sentence for each answer line that cannot be used.
        progress: Called after every trajectory.

    Returns:
        The number of trajectories that succeeded, failed, were unscored and are pending.

    Raises:
        UsageError: The folder belongs to another judge, a file contains no answer to it, or the
            output file has other content.
    """
    with BatchFolder(folder) as batch:
        batch.expect(judge.info)
        for path in answers:
            for problem in batch.take(path):
                say(problem)
        with (
            closing(Answers(batch, retry_failed=retry_failed)) as known,
            StageWriter(batch) as stage,
        ):
            tally = await score_files(
                batch.manifest.trajectories,
                Replay(judge, batch.manifest.secret, known, stage),
                output,
                concurrency=1,
                limit=batch.manifest.limit,
                retry_unscored=retry_failed,
                transcripts=transcripts,
                stop=stop,
                progress=progress,
            )
            stage.finish()
    return tally
