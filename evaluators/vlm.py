"""End-to-end judge: a vision-language model sees the last screenshots, the actions and the answer (arXiv 2404.06474, 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from prill.errors import NoEvidence
from prill.evaluators.evidence import last_frames
from prill.evaluators.outcome import MAX_TOKENS, ROOM, Judgement, OutcomePrompts, judge_outcome, outcome_messages, verdict_of
from prill.evaluators.presets import PresetName
from prill.evaluators.presets import preset as preset_of
from prill.models.wire import estimate_tokens
from prill.protocols import Image, LanguageModel, Message
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict

_PROMPTS = OutcomePrompts("vision")


class VLMJudge:
    """Judges by the last `frames` screenshots (the paper: 1; more did not help there).

    `include_answer` shows the agent's answer, and `include_thoughts` its thoughts, as claims; None: as the preset has it.
    False: actions lose the words of the agent's messages too; the paper's protocol keeps them where it hides the answer.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        preset: PresetName = "prill",
        frames: int = 1,
        include_answer: bool | None = None,
        include_thoughts: bool = False,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self.model = model
        self.preset = preset_of(preset, "vision", frames)
        self.frames = frames
        self.include_answer = include_answer
        self.include_thoughts = include_thoughts
        self.max_tokens = max_tokens

    @cached_property
    def info(self) -> EvaluatorInfo:
        """Changes whenever a verdict could."""
        params = {
            "preset": self.preset.name,
            "frames": self.frames,
            "include_answer": self.include_answer,
            "include_thoughts": self.include_thoughts,
            "max_tokens": self.max_tokens,
        }
        return EvaluatorInfo("vlm", self.preset.version, self.model.name, _PROMPTS.hash, params)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """The frames that are shown."""
        return [frame.screenshot for _, frame in last_frames(trajectory, self.frames) if frame.screenshot]

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` when no state has a screenshot."""
        return await verdict_of(self, trajectory, lambda: self._judge(trajectory))

    def estimate(self, trajectory: Trajectory) -> Usage:
        """The call that would be made, with tokens guessed at four characters, and 28 x 28 pixels, a token."""
        from prill.models.images import image_size

        paths = self.screenshots(trajectory)
        if not paths:
            return Usage()
        words = "".join(str(part) for message in self._messages(trajectory) for part in message.parts)
        pixels = sum(width * height for width, height in map(image_size, paths))
        return Usage(1, estimate_tokens(words) + pixels // 784, self.max_tokens // 4, len(paths))

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        if not self.screenshots(trajectory):
            raise NoEvidence("no state of this trajectory has a screenshot; use --evaluator modular for text")
        prompt = _PROMPTS.of(trajectory)
        return await judge_outcome(
            self.model, lambda room: self._messages(trajectory, room), prompt, self.max_tokens, form=self.preset.form
        )

    def _messages(self, trajectory: Trajectory, room: int = ROOM) -> tuple[Message, ...]:
        frames = last_frames(trajectory, self.frames)
        lines = "\n".join(f"Image {i}: the state {when}." for i, (when, _) in enumerate(frames, 1))
        images = [Image(frame.screenshot) for _, frame in frames if frame.screenshot]
        prompt = _PROMPTS.of(trajectory)
        answer = self.preset.shows_answer(trajectory, self.include_answer)
        return outcome_messages(
            prompt,
            trajectory,
            room,
            answer=answer,
            thoughts=self.include_thoughts,
            messages=self.include_answer is not False,
            images=images,
            frames=lines,
        )
