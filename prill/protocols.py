"""The protocols of prill, satisfied structurally: nothing needs to inherit from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

import msgspec

from prill.types import Action, EvaluatorInfo, Observation, Step, Task, Trajectory, Usage, Verdict


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a message, by file path. It is checked, scaled and encoded when the message is
    sent.

    Args:
        path: The image file.
        detail: How closely the model looks, as OpenAI's endpoints define it. None: the endpoint
            decides.
    """

    path: str
    detail: Literal["low", "high", "auto"] | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat.

    Args:
        role: Who speaks.
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
    """What a model answered.

    Args:
        text: The answer.
        usage: What it cost.
        fields: What the requested `Form` parsed; empty without one.
        tokens: The answer's tokens with log-probabilities. None: the endpoint gave none.
    """

    text: str
    usage: Usage
    fields: dict[str, str]
    tokens: tuple[Token, ...] | None = None


class Form(Protocol):
    """The shape of a reply."""

    @property
    def tagged(self) -> bool:
        """True when it is asked for as lines of text, even where the endpoint could enforce a
        schema.
        """
        ...

    def json_schema(self) -> dict[str, Any]:
        """The schema for structured output."""
        ...

    def instructions(self, *, as_json: bool) -> str:
        """Gives the sentence that tells the model how to answer.

        Args:
            as_json: Ask for a JSON object, for an endpoint that enforces the schema or JSON.

        Returns:
            The sentence, for the end of the prompt.
        """
        ...

    def parse(self, text: str) -> dict[str, str]:
        """Parses an answer.

        Args:
            text: The answer.

        Returns:
            The fields by name.

        Raises:
            UnparsableError: The answer does not have this form.
        """
        ...


class LanguageModel(Protocol):
    """A chat model that may see images."""

    @property
    def name(self) -> str:
        """What verdicts record as the model."""
        ...

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Asks for one answer at temperature 0.

        Args:
            messages: The chat, oldest first. The text `prill.models.prompts.NONCE` is replaced by a
                code drawn for this call; kept replies go by the text before that.
            form: The shape that the answer is asked for and parsed by. None: any text.
            max_tokens: The most tokens of the answer.
            prompt: The hash of the prompt files, for the key of kept replies.

        Returns:
            The answer.

        Raises:
            UnscoredError: There is no usable answer to this call.
            EndpointError: No call can succeed.
        """
        ...


class SamplingLimits(TypedDict, total=False):
    """What narrows the draw of the next token. What is absent does not narrow it, whatever the
    model's own habits are.

    `top_p`: the likeliest tokens that hold so much probability; `top_k`: so many likeliest tokens
    (0: all); `repetition_penalty`: what has been said already is so many times less likely (1.0: no
    less).
    """

    top_p: float
    top_k: int
    repetition_penalty: float


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may hold. None: not known.

    Args:
        window: Tokens of request and reply together.
        images: Images of a request.
        thinking: How many tokens of the reply the model turned out to need for thoughts.
    """

    window: int | None = None
    images: int | None = None
    thinking: int = 0


@runtime_checkable
class Adaptive(LanguageModel, Protocol):
    """A model that finds out what its endpoint takes."""

    async def limits(self) -> Limits:
        """How much one request may hold, as far as it is known by now."""
        ...

    @property
    def unsupported_params(self) -> Sequence[str]:
        """What was asked for and is left out, since the endpoint refused it: a sentence each."""
        ...


@runtime_checkable
class SampledModel(LanguageModel, Protocol):
    """A model that can also be drawn from."""

    def sampled(
        self, temperature: float, seed: int, **limits: Unpack[SamplingLimits]
    ) -> LanguageModel:
        """Gives the same model at another temperature.

        Args:
            temperature: The temperature; 0 is greedy.
            seed: Different seeds draw different answers.
            **limits: What narrows the draw: `top_p`, `top_k`, `repetition_penalty`.

        Returns:
            The model. It shares connections, budget and weights with this one.
        """
        ...


@runtime_checkable
class Bounded(Protocol):
    """A model, or a judge that asks one, that knows how many calls it makes at once at most."""

    @property
    def concurrency(self) -> int:
        """Most calls at once."""
        ...


