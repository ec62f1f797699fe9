"""Asks a model for a reflection after a failed attempt (arXiv 2404.06474, section 5).

The prompt contains the judge's feedback on the attempt, never its true success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Protocol, get_args

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UnparsableError, UsageError
from prill.models.calls import get_limits
from prill.models.prompts import NONCE, clean, content_hash, estimate_tokens, load_prompt, quoted
from prill.models.registry import ModelLike
from prill.protocols import LanguageModel, Learner, Message, Policy
from prill.refine.demonstration import DEVICES
from prill.refine.retries import Challenge
from prill.types import Observation, Platform, Step, Task, Trajectory, Verdict

LEFT_OUT = "(left out)"
# The most of a request: states in the middle are dropped first, actions never. The paper sets no
# total; 30 steps of 1920 tokens are 57,600. This also fits the context windows of small models.
_REQUEST_TOKENS = 24_000


@dataclass(frozen=True, kw_only=True)
class LessonsConfig(Config):
    """The model that writes lessons, and its requests. One token is counted as four characters."""

    model: Annotated[
        ModelLike | None, Meta(description="Model that writes lessons (default: the policy's).")
    ] = None
    observation_tokens: Annotated[
        int, Meta(ge=1, description="Maximum number of tokens of one state (the paper: 1920).")
    ] = 1920
    lesson_tokens: Annotated[
        int, Meta(ge=1, description="Maximum number of tokens of the lesson.")
    ] = 384

    def settings(self) -> dict[str, Any]:
        """Returns the settings that distinguish runs, besides the model and the prompt."""
        return {p.name: getattr(self, p.name) for p in fields(self) if p.name != "model"}


LessonsOption = Annotated[LessonsConfig, Meta(description="How lessons are generated.")]


class Reflector:
    """A writer of lessons from an attempt and the judge's feedback.

    Args:
        model: The model that writes the lesson.
        spec: The options.
    """

    def __init__(self, model: LanguageModel, spec: LessonsConfig = LessonsConfig()) -> None:
        self.model = model
        self.spec = spec

    @property
    def prompt(self) -> str:
        """The hash of the prompt, with the examples for all platforms."""
        names = ("reflection", *dict.fromkeys(map(_examples, get_args(Platform))))
        return content_hash(*(load_prompt("prill.refine", name).text for name in names))

    async def __call__(
        self, trajectory: Trajectory, verdict: Verdict, lessons: Sequence[str]
    ) -> str:
        """Writes a lesson.

        Args:
            trajectory: The attempt.
            verdict: Its verdict.
            lessons: The lessons of the attempts before it, oldest first.

        Raises:
            UnscoredError: The model gives no usable reply.
            UnparsableError: The model's reply is empty.
        """
        messages = self.messages(trajectory, verdict, lessons, await self._room())
        reply = await self.model.complete(
            messages, max_tokens=self.spec.lesson_tokens, prompt=self.prompt
        )
        if text := clean(reply.text.rpartition("</think>")[2]).strip():
            return text
        raise UnparsableError("the model returned an empty lesson")

    def messages(
        self,
        trajectory: Trajectory,
        verdict: Verdict,
        lessons: Sequence[str],
        tokens: int | None = None,
    ) -> tuple[Message, Message]:
        """Builds the request for a lesson.

        Args:
            trajectory: The attempt.
            verdict: Its verdict.
            lessons: The lessons of the attempts before it, oldest first.
            tokens: The most tokens of the request, unless actions, status and earlier lessons alone
                take more. None: 24,000.

        Returns:
            The system message and the user message.
        """
        shown = [
            _shown(step.observation, self.spec.observation_tokens) for step in trajectory.steps
        ]
        budget = _REQUEST_TOKENS if tokens is None else tokens
        texts: list[str | None] = [None] * len(shown)
        spare = budget - _size(self._filled(trajectory, verdict, lessons, texts))
        for i in _from_the_ends(len(shown)):
            # The placeholder for this state is counted already.
            cost = estimate_tokens(shown[i]) - estimate_tokens(LEFT_OUT)
            if cost > spare:
                # States nearer to the middle are left out first, so no state after this one is
                # shown. The last state is cut to fit.
                if i == len(shown) - 1 and spare > 0:
                    texts[i] = shown[i][: 4 * spare]
                break
            texts[i] = shown[i]
            spare -= cost
        return self._filled(trajectory, verdict, lessons, texts)

    def _filled(
        self,
        trajectory: Trajectory,
        verdict: Verdict,
        lessons: Sequence[str],
        texts: Sequence[str | None],
    ) -> tuple[Message, Message]:
        earlier = "\n".join(f"TRIAL {i}: {lesson}" for i, lesson in enumerate(lessons))
        values = {
            "code": NONCE,
            "device": DEVICES[trajectory.task.platform],
            "examples": load_prompt("prill.refine", _examples(trajectory.task.platform)).text,
            "goal": clean(trajectory.task.goal),
            "history": quoted("history", _history(trajectory.steps, texts)),
            "status": quoted("status", verdict.reason),
            "lessons": quoted("lessons", earlier) if lessons else "none",
        }
        filled = load_prompt("prill.refine", "reflection").fill(values)
        return Message("system", (filled["system"],)), Message("user", (filled["user"],))

    async def _room(self) -> int:
        """Returns the token limit of a request: the setting, or less if the model's context window
        minus the lesson is smaller.
        """
        limits = await get_limits(self.model)
        if limits.window is None:
            return _REQUEST_TOKENS
        # A margin of a fifth covers the error of four characters per token.
        left = (limits.window - self.spec.lesson_tokens - limits.thinking) * 4 // 5
        return min(_REQUEST_TOKENS, max(1000, left))


class LessonTaker(Policy, Protocol):
    """A policy with lessons from earlier attempts in its prompt, such as `React`."""

    lessons: list[str]


class Reflective:
    """A wrapper that adds a method `reflect` to a policy that takes lessons.

    Args:
        policy: The policy, with a list `lessons`.
        reflector: Writes the lessons.
    """

    def __init__(self, policy: LessonTaker, reflector: Reflector) -> None:
        self.policy, self.reflector = policy, reflector

    def reset(self, task: Task) -> None:
        """Starts a new episode of the policy."""
        self.policy.reset(task)

    async def act(self, observation: Observation) -> Step:
        """Returns the policy's next step."""
        return await self.policy.act(observation)

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        """Writes the lesson of an attempt; the policy holds the lessons of the attempts before."""
        return await self.reflector(trajectory, verdict, self.policy.lessons)


