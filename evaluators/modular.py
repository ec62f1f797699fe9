"""Modular judge: a captioner turns the last states into text, a language model reasons over it (arXiv 2404.06474, 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from prill.errors import NoEvidence
from prill.evaluators.calls import together
from prill.evaluators.frames import images_read, known_captions
from prill.evaluators.outcome import (
    MAX_TOKENS,
    ROOM,
    Judgement,
    OutcomePrompts,
    judge_outcome,
    outcome_messages,
    state_block,
    verdict_of,
)
from prill.evaluators.presets import PresetName
from prill.evaluators.presets import preset as preset_of
from prill.models.wire import estimate_tokens
from prill.protocols import Captioner, LanguageModel, Message
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict

_PROMPTS = OutcomePrompts("text")


class CaptionJudge:
    """Judges by captions of the last `frames` states (the paper: 1). The captioner never sees the goal.

    `include_answer` shows the agent's answer, and `include_thoughts` its thoughts, as claims; None: as the preset has it.
    False: actions lose the words of the agent's messages too; the paper's protocol keeps them where it hides the answer.
    """

    def __init__(
        self,
        model: LanguageModel,
        captioner: Captioner,
        *,
        preset: PresetName = "prill",
        frames: int = 1,
        include_answer: bool | None = None,
        include_thoughts: bool = False,
        max_tokens: int = MAX_TOKENS,
        max_chars: int = ROOM,
    ) -> None:
        self.model = model
        self.captioner = captioner
        self.preset = preset_of(preset, "text", frames)
        self.frames = frames
        self.include_answer = include_answer
        self.include_thoughts = include_thoughts
        self.max_tokens = max_tokens
        self.max_chars = max_chars

    @cached_property
    def info(self) -> EvaluatorInfo:
        """Changes whenever a verdict could."""
        params = {
            "captioner": self.captioner.name,
            "preset": self.preset.name,
            "frames": self.frames,
            "include_answer": self.include_answer,
            "include_thoughts": self.include_thoughts,
            "max_tokens": self.max_tokens,
            "max_chars": self.max_chars,
        }
        return EvaluatorInfo("modular", self.preset.version, self.model.name, _PROMPTS.hash, params)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """The images of the states that are captioned, where captions come from images."""
        return images_read(trajectory.observations[-self.frames :], self.captioner)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict; unscored with `no_evidence` when the last states lack what the captioner reads."""
        return await verdict_of(self, trajectory, lambda: self._judge(trajectory))

    def estimate(self, trajectory: Trajectory) -> Usage:
        """The call that would be made, with tokens guessed at four characters a token; no caption is made for it."""
        states = trajectory.observations[-self.frames :]
        texts = [text for text in known_captions(states, self.captioner) if text]
        if not texts:
            return Usage()
        words = "".join(str(part) for m in self._messages(trajectory, texts, self.max_chars) for part in m.parts)
        return Usage(1, estimate_tokens(words), self.max_tokens // 4, 0)

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        states = trajectory.observations[-self.frames :]
        if not states:
            raise NoEvidence("the trajectory has no states")
        captions = await together([self.captioner(state) for state in states])
        return await judge_outcome(
            self.model,
            lambda room: self._messages(trajectory, captions, room),
            _PROMPTS.of(trajectory),
            self.max_tokens,
            self.max_chars,
            self.preset.form,
        )

    def _messages(self, trajectory: Trajectory, captions: Sequence[str], room: int) -> tuple[Message, ...]:
        return outcome_messages(
            _PROMPTS.of(trajectory),
            trajectory,
            room,
            answer=self.preset.shows_answer(trajectory, self.include_answer),
            thoughts=self.include_thoughts,
            messages=self.include_answer is not False,
            state=state_block(captions, room),
        )
