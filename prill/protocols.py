"""The protocols of prill. They are structural: classes do not need to inherit from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

import msgspec

from prill.types import Action, EvaluatorInfo, Observation, Step, Task, Trajectory, Usage, Verdict


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a message, by file path. It is checked, scaled and encoded when it is sent.

    Args:
        path: The image file.
        detail: The level of detail, as OpenAI's API defines it. None: the endpoint's default.
    """

    path: str
    detail: Literal["low", "high", "auto"] | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    Args:
        role: The author of the message.
        parts: Texts and images, in order.
    """

    role: Literal["system", "user", "assistant"]
    parts: tuple[str | Image, ...]


class Token(msgspec.Struct, frozen=True, gc=False):
    """One token of a reply.

    Attributes:
        text: The token.
        logprob: Its natural-log probability.
        top: The likeliest tokens at the same position, with theirs.
    """

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply.

    Args:
        text: The answer.
        usage: Its tokens and cost.
        fields: The fields that the requested `Form` parsed; empty without a form.
        tokens: The answer's tokens with log-probabilities. None: the endpoint returned none.
    """

    text: str
    usage: Usage
    fields: dict[str, str]
    tokens: tuple[Token, ...] | None = None


class Form(Protocol):
    """The format of a reply."""

    @property
    def tagged(self) -> bool:
        """Returns True if the reply is requested as lines of text, even if the endpoint can enforce
        a schema.
        """
        ...

    def json_schema(self) -> dict[str, Any]:
        """Returns the schema for structured output."""
        ...

    def instructions(self, *, as_json: bool) -> str:
        """Returns the instruction that tells the model how to answer.

        Args:
            as_json: Request a JSON object, for an endpoint that enforces the schema or JSON.

        Returns:
            The sentence to append to the prompt.
        """
        ...

    def parse(self, text: str) -> dict[str, str]:
        """Parses an answer.

        Raises:
            UnparsableError: The answer is not in this format.
        """
        ...


class LanguageModel(Protocol):
    """A chat model that may accept images."""

    @property
    def name(self) -> str:
        """Returns the name that verdicts record as the model."""
        ...

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Requests one answer at temperature 0.

        Args:
            messages: The chat, oldest message first. The text `prill.models.prompts.NONCE` is
                replaced by a random code for each call; the reply cache uses the text before the
                replacement.
            form: The format of the answer. None: any text.
            max_tokens: The maximum number of tokens in the answer.
            prompt: The hash of the prompt files, which is part of the cache key.

        Raises:
            UnscoredError: There is no usable answer to this call.
            EndpointError: No call can succeed.
        """
        ...


class SamplingLimits(TypedDict, total=False):
    """Sampling parameters; absent ones are off, regardless of the model's defaults.

    `top_p`: sample from the most likely tokens with this total probability. `top_k`: sample from
    this many most likely tokens (0: all). `repetition_penalty`: divides the likelihood of earlier
    tokens (1.0: off).
    """

    top_p: float
    top_k: int
    repetition_penalty: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request. None: unknown.

    Args:
        window: The context window: tokens of request and reply together.
        images: The maximum number of images in a request.
        thinking: The number of reply tokens that the model needed for reasoning so far.
    """

    window: int | None = None
    images: int | None = None
    thinking: int = 0


@runtime_checkable
class SampledModel(LanguageModel, Protocol):
    """A model that can sample at other temperatures."""

    def sampled(
        self, temperature: float, seed: int, **limits: Unpack[SamplingLimits]
    ) -> LanguageModel:
        """Returns the same model at another temperature.

        Args:
            temperature: The temperature; 0 is greedy.
            seed: The random seed.
            **limits: Sampling parameters: `top_p`, `top_k`, `repetition_penalty`.

        Returns:
            The model, which shares connections, budget and weights with this one.
        """
        ...


@runtime_checkable
class Bounded(Protocol):
    """A model or judge with a limit on concurrent calls."""

    @property
    def concurrency(self) -> int:
        """Returns the maximum number of concurrent calls."""
        ...


