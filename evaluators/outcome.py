"""What all judges of outcomes share: the prompt of the platform, one call, one verdict, and failures as states."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from prill.errors import ContextTooLong, Unscored
from prill.evaluators.evidence import action_history, claims, shorten, without_claims
from prill.logprobs import choice_probability
from prill.models.ledger import metered
from prill.parse import Form, ReplyFormat
from prill.prompts import NONCE, Prompt, content_hash, load_prompt
from prill.protocols import Evaluator, Image, LanguageModel, Message, Reply
from prill.quotation import quoted
from prill.types import Findings, StepVerdict, Trajectory, Verdict

STATUS = ReplyFormat("thoughts", "status", ("success", "failure"))
# For the states, and as much again for the actions: 12,000 tokens, which recent windows hold beside screenshots.
ROOM = 24_000
# For a window of 4,096 tokens, the smallest in use: 4,000 characters for the states, and as much for the actions.
_SMALL_SHARE = 6
MAX_TOKENS = 1024
_DEVICES = {"android": "an Android phone", "ios": "an iPhone", "desktop": "a desktop computer", "other": "a computer or phone"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge concluded; `verdict_of` makes it a verdict."""

    success: bool
    score: float
    reason: str
    steps: tuple[StepVerdict, ...] | None = None
    rewards: tuple[float, ...] | None = None
    findings: Findings | None = None


async def verdict_of(evaluator: Evaluator, trajectory: Trajectory, judge: Callable[[], Awaitable[Judgement]]) -> Verdict:
    """Runs a judgement and records it with what it cost; Unscored errors become unscored verdicts here, nowhere else."""
    start = time.perf_counter()
    with metered() as meter:
        try:
            found = await judge()
        except Unscored as failure:
            seconds = time.perf_counter() - start
            return Verdict(
                id=trajectory.id,
                unscored=failure.code,
                reason=str(failure),
                usage=meter.usage,
                seconds=round(seconds, 4),
                evaluator=evaluator.info,
            )
    return Verdict(
        id=trajectory.id,
        success=found.success,
        score=found.score,
        reason=found.reason,
        steps=found.steps,
        rewards=found.rewards,
        findings=found.findings,
        usage=meter.usage,
        seconds=round(time.perf_counter() - start, 4),
        evaluator=evaluator.info,
    )


@dataclass(frozen=True, slots=True)
class OutcomePrompts:
    """The prompts of one kind of judge (`text` or `vision`) for every platform."""

    kind: str

    def of(self, trajectory: Trajectory) -> Prompt:
        """The prompt for the trajectory's platform."""
        platform = "web" if trajectory.task.platform == "web" else "device"
        return load_prompt("prill.evaluators", f"{platform}_{self.kind}")

    @property
    def hash(self) -> str:
        """One hash for all of them, with the form of reply that is asked for."""
        texts = [load_prompt("prill.evaluators", f"{platform}_{self.kind}").text for platform in ("web", "device")]
        return content_hash(*texts, STATUS.instructions(as_json=True), STATUS.instructions(as_json=False))


def outcome_messages(
    prompt: Prompt,
    trajectory: Trajectory,
    room: int,
    *,
    answer: bool,
    thoughts: bool = False,
    messages: bool = True,
    images: Sequence[Image] = (),
    **blocks: str,
) -> tuple[Message, ...]:
    """The filled prompt; images come after all text, so that servers can reuse the common beginning.

    `room` bounds the actions, and a quarter of it the answer and the thoughts each, in characters. Without `messages`, the
    actions by which the agent speaks to the user lose their words: the last one often repeats the answer.
    """
    history = trajectory if messages else without_claims(trajectory)
    values = {
        "goal": quoted("request", trajectory.task.goal),
        "actions": quoted("actions", action_history(history, room)),
        "claims": claims(trajectory, room // 4, answer=answer, thoughts=thoughts),
        "code": NONCE,
        **blocks,
    }
    if "device" in prompt.slots:
        values["device"] = _DEVICES[trajectory.task.platform]
    turns = prompt.fill(values)
    return Message("system", (turns["system"],)), Message("user", (turns["user"], *images))


async def ask(
    model: LanguageModel,
    messages: Callable[[int], Sequence[Message]],
    form: Form,
    prompt: Prompt,
    max_tokens: int,
    room: int = ROOM,
) -> Reply:
    """One call. `messages` gets the room for quoted text, in characters; a request that does not fit the model's window is
    sent once more with a sixth of it."""
    whole = messages(room)
    try:
        return await model.complete(whole, form=form, max_tokens=max_tokens, prompt=prompt.hash)
    except ContextTooLong:
        if (less := messages(room // _SMALL_SHARE)) == whole:
            raise
        return await model.complete(less, form=form, max_tokens=max_tokens, prompt=prompt.hash)


async def judge_outcome(
    model: LanguageModel,
    messages: Callable[[int], Sequence[Message]],
    prompt: Prompt,
    max_tokens: int,
    room: int = ROOM,
    form: ReplyFormat = STATUS,
) -> Judgement:
    """One call for one verdict; `messages` and `room` as in `ask`."""
    reply = await ask(model, messages, form, prompt, max_tokens, room)
    said = reply.fields[form.verdict]
    success = said == "success"
    score = choice_probability(reply.tokens, form.verdict, form.choices, "success", said) if reply.tokens else None
    if score is None:
        score = 1.0 if success else 0.0
    return Judgement(success, round(min(1.0, max(0.0, score)), 6), reply.fields[form.text])


def state_block(texts: Sequence[str], max_chars: int) -> str:
    """Descriptions of the last states, the latest last, sharing `max_chars`."""
    share = max_chars // max(1, len(texts))
    if len(texts) == 1:
        return quoted("state", shorten(texts[0], share))
    return "\n\n".join(quoted(f"state-{i}", shorten(text, share)) for i, text in enumerate(texts, 1))
