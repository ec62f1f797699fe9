"""Per-step judge: what each action did for the goal, from the states before and after it (arXiv 2404.06474, 3 and 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from prill.errors import NoEvidence, Unparsable, UsageError
from prill.evaluators.evidence import action_text
from prill.evaluators.frames import captions, images_read, known_captions
from prill.evaluators.judgement import Judgement, verdict_of
from prill.evaluators.outcome import PresetName
from prill.models.calls import ROOM, ask, planned, prompt_of, together
from prill.models.prompts import NONCE, content_hash, quoted, shorten
from prill.models.replies import ReplyFormat, choice_probability
from prill.protocols import Captioner, LanguageModel, Message
from prill.types import EvaluatorInfo, Label, Observation, StepVerdict, Trajectory, Usage, Verdict

LABELS: dict[str, Label] = {
    "towards-the-goal": "towards",
    "not-sure": "not_sure",
    "goal-reached": "reached",
    "away-from-the-goal": "away",
}
STEP = ReplyFormat("thoughts", "response", tuple(LABELS))
MAX_TOKENS = 512
_REACHED = "goal-reached"
_NOT_RECORDED = "(This state was not recorded.)"


class StepJudge:
    """One call for each action, of which the model sees the states before and after as captions.

    Rewards, one for each step: 1 where the goal is reached, `p` for progress, else `d`; the paper asks for d < 0 <= p < 1 and
    leaves the values open. Success: some step reached the goal. Score: the highest probability of that among the steps.

    preset      `paper` puts everything in one user message, asks for two lines of text and shows "Terminated" in place of
                the state after the last action; `prill` shows that state where it was recorded, since it holds evidence
    last_state  show the state after the last action; None: as the preset has it

    A reply without a label counts as not_sure and is flagged, as the paper's users would have it; when no reply at all has
    one, the `prill` preset gives no verdict. Any other failed call leaves the whole trajectory unscored.
    """

    def __init__(
        self,
        model: LanguageModel,
        captioner: Captioner,
        *,
        preset: PresetName = "prill",
        p: float = 0.5,
        d: float = -0.5,
        last_state: bool | None = None,
        max_tokens: int = MAX_TOKENS,
        max_chars: int = ROOM,
    ) -> None:
        if preset not in ("prill", "paper"):
            raise UsageError(f"unknown preset {preset!r}; there are: prill, paper")
        if not d < 0 <= p < 1:
            raise UsageError(f"rewards p = {p:g} and d = {d:g}: progress must be worth 0 <= p < 1, and no progress d < 0")
        self.model = model
        self.captioner = captioner
        self.preset = preset
        self.p = p
        self.d = d
        self.last_state = preset == "prill" if last_state is None else last_state
        self.max_tokens = max_tokens
        self.max_chars = max_chars
        self._form = replace(STEP, tagged=preset == "paper")

    @cached_property
    def info(self) -> EvaluatorInfo:
        """Changes whenever a verdict could."""
        params = {
            "preset": self.preset,
            "captioner": self.captioner.name,
            "p": self.p,
            "d": self.d,
            "last_state": self.last_state,
            "max_tokens": self.max_tokens,
            "max_chars": self.max_chars,
        }
        text = prompt_of("steps").text
        prompt = content_hash(text, STEP.instructions(as_json=True), STEP.instructions(as_json=False))
        return EvaluatorInfo("steps", "1", self.model.name, prompt, params)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """The images of the states that are captioned, where captions come from images."""
        return images_read(self._states(trajectory), self.captioner)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict with a label and a reward for each step; unscored with `no_evidence` without actions or captions."""
        return await verdict_of(self, trajectory, lambda: self._judge(trajectory))

    def estimate(self, trajectory: Trajectory) -> Usage:
        """One call for each action; no caption is made for it."""
        states = known_captions(self._states(trajectory), self.captioner)
        calls = (self._messages(trajectory, i, states, self.max_chars) for i in range(len(trajectory.steps)))
        return sum((planned(messages, self.max_tokens) for messages in calls), start=Usage())

    def _states(self, trajectory: Trajectory) -> tuple[Observation, ...]:
        return trajectory.observations if self.last_state else trajectory.observations[: len(trajectory.steps)]

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        if not trajectory.steps:
            raise NoEvidence("the trajectory has no actions")
        states = await captions(self._states(trajectory), self.captioner)
        judged = await together([self._step(trajectory, i, states) for i in range(len(trajectory.steps))])
        steps = tuple(step for step, _ in judged)
        if self.preset == "prill" and all(step.flagged for step in steps):
            raise Unparsable(f"no reply holds a label; the first: {steps[0].reason}")
        reached = any(step.label == "reached" for step in steps)
        score = round(min(1.0, max(probability for _, probability in judged)), 6)
        return Judgement(reached, score, _summary(steps), steps, tuple(step.reward for step in steps))

    async def _step(self, trajectory: Trajectory, i: int, states: Sequence[str | None]) -> tuple[StepVerdict, float]:
        prompt = prompt_of("steps")
        try:
            reply = await ask(
                self.model,
                lambda room: self._messages(trajectory, i, states, room),
                self._form,
                prompt,
                self.max_tokens,
                self.max_chars,
            )
        except Unparsable as unread:
            return StepVerdict(i, "not_sure", self.d, str(unread), flagged=True), 0.0
        word = reply.fields[STEP.verdict]
        label = LABELS[word]
        known = choice_probability(reply.tokens, STEP.verdict, STEP.choices, _REACHED, word) if reply.tokens else None
        reward = {"reached": 1.0, "towards": self.p}.get(label, self.d)
        return StepVerdict(i, label, reward, reply.fields[STEP.text]), float(word == _REACHED) if known is None else known

    def _messages(self, trajectory: Trajectory, i: int, states: Sequence[str | None], room: int) -> tuple[Message, ...]:
        def shown(name: str, text: str | None) -> str:
            return quoted(name, shorten(text or _NOT_RECORDED, room // 2))

        action = action_text(trajectory.steps[i].action, trajectory.task.platform)
        turns = prompt_of("steps").fill(
            {
                "goal": quoted("request", trajectory.task.goal),
                "before": shown("before", states[i]),
                "action": shown("action", action),
                "after": shown("after", states[i + 1]) if i + 1 < len(states) else "Terminated",
                "code": NONCE,
            }
        )
        if self.preset == "paper":
            return (Message("user", (turns["system"], turns["user"])),)
        return Message("system", (turns["system"],)), Message("user", (turns["user"],))


def kept_steps(verdict: Verdict, threshold: float, *, stop_at_reached: bool = True) -> tuple[int, ...]:
    """The places of the steps worth learning from: those with a reward of `threshold` (the paper: p) or more.

    What comes after the first step that reached the goal is dropped, unless `stop_at_reached` is False. An unscored verdict
    keeps nothing. Raises UsageError for the verdict of a judge that does not judge steps.
    """
    if verdict.unscored is not None:
        return ()
    if verdict.steps is None:
        raise UsageError(f"the verdict of {verdict.id} by {verdict.evaluator.name} judges no steps; use --evaluator steps")
    kept = []
    for step in sorted(verdict.steps, key=lambda step: step.index):
        if step.reward >= threshold:
            kept.append(step.index)
        if stop_at_reached and step.label == "reached":
            break
    return tuple(kept)


def outcome_rewards(verdict: Verdict, trajectory: Trajectory) -> tuple[float, ...] | None:
    """The paper's rewards of a verdict on the outcome: 0 for every step, and 1 for the last one after success.

    None for an unscored verdict: no reward is known.
    """
    if verdict.success is None:
        return None
    count = len(trajectory.steps)
    return tuple(float(verdict.success and i == count - 1) for i in range(count))


def _summary(steps: Sequence[StepVerdict]) -> str:
    first = next((step for step in steps if step.label == "reached"), None)
    if first is not None:
        return f"action {first.index + 1} reached the goal: {first.reason}"
    counts = Counter("without a label" if step.flagged else step.label.replace("_", " ") for step in steps)
    return "no action reached the goal: " + ", ".join(f"{count} {label}" for label, count in counts.most_common())
