"""What the parts of prill ask of one another. Classes satisfy these by shape; nobody inherits to belong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

import msgspec

from prill.types import Action, EvaluatorInfo, Observation, Step, Task, Trajectory, Usage, Verdict


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a message, by file path. It is checked, scaled and encoded when the message is sent.

    `detail` is what OpenAI's endpoints call so: how closely the model looks. None: the endpoint decides.
    """

    path: str
    detail: Literal["low", "high", "auto"] | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat: who speaks, and texts and images in order."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[str | Image, ...]


class Token(msgspec.Struct, frozen=True, gc=False):
    """One token of a reply with its natural-log probability, and the likeliest tokens at the same place."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. `fields` is what the asked-for format reads; `tokens` is None without log-probabilities."""

    text: str
    usage: Usage
    fields: dict[str, str]
    tokens: tuple[Token, ...] | None = None


class Form(Protocol):
    """The shape of a reply."""

    @property
    def tagged(self) -> bool:
        """True when it is asked for as lines of text, even where the endpoint could enforce a schema."""
        ...

    def json_schema(self) -> dict[str, Any]:
        """The schema for structured output."""
        ...

    def instructions(self, *, as_json: bool) -> str:
        """The sentence that tells the model how to answer."""
        ...

    def parse(self, text: str) -> dict[str, str]:
        """The fields of an answer. Raises Unparsable."""
        ...


class LanguageModel(Protocol):
    """A chat model that may see images."""

    @property
    def name(self) -> str:
        """What verdicts record as the model."""
        ...

    async def complete(
        self, messages: Sequence[Message], *, form: Form | None = None, max_tokens: int = 1024, prompt: str = ""
    ) -> Reply:
        """One answer at temperature 0. `form` is the shape asked for and validated; `prompt` the hash of its prompt files.

        `prill.models.prompts.NONCE` in a text is to be replaced by a code drawn for this call; kept replies go by the text
        before.
        Raises an `Unscored` error when there is no usable answer, `EndpointError` when no call can succeed.
        """
        ...


class SamplingLimits(TypedDict, total=False):
    """What narrows the draw of the next token. What is absent does not narrow it, whatever the model's own habits are.

    `top_p`: the likeliest tokens that hold so much probability; `top_k`: so many likeliest tokens (0: all);
    `repetition_penalty`: what has been said already is so many times less likely (1.0: no less).
    """

    top_p: float
    top_k: int
    repetition_penalty: float


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may hold; None where nobody knows. `window`: tokens, of request and reply together; `thinking`: how
    many of them the model turned out to need for thoughts."""

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
    def lessons(self) -> Sequence[str]:
        """What was asked for and is left out, since the endpoint refused it: a sentence each."""
        ...


@runtime_checkable
class SampledModel(LanguageModel, Protocol):
    """A model that can also be drawn from."""

    def sampled(self, temperature: float, seed: int, **limits: Unpack[SamplingLimits]) -> LanguageModel:
        """The same model at that temperature, within limits; seeds give different samples."""
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
    """Turns one observation into text. Never sees the goal: it would describe what was hoped for."""

    @property
    def name(self) -> str:
        """What verdicts record as the captioner, with the version of its engine."""
        ...

    async def __call__(self, observation: Observation) -> str:
        """The text; raises NoEvidence when the observation lacks what this captioner reads."""
        ...


@runtime_checkable
class RecordedCaptioner(Captioner, Protocol):
    """A captioner that looks at no image: it gives what was recorded with the state."""

    def recorded(self, observation: Observation) -> str | None:
        """The text, without work; None where there is none."""
        ...


class Evaluator(Protocol):
    """Judges one trajectory. A failed judgement is an unscored verdict, never success=False."""

    @property
    def info(self) -> EvaluatorInfo:
        """Name, version, model, prompt hash and settings: whatever could change a verdict."""
        ...

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """The image files that the verdict depends on."""
        ...

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict. Raises only what ends a whole run (UsageError, EndpointError)."""
        ...