@runtime_checkable
class Remote(Protocol):
    """A model at an endpoint that may be unreachable."""

    async def why_unreachable(self) -> str:
        """Returns why the endpoint cannot be reached, or an empty text. Makes no billed call."""
        ...


class Captioner(Protocol):
    """Describes one observation as text. It never gets the goal, which would bias the
    description.
    """

    @property
    def name(self) -> str:
        """Returns the name that verdicts record as the captioner, including its engine's
        version.
        """
        ...

    async def __call__(self, observation: Observation) -> str:
        """Describes an observation.

        Raises:
            NoEvidenceError: The observation lacks the input of this captioner.
        """
        ...


@runtime_checkable
class RecordedCaptioner(Captioner, Protocol):
    """A captioner that returns the recorded text of a state and reads no image."""

    def recorded(self, observation: Observation) -> str | None:
        """Returns the recorded text.

        Returns:
            The text, or None if none was recorded.
        """
        ...


class Evaluator(Protocol):
    """A judge. A failed judgement is an unscored verdict, never `success=False`."""

    @property
    def info(self) -> EvaluatorInfo:
        """Returns name, version, model, prompt hash and settings: everything that could change a
        verdict.
        """
        ...

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Lists the images that the verdict depends on."""
        ...

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Judges a trajectory.

        Returns:
            The verdict. A failed judgement is an unscored verdict.

        Raises:
            EndpointError: The judge's model cannot be used at all. The run ends.
            UsageError: The judge's configuration is invalid. The run ends.
        """
        ...


@runtime_checkable
class Estimator(Evaluator, Protocol):
    """A judge that can estimate the cost of a trajectory."""

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Estimates the cost of a verdict.

        Returns:
            Calls, tokens and images; `usd` is not set.

        Raises:
            InputError: An image cannot be used.
        """
        ...


@runtime_checkable
class Composite(Evaluator, Protocol):
    """A judge made of other judges: a combination or a wrapper."""

    @property
    def parts(self) -> Sequence[Evaluator]:
        """Returns the inner judges."""
        ...


def every_judge(judge: Evaluator) -> Iterator[Evaluator]:
    """Lists a judge and all judges inside it, recursively."""
    yield judge
    if isinstance(judge, Composite):
        for part in judge.parts:
            yield from every_judge(part)


def get_concurrency(judge: Evaluator) -> int | None:
    """Returns the maximum concurrent calls of a judge's models.

    Returns:
        The number, or None if no model has a limit.
    """
    limits = [part.concurrency for part in every_judge(judge) if isinstance(part, Bounded)]
    return max(limits, default=None)


def unsupported_params(judge: Evaluator) -> list[str]:
    """Lists the parameters that a judge's models have rejected.

    Returns:
        One sentence for each, without duplicates.
    """
    parts = (one for part in every_judge(judge) for one in (part, getattr(part, "model", None)))
    return list(
        dict.fromkeys(param for part in parts for param in getattr(part, "unsupported_params", ()))
    )


async def why_unreachable(judge: Evaluator) -> str:
    """Checks whether the models of a judge can be reached.

    Returns:
        Why one cannot be reached, or an empty text.
    """
    for model in (getattr(part, "model", None) for part in every_judge(judge)):
        if isinstance(model, Remote) and (why := await model.why_unreachable()):
            return why
    return ""


class RewardFunction(Protocol):
    """Turns a scored verdict into a reward."""

    def __call__(self, trajectory: Trajectory, verdict: Verdict, /) -> float | None:
        """Computes the reward of a scored verdict.

        Args:
            trajectory: The trajectory.
            verdict: Its scored verdict.

        Returns:
            The reward, or None if this trajectory gets none.
        """
        ...


class Policy(Protocol):
    """An agent: decides the next action."""

    def reset(self, task: Task) -> None:
        """Starts a new episode."""
        ...

    async def act(self, observation: Observation) -> Step:
        """Decides the next action.

        Args:
            observation: The current state.

        Returns:
            The step: the part of the state that the agent used, the action, and the agent's
            reasoning.

        Raises:
            NoEvidenceError: The observation lacks the input of this policy.
            UnscoredError: The agent's model returns no usable answer.
        """
        ...


@runtime_checkable
class Demonstrator(Policy, Protocol):
    """An agent that can be trained on recorded steps: it returns the prompt and the expected
    reply.
    """

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Converts a recorded step to a prompt and the expected reply.

        Args:
            trajectory: The recorded trajectory.
            index: The index of the step, from 0.

        Returns:
            The messages that this policy sends at that step, and the reply that encodes the
            recorded action.

        Raises:
            NoEvidenceError: The state lacks the input of this policy.
            UnparsableError: This policy's reply format cannot express the recorded action.
        """
        ...


