"""Runs a judge on batch answers, and collects the requests that have no answer yet."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from prill.errors import AnswerPendingError, UsageError
from prill.evaluators.scoring.batches.folder import Answers, request_id
from prill.models.calls import PerGoal
from prill.models.client import OpenAIModel
from prill.models.ledger import price_factor
from prill.models.prompts import same_codes
from prill.models.request import EndpointCapabilities
from prill.models.transport import Endpoint, answered_by
from prill.protocols import Evaluator, every_judge
from prill.types import EvaluatorInfo, Trajectory, Verdict

# "50% cost discount compared to synchronous APIs" (OpenAI's documentation of the batch API). Other
# providers give the same discount.
PRICE_SHARE = 0.5


class Replay:
    """Runs a judge on stored answers; requests without an answer go to `add`.

    Trajectories are judged one at a time, and what a reply reveals about the endpoint is discarded
    after each. Otherwise one reply would change the later requests, and their stored answers would
    not be found.
    """

    def __init__(
        self,
        judge: Evaluator,
        secret: str,
        answers: Answers,
        add: Callable[[str, bytes, Endpoint], None],
    ) -> None:
        self.judge = judge
        self._models = models_of(judge)
        for part in every_judge(judge):
            for value in vars(part).values() if hasattr(part, "__dict__") else ():
                # its calls were charged to trajectories that had no verdict then
                if isinstance(value, PerGoal):
                    value.forget()
        self._secret, self._answers, self._add = secret, answers, add
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
        # the same request again, because the first reply contained no verdict
        if self._requested[id] > 1:
            id = f"{id}-{self._requested[id]}"
        if (answer := self._answers.get(id)) is not None:
            return answer
        if self._answers.claim(id):
            self._add(id, body, endpoint)
        raise AnswerPendingError("the answer is not available yet")


def models_of(judge: Evaluator) -> tuple[OpenAIModel, ...]:
    """Returns the models that a judge calls at endpoints.

    Raises UsageError for a model on this machine, or if the judge calls no model.
    """
    found: list[OpenAIModel] = []
    for part in every_judge(judge):
        for holder in (part, getattr(part, "captioner", None)):
            model = getattr(holder, "model", None)
            if isinstance(model, OpenAIModel) and type(model.endpoint) is Endpoint:
                found.append(model)
            elif model is not None and hasattr(model, "complete"):
                raise UsageError(
                    f"model {model.name} runs on this machine, but a batch needs a model at "
                    "an endpoint; give its plain name, even if you run the batch yourself"
                )
    if not found:
        raise UsageError(
            f"judge {judge.info.name} calls no model at an endpoint, so it needs no batch"
        )
    return tuple(found)