@runtime_checkable
class Remote(Protocol):
    """A model behind an endpoint that may be gone."""

    async def why_unreachable(self) -> str:
        """Why no call can get there now; empty where it can. Asks for nothing that costs money."""
        ...


class Captioner(Protocol):
    """Turns one observation into text. Never sees the goal: it would describe what was hoped
    for.
    """

    @property
    def name(self) -> str:
        """What verdicts record as the captioner, with the version of its engine."""
        ...

    async def __call__(self, observation: Observation) -> str:
        """Describes an observation.

        Args:
            observation: What could be seen. The goal is never shown to a captioner.

        Returns:
            The text.

        Raises:
            NoEvidenceError: The observation lacks what this captioner reads.
        """
        ...


@runtime_checkable
class RecordedCaptioner(Captioner, Protocol):
    """A captioner that looks at no image: it gives what was recorded with the state."""

    def recorded(self, observation: Observation) -> str | None:
        """Looks up the recorded text, without work.

        Args:
            observation: What could be seen.

        Returns:
            The text; None where none was recorded.
        """
        ...


class Evaluator(Protocol):
    """Judges one trajectory. A failed judgement is an unscored verdict, never success=False."""

    @property
    def info(self) -> EvaluatorInfo:
        """Name, version, model, prompt hash and settings: whatever could change a verdict."""
        ...

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Lists the images that the verdict depends on.

        Args:
            trajectory: The trajectory.

        Returns:
            Paths of image files.
        """
        ...

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Judges a trajectory.

        Args:
            trajectory: The trajectory.

        Returns:
            The verdict. A failed judgement is an unscored verdict.

        Raises:
            EndpointError: The judge's model cannot be used at all, which ends the run.
            UsageError: The judge cannot be used as described, which ends the run.
        """
        ...


@runtime_checkable
class Estimator(Evaluator, Protocol):
    """An evaluator that can say beforehand what a trajectory would cost."""

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Estimates what a verdict would cost.

        Args:
            trajectory: The trajectory.

        Returns:
            Calls, tokens and images; `usd` is not filled in.

        Raises:
            InputError: An image cannot be used.
        """
        ...


@runtime_checkable
class Composite(Evaluator, Protocol):
    """A judge made of others: a combination, or a judge that is shown something else."""

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The judges inside."""
        ...


def every_judge(judge: Evaluator) -> Iterator[Evaluator]:
    """Lists a judge and all judges inside it, however deep.

    Args:
        judge: The judge.

    Yields:
        The judges, the outermost first.
    """
    yield judge
    if isinstance(judge, Composite):
        for part in judge.parts:
            yield from every_judge(part)


def get_concurrency(judge: Evaluator) -> int | None:
    """Gives the most calls at once of the models that a judge asks.

    Args:
        judge: The judge.

    Returns:
        The number; None where no model has a limit.
    """
    limits = [part.concurrency for part in every_judge(judge) if isinstance(part, Bounded)]
    return max(limits, default=None)


def unsupported_params(judge: Evaluator) -> list[str]:
    """Lists what the models of a judge were found not to accept.

    Args:
        judge: The judge.

    Returns:
        A sentence each, without duplicates.
    """
    models = (getattr(part, "model", None) for part in every_judge(judge))
    return list(
        dict.fromkeys(
            param
            for model in models
            if isinstance(model, Adaptive)
            for param in model.unsupported_params
        )
    )


async def why_unreachable(judge: Evaluator) -> str:
    """Checks whether the models of a judge can be reached.

    Args:
        judge: The judge.

    Returns:
        Why one cannot; empty where all can, as far as they know.
    """
    for model in (getattr(part, "model", None) for part in every_judge(judge)):
        if isinstance(model, Remote) and (why := await model.why_unreachable()):
            return why
    return ""


class RewardFunction(Protocol):
    """What a scored verdict is worth to whoever trains an agent."""

    def __call__(self, trajectory: Trajectory, verdict: Verdict, /) -> float | None:
        """Computes the reward of a scored verdict.

        Args:
            trajectory: The trajectory.
            verdict: Its verdict, which has a success.

        Returns:
            The reward; None where this trajectory has none.
        """
        ...