@runtime_checkable
class ReportingAgent(Policy, Protocol):
    """An agent that reports figures about an episode, such as its number of unparsable replies."""

    def report(self) -> Mapping[str, Any]:
        """Reports on the current episode.

        Returns:
            JSON values for the metadata of the episode's record.
        """
        ...


@runtime_checkable
class PublishedAgent(Policy, Protocol):
    """An agent from a paper, with the paper's settings."""

    def usual_settings(self, environment: str) -> Mapping[str, Any]:
        """Returns the paper's settings, which apply unless the run sets them.

        Args:
            environment: The environment's name.

        Returns:
            Values for fields of the run's configuration (`early_stop`, `max_steps`) and of the
            environment's. All other keys are settings of the agent itself, for the record.
        """
        ...


@runtime_checkable
class Learner(Policy, Protocol):
    """An agent that draws lessons from attempts. Earlier lessons are passed to its constructor."""

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        """Draws a lesson from an attempt, for the next attempt at the same task.

        Args:
            trajectory: The attempt.
            verdict: Its verdict; `verdict.reason` is the judge's reasoning.

        Raises:
            UnscoredError: There is no lesson.
        """
        ...


class Environment(Protocol):
    """A browser, phone or simulator."""

    async def reset(self, task: Task) -> Observation:
        """Starts a task from its initial state.

        Raises:
            EnvironmentFailedError: The environment broke.
            UsageError: The task does not belong to this environment.
        """
        ...

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Executes an action.

        Args:
            action: The action. An action on a missing element changes nothing.

        Returns:
            The next state, and whether the environment ended the episode.

        Raises:
            EnvironmentFailedError: The environment broke.
            UsageError: No episode is running.
        """
        ...

    async def close(self) -> None:
        """Releases all resources; safe to call twice."""
        ...


@runtime_checkable
class Locator(Protocol):
    """An environment that can find the element and screen position of an action."""

    async def locate(self, action: Action) -> Action:
        """Finds an action's element and position for the record, before the action is executed.

        Args:
            action: The agent's action.

        Returns:
            The action with the element's text as target and its centre as point, x and y in [0, 1]
            from the top left. It is unchanged if the element is unknown or not on the screen.

        Raises:
            EnvironmentFailedError: The environment broke.
        """
        ...


@runtime_checkable
class Abridging(Protocol):
    """An environment whose observations are shortened for the record."""

    def abridged(self, trajectory: Trajectory) -> Trajectory:
        """Shortens an episode for the record.

        Args:
            trajectory: The episode so far.

        Returns:
            The shortened episode that people and judges see.
        """
        ...


E = TypeVar("E", bound=Environment)


class Work(Protocol):
    """The work of an engine's workers; picklable."""

    async def __call__(self, part: bytes) -> bytes:
        """Judges or captions.

        Args:
            part: The trajectory or the observation.
        """
        ...


class Engine(Protocol):
    """Workers in other processes, on this machine or in a cluster. All share a file system."""

    def start(self) -> int:
        """Starts the workers; called in another thread.

        Raises:
            UsageError: The engine cannot be used.
        """
        ...

    async def call(self, work: Work, part: bytes) -> bytes:
        """Works on one part in a worker. If the worker dies, another one repeats the call.

        Args:
            work: The work, the same for all calls of a run.
            part: The part.
        """
        ...

    def close(self) -> None:
        """Stops all workers at once; safe to call twice."""
        ...