def find_learner(
    policy: Any,
    lessons: Sequence[str],
    model: LanguageModel | None = None,
    spec: LessonsConfig = LessonsConfig(),
) -> Learner:
    """Gives the policy these lessons, and a reflector if it has no method `reflect`. The reflector
    uses this model, or else the policy's own.

    Raises UsageError for a policy that takes no lessons, or if there is no model.
    """
    name = type(policy).__name__
    if not isinstance(getattr(policy, "lessons", None), list):
        raise UsageError(
            f"the policy {name} does not accept lessons, because it has no list `lessons`; "
            "use react",
            parameters=("policy",),
        )
    policy.lessons[:] = lessons
    if isinstance(policy, Learner):
        return policy
    chosen = model or getattr(policy, "model", None)
    if chosen is None:
        raise UsageError(
            f"the policy {name} calls no model; name a model that writes lessons",
            parameters=("lessons.model",),
        )
    return Reflective(policy, Reflector(chosen, spec))


def make_challenges(
    tasks: Sequence[Task],
    policy: Callable[[], Any],
    model: LanguageModel | None = None,
    spec: LessonsConfig = LessonsConfig(),
    *,
    agent: str | None = None,
) -> list[Challenge[Any]]:
    """Creates a challenge for each task, for Reflexion.

    Args:
        tasks: The tasks, with distinct ids.
        policy: Creates a new agent for each attempt. The agent has a list `lessons`.
        model: The model that writes the lessons of an agent without a method `reflect`. None: the
            policy's own model.
        spec: The options of lessons.
        agent: The agent's name for the record. None: no name.

    Returns:
        The challenges, in the order of the tasks.

    Raises:
        UsageError: Two tasks have the same id.
    """

    def challenge(task: Task) -> Challenge[Any]:
        async def same(environment: object) -> Task:
            return task

        def learner(lessons: Sequence[str], number: int) -> Learner:
            return find_learner(policy(), lessons, model, spec)

        return Challenge(
            name=task.id,
            id=lambda number: f"{task.id}-a{number}",
            task=same,
            learner=learner,
            agent=agent,
        )

    if len({task.id for task in tasks}) < len(tasks):
        raise UsageError("every task needs an id of its own, which identifies its attempts")
    return [challenge(task) for task in tasks]


def _examples(platform: Platform) -> str:
    """Returns the name of the prompt with examples of lessons on the platform."""
    return "lessons_web" if platform == "web" else "lessons_device"


def _history(steps: Sequence[Step], texts: Sequence[str | None]) -> str:
    blocks = []
    for i, (step, text) in enumerate(zip(steps, texts, strict=True)):
        url = f"URL: {clean(step.observation.url)}\n" if step.observation.url else ""
        blocks.append(
            f"OBSERVATION {i}:\n{url}{LEFT_OUT if text is None else text}\nACTION {i}: "
            f"{_step_text(step)}"
        )
    return "\n".join(blocks) or "(nothing was done)"


def _step_text(step: Step) -> str:
    action = step.action
    return clean(action.text) or " ".join(
        part for part in (action.kind, action.target, action.value) if part
    )


def _shown(observation: Observation, tokens: int) -> str:
    """Returns the text of a state within the limit, cut at a line break if possible."""
    text = clean(observation.text or observation.caption or "(a screenshot, without text)").strip()
    if estimate_tokens(text) <= tokens:
        return text
    head = text[: 4 * tokens]
    return head.rpartition("\n")[0] or head


def _from_the_ends(count: int) -> list[int]:
    """Returns the indices of a list from the ends to the middle: last, first, second to last, …."""
    return sorted(range(count), key=lambda i: (min(i, count - 1 - i), i < count - 1 - i))


def _size(messages: Sequence[Message]) -> int:
    return sum(
        estimate_tokens(part)
        for message in messages
        for part in message.parts
        if isinstance(part, str)
    )
