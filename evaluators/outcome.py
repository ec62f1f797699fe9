"""What all judges of outcomes share: the prompt of the platform, one call, one verdict, and failures as states."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from prill.errors import NoEvidence, UsageError
from prill.evaluators.evidence import action_history, claims, last_frames, without_claims
from prill.evaluators.frames import images_read, known_captions
from prill.evaluators.judgement import Judgement, verdict_of
from prill.models.calls import ROOM, ask, together
from prill.models.prompts import NONCE, Prompt, content_hash, estimate_tokens, load_prompt, quoted, shorten
from prill.models.replies import ReplyFormat, choice_probability
from prill.protocols import Captioner, Image, LanguageModel, Message
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict

STATUS = ReplyFormat("thoughts", "status", ("success", "failure"))
MAX_TOKENS = 1024
_DEVICES = {"android": "an Android phone", "ios": "an iPhone", "desktop": "a desktop computer", "other": "a computer or phone"}


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


# Two ways of judging outcomes by one call: `prill`, our defaults, and `paper`, as arXiv 2404.06474 did it.
#
# The paper's code shows one state, the last. On the web its text judge sees the agent's answer and its vision judge does not
# (although the prompt printed in the paper has a place for it); on phones it is the other way round. It asks for two lines,
# "Thoughts:" and "Status:". The wording of our prompts is our own in both presets. One deliberate difference: a reply without
# a verdict, and a failed call, count as failures there and are unscored here (`reference_verdict` has the original's reading).


PresetName = Literal["prill", "paper"]


@dataclass(frozen=True, slots=True)
class Preset:
    """What a preset decides. Raise `version` when one of these changes."""

    name: PresetName
    version: str
    form: ReplyFormat
    answer_on_the_web: bool
    answer_on_devices: bool

    def shows_answer(self, trajectory: Trajectory, chosen: bool | None) -> bool:
        """Whether the judge is shown the agent's answer; `chosen` is the user's own word, if any."""
        if chosen is not None:
            return chosen
        return self.answer_on_the_web if trajectory.task.platform == "web" else self.answer_on_devices


_TAGGED = replace(STATUS, tagged=True)
_PRILL = Preset("prill", "2", STATUS, answer_on_the_web=True, answer_on_devices=True)
_PRESETS = {
    ("prill", "text"): _PRILL,
    ("prill", "vision"): _PRILL,
    ("paper", "text"): Preset("paper", "1", _TAGGED, answer_on_the_web=True, answer_on_devices=False),
    ("paper", "vision"): Preset("paper", "1", _TAGGED, answer_on_the_web=False, answer_on_devices=True),
}


def preset_named(name: str, kind: Literal["text", "vision"], frames: int) -> Preset:
    """The preset of that name for a judge that reads captions (`text`) or looks (`vision`). Raises UsageError."""
    if name not in ("prill", "paper"):
        raise UsageError(f"unknown preset {name!r}; there are: prill, paper")
    if name == "paper" and frames != 1:
        raise UsageError("the paper's protocol shows one state; leave --frames away, or use --preset prill")
    return _PRESETS[name, kind]


def reference_action(text: str) -> str | None:
    """How the original's code puts a recorded web action into words, kept for comparing with its prompts; prill's own way is
    `prill.evaluators.evidence.action_text`.

    A click loses its first six words, which costs an element without a repeated number its role; what cannot be taken apart
    is None. Source: spec sections 3 and 20 (D18, D24) of the reference implementation.
    """
    if text.startswith("click"):
        return f"click at [{' '.join(text.split()[6:])}]"
    if text.startswith("type"):
        typed, element = re.findall(r"\[([^\]]*)\]", text)[1:2], text.rpartition("]")[2].strip()
        return f"type [{typed[0]}] at [{element}]" if typed and element else None
    return text


def reference_verdict(reply: str, reading: Literal["offline", "reflexion"]) -> bool:
    """How the original's code reads a reply, kept for comparing with its figures; prill itself never reads replies this way.

    The first line that begins with "Status:" counts. `offline`, its evaluation scripts: success is exactly "success" or
    "Success". `reflexion`, its retries: success is any status that contains "success", so "unsuccessful" too. All else,
    a missing status included, is failure. Source: spec sections 7 and 20 (D3) of the reference implementation.
    """
    found = re.search(r"^Status:(.*)$", reply, re.MULTILINE)
    status = found[1].strip().replace('"', "") if found else ""
    return status in ("success", "Success") if reading == "offline" else "success" in status


# Modular judge: a captioner turns the last states into text, a language model reasons over it (arXiv 2404.06474, 3.2).


_TEXT_PROMPTS = OutcomePrompts("text")


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
        self.preset = preset_named(preset, "text", frames)
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
        return EvaluatorInfo("modular", self.preset.version, self.model.name, _TEXT_PROMPTS.hash, params)

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
            _TEXT_PROMPTS.of(trajectory),
            self.max_tokens,
            self.max_chars,
            self.preset.form,
        )

    def _messages(self, trajectory: Trajectory, captions: Sequence[str], room: int) -> tuple[Message, ...]:
        return outcome_messages(
            _TEXT_PROMPTS.of(trajectory),
            trajectory,
            room,
            answer=self.preset.shows_answer(trajectory, self.include_answer),
            thoughts=self.include_thoughts,
            messages=self.include_answer is not False,
            state=state_block(captions, room),
        )


# End-to-end judge: a vision-language model sees the last screenshots, the actions and the answer (arXiv 2404.06474, 3.1).


_VISION_PROMPTS = OutcomePrompts("vision")


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
        self.preset = preset_named(preset, "vision", frames)
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
        return EvaluatorInfo("vlm", self.preset.version, self.model.name, _VISION_PROMPTS.hash, params)

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
        prompt = _VISION_PROMPTS.of(trajectory)
        return await judge_outcome(
            self.model, lambda room: self._messages(trajectory, room), prompt, self.max_tokens, form=self.preset.form
        )

    def _messages(self, trajectory: Trajectory, room: int = ROOM) -> tuple[Message, ...]:
        frames = last_frames(trajectory, self.frames)
        lines = "\n".join(f"Image {i}: the state {when}." for i, (when, _) in enumerate(frames, 1))
        images = [Image(frame.screenshot) for _, frame in frames if frame.screenshot]
        prompt = _VISION_PROMPTS.of(trajectory)
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