@runtime_checkable
class Estimator(Evaluator, Protocol):
    """An evaluator that can say beforehand what a trajectory would cost."""

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Calls, tokens and images; `usd` is not filled in. Raises InputError for an image that cannot be used."""
        ...


@runtime_checkable
class Composite(Evaluator, Protocol):
    """A judge made of others: a combination, or a judge that is shown something else."""

    @property
    def parts(self) -> Sequence[Evaluator]:
        """The judges inside."""
        ...


def every_judge(judge: Evaluator) -> Iterator[Evaluator]:
    """The judge, and all judges inside it, however deep."""
    yield judge
    if isinstance(judge, Composite):
        for part in judge.parts:
            yield from every_judge(part)


def concurrency_of(judge: Evaluator) -> int | None:
    """Most calls at once of the models that the judge asks; None when it asks none that has a limit."""
    limits = [part.concurrency for part in every_judge(judge) if isinstance(part, Bounded)]
    return max(limits, default=None)


def lessons_of(judge: Evaluator) -> list[str]:
    """What the models that the judge asks were found not to take, each once."""
    models = (getattr(part, "model", None) for part in every_judge(judge))
    return list(dict.fromkeys(lesson for model in models if isinstance(model, Adaptive) for lesson in model.lessons))


async def why_unreachable(judge: Evaluator) -> str:
    """Why a model that the judge asks cannot be reached; empty where all can, as far as they know."""
    for model in (getattr(part, "model", None) for part in every_judge(judge)):
        if isinstance(model, Remote) and (why := await model.why_unreachable()):
            return why
    return ""


class RewardFunction(Protocol):
    """What a scored verdict is worth to whoever trains an agent."""

    def __call__(self, trajectory: Trajectory, verdict: Verdict, /) -> float | None:
        """The number; None where this trajectory shall have no reward."""
        ...


class Policy(Protocol):
    """An agent: decides the next action."""

    def reset(self, task: Task) -> None:
        """Begin a new episode."""
        ...

    async def act(self, observation: Observation) -> Step:
        """The next step: what was seen (as the agent saw it), what to do, and why."""
        ...


@runtime_checkable
class Demonstrator(Policy, Protocol):
    """An agent that can be taught by recorded steps: it tells what it would have been asked, and what to answer."""

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """The messages that this policy sends at step `index`, and the reply that is that step's action.

        Raises Unparsable when the recorded action cannot be said in this policy's language.
        """
        ...


@runtime_checkable
class Learner(Policy, Protocol):
    """An agent that can tell what it learned from an attempt. What it learned before, it was made with."""

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        """A lesson in words for the next attempt at the same task; `verdict.reason` is what the judge said of this one.

        Raises an `Unscored` error when there is none.
        """
        ...


class Environment(Protocol):
    """A browser, phone or simulator."""

    async def reset(self, task: Task) -> Observation:
        """Start the task anew and show the first state. Raises EnvironmentFailure."""
        ...

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Carry out an action: the state after it, and whether the environment ended the episode."""
        ...

    async def close(self) -> None:
        """Release everything; safe to call twice."""
        ...


@runtime_checkable
class Locator(Protocol):
    """An environment that can tell where on the screen an action will happen."""

    async def locate(self, action: Action) -> Action:
        """For the record, before it is carried out: the action with the element's words as target and its middle as point.

        As it is where nobody knows, or nothing of the element is on the screen. Raises EnvironmentFailure.
        """
        ...


@runtime_checkable
class Abridging(Protocol):
    """An environment that shows agents more than is worth keeping."""

    def abridged(self, trajectory: Trajectory) -> Trajectory:
        """What of the episode so far goes on record, for people and judges."""
        ...


E = TypeVar("E", bound=Environment)


class Lender(Protocol[E]):
    """Lends environments to one episode at a time (`prill.emulators.pool.Pool`)."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def lend(self, *, but: E | None = None) -> AbstractAsyncContextManager[E]:
        """One of them, not `but` while there are others. Raises EnvironmentFailure when none works any more."""
        ...

    async def report(self, environment: E, failure: str | None) -> None:
        """Why an episode could not begin in it; None when it did."""
        ...


class Work(Protocol):
    """What is done with each part of a long run. It can be pickled."""

    async def __call__(self, part: bytes) -> bytes:
        """Does a part, perhaps once more after a worker died with it, and tells what came of it."""
        ...


class Engine(Protocol):
    """Workers elsewhere: other processes of this machine, or of a cluster. All of them see the same files."""

    def start(self) -> int:
        """Gets ready; how many workers there will be. Raises UsageError."""
        ...

    def run(self, work: Work, parts: Sequence[bytes]) -> Iterator[bytes]:
        """What came of each part, in any order. Each worker does a few parts at a time, and what a worker that died was at is
        given to another one."""
        ...

    def close(self) -> None:
        """Ends all of it, whatever it is at; safe to call twice."""
        ...