class Policy(Protocol):
    """An agent: decides the next action."""

    def reset(self, task: Task) -> None:
        """Begins a new episode.

        Args:
            task: What the agent is asked to do.
        """
        ...

    async def act(self, observation: Observation) -> Step:
        """Decides the next action.

        Args:
            observation: The present state.

        Returns:
            The step: what the agent saw of the state, the action, and the reason for it.

        Raises:
            NoEvidenceError: The observation lacks what this policy reads.
            UnscoredError: The agent's model gives no usable answer.
        """
        ...


@runtime_checkable
class Demonstrator(Policy, Protocol):
    """An agent that can be taught by recorded steps: it tells what it would have been asked, and
    what to answer.
    """

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Puts a recorded step as a question and its answer.

        Args:
            trajectory: The recorded trajectory.
            index: The step, from 0.

        Returns:
            The messages that this policy sends at that step, and the reply that is the recorded
            action.

        Raises:
            NoEvidenceError: The state lacks what this policy reads.
            UnparsableError: The recorded action cannot be expressed in this policy's language.
        """
        ...


@runtime_checkable
class Learner(Policy, Protocol):
    """An agent that can tell what it learned from an attempt. What it learned before, it was made
    with.
    """

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        """Draws a lesson from an attempt, for the next attempt at the same task.

        Args:
            trajectory: The attempt.
            verdict: Its verdict; `verdict.reason` is what the judge said.

        Returns:
            The lesson.

        Raises:
            UnscoredError: There is no lesson.
        """
        ...


class Environment(Protocol):
    """A browser, phone or simulator."""

    async def reset(self, task: Task) -> Observation:
        """Starts a task from its initial state.

        Args:
            task: The task.

        Returns:
            The first state.

        Raises:
            EnvironmentFailedError: The environment broke.
            UsageError: The task is not one of this environment's.
        """
        ...

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Carries out an action.

        Args:
            action: The action. One on something that is not there changes nothing.

        Returns:
            The state after it, and whether the environment ended the episode.

        Raises:
            EnvironmentFailedError: The environment broke.
            UsageError: No episode is open.
        """
        ...

    async def close(self) -> None:
        """Release everything; safe to call twice."""
        ...


@runtime_checkable
class Locator(Protocol):
    """An environment that can tell where on the screen an action will happen."""

    async def locate(self, action: Action) -> Action:
        """Locates an action for the record, before it is carried out.

        Args:
            action: The agent's action.

        Returns:
            The action with the element's text as target and its middle as point, x and y in [0, 1]
            from the top left. Unchanged where the element is not known or not on the screen.

        Raises:
            EnvironmentFailedError: The environment broke.
        """
        ...


@runtime_checkable
class Abridging(Protocol):
    """An environment that shows agents more than is worth keeping."""

    def abridged(self, trajectory: Trajectory) -> Trajectory:
        """Shortens an episode for the record.

        Args:
            trajectory: The episode so far.

        Returns:
            What is kept of it for people and judges.
        """
        ...


E = TypeVar("E", bound=Environment)


class Work(Protocol):
    """What is done with each shard of a long run. It can be pickled."""

    async def __call__(self, part: bytes) -> bytes:
        """Does a shard of a long run, perhaps again after a worker died with it: it resumes.

        Args:
            part: Which shard, and who judges or captions it.

        Returns:
            The outcome.
        """
        ...


class Engine(Protocol):
    """Workers elsewhere: other processes of this machine, or of a cluster. All of them see the same
    files.
    """

    def start(self) -> int:
        """Gets the workers ready.

        Returns:
            How many workers there will be.

        Raises:
            UsageError: The engine cannot be used.
        """
        ...

    def run(self, work: Work, parts: Sequence[bytes]) -> Iterator[bytes]:
        """Runs the shards, all at the same time if it can. The shard of a worker that died is given
        to another one.

        Args:
            work: What is done with each shard.
            parts: The shards, as many as `start` gave workers.

        Returns:
            The outcomes, in any order.
        """
        ...

    def close(self) -> None:
        """Ends all of it, whatever it is at; safe to call twice."""
        ...
