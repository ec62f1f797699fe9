"""Runs a judge on batch answers: verdicts where they suffice, further requests otherwise."""

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
from prill.models.ledger import at_share_of_price
from prill.models.prompts import same_codes
from prill.models.request import EndpointCapabilities
from prill.models.transport import Endpoint, answered_by
from prill.protocols import Evaluator, every_judge
from prill.scoring.scorer import Tally, score_files, score_stream
from prill.types import EvaluatorInfo, Trajectory, Verdict

# "50% cost discount compared to synchronous APIs" (OpenAI's documentation of the batch API); others
# do the same.
PRICE_SHARE = 0.5


class Replay:
    """A judge that asks no endpoint: what it would send is answered by `answers`, or goes to
    `stage` and has to wait.

    One trajectory at a time, each from the beginning: what one reply teaches of an endpoint changes
    no other's requests, which would not be found again.
    """

    def __init__(self, judge: Evaluator, secret: str, answers: Answers, stage: StageWriter) -> None:
        self.judge = judge
        self._models = tuple(_models(judge))
        for part in every_judge(judge):
            for kept in vars(part).values() if hasattr(part, "__dict__") else ():
                # its calls are booked on trajectories that had no verdict then
                if isinstance(kept, PerGoal):
                    kept.forget()
        self._secret, self._answers, self._stage = secret, answers, stage
        self._asked: Counter[str] = Counter()
        self._one = asyncio.Lock()

    @property
    def info(self) -> EvaluatorInfo:
        """The judge's info; the verdicts are the same."""
        return self.judge.info

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The judge itself."""
        return (self.judge,)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """The judge's screenshots."""
        return self.judge.screenshots(trajectory)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The judge's verdict. Raises AnswerPendingError where an answer is missing."""
        async with self._one:
            self._asked.clear()
            with ExitStack() as stack:
                for model in self._models:
                    # Neither what was learnt before, nor replies that were kept and cost nothing.
                    for name, value in (("capabilities", EndpointCapabilities()), ("cache", None)):
                        stack.callback(setattr, model, name, getattr(model, name))
                        setattr(model, name, value)
                for context in (
                    answered_by(self._answer),
                    same_codes(self._secret),
                    at_share_of_price(PRICE_SHARE),
                ):
                    stack.enter_context(context)
                return await self.judge(trajectory)

    def _answer(self, endpoint: Endpoint, body: bytes) -> tuple[int, bytes]:
        id = request_id(body, endpoint.base_url)
        self._asked[id] += 1
        if self._asked[id] > 1:  # the same once more, since the first reply held no answer
            id = f"{id}-{self._asked[id]}"
        if (answer := self._answers.get(id)) is not None:
            return answer
        if self._answers.wants(id):
            self._stage.add(id, body, endpoint.base_url, endpoint.api_key_env)
            self._answers.note_written(id)
        raise AnswerPendingError("the answer is still to come")


def _models(judge: Evaluator) -> Iterator[OpenAIModel]:
    """The models that a judge asks. Raises UsageError for one that answers here, or where there is
    none.
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
                    f"model {model.name} answers on this machine; a batch is for a model at an "
                    "endpoint: give its plain "
                    "name, also where you carry the batch out yourself"
                )
    if not found:
        raise UsageError(
            f"judge {judge.info.name} asks no model at an endpoint; there is nothing to put into "
            "a batch"
        )


def expect_endpoint(judge: Evaluator) -> None:
    """Raises UsageError for a judge that asks no model at an endpoint, whose requests could be
    written.
    """
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
    """Writes the requests that a judge would make for trajectory files. What is written already is
    not written again.

    Args:
        trajectories: Trajectory files, or folders of them.
        judge: A judge that asks an endpoint.
        folder: The batch folder, made where it does not exist.
        limit: The most trajectories to read, from the first on. None: all.
        described: The judge's description, kept in the folder so that it can be made again. None:
            not kept.
        progress: Called with the number of trajectories read.
        **sizes: Limits of a request file, as in `StageWriter`.

    Returns:
        The tally; `pending` counts the trajectories that wait for answers.

    Raises:
        UsageError: No trajectory could be read, the judge asks no endpoint, or the folder belongs
            to another judge.
    """
    expect_endpoint(judge)
    tally = Tally()
    with closing(TrajectoryReader(trajectories, limit)) as reader:
        items = iter(reader)
        first = next(items)  # raises when there is nothing to judge
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
    """Makes verdicts from the answers of a batch, as if the judge had asked an endpoint. The same
    call resumes.

    Trajectories whose answers are not complete stay `pending`, and the requests that they still
    need are written as the next stage.

    Args:
        folder: The batch folder that `write` made.
        judge: The judge that the requests were written for.
        output: The verdict file.
        answers: Files of answers, which are copied into the folder first.
        retry_failed: Write requests again that failed or were cut off.
        transcripts: A folder for what the model was asked and answered. None: none are kept.
        stop: After it is set, no further trajectory is begun. None: all are.
        say: Called with a sentence for each line that cannot be used.
        progress: Called after every trajectory.

    Returns:
        How many trajectories succeeded, failed, were unscored and are pending.

    Raises:
        UsageError: The folder belongs to another judge, a file holds no answer to it, or the output
            holds something else.
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
